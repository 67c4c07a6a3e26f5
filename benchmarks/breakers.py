"""What a shared circuit breaker costs and does, ours beside others over one Redis: ``python benchmarks/breakers.py``.

The others are those of the extra ``bench``; one that is missing or fails is told in one line and left out. All get the
same: one failure opens, two seconds later a trial may close. ``A`` and ``B`` are two instances with connections of
their own, in two processes where times between them are measured. Exits with 1 only where our own answer is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import anyio
import redis

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend
from ephemeral_redis.server import RedisServer

sys.path.insert(0, str(Path(__file__).parent))
from bus import head
from measuring import check, splice

OPEN_SECONDS = 2.0
"""Not one: some keep whole seconds, and would be open for none of it if they opened late in one."""

CALL_TIMEOUT = 1.0
"""Ours alone takes one: with 2 s more it is how long a dead prober's lease holds."""

PACE_SECONDS = 0.001
"""Between two calls of B, as a worker that does something else too."""

GIVE_UP_SECONDS = 10.0
HERD = 50

Function = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """Be the guarded call that costs nothing itself."""


# The breakers, each in its own words


class Breaker(NamedTuple):
    """One instance.

    Attributes:
        call: Runs a function if the breaker lets it; raises whatever it raises if not.
        settle: Waits until all that the calls left behind has reached the server.
    """

    call: Callable[[Function], Awaitable[object]]
    settle: Function = nothing


async def run(function: Function) -> None:
    await function()


@asynccontextmanager
async def ours(url: str, key: str) -> AsyncIterator[Breaker]:
    options = {"failure_threshold": 1, "probe_interval": OPEN_SECONDS, "timeout": CALL_TIMEOUT}
    async with (
        SignalSink(backend=RedisSignalBackend.from_url(url, namespace=key, require=True)) as sink,
        PriorityProcessorAtom(1, run, sink, id_selector=lambda _: "x", **options) as atom,
    ):
        yield Breaker(atom.call, sink.flush)


@asynccontextmanager
async def purgatory(url: str, key: str) -> AsyncIterator[Breaker]:
    from purgatory import AsyncCircuitBreakerFactory, AsyncRedisUnitOfWork  # noqa: PLC0415  it may be missing

    work = AsyncRedisUnitOfWork(url)
    factory = AsyncCircuitBreakerFactory(default_threshold=1, default_ttl=OPEN_SECONDS, uow=work)
    await factory.initialize()

    async def call(function: Function) -> None:
        async with await factory.get_breaker(key):
            await function()

    yield Breaker(call)
    await work.contexts.redis.aclose()


@asynccontextmanager
async def pybreaker(url: str, key: str) -> AsyncIterator[Breaker]:
    import tornado  # noqa: F401, PLC0415  its calls of coroutines need it
    from pybreaker import STATE_CLOSED, CircuitBreaker, CircuitRedisStorage  # noqa: PLC0415  it may be missing

    with redis.Redis.from_url(url) as client:
        storage = CircuitRedisStorage(STATE_CLOSED, client, namespace=key)
        yield Breaker(CircuitBreaker(fail_max=1, reset_timeout=OPEN_SECONDS, state_storage=storage).call_async)


@asynccontextmanager
async def aiobreaker(url: str, key: str) -> AsyncIterator[Breaker]:
    from aiobreaker import CircuitBreaker, CircuitBreakerState  # noqa: PLC0415  it may be missing
    from aiobreaker.storage.redis import CircuitRedisStorage  # noqa: PLC0415  it may be missing

    with redis.Redis.from_url(url) as client:
        storage = CircuitRedisStorage(CircuitBreakerState.CLOSED, client, namespace=key)
        open_time = timedelta(seconds=OPEN_SECONDS)
        yield Breaker(CircuitBreaker(fail_max=1, timeout_duration=open_time, state_storage=storage).call_async)


@asynccontextmanager
async def nopanic_redis(url: str, key: str) -> AsyncIterator[Breaker]:
    from nopanic_redis import redis_circuit_breaker  # noqa: PLC0415  it may be missing

    client = redis.asyncio.Redis.from_url(url)
    # It knows rates only: of any number of calls, one failure is too many.
    rule = redis_circuit_breaker(
        client, name=key, min_calls=1, failure_threshold=1e-9, reset_timeout=OPEN_SECONDS, fail_open=False
    )
    yield Breaker(rule(run))
    await client.aclose()


