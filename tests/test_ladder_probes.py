"""How a rung that is down is tried again: canaries, probes of its own, and nothing while all is well."""

from __future__ import annotations

import math
import threading
from typing import Any

import anyio
import pytest

from ephemeral import HealthOptions, _health
from ephemeral.testing import wait_all_blocked

from .ladder_kit import Ladder, Service, ladder


async def knock_out(group: Ladder, service: Service) -> None:
    """Take the first rung down by a failing item."""
    service.is_down = True
    await group.enqueue("tripped it")
    assert not group.first.is_healthy
    service.started.clear()


async def test_the_first_waiting_item_is_the_canary_once_a_probe_is_due() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1) as group:
        await knock_out(group, service)
        backup.close_gate()
        service.is_down = False
        await group.enqueue("runs", "first", "second")
        await group.settle(4.75)
        assert service.started == []
        await group.settle(0.25)
        assert service.started == ["first", "second"]
        assert group.first.is_healthy
        backup.open_gate()


@pytest.mark.parametrize("way", ["enqueue", "try_enqueue", "call"])
async def test_with_nothing_waiting_the_next_item_is_the_canary(way: str) -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1) as group:
        await knock_out(group, service)
        service.is_down = False
        await group.settle(60.0)
        assert group.first.get_health().state == "down"  # without traffic it stays down
        result = getattr(group.first, way)("canary")
        if way != "try_enqueue":
            await result
        await group.settle()
        assert service.done == ["canary"]
        assert group.first.is_healthy


async def test_an_item_before_a_probe_is_due_goes_to_the_backup() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1) as group:
        await knock_out(group, service)
        await group.settle(4.75)
        await group.enqueue("w")
        assert await group.first.call("v")
        assert (service.started, backup.done) == ([], ["w", "v"])


async def test_one_canary_at_a_time() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1, max_concurrency=4) as group:
        await knock_out(group, service)
        await group.settle(5.0)
        service.close_gate()
        await group.enqueue("canary", "a")
        assert await group.first.call("b")
        await group.settle(30.0)
        await group.enqueue("c")
        assert service.started == ["canary"]
        assert backup.done == ["a", "b", "c"]
        assert group.ears.starting("probe.") == ["probe.testing:pri1"]
        service.is_down = False
        service.open_gate()
        await group.settle()
        assert group.first.is_healthy


async def test_each_rung_that_is_down_has_a_canary_of_its_own() -> None:
    services = [Service(), Service(), Service()]
    async with ladder(*services, every={"failure_threshold": 1}) as group:
        for service in services[:2]:
            service.is_down = True
            await group.enqueue("trips it")
            service.is_down = False
        services[0].close_gate()
        services[1].close_gate()
        await group.settle(5.0)
        await group.enqueue("canary1", "canary2", "w")
        assert [service.started[-1] for service in services] == ["canary1", "canary2", "w"]
        services[0].open_gate()
        services[1].open_gate()


async def test_a_failed_canary_runs_again_without_reroute_and_costs_no_attempt() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1, max_attempts=1) as group:
        await knock_out(group, service)
        await group.settle(5.0)
        await group.enqueue("canary")
        assert (service.started, backup.done) == (["canary"], ["canary"])
        assert group.statuses == {"failed": 1, "completed": 1}


async def test_a_failed_canary_is_charged_no_run() -> None:
    """With two runs at most it has both left after it was tried as a canary."""
    service, backup = Service(), Service()
    options: dict[str, Any] = {"failure_threshold": 1, "max_attempts": 2, "reroute_failed": True}
    async with ladder(service, backup, Service("third"), **options) as group:
        await knock_out(group, service)
        await group.settle(5.0)
        backup.errors = {"canary": ConnectionError()}
        await group.enqueue("canary")
        assert group.statuses == {"completed": 2}


async def test_a_call_that_was_a_failed_canary_runs_again() -> None:
    service, backup = Service(), Service("backup")
    async with ladder(service, backup, failure_threshold=1) as group:
        await knock_out(group, service)
        await group.settle(5.0)
        assert await group.first.call("w") == "backup:w"
        assert service.started == ["w"]


