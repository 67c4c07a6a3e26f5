"""The publish script, on a real server and on fakeredis: counted once, kept within bounds, dated by age."""

from __future__ import annotations

import itertools
import time

import fakeredis
import pytest
import redis.asyncio

from ephemeral_redis import _batch, _codec, _keys
from ephemeral_redis._batch import Numbers
from ephemeral_redis._clock import BusClock
from ephemeral_redis._scripts import Bounds, Calls

pytestmark = [pytest.mark.real_time, pytest.mark.server]

ORIGIN = bytes(range(8))
NOW = 500.0
BOUNDS = Bounds(retention=60.0, capacity=1000)
unique = itertools.count()


@pytest.fixture
def anyio_backend():
    return "asyncio", {}  # redis-py's asynchronous client runs on nothing else


@pytest.fixture(params=["real", "fake"])
async def calls(request):
    if request.param == "fake":
        client = fakeredis.FakeAsyncRedis()
    else:
        client = redis.asyncio.Redis.from_url(request.getfixturevalue("redis_server").url)
    async with client:
        yield Calls(client, _keys.Keys(f"lua-{next(unique)}"), ORIGIN, BusClock())


def outgoing(signal, age=0.0, payload=None):
    return _codec.outgoing((signal, 0, None, NOW - age, payload, None, ORIGIN.hex()))


def batch_of(*signals, numbers=None, publish_items=True):
    out = [signal if isinstance(signal, tuple) else outgoing(signal) for signal in signals]
    return _batch.lay_out(ORIGIN, out, numbers or Numbers(), publish_items=publish_items)


async def count(calls, scope, seconds=60.0):
    micros = await calls.client.time()
    oldest = micros[0] * 1_000_000 + micros[1] - int(seconds * 1e6)
    return await calls.client.zcount(calls.keys.scope(scope), oldest, "+inf")


async def entries(calls, key):
    return [_codec.unpack_entry(entry_id, fields) for entry_id, fields in await calls.client.xrange(key)]


async def test_signals_are_counted_in_their_scopes_and_kept_in_order(calls):
    names = ["b", "a:x:1", "a:y", "a:x:2", "b"]
    batch, _ = batch_of(*names)
    assert (await calls.publish(batch, BOUNDS, now=NOW))[0]
    assert [await count(calls, scope) for scope in ("a", "a:x", "a:y", "b", "a:x:1")] == [3, 2, 1, 2, 0]
    (entry,) = await entries(calls, calls.keys.signals)
    assert [record[0] for record in entry.records] == names
    assert entry.position == 0


async def test_scope_pri1_never_counts_pri10(calls):
    await calls.publish(batch_of("f:pri1:a", "f:pri10:b", "f:pri10")[0], BOUNDS, now=NOW)
    assert [await count(calls, scope) for scope in ("f", "f:pri1", "f:pri10")] == [3, 1, 2]


async def test_what_comes_too_late_changes_nothing(calls, monkeypatch):
    monkeypatch.setattr(BusClock, "learn", lambda *_, **__: pytest.fail("refused"))
    with pytest.raises(pytest.fail.Exception, match="refused"):
        await calls._replace(patience=-1.0).publish(batch_of("a")[0], BOUNDS, now=NOW)
    assert await calls.client.keys(f"{{{calls.keys.health.decode()[1:-3]}}}*") == []


async def test_who_has_the_time_wrong_is_refused_once_and_then_has_it_right(calls):
    calls.clock.learn(100.0, asked_at=time.monotonic(), answered_at=time.monotonic())
    assert (await calls.publish(batch_of("a")[0], BOUNDS, now=NOW))[0]
    seconds, micros = await calls.client.time()
    assert calls.clock.now() == pytest.approx(seconds + micros / 1e6, abs=1.0)
    assert await count(calls, "a") == 1


async def test_a_batch_that_is_sent_twice_counts_once(calls):
    batch, numbers = batch_of("a", "a")
    assert (await calls.publish(batch, BOUNDS, now=NOW))[0]
    assert not (await calls.publish(batch, BOUNDS, now=NOW + 3))[0]
    assert await count(calls, "a") == 2
    assert len(await entries(calls, calls.keys.signals)) == 1
    following, _ = batch_of("a", numbers=numbers)
    assert (await calls.publish(following, BOUNDS, now=NOW))[0]
    assert await count(calls, "a") == 3


async def test_a_signal_is_dated_by_its_age_when_it_is_sent(calls):
    batch, _ = batch_of(outgoing("a", age=0), outgoing("a", age=20), outgoing("a", age=40))
    await calls.publish(batch, BOUNDS, now=NOW + 10)
    assert [await count(calls, "a", within) for within in (9, 15, 35, 59)] == [0, 1, 2, 3]
    (entry,) = await entries(calls, calls.keys.signals)
    stamps = [record[3] for record in entry.records]
    assert [stamps[0] - stamp for stamp in stamps] == pytest.approx([0, 20, 40])


