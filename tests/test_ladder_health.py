"""What takes a rung down through the atom, what does not, and what hands do."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import anyio
import pytest

from ephemeral import HealthOptions, PriorityProcessorAtom, ProcessingFailedError, SignalSink
from ephemeral._bodies import RanOutOfTimeError, StillRunningError

from .ladder_kit import Ladder, Service, ladder


class NotFoundError(Exception):
    """What a healthy service answers to a bad item."""


def is_failure(error: BaseException) -> bool:
    return not isinstance(error, NotFoundError)


async def test_consecutive_failures_are_broken_by_a_success() -> None:
    service = Service()
    service.errors = {item: ConnectionError() for item in ("bad1", "bad2", "bad3", "bad4", "bad5")}
    async with ladder(service, Service()) as group:
        await group.enqueue("bad1", "bad2", "good", "bad3", "bad4")
        assert group.first.consecutive_failures == 2
        assert group.first.is_healthy
        await group.enqueue("bad5")
        assert not group.first.is_healthy
        assert group.first.get_health().failures == 3


async def test_windowed_failures_are_not_broken_by_successes() -> None:
    service = Service()
    service.errors = {item: ConnectionError() for item in ("bad1", "bad2", "bad3")}
    async with ladder(service, Service(), health=HealthOptions(policy="windowed")) as group:
        await group.enqueue("bad1", "good", "bad2", "good")
        assert group.first.is_healthy
        await group.enqueue("bad3")
        assert not group.first.is_healthy


async def test_a_rate_needs_enough_calls_and_ignores_the_threshold() -> None:
    service = Service()
    service.errors = {item: ConnectionError() for item in ("bad1", "bad2")}
    options: dict[str, Any] = {
        "failure_threshold": 1,
        "health": HealthOptions(policy="rate", minimum_calls=4, failure_rate=0.5),
    }
    async with ladder(service, Service(), **options) as group:
        await group.enqueue("bad1", "good", "good")
        assert group.first.is_healthy
        await group.enqueue("bad2")
        assert not group.first.is_healthy


@pytest.mark.parametrize(("pause", "is_healthy"), [(5.0, False), (5.25, True)])
async def test_failures_leave_the_window(pause: float, is_healthy: bool) -> None:
    service = Service(is_down=True)
    async with ladder(service, Service(), failure_threshold=2, failure_window=5.0) as group:
        await group.enqueue("a")
        await group.settle(pause)
        await group.enqueue("b")
        assert group.first.is_healthy is is_healthy


@pytest.mark.parametrize("answer", [None, 0, "", [], True])
async def test_only_false_is_a_failure(answer: Any) -> None:
    service = Service()
    service.answers = {"w": answer}
    async with ladder(service, failure_threshold=1) as group:
        await group.enqueue("w")
        assert group.statuses == {"completed": 1}


async def test_false_is_a_failure() -> None:
    service = Service()
    service.answers = {"w": False}
    given_up: list[Any] = []
    async with ladder(service, Service(), failure_threshold=1, on_failed=lambda *why: given_up.append(why)) as group:
        await group.enqueue("w")
        assert not group.first.is_healthy
        assert group.statuses == {"failed": 1}
    [(item, error)] = given_up
    assert item == "w"
    assert str(error) == "pri1 returned False for 'w': the item failed; raise an error there to say why"


@pytest.mark.parametrize("error", [ConnectionError(), BaseException("odd"), GeneratorExit()])
async def test_whatever_a_processor_raises_is_a_failure(error: BaseException) -> None:
    service = Service()
    service.errors = {"w": error}
    async with ladder(service, Service(), failure_threshold=1) as group:
        await group.enqueue("w")
        assert not group.first.is_healthy
        assert group.statuses == {"failed": 1}


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # trio's cannot be raised by hand
async def test_a_processor_that_raises_the_loops_cancellation_by_itself_has_failed() -> None:
    service = Service()
    service.errors = {"w": asyncio.CancelledError()}
    async with ladder(service, Service(), failure_threshold=1) as group:
        await group.enqueue("w", "next")
        assert not group.first.is_healthy
        assert group.statuses == {"failed": 1, "completed": 1}


async def test_an_item_at_fault_takes_no_processor_down() -> None:
    service = Service()
    service.errors = {"w": NotFoundError()}
    given_up: list[Any] = []
    options: dict[str, Any] = {"failure_threshold": 1, "is_failure": is_failure}
    async with ladder(service, Service(), on_failed=lambda *why: given_up.append(why), **options) as group:
        await group.enqueue("w")
        assert group.first.is_healthy
        assert group.statuses == {"failed": 1}
        assert given_up == [("w", service.errors["w"])]
        assert group.ears.heard[-1] == "processing.failed:pri1:w"


async def test_an_item_at_fault_is_asked_of_nobody_else() -> None:
    """A card that the first provider declines must not be charged by the second."""
    first, second = Service(), Service()
    declined = NotFoundError()
    first.errors = {"w": declined, "called": declined}
    given_up: list[Any] = []
    options: dict[str, Any] = {"is_failure": is_failure, "reroute_failed": True}
    async with ladder(first, second, on_failed=lambda *why: given_up.append(why), **options) as group:
        await group.enqueue("w")
        with pytest.raises(NotFoundError):
            await group.first.call("called")
        assert (second.started, given_up) == ([], [("w", declined)])
        assert group.statuses == {"failed": 2}


async def test_an_item_at_fault_breaks_a_row_of_failures() -> None:
    """Somebody answered: that is what consecutive failures are about."""
    service = Service()
    service.errors = {"bad1": ConnectionError(), "odd": NotFoundError(), "bad2": ConnectionError()}
    async with ladder(service, Service(), failure_threshold=2, is_failure=is_failure) as group:
        await group.enqueue("bad1", "odd", "bad2")
        assert group.first.is_healthy


async def test_is_failure_that_raises_counts_the_call_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    def broken(error: BaseException) -> bool:
        raise LookupError("is_failure is broken")

    async with ladder(Service(is_down=True), Service(), failure_threshold=1, is_failure=broken) as group:
        await group.enqueue("w")
        assert not group.first.is_healthy
        assert group.first.statistics().callback_errors == 1
        assert group.statuses == {"failed": 1}
    assert "is_failure is broken" in caplog.text


class Odd(BaseException):
    """What no callback should raise."""


@pytest.mark.parametrize("odd", [Odd, asyncio.CancelledError, GeneratorExit])
async def test_is_failure_that_raises_anything_at_all_loses_no_item(odd: type[BaseException]) -> None:
    def raises(error: BaseException) -> bool:
        raise odd

    async with ladder(Service(is_down=True), is_failure=raises, drain_timeout=None) as group:
        await group.enqueue("w")
        assert group.statuses == {"failed": 1}
        assert group.first.statistics().callback_errors == 1


async def test_is_failure_that_ends_the_program_loses_no_item() -> None:
    def raises(error: BaseException) -> bool:
        raise SystemExit

    async def block() -> None:
        async with ladder(Service(is_down=True), is_failure=raises, drain_timeout=None) as group:
            opened.append(group)
            await group.enqueue("w")
            await anyio.sleep(math.inf)

    opened = list[Ladder]()
    with pytest.raises(SystemExit):
        await block()
    assert opened[0].statuses == {"failed": 1}


async def test_errors_of_what_a_processor_calls_are_asked_of_is_failure() -> None:
    asked = list[type[BaseException]]()

    def is_failure(error: BaseException) -> bool:
        asked.append(type(error))
        return False

    async def inner(item: str) -> bool:
        if item == "slow":
            await anyio.sleep(9.0)
        return False

    async def outer(item: str) -> None:
        await atom.call(item)

    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, inner, sink, group="inner", failure_threshold=9, timeout=1.0) as atom,
        ladder(outer, is_failure=is_failure, failure_threshold=1, timeout=5.0) as group,
    ):
        await group.enqueue("false", "slow")
        await group.settle(2.0)
        assert group.statuses == {"failed": 2}
        assert asked == [ProcessingFailedError, RanOutOfTimeError]
        assert group.first.is_healthy


async def test_a_thread_of_what_a_processor_calls_holds_no_slot_of_its_own() -> None:
    may_end = anyio.Event()

    async def calls_what_hangs(item: str) -> None:
        if item == "hangs":
            raise StillRunningError(1.0, may_end)

    async with ladder(calls_what_hangs) as group:
        await group.enqueue("hangs", "a", "b")
        assert group.statuses == {"failed": 1, "completed": 2}
    assert not may_end.is_set()


async def test_a_timeout_cancels_the_call_and_is_a_failure_whatever_is_failure_says() -> None:
    service = Service(takes=math.inf)
    options: dict[str, Any] = {"failure_threshold": 1, "timeout": 2.0, "is_failure": lambda error: False}
    async with ladder(service, Service(), **options) as group:
        await group.enqueue("w")
        await group.settle(1.75)
        assert group.first.is_healthy
        await group.settle(0.25)
        assert service.cancelled == ["w"]
        assert not group.first.is_healthy
        assert group.statuses == {"failed": 1}


async def test_a_hung_call_counts_while_it_hangs_and_its_item_is_done_all_the_same() -> None:
    service, backup = Service(), Service()
    service.close_gate()
    async with ladder(service, backup, failure_threshold=1, health=HealthOptions(slow_after=2.0)) as group:
        await group.enqueue("hung", "next")
        await group.settle(1.75)
        assert backup.started == []
        await group.settle(0.25)
        assert backup.done == ["next"]
        service.open_gate()
        await group.settle()
        assert group.statuses == {"completed": 2}
        assert not group.first.is_healthy  # a late success restores nothing


async def test_slow_calls_count_the_moment_they_are_slow_and_once() -> None:
    service = Service(takes=3.0)
    options: dict[str, Any] = {"failure_threshold": 4, "max_concurrency": 3, "health": HealthOptions(slow_after=1.0)}
    async with ladder(service, Service(), **options) as group:
        await group.enqueue("a")
        await group.settle(0.5)
        await group.enqueue("b", "c")
        await group.settle(0.5)
        assert group.first.consecutive_failures == 1
        await group.settle(0.5)
        assert group.first.consecutive_failures == 3
        service.is_down = True
        await group.settle(3.0)  # all end, with errors: counted before
        assert group.first.consecutive_failures == 3
        assert group.statuses == {"failed": 3}
        assert len(group.ears.starting("processing.slow")) == 3


async def test_a_slow_success_breaks_no_row_of_failures() -> None:
    service = Service(takes=3.0)
    async with ladder(service, Service(), failure_threshold=2, health=HealthOptions(slow_after=1.0)) as group:
        await group.enqueue("slow")
        await group.settle(3.0)
        assert group.first.consecutive_failures == 1
        service.takes, service.is_down = 0.0, True
        await group.enqueue("bad")
        assert not group.first.is_healthy


async def test_a_call_of_the_callers_own_counts_as_slow_too() -> None:
    service = Service(takes=3.0)
    async with ladder(service, Service(), failure_threshold=1, health=HealthOptions(slow_after=1.0)) as group:
        assert await group.first.call("w") == "service:w"
        assert not group.first.is_healthy
        assert group.statuses == {"completed": 1}


async def test_quick_calls_are_not_slow_however_many_ran_before() -> None:
    service = Service(takes=0.75)
    async with ladder(service, failure_threshold=1, health=HealthOptions(slow_after=1.0)) as group:
        await group.enqueue(*range(10))
        await group.settle(20.0)
        assert group.first.is_healthy
        assert group.statuses == {"completed": 10}
        assert group.ears.starting("processing.slow") == []


async def test_each_run_of_an_item_has_its_own_time() -> None:
    """What an earlier run on the same rung took is not put on this one."""
    service = Service(takes=0.75, is_down=True)
    options: dict[str, Any] = {"failure_threshold": 9, "health": HealthOptions(slow_after=1.0)}
    async with ladder(service, reroute_failed=True, **options) as group:
        await group.enqueue("w")
        await group.settle(0.75)
        service.is_down = False
        await group.settle(0.75)
        assert group.statuses == {"completed": 1}
        assert group.ears.starting("processing.slow") == []


async def test_a_run_that_follows_one_of_the_same_instant_is_slow_once() -> None:
    service = Service()
    service.errors = {"w": ConnectionError()}

    def hang_next_time(event: Any) -> None:
        service.errors.clear()
        service.takes = 5.0

    options: dict[str, Any] = {"failure_threshold": 9, "health": HealthOptions(slow_after=1.0)}
    async with ladder(service, reroute_failed=True, **options) as group:
        group.sink.subscribe(hang_next_time, "processing.failed*")
        await group.enqueue("w")
        assert service.started == ["w", "w"]
        await group.settle(5.0)
        assert group.ears.starting("processing.slow") == ["processing.slow:pri1:w"]
        assert group.first.consecutive_failures == 2


async def two_calls_over_a_trip(group: Ladder, service: Service) -> None:
    """Start an old call, trip the rung, restore it by hand, and end the old call."""
    service.close_gate()
    await group.enqueue("old")
    gate, service.gate = service.gate, None
    service.is_down = True
    await group.enqueue("bad")
    assert not group.first.is_healthy
    group.first.reset_health()
    assert gate is not None
    gate.set()
    await group.settle()


async def test_a_late_failure_of_an_old_call_costs_nothing() -> None:
    service = Service()
    async with ladder(service, Service(), failure_threshold=1, max_concurrency=2) as group:
        await two_calls_over_a_trip(group, service)
        assert "processing.failed:pri1:old" in group.ears.heard
        assert group.first.is_healthy
        assert group.first.consecutive_failures == 0


async def test_a_late_success_of_an_old_call_restores_nothing() -> None:
    service = Service()
    async with ladder(service, Service(), failure_threshold=1, max_concurrency=2) as group:
        service.close_gate()
        await group.enqueue("old")
        gate, service.gate = service.gate, None
        assert gate is not None
        group.first.isolate()
        gate.set()
        await group.settle()
        assert group.first.get_health().state == "isolated"
        assert "processing.complete:pri1:old" in group.ears.heard


async def test_failures_from_before_a_recovery_cause_no_relapse() -> None:
    service = Service(is_down=True)
    options: dict[str, Any] = {"failure_threshold": 3, "failure_window": 100.0, "probe_interval": 1.0}
    async with ladder(service, Service(), **options) as group:
        await group.enqueue("a", "b", "c")
        service.is_down = False
        await group.settle(1.0)
        await group.enqueue("canary")
        assert group.first.is_healthy
        assert group.first.consecutive_failures == 0
        service.is_down = True
        await group.enqueue("d", "e")
        assert group.first.is_healthy
        await group.enqueue("f")
        assert not group.first.is_healthy


async def test_what_fails_after_the_edge_is_not_another_edge() -> None:
    service = Service()
    service.close_gate()
    service.is_down = True
    async with ladder(service, Service(), failure_threshold=1, max_concurrency=3) as group:
        await group.enqueue("a", "b", "c")
        service.open_gate()
        await group.settle()
        assert len(group.ears.starting("failover.requested")) == 1
        assert group.first.get_health().failures == 1
