"""What a namespace shows on a real server: workers, ladders, counts and signals, equal to what an observer counts."""

from __future__ import annotations

import itertools
import os

import anyio
import msgpack
import pytest
import redis

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend, _codec, _roster
from ephemeral_redis._keys import Keys
from ephemeral_redis.watch import BusWatch, watch_sink

from .watch_kit import first_of, until, working

pytestmark = [pytest.mark.real_time, pytest.mark.server]
unique = itertools.count()


@pytest.fixture
def anyio_backend():
    return "asyncio", {}  # redis-py's asynchronous client runs on nothing else


@pytest.fixture
def namespace():
    return f"watch-{os.getpid()}-{next(unique)}"


@pytest.fixture
def url(redis_server):
    return redis_server.url


@pytest.fixture
def client(url):
    with redis.Redis.from_url(url) as client:
        yield client


def watch_of(url, namespace):
    return BusWatch.from_url(url, namespace=namespace)


# The roster


async def test_a_sink_is_listed_from_its_opening_to_its_end(url, namespace) -> None:
    async with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace, name="api-1")) as sink:
        picture = await first_of(watch_of(url, namespace), lambda picture: picture.workers)
        (worker,) = picture.workers
        assert (worker.origin, worker.name) == (sink.origin, "api-1")
        assert abs(worker.told - picture.at) < 3
        assert worker.started <= worker.told
    assert (await first_of(watch_of(url, namespace))).workers == ()


@pytest.mark.parametrize("named", ["in the environment", None])
async def test_a_worker_without_a_name_has_that_of_its_environment_or_its_process(
    url, namespace, monkeypatch, named
) -> None:
    if named:
        monkeypatch.setenv("EPHEMERAL_WORKER", named)
    else:
        monkeypatch.delenv("EPHEMERAL_WORKER", raising=False)
    async with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)):
        (worker,) = (await first_of(watch_of(url, namespace), lambda picture: picture.workers)).workers
        assert worker.name == (named or _roster.default_name())
        assert str(os.getpid()) in _roster.default_name()


@pytest.mark.parametrize(
    ("name", "error"), [("", ValueError), ("a\n", ValueError), ("é" * 65, ValueError), (7, TypeError)]
)
def test_a_bad_name_is_refused_at_once(url, name, error) -> None:
    with pytest.raises(error, match="name must be"):
        RedisSignalBackend.from_url(url, namespace="shop", name=name)


async def test_who_does_not_want_to_be_listed_is_not(url, namespace, client) -> None:
    backend = RedisSignalBackend.from_url(url, namespace=namespace, is_listed=False)
    async with SignalSink(backend=backend) as sink:
        sink.raise_signal("a")
        assert await sink.flush(5)
        assert client.exists(Keys(namespace).roster) == 0


async def test_the_roster_is_bounded_in_number_and_time(url, namespace, client) -> None:
    keys = Keys(namespace)
    now = client.time()[0] * 1000
    crowd = {number.to_bytes(8, "big"): now for number in range(_roster.MAX_WORKERS + 50)}
    client.zadd(keys.roster, {**crowd, b"\xff" * 8: now - 11_000})
    async with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink:
        own = bytes.fromhex(sink.origin)
        until(lambda: client.zscore(keys.roster, own))
        assert client.zcard(keys.roster) == _roster.MAX_WORKERS
        assert client.zscore(keys.roster, b"\xff" * 8) is None
        assert 0 < client.pttl(keys.record(own)) <= 10_000
        assert 0 < client.pttl(keys.roster) <= 10_000


WORKER = {
    **dict.fromkeys(("raised", "sent", "dropped", "outbox", "remote", "missed", "undecodable", "reconnects"), 1),
    **dict.fromkeys(("started", "degraded_seconds", "lag"), 0.5),
    "name": "a",
    "version": "9",
    "python": "4",
    "is_degraded": False,
}


