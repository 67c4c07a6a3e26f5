"""How a group ends: as one, in time, with nothing lost."""

from __future__ import annotations

import contextlib
import logging
import math
from typing import Any

import anyio
import pytest
import trio

from ephemeral import (
    CoordinatorCompletedError,
    HealthOptions,
    NoHealthyProcessorError,
    PriorityProcessorAtom,
    SignalSink,
)
from ephemeral.testing import wait_all_blocked

from .ladder_kit import Service, ladder, statuses


async def test_leaving_ends_all_that_was_accepted() -> None:
    service = Service(takes=1.0)
    async with ladder(service) as group:
        await group.first.enqueue_many(range(10))
    assert group.statuses == {"completed": 10}
    assert anyio.current_time() == 10.0


async def test_the_first_block_that_is_left_closes_the_group() -> None:
    service = Service(takes=1.0)
    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, service, sink, max_concurrency=1) as first,
    ):
        async with PriorityProcessorAtom(2, Service(), sink) as second:
            await second.enqueue("w")
        assert statuses(first) == {"completed": 1}
        with pytest.raises(CoordinatorCompletedError, match="group 'default' has completed"):
            await first.enqueue("late")
        with pytest.raises(CoordinatorCompletedError):
            await second.enqueue_many(["late"])
        assert not first.try_enqueue("late")
        with pytest.raises(CoordinatorCompletedError):
            await first.call("late")
        assert statuses(first) == {"completed": 1}


async def test_blocks_in_tasks_of_their_own_may_be_left_in_any_order() -> None:
    for host_leaves_first in (True, False):
        service, backup = Service(takes=1.0), Service()
        sink = SignalSink()
        leave = {1: anyio.Event(), 2: anyio.Event()}

        async def block(priority: int, process: Service, sink: SignalSink, leave: anyio.Event) -> None:
            async with PriorityProcessorAtom(priority, process, sink, max_concurrency=1) as atom:
                await atom.enqueue(priority)
                await leave.wait()
            assert statuses(atom) == {"completed": 2}

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(block, 1, service, sink, leave[1])
            await wait_all_blocked()
            tasks.start_soon(block, 2, backup, sink, leave[2])
            await wait_all_blocked()
            leave[1 if host_leaves_first else 2].set()
            await anyio.sleep(5.0)
            leave[2 if host_leaves_first else 1].set()
        assert sorted(service.done) == [1, 2]


async def test_an_exception_cancels_and_comes_out_bare() -> None:
    service = Service(takes=100.0)
    error = LookupError("mine")
    opened: list[Any] = []

    async def block() -> None:
        async with ladder(service) as group:
            opened.append(group)
            await group.enqueue("runs", "waits")
            raise error

    with pytest.raises(LookupError) as raised:
        await block()
    assert raised.value is error
    [group] = opened
    assert service.cancelled == ["runs"]
    assert group.statuses == {"cancelled": 2}
    assert anyio.current_time() == 0.0
    assert group.first.undelivered == ()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
async def test_a_processor_that_ends_the_program_comes_out_bare(error: BaseException) -> None:
    service = Service()
    service.errors = {"w": error}

    async def block() -> None:
        async with ladder(service) as group:
            await group.first.enqueue("w")
            await anyio.sleep(math.inf)

    with pytest.raises(type(error)) as raised:
        await block()
    assert raised.value is error


async def test_an_exception_refuses_the_calls_that_wait() -> None:
    service = Service(takes=100.0)
    errors: list[BaseException] = []

    async def call(group: Any) -> None:
        try:
            await group.first.call("call")
        except CoordinatorCompletedError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        with contextlib.suppress(LookupError):
            async with ladder(service) as group:
                await group.enqueue("runs")
                tasks.start_soon(call, group)
                await wait_all_blocked()
                raise LookupError
    assert len(errors) == 1
    assert group.statuses == {"cancelled": 1, "failed": 1}


async def test_a_cancelled_block_cancels_the_work() -> None:
    service = Service(takes=100.0)
    with anyio.move_on_after(1.0):
        async with ladder(service) as group:
            await group.enqueue("runs", "waits")
            await anyio.sleep(math.inf)
    assert group.statuses == {"cancelled": 2}


async def test_a_block_cancelled_while_it_drains_cancels_the_work() -> None:
    service = Service(takes=100.0)
    with anyio.move_on_after(1.0):
        async with ladder(service) as group:
            await group.enqueue("runs", "waits")
    assert group.statuses == {"cancelled": 2}
    assert anyio.current_time() == 1.0


