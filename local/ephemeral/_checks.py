"""Checks of arguments: each returns the value it accepts, or raises one ValueError that names parameter and value."""

from __future__ import annotations

import math
import sys
from datetime import datetime, timedelta
from types import UnionType
from typing import Final

Seconds = float | timedelta
# A tuple: ``int | float`` in place would be made anew at each check, for 100 ns.
_NUMBERS: Final = (int, float)
# Above it an int fits no float.
_LONGEST: Final = sys.float_info.max
_HALF_MICROSECOND: Final = 0.5e-6


def whole_number(name: str, value: object, *, least: int = 1) -> int:
    """Return *value* if it is an ``int`` of at least *least*.

    Raises:
        ValueError: Not an ``int`` (``bool`` is none), or below *least*.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r} ({type(value).__name__})")  # noqa: TRY004  the contract: any bad option value is a ValueError
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value


def instance(name: str, value: object, kinds: type | UnionType, wanted: str) -> None:
    """Refuse *value* unless it is one of *kinds*.

    Raises:
        ValueError: It is another type, or an empty ``str``; the message says what is *wanted*.
    """
    if not isinstance(value, kinds) or value == "":
        raise ValueError(f"{name} must be {wanted}, not {value!r} ({type(value).__name__})")


def seconds(name: str, value: object, *, zero: bool = False) -> float:
    """Return a duration as seconds; a ``timedelta`` is accepted.

    Args:
        name: The parameter, for the message.
        value: What the caller gave.
        zero: Whether 0 is allowed.

    Raises:
        ValueError: Neither a number nor a ``timedelta``, negative, not finite, or 0 where that is not allowed.
    """
    if (type(value) is float or type(value) is int) and 0 < value <= _LONGEST:
        return float(value)  # nearly always, and in half the time
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, _NUMBERS):
        raise ValueError(f"{name} must be seconds as a number or a timedelta, not {value!r} ({type(value).__name__})")  # noqa: TRY004  as above
    if not 0 <= value <= _LONGEST or (value == 0 and not zero):
        raise ValueError(f"{name} must be {'at least' if zero else 'more than'} 0 seconds and finite, not {value!r}")
    return float(value)


def optional_seconds(name: str, value: object, *, zero: bool = False) -> float | None:
    """Return a duration as `seconds` does, or None for None."""
    return None if value is None else seconds(name, value, zero=zero)


def epoch_seconds(name: str, value: object) -> float:
    """Return a point in time as UTC epoch seconds; an aware ``datetime`` is accepted.

    Raises:
        ValueError: A naive ``datetime``, not a number, or NaN.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name} must be an aware datetime, not {value!r}; write datetime.now(UTC)")
        return value.timestamp()
    if isinstance(value, bool) or not isinstance(value, _NUMBERS) or math.isnan(value):
        raise ValueError(f"{name} must be epoch seconds or an aware datetime, not {value!r}")
    return float(value)


def since_seconds(name: str, value: object) -> float:
    """Return the lowest stamp that *value* includes; raises as `epoch_seconds`.

    A ``datetime`` has whole microseconds, a stamp has more: an event counts as of the microsecond that it shows.
    """
    stamp = epoch_seconds(name, value)
    return stamp - _HALF_MICROSECOND if isinstance(value, datetime) else stamp


def until_seconds(name: str, value: object) -> float:
    """Return the highest stamp that *value* includes, as `since_seconds` does the lowest."""
    stamp = epoch_seconds(name, value)
    return stamp + _HALF_MICROSECOND if isinstance(value, datetime) else stamp
