"""Small parts of the Redis side, each as a table: the server's clock, reply shapes, refusals, client settings."""

from __future__ import annotations

import asyncio.futures
import threading
import traceback

import msgpack
import pytest
import redis.exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend, _client, _clock, _reader, _refusals
from ephemeral_redis._statistics import Tally


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(_clock.time, "monotonic", lambda: 0.0)
    monkeypatch.setattr(_clock.time, "time", lambda: 1000.0)
    return _clock.BusClock()


@pytest.mark.parametrize(
    ("server", "asked", "answered", "now"),
    [
        pytest.param(1000.5, 0.0, 1.0, 1000.0, id="within what is known"),
        pytest.param(4600.0, 0.0, 0.001, 4599.999, id="this machine's clock is an hour late"),
        pytest.param(10.0, 0.0, 0.5, 10.0, id="the server was set back"),
        pytest.param(1000.0, -5.0, 0.0, 1000.0, id="a slow answer says little"),
    ],
)
def test_an_answer_moves_the_clock_no_further_than_it_must(clock, server, asked, answered, now):
    clock.learn(server, asked_at=asked, answered_at=answered)
    assert clock.now() == pytest.approx(now)


ENTRY = (b"1-0", {b"k": b"v", b"x": b"y"})


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param([[b"s", [(b"1-0", {b"k": b"v", b"x": b"y"})]]], id="a list"),
        pytest.param({b"s": [(b"1-0", {b"k": b"v", b"x": b"y"})]}, id="a map"),
        pytest.param({b"s": [[(b"1-0", {b"k": b"v", b"x": b"y"})]]}, id="a map, wrapped once more"),
        pytest.param([[b"s", [[b"1-0", [b"k", b"v", b"x", b"y"]]]]], id="raw"),
    ],
)
def test_every_shape_of_a_reply_is_read(reply):
    assert list(_reader.entries_of(reply)) == [(b"s", *ENTRY)]


@pytest.mark.parametrize("reply", [None, [], {}])
def test_a_quiet_wait_brings_nothing(reply):
    assert list(_reader.entries_of(reply)) == []


@pytest.mark.parametrize(
    ("one", "other", "is_before"),
    [(b"1-0", b"2-0", True), (b"9-0", b"10-0", True), (b"5-2", b"5-10", True), (b"5-1", b"5-1", False)],
)
def test_ids_are_compared_as_numbers(one, other, is_before):
    assert _reader.is_before(one, other) is is_before


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (redis.exceptions.OutOfMemoryError("OOM command not allowed"), True),
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), True),
        (redis.exceptions.ResponseError("OOM command not allowed when used memory > 'maxmemory'. script: x"), True),
        (redis.exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"), True),
        (redis.exceptions.NoPermissionError("this user has no permissions"), True),
        (redis.exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), False),
    ],
)
def test_a_refusal_that_passes_is_told_from_one_that_comes_again(error, passes):
    assert _refusals.is_passing(error) is passes


def test_clients_are_set_to_fail_early_and_once():
    settings = _client.client_settings("command")
    assert settings["socket_timeout"] == settings["socket_connect_timeout"] == 1.0
    assert isinstance(settings["retry"], Retry)  # the asynchronous one: redis-py takes the other one too, and blocks
    assert settings["retry"].get_retries() == 0
    assert settings["health_check_interval"] == 0
    reader = _client.client_settings("signals", timeout=_client.READER_SECONDS)
    # A wait that is longer than the socket's time-out ends as one; none at all hangs on a frozen server.
    assert reader["socket_timeout"] > _client.BLOCK_SECONDS


def test_settings_that_this_redis_py_does_not_know_are_left_out(monkeypatch):
    class Old:
        def __init__(self, *, socket_timeout=None, retry=None):
            pass

    monkeypatch.setattr(_client, "AbstractConnection", Old)
    assert set(_client.client_settings("command")) == {"socket_timeout", "retry"}


