"""What a ladder adds to the work it moves, and how fast it turns away from a processor that fails.

    python benchmarks/ladder.py [--quick]

CPU time per item, two signals each included; wall time from a failure to the next item on the backup. Exits with 1
only if a result is wrong, never for being slow.
"""

from __future__ import annotations

import statistics
import time

import anyio
import measuring

from ephemeral import PriorityProcessorAtom, SignalSink


async def _echo(item: int) -> int:
    return item


async def _through_the_line(items: int) -> float:
    async with SignalSink() as sink, PriorityProcessorAtom(1, _echo, sink) as primary, \
            PriorityProcessorAtom(2, _echo, sink):  # fmt: skip
        begin = time.process_time()
        for item in range(items):
            await primary.enqueue(item)
        await primary.drain()
        seconds = time.process_time() - begin
        measuring.check(primary.total_completed == items, f"{primary.total_completed} of {items} items were processed")
        raised = sink.statistics().raised
        measuring.check(raised == 2 * items, f"{raised} signals for {items} items")
    return seconds / items * 1e6


async def _by_call(items: int) -> float:
    async with SignalSink() as sink, PriorityProcessorAtom(1, _echo, sink) as primary, \
            PriorityProcessorAtom(2, _echo, sink):  # fmt: skip
        begin = time.process_time()
        for item in range(items):
            await primary.call(item)
        seconds = time.process_time() - begin
        measuring.check(primary.total_completed == items, f"{primary.total_completed} of {items} items were processed")
    return seconds / items * 1e6


async def _bare(items: int) -> float:
    begin = time.process_time()
    for item in range(items):
        await _echo(item)
    return (time.process_time() - begin) / items * 1e6


async def _failover(times: int) -> float:
    """Return the median ms from the failure that trips the primary to the first item that starts on the backup."""
    failed_at = started_at = 0.0

    async def fail(item: int) -> None:
        nonlocal failed_at
        failed_at = time.perf_counter()
        raise ConnectionError

    async def take_over(item: int) -> None:
        nonlocal started_at
        started_at = started_at or time.perf_counter()

    took = []
    for _ in range(times):
        started_at = 0.0
        async with SignalSink() as sink, PriorityProcessorAtom(
                1, fail, sink, failure_threshold=3, on_failed=lambda item, error: None
        ) as primary, \
                PriorityProcessorAtom(2, take_over, sink):  # fmt: skip
            for item in range(20):
                await primary.enqueue(item)
            await primary.drain()
        measuring.check(primary.total_completed == 17, f"{primary.total_completed} of 17 items reached the backup")
        took.append((started_at - failed_at) * 1e3)
    return statistics.median(took)


def measure(quick: bool) -> list[measuring.Row]:
    """Run all cases, interleaved, and return a row for each."""
    items, rounds = (5_000, 5) if quick else (50_000, 9)
    took = measuring.interleaved(
        {
            "line": lambda: anyio.run(_through_the_line, items),
            "call": lambda: anyio.run(_by_call, items),
            "bare": lambda: anyio.run(_bare, items),
            "failover": lambda: anyio.run(_failover, 20),
        },
        rounds,
    )
    over = [call - bare for call, bare in zip(took["call"], took["bare"], strict=True)]
    return [
        measuring.Row("item through a healthy ladder, its two signals included", "µs", took["line"], "<= 10"),
        measuring.Row("call on a healthy ladder, over a bare await", "µs", over),
        measuring.Row("failure to next item on the backup", "ms", took["failover"], "< 1"),
    ]


if __name__ == "__main__":
    measuring.main(__doc__, measure)
