"""Counting by name in O(log n): one index for each question that was asked."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Literal

from ._patterns import Matcher, require_str
from ._signals import in_scope, validate_name

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

    __slots__ = ("_arrivals", "_gone", "_matches", "_stamps", "end", "standing")

    def __init__(self, kind: CountKind, text: str) -> None:
        self._matches = _matcher(kind, text)
        self._forget()
        self.end = 0
        self.standing: tuple[object, list[float], int, int] = (self, [], 0, 0)

    def follow(self, log: Sequence[tuple[Any, ...] | None], base: int, head: int, edition: object) -> None:
        """Take in what was appended to *log*, numbered from *base* on, and let go of what lies before *head*."""
        first, end = base + head, base + len(log)
        if self.end < first:
            self._forget()
            self.end = first
        elif self._arrivals and self._arrivals[0][0] < first:
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
        self._arrivals: deque[tuple[int, float]] = deque()  # (sequence, stamp) of the same entries

    def _take_in(self, log: Sequence[tuple[Any, ...] | None], base: int) -> None:
        matches, stamps, arrivals, is_own = self._matches, self._stamps, self._arrivals, False
        for sequence, record in enumerate(log[self.end - base :], self.end):
            if record is not None and matches(record[0]):
                stamp = record[3]
                arrivals.append((sequence, stamp))
                if len(stamps) > self._gone and stamp < stamps[-1]:
                    if not is_own:
                        stamps, is_own = self._own_stamps(), True
                    insort(stamps, stamp)
                else:
                    stamps.append(stamp)

    def _let_go(self, first: int) -> None:
        arrivals, is_own = self._arrivals, False
        while arrivals and arrivals[0][0] < first:
            stamp = arrivals.popleft()[1]
            if self._stamps[self._gone] == stamp:
                self._gone += 1
            else:
                stamps, is_own = self._stamps if is_own else self._own_stamps(), True
                del stamps[bisect_left(stamps, stamp, self._gone)]
        if self._gone * 2 > len(self._stamps):
            self._own_stamps()

    def _own_stamps(self) -> list[float]:
        """Go on with a copy of the live stamps, which nobody reads yet."""
        self._stamps = self._stamps[self._gone :]
        self._gone = 0
        return self._stamps


def _matcher(kind: CountKind, text: str) -> Matcher:
    text = str.__str__(require_str(_PARAMETERS.get(kind, kind), text))
    if kind == "prefix":
        return lambda name: name.startswith(text)
    if kind == "contains":
        return lambda name: text in name
    if kind == "exact":
        return validate_name(text).__eq__
    validate_name(text, "scope")
    return lambda name: in_scope(name, text)
