"""Elements that wait by key: each key has a lane, each lane a few places, and a full lane holds up no other."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

E = TypeVar("E")


class Line(Protocol[E]):
    """What waits: true if an element may go on now, as long as all that wait. A deque is one, `Lanes` are another."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[E]: ...

    def __contains__(self, element: object, /) -> bool: ...

    def append(self, element: E, /) -> object:
        """Put *element* at its place."""
        ...

    def popleft(self) -> E:
        """Take the element whose turn it is."""
        ...

    def remove(self, element: E, /) -> object:
        """Take *element* out, wherever it waits."""
        ...

    def clear(self) -> object:
        """Take everything out."""
        ...


class _Lane(Generic[E]):
    """What waits under one key, and how many of its places are taken."""

    __slots__ = ("is_ready", "key", "taken", "waiting")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.waiting: deque[tuple[int, E]] = deque()
        self.taken = 0
        self.is_ready = False


class Lanes(Generic[E]):
    """A queue whose elements go on in order of arrival, but for those whose lane has no free place.

    An element that goes on takes a place of its lane until that is given back by `release`. True if an element may go
    on now; as long as all that wait. Each step costs O(log n) in the number of lanes that may go on; a lane in which
    nothing waits and no place is taken is forgotten. Belongs to one thread.

    Args:
        places: How many places each lane has, at least 1.
        key_of: The key of an element; it must not change.
        in_turn: Whether lanes go on in turn, one element each, instead of all elements in order of arrival.
        upstream: The lanes that elements pass before they come here, under the same keys: leaving these gives their
            place there back.
    """

    def __init__(
        self,
        places: int,
        key_of: Callable[[E], Hashable],
        *,
        in_turn: bool = False,
        upstream: Lanes[Any] | None = None,
    ) -> None:
        self._places = places
        self._key_of = key_of
        self._in_turn = in_turn
        self._upstream = upstream
        self._lanes: dict[Hashable, _Lane[E]] = {}
        # The lanes that may go on, by the number of their first element or of their turn.
        self._ready: list[tuple[int, _Lane[E]]] = []
        self._numbers = itertools.count()
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._ready)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[E]:
        """Iterate over all that wait, in order of arrival."""
        waiting = [pair for lane in self._lanes.values() for pair in lane.waiting]
        waiting.sort(key=lambda pair: pair[0])
        return (element for _, element in waiting)

    def __contains__(self, element: Any) -> bool:
        lane = self._lanes.get(self._key_of(element))
        return lane is not None and any(other is element for _, other in lane.waiting)

    @property
    def lane_count(self) -> int:
        """How many keys are remembered."""
        return len(self._lanes)

    def count(self, key: Hashable) -> int:
        """Return how many elements wait under *key*."""
        lane = self._lanes.get(key)
        return 0 if lane is None else len(lane.waiting)

    def is_full(self, key: Hashable) -> bool:
        """Whether no place of *key* is free."""
        lane = self._lanes.get(key)
        return lane is not None and lane.taken >= self._places

    def append(self, element: E) -> None:
        """Put *element* at the end of its lane."""
        lane = self._lane(self._key_of(element))
        lane.waiting.append((next(self._numbers), element))
        self._count += 1
        if not lane.is_ready:
            self._make_ready(lane)

    def popleft(self) -> E:
        """Take the element whose turn it is, and a place of its lane; only while this is true."""
        lane = heappop(self._ready)[1]
        lane.is_ready = False
        lane.taken += 1
        element = lane.waiting.popleft()[1]
        self._make_ready(lane)
        self._left(lane.key)
        return element

    def take(self, key: Hashable) -> None:
        """Take a place of *key* for an element that never waited here."""
        self._lane(key).taken += 1

    def release(self, key: Hashable) -> None:
        """Give a place of *key* back."""
        lane = self._lanes[key]
        lane.taken -= 1
        if not lane.is_ready:
            self._make_ready(lane)
        self._forget_if_idle(lane)

    def remove(self, element: E) -> None:
        """Take *element* out of the middle: it goes on nowhere and takes no place. Costs O(n)."""
        lane = self._lanes[self._key_of(element)]
        place = next(place for place, (_, other) in enumerate(lane.waiting) if other is element)
        del lane.waiting[place]
        if lane.is_ready and not (lane.waiting and (place or self._in_turn)):
            self._ready = [entry for entry in self._ready if entry[1] is not lane]
            heapify(self._ready)
            lane.is_ready = False
            self._make_ready(lane)
        self._left(lane.key)
        self._forget_if_idle(lane)

    def clear(self) -> None:
        """Take out all that wait; places stay taken."""
        self._ready.clear()
        for lane in list(self._lanes.values()):
            lane.is_ready = False
            while lane.waiting:
                lane.waiting.pop()
                self._left(lane.key)
            self._forget_if_idle(lane)

    def _lane(self, key: Hashable) -> _Lane[E]:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        return lane

    def _make_ready(self, lane: _Lane[E]) -> None:
        if lane.waiting and lane.taken < self._places:
            lane.is_ready = True
            heappush(self._ready, (next(self._numbers) if self._in_turn else lane.waiting[0][0], lane))

    def _left(self, key: Hashable) -> None:
        self._count -= 1
        if self._upstream is not None:
            self._upstream.release(key)

    def _forget_if_idle(self, lane: _Lane[E]) -> None:
        if not lane.waiting and not lane.taken:
            del self._lanes[lane.key]
