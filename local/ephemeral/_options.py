"""What a coordinator may be told."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from ._bodies import is_async_function, require_plain
from ._checks import instance, optional_seconds, seconds, whole_number
from ._drain_requests import DRAIN_ALL, DRAIN_ID, DRAIN_PATTERN
from ._patterns import Pattern, optional_pattern
from ._propagation import SignalConstraints
from ._sink import SignalSink

if TYPE_CHECKING:
    from ._dispatcher import AsyncHandler
    from ._operations import EphemeralOperationSnapshot
    from ._signals import SignalEvent


_PATTERNS: Final = ("cancel_on_signals", "defer_on_signals", "resume_on_signals", "drain_on_signals")


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
        coordinator_id: A name for messages and ``repr``, and the one that ``request_drain`` and
            ``request_drain_pattern`` of the sink go by; several coordinators may share it. None: these never mean it.
        signals: The sink that the operations' signals go to. None: they stay with their operation.
        signal_constraints: What a signal may lead to, asked by ``op.emit_caused``. None: anything.
        on_signal: Called with each signal that an operation of this coordinator emits, in the emitter's thread.
        on_signal_async: Awaited with each such signal, in a task of its own, until the block is left.
        max_concurrent_signal_handlers: How many calls of *on_signal_async* may be under way, at least 1.
        max_queued_signals: How many signals may wait for it, at least 1; beyond that the oldest are dropped, and
            counted (``statistics().dropped_signals``).
        cancel_on_signals: Pattern of signals that have items passed over, and counted as skipped, while one is live.
        defer_on_signals: Pattern of signals that hold items back, at the latest until ``max_defer_attempts *
            defer_check_interval`` seconds after the newest one.
        resume_on_signals: Pattern of signals that end such a hold at once.
        max_defer_attempts: A whole number of at least 1.
        defer_check_interval: Seconds. Nothing is checked at intervals: the two are multiplied.
        drain_on_signals: Pattern of signals that have the coordinator complete and drain; those named
            ``coordinator.drain.id`` and ``coordinator.drain.pattern`` only if their key fits *coordinator_id*.
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
    on_signal_async: AsyncHandler | None = None
    max_concurrent_signal_handlers: int = 4
    max_queued_signals: int = 1000
    cancel_on_signals: Pattern | None = None
    defer_on_signals: Pattern | None = None
    resume_on_signals: Pattern | None = None
    max_defer_attempts: int = 10
    defer_check_interval: float | timedelta = 0.1
    drain_on_signals: Pattern | None = (DRAIN_ALL, DRAIN_ID, DRAIN_PATTERN)
    on_sample: Callable[[Sequence[EphemeralOperationSnapshot]], object] | None = None
    on_operation_finalized: Callable[[EphemeralOperationSnapshot], object] | None = None

    def __post_init__(self) -> None:
        for name in (
            "max_concurrency",
            "max_concurrency_per_key",
            "fair_scheduling_threshold",
            "max_pending",
            "max_tracked_operations",
            "max_concurrent_signal_handlers",
            "max_queued_signals",
            "max_defer_attempts",
        ):
            whole_number(name, getattr(self, name))
        accepted = {
            "max_operation_lifetime": seconds("max_operation_lifetime", self.max_operation_lifetime),
            "operation_timeout": optional_seconds("operation_timeout", self.operation_timeout),
            "drain_timeout": optional_seconds("drain_timeout", self.drain_timeout, zero=True),
            "defer_check_interval": seconds("defer_check_interval", self.defer_check_interval),
            **{name: optional_pattern(name, getattr(self, name)) for name in _PATTERNS},
        }
        for name, value in accepted.items():
            object.__setattr__(self, name, value)
        for name in ("enable_dynamic_concurrency", "enable_fair_scheduling"):
            instance(name, getattr(self, name), bool, "True or False")
        instance("coordinator_id", self.coordinator_id, str | None, "a name or None")
        instance("signals", self.signals, SignalSink | None, "a SignalSink or None")
        instance("signal_constraints", self.signal_constraints, SignalConstraints | None, "a SignalConstraints or None")
        if self.on_signal_async is not None and not is_async_function(self.on_signal_async):
            raise ValueError(f"on_signal_async must be async, not {self.on_signal_async!r}; plain functions: on_signal")
        for name in ("on_signal", "on_sample", "on_operation_finalized"):
            try:
                require_plain(name, getattr(self, name))
            except TypeError as error:
                raise ValueError(str(error)) from None


def options_or_default(options: object) -> EphemeralOptions:
    """Return *options*, or the defaults for None.

    Raises:
        TypeError: They are something else, say a dictionary or a bare number.
    """
    if options is None:
        return EphemeralOptions()
    if not isinstance(options, EphemeralOptions):
        raise TypeError(f"options must be EphemeralOptions(...) or None, not {options!r}")
    return options
