"""A server that dies, hangs, forgets or is full: no silent loss, nothing counted twice, and nobody waits."""

from __future__ import annotations

import os
import threading
import time

import pytest
import redis

from ephemeral import SignalSink, _sink_bus
from ephemeral_redis import RedisSignalBackend, SignalBusError

pytestmark = [pytest.mark.real_time, pytest.mark.server]


def raise_steadily(sink, seconds, rate=500, meanwhile=None):
    """Raise *rate* signals a second; return how many and the slowest raise in seconds."""
    clock, began_at, count, slowest = time.perf_counter, time.perf_counter(), 0, 0.0
    pause = threading.Event()
    while clock() - began_at < seconds:
        before = clock()
        sink.raise_signal("steady", str(count))
        slowest = max(slowest, clock() - before)
        count += 1
        if meanwhile is not None:
            meanwhile(clock() - began_at)
        pause.wait(max(0.0, began_at + count / rate - clock()))
    return count, slowest


def steps(*planned):
    """Return a function of the time that takes each step once, when its time has come."""
    left = list(planned)

    def go(now):
        while left and now >= left[0][0]:
            left.pop(0)[1]()

    return go


def keys_of(sink, other):
    return [int(event.key) for event in sink.sense("steady") if event.origin == other.origin]


def test_a_server_that_dies_and_comes_back_empty_loses_nothing_that_was_raised_meanwhile(server, joined, until):
    with joined(server.url, 2) as (one, two):
        back_at = []
        plan = steps((0.5, server.kill), (2.0, lambda: (server.restart(), back_at.append(time.monotonic()))))
        count, slowest = raise_steadily(one, 2.5, meanwhile=plan)
        until(lambda: not one.is_degraded and not two.is_degraded)
        assert time.monotonic() - back_at[0] < 1.0
        one.raise_signal("steady", str(count))
        until(lambda: count in keys_of(two, one))
        got = keys_of(two, one)
        bus = two.statistics().bus
        # Acknowledged by a server that died before a reader had it: then it is counted. All else is here, once.
        assert len(got) == len(set(got))
        assert len(got) + bus.missed == count + 1
        assert bus.missed <= 20
        assert got == sorted(got)
        assert slowest < 0.5  # one that waited for the server would take a second
        assert one.statistics().bus.reconnects == 1


def test_a_durable_server_that_dies_loses_and_doubles_nothing(durable_server, joined, until):
    server = durable_server
    with joined(server.url, 2) as (one, two):
        plan = steps((0.3, server.kill), (0.8, lambda: server.restart(empty=False)))
        count, _ = raise_steadily(one, 1.2, meanwhile=plan)
        until(lambda: len(keys_of(two, one)) == count)
        assert keys_of(two, one) == list(range(count))
        assert two.statistics().bus.missed == 0


def test_a_frozen_server_holds_up_nobody_and_doubles_nothing(server, joined, until):
    with joined(server.url, 2) as (one, two):
        plan = steps((0.2, server.freeze), (1.8, server.resume), (2.2, server.freeze), (3.6, server.resume))
        count, slowest = raise_steadily(one, 4.0, rate=1000, meanwhile=plan)
        until(lambda: len(keys_of(two, one)) == count)
        assert keys_of(two, one) == list(range(count))
        assert slowest < 0.5  # one that waited for the server would take a second
        assert two.statistics().bus.missed == 0
        client = redis.Redis.from_url(server.url)
        (scope,) = client.keys("*z:steady")
        assert client.zcard(scope) == count


def test_a_server_that_forgot_its_scripts_gets_them_again(server, joined, until):
    with joined(server.url, 2) as (one, two):
        one.raise_signal("a")
        until(lambda: two.detect("a"))
        redis.Redis.from_url(server.url).script_flush()
        one.raise_signal("b")
        until(lambda: two.detect("b"))
        assert one.statistics().bus.reconnects == 0


