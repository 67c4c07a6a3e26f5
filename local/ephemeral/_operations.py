"""One operation: what its body may do with it while it runs, and what is remembered of it afterwards."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, Protocol, cast

from ._patterns import Pattern, compile_pattern
from ._signals import SignalEvent, SignalPropagation
from ._workers import Worker

# An operation that emits for ever must not grow for ever; the sink has its own bound.
MAX_SIGNALS_KEPT: Final = 1000

NO_CONTEXT: Final = Context()
"""What runs nothing any more has this one, which keeps nothing of anybody's alive."""


class Outcome(Enum):
    """How an operation stands."""

    UNKNOWN = "not ended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


# Read for each operation: a member of an enum takes 90 ns to reach through its class, a name of the module 5.
UNKNOWN: Final = Outcome.UNKNOWN
COMPLETED: Final = Outcome.COMPLETED
_NEVER: Final = math.inf


class OperationHome(Protocol):
    """What an operation needs of the coordinator that runs it."""

    def emit(self, operation: Operation, signal: str, cause: SignalEvent | SignalPropagation | None) -> bool:
        """Raise *signal* for *operation*, which keeps it, because of *cause*; False if it was blocked."""
        ...

    def retract(self, operation: Operation, matches: Callable[[SignalEvent], bool]) -> None:
        """Take what *matches* of *operation*'s signals back from the sink."""
        ...

    def wall_time(self, loop_time: float) -> float:
        """Convert loop time to UTC epoch seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EphemeralOperationSnapshot:
    """What is remembered of one operation: metadata, never its item.

    Attributes:
        id: The operation's id, as ``enqueue`` returned it.
        started: When its body started.
        completed: When it ended; None while it runs.
        key: The key it ran under; None where there are no keys.
        is_faulted: Whether its body raised.
        is_cancelled: Whether it was cancelled.
        error: What its body raised, without tracebacks (they would keep the item alive).
        error_trace: Where it was raised: files, lines and functions as text.
        duration: Seconds from start to end; None while it runs.
        signals: Names of the signals it emitted and did not retract, oldest first (the newest 1000).
        is_pinned: Whether it stays in the window until unpinned.
    """

    id: int
    started: datetime
    completed: datetime | None
    key: str | None
    is_faulted: bool
    is_cancelled: bool
    error: BaseException | None
    error_trace: str | None
    duration: float | None
    signals: tuple[str, ...]
    is_pinned: bool

    def has_signal(self, name: str) -> bool:
        """Whether the operation emitted a signal of exactly this name and did not retract it."""
        return name in self.signals


class Operation:
    """The running operation, given to ``body(item, op)`` and by `current_operation`.

    Its methods may be called from any thread, as bodies in threads do.

    Attributes:
        id: Its id, as ``enqueue`` returned it.
        key: The key it runs under; None where there are no keys.
    """

    __slots__ = (
        "_events",
        "_home",
        "_state",
        "context",
        "ended_at",
        "error",
        "error_trace",
        "id",
        "is_pinned",
        "item",
        "key",
        "outcome",
        "result",
        "started_at",
        "worker",
    )

    result: Any  # what the body returned; set and read only by the kind that keeps results

    def __init__(self, home: OperationHome, operation_id: int, key: str | None, item: Any, context: Context) -> None:
        self._home = home
        self.id = operation_id
        self.key = key
        self.item = item
        self.context = context
        self.started_at = 0.0
        self.ended_at = _NEVER
        self.outcome = UNKNOWN
        self.worker: Worker | None = None
        self.error: BaseException | None = None
        self.error_trace: str | None = None
        self.is_pinned = False
        # Most operations emit nothing and keep no state: both are made when first asked for.
        self._events: deque[SignalEvent] | None = None
        self._state: dict[str, Any] | None = None

    def __repr__(self) -> str:
        state = "running" if self.is_running else self.outcome.value
        return f"<Operation {self.id} {state}{'' if self.key is None else f' key={self.key!r}'}>"

    @property
    def state(self) -> dict[str, Any]:
        """A dictionary of the body's own, remembered as long as the operation is."""
        if self._state is None:
            self._state = {}
        return self._state

    @property
    def events(self) -> tuple[SignalEvent, ...]:
        """The signals it emitted and did not retract, oldest first (the newest 1000)."""
        return tuple(self._events) if self._events else ()

    def emit(self, signal: str) -> None:
        """Raise *signal* with this operation's id and key, into the coordinator's sink if it has one.

        Raises:
            TypeError: *signal* is no ``str``.
            ValueError: *signal* is no valid name.
        """
        self.emit_caused(signal, None)

    def emit_caused(self, signal: str, cause: SignalEvent | SignalPropagation | None) -> bool:
        """Raise *signal* as `emit` does, because of another one; False if the coordinator's constraints block it.

        Its event says what led to it. Without ``EphemeralOptions(signal_constraints=...)`` nothing is blocked.

        Args:
            signal: The name.
            cause: What led to it: an event, or its ``propagation``. None: nothing did, and nothing is blocked.

        Raises:
            TypeError: *signal* is no ``str``, or *cause* is something else.
            ValueError: *signal* is no valid name.
        """
        return self._home.emit(self, signal, cause)

    def keep_signal(self, event: SignalEvent) -> None:
        """Remember a signal that it emits."""
        if self._events is None:
            self._events = deque(maxlen=MAX_SIGNALS_KEPT)
        self._events.append(event)

    def forget_signal(self, event: SignalEvent) -> None:
        """Take a signal back that was not emitted after all; here only, and if it is still kept."""
        if self._events is not None:
            with contextlib.suppress(ValueError):
                self._events.remove(event)

    def has_signal(self, signal: str) -> bool:
        """Whether it emitted a signal of exactly this name and did not retract it."""
        return any(event.signal == signal for event in self.events)

    def retract(self, signal: str) -> bool:
        """Take *signal* back, here and from this process's sink; returns whether it had been emitted."""
        return self._retract(lambda event: event.signal == signal) > 0

    def retract_matching(self, pattern: Pattern) -> int:
        """Take back each emitted signal that matches *pattern*, as `retract` does; returns how many."""
        matches = compile_pattern(pattern)
        return self._retract(lambda event: matches(event.signal))

    def _retract(self, matches: Callable[[SignalEvent], bool]) -> int:
        retracted = [event for event in self.events if matches(event)]
        if retracted and self._events is not None:
            for event in retracted:
                self._events.remove(event)
            self._home.retract(self, matches)
        return len(retracted)

    def belongs_to(self, home: object) -> bool:
        """Whether *home* is the coordinator that runs it."""
        return self._home is home

    @property
    def is_running(self) -> bool:
        """Whether its body has started and not ended."""
        return self.worker is not None

    @property
    def has_ended(self) -> bool:
        """Whether its body has ended."""
        return self.ended_at != math.inf

    def interrupt(self) -> None:
        """Cancel its body, if that is running."""
        if self.worker is not None:
            self.worker.interrupt()

    def keep_error(self, error: BaseException) -> None:
        """Remember what the body raised; of its traceback only the text."""
        self.error = error
        self.error_trace = trace_text(error)

    def snapshot(self) -> EphemeralOperationSnapshot:
        """Return what is known of it now."""
        return EphemeralOperationSnapshot(
            id=self.id,
            started=self._datetime(self.started_at),
            completed=self._datetime(self.ended_at) if self.has_ended else None,
            key=self.key,
            is_faulted=self.outcome is Outcome.FAILED,
            is_cancelled=self.outcome is Outcome.CANCELLED,
            error=self.error,
            error_trace=self.error_trace,
            duration=self.ended_at - self.started_at if self.has_ended else None,
            signals=tuple(event.signal for event in self.events),
            is_pinned=self.is_pinned,
        )

    def _datetime(self, loop_time: float) -> datetime:
        return datetime.fromtimestamp(self._home.wall_time(loop_time), UTC)


