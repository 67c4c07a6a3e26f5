"""Coordinators that react to signals: what is skipped, what is held and until when, and who drains."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from ephemeral import (
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
    Operation,
    OperationCancelledError,
    SignalEvent,
    SignalSink,
)
from ephemeral._steering import MAX_REMEMBERED, Steering

from .work_kit import Gates, Work, balance, settle, working

REACTS = {"cancel_on_signals": "stop", "defer_on_signals": "slow", "resume_on_signals": "fast"}


def virtual_sink(**options: Any) -> SignalSink:
    """A sink by the clock of the loop."""
    return SignalSink(clock=anyio.current_time, **options)


class Ran:
    """A body that notes its items, each with the loop's time."""

    def __init__(self) -> None:
        self.at: list[tuple[Any, float]] = []

    @property
    def items(self) -> list[Any]:
        return [item for item, _ in self.at]

    async def __call__(self, item: Any) -> None:
        self.at.append((item, anyio.current_time()))


async def whole(work: Work) -> tuple[int, int, int]:
    """Let everything happen; return how many completed, were skipped, and wait."""
    await settle(work)
    return work.total_completed, work.total_skipped, work.pending_count


# Cancel


async def test_items_are_skipped_while_a_signal_that_cancels_lives() -> None:
    sink, ran = virtual_sink(max_age=5), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        await work.enqueue("before")
        await settle(work)
        sink.raise_signal("stop")
        await work.enqueue_many(["a", "b"])
        assert await whole(work) == (1, 2, 0)
        await anyio.sleep(5)
        await work.enqueue("at five seconds it lives")
        assert await whole(work) == (1, 3, 0)
        await anyio.sleep(0.001)
        await work.enqueue("after")
        assert await whole(work) == (2, 3, 0)
    assert ran.items == ["before", "after"]
    assert work.total_enqueued == 5
    assert [seen.is_cancelled for seen in work.get_snapshot()] == [False, False]


async def test_items_that_waited_when_it_came_are_skipped_as_their_turn_comes() -> None:
    sink, gates = virtual_sink(), Gates()
    async with working(gates, signals=sink, max_concurrency=1, **REACTS) as work:
        await work.enqueue_many(["runs", "a", "b"])
        await settle(work)
        sink.raise_signal("stop")
        assert await whole(work) == (0, 0, 2)
        gates.let_go("runs")
        assert await whole(work) == (1, 2, 0)


async def test_what_was_raised_before_the_coordinator_counts_too() -> None:
    sink, ran = virtual_sink(), Ran()
    sink.raise_signal("stop")
    async with working(ran, signals=sink, **REACTS) as work:
        await work.enqueue("a")
        assert await whole(work) == (0, 1, 0)


async def test_a_signal_pushed_out_by_others_lives_on() -> None:
    sink, ran = virtual_sink(max_capacity=3, max_age=5), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("stop")
        for number in range(10):
            sink.raise_signal(f"other.{number}")
        assert not sink.detect("stop")
        await work.enqueue("a")
        assert await whole(work) == (0, 1, 0)
        await anyio.sleep(5.001)
        await work.enqueue("b")
        assert await whole(work) == (1, 1, 0)


TAKES_BACK: list[Callable[[SignalSink], object]] = [
    lambda sink: sink.clear(),
    lambda sink: sink.clear_pattern("st*"),
    lambda sink: sink.clear_matching(lambda event: event.signal == "stop"),
    lambda sink: sink.clear_key("why"),
    lambda sink: sink.clear_operation(7),
    lambda sink: sink.update_window_size(max_age=0.5),
]


@pytest.mark.parametrize("take_back", TAKES_BACK)
@pytest.mark.parametrize("is_pushed_out", [False, True])
async def test_what_is_taken_back_cancels_no_more(
    take_back: Callable[[SignalSink], object], is_pushed_out: bool
) -> None:
    sink, ran = virtual_sink(max_capacity=2), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("stop", "why", operation_id=7)
        if is_pushed_out:
            sink.raise_signal("other")
            sink.raise_signal("other")
        await anyio.sleep(1)
        take_back(sink)
        await work.enqueue("a")
        assert await whole(work) == (1, 0, 0)


async def test_taking_back_the_newest_leaves_the_one_before() -> None:
    sink, ran = virtual_sink(max_age=10), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("stop", "old")
        await anyio.sleep(4)
        sink.raise_signal("stop", "new")
        sink.clear_key("new")
        await work.enqueue("a")
        assert await whole(work) == (0, 1, 0)
        await anyio.sleep(6.5)
        await work.enqueue("b")
        assert await whole(work) == (1, 1, 0)