async def test_a_failed_canary_with_nobody_healthy_waits_at_the_back_of_the_line() -> None:
    service = Service()
    async with ladder(service, failure_threshold=1) as group:
        await knock_out(group, service)
        service.errors = {"poison": ConnectionError()}
        await group.enqueue("poison", "good", "better")
        service.is_down = False
        await group.settle(5.0)
        assert service.started == ["poison"]
        await group.settle(5.0)  # one poisoned item does not hold up recovery
        assert service.started == ["poison", "good", "better", "poison"]
        assert group.statuses == {"failed": 2, "completed": 2}


async def test_a_call_that_was_a_failed_canary_with_nobody_healthy_waits_for_its_result() -> None:
    service = Service()
    results: list[Any] = []
    async with ladder(service, failure_threshold=1) as group, anyio.create_task_group() as tasks:
        await knock_out(group, service)
        await group.settle(5.0)

        async def call() -> None:
            results.append(await group.first.call("w"))

        tasks.start_soon(call)
        await wait_all_blocked()
        assert group.statuses == {"failed": 1, "pending": 1}
        service.is_down = False
        await group.settle(5.0)
        assert results == ["service:w"]
        assert service.started == ["w", "w"]


async def test_an_error_that_is_the_items_own_fault_is_a_good_probe() -> None:
    service = Service()
    options: dict[str, Any] = {"failure_threshold": 1, "is_failure": lambda error: not isinstance(error, LookupError)}
    async with ladder(service, Service(), **options) as group:
        await knock_out(group, service)
        service.errors = {"odd": LookupError()}
        await group.settle(5.0)
        with pytest.raises(LookupError):
            await group.first.call("odd")
        assert group.first.is_healthy
        assert group.ears.heard[-3:] == ["processing.failed:pri1:odd", "probe.success:pri1", "failover.restored:pri1"]
        assert group.statuses == {"failed": 2}


async def test_a_call_cancelled_as_a_canary_gives_the_lease_back() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1) as group:
        await knock_out(group, service)
        service.is_down = False
        service.close_gate()
        await group.settle(5.0)
        with anyio.move_on_after(1.0):
            await group.first.call("cancelled")
        assert group.first.get_health().state == "down"
        assert group.ears.starting("probe.") == ["probe.testing:pri1"]
        service.open_gate()
        assert await group.first.call("next") == "service:next"  # at once, no interval in between
        assert group.first.is_healthy


async def test_a_slow_canary_is_a_failed_probe_the_moment_it_is_slow() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1, health=HealthOptions(slow_after=1.0)) as group:
        await knock_out(group, service)
        service.is_down = False
        service.takes = 3.0
        await group.settle(5.0)
        await group.enqueue("slow")
        await group.settle(1.0)
        assert group.ears.heard[-2:] == ["processing.slow:pri1:slow", "probe.failed:pri1"]
        await group.settle(2.0)
        assert group.ears.heard[-1] == "processing.complete:pri1:slow"  # done all the same
        assert (service.done, backup.started) == (["slow"], [])
        assert not group.first.is_healthy
        assert group.statuses == {"failed": 1, "completed": 1}


async def test_a_slow_canary_that_fails_in_the_end_runs_again() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1, health=HealthOptions(slow_after=1.0)) as group:
        await knock_out(group, service)
        service.takes = 3.0
        await group.settle(5.0)
        await group.enqueue("slow")
        await group.settle(3.0)
        assert backup.done == ["slow"]
        assert group.ears.starting("probe.") == ["probe.testing:pri1", "probe.failed:pri1"]


async def test_a_canary_that_hangs_is_followed_by_another_after_its_lease() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1, max_concurrency=2) as group:
        await knock_out(group, service)
        service.is_down = False
        service.close_gate()
        await group.settle(5.0)
        await group.enqueue("hangs")
        hung, service.gate = service.gate, None
        await group.settle(59.75)
        await group.enqueue("early")
        assert service.started == ["hangs"]
        await group.settle(0.25)
        await group.enqueue("next")
        assert group.first.is_healthy
        assert service.done == ["next"]
        assert hung is not None
        hung.set()


