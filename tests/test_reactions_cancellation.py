"""Every wait of a coordinator that holds items back, cut there: nothing half accepted, no slot lost, no hold left."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, SignalSink

from .work_kit import Gates, Work, assert_whole, by_scope, by_task, cut, cut_everywhere, settle, working

How = Callable[[anyio.CancelScope], None]

however = pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [("asyncio", by_scope), ("asyncio", by_task), ("trio", by_scope)],
    indirect=["anyio_backend"],
)
REACTS = {"defer_on_signals": "slow", "resume_on_signals": "fast", "cancel_on_signals": "stop"}


def virtual_sink() -> SignalSink:
    return SignalSink(clock=anyio.current_time)


@however
@pytest.mark.parametrize("word", ["fast", "stop"])
async def test_enqueue_that_waits_behind_held_items(how: How, word: str) -> None:
    async def scenario(at: int) -> bool:
        sink, gates = virtual_sink(), Gates()
        gates.open()
        async with working(gates, signals=sink, max_concurrency=1, max_pending=1, **REACTS) as work:
            sink.raise_signal("slow")
            await work.enqueue("held")
            await settle(work)
            async with anyio.create_task_group() as tasks:

                async def let_go() -> None:
                    await settle(work)
                    sink.raise_signal(word)

                tasks.start_soon(let_go)
                reached = await cut(lambda: work.enqueue("cut"), at, how)
            await settle(work)
            assert work.total_enqueued == (1 if reached else 2)
            sink.clear()
            await assert_whole(work, gates, limit=1, bound=1)
        return reached

    assert await cut_everywhere(scenario) > 0


@however
async def test_drain_that_waits_for_a_hold(how: How) -> None:
    async def scenario(at: int) -> bool:
        sink, gates = virtual_sink(), Gates()
        gates.open()
        start = anyio.current_time()
        async with working(gates, signals=sink, max_concurrency=2, **REACTS) as work:
            sink.raise_signal("slow")
            await work.enqueue_many("abc")
            await settle(work)
            work.complete()
            reached = await cut(work.drain, at, how)
            assert await work.drain()
            assert anyio.current_time() - start == pytest.approx(1.0)
            assert gates.started == ["a", "b", "c"]
        return reached

    assert await cut_everywhere(scenario) > 0


@however
async def test_leaving_a_block_whose_items_are_held(how: How) -> None:
    async def scenario(at: int) -> bool:
        sink, gates = virtual_sink(), Gates()
        gates.open()
        work = EphemeralWorkCoordinator(gates, EphemeralOptions(signals=sink, max_concurrency=2, **REACTS))  # type: ignore[arg-type]

        async def block() -> None:
            async with work:
                sink.raise_signal("slow")
                await work.enqueue_many("abc")

        reached = await cut(block, at, how)
        assert work.is_drained
        assert work.total_completed + work.total_cancelled == work.total_enqueued
        assert (work.total_completed == 3) or reached
        assert sink.statistics().listeners == 0
        return reached

    assert await cut_everywhere(scenario) > 1


@however
async def test_a_body_cut_while_others_are_held_gives_its_slot_back(how: How) -> None:
    sink, gates = virtual_sink(), Gates()
    async with working(gates, signals=sink, max_concurrency=2, max_pending=3, **REACTS) as work:
        running = await work.enqueue("runs")
        await settle(work)
        sink.raise_signal("slow")
        await work.enqueue("held")
        await settle(work)
        assert work.cancel_operation(running)
        await settle(work)
        assert (work.active_count, work.pending_count) == (0, 1)
        sink.raise_signal("fast")
        await assert_whole(work, gates, limit=2, bound=3)


async def test_a_block_left_by_an_exception_leaves_no_hold() -> None:
    sink = virtual_sink()

    async def nothing(item: str) -> None: ...

    async def block(work: Work) -> None:
        async with work:
            sink.raise_signal("slow")
            await work.enqueue("held")
            await settle(work)
            raise ValueError("mine")

    work = EphemeralWorkCoordinator(nothing, EphemeralOptions(signals=sink, **REACTS))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mine"):
        await block(work)
    assert (work.total_cancelled, work.is_drained) == (1, True)
    assert anyio.current_time() == 0
    assert sink.statistics().listeners == 0
