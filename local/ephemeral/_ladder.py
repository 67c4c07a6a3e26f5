"""Moves the work of a group: one line of items, slots on each rung, and where the next item goes.

Whether a rung is healthy is decided in ``_health`` and kept by a ``HealthStore``; this module reports to the store,
follows what it says, and raises the signals that tell of both.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncGenerator
from contextvars import Context
from typing import Any, Final, Unpack

import anyio

from ._bodies import RanOutOfTimeError, call_guarded
from ._errors import CoordinatorCompletedError, NoHealthyProcessorError, ProcessingFailedError
from ._group import GroupOptions, NamedOptions
from ._health import Change
from ._health_store import HealthStore
from ._ids import next_id
from ._intake import Intake
from ._loops import current_loop
from ._rungs import NO_CONTEXT, Item, Probe, Rung, first_up, stand_in
from ._sink import SignalSink
from ._waiting import WaitingItems
from ._workers import JobOwner, Started, Worker, Workers

_log: Final = logging.getLogger("ephemeral")

# What a canary or probe returns that was not given the lease: somebody else is probing.
_REFUSED: Final = object()
# What an attempt of a call returns after which there is to be another one.
_AGAIN: Final = object()
# Seconds until a refused lease is asked for again, should nothing be heard of the prober before.
_ASK_AGAIN: Final = 0.1


class Ladder(JobOwner[Item | Probe]):
    """The rungs of one group on one sink, and all their work.

    Everything belongs to the thread of the loop that runs the blocks, but for the intake's call from other threads.

    An accepted item is always in one place: waiting, running, or ended and counted. Signals are raised, and callbacks
    called, between two such places, so that whoever listens sees counters that balance.
    """

    def __init__(self, group: str, sink: SignalSink, health: HealthStore) -> None:
        self.group = group
        self.name = f"group {group!r}"
        self.options = GroupOptions()
        self.priorities: set[int] = set()
        self.rungs: list[Rung] = []
        self.undelivered: list[Any] = []
        self.total_completed = self.total_failed = self.total_cancelled = self.total_abandoned = 0
        self.callback_errors = 0
        self.health = health
        self.intake: Intake[tuple[Any, str]] = Intake(self.name, self.options.max_pending, self._admit)
        self.workers: Workers[Item | Probe] = Workers(self, limit=1)
        self._sink = sink
        self._waiting = WaitingItems(self.rungs)
        self._running: dict[int, Item] = {}
        self._route: Rung | None = None
        self._is_all_up = True
        self._is_over = False
        self._idle = anyio.Event()
        self._watch_wanted = anyio.Event()
        health.on_change = self._health_changed

    @property
    def pending(self) -> int:
        """Items and calls that wait."""
        return len(self._waiting)

    @property
    def active(self) -> int:
        """Items and calls that run."""
        return len(self._running)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs; once all is over, calls end in their callers' own time."""
        if self._is_over:
            return not self._waiting and all(item.is_call for item in self._running.values())
        return not self._waiting and not self._running

    def claim(self, priority: int, **named: Unpack[NamedOptions]) -> None:
        """Reserve a place for an atom and take over what it says of the group.

        Raises:
            ValueError: The priority is taken, or an option contradicts another atom's.
        """
        if priority in self.priorities:
            raise ValueError(f"{self.name} has a processor of priority {priority} already; give each its own")
        self.options.agree(self.group, named)
        self.priorities.add(priority)
        self.intake.resize(self.options.max_pending)

    def describe(self) -> str:
        """Return the counters of the group in words."""
        return (
            f"{self.pending} pending, {self.active} active, {self.total_completed} completed, "
            f"{self.total_failed} failed, {self.total_cancelled} cancelled, {self.total_abandoned} abandoned, "
            f"{len(self.undelivered)} undelivered"
        )

    # Life: the first block hosts the workers, the first block that is left closes the group

    @contextlib.asynccontextmanager
    async def seat(self, rung: Rung) -> AsyncGenerator[None]:
        """Have *rung* in the ladder while the block is open.

        Raises:
            RuntimeError: The group lives on another event loop.
            CoordinatorCompletedError: The group has closed.
        """
        if self.intake.is_closed:
            raise CoordinatorCompletedError(self.name)
        async with contextlib.AsyncExitStack() as stack:
            if not self.workers.is_open:
                stack.callback(self.intake.end)
                await stack.enter_async_context(self.workers)
                self.workers.spawn(self._watch, "ephemeral watch")
            elif self.workers.loop != current_loop():
                raise RuntimeError(
                    f"{self.name} lives on another event loop; give each loop a sink or a group of its own"
                )
            self._join(rung)
            try:
                yield
                await self._close()
            except BaseException:
                self._cancel()
                raise

    def _join(self, rung: Rung) -> None:
        self.health.register(rung.name, rung.rules, self.workers.now())
        rung.follow(self.health.record(rung.name))
        self.rungs.append(rung)
        self.rungs.sort(key=lambda other: other.priority)
        # Each slot may be taken, with a probe beside them on each rung.
        self.workers.limit = sum(other.slots + 1 for other in self.rungs)
        self._choose_route()

    async def _close(self) -> None:
        self.intake.close()
        if not await self.drain(self.options.drain_timeout):
            self._cut_off()
            # What was cancelled ends at once; only a plain function, which nothing can interrupt, is waited for.
            await self.drain(None)

    def _cut_off(self) -> None:
        """The time to drain is over: cancel what runs, and leave what is not done where the user finds it."""
        self._is_over = True
        running = [item for item in self._running.values() if item.worker is not None]
        waiting = self._waiting.pop_all()
        _log.warning(
            "%s: %d items were not done within drain_timeout=%s s; see its undelivered",
            self.name, len(running) + len(waiting), self.options.drain_timeout,
        )  # fmt: skip
        for item in running:
            item.is_cut_off = True
            if item.worker is not None:
                item.worker.interrupt()
        for item in waiting:
            item.rung = self._route or self.rungs[0]
            self._undelivered(item)
        self._note_idle()

    def _cancel(self) -> None:
        """A block is left by an exception: nothing more runs."""
        self._is_over = True
        self.intake.close()
        for item in self._running.values():
            if item.worker is not None:
                item.worker.interrupt()
        for item in self._waiting.pop_all():
            if item.is_call:
                self._refuse(item, CoordinatorCompletedError(self.name))
            else:
                self.total_cancelled += 1
                item.clear()
        self._note_idle()

    async def drain(self, timeout: float | None) -> bool:
        """Wait until nothing waits and nothing runs; return whether that came within *timeout* seconds."""
        with anyio.move_on_after(timeout):
            while not self.is_idle:
                self._idle = anyio.Event()
                await self._idle.wait()
        return self.is_idle

    def _note_idle(self) -> None:
        if (not self._running or self._is_over) and self.is_idle:
            self._idle.set()

    # Work comes in

    def _admit(self, named: tuple[Any, str], context: Context) -> int:
        item = Item(next_id(), *named, context)
        self._waiting.append(item)
        self.workers.wake()
        return item.id

    async def call(self, payload: Any, name: str) -> Any:
        """Run one item in the caller's task and return its result."""
        if self.intake.is_closed:
            raise CoordinatorCompletedError(self.name)
        item = Item(next_id(), payload, name, NO_CONTEXT, is_call=True)
        canary_of = None if self._is_all_up or self._waiting else self._canary_rung(self.workers.now())
        if canary_of is not None:
            self._occupy(item, canary_of, as_canary=True)
        else:
            self._seat_call(item)
        result: Any = _AGAIN
        while result is _AGAIN:
            if item.turn is not None:
                await self._turn_of(item, item.turn)
            result = await self._attempt(item)
        return result

    def _seat_call(self, item: Item) -> None:
        """Give a call a slot of the route, now or in its turn."""
        route = self._route
        if route is None:
            raise NoHealthyProcessorError(self.group, self._retry_at())
        if route.has_slot and not self._waiting.has_calls:
            self._occupy(item, route)
        else:
            item.turn = anyio.Event()
            self._waiting.append_call(item)

    async def _turn_of(self, item: Item, turn: anyio.Event) -> None:
        try:
            await turn.wait()
        except BaseException as error:
            if item.id in self._running:
                self._after_failure(item, error)
            elif item.refusal is None:
                self._waiting.remove(item)
                self.total_cancelled += 1
                item.clear()
                self._note_idle()
            raise
        item.turn = None
        if item.refusal is not None:
            raise item.refusal

    async def _attempt(self, item: Item) -> Any:
        """Run a call once, in the caller's task; return its result, or `_AGAIN`."""
        try:
            value = await (self._run_leased(item) if item.is_canary else self._run(item))
        except BaseException as error:
            if not self._after_failure(item, error):
                raise
            return _AGAIN
        if value is _REFUSED:
            self._after_refusal(item)
            return _AGAIN
        if value is False:
            failure = ProcessingFailedError(item.rung.name, item.name)
            if not self._after_failure(item, failure):
                raise failure
            return _AGAIN
        self._after_success(item)
        return value

    def _refuse(self, call: Item, error: Exception) -> None:
        self.total_failed += 1
        call.refusal = error
        call.clear()
        if call.turn is not None:
            call.turn.set()

    def _retry_at(self) -> float | None:
        due_at = min((rung.next_probe_at for rung in self.rungs), default=math.inf)
        return None if due_at == math.inf else self._sink.now() + max(0.0, due_at - self.workers.now())

    # Work is given to slots

    def take(self, worker: Worker) -> Item | Probe | None:
        """Give *worker* the next item or probe; calls whose turn comes before are told to go on."""
        while (job := self._next_job()) is not None:
            if isinstance(job, Probe):
                return job
            if not job.is_call:
                job.worker = worker
                return job
            if job.turn is not None:
                job.turn.set()
        return None

    def has_more(self) -> bool:
        """Whether another worker may find something to do."""
        return bool(self._waiting) and (self._route is None or self._route.has_slot or not self._is_all_up)

    def _next_job(self) -> Item | Probe | None:
        item: Item | None = None
        if not self._is_all_up:
            now = self.workers.now()
            for rung in self.rungs:
                if rung.probe is not None and rung.wants_probe(now):
                    rung.asker = Probe(rung)
                    return rung.asker
            canary_of = self._canary_rung(now)
            if canary_of is not None and (item := self._waiting.pop_head()) is not None:
                return self._taken(item, canary_of, as_canary=True)
        handed = self._waiting.pop_handed()
        if handed is not None:
            return self._taken(*handed)
        route = self._route
        if route is not None and route.has_slot and (item := self._waiting.pop_next()) is not None:
            return self._taken(item, route)
        return None

    def _taken(self, item: Item, rung: Rung, *, as_canary: bool = False) -> Item:
        self._occupy(item, rung, as_canary=as_canary)
        if not item.is_call:
            self.intake.freed()
        return item

    def _canary_rung(self, now: float) -> Rung | None:
        """Return the rung that the next item should try, if a probe by an item is due."""
        due = (rung for rung in self.rungs if rung.probe is None and rung.has_slot and rung.wants_probe(now))
        return next(due, None)

    def _occupy(self, item: Item, rung: Rung, *, as_canary: bool = False) -> None:
        rung.active += 1
        self._running[item.id] = item
        item.rung = rung
        item.epoch = rung.epoch
        if as_canary:
            item.is_canary = True
            rung.asker = item
        if rung.slow_after is not None:
            item.started_at = self.workers.now()
            rung.in_flight.append((item.started_at, item))
            if len(rung.in_flight) == 1:
                self._watch_wanted.set()

    def _vacate(self, item: Item) -> None:
        """The run of *item* is over: what it was goes, what the item is stays."""
        del self._running[item.id]
        item.rung.active -= 1
        if item.rung.asker is item:
            item.rung.asker = None
        item.is_canary = item.is_slow = False
        item.lease = item.worker = None
        if item.is_call and self._waiting:
            self.workers.wake()  # a worker looks for its next job itself; a caller's task does not

    # Work runs

    def first_step(self, job: Item | Probe) -> Started:
        """Begin an item or a probe."""
        if isinstance(job, Probe) or job.is_canary:
            coroutine = self._run_leased(job)
        else:
            self._sink.raise_signal(f"processing.started:{job.rung.name}:{job.name}", operation_id=job.id)
            coroutine = job.rung.run(job.payload)
        return coroutine, coroutine.send(None)

    async def _run(self, item: Item) -> Any:
        self._sink.raise_signal(f"processing.started:{item.rung.name}:{item.name}", operation_id=item.id)
        return await item.rung.run(item.payload)

    async def _run_leased(self, job: Item | Probe) -> Any:
        """Run a canary or a probe, if this process is the one that may."""
        rung = job.rung
        try:
            job.lease = await self.health.acquire(rung.name, self.workers.now())
        finally:
            # A probe of the rung's own is not joined by another one here, however long it takes.
            if isinstance(job, Item) or job.lease is None:
                rung.asker = None
        if job.lease is None:
            rung.ask_again_at = self.workers.now() + _ASK_AGAIN
            self._watch_wanted.set()
            return _REFUSED
        if isinstance(job, Probe):
            assert rung.probe is not None
            return await rung.probe()
        job.epoch = rung.epoch
        return await self._run(job)

    def returned(self, job: Item | Probe, value: object) -> None:
        """Note how a worker's job ended."""
        if isinstance(job, Probe):
            if job.lease is not None:
                self._after_probe(job, is_good=value is not False)
        elif value is _REFUSED:
            self._after_refusal(job)
        elif value is False:
            self._after_failure(job, ProcessingFailedError(job.rung.name, job.name))
        else:
            self._after_success(job)

    def raised(self, job: Item | Probe, error: BaseException) -> None:
        """Note that a worker's job failed or was cancelled."""
        if isinstance(job, Item):
            self._after_failure(job, error)
        elif job.lease is not None:
            is_cancellation = isinstance(error, self.workers.cancelled_class)
            if not is_cancellation:
                _log.info("%s: the probe of %s raised %r", self.name, job.rung.name, error)
            self._after_probe(job, is_good=None if is_cancellation else not self._is_fault(job.rung, error))
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error

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
        self._tell("complete", item)
        now = self._tick()
        if item.lease is not None:
            self.health.finish(item.lease, now, is_good=True)
        elif not item.is_slow:
            self.health.succeeded(item.rung.name, item.epoch, now)
        self.total_completed += 1
        self._vacate(item)
        item.clear()
        self._note_idle()

    def _after_failure(self, item: Item, error: BaseException) -> bool:
        """Report a failure and decide what becomes of the item; return whether it runs again."""
        if self._is_cancellation(item, error):
            self._after_cancellation(item)
            return False
        self._tell("failed", item)
        is_fault = self._is_fault(item.rung, error)
        self._report(item, is_fault=is_fault)
        is_canary, rung = item.is_canary and is_fault, item.rung
        if self._is_over or isinstance(error, KeyboardInterrupt | SystemExit):
            return self._give_up(item, error)
        if is_canary:
            item.must_run = True
        else:
            item.failed_runs += 1
            if not self.options.reroute_failed:
                return self._give_up(item, error)
            if item.failed_runs >= self.options.max_attempts:
                return self._give_up(item, error, is_abandoned=True)
        target = first_up(self.rungs, below=rung.priority)
        if item.is_call and target is None and not is_canary:
            return self._give_up(item, error)
        self._put_back(item, target)
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

    def _put_back(self, item: Item, target: Rung | None) -> None:
        """Have *item* wait for its next run: on *target*, or at the back of the line."""
        self._vacate(item)
        if item.is_call:
            item.turn = anyio.Event()
        else:
            self.intake.taken()
        self._waiting.hand(item, target)
        self.workers.wake()

    def _give_up(self, item: Item, error: BaseException, *, is_abandoned: bool = False) -> bool:
        if is_abandoned:
            self._tell("abandoned", item)
            self.total_abandoned += 1
        else:
            self.total_failed += 1
        self._vacate(item)
        on_failed = self.options.on_failed
        if on_failed is not None and not item.is_call and not call_guarded(self.name, on_failed, item.payload, error):
            self.callback_errors += 1
        item.clear()
        self._note_idle()
        return False

    def _after_refusal(self, item: Item) -> None:
        """Somebody else probes: the canary goes back to where it was."""
        self._vacate(item)
        if not item.is_call:
            self.intake.taken()
            self._waiting.put_first(item)
        elif self._route is None and item.must_run:
            item.turn = anyio.Event()
            self._waiting.put_first(item)
        else:
            try:
                self._seat_call(item)
            except NoHealthyProcessorError:
                self.total_failed += 1
                item.clear()
                raise

    def _after_cancellation(self, item: Item) -> None:
        if item.lease is not None:
            self.health.give_back(item.lease)
        self._vacate(item)
        if item.is_cut_off:
            self._undelivered(item)
        else:
            self.total_cancelled += 1
            item.clear()
        self._note_idle()

    def _undelivered(self, item: Item) -> None:
        if item.is_call:
            self._refuse(item, CoordinatorCompletedError(self.name))
            return
        self.undelivered.append(item.payload)
        item.clear()
        self._tell("undelivered", item)

    def _is_cancellation(self, item: Item, error: BaseException) -> bool:
        """Whether a run was cancelled from outside; a processor that raises that error itself has failed."""
        if not isinstance(error, self.workers.cancelled_class):
            return False
        is_interrupted = item.worker is None or item.worker.interrupted
        return is_interrupted or self._is_over or anyio.current_effective_deadline() == -math.inf

    def _is_fault(self, rung: Rung, error: BaseException) -> bool:
        if rung.is_failure is None or isinstance(error, RanOutOfTimeError | ProcessingFailedError):
            return True
        try:
            return bool(rung.is_failure(error))
        except Exception:  # noqa: BLE001  whatever is_failure raises, the call has failed
            self.callback_errors += 1
            _log.exception("%s: is_failure of %s raised; its call counts as failed", self.name, rung.name)
            return True

    def _tell(self, what: str, item: Item) -> None:
        self._sink.raise_signal(f"processing.{what}:{item.rung.name}:{item.name}", operation_id=item.id)

    # Health changes

    def _health_changed(self, change: Change) -> None:
        rung = next((rung for rung in self.rungs if rung.name == change.after.processor), None)
        if rung is None:
            return
        rung.follow(change.after)
        if change.went_down or change.came_up:
            self._choose_route()
        if change.went_down:
            self._evacuate(rung)
        self._announce(change, rung)
        self._watch_wanted.set()
        self.workers.wake()

    def _choose_route(self) -> None:
        self._route = first_up(self.rungs)
        self._is_all_up = all(rung.is_up for rung in self.rungs)

    def _evacuate(self, rung: Rung) -> None:
        """Nothing may go on waiting for a rung that is down."""
        target = first_up(self.rungs, below=rung.priority)
        for item in self._waiting.pop_handed_to(rung):
            self._waiting.hand(item, target)
        if self._route is None:
            for call in self._waiting.pop_calls():
                self._refuse(call, NoHealthyProcessorError(self.group, self._retry_at()))

    def _announce(self, change: Change, rung: Rung) -> None:
        raise_signal = self._sink.raise_signal
        if change.cause == "probe_started":
            raise_signal(f"probe.testing:{rung.name}")
        elif change.cause == "probe_passed":
            raise_signal(f"probe.success:{rung.name}")
        elif change.cause == "probe_failed":
            raise_signal(f"probe.failed:{rung.name}")
        if change.went_down:
            route = None if self._route is None else self._route.name
            edge = f"failover.requested:{rung.name}→{stand_in(self.rungs, rung)}"
            raise_signal(edge, payload={"route": route, "local": change.after.is_local})
            if route is None:
                raise_signal("failover.exhausted", key=self.group)
        elif change.came_up:
            raise_signal(f"failover.restored:{rung.name}")

    # Time passes

    async def _watch(self) -> None:
        """Wake the workers when a probe is due, and count calls that last too long; asleep while neither can be."""
        while True:
            now = self.workers.now()
            for rung in self.rungs:
                self._count_slow(rung, now)
            self.workers.wake()
            self._watch_wanted = anyio.Event()
            next_at = min((at for rung in self.rungs for at in self._appointments(rung) if at > now), default=math.inf)
            with anyio.CancelScope(deadline=next_at):
                await self._watch_wanted.wait()

    def _appointments(self, rung: Rung) -> tuple[float, ...]:
        probe_at = () if rung.is_up or rung.asker is not None else (rung.next_probe_at,)
        slow_at = (rung.in_flight[0][0] + rung.slow_after,) if rung.in_flight and rung.slow_after else ()
        return (*probe_at, *slow_at)

    def _count_slow(self, rung: Rung, now: float) -> None:
        while rung.in_flight and rung.slow_after is not None:
            started_at, item = rung.in_flight[0]
            is_here = self._running.get(item.id) is item and item.rung is rung and item.started_at == started_at
            if is_here and started_at + rung.slow_after > now:
                return
            rung.in_flight.popleft()
            if is_here and not item.is_slow:
                self._became_slow(item, now)

    def _became_slow(self, item: Item, now: float) -> None:
        item.is_slow = True
        self._tell("slow", item)
        lease, item.lease = item.lease, None
        if lease is not None:
            self.health.finish(lease, now, is_good=False)
        else:
            self.health.failed(item.rung.name, item.epoch, now)
