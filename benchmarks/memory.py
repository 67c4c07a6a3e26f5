"""What is kept, in bytes: a signal in the window, a tracked operation, a coordinator that has nothing to do.

Each case in a process of its own, by how much its resident memory grows (Linux).
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from measuring import Result, Row, at_most, check

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, SignalSink


def resident() -> int:
    """Return the resident memory of this process, bytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def signals(count: int) -> int:
    """Fill a window with signals of one name."""
    sink = SignalSink(max_capacity=count)
    before = resident()
    for _ in range(count):
        sink.raise_signal("order.placed:eu")
    check(len(sink) == count, f"{len(sink)} of {count} signals are live")
    return resident() - before


def named_signals(count: int) -> int:
    """Fill a window with signals each of its own name, as a ladder's items have."""
    sink = SignalSink(max_capacity=count)
    before = resident()
    for number in range(count):
        sink.raise_signal(f"processing.complete:pri1:{number}")
    check(len(sink) == count, f"{len(sink)} of {count} signals are live")
    return resident() - before


def operations(count: int) -> int:
    """Fill a coordinator's window with operations that have ended."""

    async def nothing(item: int) -> None:
        pass

    async def run() -> int:
        options = EphemeralOptions(max_tracked_operations=count, max_concurrency=4)
        async with EphemeralWorkCoordinator(nothing, options) as work:
            await work.enqueue(0)
            before = resident()
            for item in range(count):
                await work.enqueue(item)
            work.complete()
            await work.drain()
            check(len(work.get_completed()) == count, f"{len(work.get_completed())} of {count} are tracked")
            return resident() - before

    return anyio.run(run)


def coordinators(count: int) -> int:
    """Enter many coordinators and leave them idle."""

    async def nothing(item: int) -> None:
        pass

    async def run() -> int:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(EphemeralWorkCoordinator(nothing))
            before = resident()
            made = [await stack.enter_async_context(EphemeralWorkCoordinator(nothing)) for _ in range(count)]
            await anyio.lowlevel.checkpoint()
            check(not any(work.active_count for work in made), "all are idle")
            return resident() - before

    return anyio.run(run)


CASES: dict[str, tuple[Callable[[int], int], int, str, float | None]] = {
    "a signal in the window": (signals, 200_000, "B", 250),
    "a signal in the window, each of its own name": (named_signals, 200_000, "B", 250),
    "a tracked operation": (operations, 200_000, "B", 600),
    "an idle coordinator": (coordinators, 1_000, "KiB", 20),
}


def measure(quick: bool) -> Result:
    """Run each case in processes of their own."""
    rounds = 1 if quick else 5
    rows = []
    for name, (_, count, unit, bound) in CASES.items():
        number = count // 20 if quick else count
        command = [sys.executable, __file__, name, str(number)]
        grown = [int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(rounds)]
        scale = number * (1024 if unit == "KiB" else 1)
        rows.append(Row(name, unit, [size / scale for size in grown], None if bound is None else at_most(bound)))
    return Result(rows)


if __name__ == "__main__":
    print(CASES[sys.argv[1]][0](int(sys.argv[2])))
