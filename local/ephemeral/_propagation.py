"""Whether one signal may lead to another: the bounds that end chains and circles of signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from ._bodies import require_plain
from ._checks import instance, whole_number
from ._patterns import Pattern, matches_pattern, optional_pattern
from ._signals import SignalEvent, SignalPropagation


class SignalBlockReason(Enum):
    """Why a signal was not emitted."""

    MAX_DEPTH_EXCEEDED = "so many signals have led to one another already"
    CYCLE_DETECTED = "this signal is among those that led to it"
    TERMINAL_SIGNAL_REACHED = "the signal that led to it is to lead to nothing"


OnBlocked = Callable[[str, SignalPropagation, SignalBlockReason], object]
"""Called with the signal that was not emitted, what had led to it, and why."""


@dataclass(frozen=True, slots=True)
class SignalConstraints:
    """What a signal may lead to, asked wherever an operation emits one because of another.

    ``SignalConstraints.DEFAULT`` is ``SignalConstraints()``; ``STRICT`` cuts at a depth of 5; ``NONE`` blocks nothing.

    Attributes:
        max_depth: How many signals may lead to one another, at least 1; None: any number.
        block_cycles: Whether a signal may not be among those that led to it.
        terminal_signals: Pattern of the signals that lead to nothing; None: of none.
        leaf_signals: Pattern of the signals that are emitted without saying what led to them, so that they begin a new
            chain; None: of none.
        on_blocked: Called with (signal, propagation, reason) for each signal that was blocked, in the emitter's thread;
            a plain function.

    Raises:
        ValueError: A value out of range; the message names the field.
        TypeError: *on_blocked* is async or cannot be called.
    """

    max_depth: int | None = 10
    block_cycles: bool = True
    terminal_signals: Pattern | None = None
    leaf_signals: Pattern | None = None
    on_blocked: OnBlocked | None = None

    DEFAULT: ClassVar[SignalConstraints]
    STRICT: ClassVar[SignalConstraints]
    NONE: ClassVar[SignalConstraints]

    def __post_init__(self) -> None:
        if self.max_depth is not None:
            whole_number("max_depth", self.max_depth)
        instance("block_cycles", self.block_cycles, bool, "True or False")
        for name in ("terminal_signals", "leaf_signals"):
            object.__setattr__(self, name, optional_pattern(name, getattr(self, name)))
        require_plain("on_blocked", self.on_blocked)

    def should_block(self, signal: str, propagation: SignalPropagation | None) -> SignalBlockReason | None:
        """Tell why *signal* may not be emitted; None: it may.

        Args:
            signal: The name.
            propagation: What led to it, ending with its direct cause; None: nothing did, and nothing is blocked.
        """
        if propagation is None:
            return None
        if self.max_depth is not None and propagation.depth >= self.max_depth:
            return SignalBlockReason.MAX_DEPTH_EXCEEDED
        if self.block_cycles and propagation.contains(signal):
            return SignalBlockReason.CYCLE_DETECTED
        if self.terminal_signals is not None and matches_pattern(propagation.path[-1], self.terminal_signals):
            return SignalBlockReason.TERMINAL_SIGNAL_REACHED
        return None

    def is_leaf(self, signal: str) -> bool:
        """Whether *signal* is emitted without saying what led to it."""
        return self.leaf_signals is not None and matches_pattern(signal, self.leaf_signals)


SignalConstraints.DEFAULT = SignalConstraints()
SignalConstraints.STRICT = SignalConstraints(max_depth=5)
SignalConstraints.NONE = SignalConstraints(max_depth=None, block_cycles=False)


def propagation_of(cause: SignalEvent | SignalPropagation | None) -> SignalPropagation | None:
    """Return what *cause* says of the signals so far, itself the last; None for None.

    Raises:
        TypeError: *cause* is neither an event nor a propagation.
    """
    if cause is None or isinstance(cause, SignalPropagation):
        return cause
    if not isinstance(cause, SignalEvent):  # pyright: ignore[reportUnnecessaryIsInstance]  not everybody checks types
        raise TypeError(f"cause must be a SignalEvent, a SignalPropagation or None, not {cause!r:.80}")
    return cause.propagation or SignalPropagation.root(cause.signal)