BREAKERS: dict[str, Callable[[str, str], AbstractAsyncContextManager[Breaker]]] = {
    "ephemeral-redis": ours,
    "purgatory": purgatory,
    "pybreaker": pybreaker,
    "aiobreaker": aiobreaker,
    "nopanic-redis": nopanic_redis,
}


async def has_run(breaker: Breaker, function: Function) -> bool:
    """Whether the breaker let *function* run; how that ended is no matter."""
    began = False

    async def guarded() -> None:
        nonlocal began
        began = True
        await function()

    with contextlib.suppress(Exception):
        await breaker.call(guarded)
    return began


async def fail() -> None:
    raise ConnectionError("down")


# The healthy path


async def micros_per_call(breaker: Breaker, count: int) -> float:
    began_at = time.perf_counter()
    for _ in range(count):
        await breaker.call(nothing)
    micros = (time.perf_counter() - began_at) / count * 1e6
    await breaker.settle()
    return micros


async def commands_per_call(client: redis.Redis, breaker: Breaker, count: int) -> tuple[float, float]:
    """All commands that the server carried out, those within scripts too; and the scripts among them."""
    client.config_resetstat()
    await micros_per_call(breaker, count)
    calls = {name: stats["calls"] for name, stats in client.info("commandstats").items()}
    total = sum(number for name, number in calls.items() if name not in {"cmdstat_info", "cmdstat_config|resetstat"})
    return total / count, calls.get("cmdstat_evalsha", 0) / count


# Opening, trying, dying


@contextlib.contextmanager
def child(name: str, url: str, key: str, role: str):
    """Another process with an instance of its own; ends by SIGKILL."""
    words = [sys.executable, __file__, "--child", name, url, key, role]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = await anyio.to_thread.run_sync(process.stdout.readline)
    if not line:
        raise RuntimeError("the other process died")
    return line.strip()


async def be_child(name: str, url: str, key: str, role: str) -> None:
    async with BREAKERS[name](url, key) as breaker:
        if role == "hold":
            await has_run(breaker, fail)
            await anyio.sleep(OPEN_SECONDS + 0.1)
            await has_run(breaker, hold)
        else:
            print("ready", flush=True)
            await anyio.to_thread.run_sync(sys.stdin.readline)
            await has_run(breaker, fail_and_tell)
            await anyio.sleep_forever()


async def hold() -> None:
    print("probing", flush=True)
    await anyio.sleep_forever()


async def fail_and_tell() -> None:
    print(time.monotonic(), flush=True)
    raise ConnectionError("down")


async def millis_to_reject(name: str, url: str, key: str) -> float | None:
    """From the failure of a call in A to the start of the first call that B rejects; None: it never does."""
    async with BREAKERS[name](url, key) as breaker:
        with child(name, url, key, "fail") as other:
            assert await line_of(other) == "ready"
            assert await has_run(breaker, nothing)
            other.stdin.write("go\n")
            other.stdin.flush()
            with anyio.move_on_after(GIVE_UP_SECONDS):
                asked_at = time.monotonic()
                while await has_run(breaker, nothing):
                    await anyio.sleep(PACE_SECONDS)
                    asked_at = time.monotonic()
                return max(0.0, asked_at - float(await line_of(other))) * 1000
    return None


async def herd_let_through(name: str, url: str, key: str) -> int:
    """How many of 50 calls at once, half of them by B, run before the first of them has ended."""
    running = ended = 0

    async def slow() -> None:
        nonlocal running, ended
        running += not ended
        await anyio.sleep(0.2)
        ended += 1

    async with BREAKERS[name](url, key) as one, BREAKERS[name](url, key) as two:
        assert await has_run(one, fail)
        with anyio.fail_after(GIVE_UP_SECONDS):
            for breaker in (one, two):
                while await has_run(breaker, nothing):  # noqa: ASYNC110  until the news are here
                    await anyio.sleep(PACE_SECONDS)
        await anyio.sleep(OPEN_SECONDS + 0.1)
        async with anyio.create_task_group() as tasks:
            for breaker in (one, two) * (HERD // 2):
                tasks.start_soon(has_run, breaker, slow)
    return running


async def seconds_to_recover(name: str, url: str, key: str) -> float | None:
    """From the SIGKILL of the process that holds the trial call to the next call that runs; None: it never does."""
    async with BREAKERS[name](url, key) as breaker:
        with child(name, url, key, "hold") as other:
            assert await line_of(other) == "probing"
        killed_at = time.monotonic()
        while time.monotonic() - killed_at < GIVE_UP_SECONDS:
            if await has_run(breaker, nothing):
                return time.monotonic() - killed_at
            await anyio.sleep(0.01)
        return None


# The table


def spread(values: list[float], digits: int) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}..{high:.{digits}f})"