def test_what_a_user_sets_wins():
    made = []
    factory = _client.url_factory("redis://localhost", {"socket_timeout": 9.0, "username": "u"})
    made.append(factory(**_client.client_settings("command")))
    options = made[0].connection_pool.connection_kwargs
    assert (options["socket_timeout"], options["username"], options["client_name"]) == (9.0, "u", "ephemeral-command")
    assert isinstance(made[0], Redis)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"namespace": ""}, ValueError, "namespace"),
        ({"namespace": "a b"}, ValueError, "namespace"),
        ({"namespace": 7}, TypeError, "namespace"),
        ({"retention": 0}, ValueError, "retention"),
        ({"capacity": 10}, ValueError, "capacity must be at least 1000"),
        ({"max_outbox": 0}, ValueError, "max_outbox"),
        ({"publish": ""}, ValueError, "pattern"),
        ({"mirror": 7}, TypeError, "pattern"),
    ],
)
def test_bad_options_are_refused_at_once(options, error, says):
    with pytest.raises(error, match=says):
        RedisSignalBackend.from_url("redis://localhost", **{"namespace": "x", **options})


def test_a_backend_shows_no_secret_and_may_be_left_unopened():
    backend = RedisSignalBackend.from_url("redis://user:hunter2@localhost/0", namespace="shop")
    sink = SignalSink(backend=backend)
    sink.raise_signal("a")
    assert repr(backend) == "<RedisSignalBackend 'shop' at redis://***@localhost/0: away>"
    assert sink.is_degraded
    assert backend.close(0).result(0) == 1


class Receiver:
    """A sink that only notes what it is told."""

    def __init__(self):
        self.time = 1000.0
        self.gaps = []

    def now(self):
        return self.time

    def missed(self, count):
        self.gaps.append(count)


def test_every_gap_is_told_and_the_log_hears_of_them_now_and_then(caplog):
    receiver, tally = Receiver(), Tally()
    reader = _reader.SignalReader([b"s"], receiver, _clock.BusClock(), tally, origin="f" * 16, mirror="*")
    body = msgpack.packb([[0, "a", None, 0, None]])
    for number in range(5):
        fields = {b"v": b"1", b"o": b"12345678", b"n": b"1", b"a": bytes(4), b"b": body, b"q": b"%d" % (3 * number)}
        reader._read(b"s", b"1000000-0", fields, 0.0)
        receiver.time += 4.0
    assert receiver.gaps == [2, 2, 2, 2]
    assert (tally.gaps, tally.missed) == (4, 8)
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert said == ["2 signals of others never came, in all 2", "6 signals of others never came, in all 8"]


@pytest.mark.parametrize(
    ("url", "options", "error", "says"),
    [
        ("localhost:6379", {}, ValueError, "must begin with redis://.*not 'localhost:6379'"),
        ("", {}, ValueError, "must begin with redis://"),
        ("http://localhost", {}, ValueError, "must begin with redis://.*'http://localhost'"),
        ("redis://h:abc", {}, ValueError, "port of 'redis://h:abc' cannot be read"),
        ("redis://h:99999", {}, ValueError, "from 0 to 65535"),
        ("redis://joe:hun/ter2@h", {}, ValueError, r"of 'redis://\*\*\*@h' cannot be read.*percent-encoded"),
        ("redis://joe:hunter2@h/first", {}, ValueError, r"database of 'redis://\*\*\*@h/first' must be a number"),
        ("redis://h?password=hunter2@x&socket_timeout=soon", {}, ValueError, "'socket_timeout'"),
        ("redis://joe:hunter2@h?requires=1", {}, ValueError, "'requires'.*check the spelling"),
        ("redis://h?protocol=9", {}, ValueError, "protocol"),
        ("redis://h", {"decode_responses": True}, ValueError, "decode_responses must be left out"),
        (None, {}, TypeError, "url must be a str such as 'redis://localhost:6379/0', not NoneType"),
        ("redis://joe:hunter2@h", {"requires": True}, TypeError, "'requires'.*check the spelling"),
        ("redis://h", {"ssl_ca_certs": "ca.pem"}, TypeError, "'ssl_ca_certs'.*need rediss://"),
    ],
)
def test_a_mistake_in_where_the_server_is_is_refused_at_once(url, options, error, says):
    with pytest.raises(error, match=says) as caught:
        RedisSignalBackend.from_url(url, namespace="x", **options)
    told = "".join(traceback.format_exception_only(caught.value)) + repr(caught.value.__cause__)
    assert "ter2" not in told
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("url", ["redis://", "rediss://joe:p%2Fw@h:1/3/", "unix:///run/redis.sock", "redis://h/?db=2"])
def test_where_a_server_may_be(url):
    assert RedisSignalBackend.from_url(url, namespace="x").is_degraded


