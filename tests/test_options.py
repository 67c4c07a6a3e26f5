"""Options: what is refused, by name, and what is kept."""

from __future__ import annotations

import dataclasses
import os
from datetime import timedelta
from typing import Any

import pytest

from ephemeral import EphemeralOptions, SignalSink

WHOLE = [
    "max_concurrency",
    "max_concurrency_per_key",
    "fair_scheduling_threshold",
    "max_pending",
    "max_tracked_operations",
]
SWITCHES = ["enable_dynamic_concurrency", "enable_fair_scheduling"]
DURATIONS = ["max_operation_lifetime", "operation_timeout", "drain_timeout"]
CALLBACKS = ["on_signal", "on_sample", "on_operation_finalized"]


async def asynchronous(*_: object) -> None: ...


class AsynchronousToo:
    async def __call__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in WHOLE for value in (0, -1, 1.0, "4", None, True, float("inf"))],
        *[(name, value) for name in DURATIONS for value in (-1, float("nan"), float("inf"), "5", True)],
        *[(name, timedelta(seconds=-1)) for name in DURATIONS],
        pytest.param("drain_timeout", 10**400, id="more than a float holds"),
        *[(name, 0) for name in DURATIONS if name != "drain_timeout"],
        ("max_operation_lifetime", None),
        *[(name, value) for name in CALLBACKS for value in (3, "print", asynchronous, AsynchronousToo())],
        ("signals", "sink"),
        ("signals", SignalSink),
        ("signal_constraints", "strict"),
        ("coordinator_id", 7),
        ("coordinator_id", ""),
        *[(name, value) for name in SWITCHES for value in ("no", None, 1)],
    ],
)
def test_a_bad_value_is_one_error_that_names_its_field(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        EphemeralOptions(**{name: value})


def test_every_field_is_tried_above() -> None:
    tried = {*WHOLE, *DURATIONS, *CALLBACKS, "signals", "signal_constraints"}
    tried |= {"coordinator_id", *SWITCHES}
    assert {field.name for field in dataclasses.fields(EphemeralOptions)} == tried


def test_the_defaults_are_those_of_the_contract() -> None:
    assert dataclasses.asdict(EphemeralOptions()) == {
        "max_concurrency": os.cpu_count() or 1,
        "max_concurrency_per_key": 1,
        "enable_fair_scheduling": False,
        "fair_scheduling_threshold": 10,
        "enable_dynamic_concurrency": False,
        "max_pending": 1000,
        "max_tracked_operations": 200,
        "max_operation_lifetime": 300.0,
        **dict.fromkeys(["operation_timeout", "drain_timeout", "coordinator_id", "signals", "signal_constraints"]),
        **dict.fromkeys(CALLBACKS),
    }


@pytest.mark.parametrize("name", DURATIONS)
def test_a_timedelta_is_kept_as_seconds(name: str) -> None:
    assert getattr(EphemeralOptions(**{name: timedelta(minutes=2)}), name) == 120.0  # type: ignore[arg-type]


def test_options_are_frozen_and_by_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        EphemeralOptions().max_pending = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        EphemeralOptions(4)  # type: ignore[misc]


def test_options_may_be_taken_over_with_changes() -> None:
    options = EphemeralOptions(operation_timeout=timedelta(seconds=3), max_pending=7)
    changed = dataclasses.replace(options, max_pending=8)
    assert (changed.operation_timeout, changed.max_pending) == (3.0, 8)
