"""Sends the outbox, a batch at a time, each until the server has it. Lives on the portal's thread."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import anyio
from redis.exceptions import ResponseError

from . import _batch, _codec
from ._refusals import is_passing

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from ._batch import Batch
    from ._clock import BusClock
    from ._outbox import Outbox
    from ._scripts import Bounds, Calls
    from ._statistics import Tally

PACE = 0.005
"""Seconds between the starts of two batches that are not full: what trickles in meanwhile shares one call."""

_MAX_NAMES = 10_000
_log = logging.getLogger("ephemeral")


class Sender:
    """Keeps one batch in flight; what failed is sent again as it was, with new ages.

    Sequences are given out when a batch is taken, so raising needs no lock; the server skips a batch that it has.

    Args:
        outbox: What waits.
        clock: Heeds the server's answers.
        tally: Counts.
        bounds: What the bus keeps.
        sink_now: The clock of the signals' stamps.
        publish_items: Whether what ladders raise for each item goes into its stream.

    Attributes:
        is_idle: Whether it waits to be woken; whoever raises reads it, and sets it when it wakes.
    """

    def __init__(
        self,
        outbox: Outbox,
        clock: BusClock,
        tally: Tally,
        *,
        bounds: Bounds,
        sink_now: Callable[[], float],
        publish_items: bool,
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._tally = tally
        self._bounds = bounds
        self._sink_now = sink_now
        self._publish_items = publish_items
        self._numbers = _batch.Numbers()
        self._current: list[_codec.Outgoing] = []
        self._markers: list[Future[None]] = []
        self._known: dict[str, float] = {}
        self._news: anyio.Event | None = None
        self.is_idle = True

    @property
    def pending(self) -> int:
        """Signals that the server has not acknowledged."""
        return len(self._outbox) + len(self._current)

    def wake(self) -> None:
        """Tell it that the outbox is no longer empty."""
        if self._news is not None:
            self._news.set()

    async def run(self, calls: Calls) -> None:
        """Send for ever; raises when the server cannot be reached or takes nothing for now."""
        started_at = -PACE
        while True:
            if not self._current:
                await self._wait_for_work(started_at)
                self._take()
            started_at = time.monotonic()
            if self._current:
                await self._send(calls)
            markers, self._markers = self._markers, []
            for marker in markers:
                if not marker.done():
                    marker.set_result(None)

    async def _wait_for_work(self, started_at: float) -> None:
        while self._outbox.is_empty:
            self._news = anyio.Event()
            self.is_idle = True
            # Asked again: a raise that came before the line above did not see it.
            if self._outbox.is_empty:
                await self._news.wait()
            self.is_idle = False
        # What trickles in shares a call, unless somebody waits for it.
        with anyio.move_on_after(started_at + PACE - time.monotonic()):
            while len(self._outbox) < _codec.MAX_BATCH_SIGNALS and not self._outbox.is_asked:
                self._news = anyio.Event()
                await self._news.wait()

    def _take(self) -> None:
        taken = self._outbox.take(self._sink_now() - self._bounds.retention)
        self._numbers = self._numbers.skip(*taken.skipped)
        self._current = taken.signals
        self._markers += taken.markers

    async def _send(self, calls: Calls) -> None:
        """Send the current signals; on a refusal that will not pass, halve them until the culprit stands alone."""
        whole = self._current
        size = len(whole)
        while self._current:
            part = self._current[:size]
            batch, numbers = _batch.lay_out(calls.origin, part, self._numbers, publish_items=self._publish_items)
            try:
                await self._publish(calls, batch)
            except ResponseError as error:
                if is_passing(error):
                    raise
                if len(part) > 1:
                    size = len(part) // 2
                    continue
                self._refuse(part[0], error)
                # Applied in part, perhaps: its numbers are not given out again.
            self._numbers = numbers
            self._current = self._current[size:]

    async def _publish(self, calls: Calls, batch: Batch) -> None:
        shallow, deep = self._names(batch)
        asked_at = time.monotonic()
        is_new, server_time = await calls.publish(batch, self._bounds, now=self._sink_now(), shallow=shallow, deep=deep)
        answered_at = time.monotonic()
        self._clock.learn(server_time, asked_at=asked_at, answered_at=answered_at)
        self._tally.batches += 1
        self._tally.round_trips.append(answered_at - asked_at)
        if is_new:
            self._tally.applied += len(batch.stamps)
        else:
            self._tally.duplicate += len(batch.stamps)

    def _names(self, batch: Batch) -> tuple[list[str], list[str]]:
        """Return the scopes that the server should be reminded of: each twice in the time it keeps them."""
        now = time.monotonic()
        due = [scope for scope in batch.scopes if self._known.get(scope, now) <= now]
        if len(self._known) + len(due) > _MAX_NAMES:
            self._known.clear()
        for scope in due:
            self._known[scope] = now + self._bounds.retention / 2
        return [scope for scope in due if ":" not in scope], [scope for scope in due if ":" in scope]

    def _refuse(self, signal: _codec.Outgoing, error: ResponseError) -> None:
        if not self._tally.refused:
            _log.error("the bus refuses signal %r and drops it: %s; further ones are counted", signal[0][0], error)
        self._tally.refused += 1
