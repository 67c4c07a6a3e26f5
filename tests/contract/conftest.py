"""One bus per test, in memory, on fakeredis and on a real server: the same suite holds all of them to the contract."""

from __future__ import annotations

import contextlib
import itertools

import anyio
import fakeredis
import pytest

from ephemeral import SignalSink
from ephemeral.testing import MemoryBus
from ephemeral_redis import RedisSignalBackend

unique = itertools.count()


class Bus:
    """What a test knows of a bus: it gives sinks that are joined."""

    def __init__(self, kind, make_backend):
        self.kind = kind
        self.backend = make_backend

    @contextlib.asynccontextmanager
    async def sinks(self, count, **options):
        async with contextlib.AsyncExitStack() as stack:
            yield [await stack.enter_async_context(SignalSink(backend=self.backend(), **options)) for _ in range(count)]


@pytest.fixture(
    params=[
        "memory",
        pytest.param("fake", marks=pytest.mark.real_time),
        pytest.param("real", marks=[pytest.mark.real_time, pytest.mark.server]),
    ]
)
async def bus(request, anyio_backend):
    namespace = f"contract-{next(unique)}"
    if request.param == "memory":
        async with MemoryBus() as memory:
            yield Bus("memory", lambda **options: memory.backend())
    elif request.param == "fake":
        server = fakeredis.FakeServer()

        def make_client(**settings):
            return fakeredis.FakeAsyncRedis(server=server)

        yield Bus("fake", lambda **options: RedisSignalBackend(make_client, namespace=namespace, **options))
    else:
        url = request.getfixturevalue("redis_server").url
        yield Bus("real", lambda **options: RedisSignalBackend.from_url(url, namespace=namespace, **options))


async def until(condition, *, steps=4000):
    """Wait until *condition* holds; fails after 4 s of the clock, however it runs."""
    for _ in range(steps):
        if condition():
            return
        await anyio.sleep(0.001)
    raise AssertionError(f"never came true: {condition}")


@pytest.fixture(name="until")
def until_fixture():
    return until
