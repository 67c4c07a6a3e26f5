"""One life of a backend: before it, without its thread, and as it ends."""

from __future__ import annotations

import threading

import fakeredis
import pytest

from ephemeral import HealthOptions, PriorityProcessorAtom, SignalSink
from ephemeral.abc import BusUnavailableError, HealthRecord, HealthReport, HealthRules
from ephemeral_redis import RedisSignalBackend, _life, _reports


async def test_a_ladder_on_a_sink_that_is_not_open_works_alone_and_says_so_once(caplog):
    sink = SignalSink(backend=RedisSignalBackend.from_url("redis://localhost", namespace="x"))
    assert await call_twice(sink) == ("down", True)
    alone = [message for message in caplog.messages if "alone" in message]
    assert alone == ["a ladder works alone, for its sink is not open: enter the block of the sink before the atom's"]


@pytest.mark.real_time
async def test_a_ladder_on_a_sink_that_was_closed_works_alone():
    server = fakeredis.FakeServer()
    backend = RedisSignalBackend(lambda **_: fakeredis.FakeAsyncRedis(server=server), namespace="x")
    async with SignalSink(backend=backend) as sink:
        pass
    assert await call_twice(sink) == ("down", True)


async def call_twice(sink):
    """Call a processor that fails until it goes down, then again; return its health and whether that is local."""

    async def fail(item):
        raise ConnectionError(item)

    async def echo(item):
        return item

    async with PriorityProcessorAtom(1, fail, sink, failure_threshold=1) as one, PriorityProcessorAtom(2, echo, sink):
        with pytest.raises(ConnectionError):
            await one.call("x")
        assert await one.call("x") == "x"
        health = one.get_health()
        return health.state, health.is_local


@pytest.mark.parametrize("when", ["before it was opened", "after it was closed"])
def test_what_is_asked_of_a_bus_without_a_thread_is_kept_within_bounds(when, monkeypatch):
    monkeypatch.setattr(_reports, "MAX_REPORTS", 3)
    server = fakeredis.FakeServer()
    backend = RedisSignalBackend(lambda **_: fakeredis.FakeAsyncRedis(server=server), namespace="x")
    if when == "after it was closed":
        with SignalSink(backend=backend):
            pass
        backend._life._portal.join(5)
    rules = HealthRules.of(HealthOptions())
    for _ in range(9):
        backend.report(HealthReport("pri1", 0, True, rules, lambda now: HealthRecord("pri1", 0, now, "")))
    assert len(backend._life._portal._calls) == 0
    assert len(backend._life._reports) <= 3


def test_the_last_signals_are_dated_by_the_clock_that_stamped_them():
    server = fakeredis.FakeServer()
    backend = RedisSignalBackend(lambda **_: fakeredis.FakeAsyncRedis(server=server), namespace="x")
    with SignalSink(backend=backend, clock=lambda: 1000.0) as sink:
        for _ in range(1000):  # in four batches, so that some are left as the block is
            sink.raise_signal("a")
    assert (sink.statistics().bus.applied, sink.statistics().bus.stale) == (1000, 0)


@pytest.mark.real_time
def test_what_is_raised_while_the_last_signals_leave_leaves_too(monkeypatch, caplog):
    flush, late = _life.Life.flush, ["second", "third"]

    def flush_and_raise(life):
        sent = flush(life)
        sent.add_done_callback(lambda _: late and sink.raise_signal(late.pop()))
        return sent

    def make_client(**settings):
        return fakeredis.FakeAsyncRedis(server=server)

    server = fakeredis.FakeServer()
    with SignalSink(backend=RedisSignalBackend(make_client, namespace="x")) as sink:
        monkeypatch.setattr(_life.Life, "flush", flush_and_raise)
        sink.raise_signal("first")
    assert late == []
    assert sink.statistics().bus.applied == 3
    assert caplog.messages == []


@pytest.mark.real_time
def test_a_sink_that_is_opened_again_has_one_thread_for_its_listeners():
    server = fakeredis.FakeServer()
    one, other = (
        SignalSink(backend=RedisSignalBackend(lambda **_: fakeredis.FakeAsyncRedis(server=server), namespace="x"))
        for _ in range(2)
    )
    is_called, may_end = threading.Event(), threading.Event()
    threads = []

    def listener(event):
        threads.append(threading.current_thread())
        is_called.set()
        assert may_end.wait(10)

    one.subscribe(listener)
    with other:
        with one:
            other.raise_signal("first")
            assert is_called.wait(10)
        with one:
            may_end.set()
            threads[0].join(10)
            assert not threads[0].is_alive()
            is_called.clear()
            other.raise_signal("second")
            assert is_called.wait(10)
    assert threads[0] is not threads[1]


@pytest.mark.real_time
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_keeps_nobody_waiting():
    def make_client(**settings):
        raise SystemExit(1)  # no error that any loop of ours would outlive

    sink = SignalSink(backend=RedisSignalBackend(make_client, namespace="x"))
    with pytest.raises(BusUnavailableError), sink:
        pass
    sink.backend._life._portal.join(10)
    assert sink.is_degraded
