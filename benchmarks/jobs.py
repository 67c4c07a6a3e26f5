"""100 000 trivial jobs, 16 at a time: bounded, tracked work beside what others use for bounded work.

Only ours remember what ran. Processor time of the whole process, the loop's start and end excluded; a peer that takes
longer than 50 µs a job is given a tenth of the jobs. Which keys jobs have is the other half: in order within a key.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

import anyio
from measuring import Measure, Result, Row, at_least, bars, check, interleaved, is_there, ratios, run_timed

from ephemeral import (
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
)

CONCURRENCY, BOUND = 16, 1000
Job = Callable[[int], Awaitable[None]]


class Tally:
    """How many jobs were done; the cheapest way to see that each was."""

    done = 0


async def nothing(item: int) -> None:
    """Be a job that never waits."""
    Tally.done += 1


async def one_turn(item: int) -> None:
    """Be a job that waits for one turn of asyncio's loop."""
    await asyncio.sleep(0)
    Tally.done += 1


async def one_turn_of_any(item: int) -> None:
    """Be a job that waits for one turn of whichever loop runs it."""
    await anyio.lowlevel.cancel_shielded_checkpoint()
    Tally.done += 1


# Work without keys


async def queue(job: Job, jobs: int) -> None:
    """``asyncio.Queue`` and workers, which remember nothing."""
    waiting: asyncio.Queue[int] = asyncio.Queue(BOUND)

    async def work() -> None:
        while True:
            await job(await waiting.get())
            waiting.task_done()

    workers = [asyncio.create_task(work()) for _ in range(CONCURRENCY)]
    for item in range(jobs):
        await waiting.put(item)
    await waiting.join()
    for worker in workers:
        worker.cancel()


async def queue_with_contexts(job: Job, jobs: int) -> None:
    """The same with one of our promises kept: each job runs in a copy of its producer's context."""
    waiting: asyncio.Queue[Any] = asyncio.Queue(BOUND)
    loop = asyncio.get_running_loop()

    async def work() -> None:
        while True:
            item, context = await waiting.get()
            await loop.create_task(job(item), context=context)
            waiting.task_done()

    workers = [asyncio.create_task(work()) for _ in range(CONCURRENCY)]
    for item in range(jobs):
        await waiting.put((item, copy_context()))
    await waiting.join()
    for worker in workers:
        worker.cancel()


async def channel(job: Job, jobs: int) -> None:
    """trio's memory channel and workers."""
    import trio  # noqa: PLC0415  a peer, if it is installed

    send, receive = trio.open_memory_channel[int](BOUND)

    async def work(items: trio.MemoryReceiveChannel[int]) -> None:
        async for item in items:
            await job(item)

    async with trio.open_nursery() as nursery:
        for _ in range(CONCURRENCY):
            nursery.start_soon(work, receive.clone())
        receive.close()
        async with send:
            for item in range(jobs):
                await send.send(item)


async def limiter(job: Job, jobs: int) -> None:
    """anyio's CapacityLimiter, taken before a task is started."""
    bound = anyio.CapacityLimiter(CONCURRENCY)

    async def run(item: int) -> None:
        try:
            await job(item)
        finally:
            bound.release_on_behalf_of(item)

    async with anyio.create_task_group() as group:
        for item in range(jobs):
            await bound.acquire_on_behalf_of(item)
            group.start_soon(run, item)


async def aiojobs(job: Job, jobs: int) -> None:
    """aiojobs' scheduler."""
    from aiojobs import Scheduler  # noqa: PLC0415  a peer, if it is installed

    async with Scheduler(limit=CONCURRENCY, pending_limit=BOUND) as scheduler:
        for item in range(jobs):
            await scheduler.spawn(job(item))
        await scheduler.wait_and_close(timeout=60)


async def asyncio_pool(job: Job, jobs: int) -> None:
    """asyncio-pool."""
    from asyncio_pool import AioPool  # noqa: PLC0415  a peer, if it is installed

    async with AioPool(size=CONCURRENCY) as pool:
        for item in range(jobs):
            await pool.spawn(job(item))


async def aiometer(job: Job, jobs: int) -> None:
    """aiometer."""
    from aiometer import run_on_each  # noqa: PLC0415  a peer, if it is installed

    await run_on_each(job, list(range(jobs)), max_at_once=CONCURRENCY)


async def aiostream(job: Job, jobs: int) -> None:
    """aiostream's map."""
    from aiostream import pipe, stream  # noqa: PLC0415  a peer, if it is installed

    await (stream.iterate(range(jobs)) | pipe.map(job, task_limit=CONCURRENCY, ordered=False))


async def work(job: Job, jobs: int) -> None:
    """Our coordinator of work."""
    await ours(EphemeralWorkCoordinator(job, options()), jobs)


async def result(job: Job, jobs: int) -> None:
    """Our coordinator of results."""
    await ours(EphemeralResultCoordinator(job, options()), jobs)


async def ours(coordinator: Any, jobs: int) -> None:
    """Have any of our coordinators do all jobs."""
    async with coordinator:
        for item in range(jobs):
            await coordinator.enqueue(item)
    check(coordinator.total_completed == jobs, f"{coordinator.total_completed} of {jobs} jobs are counted")
    check(len(coordinator.get_snapshot()) == min(jobs, 200), "the coordinator remembers the last 200 jobs")


