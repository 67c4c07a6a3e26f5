"""Probes when somebody else may have the lease, as in a fleet: asked for over a wait, refused, and asked for again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from ephemeral import NoHealthyProcessorError
from ephemeral._health import Lease
from ephemeral.testing import wait_all_blocked

from .ladder_kit import Ladder, Service, ladder


class Fleet:
    """Stands between a group and its health store: answers after a while, and says no as long as it is told to."""

    def __init__(self, group: Ladder, *, takes: float = 0.0) -> None:
        self.takes = takes
        self.refuses = True
        self.asked_at: list[float] = []
        self._store = group.first._ladder.health
        self._acquire: Callable[..., Any] = self._store.acquire
        self._store.acquire = self.acquire  # type: ignore[method-assign]  # no store of this process refuses by itself

    async def acquire(self, processor: str, now: float) -> Lease | None:
        self.asked_at.append(now)
        if self.takes:
            await anyio.sleep(self.takes)
        return None if self.refuses else await self._acquire(processor, now)


async def knocked_out(group: Ladder, service: Service, *, takes: float = 0.0) -> Fleet:
    """Take the first rung down, and let a probe be due with nobody asking for it yet."""
    service.is_down = True
    await group.enqueue("tripped it")
    assert not group.first.is_healthy
    service.is_down = False
    service.started.clear()
    await group.settle(5.0)
    return Fleet(group, takes=takes)


async def test_a_refused_item_is_done_by_the_route_and_keeps_its_turn() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1, max_concurrency=3) as group:
        fleet = await knocked_out(group, service)
        await group.enqueue("first", "second", "third")
        assert fleet.asked_at == [5.0]
        assert service.started == []
        assert backup.started == ["first", "second", "third"]
        assert group.statuses == {"failed": 1, "completed": 3}
        assert group.ears.starting("probe.") == []


async def test_a_refused_lease_is_asked_for_again_soon_while_something_waits() -> None:
    service = Service()
    async with ladder(service, failure_threshold=1) as group:
        fleet = await knocked_out(group, service)
        await group.enqueue("waits")
        await group.settle(0.25)
        assert [round(at - 5.0, 9) for at in fleet.asked_at] == [0.0, 0.1, 0.2]
        fleet.refuses = False
        await group.settle(0.25)
        assert service.done == ["waits"]
        assert group.first.is_healthy


async def test_while_one_asks_nobody_else_does() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, failure_threshold=1, max_concurrency=3) as group:
        fleet = await knocked_out(group, service, takes=1.0)
        await group.enqueue("asks", "a", "b")
        assert fleet.asked_at == [5.0]
        assert backup.done == ["a", "b"]
        assert group.statuses == {"failed": 1, "active": 1, "completed": 2}
        await group.settle(1.0)
        assert backup.done == ["a", "b", "asks"]


async def test_a_refused_call_is_done_by_the_route() -> None:
    service, backup = Service(), Service("backup")
    async with ladder(service, backup, failure_threshold=1) as group:
        await knocked_out(group, service, takes=1.0)
        assert await group.first.call("w") == "backup:w"
        assert service.started == []


async def test_a_refused_call_with_nobody_healthy_is_told_so() -> None:
    service = Service()
    async with ladder(service, failure_threshold=1) as group:
        await knocked_out(group, service, takes=1.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(group.first.drain)
            with pytest.raises(NoHealthyProcessorError):
                await group.first.call("w")
        assert group.statuses == {"failed": 2}


async def test_a_call_that_was_a_failed_canary_is_refused_no_more() -> None:
    service = Service()
    results: list[Any] = []
    async with ladder(service, failure_threshold=1) as group, anyio.create_task_group() as tasks:
        fleet = await knocked_out(group, service)
        fleet.refuses, service.is_down = False, True

        async def call() -> None:
            results.append(await group.first.call("w"))

        tasks.start_soon(call)
        await group.settle()
        assert service.started == ["w"]
        fleet.refuses, service.is_down = True, False
        await group.settle(5.05)  # its next turn to probe: refused
        assert (results, group.statuses) == ([], {"failed": 1, "pending": 1})
        fleet.refuses = False
        await group.settle(0.1)
        assert results == ["service:w"]


async def test_a_call_cancelled_while_it_asks_leaves_nothing() -> None:
    service = Service()
    async with ladder(service, Service("backup"), failure_threshold=1) as group:
        fleet = await knocked_out(group, service, takes=1.0)
        with anyio.move_on_after(0.5):
            await group.first.call("cancelled")
        assert group.statuses == {"failed": 1, "cancelled": 1}
        fleet.refuses = False
        assert await group.first.call("next") == "service:next"


async def test_an_own_probe_that_is_refused_is_asked_for_again() -> None:
    service, probes = Service(), Service()

    async def probe() -> None:
        await probes("asked")

    async with ladder(service, Service(), failure_threshold=1, probe=probe, probe_interval=6.0) as group:
        fleet = await knocked_out(group, service)
        await group.settle(1.25)
        assert [round(at - 6.0, 9) for at in fleet.asked_at] == [0.0, 0.1, 0.2]
        assert probes.started == []
        fleet.refuses = False
        await group.settle(0.25)
        assert probes.done == ["asked"]
        assert group.first.is_healthy


async def test_a_rung_reset_while_it_is_asked_for_takes_the_item_as_usual() -> None:
    service = Service()
    async with ladder(service, Service(), failure_threshold=1) as group:
        await knocked_out(group, service, takes=1.0)
        await group.enqueue("w")
        group.first.reset_health()
        await group.settle(1.0)
        assert service.done == ["w"]
        await wait_all_blocked()
        assert group.statuses == {"failed": 1, "completed": 1}


async def test_a_store_that_breaks_is_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_at = list[float]()

    async def breaks(processor: str, now: float) -> None:
        asked_at.append(now)
        if len(asked_at) > 100:
            await anyio.sleep(math.inf)
        raise OSError("the store broke")

    async def probe() -> bool:
        return True

    async with ladder(Service(is_down=True), failure_threshold=1, probe=probe, probe_interval=5.0) as group:
        await group.enqueue("trips it")
        monkeypatch.setattr(group.first._ladder.health, "acquire", breaks)
        await group.settle(5.25)
        assert [round(at - 5.0, 9) for at in asked_at] == [0.0, 0.1, 0.2]
