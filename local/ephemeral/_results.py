"""The result coordinator: what bodies return is remembered with their operations, and may be waited for."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from contextvars import Context
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, cast, overload

import anyio

from ._bodies import is_cancellation, order_to_end
from ._checks import optional_seconds
from ._coordinator import AsyncBody, CoordinatorBase, PlainBody
from ._error_copies import copy_error, traceback_of_body
from ._errors import OperationCancelledError, UnknownOperationError
from ._ids import next_id
from ._operations import COMPLETED, EphemeralOperationSnapshot, Operation, Outcome, current
from ._options import EphemeralOptions

T = TypeVar("T")
R = TypeVar("R")
# Of a method alone: pyright leaves a class's own ones open when a method of the bare class is called.
U = TypeVar("U")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class EphemeralOperationResultSnapshot(EphemeralOperationSnapshot, Generic[R]):
    """What is remembered of one operation, and what its body returned.

    Attributes:
        result: What the body returned; None as long as `has_result` is False.
        has_result: Whether the body returned.
    """

    result: R | None
    has_result: bool


_FIELDS: Final = tuple(field.name for field in fields(EphemeralOperationSnapshot))


class _Answer:
    """What those who wait for one operation get. They alone hold it once the operation has ended.

    Attributes:
        arrived: Set when the operation has ended.
        error: What the body raised; the window keeps a copy, without tracebacks.
        trace: Where it was raised.
    """

    __slots__ = ("arrived", "error", "trace")

    def __init__(self) -> None:
        self.arrived = anyio.Event()
        self.error: BaseException | None = None
        self.trace: TracebackType | None = None


class _ResultOperation(Operation):
    """An operation that remembers what its body returned.

    Attributes:
        answer: What those who wait for it get; None if nobody waits.
    """

    __slots__ = ("answer",)

    answer: _Answer | None

    def snapshot(self) -> EphemeralOperationResultSnapshot[Any]:
        base = super().snapshot()
        known = {name: getattr(base, name) for name in _FIELDS}
        return EphemeralOperationResultSnapshot(result=self.result, has_result=self.outcome is COMPLETED, **known)

    def answered(self) -> None:
        """Wake those who wait."""
        answer, self.answer = self.answer, None
        if answer is not None:
            answer.arrived.set()


class _Submission:
    """An item whose producer wants to see its operation, however soon that ends."""

    __slots__ = ("item", "operation")

    def __init__(self, item: Any) -> None:
        self.item = item
        self.operation: _ResultOperation | None = None


class EphemeralResultCoordinator(CoordinatorBase[T, EphemeralOperationResultSnapshot[R]], Generic[T, R]):
    """Runs a body for each item, as `EphemeralWorkCoordinator` does, and remembers what it returned.

    ::

        async def translate(text: str) -> str: ...

        async with EphemeralResultCoordinator(translate) as translations:
            greeting = await translations.submit("Guten Tag")      # enqueue and wait
            later = await translations.enqueue("Auf Wiedersehen")  # or wait for it later
            farewell = await translations.wait_for_result(later)

    A result is remembered as long as its operation: ``max_tracked_operations`` and ``max_operation_lifetime`` bound
    both. Whoever waits gets it whatever the window forgets meanwhile.

    Args:
        body: ``async def body(item)`` or ``async def body(item, op)``; a plain function runs in a worker thread.
        options: Bounds and callbacks; None: the defaults.

    Raises:
        TypeError: *body* cannot be called.
    """

    _keeps_results = True

    # Two kinds of function, so that a checker knows R of each.
    @overload
    def __init__(self, body: AsyncBody[T, R], options: EphemeralOptions | None = None) -> None: ...
    @overload
    def __init__(self, body: PlainBody[T, R], options: EphemeralOptions | None = None) -> None: ...
    def __init__(self, body: Callable[..., Any], options: EphemeralOptions | None = None) -> None:
        super().__init__(body, options)

    @overload
    @classmethod
    def from_async_iterable(
        cls, source: AsyncIterable[U], body: AsyncBody[U, V], options: EphemeralOptions | None = None
    ) -> EphemeralResultCoordinator[U, V]: ...
    @overload
    @classmethod
    def from_async_iterable(
        cls, source: AsyncIterable[U], body: PlainBody[U, V], options: EphemeralOptions | None = None
    ) -> EphemeralResultCoordinator[U, V]: ...
    @classmethod
    def from_async_iterable(
        cls, source: AsyncIterable[U], body: Callable[..., Any], options: EphemeralOptions | None = None
    ) -> EphemeralResultCoordinator[U, Any]:
        """Make one that takes its items from an async iterable, once its block is entered and each once there is room.

        ``drain()`` and leaving the block normally wait for the end of *source*; ``complete()`` takes no more and closes
        it. What *source* raises ends intake and comes out of ``drain()`` or the block after all that was accepted has
        ended. Other items may be enqueued as well.

        Args:
            source: Where the items come from, taken and closed (``aclose``) in one task of the coordinator.
            body: As for the class.
            options: As for the class.

        Raises:
            TypeError: As for the class, or *source* is no async iterable.
        """
        kind = cast("type[EphemeralResultCoordinator[U, Any]]", cls)
        return kind(body, options)._fed_by(source)  # noqa: SLF001  its own class

    async def submit(self, item: T) -> R:
        """Accept *item* as `enqueue` does, wait until its body has ended and return what that returned.

        A cancellation point. Cancelled before the item was accepted it leaves no trace; cancelled later it stops
        waiting, and the item runs all the same: `cancel_operation` ends it. In a body of the same coordinator it holds
        a slot while it waits for one.

        Raises:
            CoordinatorCompletedError: The coordinator has completed, or completes before *item* was accepted.
            RuntimeError: The block was not entered yet; nothing was accepted.
            OperationCancelledError: The item was cancelled or skipped, or ended the block (``KeyboardInterrupt``).
            BaseException: Whatever the body raised, with its traceback.
        """
        self._require_block("submit()")
        submission = _Submission(item)
        del item  # from now on the operation has it, and lets go of it when its body has ended
        await self.enqueue(cast("T", submission))
        operation, submission.operation = submission.operation, None
        assert operation is not None
        return await self._answer_of(operation)

    async def wait_for_result(self, operation_id: int, timeout: float | None = None) -> R:
        """Wait until an operation has ended and return what its body returned.

        A cancellation point only while it waits; cancelled, it leaves the operation alone.

        Args:
            operation_id: As `enqueue` returned it.
            timeout: Seconds to wait; None: until it ends.

        Raises:
            UnknownOperationError: The operation is neither waiting, nor running, nor in the window.
            OperationCancelledError: The item was cancelled or skipped, or ended the block (``KeyboardInterrupt``).
            TimeoutError: It has not ended in time; it goes on.
            RuntimeError: Called inside the body of this very operation, which would wait for itself; or before the
                block was entered.
            BaseException: Whatever the body raised; with its traceback, if the wait began before.
        """
        timeout = optional_seconds("timeout", timeout, zero=True)
        operation = self._recent().get(operation_id) or self._find_waiting(operation_id)
        if operation is None:
            raise UnknownOperationError(operation_id)
        self._require_block("wait_for_result()")
        if operation is current.get(None) and operation.is_running:
            raise RuntimeError(f"operation {operation_id} would wait for its own result")
        assert isinstance(operation, _ResultOperation)
        with anyio.move_on_after(timeout):
            return await self._answer_of(operation)
        raise TimeoutError(f"operation {operation_id} has not ended after {timeout:g} s; it goes on")

    async def _answer_of(self, operation: _ResultOperation) -> R:
        error: BaseException | None = None
        trace: TracebackType | None = None
        try:
            if operation.outcome is Outcome.UNKNOWN:
                self._heeds_ends = True  # before anybody waits, ends need not be looked at
                answer = operation.answer = operation.answer or _Answer()
                await answer.arrived.wait()
                error, trace = answer.error, answer.trace
                del answer
            if operation.outcome is COMPLETED:
                return cast("R", operation.result)
            if error is None and operation.error is not None and order_to_end(operation.error) is None:
                error = copy_error(operation.error)
            raise OperationCancelledError(operation.id) if error is None else error.with_traceback(trace)
        finally:
            del error, trace, operation  # an error whose traceback led to itself would live until collected

    def _admit(self, item: Any, context: Context) -> int:
        if isinstance(item, _Submission):
            operation = item.operation = _ResultOperation(self._emitter, next_id(), None, item.item, context)
            item.item = None
        else:
            operation = _ResultOperation(self._emitter, next_id(), None, item, context)
        operation.result = operation.answer = None
        self._line.append(operation)
        if len(self._line) == 1:
            self._workers.wake()
        return operation.id

    def _broke(self, operation: Operation, error: BaseException) -> None:
        assert isinstance(operation, _ResultOperation)
        answer = operation.answer
        if (
            answer is not None
            and order_to_end(error) is None
            and not is_cancellation(error, self._workers.cancelled_class)
        ):
            answer.error, answer.trace = error, traceback_of_body(error)
            error = copy_error(error)
        super()._broke(operation, error)

    def _cancelled(self, operation: Operation) -> None:
        assert isinstance(operation, _ResultOperation)
        operation.result = None  # of a body that returned although it was cancelled
        super()._cancelled(operation)

    def _after_end(self, operation: Operation) -> None:
        assert isinstance(operation, _ResultOperation)
        operation.answered()
        super()._after_end(operation)

    def _passed_over(self, operation: Operation) -> None:
        assert isinstance(operation, _ResultOperation)
        operation.outcome = Outcome.CANCELLED
        operation.answered()

    # Window

    def get_results(self) -> tuple[R, ...]:
        """Return the results that are remembered, in order of start."""
        return tuple(cast("R", seen.result) for seen in self.get_completed())

    def get_successful(self) -> tuple[EphemeralOperationResultSnapshot[R], ...]:
        """Return the remembered operations that have a result, in order of start; the same as `get_completed`."""
        return self.get_completed()

    def get_base_snapshot(self) -> tuple[EphemeralOperationSnapshot, ...]:
        """Return what is remembered without the results, for whoever may see how it went but not what came out."""
        return tuple(Operation.snapshot(operation) for operation in self._recent())
