"""Reading signals in tasks: nothing missed, nothing blocked, no reader left waiting."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ephemeral import SignalEvent, SignalSink, SignalStream
from ephemeral.testing import wait_all_blocked


@pytest.fixture
def sink() -> SignalSink:
    return SignalSink()


async def read(events: SignalStream, count: int) -> list[str]:
    return [(await events.__anext__()).signal for _ in range(count)]


async def test_a_reader_gets_what_matches_in_order(sink: SignalSink) -> None:
    sink.raise_signal("a:before")
    async with sink.listen("a:*") as events:
        for name in ("a:1", "b", "a:2"):
            sink.raise_signal(name)
        assert await read(events, 2) == ["a:1", "a:2"]
        assert sink.statistics().listeners == 1
    assert sink.statistics().listeners == 0


async def test_a_waiting_reader_is_woken(sink: SignalSink) -> None:
    found: list[str] = []

    async def reader() -> None:
        async with sink.listen() as events:
            async for event in events:
                found.append(event.signal)
                if event.signal == "stop":
                    return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader)
        for name in ("a", "b", "stop"):
            await wait_all_blocked()
            sink.raise_signal(name)
    assert found == ["a", "b", "stop"]


@pytest.mark.real_time
async def test_raises_from_threads_reach_a_reader_each_once(sink: SignalSink) -> None:
    def raise_some(number: int) -> None:
        for count in range(500):
            sink.raise_signal(f"t{number}:{count}")

    async with sink.listen(buffer=2000) as events, anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(anyio.to_thread.run_sync, raise_some, number)
        found = await read(events, 2000)
        assert events.dropped == 0
    for number in range(4):
        assert [name for name in found if name.startswith(f"t{number}:")] == [f"t{number}:{n}" for n in range(500)]


async def test_a_slow_reader_loses_the_oldest_and_is_told_how_many(sink: SignalSink) -> None:
    async with sink.listen(buffer=3) as events:
        for number in range(10):
            sink.raise_signal(f"n{number}")
        assert events.dropped == 7
        assert await read(events, 3) == ["n7", "n8", "n9"]
        sink.raise_signal("next")
        assert await read(events, 1) == ["next"]
        assert events.dropped == 7


async def test_a_buffer_that_nobody_reads_stays_bounded_whoever_holds_its_lock(sink: SignalSink) -> None:
    async with sink.listen(buffer=3) as events:
        with events._lock:
            for _ in range(5):
                sink.raise_signal("held")
        sink.raise_signal("free")
        assert len(events._buffer) == 3
        assert events.dropped == 3


async def test_at_most_one_wake_up_is_under_way(sink: SignalSink, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sink.listen() as events, anyio.create_task_group() as tasks:
        wakes: list[Any] = []

        async def reader() -> None:
            assert await read(events, 100) == ["a"] * 100

        tasks.start_soon(reader)
        await wait_all_blocked()
        loop = events._loop
        assert loop is not None
        call = loop.call_soon_threadsafe
        object.__setattr__(loop, "call_soon_threadsafe", lambda wake: wakes.append(wake) or call(wake))
        for _ in range(100):
            sink.raise_signal("a")
        assert len(wakes) == 1


@pytest.mark.parametrize("what", ["signal", "end"])
async def test_what_happens_just_before_a_reader_parks_is_not_missed(
    sink: SignalSink, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    make = anyio.Event

    def late() -> anyio.Event:
        # As a thread would, between the reader's look into the buffer and its parking.
        sink.raise_signal("late") if what == "signal" else events.end()
        return make()

    async with sink.listen() as events:
        monkeypatch.setattr("ephemeral._streams.anyio.Event", late)
        with anyio.fail_after(10):
            found = await anext(events, None)
    assert (found and found.signal) == ("late" if what == "signal" else None)


async def test_a_cancelled_read_loses_nothing(sink: SignalSink) -> None:
    async with sink.listen() as events:
        with anyio.move_on_after(1) as scope:
            await read(events, 1)
        assert scope.cancelled_caught
        sink.raise_signal("a")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await read(events, 1)
        assert scope.cancelled_caught
        assert await read(events, 1) == ["a"]


async def test_reading_what_is_there_lets_others_run(sink: SignalSink) -> None:
    turns: list[int] = []

    async def other() -> None:
        for turn in range(3):
            turns.append(turn)
            await anyio.lowlevel.checkpoint()

    async with sink.listen() as events, anyio.create_task_group() as tasks:
        for _ in range(50):
            sink.raise_signal("a")
        tasks.start_soon(other)
        await read(events, 50)
        assert turns == [0, 1, 2]


async def test_leaving_the_sinks_block_ends_the_streams_after_what_they_hold() -> None:
    found: list[str] = []
    sink = SignalSink()

    async def reader(ready: anyio.Event) -> None:
        async with sink.listen() as events:
            ready.set()
            async for event in events:
                found.append(event.signal)

    async with anyio.create_task_group() as tasks:
        async with sink:
            waiting, busy = anyio.Event(), anyio.Event()
            tasks.start_soon(reader, waiting)
            await waiting.wait()
            await wait_all_blocked()
            tasks.start_soon(reader, busy)
            await busy.wait()
            sink.raise_signal("last")
        sink.raise_signal("afterwards")
    assert found == ["last", "last"]
    assert sink.statistics().listeners == 0
    async with sink.listen() as events:  # bare again
        sink.raise_signal("a")
        assert await read(events, 1) == ["a"]


@pytest.mark.parametrize("how", ["sink", "stream"])
async def test_a_reader_that_waits_is_woken_by_the_end(sink: SignalSink, how: str) -> None:
    async with sink.listen() as events, anyio.create_task_group() as tasks:

        async def reader() -> None:
            assert [event async for event in events] == []

        tasks.start_soon(reader)
        await wait_all_blocked()
        if how == "sink":
            async with sink:
                pass
        else:
            events.end()


@pytest.mark.real_time
async def test_leaving_a_plain_block_in_another_thread_ends_the_streams(sink: SignalSink) -> None:
    def block() -> None:
        with sink:
            pass

    async with sink.listen() as events:
        await anyio.to_thread.run_sync(block)
        assert [event async for event in events] == []


def test_a_loop_that_is_gone_makes_no_raise_fail(sink: SignalSink) -> None:
    stream = sink.listen()

    async def leave_it_open() -> None:
        await stream.__aenter__()
        with anyio.move_on_after(0.01):
            await read(stream, 1)

    for backend in ("asyncio", "trio"):
        stream = sink.listen()
        anyio.run(leave_it_open, backend=backend)
        # As if its reader had been waiting when the loop ended.
        stream._parked.append(anyio.Event.__new__(anyio.Event))
        stream._parked[0] = _Unreachable()  # type: ignore[call-overload]
        sink.raise_signal("a")
        sink.raise_signal("b")
        assert sink.statistics().listener_errors == 0
        assert sink.statistics().listeners == 0


class _Unreachable:
    def set(self) -> None:
        raise AssertionError("called on a loop that has ended")


async def test_two_tasks_cannot_read_one_stream(sink: SignalSink) -> None:
    async with sink.listen() as events, anyio.create_task_group() as tasks:
        tasks.start_soon(read, events, 1)
        await wait_all_blocked()
        with pytest.raises(RuntimeError, match="give each a listen"):
            await read(events, 1)
        sink.raise_signal("a")


async def test_a_stream_is_opened_once_and_before_it_is_read(sink: SignalSink) -> None:
    stream = sink.listen()
    with pytest.raises(RuntimeError, match="not open"):
        await read(stream, 1)
    async with stream:
        pass
    with pytest.raises(RuntimeError, match="only once"):
        await stream.__aenter__()
    with pytest.raises(StopAsyncIteration):
        await stream.__anext__()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"buffer": 0}, ValueError),
        ({"buffer": 1.5}, ValueError),
        ({"pattern": ""}, ValueError),
        ({"pattern": 5}, TypeError),
    ],
)
def test_bad_arguments_are_refused_before_the_block(
    sink: SignalSink, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        sink.listen(**arguments)


async def test_a_pattern_given_as_a_generator_is_read_once(sink: SignalSink) -> None:
    async with sink.listen(name for name in ("a", "b")) as events:
        for name in ("a", "c", "b"):
            sink.raise_signal(name)
        assert await read(events, 2) == ["a", "b"]


# wait_for


async def test_wait_for_returns_the_first_match_raised_after_it_is_awaited(sink: SignalSink) -> None:
    sink.raise_signal("a:before")
    found: list[SignalEvent] = []

    async def wait() -> None:
        found.append(await sink.wait_for("a:*"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await wait_all_blocked()
        for name in ("b", "a:first", "a:second"):
            sink.raise_signal(name)
    assert [event.signal for event in found] == ["a:first"]
    assert sink.statistics().listeners == 0


@pytest.mark.real_time
async def test_wait_for_is_woken_from_a_thread(sink: SignalSink) -> None:
    timer = threading.Timer(0.01, sink.raise_signal, ("a",))
    timer.start()
    assert (await sink.wait_for("a", timeout=20)).signal == "a"
    timer.join()


async def test_wait_for_times_out_in_words(sink: SignalSink) -> None:
    begin = anyio.current_time()
    with pytest.raises(TimeoutError, match=r"no signal matched 'a' within 5\.0 seconds"):
        await sink.wait_for("a", timeout=5)
    assert anyio.current_time() - begin == pytest.approx(5.0)
    with pytest.raises(TimeoutError):
        await sink.wait_for("a", timeout=0)
    assert sink.statistics().listeners == 0


async def test_a_cancelled_wait_for_leaves_nothing_behind(sink: SignalSink) -> None:
    with anyio.move_on_after(1) as scope:
        await sink.wait_for("a")
    assert scope.cancelled_caught
    assert sink.statistics().listeners == 0


@pytest.mark.parametrize(
    ("pattern", "timeout", "error"), [("", None, ValueError), (None, None, TypeError), ("a", -1, ValueError)]
)
async def test_wait_for_refuses_at_once(sink: SignalSink, pattern: Any, timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        await sink.wait_for(pattern, timeout)
    assert sink.statistics().listeners == 0
