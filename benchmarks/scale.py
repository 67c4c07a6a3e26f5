"""What a unit costs as its number grows: signals, keys, ladders, and workers that share one health.

A flat line is the promise; where one bends, docs/performance.md says why.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence

import bus
from jobs import done, keyed
from measuring import Chart, Result, Row, check, run_timed, timed

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis.server import RedisServer, find_program

POWERS = (1_000, 10_000, 100_000, 1_000_000)


def raising(size: int) -> float:
    """Return seconds a raise into a full window of *size*, what it trims meanwhile included."""
    sink = SignalSink(max_capacity=size)
    for number in range(size):
        sink.raise_signal(f"order.placed:{number % 50}")
    more = max(size, 20_000)
    seconds = timed(lambda: [sink.raise_signal(f"order.placed:{number % 50}") for number in range(more)])
    check(len(sink) == size, f"{len(sink)} of {size} signals are live")
    return seconds / more


def counting(size: int) -> float:
    """Return seconds a count of one scope, with one new signal before each, over *size* signals."""
    sink = SignalSink(max_capacity=size)
    for number in range(size):
        sink.raise_signal(f"order.placed:{number % 50}")
    check(sink.count_recent_in_scope("order.placed:7") == size // 50, "the scope holds a fiftieth")

    def ask() -> None:
        for _ in range(2_000):
            sink.raise_signal("order.placed:8")
            sink.count_recent_in_scope("order.placed:7", within=30.0)

    return timed(ask) / 2_000


def by_keys(keys: int) -> float:
    """Return seconds a job of a keyed coordinator, over so many keys."""
    return done(lambda jobs: keyed(keys, jobs), 100_000)


def by_ladders(count: int) -> float:
    """Return seconds a call, in turn through so many ladders on one sink."""

    async def echo(item: int) -> int:
        return item

    seconds = 0.0

    async def run(calls: int) -> None:
        nonlocal seconds
        async with contextlib.AsyncExitStack() as stack:
            sink = await stack.enter_async_context(SignalSink())
            atoms = [
                await stack.enter_async_context(PriorityProcessorAtom(1, echo, sink, group=f"g{number}"))
                for number in range(count)
            ]
            begin = time.thread_time()
            for number in range(calls):
                await atoms[number % count].call(number)
            seconds = (time.thread_time() - begin) / calls

    run_timed(run, 20_000)
    return seconds


def by_workers(count: int) -> float:
    """Return seconds from a failing call in one worker to the change of routing in another, among so many processes."""
    with RedisServer() as server:
        routes, _ = bus.routes(server, 60, others=count - 1, other_rate=1_000 // count)
    return statistics.median(routes) / 1000


SERIES: dict[str, tuple[str, Callable[[int], float], Sequence[int], str, float]] = {
    "a raise": ("signals in the window", raising, POWERS, "µs", 1e6),
    "a raise and a count": ("signals in the window", counting, POWERS, "µs", 1e6),
    "a keyed job": ("keys", by_keys, (1, 100, 10_000, 1_000_000), "µs", 1e6),
    "a call": ("ladders on one sink", by_ladders, (1, 4, 16, 64), "µs", 1e6),
    "failure in A to route in B": ("workers, 1 000 signals a second in all", by_workers, (1, 4, 16, 32), "ms", 1e3),
}


def measure(quick: bool) -> Result:
    """Run each series, its sizes in turn."""
    rows, charts = [], []
    for what, (x, case, every, unit, scale) in SERIES.items():
        if case is by_workers and find_program() is None:
            print(f"left out: {what}, no server is installed")
            continue
        sizes = every[:2] if quick else every
        rounds = 1 if quick or case is by_workers else 5
        found = {size: [case(size) * scale for _ in range(rounds)] for size in sizes}
        rows += [Row(f"{what}, {size:,} {x.split(',')[0]}", unit, values) for size, values in found.items()]
        points = [(float(size), statistics.median(values)) for size, values in found.items()]
        charts.append(Chart(f"scale-{what.replace(' ', '-').lower()}", f"What {what} costs", x, unit, {what: points}))
    return Result(rows, charts)