def told_by_a_newer_version():
    _, record = _codec.unpack(_roster.pack(WORKER, (), retention=60.0))
    return _codec.pack([_roster.VERSION + 1, record])


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x00garbage",
        told_by_a_newer_version(),
        _codec.pack([_roster.VERSION, {}]),
        _codec.pack([_roster.VERSION, {"name": 7, "retention": 60, "ladders": []}]),
        _codec.pack([_roster.VERSION, []]),
        _codec.pack([[[[]]]]),
        b"x" * (_roster.MAX_RECORD_BYTES + 1),
    ],
)
async def test_a_record_of_another_version_or_of_no_sense_is_passed_over_and_counted(
    url, namespace, client, record
) -> None:
    keys, stranger = Keys(namespace), b"stranger"
    client.set(keys.record(stranger), record, px=10_000)
    client.zadd(keys.roster, {stranger: client.time()[0] * 1000})
    async with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace, name="sane")):
        picture = await first_of(watch_of(url, namespace), lambda picture: picture.workers)
        assert [worker.name for worker in picture.workers] == ["sane"]
        assert picture.unreadable == 1


def test_a_record_survives_fields_that_are_not_known_yet() -> None:
    packed = _roster.pack({**WORKER, "mood": {"of": ["tomorrow"]}}, (), retention=60.0)
    told = _roster.unpack(b"12345678", 5.0, packed)
    assert (told.worker.name, told.worker.raised, told.worker.origin) == ("a", 1, b"12345678".hex())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "many", None, 2**70])
@pytest.mark.parametrize("field", ["lag", "raised"])
def test_numbers_that_are_none_are_no_record(field, value) -> None:
    if field == "lag" and value == 2**70:
        value = [1]
    _, record = _codec.unpack(_roster.pack(WORKER, (), retention=60.0))
    _roster.unpack(b"12345678", 5.0, msgpack.packb([_roster.VERSION, record]))
    packed = msgpack.packb([_roster.VERSION, {**record, field: value}], default=str)
    with pytest.raises(_codec.UndecodableError):
        _roster.unpack(b"12345678", 5.0, packed)


# Pictures


async def test_a_fleet_is_shown_as_its_workers_see_it(url, namespace) -> None:
    with working(url, namespace, "api-1") as one, working(url, namespace, "api-2") as two:
        watch = watch_of(url, namespace)
        await first_of(watch, lambda picture: picture.groups and picture.groups[0].workers == 2)
        await anyio.to_thread.run_sync(one.fail)
        picture = await first_of(
            watch, lambda picture: picture.groups[0].rungs[0].state == "down" and picture.groups[0].completed == 3
        )
        (ladder,) = picture.groups
        down, stand_in = ladder.rungs
        seen = two.call(two.primary.get_health)
        assert (down.epoch, down.by, down.failures) == (seen.epoch, one.sink.origin, seen.failures)
        assert abs(down.since - seen.since.timestamp()) < 0.5
        assert down.next_probe == pytest.approx(down.since + 60)
        assert (stand_in.state, ladder.route, ladder.workers) == ("up", "pri2", 2)
        assert (ladder.pending, ladder.failed) == (0, 0)
        assert [(change.kind, change.processor, change.by) for change in picture.changes] == [
            ("down", "pri1", one.sink.origin)
        ]


async def test_a_change_of_health_is_shown_within_half_a_second(url, namespace) -> None:
    with working(url, namespace, "api-1") as one:
        async with watch_of(url, namespace).pictures(every=30) as pictures:
            await anext(pictures)
            await anyio.to_thread.run_sync(one.fail)
            with anyio.fail_after(10):  # far from 30; how long exactly says more about the machine
                async for picture in pictures:
                    if any(rung.state == "down" for group in picture.groups for rung in group.rungs):
                        break


async def test_scopes_are_counted_as_an_observer_counts_them(url, namespace, client) -> None:
    async with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink:
        for number in range(300):
            sink.raise_signal(f"order.placed:{number % 3}:{number}")
        sink.raise_signal("other")
        assert await sink.flush(10)
        picture = await first_of(watch_of(url, namespace))
        counts = {rate.scope: rate.count for rate in picture.scopes}
        names = ["order.placed", "order.placed:0", "order.placed:1", "order.placed:2", "other"]
        keys = Keys(namespace)
        assert counts == {name: client.zcount(keys.scope(name), "-inf", "+inf") for name in names}
        assert counts["order.placed"] == 300
        assert picture.scopes_known == 5
        assert picture.scopes[0].scope == "order.placed"


async def test_a_namespace_of_another_layout_is_a_problem_and_no_guess(url, namespace, client) -> None:
    client.hset(Keys(namespace).marks, "layout", "99")
    picture = await first_of(watch_of(url, namespace))
    assert "another version" in picture.problem


