"""The health of a group's processors where a fleet shares it: a local table, decisions offered to the bus.

Decisions are ``_health``'s, as in one process. What differs is where they are put: into the shared table, as a swap
that fails if the table has moved on and is then decided anew; or, while the bus is away, on a row of one's own. Such a
row also holds the trip of a worker that sees failures which its fleet, by its quorum, does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial

import anyio

from ._futures import wait_for_future
from ._health import (
    Cause,
    Change,
    Counts,
    HealthRecord,
    HealthRules,
    Lease,
    grant,
    judge,
    trip,
)
from ._health_store import HealthStore, LocalHealthStore
from ._loops import current_loop
from ._shared_entry import ByHand, Decision, Return, SharedEntry, Verdict
from ._shown_health import ShownHealth
from ._sink import SignalSink
from .abc import BusUnavailableError, HealthNews, HealthReport, SharedRecord, SignalBackend, Swap

LEARN_SECONDS = 1.0
"""How long a ladder that begins waits for the table, or to hear that the bus is away; a millisecond is usual."""


class SharedHealthStore(ShownHealth, HealthStore):
    """The health of processors that all workers of a fleet use.

    ``record`` and the reports cost no I/O; a report reaches the table within about a millisecond. ``acquire`` waits for
    one round trip, and is a cancellation point then. Changes by others arrive on the loop of the first ``register``.

    Args:
        backend: The bus.
    """

    def __init__(self, backend: SignalBackend) -> None:
        super().__init__(backend)
        self._entries: dict[str, SharedEntry] = {}
        self._leaving: dict[str, SharedEntry] = {}
        # None: not known yet. Whoever decided alone then would be overruled a millisecond later.
        self._is_alone: bool | None = None
        self._is_told = True
        self._told: anyio.Event | None = None

    def register(self, processor: str, rules: HealthRules, now: float) -> None:
        if processor in self._entries:
            raise ValueError(f"{processor!r} is registered already; forget it first")
        if self._loop is None:
            self._loop = current_loop()
        # A processor that nobody has ever taken down has no row: it is up, in epoch 0.
        self._entries[processor] = SharedEntry(
            rules, HealthRecord(processor, epoch=0, since=now, by=self._backend.origin)
        )
        # Again for each, so that the table is told again: this one's row may have been in it all along.
        self._backend.unwatch(self)
        self._is_told = False
        self._backend.watch(self)

    async def learned(self) -> None:
        if not self._is_told:
            if self._told is None:  # one event for all who enter at the same time
                self._told = anyio.Event()
            with anyio.move_on_after(LEARN_SECONDS):
                await self._told.wait()

    def _note_told(self) -> None:
        self._is_told = True
        if self._told is not None:
            self._told.set()
            self._told = None

    def forget(self, processor: str) -> None:
        entry = self._entries.pop(processor, None)
        # An edge that this worker has caused is told by nobody else: the last answer is waited for, over an outage too.
        if entry is not None and entry.is_awaited:
            self._leaving[processor] = entry
        self._unwatch_if_done()

    @property
    def is_leaving(self) -> bool:
        """Whether all that is left to do is to hear, and to tell, what became of the last reports and decisions."""
        return bool(self._leaving) and not self._entries

    def _let_go(self, entry: SharedEntry) -> None:
        """Wait no longer for an entry that has left, if all its answers are there."""
        if not entry.is_awaited and self._leaving.get(entry.processor) is entry:
            del self._leaving[entry.processor]
            self._unwatch_if_done()

    def _unwatch_if_done(self) -> None:
        if not self._entries and not self._leaving:
            self._backend.unwatch(self)

    def record(self, processor: str) -> HealthRecord:
        return self._entries[processor].shown

    def failures(self, processor: str, now: float) -> int:
        entry = self._entries[processor]
        if not entry.shown.is_up:
            return entry.shown.failures
        is_recent = now - entry.counted_at <= entry.rules.failure_window
        return max(entry.evidence.failures(now), entry.counted if is_recent else 0)

    # Reports

    def failed(self, processor: str, epoch: int, now: float) -> None:
        entry = self._entries.get(processor)
        if entry is None or not entry.shown.is_up or entry.shown.epoch != epoch:
            return
        entry.evidence.failed(now)
        entry.is_streak_open = True
        self._report(entry, has_failed=True)
        self._judge(entry, now)

    def _judge(self, entry: SharedEntry, now: float) -> None:
        """Take a processor that is up down for this worker alone, if what it has seen itself is enough for that."""
        own = entry.evidence.counts(now)
        # Alone, what this worker sees is all there is to judge by; whatever quorum was asked for cannot be asked.
        fleet, origins = (own, entry.rules.quorum) if self._decides_alone(entry) else (Counts(0), 0)
        if judge(entry.rules, own=own, fleet=fleet, origins=origins) is not None:
            now_there, origin = self._backend.bus_time(), self._backend.origin
            change = trip(entry.current, entry.rules, "worker", failures=own.failures, by=origin, now=now_there)
            self._put_own(entry, change)

    def succeeded(self, processor: str, epoch: int, now: float) -> None:
        entry = self._entries.get(processor)
        # Nearly every call ends here: nobody's failures are open, and no policy asks for the successes.
        if entry is None or not (entry.is_streak_open or entry.evidence.heeds_success):
            return
        if not entry.shown.is_up or entry.shown.epoch != epoch:
            return
        entry.evidence.succeeded(now)
        if entry.rules.policy != "windowed":
            self._report(entry, has_failed=False)
        # One success tells all there is to tell, until somebody fails again.
        entry.is_streak_open = False

    def _report(self, entry: SharedEntry, *, has_failed: bool) -> None:
        # Of the table's epoch, and of the record as it is now: it may be told much later.
        record, rules, origin = entry.row.record, entry.rules, self._backend.origin
        if not record.is_up or not entry.row.is_readable:
            return  # up for this worker alone, which found so while the bus was away or the row could not be read
        entry.reports_awaited += has_failed

        def down_at(time: float) -> HealthRecord:
            return trip(record, rules, "fleet", failures=0, by=origin, now=time).after

        self._backend.report(HealthReport(record.processor, record.epoch, has_failed, rules, down_at))

    # Decisions

    async def acquire(self, processor: str, now: float) -> Lease | None:
        change, future = self._ask(processor, now)
        if change is None:
            return None
        if future is not None:
            try:
                is_granted = await wait_for_future(future)
            except BusUnavailableError:
                return None
            except BaseException:  # cancelled: a lease that is granted all the same is nobody's
                future.add_done_callback(lambda done: self._hop(partial(self._unwanted, change, done)))
                raise
            if not is_granted:
                return None
        return self._localized(change.after).lease

    def _ask(self, processor: str, now: float) -> tuple[Change | None, Future[bool] | None]:
        """Take the lease on a row of this worker's own, or ask the table for it; nothing, if no probe is due."""
        entry = self._entries.get(processor)
        # The fleet's may be up while what is shown, a trip of this worker's own, waits for the table to answer.
        if entry is None or now < entry.shown.probe_due_at or not math.isfinite(entry.current.probe_due_at):
            return None, None
        # Due by the clock it was shown in; the bus's own is known to within a round trip, and might say: not quite yet.
        time = max(self._backend.bus_time(), entry.current.probe_due_at)
        change = grant(entry.current, entry.rules, owner=self._backend.origin, now=time)
        if change is None:
            return None, None
        if self._decides_alone(entry) or entry.own is not None:
            self._put_own(entry, change)
            return change, None
        return change, self._backend.swap(_swap(change, entry.row))

    def _unwanted(self, change: Change, future: Future[bool]) -> None:
        if future.exception() is None and future.result() and change.after.lease is not None:
            self.give_back(change.after.lease)

    def finish(self, lease: Lease, now: float, *, is_good: bool) -> None:  # noqa: ARG002  decided in the bus's time
        entry = self._entries.get(lease.processor)
        if entry is not None:
            self._decide(entry, Verdict(entry.rules, lease, is_good))

    def give_back(self, lease: Lease) -> None:
        entry = self._entries.get(lease.processor)
        if entry is not None:
            self._decide(entry, Return(lease))

    def isolate(self, processor: str, now: float) -> None:  # noqa: ARG002  decided in the bus's time
        entry = self._entries.get(processor)
        if entry is not None:
            self._decide_at_once(entry, ByHand("isolate", self._backend.origin))

    def reset(self, processor: str, now: float) -> None:  # noqa: ARG002  decided in the bus's time
        entry = self._entries.get(processor)
        if entry is None:
            return
        entry.forget_counts()
        if entry.own is not None and entry.row.record.is_up:
            # Down for this worker alone: its own row is all there is to reset.
            self._drop_own(entry, "reset")
        self._decide_at_once(entry, ByHand("reset", self._backend.origin))

    def _decide_at_once(self, entry: SharedEntry, decision: ByHand) -> None:
        """Show a decision by hand before the table has it: whoever takes it looks for it on the next line."""
        change = decision(entry.expected, self._backend.bus_time())
        if change is None and entry.undecided is None and not self._decides_alone(entry):
            return
        entry.wish = decision
        if change is None:
            entry.keep(decision)  # so it is here already; the fleet may know better, or what waits say otherwise
            return
        if self._decides_alone(entry):
            self._put_own(entry, change)
            entry.undecided = decision
            return
        entry.promised = (change.after, entry.settled)
        waits = self._is_alone is None or entry.undecided is not None
        if waits:
            entry.undecided = decision  # in place of an earlier one: offered once the fleet can be asked
        self._show(entry, self._localized(change.after), change.cause, is_own=False)
        if not waits:
            self._offer(entry, decision, change)

    def _decide(self, entry: SharedEntry, decision: Decision) -> None:
        change = decision(entry.current, self._backend.bus_time())
        if change is None and self._decides_alone(entry):
            entry.keep(decision)  # so it is here already; the fleet may know better
            return
        if change is None:
            entry.came_true(decision)
            return
        if self._decides_alone(entry) or entry.own is not None:
            self._put_own(entry, change)
            if self._decides_alone(entry):
                entry.keep(decision)  # the fleet is offered it as soon as it can be asked
        else:
            self._offer(entry, decision, change)

    def _decides_alone(self, entry: SharedEntry) -> bool:
        """Whether the fleet cannot be asked: the bus is away, or holds a row that this version does not understand."""
        return self._is_alone is True or not entry.row.is_readable

    def _offer(self, entry: SharedEntry, decision: Decision, change: Change) -> None:
        entry.offers += 1
        future = self._backend.swap(_swap(change, entry.row))
        future.add_done_callback(lambda done: self._hop(partial(self._offered, entry, decision, done)))

    def _offered(self, entry: SharedEntry, decision: Decision, future: Future[bool]) -> None:
        if future.exception() is None and future.result():
            entry.came_true(decision)
        entry.offers -= 1
        if future.exception() is not None:
            if entry.is_overruled(decision):
                pass
            elif self._is_alone:
                self._decide(entry, decision)
            else:
                entry.keep(decision)  # the bus will be back or be lost, and either is told: decided then
        elif not future.result():
            self._refresh(entry, "reset", is_own=False)
            # Not of a processor that has been forgotten: its row is old for ever, and refused for ever.
            if self._known(entry.processor) is entry and not entry.is_overruled(decision):
                self._decide(entry, decision)
        self._let_go(entry)

    def _settle_alone(self, entry: SharedEntry) -> None:
        decision, entry.undecided = entry.undecided, None
        if entry.promised is not None:
            # What was shown is no longer promised; shown again, and told, if it is decided here.
            entry.shown, entry.promised = entry.settled, None
        if decision is not None:
            self._decide(entry, decision)

    # News: told on any thread, heeded on the loop

    def table(self, rows: Mapping[str, SharedRecord]) -> None:
        """Be told the whole table."""
        self._hop(partial(self._table_came, rows))

    def news(self, news: HealthNews) -> None:
        """Be told one change."""
        self._hop(partial(self._news_came, news))

    def lost(self) -> None:
        """Be told that the bus is away."""
        self._hop(self._bus_went)

    def _table_came(self, rows: Mapping[str, SharedRecord]) -> None:
        self._is_alone = False
        for entry in (*self._entries.values(), *self._leaving.values()):
            if entry.processor in rows:
                self._follow(entry, rows[entry.processor], "reset", is_own=False)
            if entry.row.is_readable and self._entries.get(entry.processor) is entry:
                self._rejoin(entry)
            self._let_go(entry)
        self._note_told()

    def _rejoin(self, entry: SharedEntry) -> None:
        """Offer the fleet, which can be asked again, what was decided alone; else hold to what it says."""
        decision, entry.undecided = entry.undecided, None
        has_moved, entry.has_fleet_moved = entry.has_fleet_moved, False
        change = decision and decision(entry.row.record, self._backend.bus_time())
        if decision and change:
            # What was decided alone goes on being shown until the fleet has taken it or decided otherwise. Then it is
            # told besides, if it is an edge of what the fleet holds by now.
            before = self._localized(entry.row.record) if has_moved else entry.settled
            entry.own, entry.promised = None, (change.after, before)
            self._offer(entry, decision, change)
            return
        if decision:
            entry.came_true(decision)
            self._refresh(entry, "reset", is_own=False)  # it is so already, or no longer to be decided
        if entry.own is not None and not entry.may_differ:
            self._drop_own(entry, "reset")

    def _news_came(self, news: HealthNews) -> None:
        entry = self._known(news.processor)
        if entry is None:
            return
        is_own = news.origin == self._backend.origin
        if news.kind == "counted":
            entry.counted, entry.counted_at = news.failures, self._loop_now()
            entry.is_streak_open = news.failures > 0
            if news.failures == 0 and entry.rules.quorum == 1:
                # A success anywhere has ended the streak; own failures matter on their own only under a quorum.
                entry.evidence.clear()
        elif news.kind != "uncounted" and news.row is not None:
            cause: Cause = "reset" if news.kind == "healed" else news.kind
            self._follow(entry, news.row, cause, is_own=is_own)
        if is_own:
            entry.reports_awaited = max(0, entry.reports_awaited - news.reported)
        self._let_go(entry)

    def _known(self, processor: str) -> SharedEntry | None:
        return self._entries.get(processor) or self._leaving.get(processor)

    def _bus_went(self) -> None:
        self._note_told()
        if self._is_alone:
            return  # told again, as one more processor is registered: what was decided alone waits for the fleet
        self._is_alone = True
        for entry in list(self._entries.values()):
            self._settle_alone(entry)
            if entry.current.is_up:
                # What failed until the loss was noticed, the bus may never have heard of.
                self._judge(entry, self._loop_now())

    def _follow(self, entry: SharedEntry, row: SharedRecord, cause: Cause, *, is_own: bool) -> None:
        if not row.follows(entry.row):
            return
        if not row.is_readable:
            # What was known last goes on holding here, and nobody is asked about it any more.
            entry.row = entry.row._replace(version=row.version, is_readable=False)
            entry.reports_awaited = 0
            return
        was_readable = entry.row.is_readable
        is_new_epoch = row.record.epoch != entry.row.record.epoch
        before, had_own_beside = entry.row.record, entry.own is not None and entry.may_differ
        entry.row = row
        if is_new_epoch:
            entry.forget_counts()
            if is_own and had_own_beside:
                # The fleet has heard nothing yet of what this worker did alone: its edge is one besides.
                entry.shown, entry.promised = self._localized(before), None
            if entry.own is not None and isinstance(entry.undecided, ByHand):
                entry.has_fleet_moved = True  # and what is wished for holds here until the fleet is asked
            else:
                entry.own = None
            entry.reports_awaited = 0  # what was reported of the old one counts for nothing
        self._refresh(entry, cause, is_own=is_own)
        if not was_readable and not self._is_alone:
            self._rejoin(entry)


def _swap(change: Change, row: SharedRecord) -> Swap:
    return Swap(change.cause, row.version, change.after)


def health_store_of(sink: SignalSink) -> HealthStore:
    """Return a store for one ladder on *sink*: shared where the sink has a bus, this process's own elsewhere."""
    return LocalHealthStore(sink.origin) if sink.backend is None else SharedHealthStore(sink.backend)
