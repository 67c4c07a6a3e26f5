"""The keyed coordinator: in order within a key, keys beside each other, and no key in another's way."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from ephemeral import (
    CoordinatorCompletedError,
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    Operation,
    SignalSink,
    current_operation,
)

from .work_kit import Gates, by_scope, by_task, cut, cut_everywhere, settle, totals

Keyed = EphemeralKeyedWorkCoordinator[Any, Any]
Item = tuple[str, int]


@asynccontextmanager
async def keyed(body: Callable[..., Any], **options: Any) -> AsyncGenerator[Keyed]:
    """A started coordinator whose items are pairs of key and number."""
    async with EphemeralKeyedWorkCoordinator[Any, Any](lambda item: item[0], body, EphemeralOptions(**options)) as work:
        yield work


def items(text: str) -> list[Item]:
    """Return an item for each letter, numbered: ``items("aab")`` is a0, a1, b2."""
    return [(letter, number) for number, letter in enumerate(text)]


def letters(started: list[Item]) -> str:
    return "".join(letter for letter, _ in started)


def assert_nothing_is_left(work: Keyed) -> None:
    assert not work._lanes.keys()
    assert work._producers is None or not work._producers.keys()
    assert len(work._lanes) == 0
    assert not work._lanes


# Order and limits


async def test_the_items_of_a_key_run_one_after_the_other_and_keys_beside_each_other() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=9) as work:
        await work.enqueue_many(items("aaabb"))
        await settle(work)
        assert gates.started == [("a", 0), ("b", 3)]
        gates.let_go(("a", 0))
        await settle(work)
        assert gates.started[2:] == [("a", 1)]
        gates.open()
    assert [item for item in gates.started if item[0] == "a"] == [("a", 0), ("a", 1), ("a", 2)]
    assert_nothing_is_left(work)


async def test_a_key_may_have_more_than_one_at_once() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=9, max_concurrency_per_key=2) as work:
        await work.enqueue_many(items("aaaab"))
        await settle(work)
        assert letters(gates.started) == "aab"
        gates.let_go(("a", 1))
        await settle(work)
        assert letters(gates.started) == "aaba"
        gates.open()


async def test_a_busy_key_takes_no_slot_while_it_waits_and_blocks_no_other() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=2) as work:
        await work.enqueue_many(items("aaaaabc"))
        await settle(work)
        assert letters(gates.started) == "ab"
        gates.let_go(("b", 5))
        await settle(work)
        assert letters(gates.started) == "abc"
        gates.open()
    assert totals(work) == (7, 0, 0)


async def test_keys_that_may_run_start_in_order_of_arrival() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=1) as work:
        await work.enqueue_many(items("aaabcab"))
        gates.open()
    assert letters(gates.started) == "aaabcab"


async def test_an_item_that_had_to_wait_for_its_key_keeps_its_place() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=2) as work:
        await work.enqueue_many(items("aabcd"))
        await settle(work)
        assert letters(gates.started) == "ab"
        gates.let_go(("a", 0))
        await settle(work)
        assert letters(gates.started) == "aba"
        gates.open()


async def test_with_fair_scheduling_keys_take_turns() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=1, enable_fair_scheduling=True) as work:
        await work.enqueue_many(items("aaaabbc"))
        gates.open()
    assert letters(gates.started) == "abcabaa"
    assert_nothing_is_left(work)


@pytest.mark.parametrize("is_fair", [False, True])
async def test_neither_limit_is_ever_exceeded(is_fair: bool) -> None:
    running: list[str] = []
    most = {"all": 0, "key": 0}

    async def body(item: Item) -> None:
        running.append(item[0])
        most["all"] = max(most["all"], len(running))
        most["key"] = max(most["key"], running.count(item[0]))
        await anyio.sleep(1 + item[1] % 3)
        running.remove(item[0])

    async with keyed(body, max_concurrency=4, max_concurrency_per_key=2, enable_fair_scheduling=is_fair) as work:
        await work.enqueue_many(items("aaabacabbbbccdaaadbbbe" * 3))
    assert most == {"all": 4, "key": 2}
    assert totals(work) == (66, 0, 0)
    assert_nothing_is_left(work)


async def test_a_worker_parked_for_want_of_a_free_key_is_woken_for_a_new_one() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=3) as work:
        await work.enqueue_many(items("aaa"))
        await settle(work)
        assert work.try_enqueue(("b", 3))
        await settle(work)
        assert letters(gates.started) == "ab"
        gates.open()


async def test_after_a_pause_every_free_key_goes_on() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=3) as work:
        work.pause()
        await work.enqueue_many(items("aabbc"))
        await settle(work)
        assert gates.started == []
        work.resume()
        await settle(work)
        assert letters(gates.started) == "abc"
        gates.open()


# How an operation ends, its key is free


@pytest.mark.parametrize("end", ["fails", "is cancelled", "runs out of time"])
async def test_a_key_is_free_after_its_item(end: str) -> None:
    gates = Gates()
    gates.errors["a", 0] = ValueError("failed")
    async with keyed(gates, operation_timeout=5) as work:
        first = await work.enqueue(("a", 0))
        await work.enqueue(("a", 1))
        await settle(work)
        if end == "fails":
            gates.let_go(("a", 0))
        elif end == "is cancelled":
            assert work.cancel_operation(first)
        else:
            await anyio.sleep(5)
        await settle(work)
        assert gates.started == [("a", 0), ("a", 1)]
        gates.open()
    assert work.total_completed == 1
    assert_nothing_is_left(work)


async def test_a_waiting_item_that_is_cancelled_frees_the_way_for_the_next() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=1) as work:
        await work.enqueue(("a", 0))
        await settle(work)
        second = await work.enqueue(("b", 1))
        await work.enqueue(("c", 2))
        assert work.cancel_operation(second)
        assert not work.cancel_operation(second)
        gates.open()
    assert letters(gates.started) == "ac"
    assert totals(work) == (2, 0, 1)
    assert_nothing_is_left(work)


@pytest.mark.parametrize("is_fair", [False, True])
async def test_cancel_leaves_no_key_behind(is_fair: bool) -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=2, enable_fair_scheduling=is_fair) as work:
        await work.enqueue_many(items("aabbc"))
        await settle(work)
        work.cancel()
    assert totals(work) == (0, 0, 5)
    assert_nothing_is_left(work)


@pytest.mark.real_time
async def test_a_plain_function_that_outlasts_its_time_keeps_its_key_until_it_returns() -> None:
    release = threading.Event()
    started: list[Item] = []

    def body(item: Item) -> None:
        started.append(item)
        if item == ("a", 0):
            release.wait(20)

    def note_end(window: Any) -> None:
        if work.total_failed and not started[1:]:
            assert work.try_enqueue(("b", 2))
        if work.total_completed:
            other_has_run.set()

    other_has_run = anyio.Event()
    async with keyed(body, max_concurrency=4, operation_timeout=0.05, on_sample=note_end) as work:
        await work.enqueue_many([("a", 0), ("a", 1)])
        await other_has_run.wait()
        assert (work.total_failed, started) == (1, [("a", 0), ("b", 2)])
        release.set()
    assert sorted(started) == [("a", 0), ("a", 1), ("b", 2)]
    assert_nothing_is_left(work)


@pytest.mark.parametrize("is_fair", [False, True])
async def test_a_key_that_is_idle_leaves_nothing_behind(is_fair: bool) -> None:
    most = 0

    async def body(item: Item) -> None:
        nonlocal most
        most = max(most, len(work._lanes.keys()))

    async with keyed(body, max_concurrency=4, max_pending=10, enable_fair_scheduling=is_fair) as work:
        await work.enqueue_many((str(number), number) for number in range(3000))
        await settle(work)
        assert_nothing_is_left(work)
    assert most <= 14


# Room


async def test_max_pending_bounds_the_sum_of_all_keys() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=1, max_pending=3) as work:
        await work.enqueue(("a", 0))
        await settle(work)
        assert [work.try_enqueue(item) for item in items("abcd")] == [True, True, True, False]
        gates.open()


async def test_a_full_key_refuses_its_own_items_alone() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=1, enable_fair_scheduling=True, fair_scheduling_threshold=2) as work:
        await work.enqueue(("a", 0))
        await settle(work)
        assert [work.try_enqueue(item) for item in items("aaabbb")] == [True, True, False, True, True, False]
        assert (work.get_pending_count_for_key("a"), work.get_pending_count_for_key("b")) == (2, 2)
        assert work.get_pending_count_for_key("nobody") == 0
        gates.let_go(("a", 0))
        await settle(work)
        assert letters(gates.started) == "ab"
        assert not work.try_enqueue(("a", 9))
        assert work.try_enqueue(("b", 9))
        gates.open()
    assert_nothing_is_left(work)


async def test_without_fair_scheduling_no_key_is_full() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=1, fair_scheduling_threshold=1) as work:
        assert await work.enqueue_many(items("a" * 20)) == 20
        gates.open()


async def produce(work: Keyed, item: Item, accepted: list[Item]) -> None:
    await work.enqueue(item)
    accepted.append(item)


async def test_producers_wait_for_their_key_alone_and_come_in_as_they_arrived() -> None:
    gates = Gates()
    accepted: list[Item] = []
    async with keyed(gates, max_concurrency=1, enable_fair_scheduling=True, fair_scheduling_threshold=1) as work:
        await work.enqueue(("x", 0))
        await settle(work)
        await work.enqueue_many([("a", 0), ("b", 0)])
        async with anyio.create_task_group() as tasks:
            for item in [("a", 1), ("a", 2), ("b", 1), ("c", 1)]:
                tasks.start_soon(produce, work, item, accepted)
                await settle(work)
            assert accepted == [("c", 1)]
            gates.let_go(("x", 0))  # a0 starts
            await settle(work)
            assert accepted == [("c", 1), ("a", 1)]
            gates.let_go(("a", 0))  # b0 starts
            await settle(work)
            assert accepted == [("c", 1), ("a", 1), ("b", 1)]
            gates.open()
    assert sorted(accepted) == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
    assert [item for item in gates.started if item[0] == "a"] == [("a", 0), ("a", 1), ("a", 2)]
    assert_nothing_is_left(work)


async def test_where_the_line_is_full_producers_whose_key_is_not_come_in_as_they_arrived() -> None:
    gates = Gates()
    accepted: list[Item] = []
    options: dict[str, Any] = {"enable_fair_scheduling": True, "fair_scheduling_threshold": 2, "max_pending": 3}
    async with keyed(gates, max_concurrency=1, **options) as work:
        await work.enqueue(("x", 0))
        await settle(work)
        await work.enqueue_many([("a", 0), ("a", 1), ("b", 0)])
        async with anyio.create_task_group() as tasks:
            for item in [("a", 2), ("c", 0), ("b", 1)]:
                tasks.start_soon(produce, work, item, accepted)
                await settle(work)
            assert accepted == []
            gates.let_go(("x", 0))  # a0 starts, so that a has room, and came first
            await settle(work)
            assert accepted == [("a", 2)]
            gates.let_go(("a", 0))  # b0 starts
            await settle(work)
            assert accepted == [("a", 2), ("c", 0)]
            gates.open()
    assert_nothing_is_left(work)


async def test_enqueue_many_keeps_the_order_of_its_items_before_a_full_key() -> None:
    gates = Gates()
    async with keyed(gates, max_concurrency=1, enable_fair_scheduling=True, fair_scheduling_threshold=1) as work:
        await work.enqueue(("x", 0))
        await settle(work)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work.enqueue_many, [("a", 0), ("a", 1), ("b", 0)])
            await settle(work)
            assert work.get_pending_count_for_key("a") == 1
            assert work.get_pending_count_for_key("b") == 0
            gates.open()


@pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [("asyncio", by_scope), ("asyncio", by_task), ("trio", by_scope)],
    indirect=["anyio_backend"],
)
async def test_a_cancelled_producer_loses_no_place_of_its_key(how: Callable[[anyio.CancelScope], None]) -> None:
    async def scenario(at: int) -> bool:
        gates = Gates()
        async with keyed(gates, max_concurrency=1, enable_fair_scheduling=True, fair_scheduling_threshold=1) as work:
            await work.enqueue(("x", 0))
            await settle(work)
            await work.enqueue(("a", 0))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(release_later, work, gates)
                reached = await cut(lambda: work.enqueue(("a", 1)), at, how)
            await settle(work)
            assert work.total_enqueued == (2 if reached else 3)
            gates.open()
            await settle(work)
            assert_nothing_is_left(work)
            work.pause()
            assert [work.try_enqueue(item) for item in items("aab")] == [True, False, True]
            work.resume()
        return reached

    async def release_later(work: Keyed, gates: Gates) -> None:
        await settle(work)
        gates.let_go(("x", 0))

    assert await cut_everywhere(scenario) > 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_place_granted_to_a_producer_that_is_cancelled_in_that_turn_is_given_back() -> None:
    gates = Gates()
    producers: list[asyncio.Future[int]] = []

    async def body(item: Item, op: Operation) -> None:
        if item == ("a", 0):
            producers[0].cancel()
        await gates(item, op)

    async with keyed(body, max_concurrency=1, enable_fair_scheduling=True, fair_scheduling_threshold=1) as work:
        await work.enqueue(("x", 0))
        await settle(work)
        await work.enqueue(("a", 0))
        producers.append(asyncio.ensure_future(work.enqueue(("a", 1))))
        await settle(work)
        gates.let_go(("x", 0))
        await settle(work)
        assert producers[0].cancelled()
        assert work.get_pending_count_for_key("a") == 0
        assert work.try_enqueue(("a", 2))
        gates.open()
    assert_nothing_is_left(work)


async def test_producers_of_full_keys_are_told_when_intake_ends() -> None:
    gates = Gates()
    refused: list[Item] = []

    async def expect_refusal(item: Item) -> None:
        with pytest.raises(CoordinatorCompletedError):
            await work.enqueue(item)
        refused.append(item)

    async with keyed(gates, max_concurrency=1, enable_fair_scheduling=True, fair_scheduling_threshold=1) as work:
        await work.enqueue(("a", 0))
        await settle(work)
        await work.enqueue(("a", 1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(expect_refusal, ("a", 2))
            await settle(work)
            work.complete()
        assert refused == [("a", 2)]
        assert not work.try_enqueue(("b", 0))
        gates.open()
    assert_nothing_is_left(work)


@pytest.mark.real_time
async def test_threads_wait_for_their_key_alone() -> None:
    async def body(item: Item) -> None:
        await anyio.lowlevel.checkpoint()

    options: dict[str, Any] = {"enable_fair_scheduling": True, "fair_scheduling_threshold": 1}
    async with keyed(body, max_concurrency=2, **options) as work, anyio.create_task_group() as tasks:
        for item in items("aaaabbbbaabb"):
            tasks.start_soon(anyio.to_thread.run_sync, partial(work.enqueue_threadsafe, item))
    assert totals(work) == (12, 0, 0)
    assert_nothing_is_left(work)


# Keys


async def test_a_key_is_shown_as_text() -> None:
    seen: list[str | None] = []

    async def body(item: Any, op: Operation) -> None:
        seen.append(current_operation().key)
        op.emit("ran")

    sink = SignalSink()
    options = EphemeralOptions(max_concurrency=1, signals=sink)
    async with EphemeralKeyedWorkCoordinator[Any, Any](lambda item: item, body, options) as work:
        await work.enqueue_many(["x", 7, ("t", 1)])
    assert seen == ["x", "7", "('t', 1)"]
    assert [event.key for event in sink.sense("ran")] == seen
    assert [event.key for event in work.get_signals_by_key("7")] == ["7"]
    assert [operation.key for operation in work.get_snapshot()] == seen
    assert [operation.key for operation in work.get_snapshot_for_key(7)] == ["7"]
    assert [operation.key for operation in work.get_snapshot_for_key("x")] == ["x"]


async def test_keys_are_told_apart_by_value_not_by_text() -> None:
    gates = Gates()
    async with EphemeralKeyedWorkCoordinator[Any, Any](lambda item: item, gates, EphemeralOptions()) as work:
        await work.enqueue_many([7, "7"])
        await settle(work)
        assert gates.started == [7, "7"]
        gates.open()


async def test_what_the_selector_raises_comes_out_of_the_call_and_leaves_no_trace() -> None:
    def selector(item: int) -> str:
        if item < 0:
            raise KeyError("no key")
        return "a"

    gates = Gates()
    async with EphemeralKeyedWorkCoordinator[str, int](selector, gates, EphemeralOptions()) as work:
        with pytest.raises(KeyError, match="no key"):
            await work.enqueue(-1)
        with pytest.raises(KeyError, match="no key"):
            work.try_enqueue(-1)
        with pytest.raises(KeyError, match="no key"):
            await work.enqueue_many([1, -1, 2])
        assert work.total_enqueued == 1
        gates.open()


async def test_a_key_that_cannot_be_hashed_is_refused_at_once() -> None:
    async with EphemeralKeyedWorkCoordinator[Any, Any](lambda item: item, Gates()) as work:
        with pytest.raises(TypeError, match=r"key_selector returned \[1\].*str or a tuple"):
            await work.enqueue([1])
        assert work.total_enqueued == 0
    assert_nothing_is_left(work)


async def test_the_selector_is_asked_once_an_item_however_long_that_waits() -> None:
    asked: list[Item] = []

    def selector(item: Item) -> str:
        asked.append(item)
        return item[0]

    gates = Gates()
    options = EphemeralOptions(max_concurrency=1, enable_fair_scheduling=True, fair_scheduling_threshold=1)
    work = EphemeralKeyedWorkCoordinator[str, Item](selector, gates, options)
    async with work, anyio.create_task_group() as tasks:
        for item in items("aaab"):
            tasks.start_soon(work.enqueue, item)
            await settle(work)
        gates.open()
    assert asked == items("aaab")


@pytest.mark.parametrize("selector", [None, "key", pytest.param(Gates().__call__, id="async")])
def test_a_selector_must_be_a_plain_function(selector: Any) -> None:
    with pytest.raises(TypeError, match="key_selector"):
        EphemeralKeyedWorkCoordinator[Any, Any](selector, Gates())


# Privacy


class Thing:
    """An item that is its own key."""


@pytest.mark.parametrize("is_fair", [False, True])
async def test_an_item_that_is_its_own_key_dies_with_its_body(is_fair: bool) -> None:
    async def body(item: Thing) -> None:
        await anyio.sleep(1)

    async def enqueue_one() -> weakref.ref[Thing]:
        thing = Thing()
        await work.enqueue(thing)
        return weakref.ref(thing)

    options = EphemeralOptions(enable_fair_scheduling=is_fair)
    async with EphemeralKeyedWorkCoordinator[Thing, Thing](lambda item: item, body, options) as work:
        reference = await enqueue_one()
        gc.disable()
        try:
            await anyio.sleep(2)
            await settle(work)
            assert work.total_completed == 1
            assert reference() is None
        finally:
            gc.enable()
