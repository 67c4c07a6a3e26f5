"""Coordinators that are asked to drain: which, when, once and at once; and signals that come from afar."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ephemeral import (
    CoordinatorCompletedError,
    EphemeralOptions,
    EphemeralWorkCoordinator,
    Operation,
    SignalEvent,
    SignalSink,
)
from ephemeral._reactions import Verdict
from ephemeral.testing import MemoryBus, wait_all_blocked

from .work_kit import Gates, Work, settle, working


async def nothing(item: Any) -> None: ...


def coordinator(sink: SignalSink, body: Any = nothing, **options: Any) -> Work:
    return EphemeralWorkCoordinator[Any](body, EphemeralOptions(signals=sink, **options))


REQUESTS: list[tuple[str, Callable[[SignalSink], object], str | None, bool]] = [
    ("all", lambda sink: sink.request_drain_all(), None, True),
    ("all, with an id", lambda sink: sink.request_drain_all(), "mail", True),
    ("its id", lambda sink: sink.request_drain("mail"), "mail", True),
    ("another id", lambda sink: sink.request_drain("web"), "mail", False),
    ("an id, without one", lambda sink: sink.request_drain("mail"), None, False),
    ("its pattern", lambda sink: sink.request_drain_pattern("m*"), "mail", True),
    ("another pattern", lambda sink: sink.request_drain_pattern("w*"), "mail", False),
    ("a pattern, without an id", lambda sink: sink.request_drain_pattern("*"), None, False),
    ("the bare signal", lambda sink: sink.raise_signal("coordinator.drain.all"), None, True),
    ("a broken pattern", lambda sink: sink.raise_signal("coordinator.drain.pattern", ",,"), "mail", False),
]


@pytest.mark.parametrize(("case", "ask", "name", "heeded"), REQUESTS, ids=[case[0] for case in REQUESTS])
async def test_who_is_asked_drains(
    case: str, ask: Callable[[SignalSink], object], name: str | None, heeded: bool
) -> None:
    sink, gates = SignalSink(), Gates()
    async with coordinator(sink, gates, coordinator_id=name, max_concurrency=1) as work:
        await work.enqueue_many(["runs", "waits"])
        await settle(work)
        ask(sink)
        assert work.is_completed is heeded
        assert work.try_enqueue("late") is not heeded
        gates.open()
        await settle(work)
        assert work.is_drained is heeded
        assert gates.started == ["runs", "waits"] + ([] if heeded else ["late"])
    assert sink.statistics().listener_errors == 0


async def test_an_idle_coordinator_drains_at_once() -> None:
    sink, drained = SignalSink(), []

    async def wait(work: Work) -> None:
        work.complete()
        drained.append(await work.drain())

    async with coordinator(sink) as work, anyio.create_task_group() as tasks:
        await settle(work)
        sink.request_drain_all()
        assert work.is_completed
        tasks.start_soon(wait, work)
        await settle(work)
        assert drained == [True]


async def test_a_request_wakes_whoever_waits_for_the_end() -> None:
    sink, gates = SignalSink(), Gates()
    async with coordinator(sink, gates, max_concurrency=1, max_pending=1) as work, anyio.create_task_group() as tasks:
        refused: list[str] = []

        async def enqueue() -> None:
            with pytest.raises(CoordinatorCompletedError):
                await work.enqueue("for want of room")
            refused.append("refused")

        await work.enqueue("runs")
        await settle(work)
        await work.enqueue("waits")
        tasks.start_soon(enqueue)
        await settle(work)
        sink.request_drain_all()
        await settle(work)
        assert refused == ["refused"]
        gates.open()
    assert gates.started == ["runs", "waits"]


async def test_a_paused_coordinator_resumes_to_drain() -> None:
    sink, gates = SignalSink(), Gates()
    gates.open()
    async with coordinator(sink, gates) as work:
        work.pause()
        await work.enqueue("a")
        sink.request_drain_all()
        await settle(work)
        assert (work.is_paused, work.is_drained, gates.started) == (False, True, ["a"])
        work.pause()
        assert not work.is_paused


async def test_a_request_older_than_the_coordinator_is_ignored() -> None:
    now = 1000.0
    sink = SignalSink(clock=lambda: now)
    sink.request_drain_all()
    async with coordinator(sink) as work:
        await settle(work)
        assert not work.is_completed
        sink.raise_signal(SignalEvent("coordinator.drain.all", timestamp=999.9))
        await settle(work)
        assert not work.is_completed
        sink.raise_signal(SignalEvent("coordinator.drain.all", timestamp=1000.0))
        assert work.is_completed


async def test_a_request_before_the_start_is_heeded() -> None:
    sink, gates = SignalSink(max_capacity=1), Gates()
    gates.open()
    work = coordinator(sink, gates)
    await work.enqueue("a")
    sink.request_drain_all()
    sink.raise_signal("this pushes it out")
    assert work.is_completed
    with pytest.raises(CoordinatorCompletedError):
        await work.enqueue("late")
    async with work:
        await settle(work)
        assert (work.is_drained, gates.started) == (True, ["a"])


async def test_a_request_that_is_cleared_has_been_heeded() -> None:
    sink = SignalSink()
    async with coordinator(sink) as work:
        sink.request_drain_all()
        sink.clear()
        await settle(work)
        assert work.is_completed


async def test_requests_come_once() -> None:
    sink = SignalSink()
    async with coordinator(sink) as work:
        for _ in range(3):
            sink.request_drain_all()
            await settle(work)
        assert work.is_drained
    sink.request_drain_all()
    assert sink.statistics().listeners == 0


@pytest.mark.parametrize("pattern", [None, (), "shutdown.*"])
async def test_other_signals_may_mean_it_or_none(pattern: Any) -> None:
    sink = SignalSink()
    async with coordinator(sink, drain_on_signals=pattern) as work:
        sink.request_drain_all()
        assert not work.is_completed
        sink.raise_signal("shutdown.now")
        assert work.is_completed is (pattern == "shutdown.*")


@pytest.mark.parametrize("with_sink", [False, True])
async def test_an_operation_may_ask_for_the_end_of_its_own_coordinator(with_sink: bool) -> None:
    async def body(item: str, op: Operation) -> None:
        op.emit("coordinator.drain.all")

    async with working(body, **({"signals": SignalSink()} if with_sink else {})) as work:
        await work.enqueue("a")
        await settle(work)
        assert work.is_drained


async def test_a_request_does_not_wait_for_held_items_longer_than_a_hold() -> None:
    sink, gates = SignalSink(clock=anyio.current_time), Gates()
    gates.open()
    async with coordinator(sink, gates, defer_on_signals="slow") as work:
        sink.raise_signal("slow")
        await work.enqueue("a")
        await anyio.sleep(0.5)
        sink.request_drain_all()
        sink.raise_signal("slow")
        await settle(work)
        assert not work.is_drained
        await anyio.sleep(0.5)
        await settle(work)
        assert work.is_drained


# From afar

REACTS = {"cancel_on_signals": "stop", "defer_on_signals": "slow", "resume_on_signals": "fast"}


@asynccontextmanager
async def two_sinks() -> AsyncGenerator[tuple[SignalSink, SignalSink]]:
    async with MemoryBus(delay=0.125) as bus:
        clock = anyio.current_time
        async with (
            SignalSink(backend=bus.backend(), clock=clock) as here,
            SignalSink(backend=bus.backend(), clock=clock) as there,
        ):
            yield here, there


async def test_signals_of_other_workers_hold_release_and_cancel() -> None:
    gates = Gates()
    gates.open()
    async with two_sinks() as (here, there), coordinator(here, gates, **REACTS) as work:
        there.raise_signal("slow")
        await anyio.sleep(0.2)
        await work.enqueue("held")
        await settle(work)
        assert gates.started == []
        there.raise_signal("fast")
        await anyio.sleep(0.126)
        await settle(work)
        assert gates.started == ["held"]
        there.raise_signal("stop")
        await anyio.sleep(0.126)
        await work.enqueue("skipped")
        await settle(work)
        assert (gates.started, work.total_skipped) == (["held"], 1)


async def test_a_hold_counts_from_the_stamp_of_another_worker() -> None:
    gates = Gates()
    gates.open()
    async with two_sinks() as (here, there), coordinator(here, gates, **REACTS) as work:
        there.raise_signal("slow")
        await anyio.sleep(0.2)
        await work.enqueue("held")
        await anyio.sleep(0.79)
        await settle(work)
        assert gates.started == []
        await anyio.sleep(0.02)
        await settle(work)
        assert gates.started == ["held"]


async def test_a_request_to_the_fleet_reaches_other_workers_and_one_to_this_process_does_not() -> None:
    async with two_sinks() as (here, there), coordinator(here) as work, coordinator(there) as other:
        there.request_drain_all()
        await anyio.sleep(1)
        await settle(work)
        assert (work.is_completed, other.is_completed) == (False, True)
        there.request_drain_all(fleet=True)
        await anyio.sleep(0.126)
        await settle(work)
        assert work.is_drained


async def test_a_request_from_before_the_coordinator_that_arrives_late_is_ignored() -> None:
    async with two_sinks() as (here, there):
        there.request_drain_all(fleet=True)
        await anyio.sleep(0.1)
        async with coordinator(here) as work:
            await anyio.sleep(1)
            assert here.detect("coordinator.drain.all")
            assert not work.is_completed


# From other threads, and from signal handlers


@pytest.mark.real_time
async def test_signals_of_threads_wake_the_loop() -> None:
    sink, gates = SignalSink(), Gates()
    gates.open()
    started = anyio.Event()

    async def body(item: Any) -> None:
        started.set()

    async with coordinator(sink, body, max_defer_attempts=1000, defer_check_interval=10, **REACTS) as work:
        await anyio.to_thread.run_sync(sink.raise_signal, "slow")
        await work.enqueue("held")
        await wait_all_blocked()
        assert not started.is_set()
        await anyio.to_thread.run_sync(sink.raise_signal, "fast")
        with anyio.fail_after(5):
            await started.wait()
        thread = threading.Thread(target=sink.request_drain_all)
        thread.start()
        thread.join()
        assert work.is_completed
        with anyio.fail_after(5):
            assert await work.drain()


@pytest.mark.real_time
async def test_a_thread_that_clears_ends_a_hold() -> None:
    sink, started = SignalSink(), anyio.Event()

    async def body(item: Any) -> None:
        started.set()

    async with coordinator(sink, body, max_defer_attempts=1000, defer_check_interval=10, **REACTS) as work:
        sink.raise_signal("slow")
        await work.enqueue("held")
        await wait_all_blocked()
        await anyio.to_thread.run_sync(sink.clear)
        with anyio.fail_after(5):
            await started.wait()


@pytest.mark.real_time
async def test_raises_and_clears_of_many_threads_leave_the_last_word_in_force() -> None:
    sink = SignalSink(max_capacity=50)

    def trouble() -> None:
        for number in range(300):
            sink.raise_signal(("stop", "slow", "fast", "other")[number % 4])
            if number % 7 == 0:
                sink.clear_pattern("stop, slow")

    async with coordinator(sink, nothing, max_defer_attempts=1000, defer_check_interval=10, **REACTS) as work:
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(anyio.to_thread.run_sync, trouble)
            for item in range(200):
                await work.enqueue(item)
        sink.clear()
        with anyio.fail_after(5):
            work.complete()
            assert await work.drain()
        assert work.total_completed + work.total_skipped == 200
        assert sink.statistics().listener_errors == 0


@pytest.mark.real_time
@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="the platform has no signal for users")
async def test_a_signal_handler_may_ask_in_the_middle_of_anything() -> None:
    sink = SignalSink()
    before = signal.signal(signal.SIGUSR1, lambda *_: sink.request_drain_all())
    try:
        async with coordinator(sink, max_pending=100_000) as work:
            with pytest.raises(CoordinatorCompletedError):  # noqa: PT012  at which of them it comes is not known
                for item in range(100_000):
                    if item == 500:
                        os.kill(os.getpid(), signal.SIGUSR1)
                    await work.enqueue(item)
            assert await work.drain()
            assert work.total_completed == work.total_enqueued >= 500
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_what_a_bus_has_brought_into_the_window_is_known_before_the_loop_has_its_turn() -> None:
    heard: list[SignalEvent] = []
    async with two_sinks() as (here, there), coordinator(here, **REACTS) as work:
        here.subscribe(heard.append)
        assert here._bus is not None
        here._bus.receive([("slow", 0, None, here.now(), None, None, there.origin)])
        assert here.detect("slow")
        assert work._steering.verdict() is Verdict.HOLD
        assert heard == []
        await settle(work)
        assert [event.signal for event in heard] == ["slow"]


async def test_a_listener_that_subscribed_before_the_coordinator_finds_it_told() -> None:
    sink, taken = SignalSink(), []
    sink.subscribe(lambda event: taken.append(work.try_enqueue("late")), "coordinator.drain.all")
    async with coordinator(sink) as work:
        sink.request_drain_all()
        assert taken == [False]
