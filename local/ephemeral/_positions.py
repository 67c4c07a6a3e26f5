"""Tells what is new, what came twice, and how much never came, in streams that number what they carry."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MAX_SENDERS = 10_000
"""Senders that are remembered, the most recently heard of; 10 000 short-lived workers take about 2 MB."""


class Arrival(NamedTuple):
    """What an entry brings.

    Attributes:
        fresh_from: Index of its first signal that was not seen before; its length if all were.
        missed: How many signals before it never came.
    """

    fresh_from: int
    missed: int


class Positions:
    """How far each sender has been heard. Not thread-safe; reads no clock.

    A sender numbers its signals 0, 1, 2 … in each stream, those included that it drops itself. So a jump is an exact
    count of what never came, and a step back is a duplicate.
    """

    def __init__(self) -> None:
        self._next: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, sender: str) -> bool:
        """Whether *sender* has been heard, and is remembered."""
        return sender in self._next

    def arrive(self, sender: str, position: int, count: int, *, is_first: bool = False) -> Arrival:
        """Take note of *count* signals from *position* on, and tell which of them are new.

        A sender that is heard for the first time may have sent before anybody listened: nothing counts as missed then,
        unless these are its first ones (*is_first*) and it says that it dropped some before.
        """
        expected = self._next.get(sender, 0 if is_first else position)
        self._next[sender] = max(expected, position + count)
        self._next.move_to_end(sender)
        if len(self._next) > MAX_SENDERS:
            self._next.popitem(last=False)
        if position >= expected:
            return Arrival(0, position - expected)
        return Arrival(min(count, expected - position), 0)
