"""What type checkers must see in the public names. Checked by mypy and pyright, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, assert_type

from ephemeral import (
    CoordinatorFactory,
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


async def name_of(item: int) -> str:
    return str(item)


async def name_with(item: int, op: Operation) -> str:
    return f"{item} {op.id}"


def name_in_thread(item: int) -> str:
    return str(item)


def name_with_in_thread(item: int, op: Operation) -> str:
    return f"{item} {op.id}"


async def name_after(item: int, tries: int = 3, op: Operation | None = None) -> str:
    return f"{item} {tries} {op}"


class Namer:
    async def __call__(self, item: int, op: Operation) -> str:
        return f"{item} {op.id}"


def is_even(item: int) -> bool:
    return item % 2 == 0


def check_what_bodies_tell() -> None:
    assert_type(EphemeralWorkCoordinator(name_of), EphemeralWorkCoordinator[int])
    assert_type(EphemeralWorkCoordinator(name_with, EphemeralOptions()), EphemeralWorkCoordinator[int])
    assert_type(EphemeralWorkCoordinator(name_in_thread), EphemeralWorkCoordinator[int])
    assert_type(EphemeralWorkCoordinator(name_with_in_thread), EphemeralWorkCoordinator[int])
    assert_type(EphemeralWorkCoordinator(name_after), EphemeralWorkCoordinator[int])
    assert_type(EphemeralWorkCoordinator(Namer()), EphemeralWorkCoordinator[int])
    assert_type(EphemeralWorkCoordinator(print), EphemeralWorkCoordinator[object])

    assert_type(EphemeralKeyedWorkCoordinator(is_even, name_of), EphemeralKeyedWorkCoordinator[bool, int])
    assert_type(EphemeralKeyedWorkCoordinator(is_even, name_with), EphemeralKeyedWorkCoordinator[bool, int])
    assert_type(EphemeralKeyedWorkCoordinator(lambda item: f"{item}", name_of), EphemeralKeyedWorkCoordinator[str, int])

    assert_type(EphemeralResultCoordinator(name_of), EphemeralResultCoordinator[int, str])
    assert_type(EphemeralResultCoordinator(name_with), EphemeralResultCoordinator[int, str])
    assert_type(EphemeralResultCoordinator(name_in_thread), EphemeralResultCoordinator[int, str])
    assert_type(EphemeralResultCoordinator(name_with_in_thread), EphemeralResultCoordinator[int, str])
    assert_type(EphemeralResultCoordinator(name_after), EphemeralResultCoordinator[int, str])
    assert_type(EphemeralResultCoordinator(Namer()), EphemeralResultCoordinator[int, str])


async def check_what_sources_tell(source: AsyncIterator[int]) -> None:
    work = EphemeralWorkCoordinator.from_async_iterable(source, name_with)
    assert_type(work, EphemeralWorkCoordinator[int])
    keyed = EphemeralKeyedWorkCoordinator.from_async_iterable(source, lambda item: f"{item}", name_of)
    assert_type(keyed, EphemeralKeyedWorkCoordinator[str, int])
    results = EphemeralResultCoordinator.from_async_iterable(source, name_with)
    assert_type(results, EphemeralResultCoordinator[int, str])
    in_threads = EphemeralResultCoordinator.from_async_iterable(source, name_in_thread)
    assert_type(in_threads, EphemeralResultCoordinator[int, str])
    await ephemeral_for_each([1], name_with, key=lambda item: item % 2)
    await ephemeral_for_each(source, lambda item: item + 1)


def nothing() -> str:
    return ""


def of_three(item: int, op: Operation, more: int) -> str:
    return f"{item} {op} {more}"


def length(item: str) -> int:
    return len(item)


async def check_wrong_bodies(source: AsyncIterator[str], factory: CoordinatorFactory) -> None:
    EphemeralWorkCoordinator(nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - takes no item
    EphemeralWorkCoordinator(of_three)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - wants too much
    EphemeralWorkCoordinator(4)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no function
    EphemeralWorkCoordinator(name_of, {"max_pending": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no options
    EphemeralResultCoordinator(nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue] - takes no item
    keyed = EphemeralKeyedWorkCoordinator(length, name_of)  # pyright: ignore[reportArgumentType] - a key of a str
    await keyed.enqueue(1)  # type: ignore[arg-type]  # mypy finds no item that suits both functions
    EphemeralWorkCoordinator.from_async_iterable(source, name_of)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - items are str
    await ephemeral_for_each(source, name_of)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - items are str
    await EphemeralWorkCoordinator(name_of).enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - an item is an int
    factory.add_work("a", nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - takes no item
    factory.add_keyed("b", length, name_of)  # pyright: ignore[reportArgumentType] - a key of a str
    factory.add_result("c", nothing)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - takes no item
    factory.add_keyed("d", length, print)
