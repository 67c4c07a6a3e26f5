"""Counting by name in O(log n): one index for each question that was asked."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from ._patterns import require_str
from ._signals import validate_name

Selector = Callable[[Sequence[tuple[Any, ...] | None], int], list[int]]
"""Returns which entries of a log are meant, numbered from the second argument on."""

CountKind = Literal["prefix", "scope", "exact", "contains"]
"""How the text of a question is held against a name."""

# What the questions call their text, where that is not the kind.
_PARAMETERS: Final[dict[CountKind, str]] = {"exact": "name", "contains": "text"}


class CountIndex:
    """The stamps of the entries that match one question, sorted, kept up to date by pulling.

    A raise costs an index nothing; a question pays for what has arrived and left since it was last asked.

    Attributes:
        end: The sequence number up to which it has looked.
        standing: What any thread may read without a lock: of which edition of the log the rest is, a list of stamps,
            and from where to where its entries are sorted and stay as they are.
    """

    __slots__ = ("_arrived", "_gone", "_select", "_sequences", "_stamps", "end", "standing")

    def __init__(self, kind: CountKind, text: str) -> None:
        self._select = _selector(kind, text)
        self._forget()
        self.end = 0
        self.standing: tuple[object, list[float], int, int] = (self, [], 0, 0)

    def follow(self, log: Sequence[tuple[Any, ...] | None], base: int, head: int, edition: object) -> None:
        """Take in what was appended to *log*, numbered from *base* on, and let go of what lies before *head*."""
        first, end = base + head, base + len(log)
        if self.end < first:
            self._forget()
            self.end = first
        elif self._sequences and self._sequences[0] < first:
            self._let_go(first)
        if self.end < end:
            self._take_in(log, base)
            self.end = end
        self.standing = (edition, self._stamps, self._gone, len(self._stamps))

    def count_since(self, since: float) -> int:
        """Return how many entries have a stamp of at least *since*; on any thread, as of when it last followed."""
        _, stamps, first, end = self.standing
        return end - bisect_left(stamps, since, first, end)

    def _forget(self) -> None:
        # Sorted; before _gone all have left. Others may be reading it: it grows at the end, else it is replaced.
        self._stamps: list[float] = []
        self._gone = 0
        # The same entries in order of arrival: their numbers, and their stamps.
        self._sequences: deque[int] = deque()
        self._arrived: deque[float] = deque()

    def _take_in(self, log: Sequence[tuple[Any, ...] | None], base: int) -> None:
        found = self._select(log[self.end - base :], self.end)
        if not found:
            return
        new: list[float] = [log[sequence - base][3] for sequence in found]  # type: ignore[index]  # none that is crossed out is found
        self._sequences += found
        self._arrived += new
        stamps = self._stamps
        # In order, nearly always, as in the window.
        if (len(stamps) == self._gone or new[0] >= stamps[-1]) and sorted(new) == new:
            stamps += new
        else:
            stamps = self._own_stamps()
            stamps += new
            stamps.sort()  # two runs and few strays: it merges them

    def _let_go(self, first: int) -> None:
        sequences, arrived, stamps, gone = self._sequences, self._arrived, self._stamps, self._gone
        is_own = False
        while sequences and sequences[0] < first:
            sequences.popleft()
            stamp = arrived.popleft()
            if stamps[gone] != stamp:  # one that left before its elders: in a copy it is put ahead of them
                if not is_own:
                    self._gone = gone
                    stamps, gone, is_own = self._own_stamps(), 0, True
                stamps.insert(gone, stamps.pop(bisect_left(stamps, stamp, gone)))
            gone += 1
        self._gone = gone
        if gone * 2 > len(stamps):
            self._own_stamps()

    def _own_stamps(self) -> list[float]:
        """Go on with a copy of the live stamps, which nobody reads yet."""
        self._stamps = self._stamps[self._gone :]
        self._gone = 0
        return self._stamps


def _selector(kind: CountKind, text: str) -> Selector:
    """Return what picks the entries that *kind* of *text* means.

    One loop each, since a call a name takes twice as long; and ``in`` first, which costs a third of ``startswith``.

    Raises:
        TypeError: *text* is no ``str``.
        ValueError: *text* cannot match any name.
    """
    text = str.__str__(require_str(_PARAMETERS.get(kind, kind), text))
    if kind == "prefix":
        return lambda log, first: [
            number for number, one in enumerate(log, first) if one and text in one[0] and one[0].startswith(text)
        ]
    if kind == "contains":
        return lambda log, first: [number for number, one in enumerate(log, first) if one and text in one[0]]
    if kind == "exact":
        validate_name(text)
        return lambda log, first: [number for number, one in enumerate(log, first) if one and one[0] == text]
    validate_name(text, "scope")
    inside = f"{text}:"
    return lambda log, first: [
        number
        for number, one in enumerate(log, first)
        if one and text in one[0] and (one[0].startswith(inside) or one[0] == text)
    ]