async def test_probes_keep_their_interval_while_they_fail() -> None:
    service = Service()
    at: list[float] = []

    async def probe() -> bool:
        at.append(anyio.current_time())
        return False

    async with ladder(service, Service(), failure_threshold=1, probe=probe, probe_interval=2.0) as group:
        await knock_out(group, service)
        await group.settle(7.0)
        assert at == [2.0, 4.0, 6.0]


async def test_probes_back_off_up_to_the_longest_interval() -> None:
    service = Service()
    at: list[float] = []

    async def probe() -> bool:
        at.append(anyio.current_time())
        return False

    health = HealthOptions(probe_backoff=2.0, max_probe_interval=8.0)
    async with ladder(service, Service(), failure_threshold=1, probe=probe, probe_interval=2.0, health=health) as group:
        await knock_out(group, service)
        await group.settle(31.0)
        assert at == [2.0, 6.0, 14.0, 22.0, 30.0]


async def test_so_many_good_probes_in_a_row_restore() -> None:
    service = Service()
    answers = iter([True, False, True, None, "yes"])

    async def probe() -> Any:
        return next(answers)

    health = HealthOptions(recovery_probes=3)
    async with ladder(service, Service(), failure_threshold=1, probe=probe, health=health) as group:
        await knock_out(group, service)
        await group.settle(20.0)
        assert not group.first.is_healthy
        await group.settle(5.0)
        assert group.first.is_healthy
        assert group.ears.starting("probe.s", "probe.f", "failover.rest") == [
            "probe.success:pri1",
            "probe.failed:pri1",
            "probe.success:pri1",
            "probe.success:pri1",
            "probe.success:pri1",
            "failover.restored:pri1",
        ]


async def test_a_probe_of_its_own_needs_no_item_and_takes_none() -> None:
    service, backup = Service(), Service()
    probe = Service("probe")

    async def ask() -> None:
        await probe("asked")

    async with ladder(service, backup, failure_threshold=1, probe=ask) as group:
        await knock_out(group, service)
        backup.close_gate()
        await group.enqueue("runs", "waits")
        await group.settle(5.0)
        assert probe.done == ["asked"]
        assert service.started == ["waits"]  # restored: the line came back
        backup.open_gate()


async def test_a_probe_that_raises_says_no() -> None:
    service = Service()

    async def probe() -> None:
        raise ConnectionError

    async with ladder(service, Service(), failure_threshold=1, probe=probe) as group:
        await knock_out(group, service)
        await group.settle(5.0)
        assert group.ears.heard[-2:] == ["probe.testing:pri1", "probe.failed:pri1"]
        assert group.first.get_health().state == "down"


async def test_a_probe_that_hangs_has_failed_when_its_lease_ends_and_never_piles_up() -> None:
    service = Service()
    probes = Service("probe", takes=math.inf)

    async def probe() -> None:
        await probes(anyio.current_time())

    async with ladder(service, Service(), failure_threshold=1, probe=probe, timeout=8.0) as group:
        await knock_out(group, service)
        await group.settle(35.0)
        # The lease lasts for the timeout and 2 s more; the interval of 5 s follows.
        assert probes.started == [5.0, 20.0, 35.0]
        assert probes.cancelled == [5.0, 20.0]
        assert probes.most_active == 1
        assert len(group.ears.starting("probe.failed")) == 2


async def test_the_probe_of_one_rung_holds_up_no_other() -> None:
    services = [Service(), Service()]
    hung = Service(takes=math.inf)

    async def hangs() -> None:
        await hung("probe")

    async def answers() -> None:
        await anyio.sleep(1.0)

    options: dict[str, Any] = {"failure_threshold": 1, "reroute_failed": True}
    async with ladder(*services, every={**options, "probe": answers}) as group:
        group.first._rung.probe = hangs
        for service in services:
            service.is_down = True
        await group.enqueue("w")
        assert [health.state for health in group.first.get_ladder()] == ["down", "down"]
        services[1].is_down = False
        await group.settle(6.0)
        assert [health.state for health in group.first.get_ladder()] == ["probing", "up"]
        assert services[1].done == ["w"]


