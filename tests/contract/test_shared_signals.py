"""What every bus promises for signals."""

from __future__ import annotations

import anyio
import pytest

from ephemeral import SignalEvent, SignalPropagation, SignalSink
from ephemeral._futures import wait_for_future


async def test_a_signal_reaches_the_others_as_it_was_raised(bus):
    async with bus.sinks(2) as (one, two), two.listen("order.*") as events:
        one.raise_signal("order.placed:eu", "c1", operation_id=7, payload={"n": [1, 2.5, "x", None, True, b"\x00"]})
        event = await anext(aiter(events))
        assert (event.signal, event.key, event.operation_id) == ("order.placed:eu", "c1", 7)
        assert event.payload == {"n": [1, 2.5, "x", None, True, b"\x00"]}
        assert event.origin == one.origin != two.origin
        (raised,) = one.sense()
        assert event.timestamp == pytest.approx(raised.timestamp, abs=0.05)
        assert two.sense() == [event]


async def test_what_led_to_a_signal_travels_with_it(bus):
    async with bus.sinks(2) as (one, two), two.listen("third") as events:
        way = SignalPropagation.root("first").extend("second").extend("third")
        one.raise_signal(SignalEvent("third", propagation=way))
        event = await anext(aiter(events))
        assert (event.propagation, event.depth) == (way, 3)
        assert event.would_cycle("first")


async def test_a_way_too_long_for_a_bus_is_refused_where_it_is_raised(bus):
    async with bus.sinks(1) as (sink,):
        way = SignalPropagation(("x" * 512,) * 65)
        with pytest.raises(ValueError, match="the 65 signals that led to 'x'"):
            sink.raise_signal(SignalEvent("x", propagation=way))
        assert len(sink) == 0


async def test_a_sink_does_not_hear_itself_again(bus, until):
    async with bus.sinks(2) as (one, two):
        one.raise_signal("a")
        two.raise_signal("b")
        await until(lambda: one.detect("b") and two.detect("a"))
        assert [len(one), len(two)] == [2, 2]


async def test_signals_of_one_sink_arrive_in_order_and_once(bus, until):
    async with bus.sinks(3, max_capacity=5000) as sinks:
        for n in range(700):
            for sink in sinks[:2]:
                sink.raise_signal("n", str(n))
        await until(lambda: len(sinks[2]) == 1400)
        for sink in sinks[:2]:
            got = [event.key for event in sinks[2].sense("n") if event.origin == sink.origin]
            assert got == [str(n) for n in range(700)]


async def test_listeners_hear_remote_signals_on_the_loop_of_the_sink(bus, until):
    heard = []
    async with bus.sinks(2) as (one, two):
        here = anyio.lowlevel.current_token()
        two.subscribe(lambda event: heard.append((event.signal, anyio.lowlevel.current_token() == here)), "x")
        one.raise_signal("x")
        one.raise_signal("y")
        one.raise_signal("x")
        await until(lambda: len(heard) == 2)
    assert heard == [("x", True), ("x", True)]


async def test_a_listener_that_raises_harms_no_later_signal(bus, until):
    heard = []

    def listener(event):
        heard.append(event.signal)
        raise ValueError(event.signal)

    async with bus.sinks(2) as (one, two):
        two.subscribe(listener)
        one.raise_signal("a")
        one.raise_signal("b")
        await until(lambda: heard == ["a", "b"])
        assert two.statistics().listener_errors == 2


async def test_a_shared_count_is_over_all_sinks_and_what_was_just_raised(bus):
    async with bus.sinks(2) as (one, two):
        one.raise_signal("job.failed:pri1:x")
        two.raise_signal("job.failed:pri10:y")
        two.raise_signal("job.failed:pri1:z")
        await one.flush()
        assert await two.shared_count("job.failed") == 3
        assert await two.shared_count("job.failed:pri1", within=50) == 2
        assert await two.shared_count("job.failed:pri1", since=two.now() + 5) == 0
        assert await two.shared_count("job") == 0


async def test_a_shared_count_dates_a_signal_by_its_own_stamp(bus):
    async with bus.sinks(1) as (sink,):
        sink.raise_signal(SignalEvent("old", timestamp=sink.now() - 30))
        sink.raise_signal("old")
        assert await sink.shared_count("old", within=20) == 1
        assert await sink.shared_count("old", since=sink.now() - 40) == 2