current: ContextVar[Operation] = ContextVar("ephemeral_operation")


def current_operation() -> Operation:
    """Return the operation whose body this code runs below, in tasks and threads it started too.

    Raises:
        LookupError: No body of a coordinator is running here.
    """
    try:
        return current.get()
    except LookupError:
        raise LookupError(
            "no operation is running here; current_operation() works below a coordinator's body"
        ) from None


def trace_text(error: BaseException) -> str:
    """Return where *error* and what led to it were raised: files, lines and functions, no source text, no values.

    As Python prints them, *error* comes last.
    """
    return "\n\n".join(reversed([_trace_of(one) for one in with_what_led_to(error)]))


def _trace_of(error: BaseException) -> str:
    # Walked, not extracted: that would ask the disk for each file, on the loop's thread.
    lines = [
        f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return "\n".join(["Traceback (most recent call last):", *lines, type(error).__name__])


def drop_tracebacks(error: BaseException) -> None:
    """Clear the tracebacks of *error*, of its causes and of its members: their frames keep items alive."""
    for one in with_what_led_to(error):
        one.with_traceback(None)  # an assignment would fail where an exception is a frozen dataclass
        if isinstance(one, AttributeError):
            BaseException.__setattr__(one, "obj", None)  # Python keeps the object that lacks the attribute


def with_what_led_to(error: BaseException) -> list[BaseException]:
    """Return *error*, its causes and contexts, and the members of groups, each once."""
    found: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in found:
            continue
        found[id(one)] = one
        left += [one.__context__, one.__cause__]
        if isinstance(one, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", one).exceptions
    return list(found.values())
