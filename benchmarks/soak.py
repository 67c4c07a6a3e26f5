"""Memory over two million operations under 200 000 keys: flat, or something is kept that should be forgotten.

    python benchmarks/soak.py [--quick]

Prints the resident memory after each tenth of a keyed, fair coordinator's run, bodies that wait, fail and emit signals
among them. Exits with 1 if operations are lost, or if the last tenth stands more than 5 % above the second.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import anyio
import anyio.lowlevel
from measuring import check

from ephemeral import EphemeralKeyedWorkCoordinator, EphemeralOptions, Operation, SignalSink

TENTHS = 10


def resident_mib() -> float:
    """Return the resident memory of this process, MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def body(item: int, op: Operation) -> None:
    """Mostly return at once; now and then wait, fail, or say something."""
    if item % 100 == 0:
        await anyio.lowlevel.checkpoint()
    if item % 1000 == 1:
        raise ValueError(item)
    if item % 10 == 2:
        op.emit(f"soak.said:{item % 7}")


async def soak(operations: int, keys: int) -> list[float]:
    """Run it and return the memory after each tenth."""
    options = EphemeralOptions(max_concurrency=16, enable_fair_scheduling=True, signals=SignalSink())
    memory = []
    async with EphemeralKeyedWorkCoordinator(lambda item: item % keys, body, options) as work:
        for tenth in range(TENTHS):
            begin = time.perf_counter()
            for item in range(tenth * operations // TENTHS, (tenth + 1) * operations // TENTHS):
                await work.enqueue(item)
            memory.append(resident_mib())
            rate = operations / TENTHS / (time.perf_counter() - begin)
            print(f"{(tenth + 1) * 10:>4} %  {memory[-1]:7.1f} MiB  {rate:9,.0f} operations/s", flush=True)
    check(work.total_enqueued == operations, f"{work.total_enqueued} of {operations} operations are counted")
    check(work.total_failed == operations // 1000, f"{work.total_failed} operations failed")
    return memory


def main() -> None:
    """Run the whole, or a fiftieth of it with ``--quick``."""
    operations, keys = (40_000, 4_000) if "--quick" in sys.argv else (2_000_000, 200_000)
    print(f"{operations:,} operations, {keys:,} keys")
    memory = anyio.run(soak, operations, keys)
    growth = memory[-1] / memory[1] - 1
    print(f"from the second tenth to the last: {growth:+.1%}")
    check(growth < 0.05, "memory grows")


if __name__ == "__main__":
    main()
