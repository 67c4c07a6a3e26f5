"""``on_signal_async``: who is told of operations' signals in tasks, within which bounds, and until when."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, Operation, SignalEvent, SignalSink
from ephemeral.testing import wait_all_blocked

from .test_dispatcher import Handler
from .work_kit import working


async def emit(item: str, op: Operation) -> None:
    op.emit(item)


@pytest.mark.parametrize("with_sink", [False, True])
async def test_it_is_told_of_each_signal_of_an_operation_and_of_no_others(with_sink: bool) -> None:
    sink, told = SignalSink(), []

    async def tell(event: SignalEvent) -> None:
        told.append((event.signal, event.operation_id))

    options: dict[str, Any] = {"signals": sink} if with_sink else {}
    async with working(emit, on_signal_async=tell, max_concurrency=1, **options) as work:
        first, second = await work.enqueue("a"), await work.enqueue("b")
        sink.raise_signal("other")
    assert told == [("a", first), ("b", second)]


async def test_no_body_waits_for_it() -> None:
    handler = Handler(held=True)
    async with working(emit, on_signal_async=handler) as work:
        await work.enqueue("a")
        await wait_all_blocked()
        assert (work.total_completed, handler.started, handler.ended) == (1, ["a"], [])
        handler.open()


async def test_so_many_calls_are_made_at_once_and_the_oldest_signals_that_wait_are_dropped() -> None:
    handler = Handler(held=True)
    bounds = {"max_concurrent_signal_handlers": 2, "max_queued_signals": 3}
    async with working(emit, on_signal_async=handler, max_concurrency=1, **bounds) as work:
        await work.enqueue_many("ab")
        await wait_all_blocked()
        await work.enqueue_many("cdefg")
        await wait_all_blocked()
        assert handler.started == ["a", "b"]
        assert work.statistics().dropped_signals == 2
        handler.open()
    assert handler.started[2:] == ["e", "f", "g"]
    assert handler.most_active == 2


async def test_one_that_raises_is_counted_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(event: SignalEvent) -> None:
        raise ValueError("mine")

    async with working(emit, on_signal_async=fail) as work:
        await work.enqueue_many("ab")
    assert (work.total_completed, work.total_failed) == (2, 0)
    assert work.statistics().callback_errors == 2
    assert "ValueError: mine" in caplog.text


async def test_leaving_the_block_waits_for_it() -> None:
    ended: list[float] = []

    async def slow(event: SignalEvent) -> None:
        await anyio.sleep(5)
        ended.append(anyio.current_time())

    async with working(emit, on_signal_async=slow, max_concurrent_signal_handlers=1) as work:
        await work.enqueue_many("abc")
    assert ended == [5, 10, 15]


async def test_leaving_the_block_waits_no_longer_than_it_may() -> None:
    handler = Handler(held=True)
    async with working(emit, on_signal_async=handler, max_concurrent_signal_handlers=1, drain_timeout=7) as work:
        await work.enqueue_many("abc")
    assert anyio.current_time() == 7
    assert (handler.started, handler.ended) == (["a"], ["a"])
    assert work.total_completed == 3
    assert work.statistics().dropped_signals == 2


async def test_what_a_body_says_as_it_is_cut_short_is_told_too() -> None:
    handler = Handler()

    async def body(item: str, op: Operation) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            op.emit("cut")

    async with working(body, on_signal_async=handler) as work:
        await work.enqueue("a")
        await wait_all_blocked()
        work.cancel()
    assert handler.ended == ["cut"]


async def test_leaving_by_an_exception_cuts_it_short() -> None:
    handler = Handler(held=True)
    work = EphemeralWorkCoordinator[str](emit, EphemeralOptions(on_signal_async=handler))
    with pytest.raises(ValueError, match="mine"):  # noqa: PT012  the block is what is tested
        async with work:
            await work.enqueue("a")
            await wait_all_blocked()
            raise ValueError("mine")
    assert handler.ended == ["a"]


@pytest.mark.real_time
async def test_signals_of_bodies_in_threads_are_told_on_the_loop() -> None:
    handler = Handler()

    def body(item: str, op: Operation) -> None:
        op.emit(item)

    async with working(body, on_signal_async=handler) as work:
        await work.enqueue_many("abc")
    assert sorted(handler.ended) == ["a", "b", "c"]
