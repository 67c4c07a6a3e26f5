"""Where the items of a ladder wait: one line for the group, a few handed to a rung, and calls for a slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ._rungs import Item, Rung


class WaitingItems:
    """The line of a group, the calls that wait for a slot, and how the two share the slots that become free.

    Attributes, which others read and do not change:
        line: The items that wait for a slot of the route.
        calls: The calls that do, in their callers' tasks.
        handed: How many items stand with a rung, to run there alone.
    """

    def __init__(self, rungs: Sequence[Rung]) -> None:
        self._rungs = rungs
        self.line: deque[Item] = deque()
        self.calls: deque[Item] = deque()
        # A free slot goes to the line and to the calls in turn, so that neither starves.
        self._is_calls_turn = False
        self.handed = 0

    def __len__(self) -> int:
        """Return how many items wait; calls are counted apart, for they wait in their callers' tasks."""
        return len(self.line) + self.handed

    def __bool__(self) -> bool:
        """Whether an item or a call waits."""
        return bool(self.line or self.calls or self.handed)

    @property
    def is_contended(self) -> bool:
        """Whether anything waits for a slot of the route."""
        return bool(self.line or self.calls)

    @property
    def has_handed(self) -> bool:
        """Whether anything waits for a rung that has a slot for it."""
        return self.handed > 0 and any(rung.handed and rung.has_slot for rung in self._rungs)

    def append(self, item: Item) -> None:
        """Put *item* at the back of the line."""
        self.line.append(item)

    def put_first(self, item: Item) -> None:
        """Put *item* back at the head of the line."""
        self.line.appendleft(item)

    def hand(self, item: Item, rung: Rung | None) -> None:
        """Have *item* wait for *rung* alone; None: for a slot of the route, where only calls may be refused one."""
        if rung is not None:
            rung.handed.append(item)
            self.handed += 1
        elif item.is_call and not item.must_run:
            self.calls.append(item)
        else:
            self.line.append(item)

    def pop_first(self) -> Item | None:
        """Take the head of the line, else the first call; None if nothing waits for a slot of the route."""
        queue = self.line or self.calls
        return queue.popleft() if queue else None

    def pop_next(self) -> Item | None:
        """Take what a free slot of the route is for: the head of the line or a call, in turn."""
        if self.calls and (self._is_calls_turn or not self.line):
            self._is_calls_turn = False
            return self.calls.popleft()
        self._is_calls_turn = True
        return self.line.popleft() if self.line else None

    def pop_handed(self) -> tuple[Item, Rung] | None:
        """Take the first item handed to a rung that has a slot for it."""
        if self.handed:
            for rung in self._rungs:
                if rung.handed and rung.has_slot:
                    self.handed -= 1
                    return rung.handed.popleft(), rung
        return None

    def pop_handed_to(self, rung: Rung) -> list[Item]:
        """Take every item that was handed to *rung*."""
        items = list(rung.handed)
        rung.handed.clear()
        self.handed -= len(items)
        return items

    def pop_calls(self) -> list[Item]:
        """Take every call that waits for a slot of the route."""
        calls = list(self.calls)
        self.calls.clear()
        return calls

    def pop_all(self) -> list[Item]:
        """Take everything, what is furthest along first."""
        queues = [*(rung.handed for rung in self._rungs), self.line, self.calls]
        everything = [item for queue in queues for item in queue]
        for queue in queues:
            queue.clear()
        self.handed = 0
        return everything

    def remove(self, item: Item) -> None:
        """Take *item* from wherever it waits."""
        for queue in (self.calls, self.line):
            if item in queue:
                queue.remove(item)
                return
        for rung in self._rungs:
            if item in rung.handed:
                rung.handed.remove(item)
                self.handed -= 1
                return
