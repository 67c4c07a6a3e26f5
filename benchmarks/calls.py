"""A call through a healthy ladder, and one round which a circuit breaker stands; and how soon a backup takes over.

Over a bare await of an async function that does nothing. Ours bounds the calls, stores two signals for each unless told
otherwise, and has somewhere else to go.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from measuring import Chart, Result, Row, at_least, at_most, check, interleaved, is_there, run_timed

from ephemeral import PriorityProcessorAtom, SignalSink

Call = Callable[[int], Awaitable[object]]


async def echo(item: int) -> int:
    """Be the service."""
    return item


@contextlib.asynccontextmanager
async def ladder(*, item_signals: bool) -> AsyncIterator[Call]:
    """Two rungs of ours."""
    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, echo, sink, item_signals=item_signals) as primary,
        PriorityProcessorAtom(2, echo, sink) as backup,
    ):
        yield primary.call
        calls, raised = primary.total_completed, sink.statistics().raised
        check(raised == (2 * calls if item_signals else 0), f"{raised} signals for {calls} calls")
        check(backup.is_healthy, "the backup is healthy")


@contextlib.asynccontextmanager
async def bare() -> AsyncIterator[Call]:
    """Nothing round it."""
    yield echo


@contextlib.asynccontextmanager
async def circuitbreaker() -> AsyncIterator[Call]:
    """Its decorator."""
    from circuitbreaker import circuit  # noqa: PLC0415  a peer, if it is installed

    yield circuit(failure_threshold=3)(echo)


@contextlib.asynccontextmanager
async def hyx() -> AsyncIterator[Call]:
    """Its decorator."""
    from hyx.circuitbreaker import consecutive_breaker  # noqa: PLC0415  a peer, if it is installed

    yield consecutive_breaker(exceptions=(OSError,), failure_threshold=3, recovery_time_secs=5)(echo)


@contextlib.asynccontextmanager
async def purgatory() -> AsyncIterator[Call]:
    """Its decorator."""
    from purgatory import AsyncCircuitBreakerFactory  # noqa: PLC0415  a peer, if it is installed

    yield AsyncCircuitBreakerFactory(default_threshold=3)("service")(echo)


@contextlib.asynccontextmanager
async def aiobreaker() -> AsyncIterator[Call]:
    """Its decorator."""
    from aiobreaker import CircuitBreaker  # noqa: PLC0415  a peer, if it is installed

    yield CircuitBreaker(fail_max=3)(echo)


@contextlib.asynccontextmanager
async def nopanic() -> AsyncIterator[Call]:
    """Its decorator."""
    from nopanic import circuit_breaker  # noqa: PLC0415  a peer, if it is installed

    yield circuit_breaker()(echo)


@contextlib.asynccontextmanager
async def pybreaker() -> AsyncIterator[Call]:
    """Its call of coroutines, which needs tornado."""
    import tornado  # noqa: F401, PLC0415  as it says
    from pybreaker import CircuitBreaker  # noqa: PLC0415  a peer, if it is installed

    breaker = CircuitBreaker(fail_max=3)
    yield lambda item: breaker.call_async(echo, item)


PEERS = (circuitbreaker, hyx, purgatory, aiobreaker, nopanic, pybreaker)


def calling(make: Callable[[], contextlib.AbstractAsyncContextManager[Call]], calls: int) -> float:
    """Return seconds a call."""
    seconds = 0.0

    async def run(count: int) -> None:
        nonlocal seconds
        async with make() as call:
            check(await call(7) == 7, "the call returns what the service did")
            begin = time.thread_time()
            for item in range(count):
                await call(item)
            seconds = (time.thread_time() - begin) / count

    run_timed(run, calls)
    return seconds


def line(items: int) -> float:
    """Return seconds an item through the line of a ladder."""

    async def run(count: int) -> None:
        async with SignalSink() as sink, PriorityProcessorAtom(1, echo, sink) as atom:
            for item in range(count):
                await atom.enqueue(item)
            await atom.drain()
            check(atom.total_completed == count, f"{atom.total_completed} of {count} items were processed")

    return run_timed(run, items)


async def failover() -> float:
    """Return seconds from the failure that trips the primary to the first item that starts on the backup."""
    failed_at = started_at = 0.0

    async def fail(item: int) -> None:
        nonlocal failed_at
        failed_at = time.perf_counter()
        raise ConnectionError

    async def take_over(item: int) -> None:
        nonlocal started_at
        started_at = started_at or time.perf_counter()

    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, fail, sink, failure_threshold=3, on_failed=lambda item, error: None) as primary,
        PriorityProcessorAtom(2, take_over, sink),
    ):
        for item in range(20):
            await primary.enqueue(item)
        await primary.drain()
    check(primary.total_completed == 17, f"{primary.total_completed} of 17 items reached the backup")
    return started_at - failed_at


def failovers(times: int) -> float:
    """Return the 99th percentile of many."""

    async def run() -> list[float]:
        return [await failover() for _ in range(times)]

    return statistics.quantiles(anyio.run(run), n=100)[98]


def measure(quick: bool) -> Result:
    """Run all cases, interleaved."""
    calls, times, rounds = (500, 20, 3) if quick else (20_000, 200, 9)
    ways = {"bare": bare, "signals": lambda: ladder(item_signals=True), "quiet": lambda: ladder(item_signals=False)}
    ways |= {peer.__name__: peer for peer in PEERS if is_there(peer.__name__)}
    cases = {name: lambda way=way: calling(way, calls) for name, way in ways.items()}
    took = interleaved({**cases, "line": lambda: line(calls), "failover": lambda: failovers(times)}, rounds)
    floor = took["bare"]

    def over(name: str) -> list[float]:
        return [(seconds - bare) * 1e6 for seconds, bare in zip(took[name], floor, strict=True)]

    peers = [peer.__name__ for peer in PEERS if peer.__name__ in took]
    rows = [
        Row("call on a healthy ladder, over a bare await", "µs", over("signals"), at_most(3)),
        Row("the same, item_signals=False", "µs", over("quiet")),
        *(
            Row(
                f"what {peer} adds / what that adds",
                "x",
                [a / b for a, b in zip(over(peer), over("quiet"), strict=True)],
                at_least(1),
            )
            for peer in peers
        ),
        Row("item through the line of a healthy ladder", "µs", [seconds * 1e6 for seconds in took["line"]]),
        Row(
            "failure to next item on the backup, p99", "ms", [seconds * 1e3 for seconds in took["failover"]], at_most(1)
        ),
    ]
    shown = {"ephemeral, two signals": over("signals"), "ephemeral, no signals": over("quiet")} | {
        peer: over(peer) for peer in peers
    }
    lines = {name: [(0.0, statistics.median(values))] for name, values in shown.items()}
    return Result(rows, [Chart("calls", "What a call costs over a bare await", "", "µs", lines)])
