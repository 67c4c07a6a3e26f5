"""What a ladder says: every name, exactly, and in which order."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from ephemeral import (
    HealthOptions,
    NoHealthyProcessorError,
    PriorityProcessorAtom,
    ProcessingFailedError,
    SignalSink,
)
from ephemeral.testing import wait_all_blocked

from .ladder_kit import Ears, Service, ladder


async def test_an_item_that_goes_well() -> None:
    async with ladder(Service()) as group:
        await group.enqueue("widget-1")
        assert group.ears.heard == ["processing.started:pri1:widget-1", "processing.complete:pri1:widget-1"]


async def test_signals_of_an_item_carry_the_id_that_enqueue_returned() -> None:
    async with ladder(Service()) as group:
        operation_id = await group.first.enqueue("w")
        await wait_all_blocked()
        assert [event.operation_id for event in group.ears.events] == [operation_id, operation_id]


async def test_a_failure_that_takes_the_last_rung_down() -> None:
    async with ladder(Service(is_down=True), failure_threshold=1, drain_timeout=0) as group:
        await group.enqueue("w")
        assert group.ears.heard == [
            "processing.started:pri1:w",
            "processing.failed:pri1:w",
            "failover.requested:pri1→pri2",
            "failover.exhausted",
        ]
        requested, exhausted = group.ears.events[2:]
        assert requested.payload == {"route": None, "local": False}
        assert exhausted.key == "default"


async def test_a_failover_names_the_next_rung_and_the_route() -> None:
    async with ladder(Service(is_down=True), Service(), Service(), failure_threshold=1) as group:
        group.atoms[1].isolate()
        with group.ears.only() as heard:
            await group.enqueue("w")
        assert heard[-1] == "failover.requested:pri1→pri2"  # the next rung, healthy or not
        assert group.ears.events[-1].payload == {"route": "pri3", "local": False}
        assert "failover.exhausted" not in group.ears.heard


async def test_the_edge_of_a_lower_rung_leaves_the_route_alone() -> None:
    async with ladder(Service(), Service()) as group:
        group.atoms[1].isolate()
        assert group.ears.heard == ["failover.requested:pri2→pri3"]
        assert group.ears.events[0].payload == {"route": "pri1", "local": False}


async def test_a_canary_that_restores() -> None:
    service = Service(is_down=True)
    async with ladder(service, failure_threshold=1) as group:
        await group.enqueue("w1")
        service.is_down = False
        await group.settle(5.0)
        with group.ears.only() as heard:
            await group.enqueue("w2")
        assert heard == [
            "probe.testing:pri1",
            "processing.started:pri1:w2",
            "processing.complete:pri1:w2",
            "probe.success:pri1",
            "failover.restored:pri1",
        ]
        assert group.ears.events[-1].payload == {"route": "pri1", "local": False}


async def test_a_canary_that_fails() -> None:
    async with ladder(Service(is_down=True), Service(), failure_threshold=1) as group:
        await group.enqueue("w1")
        await group.settle(5.0)
        with group.ears.only() as heard:
            await group.enqueue("w2")
        assert heard == [
            "probe.testing:pri1",
            "processing.started:pri1:w2",
            "processing.failed:pri1:w2",
            "probe.failed:pri1",
            "processing.started:pri2:w2",
            "processing.complete:pri2:w2",
        ]


async def test_a_probe_of_its_own_raises_no_signals_of_processing() -> None:
    async def probe() -> bool:
        return is_well

    is_well = False
    async with ladder(Service(is_down=True), failure_threshold=1, probe=probe) as group:
        await group.enqueue("w")
        with group.ears.only() as heard:
            await group.settle(5.0)
            is_well = True
            await group.settle(5.0)
        assert heard == [
            "probe.testing:pri1",
            "probe.failed:pri1",
            "probe.testing:pri1",
            "probe.success:pri1",
            "failover.restored:pri1",
        ]


async def test_a_slow_call_says_so_once_and_before_the_edge() -> None:
    service = Service(takes=3.0)
    async with ladder(service, Service(), failure_threshold=1, health=HealthOptions(slow_after=1.0)) as group:
        await group.enqueue("w")
        await group.settle(1.0)
        assert group.ears.heard[1:] == ["processing.slow:pri1:w", "failover.requested:pri1→pri2"]
        await group.settle(2.0)
        assert group.ears.heard[3:] == ["processing.complete:pri1:w"]


async def test_an_item_given_up_after_all_its_runs() -> None:
    every = {"reroute_failed": True, "max_attempts": 2}
    async with ladder(Service(is_down=True), Service(is_down=True), every=every) as group:
        await group.enqueue("w")
        assert group.ears.heard == [
            "processing.started:pri1:w",
            "processing.failed:pri1:w",
            "processing.started:pri2:w",
            "processing.failed:pri2:w",
            "processing.abandoned:pri2:w",
        ]


async def test_an_item_left_over_at_the_end() -> None:
    service = Service()
    service.close_gate()
    async with ladder(service, Service(), drain_timeout=1.0) as group:
        await group.enqueue("running", "waiting")
    assert sorted(group.ears.starting("processing.undelivered")) == [
        "processing.undelivered:pri1:running",
        "processing.undelivered:pri1:waiting",
    ]


@pytest.mark.parametrize("group_name", ["eu", "pri1", "a.b"])
async def test_in_a_group_every_name_carries_the_groups(group_name: str) -> None:
    service, backup = Service(takes=2.0), Service(is_down=True)
    every: dict[str, Any] = {"group": group_name, "failure_threshold": 1, "health": HealthOptions(slow_after=1.0)}
    async with ladder(service, backup, every=every) as group:
        await group.enqueue("w1")
        await group.settle(2.0)
        await group.enqueue("w2")  # the backup fails it
        service.takes = 0.0
        await group.settle(5.0)
        await group.enqueue("w3")  # the canary
        assert [(signal, event.key) for signal, event in zip(group.ears.heard, group.ears.events, strict=True)] == [
            (f"processing.started:{group_name}.pri1:w1", None),
            (f"processing.slow:{group_name}.pri1:w1", None),
            (f"failover.requested:{group_name}.pri1→{group_name}.pri2", None),
            (f"processing.complete:{group_name}.pri1:w1", None),
            (f"processing.started:{group_name}.pri2:w2", None),
            (f"processing.failed:{group_name}.pri2:w2", None),
            (f"failover.requested:{group_name}.pri2→{group_name}.pri3", None),
            ("failover.exhausted", group_name),
            (f"probe.testing:{group_name}.pri1", None),
            (f"processing.started:{group_name}.pri1:w3", None),
            (f"processing.complete:{group_name}.pri1:w3", None),
            (f"probe.success:{group_name}.pri1", None),
            (f"failover.restored:{group_name}.pri1", None),
        ]


async def test_health_counts_calls_and_never_signals_of_these_names() -> None:
    async with ladder(Service(), failure_threshold=1) as group:
        group.sink.raise_signal("processing.failed:pri1:w")
        group.sink.raise_signal("failover.requested:pri1→pri2")
        assert group.first.is_healthy
        assert group.first.consecutive_failures == 0


async def test_a_small_sink_makes_no_ladder_forget_failures() -> None:
    service = Service(is_down=True)
    async with (
        SignalSink(1) as sink,
        PriorityProcessorAtom(1, service, sink, max_concurrency=1, drain_timeout=0) as atom,
    ):
        ears = Ears(sink, atom)
        await atom.enqueue_many(["a", "b", "c"])
        await wait_all_blocked()
        assert not atom.is_healthy
        assert ears.heard[-2:] == ["failover.requested:pri1→pri2", "failover.exhausted"]


async def test_a_listener_may_act_on_the_ladder() -> None:
    """Each signal is raised between two states that hold, so whoever hears it may do anything."""
    service = Service(is_down=True)
    async with ladder(service, Service(), failure_threshold=1) as group:
        seen: list[bool] = []

        def act(_event: Any) -> None:
            seen.append(group.first.try_enqueue("more"))
            service.is_down = False
            group.first.reset_health()

        with group.sink.subscribe(act, "failover.requested*"):
            await group.enqueue("w")
        assert seen == [True]
        assert group.first.is_healthy
        assert service.done == ["more"]
        assert await group.first.drain(timeout=1.0)
    assert anyio.current_time() < 10.0


async def test_nothing_is_exhausted_once_who_hears_of_the_edge_has_healed_it() -> None:
    async with ladder(Service(is_down=True), failure_threshold=1) as group:
        group.sink.subscribe(lambda event: group.first.reset_health(), "failover.requested:*")
        await group.enqueue("w")
        assert group.ears.starting("failover.") == ["failover.requested:pri1→pri2", "failover.restored:pri1"]


async def test_who_hears_of_an_edge_finds_the_work_moved() -> None:
    service = Service()
    service.close_gate()
    found: list[dict[str, int]] = []
    async with ladder(service) as group, anyio.create_task_group() as tasks:
        await group.enqueue("runs")

        async def call() -> None:
            with pytest.raises(NoHealthyProcessorError):
                await group.first.call("waits for a slot")

        tasks.start_soon(call)
        await wait_all_blocked()
        with group.sink.subscribe(lambda event: found.append(group.statuses), "failover.*"):
            group.first.isolate()
        assert found == [{"active": 1, "failed": 1}] * 2
        service.open_gate()


async def test_edges_and_the_first_item_given_up_unheard_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(is_down=True)
    caplog.set_level("INFO", logger="ephemeral")
    async with ladder(service, Service(), failure_threshold=2) as group:
        await group.enqueue("a", "b", "c")
        group.first.isolate()
        group.first.reset_health()
        group.first.isolate()
        group.atoms[1].isolate()
    given_up = "group 'default': an item was given up after ConnectionError on pri1, and no on_failed to tell;"
    assert [record.message for record in caplog.records] == [
        f"{given_up} further ones are only counted",
        "pri1 is down after 2 failures; work goes to pri2",
        "pri1 is up again",
        "pri1 is isolated by hand; work goes to pri2",
        "pri2 is isolated by hand; no rung is left",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "INFO", "INFO", "WARNING"]


async def test_a_group_whose_items_are_silent_tells_its_edges_alone() -> None:
    def refuse(item: object) -> str:
        raise AssertionError(f"asked for the name of {item!r}")

    every: dict[str, Any] = {"item_signals": False, "id_selector": refuse, "failure_threshold": 3}
    primary = Service()
    async with ladder(primary, Service(), every=every, reroute_failed=True) as group:
        await group.enqueue("a", "b\n")
        assert await group.first.call("c") == "service:c"
        assert group.ears.heard == []
        primary.is_down = True
        assert await group.first.call("d") == "service:d"
        await group.enqueue("e", "f")
        assert group.ears.heard == ["failover.requested:pri1→pri2"]
        assert group.statuses == {"completed": 6}


async def test_a_call_that_returned_false_in_a_silent_group_names_nothing() -> None:
    async def refuse(item: object) -> bool:
        return False

    async with ladder(refuse, item_signals=False) as group:
        with pytest.raises(ProcessingFailedError, match="pri1 returned False for an item"):
            await group.first.call("w")
        assert group.statuses == {"failed": 1}


async def test_atoms_of_a_group_agree_on_the_signals_of_its_items() -> None:
    async with SignalSink() as sink:
        atom = PriorityProcessorAtom(1, Service(), sink, item_signals=False)
        with pytest.raises(ValueError, match="item_signals=True contradicts item_signals=False"):
            PriorityProcessorAtom(2, Service(), sink, item_signals=True)
        assert "not entered" in repr(atom)
