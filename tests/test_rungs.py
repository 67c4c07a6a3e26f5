"""The pure choices between rungs."""

from __future__ import annotations

import math
from contextvars import Context
from typing import Any

import pytest

from ephemeral import HealthOptions
from ephemeral._health import HealthRecord, HealthRules
from ephemeral._rungs import Item, Rung, first_up, stand_in


async def process(item: Any) -> Any:
    return item


def rung(priority: int, *, is_up: bool = True, name: str | None = None, **state: Any) -> Rung:
    return Rung(
        priority=priority,
        name=name or f"pri{priority}",
        run=process,
        slots=2,
        rules=HealthRules.of(HealthOptions()),
        probe=None,
        is_failure=None,
        slow_after=None,
        is_up=is_up,
        **state,
    )


def test_the_first_healthy_rung_in_order_is_the_route() -> None:
    down, second, third = rung(1, is_up=False), rung(2), rung(3)
    assert first_up([down, second, third]) is second
    assert first_up([rung(1), second]).priority == 1  # type: ignore[union-attr]


def test_below_a_rung_only_lower_ones_are_chosen() -> None:
    first, down, third = rung(1), rung(2, is_up=False), rung(3)
    assert first_up([first, down, third], below=1) is third
    assert first_up([first, down, third], below=3) is None


def test_no_rung_is_up() -> None:
    assert first_up([rung(1, is_up=False)]) is None
    assert first_up([]) is None


@pytest.mark.parametrize(
    ("priorities", "at", "expected"),
    [([1, 2, 3], 1, "pri2"), ([1, 5], 1, "pri5"), ([1, 5], 5, "pri6"), ([1], 1, "pri2"), ([9, 11], 11, "pri12")],
)
def test_the_stand_in_is_the_next_rung_or_the_next_number(priorities: list[int], at: int, expected: str) -> None:
    rungs = [rung(priority, is_up=False) for priority in priorities]
    assert stand_in(rungs, rungs[priorities.index(at)]) == expected


@pytest.mark.parametrize("group", ["eu", "pri1", "eu.pri2", "1"])
def test_the_stand_in_of_a_group_keeps_the_groups_name(group: str) -> None:
    only = rung(1, name=f"{group}.pri1")
    assert stand_in([only], only) == f"{group}.pri2"


def test_a_slot_is_free_until_all_are_taken() -> None:
    assert rung(1, active=1).has_slot
    assert not rung(1, active=2).has_slot


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ({"is_up": False, "probe_due_at": 5.0}, True),
        ({"is_up": False, "probe_due_at": 5.5}, False),
        ({"is_up": False, "probe_due_at": math.inf}, False),
        ({"is_up": True, "probe_due_at": 0.0}, False),
        ({"is_up": False, "probe_due_at": 1.0, "ask_again_at": 5.5}, False),
        ({"is_up": False, "probe_due_at": 1.0, "asker": object()}, False),
    ],
)
def test_a_probe_is_wanted_once_due_by_nobody_else(state: dict[str, Any], wanted: bool) -> None:
    assert rung(1, **state).wants_probe(5.0) is wanted


def test_a_rung_follows_its_record() -> None:
    one = rung(1)
    one.follow(HealthRecord("pri1", epoch=7, since=1.0, by="me", state="down", probe_at=6.0))
    assert (one.is_up, one.epoch, one.probe_due_at) == (False, 7, 6.0)


def test_an_item_that_is_cleared_holds_nothing_of_the_user() -> None:
    context = Context()
    item = Item(1, "secret", "name", context)
    item.clear()
    assert item.payload is None
    assert item.context is not context
