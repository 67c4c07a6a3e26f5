"""The options that all atoms of a group share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypedDict

from ._bodies import require_plain
from ._checks import optional_seconds, whole_number


class Unset:
    """Stands for an option that an atom leaves to its group."""

    def __repr__(self) -> str:
        return "the group's"


UNSET: Final = Unset()


class NamedOptions(TypedDict):
    """What one atom says of its group; `UNSET` where it says nothing."""

    max_pending: int | Unset
    reroute_failed: bool | Unset
    max_attempts: int | Unset
    on_failed: Callable[[Any, BaseException], object] | Unset | None
    drain_timeout: float | timedelta | Unset | None
    item_signals: bool | Unset


class GroupOptions:
    """The options of a group: what its atoms name, defaults for what none does.

    Attributes:
        max_pending: How many items may wait.
        reroute_failed: Whether failed items run again.
        max_attempts: Runs an item may have before it is abandoned.
        on_failed: Told of each item that is given up.
        drain_timeout: Seconds leaving the block waits for accepted work; None: for ever.
        item_signals: Whether each item raises its ``processing.*`` signals.
    """

    def __init__(self) -> None:
        self.max_pending = 1000
        self.reroute_failed = False
        self.max_attempts = 10
        self.on_failed: Callable[[Any, BaseException], object] | None = None
        self.drain_timeout: float | None = 30.0
        self.item_signals = True
        self._named: set[str] = set()

    def agree(self, group: str, named: NamedOptions) -> None:
        """Take over what one atom names.

        Raises:
            ValueError: A value is out of range, or another atom of the group named a different one.
        """
        accepted = {name: _accepted(name, value) for name, value in named.items() if not isinstance(value, Unset)}
        for name, value in accepted.items():
            current = getattr(self, name)
            if name in self._named and current != value:
                raise ValueError(
                    f"{name}={value!r} contradicts {name}={current!r} of another atom of group {group!r}: it belongs to"
                    " the group; name it once, or alike"
                )
        for name, value in accepted.items():
            setattr(self, name, value)
            self._named.add(name)


def _accepted(name: str, value: object) -> object:
    if name in {"max_pending", "max_attempts"}:
        return whole_number(name, value)
    if name == "drain_timeout":
        return optional_seconds(name, value, zero=True)
    if name == "on_failed":
        require_plain(name, value)  # type: ignore[arg-type]  # that it is callable is what is checked
        return value
    return bool(value)