async def test_taking_back_the_newest_leaves_the_one_before_that_the_window_has_let_go_of() -> None:
    sink, ran = virtual_sink(max_capacity=2, max_age=10), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        for key in ("first", "second"):
            sink.raise_signal("stop", key)
            for _ in range(3):
                sink.raise_signal("other")
        sink.raise_signal("stop", "third")
        for key, skipped in [("third", 1), ("first", 2), ("second", 2)]:
            sink.clear_key(key)
            await work.enqueue(key)
            assert await whole(work) == (key == "second", skipped, 0)


async def test_of_a_flood_only_so_many_are_remembered() -> None:
    sink, ran = virtual_sink(max_capacity=1), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        for number in range(MAX_REMEMBERED * 3):
            sink.raise_signal("stop", str(number))
        assert len(work._steering._heard) == MAX_REMEMBERED
        sink.clear_matching(lambda event: event.key is not None and int(event.key) >= MAX_REMEMBERED * 2)
        await work.enqueue("a")
        assert await whole(work) == (1, 0, 0)


async def test_taking_back_the_newest_leaves_one_that_lives_however_many_signals_came_after_it() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("stop", "live")
        for _ in range(MAX_REMEMBERED * 2):
            sink.raise_signal("fast")
        sink.raise_signal("stop", "new")
        sink.clear_key("new")
        await work.enqueue("a")
        assert await whole(work) == (0, 1, 0)


async def test_a_clear_that_meant_others_changes_nothing() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("stop")
        sink.raise_signal("other")
        sink.clear_pattern("other")
        await work.enqueue("a")
        assert await whole(work) == (0, 1, 0)


async def test_a_longer_age_does_not_bring_back_what_was_too_old() -> None:
    sink, ran = virtual_sink(max_age=2), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("stop")
        await anyio.sleep(3)
        sink.update_window_size(max_age=60)
        await work.enqueue("a")
        assert await whole(work) == (1, 0, 0)
        sink.raise_signal("stop")
        sink.update_window_size(max_age=90)
        await work.enqueue("b")
        assert await whole(work) == (1, 1, 0)


async def test_a_predicate_may_itself_clear_and_raise() -> None:
    sink, ran = virtual_sink(), Ran()

    def meant(event: Any) -> bool:
        sink.clear_pattern("nothing")
        sink.raise_signal("asked")
        return event.signal == "stop"

    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("stop")
        assert sink.clear_matching(meant) == 1
        await work.enqueue("a")
        assert await whole(work) == (1, 0, 0)


async def test_a_predicate_need_not_understand_what_has_left_the_window() -> None:
    sink, ran = virtual_sink(max_capacity=1), Ran()

    def is_about_us(event: SignalEvent) -> bool:
        assert event.key is not None
        return event.key == "us"

    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("stop")
        sink.raise_signal("other", "us")
        assert sink.clear_matching(is_about_us) == 1
        await work.enqueue("a")
        assert await whole(work) == (0, 1, 0)


async def test_of_two_clears_at_once_neither_brings_back_what_the_other_took(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, ran, sense = virtual_sink(), Ran(), SignalSink.sense
    others = iter(["old"])

    def overtaken(self: SignalSink, which: Any = None) -> Any:
        """Look at the window; before that is made use of, another thread clears."""
        events = sense(self, which)
        for key in others:
            sink.clear_key(key)
        return events

    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("stop", "old")
        sink.raise_signal("stop", "new")
        monkeypatch.setattr(SignalSink, "sense", overtaken)
        sink.clear_key("new")
        await work.enqueue("a")
        assert await whole(work) == (1, 0, 0)


async def test_skipping_makes_room_for_those_who_wait_for_it() -> None:
    sink, gates = virtual_sink(), Gates()
    async with working(gates, signals=sink, max_concurrency=1, max_pending=1, **REACTS) as work:
        await work.enqueue("runs")
        await settle(work)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work.enqueue_many, ["a", "b", "c"])
            await settle(work)
            assert work.pending_count == 1
            sink.raise_signal("stop")
            gates.let_go("runs")
        assert await whole(work) == (1, 3, 0)


@pytest.mark.real_time
async def test_a_line_that_is_skipped_does_not_keep_the_loop_to_itself() -> None:
    sink, seen = SignalSink(), []

    async def look() -> None:
        while work.pending_count:
            seen.append(work.pending_count)
            await anyio.lowlevel.checkpoint()

    work = EphemeralWorkCoordinator[Any](Ran(), EphemeralOptions(signals=sink, max_pending=200_000, **REACTS))
    for item in range(200_000):
        assert work.try_enqueue(item)
    sink.raise_signal("stop")
    async with work, anyio.create_task_group() as tasks:
        tasks.start_soon(look)
    assert work.total_skipped == 200_000
    # It takes far longer than a slice of 5 ms.
    assert len(set(seen)) > 3


