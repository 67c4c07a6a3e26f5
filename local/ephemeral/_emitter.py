"""What operations need of their coordinator: a way out for their signals, and the callbacks that are told of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from ._bodies import call_guarded
from ._dispatcher import NO_CALLS, DispatcherStatistics, SignalDispatcher
from ._operations import Operation
from ._options import EphemeralOptions
from ._propagation import SignalConstraints, propagation_of
from ._signals import SignalEvent, SignalPropagation, validate_name
from ._sink import SignalSink
from ._workers import Workers


class Emitter:
    """The home of one coordinator's operations.

    Args:
        name: The coordinator's, for the log.
        options: The coordinator's.
        workers: The coordinator's, by whose clock its operations are stamped.

    Attributes:
        sink: Where signals go: the options', or one of this coordinator alone, so that they steer it all the same.
        errors: How often a callback raised.
    """

    def __init__(self, name: str, options: EphemeralOptions, workers: Workers) -> None:
        self._name = name
        self._options = options
        self._workers = workers
        self._wall_offset = 0.0
        self.sink = options.signals or SignalSink(clock=lambda: self.wall_time(workers.now()))
        self.errors = 0
        self._handlers: SignalDispatcher | None = None
        if options.on_signal_async is not None:
            self._handlers = SignalDispatcher(options.max_concurrent_signal_handlers, options.max_queued_signals)
            self._handlers.register("*", options.on_signal_async)

    @property
    def handlers(self) -> AbstractAsyncContextManager[object]:
        """The block in which ``on_signal_async`` is awaited."""
        return self._handlers or contextlib.nullcontext()

    @property
    def handler_statistics(self) -> DispatcherStatistics:
        """How ``on_signal_async`` fares."""
        return NO_CALLS if self._handlers is None else self._handlers.statistics()

    async def flush(self) -> None:
        """Wait until ``on_signal_async`` was told of all that was emitted so far."""
        if self._handlers is not None:
            await self._handlers.flush()

    def cancel(self) -> None:
        """Have the end of `handlers` wait for nothing."""
        if self._handlers is not None:
            self._handlers.cancel()

    def call(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call a callback of the options; if it raises, that is logged and counted."""
        if not call_guarded(self._name, callback, *arguments):
            self.errors += 1

    # The operations' side: see OperationHome

    def emit(self, operation: Operation, signal: str, cause: SignalEvent | SignalPropagation | None) -> bool:
        """Raise *signal* for *operation*, unless what led to it forbids that. Callable from any thread."""
        validate_name(signal)
        so_far, propagation = propagation_of(cause), None
        if so_far is not None:
            constraints = self._options.signal_constraints or SignalConstraints.NONE
            reason = constraints.should_block(signal, so_far)
            if reason is not None:
                if constraints.on_blocked is not None:
                    self.call(constraints.on_blocked, signal, so_far, reason)
                return False
            propagation = None if constraints.is_leaf(signal) else so_far.extend(signal)
        event = SignalEvent(signal, operation.id, operation.key, self.sink.now(), None, propagation)
        operation.keep_signal(event)  # first: its listeners may look for it there
        try:
            self.sink.raise_signal(event)
        except BaseException:
            operation.forget_signal(event)
            raise
        if self._options.on_signal is not None:
            self.call(self._options.on_signal, event)
        if self._handlers is not None:
            self._handlers.dispatch(event)
        return True

    def retract(self, operation: Operation, matches: Callable[[SignalEvent], bool]) -> None:
        """Take *operation*'s signals that match back from the sink."""
        self.sink.clear_matching(lambda event: event.operation_id == operation.id and matches(event))

    def set_clocks(self) -> None:
        """Read the wall clock and the loop's, now that there is one; from now on the loop's alone."""
        wall_time = time.time() if self._options.signals is None else self.sink.now()
        self._wall_offset = wall_time - self._workers.now()

    def wall_time(self, loop_time: float) -> float:
        """Convert loop time to UTC epoch seconds."""
        return self._wall_offset + loop_time
