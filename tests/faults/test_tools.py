"""Looking at a fleet whose server dies, hangs and comes back, with the rights that docs/bus.md names and no more."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import pytest
import redis

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend, cli
from ephemeral_redis.watch import BusWatch

pytestmark = [pytest.mark.real_time, pytest.mark.server]
DOCS = (Path(__file__).parents[2] / "docs" / "bus.md").read_text(encoding="utf-8")
LINES = {name: line.split() for line, name in re.findall(r"^(ACL SETUSER (\w+) .+)$", DOCS, re.MULTILINE)}


@pytest.fixture
def url_of(server):
    client = redis.Redis.from_url(server.url)

    def url(name, *, without=()):
        client.execute_command("ACL", "DELUSER", name)
        client.execute_command(*[word for word in LINES[name] if word not in without])
        return f"{server.url}?username={name}&password=secret"

    return url


class Ran:
    """What a command said, and its exit code."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process."""
    logger = logging.getLogger("ephemeral")
    level = logger.level
    monkeypatch.setenv("EPHEMERAL_NAMESPACE", "shop")

    def call(url, *arguments):
        monkeypatch.setenv("EPHEMERAL_REDIS_URL", url)
        monkeypatch.setattr(sys, "argv", ["ephemeral", *arguments])
        capsys.readouterr()
        code = cli.main()
        return Ran(code, *capsys.readouterr())

    yield call
    logger.setLevel(level)


async def take(pictures, condition):
    with anyio.fail_after(20):
        async for picture in pictures:
            if condition(picture):
                return picture
    raise AssertionError("pictures ended")


# Rights


async def test_an_onlooker_sees_all_there_is(url_of):
    async with SignalSink(
        backend=RedisSignalBackend.from_url(url_of("worker"), namespace="shop", name="api-1")
    ) as sink:
        watch = BusWatch.from_url(url_of("onlooker"), namespace="shop")
        async with watch.signals() as lots, watch.pictures() as pictures:
            sink.raise_signal("order:eu")
            picture = await take(pictures, lambda picture: picture.workers and picture.scopes)
            assert picture.server.used_memory > 0
            assert picture.server.policy == "noeviction"
            assert picture.server.version[0].isdigit()
            assert [event.signal for event in await anext(lots)] == ["order:eu"]
        assert watch.reading.denied == set()


def test_doctor_tells_an_onlooker_from_a_worker_and_names_what_a_worker_lacks(url_of, run):
    with SignalSink(backend=RedisSignalBackend.from_url(url_of("worker"), namespace="shop", name="api-1")):
        looking = run(url_of("onlooker"), "doctor", "--json")
        assert looking.code == 0, looking.out
        assert [finding["subject"] for finding in json.loads(looking.out)["findings"]] == ["rights of a worker"]
        blind = run(url_of("onlooker", without=["+info"]), "doctor", "--json")
        assert "INFO" in blind.out
    working = run(url_of("worker"), "doctor", "--json")
    # INFO is what a worker does without; and none runs any more.
    assert {finding["subject"] for finding in json.loads(working.out)["findings"]} == {"rights to look", "workers"}
    lame = run(url_of("worker", without=["+xtrim", "+hincrby"]), "doctor", "--json")
    (lacking,) = [one for one in json.loads(lame.out)["findings"] if one["subject"] == "rights of a worker"]
    assert lacking["severity"] == "critical"
    assert "HINCRBY, XTRIM" in lacking["found"]


def test_an_onlooker_can_act_on_nothing(url_of, run):
    with SignalSink(backend=RedisSignalBackend.from_url(url_of("worker"), namespace="shop", name="api-1")):
        for command in (["signal", "a"], ["drain", "--all"]):
            ran = run(url_of("onlooker"), *command)
            assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
            assert "secret" not in ran.err


def test_a_workers_rights_suffice_to_act(url_of, run):
    url = url_of("worker")
    client = redis.Redis.from_url(url)
    with SignalSink(backend=RedisSignalBackend.from_url(url, namespace="shop", name="api-1")):
        # A row as a worker leaves it that has gone: known without a ladder in any worker that lives.
        assert run(url, "isolate", "pri1").code == 2
        sink_of_ladder(url)
        assert run(url, "isolate", "pri1").code == 0
        assert json.loads(run(url, "top", "--once", "--json").out)["groups"][0]["rungs"][0]["state"] == "isolated"
        assert run(url, "reset", "pri1").code == 0
        assert run(url, "signal", "a").code == 0
        assert run(url, "drain", "--all").code == 0
    assert client.hget("{shop}:h", "pri1")


def sink_of_ladder(url):
    """Have a ladder whose only rung has failed, and leave."""

    async def fail(item):
        raise ConnectionError(item)

    async def main():
        async with (
            SignalSink(backend=RedisSignalBackend.from_url(url, namespace="shop", require=True)) as sink,
            PriorityProcessorAtom(1, fail, sink, failure_threshold=1, drain_timeout=0) as only,
        ):
            async with sink.listen("failover.requested:*") as edges:
                await only.enqueue("a")
                with anyio.fail_after(10):
                    await anext(edges)
            await sink.flush(10)

    anyio.run(main)


