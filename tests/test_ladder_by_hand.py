"""Health by hand and in view: isolate, reset, what is shown of it, and the silence while all is well."""

from __future__ import annotations

import math
from typing import Any

import anyio
import pytest

from ephemeral import HealthOptions, PriorityProcessorAtom, SignalSink
from ephemeral.testing import wait_all_blocked

from .ladder_kit import Service, ladder


async def test_isolate_and_reset_are_edges_by_hand() -> None:
    async with ladder(Service(), Service(), failure_threshold=1) as group:
        group.first.isolate()
        health = group.first.get_health()
        assert (health.state, health.failures, health.is_local) == ("isolated", 0, False)
        assert not group.first.is_healthy
        group.first.isolate()  # again: nothing happens
        group.first.reset_health()
        assert group.first.get_health().state == "up"
        assert group.ears.heard == ["failover.requested:pri1→pri2", "failover.restored:pri1"]


async def test_an_isolated_rung_gets_no_work_and_is_never_probed() -> None:
    service, backup = Service(), Service()
    async with ladder(service, backup, probe=Service(), probe_interval=1.0) as group:
        group.first.isolate()
        for item in range(5):
            await group.enqueue(item)
            await group.settle(100.0)
        assert service.started == []
        assert len(backup.done) == 5
        assert group.ears.starting("probe.") == []


async def test_isolating_one_that_is_down_stops_its_probes() -> None:
    service = Service(is_down=True)
    async with ladder(service, Service(), failure_threshold=1) as group:
        await group.enqueue("w")
        group.first.isolate()
        await group.settle(100.0)
        await group.enqueue("w2")
        assert service.started == ["w"]
        assert group.first.get_health().state == "isolated"
        assert len(group.ears.starting("failover.requested")) == 1


async def test_isolating_a_rung_outdates_the_probe_under_way() -> None:
    service = Service(is_down=True)
    async with ladder(service, Service(), failure_threshold=1) as group:
        await group.enqueue("w")
        service.is_down = False
        service.close_gate()
        await group.settle(5.0)
        await group.enqueue("canary")
        assert group.first.get_health().state == "probing"
        group.first.isolate()
        service.open_gate()
        await group.settle()
        assert group.first.get_health().state == "isolated"
        assert service.done == ["canary"]


async def test_reset_on_a_healthy_rung_forgets_its_failures_and_raises_nothing() -> None:
    service = Service(is_down=True)
    async with ladder(service, Service(), failure_threshold=2) as group:
        await group.enqueue("a")
        assert group.first.consecutive_failures == 1
        with group.ears.only() as heard:
            group.first.reset_health()
        assert heard == []
        assert group.first.consecutive_failures == 0
        await group.enqueue("b")
        assert group.first.is_healthy


async def test_health_tells_who_when_and_how_often() -> None:
    service = Service(is_down=True)
    async with ladder(service, Service(), failure_threshold=2) as group:
        up = group.first.get_health()
        assert (up.processor, up.priority, up.state, up.last_probe, up.by) == ("pri1", 1, "up", None, group.sink.origin)
        await group.settle(3.0)
        await group.enqueue("a", "b")
        down = group.first.get_health()
        assert (down.state, down.failures, down.since.timestamp()) == ("down", 2, 3.0)
        assert down.epoch > up.epoch
        service.close_gate()
        await group.settle(5.0)
        await group.enqueue("canary")
        probing = group.first.get_health()
        assert (probing.state, probing.failures, probing.since.timestamp()) == ("probing", 2, 3.0)
        assert probing.last_probe is not None
        assert probing.last_probe.timestamp() == 8.0
        assert [health.state for health in group.atoms[1].get_ladder()] == ["probing", "up"]
        service.is_down = False
        service.open_gate()
        await group.settle()
        assert [health.state for health in group.first.get_ladder()] == ["up", "up"]


async def test_the_ladder_is_listed_in_order_of_priority_however_it_was_entered() -> None:
    async with SignalSink() as sink, PriorityProcessorAtom(7, Service(), sink) as seventh:
        not_entered = PriorityProcessorAtom(5, Service(), sink)
        async with PriorityProcessorAtom(2, Service(), sink):
            assert [health.priority for health in seventh.get_ladder()] == [2, 7]
            with pytest.raises(RuntimeError, match="pri5 has no health yet; enter its block"):
                not_entered.get_health()


async def test_a_healthy_ladder_sets_no_timer() -> None:
    """Whatever its options: the clock has nothing to jump to but this test's own deadline."""
    options: dict[str, Any] = {
        "health": HealthOptions(slow_after=1.0),
        "timeout": 5.0,
        "probe": Service(),
        "probe_interval": 1.0,
    }
    async with ladder(Service(takes=0.5), Service(), every=options) as group:
        await group.enqueue("w")
        await group.first.drain()
        await group.settle(1.0)  # the last appointment of a call that was quick
        started_at = anyio.current_time()
        assert next_timer() - started_at > 1000.0
        group.first.isolate()
        group.first.reset_health()
        await wait_all_blocked()
        assert next_timer() - started_at > 1000.0


def next_timer() -> float:
    """Return when the loop would wake next, as far as its own books say."""
    native: Any = anyio.lowlevel.current_token().native_token
    if hasattr(native, "_scheduled"):
        return min((timer.when() for timer in native._scheduled if not timer.cancelled()), default=math.inf)
    import trio  # noqa: PLC0415  only where it runs the test

    return anyio.current_time() + trio.lowlevel.current_statistics().seconds_to_next_deadline