async def test_probing_goes_on_while_nobody_is_healthy() -> None:
    service = Service()
    async with ladder(service, failure_threshold=1) as group:
        await knock_out(group, service)
        await group.enqueue("w")
        await group.settle(50.0)
        assert len(group.ears.starting("probe.failed")) == 10
        service.is_down = False
        await group.settle(5.0)
        assert service.done == ["w"]


@pytest.mark.real_time
async def test_a_plain_probe_runs_in_a_thread() -> None:
    threads: list[str] = []
    asked = anyio.Event()

    def probe() -> bool:
        threads.append(threading.current_thread().name)
        anyio.from_thread.run_sync(asked.set)
        return True

    service = Service()
    async with ladder(service, Service(), failure_threshold=1, probe=probe, probe_interval=0.001) as group:
        await group.enqueue()
        service.is_down = True
        async with group.sink.listen("failover.restored:pri1") as restored:
            await group.first.enqueue("trips it")
            await asked.wait()
            async for _ in restored:
                break
        assert threads != []
        assert threading.current_thread().name not in threads
        assert group.first.is_healthy


async def test_when_calls_alone_are_waiting_one_of_them_is_the_canary() -> None:
    """A backup that calls keep busy must not keep the primary from being tried."""
    service, backup = Service(), Service(takes=2.0)
    async with ladder(service, backup, failure_threshold=1) as group, anyio.create_task_group() as tasks:
        await knock_out(group, service)
        service.is_down = False

        async def call_again_and_again(number: int) -> None:
            while not group.first.is_healthy and anyio.current_time() < 100.0:
                await group.first.call(number)

        for number in range(3):
            tasks.start_soon(call_again_and_again, number)
        await group.settle(20.0)
        assert group.first.is_healthy


@pytest.mark.real_time
async def test_a_plain_probe_that_does_not_return_has_failed_and_the_next_one_is_not_kept_from_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_health, "LEASE_MARGIN", 0.0)
    release, begun = threading.Event(), threading.Semaphore(0)
    answers = iter([release.wait])

    def probe() -> bool:
        begun.release()
        next(answers, lambda: True)()
        return True

    service = Service(is_down=True)
    options: dict[str, Any] = {"failure_threshold": 1, "probe": probe, "probe_interval": 0.01, "timeout": 0.05}
    async with ladder(service, **options) as group:
        try:
            async with group.sink.listen("probe.*, failover.restored*") as events:
                await group.first.enqueue("trips it")
                heard = [(await anext(events)).signal for _ in range(5)]
            assert [signal.removesuffix(":pri1") for signal in heard] == [
                *("probe.testing", "probe.failed", "probe.testing", "probe.success", "failover.restored")
            ]
            assert group.first._rung.lost_probes == 1
        finally:
            release.set()
    assert group.first._rung.lost_probes == 0


@pytest.mark.real_time
async def test_plain_probes_that_do_not_return_take_one_thread_more_than_the_rung_has_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_health, "LEASE_MARGIN", 0.0)
    release, begun = [threading.Event() for _ in range(4)], list[int]()

    def probe() -> bool:
        begun.append(len(begun))
        return release[begun[-1]].wait(20.0)

    options: dict[str, Any] = {"failure_threshold": 1, "probe": probe, "probe_interval": 0.01, "timeout": 0.02}
    async with ladder(Service(is_down=True), Service(), max_concurrency=1, **options) as group:
        try:
            async with group.sink.listen("probe.failed*") as failed:
                await group.first.enqueue("trips it")
                while group.first._rung.lost_probes < 2:
                    await anext(failed)
                assert begun == [0, 1]
                assert not group.first._rung.wants_probe(math.inf)
                await group.first.enqueue("goes on meanwhile")
                assert await group.first.drain(5.0)
                release[0].set()
                while len(begun) < 3:
                    await anext(failed)
        finally:
            for event in release:
                event.set()
