"""Two versions of the library on one bus: what a newer one writes is passed over and counted, and never replaced."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import anyio
import msgpack
import pytest
import redis

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend, SignalBusError

pytestmark = [pytest.mark.real_time, pytest.mark.server]

NEWER = Path(__file__).with_name("newer.py")
SPACE = "versions"


def sink_on(server, **options):
    return SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace=SPACE, **options))


class Service:
    def __init__(self):
        self.is_down = False
        self.done = []

    async def __call__(self, item):
        if self.is_down:
            raise ConnectionError(item)
        self.done.append(item)

    async def probe(self):
        return not self.is_down


class Old:
    """One worker of this version, with a ladder."""

    def __init__(self, sink, primary, backup, atom):
        self.sink = sink
        self.primary = primary
        self.backup = backup
        self.atom = atom

    @property
    def foreign(self):
        return self.sink.statistics().bus.foreign

    @property
    def can_read(self):
        return self.atom._ladder.health._entries["pri1"].row.is_readable

    async def trip(self):
        for number in range(3):
            await self.atom.enqueue(f"trip{number}")


@contextlib.asynccontextmanager
async def old_worker(server):
    primary, backup = Service(), Service()
    options = {"failure_threshold": 3, "probe_interval": 0.05, "reroute_failed": True}
    async with (
        sink_on(server) as sink,
        PriorityProcessorAtom(1, primary, sink, probe=primary.probe, **options) as atom,
        PriorityProcessorAtom(2, backup, sink, **options),
    ):
        yield Old(sink, primary, backup, atom)


@contextlib.contextmanager
def newer_worker(server):
    process = subprocess.Popen(
        [sys.executable, str(NEWER), server.url, SPACE], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"

        def ask(old, what):
            old.sink.raise_signal(f"newer.{what}")
            return anyio.to_thread.run_sync(process.stdout.readline)

        yield ask
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def become(condition, seconds=8.0):
    with anyio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  until the news are here
            await anyio.sleep(0.002)


@contextlib.asynccontextmanager
async def mixed_fleet(server):
    """Two workers of this version, one of the next, and a client; the newer one has just taken ``pri1`` out."""
    client = redis.Redis.from_url(server.url)
    async with old_worker(server) as one, old_worker(server) as two:
        with newer_worker(server) as ask:
            assert await ask(one, "isolate") == "done isolated\n"
            await become(lambda: not one.can_read and not two.can_read)
            yield one, two, ask, client


def row_of(client):
    return client.hget(f"{{{SPACE}}}:h", "pri1")


def connections(client):
    return [known for known in client.client_list() if known["name"].startswith("ephemeral-")]


def cut_all(client):
    for known in connections(client):
        client.client_kill_filter(_id=known["id"])


async def test_a_row_of_a_newer_version_is_not_misread_and_said_once(server, caplog, tried):
    async with mixed_fleet(server) as (one, two, ask, client):
        written = row_of(client)
        assert written.split(b":", 5)[4] == b"2"
        for old in (one, two):
            # Nothing is known of it: it is as it was here, whatever the newer version meant.
            assert old.atom.get_health().state == "up"
            await old.atom.enqueue("w")
            await become(lambda old=old: old.primary.done == ["w"])
        before = one.foreign
        assert await ask(one, "reset") == "done up\n"
        await become(lambda: one.foreign > before)
        assert one.sink.statistics().bus.undecodable == 0
        assert one.sink.statistics().bus.missed == 0
        said = [text for text in caplog.messages if "newer version" in text]
        assert len(said) == 2  # each worker once
        assert "version 2, and this one knows 1" in said[0]
        tried("Health", "a newer version of the library on the bus", foreign=one.foreign, undecodable=0)


async def test_beside_a_newer_row_each_old_worker_judges_and_probes_alone_and_replaces_nothing(server):
    async with mixed_fleet(server) as (one, two, _, client):
        written = row_of(client)
        one.primary.is_down = True
        await one.trip()
        await become(lambda: len(one.backup.done) == 3)
        assert one.atom.get_health().is_local
        assert two.atom.get_health().state == "up"
        (edge,) = [event for event in one.sink.sense("failover.requested*") if event.origin == one.sink.origin]
        assert edge.payload == {"route": "pri2", "local": True}
        one.primary.is_down = False
        await become(lambda: one.atom.is_healthy)
        assert [event.signal for event in one.sink.sense("probe.success*, failover.restored*")] == [
            "probe.success:pri1",
            "failover.restored:pri1",
        ]
        assert row_of(client) == written


async def test_by_hand_an_old_worker_acts_for_itself_until_the_row_can_be_read_and_then_for_all(server):
    async with mixed_fleet(server) as (one, two, _, client):
        written = row_of(client)
        one.atom.isolate()
        assert one.atom.get_health().state == "isolated"
        assert two.atom.is_healthy
        await two.atom.enqueue("w")
        await become(lambda: two.primary.done == ["w"])
        assert row_of(client) == written
        # Somebody takes the row away, and a worker that knows nothing of it makes the next one.
        client.hdel(f"{{{SPACE}}}:h", "pri1")
        async with old_worker(server) as late:
            late.primary.is_down = True
            await late.trip()
            await become(lambda: two.atom.get_health().state == "isolated")
            await become(lambda: late.atom.get_health().state == "isolated")
            assert two.atom.get_health().by == one.sink.origin
            assert row_of(client).split(b":", 5)[4] == b"1"


async def test_coming_back_an_old_worker_does_not_heal_over_a_newer_row(server):
    async with old_worker(server) as one, old_worker(server) as two:
        # A row of this version first, so that each knows one to put back.
        one.atom.isolate()
        await become(lambda: two.atom.get_health().state == "isolated")
        one.atom.reset_health()
        await become(lambda: two.atom.is_healthy)
        client = redis.Redis.from_url(server.url)
        with newer_worker(server) as ask:
            assert await ask(one, "isolate") == "done isolated\n"
            await become(lambda: not one.can_read and not two.can_read)
            written = row_of(client)
            for _ in range(3):
                before = one.sink.statistics().bus.foreign
                # A connection that was only being made escapes the cut: again, until the table has been read anew.
                with anyio.fail_after(20):
                    while one.foreign == before or one.sink.is_degraded:
                        cut_all(client)
                        await anyio.sleep(0.3)
                one.atom.reset_health()  # asks the bus, if it asked at all
                two.primary.is_down = True
                await two.trip()
                two.primary.is_down = False
                await become(lambda: two.atom.is_healthy)
                assert row_of(client) == written


async def test_a_newer_worker_reads_the_rows_of_old_ones(server):
    async with old_worker(server) as one:
        one.atom.isolate()
        await become(lambda: one.sink.statistics().bus.transitions == 1)
        with newer_worker(server) as ask:
            assert await ask(one, "nothing") == "done isolated\n"


async def test_signals_of_a_newer_version_are_passed_over_and_those_around_them_arrive(server):
    with newer_worker(server) as ask:
        async with old_worker(server) as one, old_worker(server) as two:
            before = two.foreign
            two.sink.raise_signal("one")
            await ask(one, "nothing")
            one.sink.raise_signal("two")
            await become(lambda: two.sink.detect("two"))
            assert two.foreign == before + 1
            assert not two.sink.detect("done")
            assert two.sink.statistics().bus.missed == 0


async def test_fields_that_are_added_within_a_version_are_passed_over(server):
    client = redis.Redis.from_url(server.url)
    async with old_worker(server) as one:
        one.atom.isolate()
        await become(lambda: one.sink.statistics().bus.transitions == 1)
        version, epoch, _, failures, written_in, packed = row_of(client).split(b":", 5)
        record = [*msgpack.unpackb(packed), "a field of the next minor version", {"and": "another"}]
        record[2] = "up"
        head = [b"%d" % (int(version) + 1), b"%d" % (int(epoch) + 1), b"u", failures, written_in]
        value = b":".join([*head, msgpack.packb(record)])
        client.hset(f"{{{SPACE}}}:h", "pri1", value)
        client.xadd(f"{{{SPACE}}}:c", {"v": "1", "k": "reset", "o": b"elsewhr1", "p": "pri1", "r": value, "new": "x"})
        await become(lambda: one.atom.is_healthy)
        one.atom.isolate()  # and the row can be replaced
        await become(lambda: b":d:" in row_of(client))
        body = msgpack.packb([[0, "added", "key", 0, None, None, "a field of the next minor version"]])
        entry = {"v": "1", "o": b"elsewhr1", "q": "0", "n": "1", "a": bytes(4), "b": body, "new": "x"}
        client.xadd(f"{{{SPACE}}}:s", entry)
        await become(lambda: one.sink.detect("added"))
        assert (one.foreign, one.sink.statistics().bus.undecodable) == (0, 0)


@pytest.mark.parametrize(
    ("row", "counter"),
    [
        pytest.param(b"9999999999999:5:d:3:2:whatever", "foreign", id="newer"),
        pytest.param(b"9999999999999:5:d:3:1:\xc1", "undecodable", id="broken behind its head"),
    ],
)
async def test_a_row_that_cannot_be_read_stops_no_session(server, row, counter):
    """A decision is refused by such a row: who offered it is answered, and goes on alone."""
    client = redis.Redis.from_url(server.url)
    async with old_worker(server) as one:
        one.atom.isolate()
        await become(lambda: one.sink.statistics().bus.transitions == 1)
        client.hset(f"{{{SPACE}}}:h", "pri1", row)  # without a word on the control stream
        one.atom.reset_health()
        await become(lambda: one.sink.detect("failover.restored:pri1"))
        assert one.atom.is_healthy
        one.primary.is_down = True
        await one.trip()
        await become(lambda: len(one.backup.done) == 3)
        assert row_of(client) == row
        assert one.sink.statistics().bus.reconnects == 0
        async with old_worker(server) as late:
            assert getattr(late.sink.statistics().bus, counter) == 1
            assert late.atom.is_healthy


async def test_a_row_without_a_head_is_replaced_by_the_next_decision(server):
    client = redis.Redis.from_url(server.url)
    client.hset(f"{{{SPACE}}}:h", "pri1", "garbage")
    async with old_worker(server) as one:
        assert one.sink.statistics().bus.undecodable == 1
        one.atom.isolate()
        await become(lambda: one.sink.statistics().bus.transitions == 1)
        client.hset(f"{{{SPACE}}}:h", "pri1", "garbage")
        one.atom.reset_health()
        await become(lambda: one.sink.detect("failover.restored:pri1"))
        assert b":u:" in row_of(client)


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ("2", "layout 2, and this one knows 1; upgrade this worker, or give it a namespace of its own"),
        ("0", "no version of this library writes; give the bus a namespace that nothing else uses"),
        ("x", "no version of this library writes"),
    ],
)
def test_a_namespace_of_another_layout_is_refused_with_what_to_do(server, layout, says):
    redis.Redis.from_url(server.url).hset(f"{{{SPACE}}}:m", "layout", layout)
    with pytest.raises(SignalBusError, match=says), sink_on(server):
        pass


def test_a_layout_that_changes_under_a_worker_is_seen_when_it_comes_back(server, until, caplog):
    client = redis.Redis.from_url(server.url)
    with sink_on(server) as sink:
        client.hset(f"{{{SPACE}}}:m", "layout", "2")
        until(lambda: len(connections(client)) == 3)  # one still to be made would escape the cut
        cut_all(client)
        until(lambda: any("can no longer be used" in text for text in caplog.messages))
        assert sink.is_degraded
        sink.raise_signal("kept")
        client.hset(f"{{{SPACE}}}:m", "layout", "1")
        assert sink.backend.flush() is not None
        until(lambda: not sink.is_degraded and sink.statistics().bus.outbox == 0)
    assert len([text for text in caplog.messages if "can no longer be used" in text]) == 1