def test_doctor_sees_a_server_that_forgets(server, run):
    client = redis.Redis.from_url(server.url)
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("maxmemory", client.info("memory")["used_memory"] * 11 // 10 + 500_000)
    # As whoever set that: a worker may not ask how much memory there is.
    who = client.connection_pool.connection_kwargs
    rights = f"?username={who['username']}&password={who['password']}" if who.get("username") else ""
    with SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="shop", name="api-1")):
        ran = run(f"{server.url}{rights}", "doctor", "--json")
    found = {finding["subject"]: finding for finding in json.loads(ran.out)["findings"]}
    assert ran.code == 1
    assert "allkeys-lru" in found["eviction policy"]["found"]
    assert "noeviction" in found["eviction policy"]["fix"]


# Outages


async def test_a_view_outlives_the_server_shows_how_old_it_is_and_is_right_again_afterwards(server):
    async with SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="shop", name="api-1")) as sink:
        watch = BusWatch.from_url(server.url, namespace="shop")
        async with watch.signals() as lots, watch.pictures(every=0.2) as pictures:
            before = await take(pictures, lambda picture: picture.workers)
            server.kill()
            away = await take(pictures, lambda picture: picture.problem and picture.age > 0.5)
            assert [worker.name for worker in away.workers] == ["api-1"]
            assert away.read_at >= before.read_at
            server.restart()
            back = await take(pictures, lambda picture: not picture.problem and picture.workers)
            assert back.age < 1
            sink.raise_signal("again")
            with anyio.fail_after(20):
                async for lot in lots:
                    if any(event.signal == "again" for event in lot):
                        break


async def test_a_view_of_a_server_that_hangs_goes_on(server):
    async with (
        SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="shop", name="api-1")),
        BusWatch.from_url(server.url, namespace="shop").pictures(every=0.2) as pictures,
    ):
        await take(pictures, lambda picture: picture.workers)
        server.freeze()
        try:
            away = await take(pictures, lambda picture: picture.problem)
            assert away.workers
        finally:
            server.resume()
        await take(pictures, lambda picture: not picture.problem)


async def test_a_view_of_a_server_that_lost_its_data_reads_on_from_its_new_beginning(server):
    async with SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="shop", name="api-1")) as sink:
        watch = BusWatch.from_url(server.url, namespace="shop")
        async with watch.signals() as lots, watch.pictures(every=0.2) as pictures:
            for round_number in range(3):
                sink.raise_signal(f"round:{round_number}")
                with anyio.fail_after(20):
                    async for lot in lots:
                        if any(event.signal == f"round:{round_number}" for event in lot):
                            break
                server.kill()
                server.restart()
                await take(pictures, lambda picture: not picture.problem and picture.workers)


DOOMED = """
import sys
from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend, cli
with SignalSink(backend=RedisSignalBackend.from_url(sys.argv[1], namespace="shop", name="doomed")):
    sys.stdin.read()
"""


@pytest.fixture
def doomed(server):
    with subprocess.Popen([sys.executable, "-c", DOOMED, server.url], stdin=subprocess.PIPE) as worker:
        yield worker
        worker.kill()


@pytest.mark.long  # a record holds for 10 s
async def test_a_worker_that_dies_is_shown_as_silent_and_then_gone(server, doomed):
    def is_silent(picture):
        return picture.workers and picture.read_at - picture.workers[0].told > 3

    async with BusWatch.from_url(server.url, namespace="shop").pictures(every=0.2) as pictures:
        await take(pictures, lambda picture: picture.workers)
        doomed.kill()
        assert (await take(pictures, is_silent)).workers[0].name == "doomed"
        await take(pictures, lambda picture: not picture.workers)


def test_tail_says_when_the_bus_goes_and_when_it_is_back(server):
    environment = {**os.environ, "EPHEMERAL_REDIS_URL": server.url, "EPHEMERAL_NAMESPACE": "shop"}
    command = [sys.executable, "-m", "ephemeral_redis.cli", "tail", "--json", "wanted"]
    with (
        SignalSink(backend=RedisSignalBackend.from_url(server.url, namespace="shop")) as sink,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tail,
    ):
        is_over = threading.Event()

        def raise_on():
            while not is_over.wait(0.05):
                sink.raise_signal("wanted")

        raiser = threading.Thread(target=raise_on)
        raiser.start()
        try:
            assert json.loads(tail.stdout.readline())["signal"] == "wanted"
            server.kill()
            assert "the bus cannot be read" in tail.stderr.readline()
            server.restart()
            said = next(line for line in tail.stderr if "cannot be read" not in line)
            assert said == "ephemeral: the bus is read again\n"
            # What the server had acknowledged and lost unread is told as a gap before.
            assert any(json.loads(line)["signal"] == "wanted" for line in tail.stdout)
        finally:
            is_over.set()
            raiser.join()
            tail.kill()
