"""Where items go: the line, the edge, another run, and a group with nobody healthy."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral.testing import wait_all_blocked

from .ladder_kit import Service, ladder


async def test_the_line_never_spills_to_a_lower_rung() -> None:
    service, backup = Service(), Service()
    service.close_gate()
    async with ladder(service, backup, max_concurrency=2) as group:
        await group.enqueue(*range(6))
        assert (service.started, backup.started) == ([0, 1], [])
        service.open_gate()
        await group.settle()
        assert (service.started, backup.started) == ([0, 1, 2, 3, 4, 5], [])


async def test_it_does_not_matter_through_which_atom_an_item_comes() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup) as group:
        await group.atoms[1].enqueue("through the backup's")
        await group.settle()
        assert service.done == ["through the backup's"]
        assert group.atoms[1].statistics() == group.first.statistics()


async def test_at_the_edge_the_line_moves_in_order_and_what_runs_finishes() -> None:
    service, backup = Service(), Service()
    service.close_gate()
    async with ladder(service, backup) as group:
        await group.enqueue(*range(5))
        group.first.isolate()
        await group.settle()
        assert backup.started == [1, 2, 3, 4]
        service.open_gate()
        await group.settle()
        assert service.done == [0]
        assert group.statuses == {"completed": 5}


async def test_the_next_item_runs_on_the_backup_as_the_failure_is_told() -> None:
    service, backup = Service(takes=1.0, is_down=True), Service()
    async with ladder(service, backup, failure_threshold=1) as group:
        await group.enqueue(*range(3))
        await group.settle(1.0)
        assert anyio.current_time() == 1.0
        assert backup.done == [1, 2]


async def test_after_a_recovery_the_line_returns() -> None:
    service, backup = Service(), Service()
    backup.close_gate()
    async with ladder(service, backup) as group:
        group.first.isolate()
        await group.enqueue(*range(4))
        group.first.reset_health()
        await group.settle()
        assert (service.done, backup.started) == ([1, 2, 3], [0])
        backup.open_gate()


async def test_a_rung_in_between_that_is_down_is_passed_over() -> None:
    services = [Service(), Service(), Service()]
    async with ladder(*services) as group:
        group.atoms[1].isolate()
        group.atoms[0].isolate()
        await group.enqueue("w")
        assert [service.done for service in services] == [[], [], ["w"]]


async def test_without_reroute_a_failed_item_is_given_up() -> None:
    service, backup = Service(is_down=True), Service()
    given_up: list[Any] = []
    async with ladder(service, backup, on_failed=lambda *why: given_up.append(why)) as group:
        await group.enqueue("w")
        assert backup.started == []
        assert group.statuses == {"failed": 1}
    [(item, error)] = given_up
    assert item == "w"
    assert isinstance(error, ConnectionError)


async def test_on_failed_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(item: Any, error: BaseException) -> None:
        raise LookupError("on_failed is broken")

    async with ladder(Service(is_down=True), Service(), on_failed=broken) as group:
        await group.enqueue(*range(5))
        assert group.statuses == {"failed": 3, "completed": 2}
        assert group.first.statistics().callback_errors == 3
        assert await group.first.drain(1.0)
    assert "on_failed is broken" in caplog.text


async def test_on_failed_may_enqueue_the_item_again() -> None:
    service = Service(is_down=True)

    def again(item: Any, error: BaseException) -> None:
        service.is_down = False
        assert group.first.try_enqueue(item)

    async with ladder(service, on_failed=again) as group:
        await group.enqueue("w")
        assert group.statuses == {"failed": 1, "completed": 1}


async def test_a_failed_item_runs_on_the_next_healthy_rung() -> None:
    services = [Service(is_down=True), Service(), Service()]
    async with ladder(*services, reroute_failed=True) as group:
        group.atoms[1].isolate()
        await group.enqueue("w")
        assert [service.started for service in services] == [["w"], [], ["w"]]
        assert group.statuses == {"completed": 1}
        assert group.first.is_healthy


async def test_a_failed_item_with_no_rung_below_goes_to_the_back_of_the_line() -> None:
    service = Service(takes=1.0)
    service.errors = {"bad": ConnectionError()}
    async with ladder(service, reroute_failed=True, failure_threshold=99) as group:
        await group.enqueue("bad", "a", "b")
        await group.settle(1.5)
        service.errors.clear()
        await group.first.drain()
        assert service.started == ["bad", "a", "b", "bad"]
        assert group.statuses == {"completed": 3}


async def test_a_handed_item_waits_for_its_rung_and_runs_there_before_the_line() -> None:
    service, backup = Service(), Service()
    service.errors = {"bad1": ConnectionError(), "bad2": ConnectionError()}
    backup.close_gate()
    async with ladder(service, backup, reroute_failed=True) as group:
        await group.enqueue("bad1", "bad2", "good")
        assert (service.started, backup.started) == (["bad1", "bad2", "good"], ["bad1"])
        assert group.statuses == {"active": 1, "pending": 1, "completed": 1}
        backup.open_gate()
        await group.settle()
        assert backup.done == ["bad1", "bad2"]


async def test_items_handed_to_a_rung_that_goes_down_go_on_to_the_next() -> None:
    services = [Service(), Service(), Service()]
    services[0].errors = {item: ConnectionError() for item in range(3)}
    services[1].close_gate()
    async with ladder(*services, reroute_failed=True, failure_threshold=99) as group:
        await group.enqueue(*range(3))
        assert services[1].started == [0]
        group.atoms[1].isolate()
        await group.settle()
        assert services[2].done == [1, 2]
        assert services[0].started == [0, 1, 2]
        services[1].open_gate()
        await group.settle()
        assert group.statuses == {"completed": 3}


async def test_items_handed_to_the_last_rung_go_back_to_the_line_when_it_goes_down() -> None:
    service, backup = Service(), Service()
    service.errors = {item: ConnectionError() for item in range(3)}
    backup.close_gate()
    async with ladder(service, backup, reroute_failed=True, failure_threshold=99) as group:
        await group.enqueue(*range(3))
        service.errors.clear()
        group.atoms[1].isolate()
        await group.settle()
        assert service.done == [1, 2]
        backup.open_gate()


async def test_an_item_has_so_many_runs_and_then_is_abandoned() -> None:
    services = [Service(is_down=True), Service(is_down=True)]
    given_up: list[Any] = []
    every = {"failure_threshold": 99}
    options: dict[str, Any] = {"reroute_failed": True, "max_attempts": 5}
    async with ladder(*services, every=every, on_failed=lambda *why: given_up.append(why), **options) as group:
        await group.enqueue("w")
        assert [len(service.started) for service in services] == [3, 2]
        assert group.statuses == {"abandoned": 1}
        assert group.ears.heard[-1] == "processing.abandoned:pri1:w"
    assert [item for item, _ in given_up] == ["w"]


async def test_one_attempt_is_no_reroute() -> None:
    services = [Service(is_down=True), Service()]
    async with ladder(*services, reroute_failed=True, max_attempts=1) as group:
        await group.enqueue("w")
        assert services[1].started == []
        assert group.statuses == {"abandoned": 1}


async def test_two_that_fail_at_once_are_both_handed_on() -> None:
    """Each hand-over needs a worker of its own: none may be forgotten because another was already on its way."""
    service, backup = Service(takes=1.0, is_down=True), Service(takes=1.0)
    every = {"max_concurrency": 4, "failure_threshold": 99}
    async with ladder(service, backup, every=every, reroute_failed=True) as group:
        await group.enqueue(*range(8))
        await group.settle(1.0)
        assert backup.active == 4
        assert service.active == 4


async def test_none_healthy_items_wait_within_the_bound() -> None:
    service = Service()
    async with ladder(service, max_pending=3, drain_timeout=0) as group:
        group.first.isolate()
        await group.enqueue("a", "b", "c")
        assert not group.first.try_enqueue("d")
        accepted: list[str] = []
        async with anyio.create_task_group() as tasks:

            async def producer(item: str) -> None:
                await group.first.enqueue(item)
                accepted.append(item)

            tasks.start_soon(producer, "d")
            await wait_all_blocked()
            tasks.start_soon(producer, "e")
            await wait_all_blocked()
            assert (accepted, group.statuses) == ([], {"pending": 3})
            group.first.reset_health()
        await group.settle()
        assert service.done == ["a", "b", "c", "d", "e"]


async def test_what_is_put_back_counts_towards_the_bound() -> None:
    service = Service(is_down=True)
    async with ladder(service, max_pending=1, failure_threshold=1, reroute_failed=True, drain_timeout=0) as group:
        await group.enqueue("w")
        assert group.statuses == {"pending": 1}
        assert not group.first.try_enqueue("another")
        service.is_down = False
        group.first.reset_health()
        await group.settle()
        assert group.first.try_enqueue("another")


async def test_nothing_is_lost_in_an_outage_of_everything() -> None:
    services = [Service(is_down=True), Service(is_down=True)]
    async with ladder(*services, reroute_failed=True, max_attempts=99) as group:
        await group.enqueue(*range(20))
        assert "failover.exhausted" in group.ears.heard
        for service in services:
            service.is_down = False
        assert await group.first.drain(100.0)
        assert group.statuses == {"completed": 20}
        assert sorted(services[0].done + services[1].done) == list(range(20))


async def test_slots_hold_at_every_edge() -> None:
    services = [Service(takes=1.0), Service(takes=1.0)]
    every = {"max_concurrency": 3}
    async with ladder(*services, every=every) as group:
        await group.enqueue(*range(30))
        for _ in range(3):
            await group.settle(0.5)
            group.first.isolate()
            await group.settle(0.5)
            group.first.reset_health()
        assert await group.first.drain(100.0)
        assert [service.most_active for service in services] == [3, 3]


async def test_sinks_and_groups_keep_ladders_apart() -> None:
    one, two, three = Service(), Service(), Service()
    async with (
        SignalSink() as sink,
        SignalSink() as other_sink,
        PriorityProcessorAtom(1, one, sink) as first,
        PriorityProcessorAtom(1, two, sink, group="eu") as second,
        PriorityProcessorAtom(1, three, other_sink) as third,
    ):
        first.isolate()
        assert (second.is_healthy, third.is_healthy) == (True, True)
        await second.enqueue("w")
        await third.enqueue("v")
        await wait_all_blocked()
        assert (one.done, two.done, three.done) == ([], ["w"], ["v"])