def spread_or_never(found: list[float | None]) -> str:
    times = [time for time in found if time is not None]
    never = len(found) - len(times)
    return f"never ({never} of {len(found)})" if never else spread(times, 1)


class Cost(NamedTuple):
    """What the healthy path of one breaker has shown."""

    micros: list[float]
    commands: float
    scripts: float


async def costs(url: str, names: list[str], rounds: int, count: int) -> dict[str, Cost]:
    """Measure all in turn in each round, so that a slow second of the machine hits them alike."""
    figures: dict[str, Cost] = {}
    with redis.Redis.from_url(url) as client:
        async with contextlib.AsyncExitStack() as stack:
            breakers = {name: await stack.enter_async_context(BREAKERS[name](url, f"cost-{name}")) for name in names}
            for breaker in breakers.values():
                await micros_per_call(breaker, count // 10)  # connections and scripts are there from here on
            micros = {name: [] for name in names}
            for _ in range(rounds):
                for name, breaker in breakers.items():
                    micros[name].append(await micros_per_call(breaker, count))
        for name in names:
            # Alone: the server counts for all who are connected.
            async with BREAKERS[name](url, f"commands-{name}") as breaker:
                await micros_per_call(breaker, count // 10)
                figures[name] = Cost(micros[name], *await commands_per_call(client, breaker, count))
    return figures


async def row(url: str, name: str, cost: Cost, rounds: int) -> str:
    rejects = [await millis_to_reject(name, url, f"reject-{name}-{n}") for n in range(rounds)]
    herd = [await herd_let_through(name, url, f"herd-{name}-{n}") for n in range(rounds)]
    recovers = [await seconds_to_recover(name, url, f"hold-{name}-{n}") for n in range(rounds)]
    if name == "ephemeral-redis":
        check(set(herd) == {1}, f"{herd} trial calls at once")
        check(None not in rejects, "a failure that others never heard of")
        check(None not in recovers, "a dead prober held up all")
    return (
        f"{name:<16}{spread(cost.micros, 0):>16}{cost.commands:10.2f}{cost.scripts:10.2f}"
        f"{spread_or_never(rejects):>18}{statistics.median(herd):8.0f}  {spread_or_never(recovers):>16}"
    )


def heading(*columns: str) -> str:
    return "{:<16}{:>16}{:>10}{:>10}{:>18}{:>8}  {:>16}".format(*columns)


HEADINGS = [
    heading("median", "healthy call", "commands", "scripts", "B rejects after", "herd", "prober killed:"),
    heading("(least..most)", "us", "a call", "a call", "A failed, ms", f"of {HERD}", "up again after s"),
]


async def usable(url: str, name: str) -> str | None:
    """Return why *name* cannot be measured; None if it can."""
    try:
        async with BREAKERS[name](url, f"try-{name}") as breaker:
            await breaker.call(nothing)
    except Exception as error:  # noqa: BLE001  whatever it is, it is told in its line
        return f"{name}: not measured: {type(error).__name__}: {error}".splitlines()[0]
    return None


async def table(url: str, *, quick: bool) -> AsyncIterator[str]:
    problems = {name: await usable(url, name) for name in BREAKERS}
    check(problems["ephemeral-redis"] is None, str(problems["ephemeral-redis"]))
    names = [name for name, problem in problems.items() if problem is None]
    yield ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    for line in HEADINGS:
        yield line
    figures = await costs(url, names, 2 if quick else 5, 300 if quick else 2000)
    for name in names:
        try:
            yield await row(url, name, figures[name], 1 if quick else 3)
        except Exception as error:  # noqa: BLE001  as above
            check(name != "ephemeral-redis", repr(error))
            yield f"{name}: {type(error).__name__}: {error}".splitlines()[0]
    for problem in filter(None, problems.values()):
        yield problem


async def main(into: Path | None, *, quick: bool) -> None:
    with RedisServer() as server:
        lines = [head(server)]
        print(lines[0])
        async for line in table(server.url, quick=quick):
            lines.append(line.rstrip())
            print(lines[-1], flush=True)
    if into is not None:
        splice(into, [*lines, "", f"never: not within {GIVE_UP_SECONDS:.0f} s"], "breakers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a measurement")
    parser.add_argument("--into", type=Path, help="a document to put the table into, between its marks")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        anyio.run(be_child, *options.child)
    else:
        anyio.run(lambda: main(options.into, quick=options.quick))