async def test_of_a_skipped_item_nothing_is_kept() -> None:
    class Item: ...

    sink = virtual_sink()
    sink.raise_signal("stop")
    async with working(Ran(), signals=sink, **REACTS) as work:
        item = Item()
        kept = weakref.ref(item)
        await work.enqueue(item)
        del item
        await settle(work)
        gc.collect()
        assert kept() is None


# Defer and resume


async def test_items_are_held_until_the_time_is_over() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, max_defer_attempts=4, defer_check_interval=0.5, **REACTS) as work:
        sink.raise_signal("slow")
        await anyio.sleep(0.5)
        await work.enqueue_many(["a", "b"])
        assert await whole(work) == (0, 0, 2)
        await anyio.sleep(1.499)
        assert await whole(work) == (0, 0, 2)
    assert ran.at == [("a", 2.0), ("b", 2.0)]


async def test_by_default_a_hold_lasts_a_second() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue("a")
    assert ran.at == [("a", 1.0)]


async def test_a_newer_signal_extends_the_hold() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue("a")
        for _ in range(3):
            await anyio.sleep(0.75)
            sink.raise_signal("slow")
        assert await whole(work) == (0, 0, 1)
    assert ran.at == [("a", 3.25)]


async def test_a_hold_ends_as_its_signal_ages_out() -> None:
    sink, ran = virtual_sink(max_age=0.25), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue("a")
    assert ran.at == [("a", 0.25)]


ENDS_A_HOLD: list[Callable[[SignalSink], object]] = [
    lambda sink: sink.raise_signal("fast"),
    lambda sink: sink.clear_pattern("slow"),
    lambda sink: sink.clear(),
    lambda sink: sink.update_window_size(max_age=0.25),
]


@pytest.mark.parametrize("end", ENDS_A_HOLD)
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_what_ends_a_hold_ends_it_at_once(end: Callable[[SignalSink], object], concurrency: int) -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, max_concurrency=concurrency, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue_many(["a", "b", "c"])
        await anyio.sleep(0.5)
        assert await whole(work) == (0, 0, 3)
        end(sink)
        assert await whole(work) == (3, 0, 0)
    assert ran.at == [("a", 0.5), ("b", 0.5), ("c", 0.5)]


