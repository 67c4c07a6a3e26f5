"""What one process shows of itself, on asyncio and trio, in virtual time."""

from __future__ import annotations

import json
import subprocess
import sys

import anyio
import pytest

from ephemeral import PriorityProcessorAtom, SignalSink, testing
from ephemeral_redis.watch import LocalWatch, watch_sink
from ephemeral_redis.watch.local import MAX_WAITING


async def fail(item: str) -> str:
    raise ConnectionError(item)


async def work(item: str) -> str:
    return item


def make_sink() -> SignalSink:
    return SignalSink(clock=lambda: 1000.0 + anyio.current_time())


async def test_a_sink_without_a_bus_is_watched_by_itself() -> None:
    assert isinstance(watch_sink(SignalSink()), LocalWatch)
    async with testing.MemoryBus() as bus, SignalSink(backend=bus.backend()) as sink:
        assert isinstance(watch_sink(sink), LocalWatch)


async def test_a_picture_shows_ladders_scopes_and_this_process() -> None:
    sink = make_sink()
    watch = LocalWatch(sink)
    async with (
        PriorityProcessorAtom(1, fail, sink, failure_threshold=2, probe_interval=5, max_concurrency=1) as first,
        PriorityProcessorAtom(2, work, sink),
    ):
        await anyio.sleep(3)
        await first.enqueue_many(["a", "b", "c"])
        await testing.wait_all_blocked()
        picture = watch.picture()
        (group,) = picture.groups
        down, stand_in = group.rungs
        assert (down.state, down.since, down.by, down.failures, down.next_probe) == ("down", 1003, sink.origin, 2, 1008)
        assert (stand_in.state, stand_in.since, stand_in.by, stand_in.epoch > 0) == ("up", 1000, sink.origin, True)
        assert (group.route, group.workers, group.completed, group.failed) == ("pri2", 1, 1, 2)
        counts = {rate.scope: (rate.count, rate.within) for rate in picture.scopes}
        assert counts["processing.failed"] == counts["processing.failed:pri1"] == (2, 10.0)
        assert counts["processing.complete:pri2"] == (1, 10.0)
        (worker,) = picture.workers
        assert (worker.origin, worker.raised, worker.told) == (sink.origin, sink.statistics().raised, 1003)
        assert (picture.problem, picture.age, picture.server, picture.namespace) == (None, 0.0, None, "")
        json.dumps(picture.as_json(), allow_nan=False)


async def test_pictures_come_each_second_and_soon_after_a_change() -> None:
    sink = make_sink()
    async with (
        PriorityProcessorAtom(1, fail, sink, failure_threshold=1, probe_interval=60) as first,
        PriorityProcessorAtom(2, work, sink),
        LocalWatch(sink).pictures() as pictures,
    ):
        came = []
        for _ in range(3):
            await anext(pictures)
            came.append(anyio.current_time())
        assert came == [0.0, 1.0, 2.0]
        await first.enqueue("a")
        picture = await anext(pictures)
        assert anyio.current_time() == pytest.approx(2.2)
        assert [(change.kind, change.processor, change.is_edge) for change in picture.changes] == [
            ("down", "pri1", True)
        ]
        assert picture.changes[0].epoch == picture.groups[0].rungs[0].epoch
        first.reset_health()
        first.isolate()
        picture = await anext(pictures)
        assert [change.kind for change in picture.changes] == ["isolated", "restored", "down"]


async def test_changes_from_before_the_watch_are_in_the_first_picture() -> None:
    sink = make_sink()
    async with (
        PriorityProcessorAtom(1, fail, sink, failure_threshold=1, probe_interval=60) as first,
        PriorityProcessorAtom(2, work, sink),
    ):
        await first.enqueue("a")
        await first.drain()
        for _ in range(2):  # once each, however often somebody begins to look
            async with LocalWatch(sink).pictures() as pictures:
                assert [change.kind for change in (await anext(pictures)).changes] == ["down"]


async def test_signals_come_in_lots_in_the_order_they_were_raised() -> None:
    sink = make_sink()
    async with LocalWatch(sink).signals() as lots:
        for number in range(3):
            sink.raise_signal(f"a:{number}", payload=number)
        assert [event.signal for event in await anext(lots)] == ["a:0", "a:1", "a:2"]
        sink.raise_signal("b")
        assert [event.signal for event in await anext(lots)] == ["b"]


async def test_what_a_slow_reader_lost_is_told_exactly() -> None:
    sink = make_sink()
    async with LocalWatch(sink).signals() as lots:
        sink.raise_signal("first")
        assert [event.signal for event in await anext(lots)] == ["first"]
        for number in range(MAX_WAITING + 7):
            sink.raise_signal(f"a:{number}")
        gap, oldest, *_ = await anext(lots)
        assert (gap.signal, oldest.signal) == ("bus.gap:7", "a:7")


def test_watching_one_process_loads_no_client_of_a_server() -> None:
    code = (
        "import sys; from ephemeral import SignalSink; import ephemeral_redis;"
        "from ephemeral_redis.watch import watch_sink; watch_sink(SignalSink()).picture();"
        "print(*sorted({'redis', 'hiredis', 'msgpack', 'rich', 'typer'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
