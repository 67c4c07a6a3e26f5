"""What a sink tells of its ladders: as their workers see them, to whoever asks, on any thread."""

from __future__ import annotations

import threading

import anyio
import pytest

from ephemeral import PriorityProcessorAtom, SignalSink, testing


async def work(item: str) -> str:
    await anyio.sleep(1)
    return item


async def fail(item: str) -> str:
    raise ConnectionError(item)


async def test_a_sink_shows_the_ladders_whose_blocks_are_open_by_group() -> None:
    sink = SignalSink()
    assert sink.get_ladders() == ()
    made = PriorityProcessorAtom(1, work, sink, group="b")
    assert sink.get_ladders() == ()
    async with made, PriorityProcessorAtom(2, work, sink, group="b"), PriorityProcessorAtom(1, work, sink, group="a"):
        shown = sink.get_ladders()
        assert [ladder.group for ladder in shown] == ["a", "b"]
        assert [rung.record.processor for rung in shown[1].rungs] == ["b.pri1", "b.pri2"]
        assert shown[1].route == "b.pri1"
    assert sink.get_ladders() == ()


async def test_a_rung_is_shown_with_its_health_its_slots_and_its_rules() -> None:
    sink = SignalSink(clock=lambda: 1000.0 + anyio.current_time())
    async with (
        PriorityProcessorAtom(
            1, fail, sink, failure_threshold=2, failure_window=7, probe_interval=4, max_concurrency=1
        ) as first,
        PriorityProcessorAtom(2, work, sink, max_concurrency=3),
    ):
        await anyio.sleep(5)
        await first.enqueue("one")
        await testing.wait_all_blocked()
        (ladder,) = sink.get_ladders()
        assert (ladder.rungs[0].failures, ladder.rungs[0].record.state) == (1, "up")
        await first.enqueue_many(["two", "three", "four"])
        await testing.wait_all_blocked()
        (ladder,) = sink.get_ladders()
        down, stand_in = ladder.rungs
        assert (down.record.state, down.failures, down.record.since, down.record.probe_at) == ("down", 2, 1005, 1009)
        assert (down.rules.failure_threshold, down.rules.failure_window, down.slots, down.active) == (2, 7.0, 1, 0)
        assert (stand_in.record.is_up, stand_in.slots, stand_in.active) == (True, 3, 2)
        assert ladder.route == "pri2"
        assert ladder.statistics == first.statistics()
        assert (ladder.statistics.active_count, ladder.statistics.total_failed) == (2, 2)


@pytest.mark.real_time
async def test_another_thread_may_ask_while_rungs_come_go_and_fail() -> None:
    sink, is_over, seen, errors = SignalSink(), threading.Event(), set[int](), list[BaseException]()

    def look() -> None:
        try:
            while not is_over.is_set():
                for ladder in sink.get_ladders():
                    seen.add(len(ladder.rungs))
                    # In order of priority, each of them there, at whatever instant.
                    assert [rung.priority for rung in ladder.rungs] == sorted(rung.priority for rung in ladder.rungs)
                    assert ladder.rungs
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(30):
            async with (
                PriorityProcessorAtom(3, work, sink, group="g", drain_timeout=0),
                PriorityProcessorAtom(1, fail, sink, group="g", failure_threshold=50) as first,
                PriorityProcessorAtom(2, work, sink, group="g"),
            ):
                await first.enqueue_many(map(str, range(40)))
                await anyio.sleep(0.002)
    finally:
        is_over.set()
        thread.join()
    assert errors == []
    assert 3 in seen