async def test_what_is_not_done_in_time_is_undelivered(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(takes=2.0)
    async with ladder(service, drain_timeout=3.0) as group:
        await group.enqueue("a", "b", "c", "d")
    assert anyio.current_time() == 3.0
    assert service.cancelled == ["b"]
    assert sorted(group.first.undelivered) == ["b", "c", "d"]
    assert sorted(group.ears.starting("processing.undelivered")) == [
        f"processing.undelivered:pri1:{item}" for item in "bcd"
    ]
    assert group.statuses == {"completed": 1, "undelivered": 3}
    assert "3 items were not done within drain_timeout=3.0 s" in caplog.text
    assert group.first.is_healthy  # being cut off is no failure of the processor


async def test_nothing_undelivered_is_warned_of_when_all_was_done(caplog: pytest.LogCaptureFixture) -> None:
    async with ladder(Service(takes=2.0), drain_timeout=3.0) as group:
        await group.enqueue("a")
    assert caplog.text == ""
    assert group.first.undelivered == ()


async def test_without_a_drain_timeout_leaving_waits_for_ever() -> None:
    async with ladder(Service(takes=1000.0), drain_timeout=None) as group:
        await group.enqueue("a")
    assert group.statuses == {"completed": 1}


async def test_a_drain_timeout_of_zero_leaves_what_waits() -> None:
    async with ladder(Service(takes=1.0), drain_timeout=0) as group:
        await group.enqueue("runs", "waits")
    assert sorted(group.first.undelivered) == ["runs", "waits"]
    assert anyio.current_time() == 0.0


async def test_items_that_nobody_can_take_are_undelivered_too() -> None:
    async with ladder(Service(), Service(), drain_timeout=1.0) as group:
        group.atoms[0].isolate()
        group.atoms[1].isolate()
        await group.enqueue("a", "b")
    assert group.first.undelivered == ("a", "b")
    assert group.ears.heard[-2:] == ["processing.undelivered:pri1:a", "processing.undelivered:pri1:b"]


async def test_counters_balance_while_the_left_over_are_told() -> None:
    """Each item is counted before anybody hears of the first."""
    service = Service(takes=100.0)
    async with ladder(service, drain_timeout=1.0) as group:
        await group.enqueue(*range(5))
        sums: list[int] = []
        group.sink.subscribe(lambda event: sums.append(group.first.total_enqueued), "processing.undelivered*")
    assert sums == [5] * 5


async def test_a_hand_over_during_the_end_loses_nothing() -> None:
    service, backup = Service(takes=1.0, is_down=True), Service(takes=1.0)
    async with ladder(service, backup, reroute_failed=True, failure_threshold=3) as group:
        await group.first.enqueue_many(range(10))
    assert group.statuses == {"completed": 10}
    assert sorted(backup.done) == list(range(10))


async def test_a_hand_over_after_the_upstream_block_was_left_loses_nothing() -> None:
    """The upstream processor is the first to be left: what fails there still finds the backup."""
    service, backup = Service(takes=1.0, is_down=True), Service()
    async with SignalSink() as sink, PriorityProcessorAtom(2, backup, sink, reroute_failed=True) as second:
        async with PriorityProcessorAtom(1, service, sink, max_concurrency=2) as first:
            await first.enqueue_many(range(6))
        assert statuses(second) == {"completed": 6}
        assert sorted(backup.done) == list(range(6))


async def test_probing_goes_on_during_the_end() -> None:
    service = Service(is_down=True)
    async with ladder(service, failure_threshold=1, reroute_failed=True) as group:
        await group.enqueue("w")
        service.is_down = False
    assert group.statuses == {"completed": 1}
    assert anyio.current_time() == 5.0


async def test_drain_refuses_nothing_and_may_be_repeated() -> None:
    service = Service(takes=1.0)
    async with ladder(service) as group:
        assert await group.first.drain()
        await group.first.enqueue_many("ab")
        assert await group.first.drain()
        assert service.done == ["a", "b"]
        await group.first.enqueue("c")
        assert not await group.first.drain(timeout=0.25)
        assert not await group.first.drain(timeout=0)
        assert await group.first.drain(timeout=1.0)


async def test_a_drain_waits_for_what_comes_meanwhile() -> None:
    service = Service(takes=1.0)
    async with ladder(service) as group:
        await group.first.enqueue("a")
        async with anyio.create_task_group() as tasks:

            async def one_more() -> None:
                await anyio.sleep(0.5)
                await group.first.enqueue("b")

            tasks.start_soon(one_more)
            assert await group.first.drain()
        assert service.done == ["a", "b"]


async def test_a_drain_waits_for_calls_too() -> None:
    async with ladder(Service(takes=1.0)) as group, anyio.create_task_group() as tasks:
        tasks.start_soon(group.first.call, "w")
        await wait_all_blocked()
        assert await group.first.drain()
        assert anyio.current_time() == 1.0


async def test_several_drains_at_once_all_end() -> None:
    ended: list[bool] = []
    async with ladder(Service(takes=1.0)) as group:
        await group.first.enqueue("w")
        async with anyio.create_task_group() as tasks:

            async def drain() -> None:
                ended.append(await group.first.drain(timeout=50.0))

            for _ in range(3):
                tasks.start_soon(drain)
        assert ended == [True] * 3
        assert anyio.current_time() == 1.0


async def test_a_drain_under_way_ends_with_the_group() -> None:
    ended: list[bool] = []
    async with anyio.create_task_group() as tasks, ladder(Service(takes=9.0), drain_timeout=1.0) as group:
        await group.first.enqueue("w")

        async def drain() -> None:
            ended.append(await group.first.drain(timeout=50.0))

        tasks.start_soon(drain)
        await wait_all_blocked()
    assert ended == [True]
    assert anyio.current_time() == 1.0


async def test_producers_that_wait_are_refused_when_the_group_closes() -> None:
    service = Service(takes=1.0)
    refused: list[Any] = []
    async with anyio.create_task_group() as tasks, ladder(service, max_pending=1) as group:
        await group.enqueue("a", "b")

        async def producer(item: Any) -> None:
            try:
                await group.first.enqueue(item)
            except CoordinatorCompletedError:
                refused.append(item)

        tasks.start_soon(producer, "c")
        await wait_all_blocked()
    assert refused == ["c"]
    assert group.statuses == {"completed": 2}


async def test_after_the_end_a_new_ladder_may_open_on_the_same_sink() -> None:
    service = Service()
    async with SignalSink() as sink:
        async with PriorityProcessorAtom(1, service, sink, reroute_failed=True, max_pending=1) as first:
            first.isolate()
        async with PriorityProcessorAtom(1, service, sink, reroute_failed=False, max_pending=2) as second:
            assert second.is_healthy
            assert await second.call("w") == "service:w"
        assert (statuses(first), statuses(second)) == ({}, {"completed": 1})


async def test_what_is_left_to_read_after_the_end() -> None:
    async with ladder(Service()) as group:
        await group.enqueue("w")
    assert group.first.get_health().state == "up"
    assert group.first.statistics().total_completed == 1
    assert "completed" in repr(group.first)


async def test_a_block_is_entered_once() -> None:
    async with ladder(Service()) as group:
        with pytest.raises(RuntimeError, match="entered before"):
            await group.first.__aenter__()
        assert await group.first.call("w")


async def test_an_atom_that_comes_too_late_is_refused() -> None:
    async with SignalSink() as sink:
        late = PriorityProcessorAtom(2, Service(), sink)
        async with PriorityProcessorAtom(1, Service(), sink):
            pass
        with pytest.raises(CoordinatorCompletedError):
            async with late:
                pass


async def test_a_processor_that_survives_its_cancellation_has_done_nothing_by_returning() -> None:
    async def stubborn(item: str) -> str:
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep(math.inf)
        if item == "fails":
            raise LookupError
        return item

    async with ladder(stubborn, Service(), max_concurrency=2, drain_timeout=1.0, reroute_failed=True) as group:
        await group.enqueue("fails", "ends")
    assert group.statuses == {"undelivered": 1, "failed": 1}
    assert group.first.undelivered == ("ends",)
    assert group.ears.starting("processing.complete") == []


async def test_what_is_done_in_the_instant_of_the_cut_is_done() -> None:
    service = Service(takes=1.0)
    async with ladder(service, drain_timeout=1.0) as group:
        await group.enqueue("w")
    assert group.statuses == ({"completed": 1} if service.done else {"undelivered": 1})
    assert len(service.done) + len(group.first.undelivered) == 1


@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
async def test_what_a_nursery_makes_of_a_cancellation_is_one_too() -> None:
    async def with_nursery(item: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(trio.sleep_forever)

    async with ladder(with_nursery, failure_threshold=1, max_concurrency=2, drain_timeout=1.0) as group:
        with anyio.move_on_after(1.0):
            await group.first.call("call")
        assert group.first.is_healthy
        await group.enqueue("w")
    assert group.statuses == {"cancelled": 1, "undelivered": 1}


async def test_a_canary_refused_in_the_instant_of_the_cut_is_undelivered(monkeypatch: pytest.MonkeyPatch) -> None:
    service, answer = Service(is_down=True), anyio.Event()

    async def somebody_else_has_it(processor: str, now: float) -> None:
        await answer.wait()

    async with ladder(service, failure_threshold=1, max_concurrency=2, probe_interval=1.0, drain_timeout=1.0) as group:
        await group.enqueue("trips it")
        inside = group.first._ladder
        cut_off = inside._cut_off
        monkeypatch.setattr(inside.health, "acquire", somebody_else_has_it)
        monkeypatch.setattr(inside, "_cut_off", lambda: (answer.set(), cut_off()))
        await group.settle(1.0)
        await group.enqueue("asks")
    assert group.statuses == {"failed": 1, "undelivered": 1}
    assert group.first.undelivered == ("asks",)


async def test_a_call_refused_as_a_canary_after_the_cut_is_told_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    service, answer, errors = Service(is_down=True), anyio.Event(), list[BaseException]()

    async def somebody_else_has_it(processor: str, now: float) -> None:
        await answer.wait()

    async def call(group: Any) -> None:
        try:
            await group.first.call("asks")
        except CoordinatorCompletedError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        async with ladder(service, Service(), failure_threshold=1, probe_interval=1.0, drain_timeout=1.0) as group:
            await group.enqueue("trips it")
            monkeypatch.setattr(group.first._ladder.health, "acquire", somebody_else_has_it)
            await group.settle(1.0)
            tasks.start_soon(call, group)
            await group.settle()
        answer.set()
    assert len(errors) == 1
    assert group.statuses == {"failed": 2}


async def test_a_drain_ends_when_the_last_call_that_waits_is_refused() -> None:
    service, ended = Service(takes=1.0), list[str]()
    async with ladder(service, drain_timeout=None) as group:

        async def first() -> None:
            await group.first.call("runs")
            group.first.isolate()

        async def second() -> None:
            with pytest.raises(NoHealthyProcessorError):
                await group.first.call("waits")
            ended.append("refused")

        async def drain() -> None:
            assert await group.first.drain(10.0)
            ended.append("drained")

        async with anyio.create_task_group() as tasks:
            for task in (first, second, drain):
                tasks.start_soon(task)
                await wait_all_blocked()
        assert sorted(ended) == ["drained", "refused"]
        assert anyio.current_time() == 1.0


async def test_a_drain_sees_an_instant_of_idleness_in_a_steady_trickle() -> None:
    async with ladder(Service(takes=1.0)) as group, anyio.create_task_group() as tasks:

        async def trickle() -> None:
            while True:
                await group.first.call("w")

        tasks.start_soon(trickle)
        await group.settle()
        assert await group.first.drain(100.0)
        assert anyio.current_time() == 1.0
        tasks.cancel_scope.cancel()


async def test_a_processor_that_would_wait_for_its_own_end_is_told_so() -> None:
    async def waits_for_itself(item: str) -> None:
        await atoms[0].drain()

    errors, atoms = list[BaseException](), list[Any]()
    async with ladder(waits_for_itself, every={"on_failed": lambda item, error: errors.append(error)}) as group:
        atoms.append(group.first)
        await group.enqueue("w")
    assert [type(error) for error in errors] == [RuntimeError]
    assert "would wait for itself" in str(errors[0])


async def test_who_reads_the_log_of_the_cut_finds_counters_that_balance(caplog: pytest.LogCaptureFixture) -> None:
    seen = list[int]()

    def look(record: logging.LogRecord) -> bool:
        if "were not done" in record.getMessage():
            seen.append(group.first.total_enqueued)
        return True

    logger = logging.getLogger("ephemeral")
    logger.addFilter(look)
    try:
        async with ladder(Service(takes=10.0), drain_timeout=1.0) as group:
            await group.enqueue(*range(5))
    finally:
        logger.removeFilter(look)
    assert seen == [5]


@pytest.mark.parametrize("order", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("scope", ["processing.complete", "processing.failed", "processing.slow", "failover.requested"])
async def test_a_listener_that_ends_the_program_leaves_no_item_half_ended(
    scope: str, order: type[BaseException]
) -> None:
    def ends(event: Any) -> None:
        raise order

    async def block() -> None:
        async with ladder(service, failure_threshold=1, health=health, drain_timeout=None) as group:
            opened.append(group)
            group.sink.subscribe(ends, f"{scope}:*")
            await group.enqueue("w")
            await anyio.sleep(math.inf)

    opened, service, health = list[Any](), Service(takes=2.0), HealthOptions(slow_after=1.0)
    service.errors = {} if scope == "processing.complete" else {"w": LookupError()}
    with pytest.raises(order):
        await block()
    assert sum(opened[0].statuses.values()) == 1
    assert (opened[0].first.pending_count, opened[0].first.active_count) == (0, 0)


async def test_a_listener_that_ends_the_program_at_a_call_ends_the_block() -> None:
    def ends(event: Any) -> None:
        raise SystemExit

    async def block() -> None:
        async with ladder(Service(), drain_timeout=None) as group:
            opened.append(group)
            group.sink.subscribe(ends, "processing.complete:*")
            assert await group.first.call("w") == "service:w"
            await anyio.sleep(math.inf)

    opened = list[Any]()
    with pytest.raises(SystemExit):
        await block()
    assert opened[0].statuses == {"completed": 1}