def test_a_url_in_the_place_of_a_factory_is_told():
    with pytest.raises(TypeError, match="for a URL there is"):
        RedisSignalBackend("redis://localhost", namespace="x")


def in_asyncio():
    # As a write to a closed peer does: raised within the loop's own code.
    asyncio.futures.wrap_future(7)


@pytest.mark.parametrize(
    ("error", "is_outage"),
    [
        (redis.exceptions.ConnectionError("refused"), True),
        (redis.exceptions.TimeoutError(), True),
        (redis.exceptions.OutOfMemoryError(), True),
        (redis.exceptions.RedisClusterException("no node"), True),
        (redis.exceptions.InvalidResponse("HTTP/1.1"), True),
        (ConnectionResetError(), True),
        (TypeError("requires"), False),
        (redis.exceptions.DataError("a set"), False),
    ],
)
def test_an_outage_is_told_from_a_mistake(error, is_outage):
    assert _refusals.is_outage(error) is is_outage


def test_a_closed_peer_that_shows_as_a_mistake_of_the_loop_is_an_outage():
    with pytest.raises(AssertionError) as caught:
        in_asyncio()
    assert _refusals.is_outage(caught.value)


class Broken:
    """A client factory with a mistake in it, each time in other words."""

    calls = 0

    def __call__(self, **settings):
        Broken.calls += 1
        raise LookupError(f"no such master, asked {Broken.calls} times")


@pytest.mark.real_time
async def test_a_mistake_in_a_factory_comes_out_of_the_opening_and_is_logged_once(caplog):
    with pytest.raises(LookupError, match="no such master"):
        async with SignalSink(backend=RedisSignalBackend(Broken(), namespace="x")):
            pass
    told = [record for record in caplog.records if record.exc_info]
    assert [record.exc_info[0] for record in told] == [LookupError]


@pytest.mark.real_time
def test_a_mistake_that_comes_later_is_logged_once_and_survived(caplog):
    Broken.calls, tried = 0, threading.Event()

    class Later(Broken):
        def __call__(self, **settings):
            if not Broken.calls:
                Broken.calls = 1
                raise ConnectionRefusedError("away")
            if Broken.calls == 4:
                tried.set()
            return super().__call__(**settings)

    with SignalSink(backend=RedisSignalBackend(Later(), namespace="x")) as sink:
        assert tried.wait(10)
        assert sink.is_degraded
    assert len([record for record in caplog.records if record.exc_info]) == 1


@pytest.mark.parametrize(
    ("options", "seconds"),
    [({}, 1.0), ({"socket_timeout": 5}, 5.0), ({"socket_timeout": None}, _client._FOREVER_SECONDS)],
)
def test_a_call_is_worth_carrying_out_for_as_long_as_its_client_waits(options, seconds):
    make = _client.url_factory("redis://localhost", options)
    assert _client.patience_of(make(**_client.client_settings("command"))) == seconds
    assert _client.patience_of(object()) == 1.0
