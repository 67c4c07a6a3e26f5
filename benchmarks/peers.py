"""100 000 trivial jobs, 16 at a time: ours beside what others use for bounded work, in one run.

    python benchmarks/peers.py [--quick] [--into docs/comparison.md]
    pip install aiojobs asyncio-pool aiometer trio        what is not installed is named and left out

CPU time and peak memory, each case in a process of its own, rounds of all cases in turn. Only ours remember what ran.
Exits with 1 only if a result is wrong, never for being slow.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import measuring

from ephemeral import (
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
)

CONCURRENCY, BOUND = 16, 1000
done = 0


async def nothing(item: int) -> None:
    global done  # noqa: PLW0603  the cheapest way to see that every job ran
    done += 1


async def queue(jobs: int) -> None:
    waiting: asyncio.Queue[int] = asyncio.Queue(BOUND)

    async def work() -> None:
        while True:
            await nothing(await waiting.get())
            waiting.task_done()

    workers = [asyncio.create_task(work()) for _ in range(CONCURRENCY)]
    for item in range(jobs):
        await waiting.put(item)
    await waiting.join()
    for worker in workers:
        worker.cancel()


async def trio_channel(jobs: int) -> None:
    import trio  # noqa: PLC0415  only where it runs

    send, receive = trio.open_memory_channel[int](BOUND)

    async def work(jobs: trio.MemoryReceiveChannel[int]) -> None:
        async for item in jobs:
            await nothing(item)

    async with trio.open_nursery() as nursery:
        for _ in range(CONCURRENCY):
            nursery.start_soon(work, receive.clone())
        receive.close()
        async with send:
            for item in range(jobs):
                await send.send(item)


async def limiter(jobs: int) -> None:
    """anyio's CapacityLimiter, taken before a task is started."""
    bound = anyio.CapacityLimiter(CONCURRENCY)

    async def run(item: int) -> None:
        try:
            await nothing(item)
        finally:
            bound.release_on_behalf_of(item)

    async with anyio.create_task_group() as group:
        for item in range(jobs):
            await bound.acquire_on_behalf_of(item)
            group.start_soon(run, item)


async def aiojobs_scheduler(jobs: int) -> None:
    import aiojobs  # noqa: PLC0415  a peer, if it is installed

    async with aiojobs.Scheduler(limit=CONCURRENCY, pending_limit=BOUND) as scheduler:
        for item in range(jobs):
            await scheduler.spawn(nothing(item))
        await scheduler.wait_and_close(timeout=60)


async def asyncio_pool(jobs: int) -> None:
    from asyncio_pool import AioPool  # noqa: PLC0415  a peer, if it is installed

    async with AioPool(size=CONCURRENCY) as pool:
        for item in range(jobs):
            await pool.spawn(nothing(item))


async def aiometer_run(jobs: int) -> None:
    import aiometer  # noqa: PLC0415  a peer, if it is installed

    await aiometer.run_on_each(nothing, list(range(jobs)), max_at_once=CONCURRENCY)


async def ours(make: Callable[[EphemeralOptions], EphemeralWorkCoordinator[int]], jobs: int) -> None:
    async with make(EphemeralOptions(max_concurrency=CONCURRENCY, max_pending=BOUND)) as coordinator:
        for item in range(jobs):
            await coordinator.enqueue(item)


work = partial(ours, lambda options: EphemeralWorkCoordinator(nothing, options))
result = partial(ours, lambda options: EphemeralResultCoordinator(nothing, options))
keyed = partial(ours, lambda options: EphemeralKeyedWorkCoordinator(lambda item: item % 1000, nothing, options))

CASES: dict[str, tuple[str, str, Callable[[int], Awaitable[None]]]] = {
    "asyncio.Queue and workers, bare": ("asyncio", "asyncio", queue),
    "ours: work": ("asyncio", "asyncio", work),
    "ours: result": ("asyncio", "asyncio", result),
    "ours: keyed, 1 000 keys": ("asyncio", "asyncio", keyed),
    "aiojobs": ("asyncio", "aiojobs", aiojobs_scheduler),
    "asyncio-pool": ("asyncio", "asyncio_pool", asyncio_pool),
    "aiometer": ("asyncio", "aiometer", aiometer_run),
    "anyio.CapacityLimiter": ("asyncio", "anyio", limiter),
    "trio: memory channel and workers": ("trio", "trio", trio_channel),
    "trio: ours, work": ("trio", "trio", work),
}


def run_case(name: str, jobs: int) -> None:
    """Run one case in this process and print its CPU seconds and peak MiB."""
    backend, _, case = CASES[name]
    begin = time.process_time()
    anyio.run(case, jobs, backend=backend)
    seconds = time.process_time() - begin
    measuring.check(done == jobs, f"{name} did {done} of {jobs} jobs")
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure(quick: bool) -> list[measuring.Row]:
    """Run every case in processes of their own, interleaved, and return a row for each."""
    jobs, rounds = (5_000, 3) if quick else (100_000, 7)
    took: dict[str, list[float]] = {}
    memory: dict[str, float] = {}
    for name, (_, module, _) in CASES.items():
        if importlib.util.find_spec(module) is None:
            print(f"{name}: left out, {module} is not installed")
    for _ in range(rounds):
        for name, (_, module, _) in CASES.items():
            if importlib.util.find_spec(module) is not None:
                command = [sys.executable, __file__, "--case", name, "--jobs", str(jobs)]
                answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                took.setdefault(name, []).append(float(answer[0]))
                memory[name] = float(answer[1])
    rows = []
    for name, seconds in took.items():
        bare = took[
            "trio: memory channel and workers" if name.startswith("trio") else "asyncio.Queue and workers, bare"
        ]
        what = f"{name} ({memory[name]:.0f} MiB)"
        rows.append(measuring.Row(what, "x", measuring.ratios(bare, seconds), GOALS.get(name, "-")))
    return rows


GOALS = {
    "ours: work": ">= 0.45",
    "ours: result": ">= 0.4",
    "ours: keyed, 1 000 keys": ">= 0.3",
    "trio: ours, work": ">= 0.8",
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--case")
    parser.add_argument("--jobs", type=int)
    chosen, _ = parser.parse_known_args()
    if chosen.case is None:
        measuring.main(__doc__, measure)
    else:
        run_case(chosen.case, chosen.jobs)
