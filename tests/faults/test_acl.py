"""The rights that docs/bus.md names suffice for a worker, and an onlooker can change nothing."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
import redis

from ephemeral import SignalSink
from ephemeral._health import HealthOptions, HealthRules
from ephemeral._loops import current_loop
from ephemeral._shared_health import SharedHealthStore
from ephemeral_redis import RedisSignalBackend, SignalBusError

pytestmark = [pytest.mark.real_time, pytest.mark.server]

DOCS = (Path(__file__).parents[2] / "docs" / "bus.md").read_text(encoding="utf-8")
LINES = {name: line.split() for line, name in re.findall(r"^(ACL SETUSER (\w+) .+)$", DOCS, re.MULTILINE)}


@pytest.fixture
def url_of(server):
    client = redis.Redis.from_url(server.url)

    def url(name):
        client.execute_command(*LINES[name])
        return f"{server.url}?username={name}&password=secret"

    return url


async def test_a_worker_has_all_it_needs(url_of, until):
    url = url_of("worker")
    rules = HealthRules.of(HealthOptions(policy="rate", quorum=2, minimum_calls=2), probe_interval=0.01, timeout=5.0)
    async with (
        SignalSink(backend=RedisSignalBackend.from_url(url, namespace="shop", require=True)) as one,
        SignalSink(backend=RedisSignalBackend.from_url(url, namespace="shop", require=True)) as two,
        two.listen("a") as events,
    ):
        one.raise_signal("a", payload=1)
        assert (await anext(events)).payload == 1
        assert await one.shared_count("a") == 1
        now, stores = current_loop().now, [SharedHealthStore(sink.backend) for sink in (one, two)]
        for store in stores:
            store.register("pri1", rules, now())
            store.succeeded("pri1", 0, now())
            store.failed("pri1", 0, now())
        async with one.listen("never") as nothing:
            del nothing
        stores[0].isolate("pri1", now())
        assert await one.flush(5)
        assert one.statistics().bus.dropped == 0
        assert not one.is_degraded


def test_a_worker_has_no_right_to_another_namespace(url_of):
    backend = RedisSignalBackend.from_url(url_of("worker"), namespace="other", require=True)
    with pytest.raises(SignalBusError, match=r"permission|NOPERM"), SignalSink(backend=backend):
        pass


def test_an_onlooker_sees_all_and_changes_nothing(url_of):
    with SignalSink(backend=RedisSignalBackend.from_url(url_of("worker"), namespace="shop")) as sink:
        sink.raise_signal("a")
        assert sink.backend.count("a", 60).result(5) == 1
    client = redis.Redis.from_url(url_of("onlooker"))
    assert client.zcount("{shop}:z:a", "-inf", "+inf") == 1
    assert len(client.xrange("{shop}:s")) == 1
    for command in (["XADD", "{shop}:s", "*", "a", "b"], ["DEL", "{shop}:h"], ["HSET", "{shop}:h", "pri1", "x"]):
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command(*command)


def test_a_right_that_is_missing_is_asked_for_at_intervals_and_not_in_a_spin(server):
    client = redis.Redis.from_url(server.url)
    client.execute_command(*[word for word in LINES["worker"] if word != "+xread"])
    url = f"{server.url}?username=worker&password=secret"
    with SignalSink(backend=RedisSignalBackend.from_url(url, namespace="shop")) as sink:
        before = client.info("stats")["total_connections_received"]
        threading.Event().wait(1.0)
        connections = client.info("stats")["total_connections_received"] - before
        assert "xread" in sink.statistics().bus.last_error
        assert sink.statistics().bus.reconnects > 0
    # Three connections a try, tries 20 ms to half a second apart.
    assert connections < 100


def test_every_other_test_has_the_rights_that_its_run_says(server, request):
    folder = server.folder  # not by a URL: clients made of one may be the tests' own, who may do anything
    with redis.Redis(unix_socket_path=str(folder / "sock")) as client:
        if request.config.getoption("--admin", None) is None:
            client.flushall()
            return
        client.xrange("{any}:s")
        for command in (["FLUSHALL"], ["KEYS", "*"], ["CONFIG", "GET", "*"], ["GET", "elsewhere"]):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