async def test_what_cannot_travel_is_refused_where_it_is_raised_and_leaves_no_trace(bus):
    async with bus.sinks(1) as (sink,):
        with pytest.raises(TypeError, match="payload of 'x' holds a value of type object"):
            sink.raise_signal("x", payload=object())
        with pytest.raises(ValueError, match="key of 'x'"):
            sink.raise_signal("x", "\ud800")
        with pytest.raises(TypeError, match="payload of 'x'"):
            sink.raise_signal(SignalEvent("x", payload={1}))
        assert len(sink) == 0
        assert await sink.shared_count("x") == 0


async def test_a_payload_is_sent_as_it_was_when_it_was_raised(bus):
    async with bus.sinks(2) as (one, two), two.listen("x") as events:
        payload = {"n": [1]}
        one.raise_signal("x", payload=payload)
        payload["n"].append(2)
        assert (await anext(aiter(events))).payload == {"n": [1]}


async def test_flush_says_that_the_bus_has_it(bus):
    async with bus.sinks(1) as (sink,):
        for _ in range(600):
            sink.raise_signal("a")
        assert await sink.flush(5)
        assert sink.statistics().bus.sent == 600
        assert sink.statistics().bus.outbox == 0
        assert not sink.is_degraded


async def test_leaving_the_block_sends_what_is_left(bus):
    async with bus.sinks(1) as (stays,):
        async with bus.sinks(1) as (leaves,):
            for _ in range(300):
                leaves.raise_signal("a")
        assert await stays.shared_count("a") == 300
        assert leaves.is_degraded


async def test_a_sink_may_be_opened_again_and_sends_what_was_raised_between(bus, until):
    sink = SignalSink(backend=bus.backend())
    async with bus.sinks(1) as (other,):
        async with sink:
            sink.raise_signal("first")
        sink.raise_signal("between")
        async with sink:
            sink.raise_signal("again")
            await until(lambda: len(other) == 3)
        assert sorted(event.signal for event in other.sense()) == ["again", "between", "first"]


async def test_one_backend_belongs_to_one_sink(bus):
    backend = bus.backend()
    async with SignalSink(backend=backend):
        with pytest.raises(RuntimeError, match="one backend belongs to one sink"):
            async with SignalSink(backend=backend):
                pass


async def test_clearing_clears_here_alone(bus, until):
    async with bus.sinks(2) as (one, two):
        one.raise_signal("a")
        await until(lambda: two.detect("a"))
        two.clear_pattern("a")
        assert one.detect("a")
        assert await one.shared_count("a") == 1


async def test_the_window_keeps_its_own_bounds(bus, until):
    async with bus.sinks(1) as (one,), SignalSink(10, backend=bus.backend()) as two:
        for n in range(50):
            one.raise_signal("n", str(n))
        await until(lambda: two.statistics().bus.remote == 50 and two.detect(lambda e: e.key == "49"))
        assert [event.key for event in two.sense()] == [str(n) for n in range(40, 50)]


@pytest.mark.parametrize("scope", ["", "a:b:c"])
async def test_a_scope_that_nobody_counts_is_refused(bus, scope):
    async with bus.sinks(1) as (sink,):
        with pytest.raises(ValueError, match="scope"):
            await sink.shared_count(scope)
        with pytest.raises(TypeError, match="not both"):
            await sink.shared_count("a", since=1.0, within=1.0)


async def test_without_a_bus_the_shared_side_is_this_sink_alone():
    sink = SignalSink()
    sink.raise_signal("a:b", payload=object())
    assert await sink.shared_count("a") == 1
    assert await sink.flush()
    assert not sink.is_degraded
    assert sink.statistics().bus is None


async def test_whoever_is_told_that_the_bus_is_reached_finds_it_reached(bus):
    backend, found = bus.backend(), []
    opened = backend.open(SignalSink())
    # Called by the bus itself, the moment that it says so: waiters on a loop come later.
    opened.add_done_callback(lambda _: found.append(backend.is_degraded))
    await wait_for_future(opened)
    await wait_for_future(backend.close(0.0))
    assert found == [False]


async def test_a_sink_that_is_not_open_counts_what_it_has_and_waits_for_nothing(bus):
    sink = SignalSink(backend=bus.backend())
    sink.raise_signal("a")
    with anyio.fail_after(5):
        for _ in range(2):
            assert await sink.shared_count("a") == 1
            assert not await sink.flush()
            async with sink:
                assert await sink.flush()
            # Closed: what it has is still here, and the others are not asked.