@pytest.mark.parametrize("purpose", ["command", "control", "signals"])
def test_a_connection_that_is_cut_is_replaced_without_a_word(server, joined, until, purpose):
    with joined(server.url, 2) as (one, two):
        client = redis.Redis.from_url(server.url)
        for round_number in range(5):
            for known in client.client_list():
                if known["name"] == f"ephemeral-{purpose}":
                    client.client_kill_filter(_id=known["id"])
            one.raise_signal("r", str(round_number))
            until(lambda number=round_number: two.detect(lambda event: event.key == str(number)))
        assert [event.key for event in two.sense("r")] == list("01234")
        assert two.statistics().bus.missed == 0


def test_garbage_on_the_streams_stops_no_reader(server, joined, until):
    with joined(server.url, 2) as (one, two):
        client = redis.Redis.from_url(server.url)
        one.raise_signal("a")
        until(lambda: two.detect("a"))
        (signals,), (health,) = client.keys("*}:s"), [client.keys("*}:m")[0][:-1] + b"h"]
        for stream in (signals, signals[:-1] + b"c"):
            client.xadd(stream, {"x": "y"})
            client.xadd(
                stream, {"v": "1", "o": "12345678", "q": "0", "n": "1", "a": "1234", "b": b"\xdd\xff\xff\xff\xff"}
            )
            client.xadd(stream, {"k": "failures", "o": "12345678", "p": "pri1", "r": b"1:2:d:3:\xc1"})
        client.hset(health, "pri1", "garbage")
        one.raise_signal("b")
        until(lambda: two.detect("b"))
        until(lambda: two.statistics().bus.undecodable == 6)


def test_an_outbox_that_overflows_drops_the_oldest_and_every_loss_is_counted(server, joined, until):
    with joined(server.url, 2, max_outbox=100) as (one, two):
        one.raise_signal("first")
        until(lambda: two.detect("first"))
        server.kill()
        until(lambda: one.is_degraded)
        for n in range(1000):
            one.raise_signal("n", str(n))
        server.restart()
        until(lambda: two.detect(lambda event: event.key == "999"))
        dropped = one.statistics().bus.dropped
        assert dropped > 0
        assert len(two.sense("n")) == 1000 - dropped
        assert two.statistics().bus.missed == dropped
        assert [int(event.key) for event in two.sense("n")] == list(range(dropped, 1000))
        assert two.detect(f"bus.gap:{dropped}")


def test_signals_that_waited_longer_than_the_bus_keeps_are_not_sent_and_counted(server, joined, until):
    with joined(server.url, 2, retention=0.5) as (one, two):
        one.raise_signal("first")
        until(lambda: two.detect("first"))
        server.kill()
        until(lambda: one.is_degraded)
        for _ in range(10):
            one.raise_signal("old")
        threading.Event().wait(0.6)
        server.restart()
        one.raise_signal("new")
        until(lambda: two.detect("new"))
        assert one.statistics().bus.stale == 10
        assert two.statistics().bus.missed == 10
        assert not two.detect("old")


def test_a_key_of_another_type_costs_the_signals_of_its_scope_and_no_others(server, joined, until):
    with joined(server.url, 2) as (one, two):
        one.raise_signal("probe")
        until(lambda: two.detect("probe"))
        client = redis.Redis.from_url(server.url)
        (scope,) = client.keys("*z:probe")
        client.set(scope.replace(b"z:probe", b"z:bad"), "a string")
        for name in ["good", "bad", "good", "bad:x", "good"]:
            one.raise_signal(name)
        one.raise_signal("last")
        until(lambda: two.detect("last"))
        assert [event.signal for event in two.sense("good")] == ["good"] * 3
        assert one.statistics().bus.dropped == 2
        assert two.statistics().bus.missed == 2


def test_a_full_server_is_waited_for(server, joined, until):
    with joined(server.url, 2) as (one, two):
        one.raise_signal("a")
        until(lambda: two.detect("a"))
        client = redis.Redis.from_url(server.url)
        client.config_set("maxmemory", "1mb")
        one.raise_signal("b")
        until(lambda: one.is_degraded)
        client.config_set("maxmemory", "0")
        until(lambda: two.detect("b"))
        assert one.statistics().bus.dropped == 0


