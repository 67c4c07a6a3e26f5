"""What a coordinator may be told."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from ._bodies import require_plain
from ._checks import instance, optional_seconds, seconds, whole_number
from ._propagation import SignalConstraints
from ._sink import SignalSink

if TYPE_CHECKING:
    from ._operations import EphemeralOperationSnapshot
    from ._signals import SignalEvent


@dataclass(frozen=True, kw_only=True)
class EphemeralOptions:
    """How a coordinator bounds, remembers and reports its work.

    Durations are seconds; a ``timedelta`` is accepted and kept as seconds.

    Attributes:
        max_concurrency: How many operations run at once, at least 1. Default: the number of CPUs.
        max_concurrency_per_key: How many operations of one key run at once, at least 1; keyed coordinators only.
        enable_fair_scheduling: Whether keys take turns and each has room of its own in the line, instead of items
            starting in order of arrival; keyed coordinators only.
        fair_scheduling_threshold: How many items of one key may wait with fair scheduling, at least 1; a full key makes
            ``enqueue`` wait and ``try_enqueue`` refuse for that key alone.
        enable_dynamic_concurrency: Whether `set_max_concurrency` may change that while running.
        max_pending: How many items may wait, at least 1; a full line makes ``enqueue`` wait and ``try_enqueue`` refuse.
        max_tracked_operations: How many operations the window remembers, at least 1. Only running and pinned ones
            may exceed it.
        max_operation_lifetime: How long an operation is remembered after it ended. Running and pinned ones stay.
        operation_timeout: How long a body may run; then it is cancelled and counts as failed with ``TimeoutError``.
            A plain function cannot be interrupted: it counts as failed then, and its slot stays taken until it returns.
            None: for ever.
        drain_timeout: How long leaving the block waits for accepted work; then the rest is cancelled. None: for ever.
        coordinator_id: A name for messages and ``repr``.
        signals: The sink that the operations' signals go to. None: they stay with their operation.
        signal_constraints: What a signal may lead to, asked by ``op.emit_caused``. None: anything.
        on_signal: Called with each signal that an operation of this coordinator emits, in the emitter's thread.
        on_sample: Called with the window, oldest start first, after each operation ends.
        on_operation_finalized: Called with the snapshot of each operation that leaves the window.

    Callbacks are plain functions that must not block. One that raises is logged and counted
    (``statistics().callback_errors``); it harms no operation and holds up no drain.

    Raises:
        ValueError: A value out of range; the message names the field.
    """

    max_concurrency: int = field(default_factory=lambda: os.cpu_count() or 1)
    max_concurrency_per_key: int = 1
    enable_fair_scheduling: bool = False
    fair_scheduling_threshold: int = 10
    enable_dynamic_concurrency: bool = False
    max_pending: int = 1000
    max_tracked_operations: int = 200
    max_operation_lifetime: float | timedelta = 300.0
    operation_timeout: float | timedelta | None = None
    drain_timeout: float | timedelta | None = None
    coordinator_id: str | None = None
    signals: SignalSink | None = None
    signal_constraints: SignalConstraints | None = None
    on_signal: Callable[[SignalEvent], object] | None = None
    on_sample: Callable[[Sequence[EphemeralOperationSnapshot]], object] | None = None
    on_operation_finalized: Callable[[EphemeralOperationSnapshot], object] | None = None

    def __post_init__(self) -> None:
        for name in (
            "max_concurrency",
            "max_concurrency_per_key",
            "fair_scheduling_threshold",
            "max_pending",
            "max_tracked_operations",
        ):
            whole_number(name, getattr(self, name))
        accepted = {
            "max_operation_lifetime": seconds("max_operation_lifetime", self.max_operation_lifetime),
            "operation_timeout": optional_seconds("operation_timeout", self.operation_timeout),
            "drain_timeout": optional_seconds("drain_timeout", self.drain_timeout, zero=True),
        }
        for name, value in accepted.items():
            object.__setattr__(self, name, value)
        for name in ("enable_dynamic_concurrency", "enable_fair_scheduling"):
            instance(name, getattr(self, name), bool, "True or False")
        instance("coordinator_id", self.coordinator_id, str | None, "a name or None")
        instance("signals", self.signals, SignalSink | None, "a SignalSink or None")
        instance("signal_constraints", self.signal_constraints, SignalConstraints | None, "a SignalConstraints or None")
        for name in ("on_signal", "on_sample", "on_operation_finalized"):
            try:
                require_plain(name, getattr(self, name))
            except TypeError as error:
                raise ValueError(str(error)) from None