async def test_an_empty_namespace_is_an_empty_picture(url, namespace, client) -> None:
    picture = await first_of(watch_of(url, namespace))
    assert (picture.problem, picture.workers, picture.groups, picture.scopes) == (None, (), (), ())
    assert client.keys(f"{{{namespace}}}*") == []  # who looks leaves nothing behind


async def test_garbage_in_the_table_and_the_stream_is_counted_and_passed_over(url, namespace, client) -> None:
    keys = Keys(namespace)
    client.hset(keys.health, "pri1", b"garbage")
    client.xadd(keys.control, {"k": "nonsense"})
    client.xadd(keys.signals, {"b": "nonsense"})
    async with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink:
        watch = watch_of(url, namespace)
        picture = await first_of(watch, lambda picture: picture.workers)
        assert (picture.problem, picture.groups, picture.unreadable) == (None, (), 2)
        async with watch.signals() as lots:
            client.xadd(keys.signals, {"b": "nonsense"})
            sink.raise_signal("sane")
            async for lot in lots:
                if lot:
                    assert [event.signal for event in lot] == ["sane"]
                    break


async def test_changes_are_read_from_their_new_beginning_once_the_server_has_lost_them(url, namespace, client) -> None:
    keys = Keys(namespace)
    with working(url, namespace, "api-1") as one:
        async with watch_of(url, namespace).pictures(every=0.2) as pictures:
            await anyio.to_thread.run_sync(one.fail)
            async for picture in pictures:
                if picture.changes:
                    break
            ((_, fields),) = client.xrevrange(keys.control, count=1)
            # As after a replica took over whose clock is behind: what comes now has earlier ids.
            client.delete(keys.control)
            client.xadd(keys.control, fields, id="5-1")
            with anyio.fail_after(20):
                async for picture in pictures:
                    if 0.005 in [change.at for change in picture.changes]:
                        break


async def test_a_sink_with_a_bus_shows_its_fleet(url, namespace) -> None:
    async with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink:
        watch = watch_sink(sink)
        assert isinstance(watch, BusWatch)
        assert (await first_of(watch, lambda picture: picture.workers)).namespace == namespace


# Signals


async def test_signals_of_all_sinks_and_of_items_are_followed_with_all_they_carry(url, namespace) -> None:
    async with (
        SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink,
        watch_of(url, namespace).signals() as lots,
    ):
        sink.raise_signal("order:1", "customer", operation_id=7, payload={"items": [1, 2.5, b"x"]})
        sink.raise_signal("processing.started:pri1:a")
        seen = []
        with anyio.fail_after(10):
            async for lot in lots:
                seen += lot
                if len(seen) == 2:
                    break
        order, item = sorted(seen, key=lambda event: event.signal)
        assert order[:3] == ("order:1", 7, "customer")
        assert order.payload == {"items": [1, 2.5, b"x"]}
        assert (order.origin, item.signal) == (sink.origin, "processing.started:pri1:a")


async def test_what_was_raised_before_is_not_told(url, namespace) -> None:
    async with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink:
        sink.raise_signal("before")
        assert await sink.flush(10)
        async with watch_of(url, namespace).signals() as lots:
            sink.raise_signal("after")
            async for lot in lots:
                if lot:
                    assert [event.signal for event in lot] == ["after"]
                    break


async def test_what_never_came_is_told_as_a_gap(url, namespace, client) -> None:
    async with (
        SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink,
        watch_of(url, namespace).signals() as lots,
    ):
        sink.raise_signal("one")
        assert await sink.flush(10)
        assert [event.signal for event in await anext(lots)] == ["one"]
        # As one entry, trimmed together with another one before the watch can have read it: nobody reads meanwhile.
        for number in range(5):
            sink.raise_signal(f"lost:{number}")
        assert await sink.flush(10)
        client.xtrim(Keys(namespace).signals, maxlen=0)
        sink.raise_signal("two")
        seen = []
        async for lot in lots:
            seen += [event.signal for event in lot]
            if "two" in seen:
                break
    assert seen == ["bus.gap:5", "two"]


def test_on_trio_it_says_at_once_what_to_do(url) -> None:
    async def look() -> None:
        for block in (BusWatch.pictures, BusWatch.signals):
            with pytest.raises(RuntimeError, match="on asyncio"):
                async with block(watch_of(url, "shop")):
                    pass

    anyio.run(look, backend="trio")