def test_opening_without_a_server_goes_on_alone_unless_it_is_required(tmp_path, until):
    url = f"unix://user:hunter2@/{tmp_path}/nobody"
    with SignalSink(backend=RedisSignalBackend.from_url(url, namespace="x")) as sink:
        assert sink.is_degraded
        sink.raise_signal("a")
        assert sink.detect("a")
        assert "hunter2" not in repr(sink.backend)
    required = RedisSignalBackend.from_url(url, namespace="x", require=True)
    with pytest.raises(SignalBusError) as caught, SignalSink(backend=required):
        pass
    assert "hunter2" not in str(caught.value)


def test_a_namespace_of_another_layout_is_refused(server):
    redis.Redis.from_url(server.url).hset("{x}:m", "layout", "99")
    backend = RedisSignalBackend.from_url(server.url, namespace="x")
    with pytest.raises(SignalBusError, match="layout 99"), SignalSink(backend=backend):
        pass


def test_a_fork_is_a_sink_of_its_own(server, joined, until):
    with joined(server.url, 2) as (one, two):
        one.raise_signal("before")
        until(lambda: two.detect("before"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert one.origin != two.origin
                for _ in range(3):
                    one.raise_signal("child")
                one.backend.flush().result(5)
                code = 0
            finally:
                os._exit(code)
        one.raise_signal("parent")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        until(lambda: len(two.sense("child")) == 3 and two.detect("parent"))
        origins = {event.origin for event in two.sense("child, parent")}
        assert len(origins) == 2
        one.raise_signal("after")
        until(lambda: two.detect("after"))
        assert one.statistics().bus.reconnects == 0


def test_listeners_of_a_sink_without_a_loop_are_called_on_a_thread_of_its_own(server, joined, until):
    heard = []
    with joined(server.url, 2) as (one, two):
        two.subscribe(lambda event: heard.append((event.key, threading.current_thread().name)))
        for n in range(200):
            one.raise_signal("n", str(n))
        until(lambda: len(heard) == 200)
    assert [key for key, _ in heard] == [str(n) for n in range(200)]
    assert {name for _, name in heard} == {"ephemeral-delivery"}


def test_what_leaves_and_what_enters_can_be_chosen(server, until):
    def sink(**options):
        return SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="choice", **options))

    with sink(publish="out.*") as one, sink(mirror="*.b, failover.*") as two, sink(mirror=None) as deaf:
        for name in ["out.a", "out.b", "kept.b", "processing.failed:pri1:w"]:
            one.raise_signal(name)
        one.raise_signal("out.b", "last")
        until(lambda: two.detect(lambda event: event.key == "last"))
        assert [event.signal for event in two.sense()] == ["out.b", "out.b"]
        assert len(deaf) == 0
        client = redis.Redis.from_url(server.url)
        scopes = {key.split(b":z:")[1].decode() for key in client.keys("{choice}:z:*")}
        # The ladder's signals for each item are counted for all, whatever is published.
        assert scopes == {"out.a", "out.b", "processing.failed", "processing.failed:pri1"}


def test_item_signals_enter_only_windows_that_ask_for_them(server, until):
    def sink(**options):
        return SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="items", **options))

    with sink() as one, sink(mirror_items=True) as curious, sink() as other:
        one.raise_signal("processing.complete:pri1:w")
        one.raise_signal("a")
        until(lambda: other.detect("a") and len(curious) == 2)
        assert len(other) == 1


NOWHERE = "redis://127.0.0.1:1"
"""Where nobody listens."""


def test_a_sink_that_raised_nothing_while_the_bus_was_away_leaves_nothing_behind(caplog):
    with SignalSink(backend=RedisSignalBackend.from_url(NOWHERE, namespace="x")) as sink:
        sink.backend.flush()
        assert sink.statistics().bus.outbox == 0
    assert not [said for said in caplog.messages if "closed with" in said]


@pytest.mark.parametrize(("count", "says"), [(1, "closed with 1 signal that"), (2, "closed with 2 signals that")])
def test_what_the_bus_does_not_have_is_said_in_numbers(caplog, monkeypatch, count, says):
    monkeypatch.setattr(_sink_bus, "CLOSE_SECONDS", 0.0)
    with SignalSink(backend=RedisSignalBackend.from_url(NOWHERE, namespace="x")) as sink:
        for _ in range(count):
            sink.raise_signal("a")
        sink.backend.flush()
    assert says in caplog.text
