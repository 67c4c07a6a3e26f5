"""How the run of an item begins on a rung, how it ends, and what then becomes of the item.

Reports to the health store, which decides; raises the signals of items.
"""

from __future__ import annotations

import functools
import logging
import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, Final

import anyio

from ._bodies import StillRunningError, call_guarded, is_cancellation, order_to_end
from ._errors import CoordinatorCompletedError, ProcessingFailedError
from ._group import GroupOptions
from ._health_store import HealthStore
from ._intake import Intake
from ._operations import drop_tracebacks
from ._route import Route
from ._rungs import Item, Probe, Rung, first_up
from ._sink import SignalSink
from ._waiting import WaitingItems
from ._workers import Worker, Workers

_log: Final = logging.getLogger("ephemeral")

# What a canary or probe returns that was not given the lease: somebody else is probing.
REFUSED: Final = object()
# Seconds until a lease that was not given is asked for again, should nothing be heard of a prober before.
_ASK_AGAIN: Final = 0.1


class LadderRuns(ABC):
    """The items that run on the slots of a group's rungs.

    An accepted item is always in one place: waiting, running, or ended and counted. Signals are raised, and callbacks
    called, between two such places, so that whoever listens sees counters that balance.
    """

    def __init__(self, group: str, sink: SignalSink, health: HealthStore) -> None:
        self.group = group
        self.name = f"group {group!r}"
        self.options = GroupOptions()
        self.atoms: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()
        self.undelivered: list[tuple[int, Any]] = []
        self.total_completed: int = 0
        self.total_failed: int = 0
        self.total_cancelled: int = 0
        self.total_abandoned: int = 0
        self.callback_errors: int = 0
        self.health = health
        self.workers = Workers(self._serve, limit=1)
        self.route = Route(group, sink, health, self._moved, self._end_with)
        self._waiting = WaitingItems(self.route.rungs)
        self.intake: Intake[tuple[Any, str]] = Intake(self.name, self.options.max_pending, self._waiting, self._admit)
        self._sink = sink
        self._running: dict[int, Item] = {}
        self._swift_calls = 0  # calls that run without being an item
        self._serving: set[int] = set()  # the tasks of the workers
        self._is_over = False
        self._is_futile = False  # whether an item failed on a rung that is as good as out
        self._has_warned = False
        self._idle: anyio.Event | None = None  # made by those who wait for it
        self._times_idle = 0  # while somebody waited for it
        self._watch_wanted = anyio.Event()
        self._watch_until = 0.0

    @abstractmethod
    def _admit(self, named: tuple[Any, str], context: Context) -> int:
        """Put a new item at the back of the line and return its operation id."""

    @abstractmethod
    def _has_more(self) -> bool:
        """Whether another worker may find something to do."""

    @abstractmethod
    async def _serve(self, worker: Worker) -> None:
        """Run one item or probe after the other."""

    @abstractmethod
    def _moved(self, rung: Rung) -> None:
        """Move what waits, now that the health of *rung* has changed."""

    @property
    def pending(self) -> int:
        """Items and calls that wait."""
        return len(self._waiting) + len(self._waiting.calls)

    @property
    def active(self) -> int:
        """Items and calls that run."""
        return len(self._running) + self._swift_calls

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs; once all is over, calls end in their callers' own time."""
        if self._waiting:
            return False
        if self._is_over:
            return all(item.is_call for item in self._running.values())
        return not self._running and self._swift_calls == 0

    def describe(self) -> str:
        """Return the counters of the group in words."""
        return (
            f"{self.pending} pending, {self.active} active, {self.total_completed} completed, "
            f"{self.total_failed} failed, {self.total_cancelled} cancelled, {self.total_abandoned} abandoned, "
            f"{len(self.undelivered)} undelivered"
        )

    def _occupy(self, item: Item, rung: Rung, *, as_canary: bool = False) -> None:
        rung.active += 1
        self._running[item.id] = item
        item.rung = rung
        item.epoch = rung.epoch
        if as_canary:
            item.is_canary = True
            rung.asker = item
        if rung.slow_after is not None:
            item.slow_at = self.workers.now() + rung.slow_after
            if item.slow_at < self._watch_until:
                self._watch_wanted.set()

    def _vacate(self, item: Item, error: BaseException | None = None) -> None:
        """The run of *item* is over, and its slot is free."""
        del self._running[item.id]
        if isinstance(error, StillRunningError) and item.rung.has_given_up(error) and self.workers.is_open:
            hold = functools.partial(self._hold_slot, item.rung, item.epoch, error)
            self.workers.spawn(hold, "ephemeral slot")
        else:
            item.rung.active -= 1
        if item.rung.asker is item:
            item.rung.asker = None
        waiting = self._waiting
        if item.is_call and (waiting.line or waiting.calls or waiting.handed):
            self.workers.wake()  # a worker looks for its next job itself; a caller's task does not

    async def _hold_slot(self, rung: Rung, epoch: int, error: StillRunningError) -> None:
        """Keep a slot taken until the plain function in it returns, which cannot be interrupted.

        A rung whose last slot it holds would get no further call that could fail, and so never go down: there, each
        time its timeout has passed again counts as such a call.
        """
        with anyio.CancelScope(shield=True):
            while not error.returned.is_set():
                with anyio.move_on_after(error.timeout):
                    await error.returned.wait()
                if not error.returned.is_set() and not rung.has_slot:
                    self.health.failed(rung.name, epoch, self.workers.now())
        rung.active -= 1
        self.workers.wake()

    # Work runs

    def _call_processor(self, job: Item | Probe) -> Coroutine[Any, Any, Any]:
        """Call a processor for an item, or a probe, in the context of the item."""
        if isinstance(job, Probe) or job.is_canary:
            return self._run_leased(job)
        return self._begin(job)

    def _begin(self, item: Item) -> Coroutine[Any, Any, Any]:
        """Tell that the run of an item begins, and return that run."""
        rung = item.rung
        if item.name:
            self._sink.raise_made(f"processing.started:{rung.name}:{item.name}", item.id)
        return rung.run(item.payload)

    async def _run_leased(self, job: Item | Probe) -> Any:
        """Run a canary or a probe, if this process is the one that may."""
        rung = job.rung
        try:
            job.lease = await self.health.acquire(rung.name, self.workers.now())
        except Exception:
            self._ask_later(rung)
            raise
        finally:
            # A probe of the rung's own is not joined by another one here, however long it takes.
            if isinstance(job, Item) or job.lease is None:
                rung.asker = None
        if job.lease is None:
            self._ask_later(rung)
            return REFUSED
        if isinstance(job, Probe):
            assert rung.probe is not None
            return await rung.probe()
        job.epoch = rung.epoch
        return await self._begin(job)

    def _ask_later(self, rung: Rung) -> None:
        rung.ask_again_at = self.workers.now() + _ASK_AGAIN
        self._watch_wanted.set()

    def _returned(self, job: Item | Probe, value: object) -> None:
        """Note how a worker's job ended."""
        if isinstance(job, Probe):
            if job.lease is not None:
                self._after_probe(job, is_good=value is not False)
        elif value is REFUSED:
            self._after_refusal(job)
        elif value is False:
            self._after_failure(job, ProcessingFailedError(job.rung.name, job.name), is_own=True)
        else:
            self._after_success(job)

    def _raised(self, job: Item | Probe, error: BaseException) -> None:
        """Note that a worker's job failed or was cancelled."""
        if isinstance(job, Item):
            self._after_failure(job, error)
        elif job.lease is not None:
            is_cut = is_cancellation(error, self.workers.cancelled_class)
            if not is_cut:
                _log.info("%s: the probe of %s raised %r", self.name, job.rung.name, error)
            if isinstance(error, StillRunningError) and job.rung.has_given_up(error) and self.workers.is_open:
                job.rung.lost_probes += 1
                self.workers.spawn(functools.partial(self._await_lost_probe, job.rung, error), "ephemeral lost probe")
            self._after_probe(job, is_good=None if is_cut else not self._is_fault(job.rung, error))
        if (order := order_to_end(error)) is not None:
            raise order
        drop_tracebacks(error)  # their frames hold the item

    async def _await_lost_probe(self, rung: Rung, error: StillRunningError) -> None:
        """Wait for a plain function, which cannot be interrupted, to give its thread back."""
        with anyio.CancelScope(shield=True):
            await error.returned.wait()
        rung.lost_probes -= 1
        self._watch_wanted.set()

    def _after_probe(self, probe: Probe, *, is_good: bool | None) -> None:
        assert probe.lease is not None
        probe.rung.asker = None
        if is_good is None:
            self.health.give_back(probe.lease)
        else:
            self.health.finish(probe.lease, self._tick(), is_good=is_good)

    def _tick(self) -> float:
        now = self.workers.latest = self.workers.now()
        return now

    # A run has ended

    def _after_success(self, item: Item) -> None:
        self._tell("complete", item.rung, item.name, item.id)
        now = self.workers.latest = self.workers.now()
        if item.lease is not None:
            self.health.finish(item.lease, now, is_good=True)
        elif not item.is_slow:
            self.health.succeeded(item.rung.name, item.epoch, now)
        self.total_completed += 1
        self._vacate(item)
        item.clear()
        self._note_idle()

    def _after_failure(self, item: Item, error: BaseException, *, is_own: bool = False) -> bool:
        """Report a failure and decide what becomes of the item; return whether it runs again.

        *is_own* says that *error* was made here, of what the processor returned.
        """
        if self._is_cancellation(item, error):
            self._after_cancellation(item)
            return False
        self._tell("failed", item.rung, item.name, item.id)
        is_fault = is_own or self._is_fault(item.rung, error)
        self._report(item, is_fault=is_fault)
        is_canary, rung = item.is_canary and is_fault, item.rung
        # An item that is at fault itself would fail elsewhere too, or worse: be taken where it was meant to be refused.
        if self._is_over or not is_fault or isinstance(error, KeyboardInterrupt | SystemExit):
            return self._give_up(item, error)
        if is_canary:
            item.must_run = True
        else:
            if self._is_overdue(rung):
                self._is_futile, self.workers.slice_end = True, 0.0
            else:
                item.failed_runs += 1
            if not self.options.reroute_failed:
                return self._give_up(item, error)
            if item.failed_runs >= self.options.max_attempts:
                return self._give_up(item, error, is_abandoned=True)
        target = first_up(self.route.rungs, below=rung.priority)
        if item.is_call and target is None and not is_canary:
            return self._give_up(item, error)
        self._put_back(item, target, error)
        return True

    def _report(self, item: Item, *, is_fault: bool) -> None:
        now = self._tick()
        if item.lease is not None:
            self.health.finish(item.lease, now, is_good=not is_fault)
        elif item.is_slow or item.is_canary:
            pass  # counted when it became slow
        elif is_fault:
            self.health.failed(item.rung.name, item.epoch, now)
        else:
            self.health.succeeded(item.rung.name, item.epoch, now)  # it answered: the item was at fault

    def _is_overdue(self, rung: Rung) -> bool:
        """Whether *rung* has failed more often than takes it out, and only the news of that have yet to come.

        What comes of an outage is not the item's: a bus may take a second to notice that it hangs, and items that all
        rungs fail at once would use up their attempts in that time.
        """
        rules = rung.rules
        if rules.policy == "rate" or not rung.is_up:
            return False
        return self.health.failures(rung.name, self.workers.latest) > rules.failure_threshold

    def _put_back(self, item: Item, target: Rung | None, error: BaseException) -> None:
        """Have *item* wait for its next run: on *target*, or at the back of the line."""
        self._vacate(item, error)
        item.rest()
        if item.is_call:
            item.turn = anyio.Event()
        self._waiting.hand(item, target)
        self.workers.wake()

    def _give_up(self, item: Item, error: BaseException, *, is_abandoned: bool = False) -> bool:
        if is_abandoned:
            self._tell("abandoned", item.rung, item.name, item.id)
            self.total_abandoned += 1
        else:
            self.total_failed += 1
        self._vacate(item, error)
        if not item.is_call:
            self._tell_who_cares(item, error)
        item.clear()
        self._note_idle()
        return False

    def _tell_who_cares(self, item: Item, error: BaseException) -> None:
        on_failed = self.options.on_failed
        if on_failed is not None:
            if not call_guarded(self.name, on_failed, item.payload, error):
                self.callback_errors += 1
        elif not self._has_warned:
            self._has_warned = True
            # Without the error's text: that may show the item.
            _log.warning(
                "%s: an item was given up after %s on %s, and no on_failed to tell; further ones are only counted",
                self.name, type(error).__name__, item.rung.name,
            )  # fmt: skip

    def _after_refusal(self, item: Item) -> None:
        """Somebody else probes: the canary goes back to the head of the line, which nobody takes from after the end."""
        if not self._is_over:
            self._vacate(item)
            item.rest()
            self._waiting.put_first(item)
        elif item.is_call:
            self._vacate(item)
            self._refuse(item, CoordinatorCompletedError(self.name))
        else:
            self._after_cancellation(item)

    def _after_cancellation(self, item: Item) -> None:
        if item.lease is not None:
            self.health.give_back(item.lease)
        self._vacate(item)
        if item.is_cut_off:
            self._left_over(item)
        else:
            self.total_cancelled += 1
            item.clear()
        self._note_idle()

    def _left_over(self, *items: Item) -> None:
        """Leave *items* where the user finds them; all are counted before the first is told of."""
        for item in items:
            if item.is_call:
                self._refuse(item, CoordinatorCompletedError(self.name))
            else:
                self.undelivered.append((item.id, item.payload))
                item.clear()
        for item in items:
            if not item.is_call:
                self._tell("undelivered", item.rung, item.name, item.id)

    def _refuse(self, call: Item, error: Exception) -> None:
        self.total_failed += 1
        call.refusal = error
        call.clear()
        if call.turn is not None:
            call.turn.set()
        self._note_idle()

    def _is_cancellation(self, item: Item, error: BaseException) -> bool:
        """Whether a run was cancelled from outside; a processor that raises that error itself has failed."""
        if not is_cancellation(error, self.workers.cancelled_class):
            return False
        is_interrupted = item.worker is None or item.worker.interrupted
        return is_interrupted or self._is_over or anyio.current_effective_deadline() == -math.inf

    def _is_fault(self, rung: Rung, error: BaseException) -> bool:
        if rung.is_failure is None or rung.has_given_up(error):
            return True
        try:
            return bool(rung.is_failure(error))
        except BaseException as raised:  # noqa: BLE001  whatever is_failure raises, the call has failed
            self.callback_errors += 1
            _log.exception("%s: is_failure of %s raised; its call counts as failed", self.name, rung.name)
            if (order := order_to_end(raised)) is not None:
                self._end_with(order)
            return True

    def _tell(self, what: str, rung: Rung, name: str, operation_id: int) -> None:
        if not name:
            return
        try:
            self._sink.raise_made(f"processing.{what}:{rung.name}:{name}", operation_id)
        except (KeyboardInterrupt, SystemExit) as order:  # a listener's, which must not leave the item half ended
            self._end_with(order)

    def _end_with(self, order: BaseException) -> None:
        """Let what is to end the program come out of the block; after the block, out of whatever it met."""
        if not self.workers.is_open:
            raise order
        self.workers.end_with(order)

    def _became_slow(self, item: Item, now: float) -> None:
        item.is_slow = True
        item.slow_at = math.inf
        self._tell("slow", item.rung, item.name, item.id)
        lease, item.lease = item.lease, None
        if lease is not None:
            self.health.finish(lease, now, is_good=False)
        else:
            self.health.failed(item.rung.name, item.epoch, now)

    def _note_idle(self) -> None:
        if self._idle is not None and self.is_idle:
            self._times_idle += 1
            self._idle.set()
            self._idle = None
