"""What a URL of several hosts says, and how the one server is found behind it."""

from __future__ import annotations

import anyio
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, RedisClusterException

from ephemeral import testing
from ephemeral_redis import RedisSignalBackend, _client, _servers
from ephemeral_redis._keys import Keys
from ephemeral_redis._servers import Places

KEYS = Keys("shop")


@pytest.fixture
def anyio_backend():
    return testing.virtual_time("asyncio")  # redis-py's clients run on nothing else


@pytest.mark.parametrize(
    ("url", "kind", "expected"),
    [
        (
            "redis+sentinel://a,b:1,[::1]:2/main",
            "sentinel",
            ("redis", "", [("a", 26379), ("b", 1), ("::1", 2)], "main", "/"),
        ),
        (
            "rediss+sentinel://u:p%40@a:1/ma%20in/3?protocol=3",
            "sentinel",
            ("rediss", "u:p%40@", [("a", 1)], "ma in", "/3?protocol=3"),
        ),
        ("redis+cluster://:p@a,b:7000", "cluster", ("redis", ":p@", [("a", 6379), ("b", 7000)], "", "/")),
        ("redis+cluster://a/0?protocol=2", "cluster", ("redis", "", [("a", 6379)], "", "/?protocol=2")),
    ],
)
def test_a_url_of_several_hosts_is_read(url, kind, expected):
    assert Places.read(url, kind) == Places(*expected)


def test_each_server_has_a_url_of_its_own():
    places = Places.read("rediss+sentinel://u:p%40@a:1/main/3?protocol=3", "sentinel")
    assert places.url("10.0.0.1", 6379) == "rediss://u:p%40@10.0.0.1:6379/3?protocol=3"
    assert places.url("::1", 6379) == "rediss://u:p%40@[::1]:6379/3?protocol=3"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+sentinel://u:hunter2@a:1,b:2", "must name the service that the sentinels watch"),
        ("redis+sentinel://u:hunter2@a:1,b:2/", "must name the service that the sentinels watch"),
        ("redis+sentinel://u:hunter2@a:1/main/x", "database of .* must be a number"),
        ("redis+cluster://u:hunter2@a:1/3", "must name no database"),
        ("redis+cluster://u:hunter2@a:x", "hosts of .* cannot be read"),
        ("redis+cluster://u:hunter2@a:1,,b:2", "hosts of .* cannot be read"),
        ("redis+sentinal://u:hunter2@a:1", "must begin with redis\\+sentinel:// or redis\\+cluster://"),
    ],
)
def test_a_url_that_cannot_be_read_says_so_without_its_password(url, says):
    with pytest.raises(ValueError, match=says) as caught:
        RedisSignalBackend.from_url(url, namespace="shop")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis+sentinel://a:1,b:2/main", "redis+cluster://a:1,b:2"])
def test_an_option_that_nobody_knows_is_told_at_once(url):
    with pytest.raises(TypeError, match="socket_tiemout"):
        RedisSignalBackend.from_url(url, namespace="shop", socket_tiemout=3)


def test_an_option_of_sentinels_that_nobody_knows_is_told_at_once():
    with pytest.raises(TypeError, match=r"option of sentinel_kwargs: .*passwrod"):
        RedisSignalBackend.from_url("redis+sentinel://a/main", namespace="shop", sentinel_kwargs={"passwrod": "x"})


@pytest.mark.parametrize("url", ["redis://u:hunter2@a:1", "redis+sentinel://u:hunter2@a:1,b:2/main"])
def test_a_backend_shows_where_it_is_and_no_password(url):
    shown = repr(RedisSignalBackend.from_url(url, namespace="shop"))
    assert url.replace("u:hunter2", "***") in shown


class Sentinel:
    """A sentinel as its client shows it."""

    def __init__(self, host, port, epoch, flags=(), error=None):
        self._state = {"ip": host, "port": port, "config-epoch": epoch, "is_master": True}
        self._state |= {f"is_{flag}": flag in flags for flag in ("sdown", "odown")}
        self._error = error

    async def sentinel_masters(self):
        if self._error is not None:
            raise self._error
        return {"main": self._state}


async def asked(*sentinels):
    finder = _servers._Sentinels(Places.read("redis+sentinel://a/main", "sentinel"), {}, {})
    return await finder._ask(list(sentinels))