def options() -> EphemeralOptions:
    """Return the bounds that all cases have."""
    return EphemeralOptions(max_concurrency=CONCURRENCY, max_pending=BOUND)


class Way(NamedTuple):
    """One way to do jobs."""

    run: Callable[[Job, int], Awaitable[None]]
    needs: str = "asyncio"
    backend: str = "asyncio"
    is_slow: bool = False


WAYS = {
    "asyncio.Queue and workers": Way(queue),
    "the same, a context a job": Way(queue_with_contexts),
    "ephemeral": Way(work),
    "ephemeral, results": Way(result),
    "asyncio-pool": Way(asyncio_pool, "asyncio_pool"),
    "aiojobs": Way(aiojobs, "aiojobs"),
    "anyio, CapacityLimiter": Way(limiter, is_slow=True),
    "aiometer": Way(aiometer, "aiometer", is_slow=True),
    "aiostream": Way(aiostream, "aiostream", is_slow=True),
    "trio, memory channel": Way(channel, "trio", "trio"),
    "ephemeral on trio": Way(work, "trio", "trio"),
}


def done(run: Callable[[int], Awaitable[None]], jobs: int, backend: str = "asyncio") -> float:
    """Return seconds a job, once all are seen to be done."""
    Tally.done = 0
    seconds = run_timed(run, jobs, backend)
    check(Tally.done == jobs, f"{Tally.done} of {jobs} jobs were done")
    return seconds


def cases(jobs: int, *, waits: bool) -> dict[str, Measure]:
    """Return each way that can be tried here."""
    found: dict[str, Measure] = {}
    for name, way in WAYS.items():
        if is_there(way.needs):
            job = nothing if not waits else one_turn if way.backend == "asyncio" else one_turn_of_any
            count = jobs // 10 if way.is_slow else jobs
            found[name] = partial(done, partial(way.run, job), count, way.backend)
    return found


# Work with keys


async def locks(keys: int, jobs: int) -> None:
    """The queue and its workers, with a lock per key."""
    held: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def job(item: int) -> None:
        async with held[item % keys]:
            await nothing(item)

    await queue(job, jobs)


async def aiojobs_with_locks(keys: int, jobs: int) -> None:
    """aiojobs, with a lock per key."""
    held: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def job(item: int) -> None:
        async with held[item % keys]:
            await nothing(item)

    await aiojobs(job, jobs)


async def keyed(keys: int, jobs: int) -> None:
    """Our keyed coordinator."""
    await ours(EphemeralKeyedWorkCoordinator(lambda item: item % keys, nothing, options()), jobs)


def keyed_cases(jobs: int, keys: int) -> dict[str, Measure]:
    """Return each way to keep order within a key."""
    found: dict[str, Measure] = {"ephemeral": partial(done, partial(keyed, keys), jobs)}
    found["asyncio.Queue, a lock per key"] = partial(done, partial(locks, keys), jobs)
    if is_there("aiojobs"):
        found["aiojobs, a lock per key"] = partial(done, partial(aiojobs_with_locks, keys), jobs)
    return found


def measure(quick: bool) -> Result:
    """Run all cases, interleaved."""
    jobs, rounds = (2_000, 3) if quick else (100_000, 5)
    rows, charts = [], []
    for label, waits in (("no-op", False), ("one turn", True)):
        took = interleaved(cases(jobs, waits=waits), rounds)
        rows += job_rows(label, took)
        charts.append(
            bars(f"jobs-{label.replace(' ', '-')}", f"A {label} job, 16 at a time", took, unit="µs", scale=1e6)
        )
    for keys in (10, 10_000):
        took = interleaved(keyed_cases(jobs, keys), rounds)
        for peer in [name for name in took if name != "ephemeral"]:
            what = f"keyed, {keys:,} keys: rate / {peer}'s"
            rows.append(Row(what, "x", ratios(took[peer], took["ephemeral"]), at_least(1)))
        charts.append(bars(f"keyed-{keys}", f"A no-op job under one of {keys:,} keys", took, unit="µs", scale=1e6))
    return Result(rows, charts)


def job_rows(label: str, took: dict[str, list[float]]) -> list[Row]:
    """Return our rate beside those of the others."""
    work, result = took["ephemeral"], took["ephemeral, results"]
    bare, fair = took["asyncio.Queue and workers"], took["the same, a context a job"]
    libraries = [
        name for name in took if name in ("asyncio-pool", "aiojobs", "anyio, CapacityLimiter", "aiometer", "aiostream")
    ]
    rows = [
        Row(f"{label} jobs: ours", "µs", [seconds * 1e6 for seconds in work]),
        Row(f"{label} jobs: rate / bare asyncio.Queue's", "x", ratios(bare, work), at_least(0.55)),
        Row(f"{label} jobs: rate / the queue's, a context a job", "x", ratios(fair, work), at_least(1)),
        Row(f"{label} jobs: rate with results / bare asyncio.Queue's", "x", ratios(bare, result)),
    ]
    if libraries:
        best = [min(seconds) for seconds in zip(*(took[name] for name in libraries), strict=True)]
        rows.append(Row(f"{label} jobs: rate / the best library's", "x", ratios(best, work), at_least(2.5)))
    if "ephemeral on trio" in took:
        on_trio = ratios(took["trio, memory channel"], took["ephemeral on trio"])
        rows.append(Row(f"{label} jobs: rate on trio / its memory channel's", "x", on_trio))
    return rows
