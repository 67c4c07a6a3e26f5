"""The bus is another server now: what that one has is read, whether or not the last one ever had it."""

from __future__ import annotations

import contextlib

import pytest
import redis

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend
from ephemeral_redis._client import url_factory
from ephemeral_redis._servers import Server
from ephemeral_redis.server import RedisServer

pytestmark = [pytest.mark.real_time, pytest.mark.server]


class Way:
    """Leads to one server, later to another one."""

    def __init__(self, server):
        self.server = server
        self.name = "the server"

    async def find(self):
        return Server(url_factory(self.server.url, {}), (self.name, self.server.url))

    @contextlib.contextmanager
    def sink(self):
        backend = RedisSignalBackend.from_url(self.server.url, namespace="moves")
        backend._settings = backend._settings._replace(find_server=self.find)
        backend._life = backend._new_life()
        with SignalSink(backend=backend) as sink:
            yield sink


def test_signals_that_only_the_new_server_has_are_read_though_later_ones_of_the_old_were(server, until):
    with RedisServer() as other:
        here, way = Way(server), Way(server)
        with here.sink() as left, way.sink() as reader, Way(other).sink() as early:
            early.raise_signal("early")
            assert early.backend.count("early", 60).result(5) == 1
            left.raise_signal("left")
            until(lambda: reader.detect("left"))
            way.server = other
            server.kill()
            # Newer than all that the reader knows: without going back it would read on from here.
            early.raise_signal("late")
            until(lambda: reader.detect("late"))
            assert [event.signal for event in reader.sense()] == ["left", "early", "late"]
            assert reader.statistics().bus.missed == 0


def test_what_comes_again_is_told_by_its_position_and_not_doubled(server, until):
    way = Way(server)
    with way.sink() as one, way.sink() as two:
        for number in range(5):
            one.raise_signal("n", str(number))
        until(lambda: len(two.sense("n")) == 5)
        way.name = "another name for the same data, as a replica is that has all of them"
        with redis.Redis.from_url(server.url) as client:
            client.client_kill_filter(_type="normal", skipme=True)
        one.raise_signal("last")
        until(lambda: two.detect("last"))
        assert [event.key for event in two.sense("n")] == list("01234")
        assert two.statistics().bus.repeated == 5
        assert two.statistics().bus.missed == 0


def test_what_was_raised_before_a_sink_joined_stays_unread(server, until):
    way = Way(server)
    with way.sink() as one:
        one.raise_signal("before")
        assert one.backend.count("before", 60).result(5) == 1
        with way.sink() as two:
            way.name = "another"
            with redis.Redis.from_url(server.url) as client:
                client.client_kill_filter(_type="normal", skipme=True)
            until(lambda: two.statistics().bus.reconnects == 1)
            one.raise_signal("after")
            until(lambda: two.detect("after"))
            assert [event.signal for event in two.sense()] == ["after"]