async def test_the_sentinel_that_knows_of_the_latest_failover_is_believed():
    old, new = Sentinel("old", 1, 3), Sentinel("new", 2, 4)
    assert await asked(old, new, old) == ("new", 2)
    assert await asked(new, old) == ("new", 2)


async def test_a_master_that_is_down_is_none_and_a_sentinel_that_is_away_says_nothing():
    away = Sentinel("x", 1, 9, error=RedisConnectionError("refused"))
    assert await asked(away, Sentinel("there", 2, 1)) == ("there", 2)
    down = [Sentinel("there", 2, 5, flags=[flag]) for flag in ("sdown", "odown")]
    with pytest.raises(_servers.MasterNotFoundError, match=r"no master for 'main': refused, there:2 is down$"):
        await asked(away, *down)


class Node:
    """A node of a cluster that answers, sends elsewhere, or is away."""

    def __init__(self, answer):
        self._answer = answer
        self.is_closed = False

    async def hget(self, key, field):
        assert key == KEYS.marks
        if self._answer is not None:
            raise self._answer

    async def aclose(self):
        self.is_closed = True


async def found(hosts, answers, monkeypatch):
    """Return where the owner is, when each place answers so."""
    clients = []

    def at(self, host, port, options):
        def make(**settings):
            clients.append(Node(answers[host, port]))
            return clients[-1]

        return make

    monkeypatch.setattr(Places, "at", at)
    finder = _servers._Nodes(Places("redis", "", hosts, "", ""), {}, KEYS)
    try:
        return (await finder.find()).place
    finally:
        assert all(client.is_closed for client in clients)


AWAY = RedisConnectionError("refused")


@pytest.mark.parametrize(
    ("hosts", "answers", "place"),
    [
        ([("a", 1)], {("a", 1): None}, ("a", 1)),
        ([("a", 1)], {("a", 1): MovedError("7 b:2"), ("b", 2): MovedError("7 c:3"), ("c", 3): None}, ("c", 3)),
        ([("a", 1)], {("a", 1): MovedError("7 :2"), ("a", 2): None}, ("a", 2)),
        ([("a", 1), ("b", 2)], {("a", 1): AWAY, ("b", 2): None}, ("b", 2)),
        ([("a", 1), ("b", 2)], {("a", 1): MovedError("7 c:3"), ("c", 3): AWAY, ("b", 2): None}, ("b", 2)),
    ],
    ids=["at once", "sent on", "the same host", "a seed away", "a seed that knows no better"],
)
async def test_the_way_that_nodes_show_is_followed(hosts, answers, place, monkeypatch):
    assert await found(hosts, answers, monkeypatch) == place


async def test_nodes_that_send_in_a_circle_are_an_outage(monkeypatch):
    circle = {("a", 1): MovedError("7 b:2"), ("b", 2): MovedError("7 a:1")}
    with pytest.raises(RedisClusterException, match="send each other"):
        await found([("a", 1)], circle, monkeypatch)


async def test_when_all_seeds_are_away_the_last_one_says_why(monkeypatch):
    with pytest.raises(RedisConnectionError, match="refused"):
        await found([("a", 1), ("b", 2)], {("a", 1): RedisConnectionError("other"), ("b", 2): AWAY}, monkeypatch)


async def test_a_master_that_was_replaced_is_left(monkeypatch):
    answers = iter([("old", 1), ("old", 1), AWAY, ("old", 1), ("new", 2)])

    async def ask(self, clients):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(_servers._Sentinels, "_ask", ask)
    monkeypatch.setattr(_servers, "ASK_AGAIN_SECONDS", 0.001)
    server = await _servers.server_finder("redis+sentinel://a/main", {}, KEYS)()
    assert server.place == ("old", 1)
    with anyio.fail_after(5):
        await server.moved()
    assert next(answers, None) is None


class Closing:
    """A client that closes at once, never, or with an error."""

    def __init__(self, how):
        self._how = how
        self.is_closed = False

    async def aclose(self):
        if self._how == "never":
            await anyio.sleep_forever()
        if self._how == "error":
            raise RedisConnectionError("Timed out closing connection")
        self.is_closed = True


async def test_a_client_that_does_not_close_holds_up_no_other_and_raises_nothing():
    well = [Closing("at once") for _ in range(2)]
    began_at = anyio.current_time()
    await _client.close_clients(Closing("error"), well[0], Closing("never"), Closing("never"), well[1])
    assert all(client.is_closed for client in well)
    assert anyio.current_time() - began_at == _client.CLOSE_SECONDS
