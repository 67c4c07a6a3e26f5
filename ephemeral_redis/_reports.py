"""Tells the health table how calls ended: failures at once, successes with the next call. On the portal's thread."""

from __future__ import annotations

import logging
import time
from collections import deque
from itertools import zip_longest
from typing import TYPE_CHECKING

import anyio
from redis.exceptions import ResponseError

from ephemeral.abc import HealthNews

from ._refusals import is_passing
from ._scripts import Evidence
from ._standing import Kept, Standing, standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ephemeral.abc import HealthReport

    from ._clock import BusClock
    from ._mirror import Mirror
    from ._scripts import Answer, Calls
    from ._statistics import Tally

MAX_REPORTS = 10_000
"""Reports that wait while the bus is away; the oldest are dropped, and most would be out of their window anyhow."""

PACE = 0.005
"""Seconds between two calls that tell of successes alone."""

_log = logging.getLogger("ephemeral")


class Reports:
    """A lane of its own, so that a failure waits behind no bulk of signals.

    Args:
        clock: Heeds the server's answers.
        tally: Counts.
        mirror: The health table as it is known here.
        origin: This worker.

    Attributes:
        dropped: Reports dropped because too many waited.
    """

    def __init__(self, clock: BusClock, tally: Tally, mirror: Mirror, origin: str) -> None:
        self._clock = clock
        self._mirror = mirror
        self._tally = tally
        self._origin = origin
        self._standing = Standing()
        mirror.watch(self._standing)
        self._kept: deque[Kept] = deque()
        self._next = 0
        # Made anew on the portal's loop by whoever waits.
        self._news: anyio.Event | None = None
        self._failure: anyio.Event | None = None
        self._emptied: anyio.Event | None = None
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, report: HealthReport, ended_at: float) -> None:
        """Keep *report* until it is told; *ended_at* is of this process's monotonic clock."""
        self._kept.append(Kept(report, ended_at, self._next))
        self._next += 1
        if len(self._kept) > MAX_REPORTS:
            self._leave_untold(self._kept.popleft())
            self.dropped += 1
        _set(self._news)
        if report.has_failed:
            _set(self._failure)

    async def drained(self) -> None:
        """Wait until all is told."""
        while self._kept:
            self._emptied = anyio.Event()
            await self._emptied.wait()

    async def run(self, calls: Calls) -> None:
        """Tell for ever; raises when the server cannot be reached or takes nothing for now."""
        while True:
            self._failure, self._news = anyio.Event(), anyio.Event()
            await self.tell(calls)
            with anyio.move_on_after(PACE):
                await self._failure.wait()
            if not self._kept:
                await self._news.wait()

    async def tell(self, calls: Calls) -> None:
        """Tell all that is kept, by processor and in the order it came."""
        while self._kept:
            groups: dict[tuple[str, int], list[Kept]] = {}
            for kept in self._kept:
                groups.setdefault((kept.report.processor, kept.report.epoch), []).append(kept)
            for (processor, epoch), group in groups.items():
                if await self._tell_group(calls, processor, epoch, group):
                    told = {kept.number for kept in group}
                    self._kept = deque(kept for kept in self._kept if kept.number not in told)
        _set(self._emptied)

    async def _tell_group(self, calls: Calls, processor: str, epoch: int, group: Sequence[Kept]) -> bool:
        """Tell, and return whether that is done: not if the server had lost the row, which is put back first."""
        if self._mirror.is_over(processor, epoch):
            return True  # a server that has lost its data would take it for news
        window, now = group[-1].report.rules.failure_window, time.monotonic()
        recent = [kept for kept in group if now - kept.ended_at <= window]
        if recent and not await self._tell_recent(calls, processor, epoch, recent):
            return False
        # The bus was away for longer than these count.
        self._leave_untold(*(kept for kept in group if now - kept.ended_at > window))
        return True

    async def _tell_recent(self, calls: Calls, processor: str, epoch: int, recent: Sequence[Kept]) -> bool:
        asked_at = time.monotonic()
        rules = recent[-1].report.rules
        counting = standing(self._standing.told(processor, epoch), recent, rules, asked_at)
        try:
            answer = await self._report(calls, recent)
            if answer.failures < len(counting) and answer.is_counted and answer.is_up:
                # Cleared by a success elsewhere, or thrown away by a server that is short of memory: told again, for
                # the server knows which, and counts none twice.
                answer = await self._report(calls, counting)
            self._tally.reports += len(recent) if answer.is_counted else 0
            if not answer.is_counted and await self._mirror.heal(calls, processor, answer.row) != answer.row:
                return False
            counts = answer.failures if answer.is_counted and answer.is_up else 0
            self._standing.keep(processor, counting[max(0, len(counting) - counts) :])
        except ResponseError as error:
            if is_passing(error):
                raise
            _log.error("the bus refuses reports of %r and drops them: %s", processor, error)
            self._leave_untold(*recent)
        return True

    def _leave_untold(self, *reports: Kept) -> None:
        """Say that nobody will ever count *reports*: a ladder that has ended may wait to hear of them."""
        for kept in reports:
            if kept.report.has_failed:
                self._mirror.hear(HealthNews("uncounted", self._origin, kept.report.processor, None, 0, 1))

    async def _report(self, calls: Calls, ended: Sequence[Kept]) -> Answer:
        """Tell how calls of one processor ended that started in one epoch, in the order in which they did."""
        asked_at = time.monotonic()
        newest = ended[-1].report
        failures = [kept for kept in ended if kept.report.has_failed]
        successes = [kept for kept in ended if not kept.report.has_failed]
        if newest.rules.policy == "consecutive":
            # The last of each run: what failed between two of them may have been one too many.
            successes = [
                one
                for one, after in zip_longest(ended, ended[1:])
                if not one.report.has_failed and (after is None or after.report.has_failed)
            ]
        answer = await calls.report(
            newest.processor,
            newest.epoch,
            newest.rules,
            failures=_evidence(calls.origin, failures, asked_at),
            successes=_evidence(calls.origin, successes, asked_at),
            down=newest.down_at(self._clock.now()),
        )
        self._clock.learn(answer.server_time, asked_at=asked_at, answered_at=time.monotonic())
        return answer


def _evidence(origin: bytes, kept: Sequence[Kept], now: float) -> Evidence:
    return Evidence(
        [origin + one.number.to_bytes(6, "big") for one in kept], [int((now - one.ended_at) * 1e6) for one in kept]
    )


def _set(event: anyio.Event | None) -> None:
    if event is not None:
        event.set()
