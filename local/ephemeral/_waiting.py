"""Where the items of a ladder wait: one line for the group, a few handed to a rung, and calls for a slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ._rungs import Item, Rung


class WaitingItems:
    """The line of a group, the calls that wait for a slot, and how the two share the slots that become free.

    What is handed to a rung stands with the rung; it is counted here.
    """

    def __init__(self, rungs: Sequence[Rung]) -> None:
        self._rungs = rungs
        self._line: deque[Item] = deque()
        self._calls: deque[Item] = deque()
        # A free slot goes to the line and to the calls in turn, so that neither starves.
        self._is_calls_turn = False
        self._handed = 0

    def __len__(self) -> int:
        """Return how many items wait; calls are counted apart, for they wait in their callers' tasks."""
        return len(self._line) + self._handed

    def __bool__(self) -> bool:
        """Whether an item or a call waits."""
        return bool(self._line or self._calls or self._handed)

    @property
    def calls(self) -> int:
        """How many calls wait for a slot of the route."""
        return len(self._calls)

    @property
    def is_contended(self) -> bool:
        """Whether anything waits for a slot of the route."""
        return bool(self._line or self._calls)

    @property
    def has_handed(self) -> bool:
        """Whether anything waits for a rung that has a slot for it."""
        return self._handed > 0 and any(rung.handed and rung.has_slot for rung in self._rungs)

    def append(self, item: Item) -> None:
        """Put *item* at the back of the line."""
        self._line.append(item)

    def put_first(self, item: Item) -> None:
        """Put *item* back at the head of the line."""
        self._line.appendleft(item)

    def hand(self, item: Item, rung: Rung | None) -> None:
        """Have *item* wait for *rung* alone; None: for a slot of the route, where only calls may be refused one."""
        if rung is not None:
            rung.handed.append(item)
            self._handed += 1
        elif item.is_call and not item.must_run:
            self._calls.append(item)
        else:
            self._line.append(item)

    def pop_first(self) -> Item | None:
        """Take the head of the line, else the first call; None if nothing waits for a slot of the route."""
        queue = self._line or self._calls
        return queue.popleft() if queue else None

    def pop_next(self) -> Item | None:
        """Take what a free slot of the route is for: the head of the line or a call, in turn."""
        if self._calls and (self._is_calls_turn or not self._line):
            self._is_calls_turn = False
            return self._calls.popleft()
        self._is_calls_turn = True
        return self._line.popleft() if self._line else None

    def pop_handed(self) -> tuple[Item, Rung] | None:
        """Take the first item handed to a rung that has a slot for it."""
        if self._handed:
            for rung in self._rungs:
                if rung.handed and rung.has_slot:
                    self._handed -= 1
                    return rung.handed.popleft(), rung
        return None

    def pop_handed_to(self, rung: Rung) -> list[Item]:
        """Take every item that was handed to *rung*."""
        items = list(rung.handed)
        rung.handed.clear()
        self._handed -= len(items)
        return items

    def pop_calls(self) -> list[Item]:
        """Take every call that waits for a slot of the route."""
        calls = list(self._calls)
        self._calls.clear()
        return calls

    def pop_all(self) -> list[Item]:
        """Take everything, what is furthest along first."""
        queues = [*(rung.handed for rung in self._rungs), self._line, self._calls]
        everything = [item for queue in queues for item in queue]
        for queue in queues:
            queue.clear()
        self._handed = 0
        return everything

    def remove(self, item: Item) -> None:
        """Take *item* from wherever it waits."""
        for queue in (self._calls, self._line):
            if item in queue:
                queue.remove(item)
                return
        for rung in self._rungs:
            if item in rung.handed:
                rung.handed.remove(item)
                self._handed -= 1
                return