async def test_what_is_older_than_the_bus_keeps_leaves_the_scope(calls):
    batch, numbers = batch_of(outgoing("a", age=59.9), outgoing("a", age=61.0), outgoing("a", age=0))
    await calls.publish(batch, BOUNDS, now=NOW)
    assert await calls.client.zcard(calls.keys.scope("a")) == 2
    await calls.publish(batch_of("a", numbers=numbers)[0], Bounds(retention=5.0, capacity=1000), now=NOW)
    assert await calls.client.zcard(calls.keys.scope("a")) == 2


async def test_a_scope_keeps_the_newest_up_to_its_capacity(calls):
    numbers = Numbers()
    for _ in range(3):
        batch, numbers = batch_of(*["a"] * 40, numbers=numbers)
        await calls.publish(batch, Bounds(retention=60.0, capacity=50), now=NOW)
    members = await calls.client.zrange(calls.keys.scope("a"), 0, -1)
    assert sorted(members) == [ORIGIN + n.to_bytes(6, "big") for n in range(70, 120)]


async def test_a_stream_is_cut_by_signals_however_they_were_batched(calls):
    numbers, capacity = Numbers(), 1000
    for size in itertools.islice(itertools.cycle([1, 7, 256, 30]), 120):
        batch, numbers = batch_of(*["a:b"] * size, numbers=numbers)
        await calls.publish(batch, Bounds(retention=60.0, capacity=capacity), now=NOW)
    kept = [len(entry.records) for entry in await entries(calls, calls.keys.signals)]
    # One eighth between two marks, the batch that passes one, and the node of 4 096 bytes that `~` leaves whole: 300
    # signals of 14 bytes, its last entry another batch.
    assert capacity <= sum(kept) <= capacity * 9 / 8 + 256 + 300 + 256
    assert numbers.signals == 30 * 294


async def test_every_key_of_signals_ends_by_itself(calls):
    await calls.publish(batch_of("a:b", "processing.complete:pri1:x")[0], BOUNDS, now=NOW, shallow=["a"], deep=["a:b"])
    lasting = {calls.keys.marks}
    for key in await calls.client.keys(calls.keys.marks[:-1] + b"*"):
        ttl = await calls.client.pttl(key)
        assert (ttl == -1) == (key in lasting), key
        if key not in lasting | {calls.keys.last_batch(ORIGIN)}:
            assert ttl <= 66_001


async def test_item_signals_have_a_stream_of_their_own(calls):
    await calls.publish(batch_of("a", "processing.complete:pri1:x", "b")[0], BOUNDS, now=NOW)
    (entry,), (items,) = await entries(calls, calls.keys.signals), await entries(calls, calls.keys.items)
    assert [record[0] for record in entry.records] == ["a", "b"]
    assert [record[0] for record in items.records] == ["processing.complete:pri1:x"]


async def test_item_signals_that_are_not_published_are_counted_all_the_same(calls):
    batch, _ = batch_of("a", "processing.complete:pri1:x", publish_items=False)
    await calls.publish(batch, BOUNDS, now=NOW)
    assert await count(calls, "processing.complete:pri1") == 1
    assert await entries(calls, calls.keys.items) == []
    assert len(await entries(calls, calls.keys.signals)) == 1


async def test_names_are_kept_while_they_are_seen(calls):
    batch, numbers = batch_of("a:b", "c")
    await calls.publish(batch, BOUNDS, now=NOW, shallow=["a", "c"], deep=["a:b"])
    await calls.publish(batch_of("c", numbers=numbers)[0], BOUNDS, now=NOW)
    assert await calls.client.zrange(calls.keys.shallow, 0, -1) == [b"a", b"c"]
    assert await calls.client.zrange(calls.keys.deep, 0, -1) == [b"a:b"]


async def test_the_largest_batch_passes(calls):
    names = [f"{'n' * 200}{i % 7}:{'m' * 200}{i}" for i in range(_codec.MAX_BATCH_SIGNALS)]
    await calls.publish(batch_of(*names)[0], BOUNDS, now=NOW)
    assert await count(calls, f"{'n' * 200}3") == 37
    (entry,) = await entries(calls, calls.keys.signals)
    assert [record[0] for record in entry.records] == names


async def test_a_payload_of_64_kib_passes(calls):
    payload = b"x" * (64 * 1024 - 3)
    await calls.publish(batch_of(outgoing("a", payload=payload))[0], BOUNDS, now=NOW)
    (entry,) = await entries(calls, calls.keys.signals)
    assert entry.records[0][4] == payload


async def test_namespaces_never_touch(calls):
    other = calls._replace(keys=_keys.Keys(f"other-{next(unique)}"))
    await calls.publish(batch_of("a")[0], BOUNDS, now=NOW)
    assert await count(other, "a") == 0
    # The same sender and serial: what one namespace has applied says nothing to another.
    assert (await other.publish(batch_of("a")[0], BOUNDS, now=NOW))[0]


@pytest.mark.parametrize("calls", ["real"], indirect=True)
async def test_a_server_that_forgot_the_script_gets_it_again(calls):
    batch, numbers = batch_of("a")
    await calls.publish(batch, BOUNDS, now=NOW)
    await calls.client.script_flush()
    assert (await calls.publish(batch_of("a", numbers=numbers)[0], BOUNDS, now=NOW))[0]
