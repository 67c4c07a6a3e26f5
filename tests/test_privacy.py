"""Once a body has ended nothing of the library keeps its item alive, while its operation is still remembered."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from ephemeral import EphemeralOperationSnapshot, Operation

from .work_kit import Work, settle, working

# Longer than any other timer of a test: what the loop keeps of it, it keeps for long.
A_DAY = 86400.0

carried: ContextVar[object] = ContextVar("carried")


class Item:
    """Something that can be seen to die."""


async def completes(item: Item) -> None:
    kept_in_a_frame = item
    await anyio.lowlevel.checkpoint()
    del kept_in_a_frame


async def completes_at_once(item: Item) -> None:
    pass


async def fails(item: Item) -> None:
    await anyio.lowlevel.checkpoint()
    raise ValueError("failed")


async def fails_at_once(item: Item) -> None:
    raise ValueError("failed")


async def fails_for_a_reason(item: Item) -> None:
    def deeper(item: Item) -> None:
        raise KeyError("deep")

    try:
        try:
            deeper(item)
        except KeyError:
            await fails(item)
    except ValueError as error:
        raise RuntimeError("for a reason") from error


async def fails_in_a_group(item: Item) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fails_for_a_reason, item)
        tasks.start_soon(fails, item)


async def asks_for_what_is_not_there(item: Any) -> None:
    _ = item.nonsense


async def asks_and_translates(item: Any) -> None:
    try:
        _ = item.nonsense
    except AttributeError as error:
        raise ValueError("translated") from error


async def waits(item: Item) -> None:
    await anyio.sleep(100)


async def waits_with_operation(item: Item, op: Operation) -> None:
    op.emit("waiting")
    op.state["step"] = 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep, 100)


def is_ended(seen: EphemeralOperationSnapshot) -> bool:
    return seen.completed is not None


async def assert_forgotten(work: Work, reference: weakref.ref[Item], *, may_need_collection: bool = False) -> None:
    await settle(work)
    assert all(map(is_ended, work.get_snapshot()))
    assert len(work.get_snapshot()) == 1
    if may_need_collection:
        gc.collect()
    found = reference()
    assert found is None, gc.get_referrers(found)


async def enqueue_one(work: Work) -> weakref.ref[Item]:
    item = Item()
    await work.enqueue(item)
    return weakref.ref(item)


@pytest.fixture(autouse=True)
def _without_collector():
    """What dies here dies of its last reference."""
    gc.disable()
    gc.freeze()  # a collection need not look at what was there before
    yield
    gc.unfreeze()
    gc.enable()


bodies = [
    pytest.param(body, id=body.__name__)
    for body in (completes, completes_at_once, fails, fails_at_once, fails_for_a_reason, asks_for_what_is_not_there,
                 asks_and_translates)
]  # fmt: skip


@pytest.mark.parametrize("timeout", [None, A_DAY])
@pytest.mark.parametrize("body", bodies)
async def test_an_item_dies_with_its_body(body: Callable[..., Any], timeout: float | None) -> None:
    async with working(body, operation_timeout=timeout) as work:
        reference = await enqueue_one(work)
        await assert_forgotten(work, reference)


async def test_an_item_dies_with_a_body_that_fails_in_a_group() -> None:
    async with working(fails_in_a_group) as work:
        reference = await enqueue_one(work)
        # The loops' own task groups leave cycles behind.
        await assert_forgotten(work, reference, may_need_collection=True)
        (failed,) = work.get_failed()
        assert isinstance(failed.error, ExceptionGroup)


@pytest.mark.parametrize("body", [waits, waits_with_operation])
@pytest.mark.parametrize("end", ["cancel_operation", "cancel", "timeout"])
async def test_an_item_dies_with_a_body_that_is_cut_short(body: Callable[..., Any], end: str) -> None:
    async with working(body, operation_timeout=1 if end == "timeout" else None) as work:
        reference = await enqueue_one(work)
        await settle(work)
        if end == "timeout":
            await anyio.sleep(1)
        elif end == "cancel":
            work.cancel()
        else:
            work.cancel_operation(work.get_running()[0].id)
        # anyio keeps what it cancels until the loop's next turns, and its task groups leave cycles behind.
        await assert_forgotten(work, reference, may_need_collection=True)


async def test_an_item_cancelled_as_it_waits_dies() -> None:
    async with working(waits, max_concurrency=1) as work:
        work.pause()
        reference = await enqueue_one(work)
        work.cancel()
        await settle(work)
        assert reference() is None


async def test_an_item_whose_producer_waited_dies() -> None:
    async with working(completes, max_pending=1, max_tracked_operations=1) as work:
        work.pause()
        await work.enqueue(Item())
        async with anyio.create_task_group() as tasks:
            references: list[weakref.ref[Item]] = []

            async def produce() -> None:
                references.append(await enqueue_one(work))

            tasks.start_soon(produce)
            await settle(work)
            work.resume()
        await assert_forgotten(work, references[0])


@pytest.mark.parametrize("timeout", [None, A_DAY])
@pytest.mark.parametrize("body", bodies)
async def test_what_only_the_context_held_dies_with_the_body(body: Callable[..., Any], timeout: float | None) -> None:
    async def produce() -> None:
        item = Item()
        carried.set(item)
        references.append(weakref.ref(item))
        await work.enqueue("refers to it by context alone")

    references: list[weakref.ref[Item]] = []
    async with working(body, operation_timeout=timeout) as work:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(produce)
        await assert_forgotten(work, references[0], may_need_collection=True)


async def test_what_a_body_sets_in_its_context_is_seen_by_no_other_and_dies() -> None:
    async def body(first: bool) -> None:
        if first:
            item = Item()
            references.append(weakref.ref(item))
            carried.set(item)
        else:
            seen.append(carried.get(None))

    references: list[weakref.ref[Item]] = []
    seen: list[object] = []
    async with working(body, max_concurrency=1) as work:
        await work.enqueue_many([True, False])
        await settle(work)
        assert seen == [None]
        assert references[0]() is None


@pytest.mark.parametrize("body", [fails, fails_for_a_reason, asks_and_translates, fails_in_a_group])
async def test_an_error_keeps_text_instead_of_frames(body: Callable[..., Any]) -> None:
    async with working(body) as work:
        await work.enqueue(Item())
        await settle(work)
        (failed,) = work.get_failed()
        errors: list[BaseException | None] = [failed.error]
        for error in errors:
            if error is not None:
                assert error.__traceback__ is None
                errors += [error.__cause__, error.__context__]
                if isinstance(error, BaseExceptionGroup):
                    errors += error.exceptions
        assert f'File "{__file__}", line' in str(failed.error_trace)
        assert f"in {body.__name__}" in str(failed.error_trace)


# Threads


def succeeds_in_thread(item: Item) -> None:
    kept = item
    del kept


def fails_in_thread(item: Item) -> None:
    raise ValueError("failed")


@pytest.mark.real_time
@pytest.mark.parametrize("timeout", [None, A_DAY])
@pytest.mark.parametrize("body", [succeeds_in_thread, fails_in_thread])
async def test_an_item_dies_with_its_body_in_a_thread(body: Callable[..., Any], timeout: float | None) -> None:
    ended = anyio.Event()
    async with working(body, operation_timeout=timeout, on_sample=lambda window: ended.set()) as work:
        reference = await enqueue_one(work)
        await ended.wait()
        with anyio.fail_after(10):
            while reference() is not None:  # the thread tells of its end a moment before it lets go
                await anyio.lowlevel.checkpoint()
