"""Signals as values: what a name may be, what led to it, and the immutable event."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ._checks import epoch_seconds
from ._ids import MAX_ID
from ._patterns import Pattern, compile_pattern, require_str

MAX_NAME_BYTES: Final = 512

known_names: set[str] = set()
"""Names found valid: a look-up costs 20 ns, the checks 250 ns."""

_MAX_KNOWN_NAMES: Final = 4096

# What a datetime can show.
_FIRST_STAMP: Final = datetime.min.replace(tzinfo=UTC).timestamp()
_END_OF_STAMPS: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()


def validate_name(name: object, what: str = "signal name") -> str:
    """Return *name* if signals may be called so.

    Args:
        name: What the caller gave.
        what: What it is, for the message.

    Raises:
        TypeError: *name* is no ``str``.
        ValueError: *name* is empty, longer than 512 bytes of UTF-8, or holds a character that is not printable.
    """
    name = require_str(what, name)
    if not name:
        raise ValueError(f"{what} must not be empty")
    if not name.isprintable():
        raise ValueError(f"{what} {_shortened(name)} holds an unprintable character; leave out control characters")
    # No character takes more than four bytes, so only a long name needs to be encoded to be measured.
    if len(name) > MAX_NAME_BYTES // 4 and len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(
            f"{what} {_shortened(name)} takes {len(name.encode())} bytes of UTF-8, more than {MAX_NAME_BYTES};"
            " put the long part into the payload"
        )
    if len(known_names) >= _MAX_KNOWN_NAMES:
        # All at once: an order of use would have to be kept at every raise.
        known_names.clear()
    known_names.add(str.__str__(name))  # the text alone: a subclass might hold much more
    return name


def check_context(key: object, operation_id: object) -> None:
    """Raise unless *key* and *operation_id* are what an event may carry.

    Raises:
        TypeError: *key* is neither ``None`` nor a ``str``, or *operation_id* no ``int``.
        ValueError: *operation_id* is negative or has more than 63 bits.
    """
    if key is not None and not isinstance(key, str):
        raise TypeError(f"key must be a str or None, not {type(key).__name__}: {_shortened(key)}; write str(...)")
    if not isinstance(operation_id, int) or isinstance(operation_id, bool):
        raise TypeError(f"operation_id must be an int, not {type(operation_id).__name__}: {_shortened(operation_id)}")
    if not 0 <= operation_id <= MAX_ID:
        raise ValueError(f"operation_id must lie in 0..2**63-1, not {operation_id}; 0 means no operation")


def in_scope(name: str, scope: str) -> bool:
    """Whether *name* is *scope* itself or continues it with ``:``."""
    return name.startswith(scope) and (len(name) == len(scope) or name[len(scope)] == ":")


@dataclass(frozen=True, slots=True)
class SignalPropagation:
    """The signals that led to one another, the first first; immutable, comparable, picklable.

    Attributes:
        path: Their names, at least one.

    Raises:
        TypeError: *path* is no tuple of ``str``.
        ValueError: *path* is empty, or holds what is no valid signal name.
    """

    path: tuple[str, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.path, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]  not everybody checks types
            raise TypeError(f"path must be a tuple of signal names, not {_shortened(self.path)}")
        if not self.path:
            raise ValueError("path must name at least one signal")
        for name in self.path:
            if name not in known_names:
                validate_name(name)

    @classmethod
    def root(cls, signal: str) -> Self:
        """Return the propagation of a signal that began by itself; raises as the class does."""
        return cls((signal,))

    @property
    def depth(self) -> int:
        """Number of signals on the way, the last one included: 1 or more."""
        return len(self.path)

    def extend(self, signal: str) -> Self:
        """Return the propagation of *signal*, raised because of the last one; raises as the class does."""
        return type(self)((*self.path, signal))

    def contains(self, signal: str) -> bool:
        """Whether *signal* is on the way."""
        return signal in self.path


Record = tuple[str, int, str | None, float, Any, SignalPropagation | None, str]
"""The fields of a `SignalEvent`, in its order and checked; the event itself is built when somebody looks."""


class _Fields(NamedTuple):
    signal: str
    operation_id: int
    key: str | None
    timestamp: float
    payload: Any
    propagation: SignalPropagation | None
    origin: str


class SignalEvent(_Fields):
    """One raised signal: immutable, picklable if its payload is, and cheap (a tuple with names).

    Attributes:
        signal: The name.
        operation_id: The operation that raised it; 0 for none.
        key: What it is about, for example a customer; None for nothing in particular.
        timestamp: When it happened, UTC epoch seconds.
        payload: Whatever was given along, shared with everybody who sees the event: do not change it.
        propagation: The signals that led to it; None if it began by itself.
        origin: Which sink raised it; empty for an event that none has raised yet.

    Raises:
        TypeError: *signal*, *operation_id*, *key* or *propagation* has the wrong type.
        ValueError: *signal* is no valid name, *timestamp* is a naive ``datetime`` or no instant in the years 1 to 9999,
            or *operation_id* is negative or too large.
    """

    __slots__ = ()

    def __new__(  # noqa: PLR0917  a tuple is built, pickled and unpacked by position
        cls,
        signal: str,
        operation_id: int = 0,
        key: str | None = None,
        timestamp: float | datetime | None = None,
        payload: Any = None,
        propagation: SignalPropagation | None = None,
        origin: str = "",
    ) -> Self:
        """Check the fields and build the event; a *timestamp* of None means now, by the wall clock."""
        name = validate_name(signal)
        check_context(key, operation_id)
        if propagation is not None and not isinstance(propagation, SignalPropagation):  # pyright: ignore[reportUnnecessaryIsInstance]  as above
            raise TypeError(f"propagation must be a SignalPropagation or None, not {_shortened(propagation)}")
        stamp = time.time() if timestamp is None else epoch_seconds("timestamp", timestamp)
        if not _FIRST_STAMP <= stamp < _END_OF_STAMPS:
            raise ValueError(f"timestamp must be epoch seconds in the years 1 to 9999, not {timestamp!r}")
        return super().__new__(cls, name, operation_id, key, stamp, payload, propagation, origin)

    def __hash__(self) -> int:
        # Without the payload, which may have no hash: equal events still have equal ones.
        return hash((self.signal, self.timestamp, self.origin))

    @property
    def at(self) -> datetime:
        """When it happened, as an aware ``datetime`` in UTC."""
        return datetime.fromtimestamp(self.timestamp, UTC)

    @property
    def depth(self) -> int:
        """How many signals led to it, itself included: 1 if it began by itself."""
        return 1 if self.propagation is None else self.propagation.depth

    def startswith(self, prefix: str) -> bool:
        """Whether the name begins with *prefix*, a plain string; `in_scope` respects segments."""
        return self.signal.startswith(prefix)

    def in_scope(self, scope: str) -> bool:
        """Whether the name equals *scope* or continues it with ``:``, so ``x:pri10`` is not in ``x:pri1``."""
        return in_scope(self.signal, scope)

    def matches(self, pattern: Pattern) -> bool:
        """Whether the name matches *pattern*, as `matches_pattern` tells and raises."""
        return compile_pattern(pattern)(self.signal)

    def would_cycle(self, signal: str) -> bool:
        """Whether raising *signal* because of this event would close a circle: it led to this, or is this."""
        return signal == self.signal or (self.propagation is not None and self.propagation.contains(signal))

    def __repr__(self) -> str:
        fields = [repr(self.signal)]
        fields += [
            f"{field}={value!r}"
            for field, value, default in (
                ("operation_id", self.operation_id, 0),
                ("key", self.key, None),
                ("payload", self.payload, None),
                ("propagation", self.propagation, None),
                ("origin", self.origin, ""),
            )
            if value is not default and value != default
        ]
        return f"<SignalEvent {' '.join(fields)} at {self.at.isoformat(timespec='milliseconds')}>"


class _FromTuple(tuple[Any, ...]):
    __slots__ = ()
    __new__ = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  typeshed leaves its elements open


class RaisedEvent(_FromTuple, SignalEvent):
    """An event built from one tuple of its fields, which were checked when it was raised.

    Its first base gives it tuple's own constructor, so no Python runs: 110 ns. ``tuple.__new__(SignalEvent, fields)``
    takes 35 ns more, at every raise that somebody listens to, and the checks take 1 µs.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __new__(cls, fields: Record) -> Self:
            """Take all fields as they are."""
            ...

    def __reduce__(self) -> tuple[type[SignalEvent], tuple[Any, ...]]:
        return SignalEvent, tuple(self)


Predicate = Callable[[SignalEvent], bool]
"""Tells whether an event is meant; runs in the caller's thread, outside every lock."""


def _shortened(value: object) -> str:
    """Return *value* as text that is printable and of a length to read."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
