"""A ladder and threads: items that come from other threads, and processors that are plain functions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

from ephemeral import CoordinatorCompletedError, PriorityProcessorAtom, SignalSink

from .ladder_kit import Service, ladder


@pytest.mark.real_time
async def test_other_threads_may_enqueue() -> None:
    service = Service()
    async with ladder(service) as group:
        ids = [await anyio.to_thread.run_sync(group.first.enqueue_threadsafe, item) for item in "abc"]
        assert await group.first.drain(5.0)
        assert service.done == ["a", "b", "c"]
        assert sorted(set(ids)) == ids


@pytest.mark.real_time
async def test_a_thread_waits_for_room_and_is_refused_at_the_end() -> None:
    service = Service()
    outcomes: list[Any] = []

    def enqueue(item: str) -> None:
        try:
            group.first.enqueue_threadsafe(item)
            outcomes.append(item)
        except CoordinatorCompletedError as error:
            outcomes.append(error)

    async with ladder(service, max_pending=1, drain_timeout=0) as group:
        group.first.isolate()
        await group.enqueue("fills the line")
        threads = [threading.Thread(target=enqueue, args=(item,)) for item in ("second", "third")]
        threads[0].start()
        while not group.first._ladder.intake.producers:
            await anyio.lowlevel.checkpoint()
        group.first.reset_health()
        await group.first.drain()
        await anyio.to_thread.run_sync(threads[0].join)
        group.first.isolate()
        await group.enqueue("fills the line again")
        threads[1].start()
    await anyio.to_thread.run_sync(threads[1].join)
    assert outcomes[0] == "second"
    assert isinstance(outcomes[1], CoordinatorCompletedError)
    assert group.first.undelivered == ("fills the line again",)


async def test_the_loops_own_thread_may_not_block_itself() -> None:
    async with ladder(Service()) as group:
        with pytest.raises(RuntimeError, match="await enqueue"):
            group.first.enqueue_threadsafe("w")


async def test_before_its_block_no_thread_can_be_served() -> None:
    with pytest.raises(RuntimeError, match="has not started"):
        PriorityProcessorAtom(1, Service(), SignalSink()).enqueue_threadsafe("w")


async def test_after_the_end_a_thread_is_refused() -> None:
    async with ladder(Service()) as group:
        pass
    with pytest.raises(CoordinatorCompletedError):
        await anyio.to_thread.run_sync(group.first.enqueue_threadsafe, "w")


@pytest.mark.real_time
async def test_plain_functions_run_in_threads_within_their_slots() -> None:
    lock, running, most, threads = threading.Lock(), 0, 0, set[int]()
    both = threading.Barrier(2)

    def work(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            threads.add(threading.get_ident())
        both.wait(10.0)
        with lock:
            running -= 1
        return item * 2

    async with ladder(work, max_concurrency=2) as group, anyio.create_task_group() as tasks:
        tasks.start_soon(group.first.enqueue_many, range(5))
        assert await group.first.call(21) == 42
    assert group.statuses == {"completed": 6}
    assert most == 2
    assert threading.get_ident() not in threads


@pytest.mark.real_time
async def test_a_plain_function_that_hangs_keeps_nobody_from_the_backup() -> None:
    """It counts when its time is over, and takes no worker that others need."""
    release = threading.Event()
    backup = Service()

    def hangs(item: Any) -> None:
        release.wait(20.0)

    try:
        options: dict[str, Any] = {"timeout": 0.01, "failure_threshold": 3, "reroute_failed": True}
        async with ladder(hangs, backup, **options) as group, group.sink.listen("failover.requested*") as edges:
            await group.first.enqueue_many(range(10))
            async for _ in edges:
                break
            assert await group.first.drain(10.0)
            assert sorted(backup.done) == list(range(10))
            release.set()
    finally:
        release.set()


@pytest.mark.real_time
async def test_a_plain_function_that_outlasts_its_time_keeps_its_slot() -> None:
    release = threading.Event()
    lock, running, most = threading.Lock(), 0, 0

    def hangs(item: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        release.wait(20.0)
        with lock:
            running -= 1

    try:
        async with ladder(hangs, Service(), timeout=0.01, failure_threshold=99, max_concurrency=2) as group:
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await group.first.call("hangs")
            await group.enqueue("waits")
            with anyio.move_on_after(0.1):
                await group.first.call("waits too")
            assert most == 2
            release.set()
            assert await group.first.drain(10.0)
            assert most == 2
    finally:
        release.set()


async def test_two_that_run_out_of_time_at_once_are_both_handed_on() -> None:
    """Their own workers wait for the threads: others must be woken for both."""
    begun, release = threading.Semaphore(0), threading.Event()
    backup = Service()
    backup.close_gate()

    def hangs(item: Any) -> None:
        begun.release()
        release.wait(20.0)

    every = {"max_concurrency": 2, "failure_threshold": 9}
    try:
        async with ladder(hangs, backup, every=every, timeout=1.0, reroute_failed=True) as group:
            await group.enqueue("a", "b")
            assert begun.acquire(timeout=20.0)  # on the loop's thread: no virtual time passes meanwhile
            assert begun.acquire(timeout=20.0)
            await group.settle(1.0)
            assert sorted(backup.started) == ["a", "b"]
            backup.open_gate()
            release.set()
    finally:
        release.set()


async def test_a_plain_function_whose_time_is_over_before_it_began_never_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads are late on a busy machine: nobody may wait for one that has nothing to do any more."""
    ran: list[Any] = []
    late: list[Callable[[], Any]] = []

    async def no_thread_is_free(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        late.append(partial(function, *args))
        await anyio.sleep_forever()

    monkeypatch.setattr("anyio.to_thread.run_sync", no_thread_is_free)
    async with ladder(ran.append, timeout=1.0) as group:
        await group.enqueue("w")
        with pytest.raises(TimeoutError, match="no thread was free"):
            await group.first.call("v")
        assert group.statuses == {"failed": 2}
        for begin in late:
            begin()
        assert ran == []
        assert [atom._rung.active for atom in group.atoms] == [0]


@pytest.mark.real_time
async def test_a_plain_function_that_outlasts_the_cut_has_done_its_item(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def plain(item: str) -> None:
        may_end.wait(20)

    async with ladder(plain, drain_timeout=0.01) as group:
        await group.enqueue("w")
        cut_off = group.first._ladder._cut_off
        monkeypatch.setattr(group.first._ladder, "_cut_off", lambda: (cut_off(), may_end.set()))
    assert group.statuses == {"completed": 1}
    assert group.first.undelivered == ()
