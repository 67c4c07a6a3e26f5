"""The mechanism every coordinator shares: admit items, run them within a limit, count them, remember them, end."""

from __future__ import annotations

import contextlib
import warnings
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Sized
from contextvars import Context, copy_context
from typing import Any, ClassVar, Generic, Self, TypeVar

import anyio
import anyio.lowlevel

from ._blocks import OneBlock
from ._bodies import (
    ENDED,
    BodyRunner,
    as_coroutine_function,
    is_async_function,
    is_cancellation,
    order_to_end,
    takes_operation,
)
from ._checks import optional_seconds, whole_number
from ._coordinator_counters import CoordinatorCounters
from ._emitter import Emitter
from ._errors import CoordinatorNotCompletedError
from ._history import OperationHistory
from ._ids import next_id
from ._intake import Intake
from ._lanes import Line
from ._operation_window import OperationWindow, S
from ._operations import COMPLETED, Operation, Outcome, current, drop_tracebacks
from ._options import EphemeralOptions, options_or_default
from ._reactions import RUN, Verdict
from ._sources import Feed
from ._steering import Steering, rules_of
from ._workers import Worker, Workers

T = TypeVar("T")
R = TypeVar("R")

Body = Callable[[T], object] | Callable[[T, Operation], object]
"""A function of an item, and of its operation if it wants that; what it returns may be awaited."""
AsyncBody = Callable[[T], Awaitable[R]] | Callable[[T, Operation], Awaitable[R]]
PlainBody = Callable[[T], R] | Callable[[T, Operation], R]


