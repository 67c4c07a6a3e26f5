"""One call that runs a body for each of many items and says how it went."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Hashable, Iterable, Sized
from dataclasses import dataclass
from typing import TypeVar

import anyio

from ._bodies import require_plain
from ._coordinator import Body, CoordinatorBase
from ._error_copies import with_note
from ._keyed import EphemeralKeyedWorkCoordinator
from ._operations import EphemeralOperationSnapshot, Operation, Outcome
from ._options import EphemeralOptions, options_or_default
from ._work import EphemeralWorkCoordinator

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """How a run over many items went; ``total == completed + failed + skipped + cancelled``.

    Attributes:
        total: Items taken.
        completed: Items whose body returned.
        failed: Items whose body raised, or ran out of time.
        skipped: Items passed over because of a signal.
        cancelled: Items cancelled.
        duration: Seconds from the call to its end.
        failures: What is known of the items that failed, first failure first: at most ``max_tracked_operations``.
    """

    total: int
    completed: int
    failed: int
    skipped: int
    cancelled: int
    duration: float
    failures: tuple[EphemeralOperationSnapshot, ...]


async def ephemeral_for_each(
    items: Iterable[T] | AsyncIterable[T],
    body: Body[T],
    options: EphemeralOptions | None = None,
    *,
    key: Callable[[T], Hashable] | None = None,
    on_progress: Callable[[int, int | None], object] | None = None,
    raise_on_error: bool = False,
) -> RunSummary:
    """Run *body* for each of *items* as a coordinator would, within its bounds, and return how it went.

    *items* are taken lazily: never are more than ``max_pending`` taken that have not started. A body that raises stops
    nothing else. A cancellation point; cancelled, it cancels what runs. ``drain_timeout`` does not apply.

    Args:
        items: Any iterable or async iterable. What it raises comes out as it is, after all items before it have ended.
        body: ``async def body(item)`` or ``async def body(item, op)``; a plain function runs in a worker thread.
        options: Bounds and callbacks; None: the defaults.
        key: The key of an item: items of one key run in order, as in `EphemeralKeyedWorkCoordinator`. None: no keys.
        on_progress: Called with (items ended, items in all) after each item; the second is None where *items* has no
            length. A plain function that must not block; what it raises is logged and stops nothing.
        raise_on_error: Whether failures raise, once all items have ended.

    Raises:
        ExceptionGroup: With *raise_on_error*: copies of the errors of ``failures``, each with a note that says where it
            was raised. A ``BaseExceptionGroup`` if one of them is no ``Exception``.
        TypeError: *body* or *key* cannot be called, *items* cannot be iterated, or *on_progress* is ``async def``.
    """
    require_plain("on_progress", on_progress)
    options = options_or_default(options)
    began_at = anyio.current_time()
    source = items if isinstance(items, AsyncIterable) else _each_of(iter(items))
    run = _KeyedRun(key, body, options) if key is not None else _Run[T](body, options)
    run.watch(len(items) if isinstance(items, Sized) else None, on_progress)
    async with run.fed_by(source):
        await run.drain()
    summary = run.summary(anyio.current_time() - began_at)
    if raise_on_error and summary.failures:
        raise _group_of(summary)
    return summary


async def _each_of(items: Iterable[T]) -> AsyncGenerator[T]:
    for item in items:
        yield item


def _group_of(summary: RunSummary) -> BaseExceptionGroup[BaseException]:
    errors: list[BaseException] = []
    for failure in summary.failures:
        assert failure.error is not None
        errors.append(with_note(failure.error, failure.error_trace or ""))
    return BaseExceptionGroup(f"{summary.failed} of {summary.total} items failed", errors)


class _Watched(CoordinatorBase[T, EphemeralOperationSnapshot]):
    """Tells of each item that has ended, and keeps the first failures."""

    _kind = "ephemeral_for_each"

    def watch(self, expected: int | None, on_progress: Callable[[int, int | None], object] | None) -> None:
        self._expected = expected
        self._on_progress = on_progress
        self._failures: list[EphemeralOperationSnapshot] = []
        self._heeds_ends = True

    def fed_by(self, source: AsyncIterable[T]) -> _Watched[T]:
        return self._fed_by(source)

    def _after_end(self, operation: Operation) -> None:
        super()._after_end(operation)
        if operation.outcome is Outcome.FAILED and len(self._failures) < self._options.max_tracked_operations:
            self._failures.append(operation.snapshot())
        self._tell_progress()

    def _passed_over(self, operation: Operation) -> None:
        super()._passed_over(operation)
        self._tell_progress()

    def _tell_progress(self) -> None:
        if self._on_progress is not None:
            ended = self.total_enqueued - self.pending_count - self.active_count
            self._emitter.call(self._on_progress, ended, self._expected)

    def summary(self, duration: float) -> RunSummary:
        return RunSummary(
            total=self.total_enqueued,
            completed=self.total_completed,
            failed=self.total_failed,
            skipped=self.total_skipped,
            cancelled=self.total_cancelled,
            duration=duration,
            failures=tuple(self._failures),
        )


class _Run(_Watched[T], EphemeralWorkCoordinator[T]):
    pass


class _KeyedRun(_Watched[T], EphemeralKeyedWorkCoordinator[Hashable, T]):
    pass
