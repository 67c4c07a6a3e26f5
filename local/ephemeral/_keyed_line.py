"""Elements that wait in order of arrival, and let others past while all places of their key are taken."""

from __future__ import annotations

import operator
from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterator, Sized
from typing import Final, Generic, Protocol, TypeVar

_id: Final = operator.attrgetter("id")


class Keyed(Protocol):
    """What may wait in a line by key.

    Attributes:
        id: A number that rises from each element to the next one appended.
        lane_key: Its key, unchanged while it waits.
    """

    id: int
    lane_key: Hashable


E = TypeVar("E", bound=Keyed)


class KeyedLine(Generic[E]):
    """A queue whose elements go on in order of arrival, but for those whose key has no free place.

    An element that goes on takes a place of its key until that is given back by `release`. True if an element may go
    on now; as long as all that wait. An element whose key is busy when its turn comes is parked, once, until a place
    has come free for it, so that a step costs O(1) on average; only places given back while nobody takes an element
    cost more, O(n) in the number of these. Nothing is remembered of a key that neither waits nor has a place taken.
    Belongs to one thread.

    Args:
        places: How many places each key has, at least 1.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        # Places taken, of each key that has any taken.
        self._taken: dict[Hashable, int] = {}
        # All that wait, by id: in order of arrival.
        self._waiting: dict[int, E] = {}
        # Those that are not parked, in order of arrival; the first may go on. A place free for one that was parked is
        # its own: nothing of its key comes before it.
        self._ready: deque[E] = deque()
        # The others, of each key in order of arrival; all places of such a key are taken or kept for one that was here.
        self._parked: dict[Hashable, deque[E]] = {}

    def __bool__(self) -> bool:
        return bool(self._ready)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[E]:
        """Iterate over all that wait, in order of arrival."""
        return iter(self._waiting.values())

    def __contains__(self, element: object) -> bool:
        return element in self._waiting.values()

    @property
    def ready(self) -> Sized:
        """True while an element may go on, always the same object: for who asks often and spares the call to this."""
        return self._ready

    @property
    def waiting(self) -> Sized:
        """All that wait, always the same object, likewise."""
        return self._waiting

    def keys(self) -> set[Hashable]:
        """Return the keys of which something is remembered. Costs O(n)."""
        return {element.lane_key for element in self} | self._taken.keys() | self._parked.keys()

    def count(self, key: Hashable) -> int:
        """Return how many elements wait under *key*. Costs O(n)."""
        return [element.lane_key for element in self].count(key)

    def append(self, element: E) -> None:
        """Put *element* at the end."""
        self._waiting[element.id] = element
        if self._ready or self._taken.get(element.lane_key, 0) < self._places:
            self._ready.append(element)
        else:
            self._park(element)

    def popleft(self) -> E:
        """Take the element whose turn it is, and a place of its key; only while this is true."""
        ready, taken = self._ready, self._taken
        element = ready.popleft()
        del self._waiting[element.id]
        key = element.lane_key
        taken[key] = taken[key] + 1 if key in taken else 1
        if ready and ready[0].lane_key in taken:
            self._park_the_busy()
        return element

    def release(self, key: Hashable) -> None:
        """Give a place of *key* back."""
        left = self._taken.pop(key) - 1
        if left:
            self._taken[key] = left
        if key in self._parked:
            self._keep_place(key)

    def remove(self, element: E) -> None:
        """Take *element* out of the middle: it goes on nowhere and takes no place. Costs O(n)."""
        del self._waiting[element.id]
        key = element.lane_key
        parked = self._parked.get(key)
        if parked is not None and element in parked:
            self._unpark(element)
            return
        self._ready.remove(element)
        if parked is not None and element.id < parked[0].id:  # it was parked before: its place is the next one's
            self._keep_place(key)
        self._park_the_busy()

    def clear(self) -> None:
        """Take out all that wait; places stay taken."""
        self._waiting.clear()
        self._ready.clear()
        self._parked.clear()

    def _park_the_busy(self) -> None:
        """Park elements until the first may go on."""
        ready, taken = self._ready, self._taken
        while ready and taken.get(ready[0].lane_key, 0) >= self._places:
            self._park(ready.popleft())

    def _park(self, element: E) -> None:
        self._parked.setdefault(element.lane_key, deque()).append(element)

    def _unpark(self, element: E) -> None:
        parked = self._parked[element.lane_key]
        parked.remove(element)
        if not parked:
            del self._parked[element.lane_key]

    def _keep_place(self, key: Hashable) -> None:
        """Let the first that is parked under *key* go on by its arrival: a place is free for it."""
        element, ready = self._parked[key][0], self._ready
        self._unpark(element)
        # Before it come only some that were parked too, at most one for each place given back: a search that doubles
        # its steps stays at the left end, where a deque is fast.
        end = 1
        while end < len(ready) and ready[end].id < element.id:
            end *= 2
        insort(ready, element, hi=min(end, len(ready)), key=_id)
