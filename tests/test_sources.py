"""Coordinators that take their items from a source: its end, its errors, its closing, and how far ahead it is taken."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ephemeral import (
    CoordinatorCompletedError,
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
)

from .work_kit import Gates, Work, by_scope, by_task, cut, cut_everywhere, settle, totals


class Source:
    """An async generator that is watched: what was taken of it, and whether it was closed.

    Args:
        items: What it gives; an error among them is raised.
        every: Seconds it takes for each.
    """

    def __init__(self, *items: Any, every: float = 0.0) -> None:
        self.items = items
        self.every = every
        self.taken: list[Any] = []
        self.is_closed = False
        self.task: int | None = None

    async def __aiter__(self) -> AsyncIterator[Any]:
        self.task = anyio.get_current_task().id
        try:
            for item in self.items:
                if self.every:
                    await anyio.sleep(self.every)
                if isinstance(item, BaseException):
                    raise item
                self.taken.append(item)
                yield item
        finally:
            assert anyio.get_current_task().id == self.task
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)
            self.is_closed = True


def work_from(source: Any, body: Callable[..., Any], **options: Any) -> Work:
    return EphemeralWorkCoordinator[Any].from_async_iterable(source, body, EphemeralOptions(**options))


# Its end


async def test_each_kind_takes_all_items_in_order() -> None:
    async def body(item: int) -> int:
        return item * 2

    options = EphemeralOptions(max_concurrency=1)
    work = EphemeralWorkCoordinator[int].from_async_iterable(Source(1, 2, 3), body, options)
    keyed = EphemeralKeyedWorkCoordinator[int, int].from_async_iterable(Source(1, 2, 3), abs, body, options)
    result = EphemeralResultCoordinator[int, int].from_async_iterable(Source(1, 2, 3), body, options)
    for kind in (work, keyed, result):
        async with kind:
            pass
        assert kind.total_completed == 3
        assert kind.is_drained
    assert result.get_results() == (2, 4, 6)
    assert [seen.key for seen in keyed.get_snapshot()] == ["1", "2", "3"]


async def test_leaving_normally_waits_for_the_end_of_the_source() -> None:
    source = Source(1, 2, 3, every=10)
    gates = Gates()
    gates.open()
    async with work_from(source, gates) as work:
        assert not work.is_completed
    assert gates.ended == [1, 2, 3]
    assert source.is_closed
    assert anyio.current_time() == 31


async def test_drain_waits_for_the_end_of_the_source_and_needs_no_complete() -> None:
    source = Source(1, 2, every=10)
    gates = Gates()
    gates.open()
    async with work_from(source, gates) as work:
        assert not await work.drain(timeout=15)
        assert work.total_completed == 1
        assert await work.drain()
        assert work.is_drained
        assert await work.drain()
    assert totals(work) == (2, 0, 0)


async def test_nothing_is_taken_before_the_block_and_items_of_others_are_welcome() -> None:
    source = Source(1, 2)
    gates = Gates()
    gates.open()
    work = work_from(source, gates, max_concurrency=1)
    await work.enqueue(0)
    await settle(work)
    assert source.taken == []
    async with work:
        assert await work.enqueue(9)
    assert sorted(gates.started) == [0, 1, 2, 9]


async def test_no_item_is_taken_before_there_is_room_for_it() -> None:
    source = Source(*range(20))
    gates = Gates()
    async with work_from(source, gates, max_concurrency=2, max_pending=3) as work:
        await settle(work)
        assert len(source.taken) == 5
        gates.let_go(0)
        await settle(work)
        assert len(source.taken) == 6
        gates.open()
    assert gates.started == list(range(20))


@pytest.mark.parametrize("is_fair", [False, True])
@pytest.mark.parametrize("bound", [2, 3])
async def test_an_item_in_hand_whose_key_is_full_counts_as_taken_ahead(is_fair: bool, bound: int) -> None:
    source = Source(*range(20))
    gates = Gates()
    options = EphemeralOptions(
        max_concurrency=1, max_pending=bound, enable_fair_scheduling=is_fair, fair_scheduling_threshold=2
    )
    keyed = EphemeralKeyedWorkCoordinator[str, int].from_async_iterable(source, lambda item: "a", gates, options)
    async with keyed:
        await settle(keyed)
        assert len(source.taken) == 1 + bound
        gates.open()
    assert gates.ended == list(range(20))
    assert keyed._producers is None or not keyed._producers.keys()


async def test_a_source_that_never_waits_leaves_the_loop_its_turns() -> None:
    turns = 0

    async def many() -> AsyncIterator[int]:
        for number in range(10_000):
            if turns == 3:
                return
            yield number
        raise AssertionError("the loop had no turn")

    async def count_turns() -> None:
        nonlocal turns
        while turns < 3:
            await anyio.lowlevel.checkpoint()
            turns += 1

    clock = iter(range(10**9))
    work = work_from(many(), Gates(), max_concurrency=1, max_pending=10**9)
    async with anyio.create_task_group() as tasks, work:
        work._workers.now = lambda: next(clock) / 1000  # a millisecond each time it is read
        tasks.start_soon(count_turns)
        await settle(work)
        assert turns == 3
        work.cancel()


# Its errors


@pytest.mark.parametrize("error", [OSError("gone"), KeyError("odd"), BaseExceptionGroup("many", [GeneratorExit()])])
async def test_an_error_comes_out_of_the_block_bare_after_all_that_was_accepted(error: BaseException) -> None:
    gates = Gates()
    work = work_from(Source(1, 2, error, 3), gates, max_concurrency=1)

    async def open_later() -> None:
        await anyio.sleep(2)
        assert (gates.started, work.is_completed) == ([1], True)
        gates.open()

    async def whole_block() -> None:
        async with work:
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_later)
        with pytest.raises(type(error)) as caught:
            await whole_block()
    assert caught.value is error
    assert gates.ended == [1, 2]
    assert totals(work) == (2, 0, 0)


async def test_an_error_comes_out_of_drain_once() -> None:
    gates = Gates()
    gates.open()
    async with work_from(Source(1, OSError("gone")), gates) as work:
        with pytest.raises(OSError, match="gone"):
            await work.drain()
        assert gates.ended == [1]
        assert await work.drain()


async def test_an_error_is_not_lost_to_a_drain_timeout() -> None:
    work = work_from(Source(1, OSError("gone")), Gates(), drain_timeout=5)

    async def whole_block() -> None:
        async with work:
            pass

    with pytest.raises(OSError, match="gone"):
        await whole_block()
    assert totals(work) == (0, 0, 1)


async def test_an_exception_of_the_block_goes_first_and_the_sources_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    work = work_from(Source(1, OSError("gone")), Gates())

    async def whole_block() -> None:
        async with work:
            await anyio.sleep(5)
            raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        await whole_block()
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], OSError)


async def test_an_error_while_it_closes_comes_out_too() -> None:
    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await anyio.sleep_forever()
        finally:
            raise OSError("cannot close")

    gates = Gates()
    gates.open()
    async with work_from(source(), gates) as work:
        await settle(work)
        work.complete()
        with pytest.raises(OSError, match="cannot close"):
            await work.drain()


async def test_a_source_that_got_this_error_elsewhere_has_failed() -> None:
    async def whole_block() -> None:
        async with work_from(Source(1, CoordinatorCompletedError("another")), Gates(), drain_timeout=1):
            pass

    with pytest.raises(CoordinatorCompletedError, match="another"):
        await whole_block()


async def test_a_source_that_raises_the_loops_own_error_has_failed() -> None:
    kind: Any = anyio.get_cancelled_exc_class()
    error = kind._create(source="unknown") if hasattr(kind, "_create") else kind()
    gates = Gates()
    gates.open()

    async def whole_block() -> None:
        async with work_from(Source(1, error), gates):
            pass

    with pytest.raises(RuntimeError, match="cancelled from within"):
        await whole_block()
    assert gates.ended == [1]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_an_order_to_end_cancels_the_block_and_comes_out_bare(kind: type[BaseException]) -> None:
    error = kind("now")
    work = work_from(Source(1, error), Gates())

    async def whole_block() -> None:
        async with work:
            await anyio.sleep_forever()

    with pytest.raises(kind) as caught:
        await whole_block()
    assert caught.value is error
    assert totals(work) == (0, 0, 1)


async def test_what_the_key_selector_raises_ends_the_source() -> None:
    keyed = EphemeralKeyedWorkCoordinator[str, int].from_async_iterable(
        Source(1, 0, 2), lambda item: str(1 // item), Gates(), EphemeralOptions(drain_timeout=1)
    )

    async def whole_block() -> None:
        async with keyed:
            pass

    with pytest.raises(ZeroDivisionError):
        await whole_block()
    assert keyed.total_enqueued == 1


@pytest.mark.parametrize("source", [[1, 2], None, 7])
def test_a_source_must_be_an_async_iterable(source: Any) -> None:
    with pytest.raises(TypeError, match=r"source must be an async iterable.*ephemeral_for_each"):
        work_from(source, Gates())


# Its closing


async def test_complete_takes_no_more_and_closes_it() -> None:
    source = Source(1, 2, 3, every=10)
    gates = Gates()
    gates.open()
    async with work_from(source, gates) as work:
        await anyio.sleep(15)
        work.complete()
        assert work.is_completed
        assert not work.is_drained
        assert await work.drain()
        assert source.is_closed
        assert anyio.current_time() == 16
    assert gates.ended == source.taken == [1]


async def test_complete_at_once_closes_a_source_nothing_was_taken_of() -> None:
    closed: list[str] = []

    class Iterator:
        def __aiter__(self) -> Iterator:
            return self

        async def __anext__(self) -> int:
            raise AssertionError("nothing was to be taken")

        async def aclose(self) -> None:
            closed.append("closed")

    async with work_from(Iterator(), Gates()) as work:
        work.complete()
        assert await work.drain()
        assert closed == ["closed"]


async def test_complete_while_an_item_waits_for_room_drops_that_item_alone() -> None:
    source = Source(1, 2, 3)
    gates = Gates()
    options = EphemeralOptions(max_concurrency=1, enable_fair_scheduling=True, fair_scheduling_threshold=1)
    keyed = EphemeralKeyedWorkCoordinator[str, int].from_async_iterable(source, lambda item: "a", gates, options)
    async with keyed:
        await settle(keyed)
        assert source.taken == [1, 2, 3]
        keyed.complete()
        gates.open()
    assert gates.ended == [1, 2]
    assert source.is_closed


@pytest.mark.parametrize("how", ["cancel", "exception", "drain_timeout"])
async def test_however_the_block_ends_the_source_is_closed_and_no_task_is_left(how: str) -> None:
    source = Source(*range(100), every=1)
    work = work_from(source, Gates(), max_concurrency=2, drain_timeout=3)

    async def whole_block() -> None:
        async with work:
            await anyio.sleep(3.5)
            if how == "cancel":
                work.cancel()
            elif how == "exception":
                raise KeyError("the user's")

    if how == "exception":
        with pytest.raises(KeyError):
            await whole_block()
    else:
        await whole_block()
    assert source.is_closed
    assert work.is_drained
    assert work.total_cancelled == work.total_enqueued == len(source.taken)
    assert not [task.name for task in anyio.get_running_tasks() if "ephemeral" in str(task.name)]


async def test_a_source_that_takes_for_ever_to_close_is_given_up() -> None:
    async def source() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await anyio.sleep_forever()

    gates = Gates()
    gates.open()
    options = EphemeralOptions(max_concurrency=1, enable_fair_scheduling=True, fair_scheduling_threshold=1)
    async with EphemeralKeyedWorkCoordinator[str, int].from_async_iterable(source(), str, gates, options) as work:
        await settle(work)
        assert gates.ended == [1]
        work.complete()
    assert anyio.current_time() <= 5


@pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [("asyncio", by_scope), ("asyncio", by_task), ("trio", by_scope)],
    indirect=["anyio_backend"],
)
async def test_a_block_that_waits_for_its_source_may_be_cancelled(how: Callable[[anyio.CancelScope], None]) -> None:
    async def scenario(at: int) -> bool:
        source = Source(1, 2, every=10)
        gates = Gates()
        gates.open()
        work = work_from(source, gates)

        async def whole_block() -> None:
            async with work:
                await work.drain()

        reached = await cut(whole_block, at, how)
        assert source.is_closed or not source.task
        assert work.is_drained
        assert totals(work) == (len(source.taken), 0, 0)
        assert reached or source.taken == [1, 2]
        return reached

    assert await cut_everywhere(scenario) > 0


# Privacy


class Thing:
    pass


async def test_an_item_dies_although_the_next_is_waited_for() -> None:
    made: list[weakref.ref[Thing]] = []

    class Iterator:
        def __aiter__(self) -> Iterator:
            return self

        async def __anext__(self) -> Thing:
            if made:
                await anyio.sleep(10)
                raise StopAsyncIteration
            thing = Thing()
            made.append(weakref.ref(thing))
            return thing

    async def body(item: Thing) -> None:
        pass

    async with work_from(Iterator(), body) as work:
        gc.disable()
        try:
            await settle(work)
            assert work.total_completed == 1
            assert made[0]() is None
        finally:
            gc.enable()