async def test_a_released_line_runs_as_many_at_once_as_may() -> None:
    sink, gates = virtual_sink(), Gates()
    async with working(gates, signals=sink, max_concurrency=3, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue_many(range(5))
        assert await whole(work) == (0, 0, 5)
        sink.raise_signal("fast")
        await settle(work)
        assert gates.started == [0, 1, 2]
        gates.open()
    assert work.total_completed == 5


async def test_a_hold_does_not_touch_what_runs() -> None:
    sink, gates = virtual_sink(), Gates()
    async with working(gates, signals=sink, max_concurrency=1, **REACTS) as work:
        await work.enqueue_many(["runs", "held"])
        await settle(work)
        sink.raise_signal("slow")
        await anyio.sleep(0.5)
        gates.let_go("runs")
        assert await whole(work) == (1, 0, 1)
        await anyio.sleep(0.5)
        await settle(work)
        assert gates.started == ["runs", "held"]
        gates.open()


async def test_held_items_are_skipped_at_once_when_a_signal_cancels() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue_many(["a", "b"])
        await settle(work)
        sink.raise_signal("stop")
        assert await whole(work) == (0, 2, 0)


async def test_a_resume_that_is_taken_back_holds_again() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("slow")
        sink.raise_signal("fast")
        sink.clear_pattern("fast")
        await work.enqueue("a")
    assert ran.at == [("a", 1.0)]


async def test_a_paused_coordinator_stays_paused_when_a_hold_ends() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue("a")
        await settle(work)
        work.pause()
        sink.raise_signal("fast")
        assert await whole(work) == (0, 0, 1)
        work.resume()
        assert await whole(work) == (1, 0, 0)


async def test_held_items_can_be_cancelled() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("slow")
        first = await work.enqueue("a")
        await work.enqueue("b")
        await settle(work)
        assert work.cancel_operation(first)
        await anyio.sleep(0.5)
        work.cancel()
        await settle(work)
        assert (work.total_cancelled, work.is_drained) == (2, True)
    assert ran.items == []


async def test_more_may_run_at_once_while_items_are_held() -> None:
    sink, gates = virtual_sink(), Gates()
    options = {"max_concurrency": 1, "enable_dynamic_concurrency": True}
    async with working(gates, signals=sink, **options, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue_many(range(4))
        await settle(work)
        work.set_max_concurrency(3)
        assert await whole(work) == (0, 0, 4)
        sink.raise_signal("fast")
        await settle(work)
        assert gates.started == [0, 1, 2]
        gates.open()


async def test_a_hold_by_a_sink_whose_clock_stands_ends_by_the_clock_of_the_loop() -> None:
    sink, ran = SignalSink(clock=lambda: 1_000_000.0), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        for expected in (1.0, 2.5):
            sink.raise_signal("slow")
            await work.enqueue(expected)
            await anyio.sleep(1.5)
    assert ran.at == [(1.0, 1.0), (2.5, 2.5)]


# Completed


async def test_once_completed_new_signals_do_not_extend_a_hold() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work, anyio.create_task_group() as tasks:

        async def keep_coming() -> None:
            while True:
                sink.raise_signal("slow")
                await anyio.sleep(0.25)

        tasks.start_soon(keep_coming)
        await work.enqueue_many(["a", "b"])
        await anyio.sleep(5.1)
        assert await whole(work) == (0, 0, 2)
        work.complete()
        assert await work.drain()
        tasks.cancel_scope.cancel()
    assert ran.at == [("a", 6.0), ("b", 6.0)]


async def test_once_completed_there_is_one_hold_and_no_second() -> None:
    sink, ran = virtual_sink(), Ran()

    async def body(item: str) -> None:
        await ran(item)
        sink.raise_signal("slow")

    async with working(body, signals=sink, max_concurrency=1, **REACTS) as work:
        await work.enqueue_many("abc")
    assert ran.at == [("a", 0.0), ("b", 1.0), ("c", 1.0)]


async def test_once_completed_signals_cancel_and_resume_all_the_same() -> None:
    sink, ran = virtual_sink(), Ran()
    async with working(ran, signals=sink, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue("a")
        work.complete()
        sink.raise_signal("fast")
        assert await whole(work) == (1, 0, 0)
    async with working(ran, signals=sink, max_concurrency=1, **REACTS) as work:
        await work.enqueue("b")
        work.complete()
        sink.raise_signal("stop")
        assert await whole(work) == (0, 1, 0)
        assert work.is_drained


# What it costs


async def test_with_nothing_new_raised_no_item_looks_at_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, ran = virtual_sink(), Ran()
    for number in range(900):
        sink.raise_signal(f"other.{number}")
    sink.raise_signal("slow")
    sink.raise_signal("fast")
    async with working(ran, signals=sink, **REACTS) as work:

        def look(*_: object, **__: object) -> None:
            raise AssertionError("it looked")

        for name in ("_events", "_count", "_settle"):
            monkeypatch.setattr(SignalSink, name, look)
        await work.enqueue_many(range(500))
        assert await whole(work) == (500, 0, 0)
        monkeypatch.undo()


async def test_a_hold_is_waited_for_and_not_polled(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, ran, asked = virtual_sink(), Ran(), []
    decide = Steering.verdict

    def counted(self: Steering) -> Any:
        asked.append(anyio.current_time())
        return decide(self)

    monkeypatch.setattr(Steering, "verdict", counted)
    async with working(ran, signals=sink, max_concurrency=1, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue("a")
    assert asked == [0.0, 1.0]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_timer_runs_only_while_an_item_is_held() -> None:
    import asyncio  # noqa: PLC0415  what is looked into is asyncio's own

    def timers() -> int:
        scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        return sum(not timer.cancelled() for timer in scheduled)

    sink, ran = virtual_sink(), Ran()
    before = timers()
    async with working(ran, signals=sink, **REACTS) as work:
        await settle(work)
        sink.raise_signal("slow")
        await settle(work)
        assert timers() == before
        await work.enqueue("a")
        await settle(work)
        assert timers() == before + 1
        sink.raise_signal("fast")
        await settle(work)
        assert (timers(), ran.items) == (before, ["a"])


async def test_nothing_is_left_at_the_sink() -> None:
    sink = virtual_sink()
    async with working(Ran(), signals=sink, **REACTS):
        assert sink.statistics().listeners == 1
    assert sink.statistics().listeners == 0
    never_started = EphemeralWorkCoordinator[Any](Ran(), EphemeralOptions(signals=sink, **REACTS))
    assert sink.statistics().listeners == 1
    del never_started
    gc.collect()
    assert sink.statistics().listeners == 0
    sink.raise_signal("stop")
    assert sink.statistics().listener_errors == 0


def test_who_reacts_to_nothing_does_not_listen() -> None:
    sink = SignalSink()
    kept = EphemeralWorkCoordinator[Any](Ran(), EphemeralOptions(signals=sink, drain_on_signals=None))
    assert sink.statistics().listeners == 0
    assert kept.total_enqueued == 0


# Other kinds


async def test_a_keyed_coordinator_skips_and_holds_too() -> None:
    sink, ran = virtual_sink(), Ran()
    options = EphemeralOptions(signals=sink, **REACTS)  # type: ignore[arg-type]
    async with EphemeralKeyedWorkCoordinator[str, str](lambda item: item[0], ran, options) as work:
        sink.raise_signal("stop")
        for item in ("a1", "a2", "b1"):
            await work.enqueue(item)
        await settle(work)  # type: ignore[arg-type]
        assert work.total_skipped == 3
        sink.clear()
        sink.raise_signal("slow")
        for item in ("a3", "b2", "a4"):
            await work.enqueue(item)
        await settle(work)  # type: ignore[arg-type]
        assert work.pending_count == 3
        sink.raise_signal("fast")
        await settle(work)  # type: ignore[arg-type]
        balance(work)  # type: ignore[arg-type]
    assert ran.items == ["a3", "b2", "a4"]


async def test_whoever_waits_for_the_result_of_a_skipped_item_is_told() -> None:
    sink = virtual_sink()
    sink.raise_signal("stop")

    async def double(item: int) -> int:
        return 2 * item

    options = EphemeralOptions(signals=sink, **REACTS)  # type: ignore[arg-type]
    async with EphemeralResultCoordinator[int, int](double, options) as work:
        with pytest.raises(OperationCancelledError):
            await work.submit(1)
        sink.clear()
        sink.raise_signal("slow")
        assert await work.submit(2) == 4
        assert anyio.current_time() == 1.0
        assert work.total_skipped == 1


# The operations' own signals


@pytest.mark.parametrize("with_sink", [False, True])
async def test_signals_of_its_own_operations_count(with_sink: bool) -> None:
    ran: list[tuple[str, float]] = []

    async def body(item: str, op: Operation) -> None:
        ran.append((item, anyio.current_time()))
        if item in REACTS.values():
            op.emit(item)

    options = {"signals": virtual_sink()} if with_sink else {}
    async with working(body, max_concurrency=1, **options, **REACTS) as work:
        await work.enqueue_many(["first", "slow", "held"])
        await anyio.sleep(0.5)
        await settle(work)
        assert ran == [("first", 0.0), ("slow", 0.0)]
        await anyio.sleep(1)
        assert ran[2:] == [("held", 1.0)]
        await work.enqueue_many(["stop", "skipped"])
        assert await whole(work) == (4, 1, 0)
        await anyio.sleep(60)
        await work.enqueue("a minute later it still lives")
        assert await whole(work) == (4, 2, 0)
        await anyio.sleep(0.001)
        await work.enqueue("last")
        assert await whole(work) == (5, 2, 0)


@pytest.mark.parametrize("with_sink", [False, True])
async def test_a_signal_that_its_operation_retracts_ends_the_hold_at_once(with_sink: bool) -> None:
    ran: list[tuple[str, float]] = []

    async def body(item: str, op: Operation) -> None:
        ran.append((item, anyio.current_time()))
        if item == "slow":
            op.emit("slow")
            await anyio.sleep(0.5)
            assert op.retract("slow")
            await anyio.sleep(0.25)

    options = {"signals": virtual_sink()} if with_sink else {}
    async with working(body, max_concurrency=2, **options, **REACTS) as work:
        await work.enqueue_many(["slow", "held"])
    assert ran == [("slow", 0.0), ("held", 0.5)]


async def test_a_coordinator_that_a_signal_holds_says_so_until_it_runs_again() -> None:
    sink = virtual_sink()
    async with working(Ran(), signals=sink, **REACTS) as work:
        assert not work.is_deferred
        assert "deferred" not in repr(work)
        sink.raise_signal("slow")
        await work.enqueue(1)
        await settle(work)
        assert work.is_deferred
        assert work.statistics().is_deferred
        assert " open deferred: 1 pending" in repr(work)
        sink.raise_signal("fast")
        await settle(work)
        assert not work.is_deferred
        assert not work.statistics().is_deferred
        sink.raise_signal("slow")
        assert work.is_deferred
        await anyio.sleep(1.001)  # max_defer_attempts * defer_check_interval
        assert not work.is_deferred
        sink.raise_signal("slow")
    assert not work.is_deferred
    assert "deferred" not in repr(work)
