"""What type checkers must see in the public names. Checked by mypy and pyright, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, assert_type

from ephemeral import (
    EphemeralKeyedWorkCoordinator,
    EphemeralOperationResultSnapshot,
    EphemeralOperationSnapshot,
    EphemeralOptions,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
    NoHealthyProcessorError,
    Operation,
    SignalBlockReason,
    SignalConstraints,
    SignalDispatcher,
    SignalEvent,
    SignalPropagation,
    SignalSink,
    Subscription,
    ephemeral_for_each,
    testing,
)


async def add(left: int, right: int) -> int:
    return left + right


def check_testing() -> None:
    assert_type(testing.run(add, 1, 2), int)
    assert_type(testing.run(add, 1, 2, backend="trio"), int)
    assert_type(testing.virtual_time("asyncio"), tuple[str, dict[str, Any]])
    testing.run(add, 1, "2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the wrong argument is seen
    testing.virtual_time("curio")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no such loop


def check_propagation(op: Operation, event: SignalEvent) -> None:
    assert_type(op.emit_caused("a", event), bool)
    assert_type(op.emit_caused("a", event.propagation), bool)
    assert_type(SignalPropagation.root("a").extend("b").path, tuple[str, ...])
    assert_type(SignalConstraints.STRICT.should_block("a", event.propagation), SignalBlockReason | None)
    op.emit_caused("a", "b")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a cause is an event


async def hear(event: SignalEvent) -> None:
    assert_type(event.depth, int)


def check_dispatcher(dispatcher: SignalDispatcher, sink: SignalSink) -> None:
    assert_type(dispatcher.register("a", hear), Subscription)
    assert_type(dispatcher.attach(sink), Subscription)
    dispatcher.register("a", print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - it is not async
    EphemeralOptions(on_signal_async=hear, cancel_on_signals={"a", "b"}, drain_on_signals=None)


def check_errors(error: NoHealthyProcessorError) -> None:
    assert_type(error.group, str)
    assert_type(error.retry_at, float | None)


async def check_coordinators() -> None:
    async def double(item: int) -> float:
        return item * 2.0

    async with EphemeralResultCoordinator[int, float](double) as results:
        assert_type(await results.submit(1), float)
        assert_type(await results.wait_for_result(1, timeout=2), float)
        assert_type(results.get_results(), tuple[float, ...])
        assert_type(results.get_snapshot(), tuple[EphemeralOperationResultSnapshot[float], ...])
        assert_type(results.get_snapshot()[0].result, float | None)
        assert_type(results.get_base_snapshot(), tuple[EphemeralOperationSnapshot, ...])
        assert_type(results.try_get_operation(1), EphemeralOperationResultSnapshot[float] | None)
        await results.submit("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - an item is an int

    keyed = EphemeralKeyedWorkCoordinator[str, int](str, double)
    assert_type(keyed.get_snapshot_for_key("1"), tuple[EphemeralOperationSnapshot, ...])
    keyed.get_pending_count_for_key(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a key is a str


async def check_sources(source: AsyncIterator[int], body: Callable[[int], Awaitable[None]]) -> None:
    work = EphemeralWorkCoordinator[int].from_async_iterable(source, body)
    assert_type(work, EphemeralWorkCoordinator[int])
    summary = await ephemeral_for_each(source, body, key=lambda item: item % 2)
    assert_type(summary.failures, tuple[EphemeralOperationSnapshot, ...])
