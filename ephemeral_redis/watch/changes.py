"""What has happened to the health of processors, as far back as views of it go."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .picture import Change

MAX_EDGES = 500
MAX_STEPS = 100
"""Probes come by the thousand while a processor is down for a night; what went down and came back outlasts them."""


class ChangeLog:
    """The last edges, and of the steps on the way, such as probes, the last few.

    Written by one thread at a time; may be read by another one meanwhile.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._edges: deque[tuple[int, Change]] = deque(maxlen=MAX_EDGES)
        self._steps: deque[tuple[int, Change]] = deque(maxlen=MAX_STEPS)

    def add(self, change: Change) -> None:
        """Remember *change*, which came after those that were added before."""
        (self._edges if change.is_edge else self._steps).append((next(self._numbers), change))

    def latest_first(self) -> tuple[Change, ...]:
        """Return what is remembered."""
        kept = [*self._edges, *self._steps]
        return tuple(change for _, change in sorted(kept, key=lambda one: one[0], reverse=True))
