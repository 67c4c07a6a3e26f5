"""Options: what is refused, by name, and what is kept."""

from __future__ import annotations

import dataclasses
import os
from datetime import timedelta
from typing import Any

import pytest

from ephemeral import EphemeralOptions, SignalSink

WHOLE = {
    "max_concurrency": os.cpu_count() or 1,
    "max_concurrency_per_key": 1,
    "fair_scheduling_threshold": 10,
    "max_pending": 1000,
    "max_tracked_operations": 200,
    "max_concurrent_signal_handlers": 4,
    "max_queued_signals": 1000,
    "max_defer_attempts": 10,
}
FLAGS = {"enable_dynamic_concurrency": False, "enable_fair_scheduling": False}
REQUIRED_DURATIONS = {"max_operation_lifetime": 300.0, "defer_check_interval": 0.1}
DURATIONS = {**REQUIRED_DURATIONS, "operation_timeout": None, "drain_timeout": None}
PATTERNS = {
    "cancel_on_signals": None,
    "defer_on_signals": None,
    "resume_on_signals": None,
    "drain_on_signals": ("coordinator.drain.all", "coordinator.drain.id", "coordinator.drain.pattern"),
}
CALLBACKS = {"on_signal": None, "on_sample": None, "on_operation_finalized": None}
OTHERS = {"coordinator_id": None, "signals": None, "signal_constraints": None, "on_signal_async": None}
DEFAULTS = {**WHOLE, **FLAGS, **DURATIONS, **PATTERNS, **CALLBACKS, **OTHERS}


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
        *[(name, None) for name in REQUIRED_DURATIONS],
        *[(name, value) for name in FLAGS for value in ("no", None, 1)],
        *[(name, value) for name in PATTERNS for value in (7, "", ["a", 7])],
        *[(name, value) for name in CALLBACKS for value in (3, "print", asynchronous, AsynchronousToo())],
        *[("on_signal_async", value) for value in (3, print)],
        *[("signals", value) for value in ("sink", SignalSink)],
        ("signal_constraints", "strict"),
        *[("coordinator_id", value) for value in (7, "")],
    ],
)
def test_a_bad_value_is_one_error_that_names_its_field(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        EphemeralOptions(**{name: value})


def test_the_fields_are_those_tried_above_with_the_defaults_of_the_contract() -> None:
    options = EphemeralOptions()
    assert {field.name: getattr(options, field.name) for field in dataclasses.fields(options)} == DEFAULTS


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