class CoordinatorBase(OneBlock, OperationWindow[S], CoordinatorCounters, Generic[T, S]):
    """Runs a body for each enqueued item, in this process, within bounds, and remembers what ran for a while.

    Everything belongs to the thread of the loop that runs its block, but for `enqueue_threadsafe`.
    """

    # How messages call it; empty: as its class is called.
    _kind: ClassVar[str] = ""
    # Whether operations of this kind remember what their bodies returned.
    _keeps_results: ClassVar[bool] = False

    def __init__(self, body: Body[T], options: EphemeralOptions | None = None) -> None:
        if not callable(body):
            raise TypeError(f"body must be a function of one item, not {body!r}")
        self._options = options = options_or_default(options)
        kind = self._kind or type(self).__name__
        self._name = f"{kind}{f' {options.coordinator_id!r}' if options.coordinator_id else ''}"
        self._body_takes_operation = takes_operation(body)
        self._can_interrupt = is_async_function(body)
        timeout = optional_seconds("operation_timeout", options.operation_timeout)
        self._run: Callable[..., Coroutine[Any, Any, Any]] = as_coroutine_function(body, timeout)
        self._line = self._make_line()
        self._ready: Sized = self._line
        self._intake = self._make_intake()
        self._workers = Workers(self._serve, limit=options.max_concurrency)
        self._emitter = Emitter(self._name, options, self._workers)
        self._active = 0
        # Whether the end of an operation matters to anybody but the counters: to this kind, or to callbacks and drains.
        self._tells_ends = self._heeds_ends = options.on_sample is not None
        lifetime = optional_seconds("max_operation_lifetime", options.max_operation_lifetime)
        assert lifetime is not None
        self._history = OperationHistory(
            options.max_tracked_operations, lifetime, self._finalized if options.on_operation_finalized else None
        )
        self._total_completed = self._total_failed = self._total_skipped = self._total_cancelled = 0
        self._is_paused = self._is_draining = False
        # Made by those who wait: an event takes most of a kilobyte, and most coordinators are idle.
        self._drained: anyio.Event | None = None
        self._steering = Steering(
            self._emitter.sink, rules_of(options), refuse=self._refuse, drain=self._drain_on_request, rouse=self._rouse
        )
        self._feed: Feed[T] | None = None
        # Whether somebody is about to enter the block: the factory that made it.
        self._is_to_start: Callable[[], bool] = lambda: False

    def __del__(self) -> None:
        # What __init__ refused has no line to look at.
        if self._life is None and getattr(self, "_line", None):
            warnings.warn(
                f"{self._name} was never started, and {len(self._line)} waiting items are lost; enter its block",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def _make_line(self) -> Line[Operation]:
        return deque[Operation]()

    def _make_intake(self) -> Intake[Any]:
        return Intake(self._name, self._options.max_pending, self._line, self._admit)

    def _fed_by(self, source: AsyncIterable[T]) -> Self:
        self._feed = Feed(source)
        return self

    def __repr__(self) -> str:
        state = "drained" if self.is_drained else "completed" if self.is_completed else "open"
        held = f"{' paused' if self._is_paused else ''}{' deferred' if self.is_deferred else ''}"
        return f"<{self._name} {state}{held}: {self._counts()}>"

    def _counts(self) -> str:
        return (
            f"{self.pending_count} pending, {self.active_count} active, {self._total_completed} completed, "
            f"{self._total_failed} failed, {self._total_skipped} skipped, {self._total_cancelled} cancelled"
        )

    # Life

    def _refusal(self) -> str:
        return f"{self._name} has been started before, maybe by its factory; make a new one for a new block"

    @contextlib.asynccontextmanager
    async def _live(self) -> AsyncGenerator[None]:
        try:
            async with self._emitter.handlers, self._workers:
                self._emitter.set_clocks()
                self._rouse()
                self._steering.start(self._workers)
                if self._feed is not None:
                    self._feed.is_running = True
                    self._workers.spawn(self._take_from_source, "ephemeral source")
                try:
                    yield
                    if self._feed is None:  # else the end of the source completes it
                        self.complete()
                    await self._finish(optional_seconds("drain_timeout", self._options.drain_timeout, zero=True))
                finally:
                    self.cancel()
            self._raise_source_error()
        finally:
            self._steering.end()
            self._intake.end()
            if self._feed is not None:
                self._feed.log_error()
            self._recent()  # tells on_operation_finalized of what has grown too old since the last end

    async def _take_from_source(self) -> None:
        assert self._feed is not None
        await self._feed.run(self._workers, self._intake, self.enqueue, self.complete)

    def _raise_source_error(self) -> None:
        if self._feed is not None:
            self._feed.raise_error()

    async def _finish(self, timeout: float | None) -> None:
        with anyio.move_on_after(timeout) as limit:
            await self.drain()
            await self._emitter.flush()
        if limit.cancelled_caught:
            self._emitter.cancel()

    def complete(self) -> None:
        """Take no more items; those accepted still run. Idempotent; callable in a plain loop callback.

        A source of items is closed: an item that it is just about to give is lost.

        Raises:
            RuntimeError: Called on another thread than the loop's.
        """
        self._workers.require_own_thread("complete()")
        self._close()
        self._note_drained()

    def _close(self) -> None:
        self._intake.close()
        self._steering.complete()
        if self._feed is not None:
            self._feed.stop()
        self._tells_ends = self._heeds_ends = True

    async def drain(self, timeout: float | None = None) -> bool:
        """Wait until all that was accepted has ended; a paused coordinator resumes for it.

        With a source of items it waits for the end of that first. A body's exception is recorded with its operation,
        never raised here. A cancellation point.

        Args:
            timeout: Seconds to wait; None: until the end.

        Returns:
            Whether everything has ended.

        Raises:
            CoordinatorNotCompletedError: `complete` was not called: more could come, so this might never end.
            RuntimeError: Called inside a body of this coordinator, which would wait for itself; or before the block was
                entered, while there is something to wait for.
            BaseException: What the source raised, after all that was accepted before has ended; once, here or out of
                the block.
        """
        timeout = optional_seconds("timeout", timeout, zero=True)
        if not self.is_completed and self._feed is None:
            raise CoordinatorNotCompletedError(self._name)
        operation = current.get(None)
        if operation is not None and operation.is_running and operation.belongs_to(self._emitter):
            raise RuntimeError(f"drain() inside a body of {self._name} would wait for itself")
        if not self.is_drained:
            self._require_block("drain()")
        self._is_draining = True
        self.resume()
        with anyio.move_on_after(timeout):
            if self.is_drained:
                await anyio.lowlevel.checkpoint()
            else:
                self._drained = self._drained or anyio.Event()
                await self._drained.wait()
            self._raise_source_error()
        return self.is_drained

    def _require_block(self, call: str) -> None:
        """Refuse to wait for what nobody is going to run."""
        if self._life is None and not self._is_to_start():
            raise RuntimeError(
                f"{call} would wait for ever: {self._name} has not started, and nothing runs; enter its block first"
            )

    def pause(self) -> None:
        """Start no further item until `resume`; running ones go on. A drain that is under way is not held up.

        Raises:
            RuntimeError: Called on another thread than the loop's.
        """
        self._workers.require_own_thread("pause()")
        self._is_paused = not self._is_draining

    def resume(self) -> None:
        """Start items again.

        Raises:
            RuntimeError: Called on another thread than the loop's.
        """
        self._workers.require_own_thread("resume()")
        self._is_paused = False
        self._rouse()

    def _rouse(self) -> None:
        if self._line:
            self._workers.wake()

    def _refuse(self) -> None:
        self._intake.is_closed = True

    def _drain_on_request(self) -> None:
        self.complete()
        self._is_draining = True
        self.resume()

    def cancel(self) -> None:
        """End now: waiting items count as cancelled, running bodies are cancelled, nothing more is taken.

        Returns at once; `drain` or leaving the block waits for the bodies to end. An async body no longer counts as
        completed then, even if it swallows its cancellation and returns. A plain function cannot be interrupted: it is
        waited for and counted by how it ends.

        Raises:
            RuntimeError: Called on another thread than the loop's.
        """
        self._workers.require_own_thread("cancel()")
        self._is_draining = True
        self._is_paused = False
        self._close()
        waiting = list(self._line)
        self._line.clear()
        self._total_cancelled += len(waiting)
        for operation in waiting:
            self._passed_over(operation)
        for operation in self._history.running():
            operation.interrupt()
        self._note_drained()

    def cancel_operation(self, operation_id: int) -> bool:
        """Cancel one waiting item or running operation, as `cancel` does all; False if it is neither.

        Raises:
            RuntimeError: Called on another thread than the loop's.
        """
        self._workers.require_own_thread("cancel_operation()")
        running = self._history.get(operation_id)
        if running is not None and running.is_running:
            running.interrupt()
            return True
        waiting = self._find_waiting(operation_id)
        if waiting is None:
            return False
        self._line.remove(waiting)
        self._total_cancelled += 1
        self._passed_over(waiting)
        self._intake.freed()
        self._note_drained()
        return True

    def _find_waiting(self, operation_id: int) -> Operation | None:
        return next((operation for operation in self._line if operation.id == operation_id), None)

    def _passed_over(self, operation: Operation) -> None:
        """Note that a counted item will never run."""

    # Intake

    async def enqueue(self, item: T) -> int:
        """Accept *item* and return its operation's id; waits only while `max_pending` items wait already.

        A cancellation point only while it waits; a cancelled call leaves no trace. The body will run in a copy of
        the caller's context.

        Raises:
            CoordinatorCompletedError: The coordinator has completed, or completes while this waits.
        """
        intake = self._intake
        # As its enqueue_at_once() asks, written out: two calls are 4 % of a trivial item.
        if intake.is_closed or intake.granted or len(self._line) >= intake.bound:
            return await intake.enqueue(item)
        return self._admit(item, copy_context())

    def try_enqueue(self, item: T) -> bool:
        """Accept *item* if there is room now; False if there is none, or if the coordinator has completed.

        Raises:
            RuntimeError: Called on another thread than the loop's, as in a body that is a plain function.
        """
        self._workers.require_own_thread("try_enqueue()")
        return self._intake.try_enqueue(item) is not None

    async def enqueue_many(self, items: Iterable[T]) -> int:
        """Accept *items* in order, as `enqueue` does each, and return how many there were."""
        return await self._intake.enqueue_many(items)

    def enqueue_threadsafe(self, item: T) -> int:
        """Accept *item* from a thread other than the loop's; blocks that thread until it is accepted.

        Raises:
            RuntimeError: Called on the loop's own thread, or before the block was entered.
            CoordinatorCompletedError: The coordinator has completed, or completes while this waits.
        """
        if self._life is None:
            raise RuntimeError(f"{self._name} has not started: enqueue_threadsafe() needs its running loop")
        return self._intake.enqueue_threadsafe(item, self._workers.loop)

    def _admit(self, item: T, context: Context) -> int:
        operation, line = Operation(self._emitter, next_id(), None, item, context), self._line
        line.append(operation)
        if len(line) == 1:  # before a longer one a worker is on its way already, or none may come
            self._workers.wake()
        return operation.id

    # Running

    async def _serve(self, worker: Worker) -> None:
        """Run one item after the other.

        In one piece, and with the names it needs at hand: each call it might be split into, and each callable read from
        an attribute, would cost 2 % of a trivial item's 3 µs.
        """
        line, ready, intake, workers = self._line, self._ready, self._intake, self._workers
        now, remember, has_ended = workers.now, self._history.remember, self._history.ended
        verdict = self._steering.verdict if self._steering.steers else None
        runner, keeps_results = BodyRunner(self._caller()), self._keeps_results
        start = runner.start
        while not worker.interrupted:
            if workers.latest >= workers.slice_end:
                await workers.breathe()
            if not ready or self._is_paused or workers.surplus > 0:
                await workers.park()
                continue
            if verdict is not None and (decided := verdict()) is not RUN:
                await self._hold_or_skip(decided)
                continue
            operation = line.popleft()
            operation.started_at = workers.latest
            operation.worker = worker
            self._active += 1
            remember(operation.id, operation)
            if intake.producers:
                intake.freed()
            waiting_for = operation.context.run(start, operation)
            if waiting_for is not ENDED:
                if ready:
                    workers.wake()
                await runner.rest(operation.context, waiting_for)
            if runner.error is not None:
                await self._after_error(operation, runner)
                del operation, waiting_for
                continue
            if keeps_results:
                operation.result = runner.value
            runner.value = None
            if worker.interrupted and self._can_interrupt:  # it may have swallowed its cancellation
                self._cancelled(operation)
                break
            self._total_completed += 1
            self._active -= 1
            workers.latest = ended_at = now()
            has_ended(operation, ended_at, COMPLETED)
            if self._heeds_ends:
                self._after_end(operation)
            del operation, waiting_for  # a worker that waits must keep nothing alive

    async def _hold_or_skip(self, decided: Verdict) -> None:
        """Keep the next item from running, as a signal demands: for now, or for good."""
        if decided is Verdict.HOLD:
            await self._workers.park()
        else:
            self._skip(self._line.popleft())

    def _skip(self, operation: Operation) -> None:
        """Count an item that a signal keeps from running."""
        self._total_skipped += 1
        self._workers.latest = self._workers.now()
        self._passed_over(operation)
        self._intake.freed()
        self._note_drained()

    def _caller(self) -> Callable[[Operation], Coroutine[Any, Any, Any]]:
        """Return what calls the body for an item, in the item's context; two, so that neither asks which it is."""
        run, set_current = self._run, current.set

        def call(operation: Operation) -> Coroutine[Any, Any, Any]:
            set_current(operation)
            return run(operation.item)

        def call_with_operation(operation: Operation) -> Coroutine[Any, Any, Any]:
            set_current(operation)
            return run(operation.item, operation)

        return call_with_operation if self._body_takes_operation else call

    async def _after_error(self, operation: Operation, runner: BodyRunner[Operation]) -> None:
        """Count what was raised, and wait until the slot is free."""
        error, runner.error = runner.error, None
        assert error is not None
        self._broke(operation, error)
        await self._after_failure(operation, error)

    def _broke(self, operation: Operation, error: BaseException) -> None:
        """Count a failed or cancelled operation; raise only what must end the whole block."""
        if is_cancellation(error, self._workers.cancelled_class):
            self._cancelled(operation)
            return
        operation.keep_error(error)
        order = order_to_end(error)
        if order is None:
            drop_tracebacks(error)
        self._total_failed += 1
        self._end(operation, Outcome.FAILED)
        if order is not None:
            raise order

    def _cancelled(self, operation: Operation) -> None:
        """Count a body that was cut short, whatever it did about it."""
        self._total_cancelled += 1
        self._end(operation, Outcome.CANCELLED)

    def _end(self, operation: Operation, outcome: Outcome) -> None:
        self._active -= 1
        now = self._workers.latest = self._workers.now()
        self._history.ended(operation, now, outcome)
        if self._heeds_ends:
            self._after_end(operation)

    async def _after_failure(self, operation: Operation, error: BaseException) -> None:  # noqa: ARG002  keyed: its key
        """Wait until the slot of a failed operation is free."""
        await self._workers.after_failure(error)

    def _after_end(self, operation: Operation) -> None:  # noqa: ARG002  other kinds look at how it ended
        """Tell those who heed the end of *operation*; called if `_heeds_ends`."""
        if not self._tells_ends:
            return
        if self._options.on_sample is not None:
            self._emitter.call(self._options.on_sample, self.get_snapshot())
        self._note_drained()

    def _note_drained(self) -> None:
        if self._drained is not None and self.is_drained:
            self._drained.set()

    # Callbacks of the options

    def _finalized(self, operation: Operation) -> None:
        callback = self._options.on_operation_finalized
        assert callback is not None
        self._emitter.call(callback, operation.snapshot())

    def set_max_concurrency(self, limit: int) -> None:
        """Change how many operations may run: more start at once, fewer as soon as running ones end.

        Raises:
            ValueError: *limit* is no whole number of at least 1.
            RuntimeError: The options do not say ``enable_dynamic_concurrency=True``, or this is called on another
                thread than the loop's.
        """
        self._workers.require_own_thread("set_max_concurrency()")
        if not self._options.enable_dynamic_concurrency:
            raise RuntimeError("set_max_concurrency() needs EphemeralOptions(enable_dynamic_concurrency=True)")
        self._workers.limit = whole_number("max_concurrency", limit)
