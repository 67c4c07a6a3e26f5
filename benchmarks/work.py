"""What bounded, tracked work costs, beside ``asyncio.Queue`` and workers, which bound it too and track nothing.

    python benchmarks/work.py [--quick]

100 000 trivial jobs, 16 at a time, CPU time. Exits with 1 only if a result is wrong, never for being slow.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import copy_context

import anyio
import measuring

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator

CONCURRENCY = 16
BOUND = 1000


async def _nothing(item: int) -> None:
    pass


async def _one_turn(item: int) -> None:
    await asyncio.sleep(0)


async def _queue(jobs: int, body) -> float:
    queue: asyncio.Queue[int] = asyncio.Queue(BOUND)
    done = 0

    async def work() -> None:
        nonlocal done
        while True:
            await body(await queue.get())
            done += 1
            queue.task_done()

    workers = [asyncio.create_task(work()) for _ in range(CONCURRENCY)]
    begin = time.process_time()
    for item in range(jobs):
        await queue.put(item)
    await queue.join()
    seconds = time.process_time() - begin
    for worker in workers:
        worker.cancel()
    measuring.check(done == jobs, f"the queue's workers did {done} of {jobs} jobs")
    return seconds / jobs


async def _queue_with_contexts(jobs: int, body) -> float:
    """The same with one of our promises kept: each job runs in a copy of its producer's context, in a task of it."""
    queue: asyncio.Queue[tuple] = asyncio.Queue(BOUND)
    done = 0
    loop = asyncio.get_running_loop()

    async def work() -> None:
        nonlocal done
        while True:
            item, context = await queue.get()
            await loop.create_task(body(item), context=context)
            done += 1
            queue.task_done()

    workers = [asyncio.create_task(work()) for _ in range(CONCURRENCY)]
    begin = time.process_time()
    for item in range(jobs):
        await queue.put((item, copy_context()))
    await queue.join()
    seconds = time.process_time() - begin
    for worker in workers:
        worker.cancel()
    measuring.check(done == jobs, f"the queue's workers did {done} of {jobs} jobs")
    return seconds / jobs


async def _coordinator(jobs: int, body) -> float:
    async with EphemeralWorkCoordinator(body, EphemeralOptions(max_concurrency=CONCURRENCY, max_pending=BOUND)) as work:
        begin = time.process_time()
        for item in range(jobs):
            await work.enqueue(item)
        work.complete()
        await work.drain()
        seconds = time.process_time() - begin
    measuring.check(work.total_completed == jobs, f"the coordinator did {work.total_completed} of {jobs} jobs")
    measuring.check(len(work.get_snapshot()) == 200, "the coordinator remembers 200 jobs")
    return seconds / jobs


def measure(quick: bool) -> list[measuring.Row]:
    """Run all cases, interleaved, and return a row for each."""
    jobs, rounds = (20_000, 5) if quick else (100_000, 9)
    cases = {
        f"{way.__name__}{body.__name__}": lambda way=way, body=body: anyio.run(way, jobs, body)
        for body in (_nothing, _one_turn)
        for way in (_queue, _queue_with_contexts, _coordinator)
    }
    took = measuring.interleaved(cases, rounds)
    rows = []
    for body, name in ((_nothing, "no-op jobs"), (_one_turn, "jobs of one turn")):
        ours, bare = took[f"_coordinator{body.__name__}"], took[f"_queue{body.__name__}"]
        with_contexts = took[f"_queue_with_contexts{body.__name__}"]
        goal = ">= 0.4" if body is _nothing else "-"
        rows += [
            measuring.Row(f"{name}: coordinator", "µs", [seconds * 1e6 for seconds in ours]),
            measuring.Row(f"{name}: rate / bare asyncio.Queue", "x", measuring.ratios(bare, ours), goal),
            measuring.Row(
                f"{name}: rate / asyncio.Queue, a context per job", "x", measuring.ratios(with_contexts, ours)
            ),
        ]
    return rows


if __name__ == "__main__":
    measuring.main(__doc__, measure)
