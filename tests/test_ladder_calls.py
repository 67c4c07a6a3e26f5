"""`call`: one item, here and now, in the caller's own task."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus

from ephemeral import CoordinatorCompletedError, NoHealthyProcessorError, ProcessingFailedError
from ephemeral.testing import wait_all_blocked

from .ladder_kit import Atom, Service, ladder

variable: ContextVar[str] = ContextVar("variable")


class Caller:
    """A call in a task of its own, and what came of it."""

    def __init__(self, atom: Atom, item: Any) -> None:
        self.atom, self.item = atom, item
        self.result: Any = None
        self.error: BaseException | None = None
        self.scope = anyio.CancelScope()

    async def __call__(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        with self.scope:
            try:
                self.result = await self.atom.call(self.item)
            except Exception as error:
                self.error = error


async def start(tasks: Any, atom: Atom, *items: Any) -> list[Caller]:
    callers = [Caller(atom, item) for item in items]
    for caller in callers:
        tasks.start_soon(caller)
        await wait_all_blocked()
    return callers


async def test_a_call_returns_the_result() -> None:
    async with ladder(Service()) as group:
        assert await group.first.call("w") == "service:w"
        assert group.ears.heard == ["processing.started:pri1:w", "processing.complete:pri1:w"]
        assert group.statuses == {"completed": 1}


async def test_a_call_raises_what_the_processor_raised() -> None:
    service = Service()
    service.errors = {"w": LookupError("mine")}
    given_up: list[Any] = []
    async with ladder(service, Service(), on_failed=lambda *why: given_up.append(why)) as group:
        with pytest.raises(LookupError, match="mine") as raised:
            await group.first.call("w")
        assert raised.value is service.errors["w"]
        assert group.first.consecutive_failures == 1
        assert group.statuses == {"failed": 1}
    assert given_up == []  # the caller knows


async def test_false_is_a_failed_call() -> None:
    service = Service()
    service.answers = {"w": False}
    async with ladder(service) as group:
        with pytest.raises(ProcessingFailedError) as raised:
            await group.first.call("w")
        assert (raised.value.processor, raised.value.item_id) == ("pri1", "w")
        assert group.statuses == {"failed": 1}


async def test_a_call_runs_in_the_callers_task_and_context() -> None:
    async def process(item: str) -> int:
        variable.set(f"{variable.get()}, seen")
        return anyio.get_current_task().id

    async with ladder(process) as group:
        variable.set("caller's")
        assert await group.first.call("w") == anyio.get_current_task().id
        assert variable.get() == "caller's, seen"


async def test_an_enqueued_item_runs_in_a_copy_of_the_enqueuers_context() -> None:
    seen: list[str] = []

    async def process(item: str) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(variable.get())
        variable.set("changed by an item")

    async with ladder(process) as group:
        for value in ("one", "two"):
            variable.set(value)
            await group.first.enqueue(value)
        variable.set("three")
        await group.settle()
        assert seen == ["one", "two"]
        assert variable.get() == "three"


async def test_calls_share_the_slots_with_the_line() -> None:
    service = Service(takes=1.0)
    async with ladder(service, max_concurrency=2) as group, anyio.create_task_group() as tasks:
        await group.enqueue("a", "b")
        [caller] = await start(tasks, group.first, "c")
        assert service.started == ["a", "b"]
        assert group.statuses == {"active": 2, "pending": 1}
        await group.settle(1.0)
        assert service.started == ["a", "b", "c"]
        await group.settle(1.0)
        assert caller.result == "service:c"
    assert service.most_active == 2


async def test_the_line_and_the_calls_take_turns() -> None:
    service = Service(takes=1.0)
    async with ladder(service) as group, anyio.create_task_group() as tasks:
        await group.enqueue("i0", "i1", "i2", "i3")
        await start(tasks, group.first, "c1", "c2", "c3")
        await group.settle(10.0)
        assert service.started == ["i0", "c1", "i1", "c2", "i2", "c3", "i3"]


@pytest.mark.parametrize("takes", [0.0, 1.0])
async def test_a_caller_that_calls_again_and_again_does_not_starve_the_line(takes: float) -> None:
    service = Service(takes=takes)
    async with ladder(service) as group:
        await group.first.enqueue("item")
        for number in range(4):
            await group.first.call(number)
        assert service.started.index("item") <= 1
        await group.first.enqueue("item 2")
        await group.first.call("last")
        assert "item 2" in service.started


async def test_a_line_that_never_empties_does_not_starve_the_calls() -> None:
    service = Service(takes=1.0)
    async with ladder(service) as group, anyio.create_task_group() as tasks:
        await group.enqueue(*range(20))
        await start(tasks, group.first, "call")
        await group.settle(3.0)
        assert "call" in service.done


async def test_with_reroute_a_failed_call_tries_the_next_healthy_rung() -> None:
    services = [Service(is_down=True), Service(), Service("third")]
    async with ladder(*services, reroute_failed=True) as group:
        group.atoms[1].isolate()
        assert await group.first.call("w") == "third:w"
        assert group.statuses == {"completed": 1}


async def test_with_reroute_a_call_that_fails_everywhere_raises_the_last_error() -> None:
    services = [Service("first", is_down=True), Service("second", is_down=True)]
    async with ladder(*services, reroute_failed=True) as group:
        with pytest.raises(ConnectionError, match="second is down"):
            await group.first.call("w")
        assert [service.started for service in services] == [["w"], ["w"]]
        assert group.statuses == {"failed": 1}


async def test_a_call_too_has_so_many_runs() -> None:
    services = [Service(is_down=True), Service(is_down=True), Service()]
    async with ladder(*services, reroute_failed=True, max_attempts=2) as group:
        with pytest.raises(ConnectionError):
            await group.first.call("w")
        assert services[2].started == []
        assert group.statuses == {"abandoned": 1}
        assert group.ears.heard[-1] == "processing.abandoned:pri2:w"


async def test_with_nobody_healthy_a_call_is_refused_and_says_when_to_retry() -> None:
    async with ladder(Service(is_down=True), failure_threshold=1, probe_interval=5.0) as group:
        await group.settle(2.0)
        await group.enqueue("w")
        await group.settle(1.0)
        with pytest.raises(NoHealthyProcessorError) as raised:
            await group.first.call("v")
        assert (raised.value.group, raised.value.retry_at) == ("default", 7.0)
        assert group.statuses == {"failed": 1}  # the refused one was never accepted


async def test_the_earliest_probe_is_when_to_retry() -> None:
    every: dict[str, Any] = {"failure_threshold": 1, "reroute_failed": True, "drain_timeout": 0}
    async with ladder(Service(is_down=True), Service(is_down=True), every=every, probe_interval=9.0) as group:
        await group.enqueue("w")
        with pytest.raises(NoHealthyProcessorError) as raised:
            await group.first.call("v")
        assert raised.value.retry_at == 5.0


async def test_with_everything_isolated_there_is_no_time_to_retry() -> None:
    async with ladder(Service()) as group:
        group.first.isolate()
        with pytest.raises(NoHealthyProcessorError, match="reset_health") as raised:
            await group.first.call("v")
        assert raised.value.retry_at is None


async def test_a_call_that_waits_for_a_slot_is_refused_when_the_last_rung_goes_down() -> None:
    service = Service()
    service.close_gate()
    async with ladder(service) as group, anyio.create_task_group() as tasks:
        callers = await start(tasks, group.first, "runs", "waits")
        group.first.isolate()
        await wait_all_blocked()
        assert isinstance(callers[1].error, NoHealthyProcessorError)
        assert group.statuses == {"active": 1, "failed": 1}
        service.open_gate()
        await wait_all_blocked()
        assert callers[0].result == "service:runs"


async def test_a_call_that_waits_for_a_slot_follows_the_route() -> None:
    service, backup = Service(), Service("backup")
    service.close_gate()
    async with ladder(service, backup) as group, anyio.create_task_group() as tasks:
        callers = await start(tasks, group.first, "runs", "waits")
        group.first.isolate()
        await wait_all_blocked()
        assert callers[1].result == "backup:waits"
        service.open_gate()


async def test_a_call_handed_on_is_refused_when_nobody_is_left_to_run_it() -> None:
    service, backup = Service(), Service()
    service.errors = {"w": ConnectionError()}
    backup.close_gate()
    async with ladder(service, backup, reroute_failed=True) as group, anyio.create_task_group() as tasks:
        group.first.isolate()
        await group.enqueue("busy")
        group.first.reset_health()
        [caller] = await start(tasks, group.first, "w")
        assert group.statuses == {"active": 1, "pending": 1}  # it failed, and waits for the backup's slot
        group.first.isolate()
        group.atoms[1].isolate()
        await wait_all_blocked()
        assert isinstance(caller.error, NoHealthyProcessorError)
        assert group.statuses == {"active": 1, "failed": 1}
        backup.open_gate()


async def test_the_callers_own_cancellation_says_nothing_about_the_processor() -> None:
    service = Service()
    service.close_gate()
    async with ladder(service, failure_threshold=1) as group, anyio.create_task_group() as tasks:
        runs, waits = await start(tasks, group.first, "runs", "waits")
        waits.scope.cancel()
        await wait_all_blocked()
        assert group.statuses == {"active": 1, "cancelled": 1}
        runs.scope.cancel()
        await wait_all_blocked()
        assert service.cancelled == ["runs"]
        assert group.statuses == {"cancelled": 2}
        assert group.first.is_healthy
        assert group.first.consecutive_failures == 0
        service.open_gate()
        assert await group.first.call("free again") == "service:free again"


async def test_the_callers_own_deadline_says_nothing_about_the_processor() -> None:
    async with ladder(Service(takes=5.0), failure_threshold=1, timeout=10.0) as group:
        with pytest.raises(TimeoutError), anyio.fail_after(1.0):
            await group.first.call("w")
        assert group.first.is_healthy
        assert group.statuses == {"cancelled": 1}


async def test_the_processors_timeout_is_a_failure_of_the_call() -> None:
    async with ladder(Service(takes=5.0), Service(), failure_threshold=1, timeout=1.0) as group:
        with pytest.raises(TimeoutError, match="cancelled after 1 s"):
            await group.first.call("w")
        assert not group.first.is_healthy
        assert group.statuses == {"failed": 1}


async def test_a_call_after_the_end_is_refused() -> None:
    async with ladder(Service()) as group:
        pass
    with pytest.raises(CoordinatorCompletedError):
        await group.first.call("w")
    assert group.statuses == {}


async def test_a_call_that_waits_when_the_time_to_drain_is_over_is_refused() -> None:
    service = Service()
    service.close_gate()
    async with anyio.create_task_group() as tasks:
        async with ladder(service, drain_timeout=1.0) as group:
            await group.enqueue("item")
            [caller] = await start(tasks, group.first, "call")
        assert isinstance(caller.error, CoordinatorCompletedError)
        assert group.first.undelivered == ("item",)
        assert group.statuses == {"failed": 1, "undelivered": 1}


async def test_a_call_that_runs_on_after_the_end_is_its_callers_own() -> None:
    service = Service(takes=5.0)
    async with anyio.create_task_group() as tasks:
        async with ladder(service, drain_timeout=1.0) as group:
            [caller] = await start(tasks, group.first, "call")
        assert anyio.current_time() == 1.0
        assert group.statuses == {"active": 1}
    assert caller.result == "service:call"
    assert group.statuses == {"completed": 1}


async def test_drain_waits_for_a_call_that_found_a_slot_at_once() -> None:
    service = Service()
    service.close_gate()
    async with ladder(service) as group, anyio.create_task_group() as tasks:
        (caller,) = await start(tasks, group.first, "w")
        await wait_all_blocked()
        assert group.statuses == {"active": 1}
        assert not await group.first.drain(timeout=1.0)
        tasks.start_soon(group.first.drain)
        await wait_all_blocked()
        service.open_gate()
        await group.first.drain()
        await wait_all_blocked()
        assert (caller.result, group.statuses) == ("service:w", {"completed": 1})


async def test_a_call_that_found_a_slot_at_once_and_is_cancelled_frees_it() -> None:
    service = Service()
    service.close_gate()
    async with ladder(service) as group, anyio.create_task_group() as tasks:
        first, second = await start(tasks, group.first, "a", "b")
        await wait_all_blocked()
        assert group.statuses == {"active": 1, "pending": 1}
        first.scope.cancel()
        await wait_all_blocked()
        assert group.statuses == {"active": 1, "cancelled": 1}
        service.open_gate()
        await wait_all_blocked()
        assert (second.result, group.statuses) == ("service:b", {"completed": 1, "cancelled": 1})
        assert group.first.is_healthy
