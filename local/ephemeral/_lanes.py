"""Elements that wait by key: each key has a lane, each lane a few places, and a full lane holds up no other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sized
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

E = TypeVar("E")


class Line(Protocol[E]):
    """What waits: true if an element may go on now, as long as all that wait: a deque, `Lanes` or a `KeyedLine`."""

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


class _Lane:
    """How many elements wait under one key, the numbers of the first and the last, and how many places are taken.

    It may go on, and is among the ready ones, exactly if something waits and a place is free.
    """

    __slots__ = ("count", "first", "key", "last", "taken")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.taken = self.count = self.first = self.last = 0


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
        self._lanes: dict[Hashable, _Lane] = {}
        # Numbers instead of queues, pairs or links: the collector looks at none of them.
        self._waiting: dict[int, E] = {}
        self._next_in_lane: dict[int, int] = {}
        # The lanes that may go on, each by the number of its first element or of its turn, and these as a heap.
        self._lane_of: dict[int, _Lane] = {}
        self._ready: list[int] = []
        self._next_number = itertools.count().__next__

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
        """The lanes that may go on, always the same object: for who asks often and spares the call to this one."""
        return self._ready

    @property
    def waiting(self) -> Sized:
        """All that wait, always the same object, likewise."""
        return self._waiting

    def keys(self) -> set[Hashable]:
        """Return the keys of which something is remembered. Costs O(n)."""
        return set(self._lanes)

    def count(self, key: Hashable) -> int:
        """Return how many elements wait under *key*."""
        lane = self._lanes.get(key)
        return 0 if lane is None else lane.count

    def is_full(self, key: Hashable) -> bool:
        """Whether no place of *key* is free."""
        lane = self._lanes.get(key)
        return lane is not None and lane.taken >= self._places

    def append(self, element: E) -> None:
        """Put *element* at the end of its lane."""
        key = self._key_of(element)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        number = self._next_number()
        self._waiting[number] = element
        if lane.count:
            self._next_in_lane[lane.last] = number
        else:
            lane.first = number
            if lane.taken < self._places:
                self._lane_of[number] = lane
                heappush(self._ready, number)
        lane.last = number
        lane.count += 1

    def popleft(self) -> E:
        """Take the element whose turn it is, and a place of its lane; only while this is true."""
        lane = self._lane_of.pop(heappop(self._ready))
        first = lane.first
        lane.taken += 1
        lane.count -= 1
        if lane.count:
            lane.first = self._next_in_lane.pop(first)
            if lane.taken < self._places:
                self._make_ready(lane)
        if self._upstream is not None:
            self._upstream.release(lane.key)
        return self._waiting.pop(first)

    def take(self, key: Hashable) -> None:
        """Take a place of *key* for an element that never waited here; only where nothing waits."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        lane.taken += 1

    def release(self, key: Hashable) -> None:
        """Give a place of *key* back."""
        lane = self._lanes[key]
        lane.taken -= 1
        if lane.count:
            if lane.taken == self._places - 1:  # it was full
                self._make_ready(lane)
        elif not lane.taken:
            del self._lanes[key]

    def remove(self, element: E) -> None:
        """Take *element* out of the middle: it goes on nowhere and takes no place. Costs O(n)."""
        lane = self._lanes[self._key_of(element)]
        numbers = self._numbers(lane)
        number = next(number for number in numbers if self._waiting[number] == element)
        del self._waiting[number]
        numbers.remove(number)
        self._chain(lane, numbers)
        if lane.taken < self._places and not (self._in_turn and numbers):
            self._make_unready(lane)
            if numbers:
                self._make_ready(lane)
        self._left(lane, 1)

    def clear(self) -> None:
        """Take out all that wait; places stay taken."""
        for counted in (self._ready, self._lane_of, self._waiting, self._next_in_lane):
            counted.clear()
        for lane in list(self._lanes.values()):
            gone, lane.count = lane.count, 0
            self._left(lane, gone)

    def _numbers(self, lane: _Lane) -> list[int]:
        """Return the numbers of all that wait in *lane*."""
        numbers = [lane.first]
        while len(numbers) < lane.count:
            numbers.append(self._next_in_lane[numbers[-1]])
        return numbers

    def _chain(self, lane: _Lane, numbers: list[int]) -> None:
        """Have exactly these wait in *lane*."""
        for number in self._numbers(lane):
            self._next_in_lane.pop(number, None)
        self._next_in_lane.update(itertools.pairwise(numbers))
        lane.count = len(numbers)
        if numbers:
            lane.first, lane.last = numbers[0], numbers[-1]

    def _left(self, lane: _Lane, gone: int) -> None:
        """Follow elements out that did not go on."""
        if not lane.count and not lane.taken:
            del self._lanes[lane.key]
        if self._upstream is not None:
            for _ in range(gone):
                self._upstream.release(lane.key)

    def _make_ready(self, lane: _Lane) -> None:
        number = self._next_number() if self._in_turn else lane.first
        self._lane_of[number] = lane
        heappush(self._ready, number)

    def _make_unready(self, lane: _Lane) -> None:
        number = next(number for number, other in self._lane_of.items() if other is lane)
        del self._lane_of[number]
        self._ready.remove(number)
        heapify(self._ready)
