"""Moves the work of a group: one line of items, slots on each rung, and where the next item goes.

Where a rung stands is ``_route``'s to know, how a run ends ``_runs``'s; here is the life of the group, the way in, and
the choice of what runs next.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncGenerator
from contextvars import Context
from typing import Any, Final, Unpack, cast

import anyio

from ._bodies import ENDED, BodyRunner, StillRunningError
from ._calls import LadderCalls
from ._errors import CoordinatorCompletedError, NoHealthyProcessorError
from ._group import GroupOptions, NamedOptions
from ._ids import next_id
from ._ladder_status import GroupStatistics, LadderStatus, RungStatus, ShownLadder, ladders_of
from ._loops import current_loop
from ._rungs import Item, Probe, Rung, first_up
from ._shared_health import health_store_of
from ._sink import SignalSink
from ._workers import Worker

_log: Final = logging.getLogger("ephemeral")

FUTILE_PAUSE: Final = 0.005
"""Seconds that a worker waits after a run on a rung that is as good as out: several round trips to a bus nearby."""


class Ladder(LadderCalls, ShownLadder):
    """The rungs of one group on one sink, and all their work.

    Everything belongs to the thread of the loop that runs the blocks, but for the intake's call from other threads.
    """

    predecessor: Ladder | None = None
    """The last ladder of the group, which shares its health and may not have ended yet; let go once this one tells."""

    def claim(self, atom: object, priority: int, **named: Unpack[NamedOptions]) -> None:
        """Reserve a place for *atom*, as long as that lives, and take over what it says of the group.

        Raises:
            ValueError: The priority is taken, or an option contradicts another atom's.
        """
        if not self.atoms:  # all that spoke for the group are gone, and none was entered
            self.options = GroupOptions()
        if priority in self.atoms:
            raise ValueError(f"{self.name} has a processor of priority {priority} already; give each its own")
        self.options.agree(self.group, named)
        self.atoms[priority] = atom
        self.intake.resize(self.options.max_pending)

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
                stack.callback(self._end)
                await stack.enter_async_context(self.workers)
                self.workers.spawn(self._watch, "ephemeral watch")
            elif self.workers.loop != current_loop():
                raise RuntimeError(
                    f"{self.name} lives on another event loop; give each loop a sink or a group of its own"
                )
            self._join(rung)
            try:
                # Else the first item would go to a rung that the fleet knows to be down.
                await self.route.learned()
                yield
                await self._close()
            except BaseException:
                self._cancel()
                raise

    def _join(self, rung: Rung) -> None:
        if self.predecessor is not None:
            self.predecessor.route.hush()
            self.predecessor = None
        self.route.join(rung, self.workers.now())
        # Each slot may be taken, with a probe beside them on each rung.
        self.workers.limit = sum(other.slots + 1 for other in self.route.rungs)

    def _moved(self, rung: Rung) -> None:
        """The health of *rung* changed: nothing may go on waiting for a rung that is down."""
        if not rung.is_up:
            target = first_up(self.route.rungs, below=rung.priority)
            for item in self._waiting.pop_handed_to(rung):
                self._waiting.hand(item, target)
        if self.route.current is None:
            for call in self._waiting.pop_calls():
                self._refuse(call, NoHealthyProcessorError(self.group, self.route.retry_at(self.workers.now())))
        self._watch_wanted.set()
        self.workers.wake()

    def _end(self) -> None:
        """The workers have ended."""
        self.intake.end()
        self.route.end(self.workers.now())

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
        for item in running:
            item.is_cut_off = True
            if item.worker is not None:
                item.worker.interrupt()
        for item in waiting:
            item.rung = self.route.current or self.route.rungs[0]
        self._left_over(*waiting)
        self._note_idle()
        _log.warning(
            "%s: %d items were not done within drain_timeout=%s s; see its undelivered",
            self.name, len(running) + len(waiting), self.options.drain_timeout,
        )  # fmt: skip

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
        """Wait for an instant in which nothing waits and nothing runs; return whether it came within *timeout* seconds.

        Raises:
            RuntimeError: A processor of the group, which runs, would wait for its own end.
        """
        if anyio.get_current_task().id in self._serving:
            raise RuntimeError(f"drain() of {self.name} in a processor of that group would wait for itself")
        before = self._times_idle
        with anyio.move_on_after(timeout):
            while not self.is_idle and self._times_idle == before:
                if self._idle is None:  # one event for all who drain at the same time
                    self._idle = anyio.Event()
                await self._idle.wait()
        return self.is_idle or self._times_idle != before

    # Work comes in

    def _admit(self, named: tuple[Any, str], context: Context) -> int:
        item = Item(next_id(), *named, context)
        self._waiting.append(item)
        self.workers.wake()
        return item.id

    # Work is given to slots

    async def _serve(self, worker: Worker) -> None:
        """Run one item or probe after the other."""
        workers, runner, task_id = self.workers, BodyRunner(self._call_processor), anyio.get_current_task().id
        self._serving.add(task_id)
        try:
            while not worker.interrupted:
                if workers.latest >= workers.slice_end:
                    await self._breathe()
                job = self._take(worker) if workers.surplus <= 0 else None
                if job is None:
                    await workers.park()
                    continue
                waiting_for = job.context.run(runner.start, job)
                if waiting_for is not ENDED:
                    if self._has_more():
                        workers.wake()
                    await runner.rest(job.context, waiting_for)
                error, value, runner.error, runner.value = runner.error, runner.value, None, None
                if error is not None:
                    self._raised(job, error)
                    # The thread of something that the processor called is not of this slot, nor is that of a probe.
                    is_own = isinstance(job, Item) and job.rung.has_given_up(error)
                    if is_own or not isinstance(error, StillRunningError):
                        await workers.after_failure(error)
                elif worker.interrupted and runner.was_cut and isinstance(job, Item):
                    self._after_cancellation(job)  # whatever it did about it, it was cut short
                else:
                    self._returned(job, value)
                del job, error, value, waiting_for  # a worker that waits must keep nothing alive
        finally:
            self._serving.discard(task_id)

    async def _breathe(self) -> None:
        """Give the loop its turn, and the bus its time to say what all see."""
        if self._is_futile:
            self._is_futile = False
            await anyio.sleep(FUTILE_PAUSE)
        await self.workers.breathe()

    def _take(self, worker: Worker) -> Item | Probe | None:
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

    def _has_more(self) -> bool:
        """Whether another worker may find something to do."""
        route = self.route.current
        return bool(self._waiting) and (
            route is None or route.has_slot or not self.route.is_all_up or self._waiting.has_handed
        )

    def _next_job(self) -> Item | Probe | None:
        if not self.route.is_all_up and (job := self._next_probe(self.workers.now())) is not None:
            return job
        handed = self._waiting.pop_handed()
        if handed is not None:
            return self._taken(*handed)
        route = self.route.current
        if route is not None and route.has_slot and (item := self._waiting.pop_next()) is not None:
            return self._taken(item, route)
        return None

    def _next_probe(self, now: float) -> Item | Probe | None:
        if not self.workers.is_open:
            return None  # the block is being left: what began now would be cut short at once
        asked = self.route.rung_to_ask(now)
        if asked is not None:
            asked.asker = Probe(asked)
            return asked.asker
        canary_of = self.route.canary_rung(now)
        if canary_of is not None and (item := self._waiting.pop_first()) is not None:
            return self._taken(item, canary_of, as_canary=True)
        return None

    def _taken(self, item: Item, rung: Rung, *, as_canary: bool = False) -> Item:
        self._occupy(item, rung, as_canary=as_canary)
        if self.intake.producers:
            self.intake.freed()
        return item

    # Time passes

    async def _watch(self) -> None:
        """Wake the workers when a probe is due, and count calls that last too long; asleep while neither can be."""
        while True:
            now = self.workers.now()
            for item in list(self._running.values()):  # at most one a slot
                if item.slow_at <= now:
                    self._became_slow(item, now)
            self.workers.wake()
            self._watch_wanted = anyio.Event()
            due = (*self.route.probes_at(), *(item.slow_at for item in self._running.values()))
            self._watch_until = min((at for at in due if at > now), default=math.inf)
            with anyio.CancelScope(deadline=self._watch_until):
                await self._watch_wanted.wait()

    # Whoever looks sees, from any thread

    def statistics(self) -> GroupStatistics:
        """Return the counters; on another thread than the loop's they may be of two instants."""
        counters = {
            "total_completed": self.total_completed,
            "total_failed": self.total_failed,
            "total_cancelled": self.total_cancelled,
            "total_abandoned": self.total_abandoned,
            "total_undelivered": len(self.undelivered),
        }
        pending, active = self.pending, self.active
        return GroupStatistics(
            pending_count=pending,
            active_count=active,
            total_enqueued=pending + active + sum(counters.values()),
            **counters,
            callback_errors=self.callback_errors,
        )

    def status(self) -> LadderStatus | None:
        if not self.workers.is_open or not self.route.rungs:
            return None
        now = self.workers.now()
        to_wall = self._sink.now() - now
        try:
            rungs = tuple(self._rung_status(rung, now, to_wall) for rung in tuple(self.route.rungs))
        except KeyError:  # it is ending just now, on its own thread
            return None
        return LadderStatus(group=self.group, rungs=rungs, statistics=self.statistics())

    def _rung_status(self, rung: Rung, now: float, to_wall: float) -> RungStatus:
        record, failures = self.route.health_of(rung, now)
        return RungStatus(
            priority=rung.priority,
            record=record.shifted(to_wall),
            failures=failures,
            rules=rung.rules,
            slots=rung.slots,
            active=rung.active,
        )


def ladder_of(sink: SignalSink, group: str) -> Ladder:
    """Return the ladder of *group* on *sink*; a new one if there is none, or if the last one has closed."""
    groups = ladders_of(sink)
    last = cast("Ladder | None", groups.get(group))
    if last is not None and not last.intake.is_closed:
        return last
    ladder = groups[group] = Ladder(group, sink, health_store_of(sink))
    if sink.backend is not None:
        ladder.predecessor = last
    return ladder
