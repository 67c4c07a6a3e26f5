"""The window of a coordinator: the operations that run, and those that ended not long ago."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterator

from ._operations import NO_CONTEXT, Operation, Outcome


class OperationHistory:
    """Remembers operations in order of their start, bounded by number and by time since they ended.

    Running and pinned operations are never forgotten, and may exceed the bound. Of the others the one that ended
    longest ago goes first. Belongs to the loop's thread.

    Args:
        capacity: How many operations are remembered.
        lifetime: Seconds an operation is remembered after its end.
        on_forgotten: Called with each operation that is forgotten; must not raise.
    """

    def __init__(self, capacity: int, lifetime: float, on_forgotten: Callable[[Operation], object] | None) -> None:
        self._capacity = capacity
        self._lifetime = lifetime
        self._on_forgotten = on_forgotten
        self._tracked: dict[int, Operation] = {}
        # Takes a running operation in; the dict's own method spares each operation a call.
        self.remember = self._tracked.__setitem__
        # Ended and not pinned, in order of their end: both bounds take from the left.
        self._ended: deque[Operation] = deque()

    def __len__(self) -> int:
        return len(self._tracked)

    def __iter__(self) -> Iterator[Operation]:
        return iter(list(self._tracked.values()))

    def get(self, operation_id: int) -> Operation | None:
        """Return the operation, or None if it is unknown or forgotten."""
        return self._tracked.get(operation_id)

    def running(self) -> list[Operation]:
        """Return the operations that run, in order of start."""
        return [operation for operation in self._tracked.values() if operation.is_running]

    def ended(self, operation: Operation, now: float, outcome: Outcome) -> None:
        """Let go of the operation's item; from now on it ages."""
        operation.ended_at = now
        operation.outcome = outcome
        operation.item = operation.worker = None
        operation.context = NO_CONTEXT
        ended, tracked, oldest = self._ended, self._tracked, now - self._lifetime
        if not operation.is_pinned:
            ended.append(operation)
        # As in trim, whose calls would cost each operation a thirtieth of a trivial one's time.
        while ended and (len(tracked) > self._capacity or ended[0].ended_at < oldest):
            forgotten = ended.popleft()
            del tracked[forgotten.id]
            if self._on_forgotten is not None:
                self._on_forgotten(forgotten)

    def trim(self, now: float) -> None:
        """Forget what is too old or too much at *now*; reads call it first, so that they are exact."""
        ended, tracked, oldest = self._ended, self._tracked, now - self._lifetime
        while ended and (len(tracked) > self._capacity or ended[0].ended_at < oldest):
            self._forget(ended.popleft())

    def pin(self, operation_id: int) -> bool:
        """Keep an operation until it is unpinned; False if it is not here."""
        operation = self._tracked.get(operation_id)
        if operation is None:
            return False
        if not operation.is_pinned:
            operation.is_pinned = True
            if operation.has_ended:
                self._ended.remove(operation)
        return True

    def unpin(self, operation_id: int, now: float) -> bool:
        """Let an operation age again, from its end; False if it is not here."""
        operation = self._tracked.get(operation_id)
        if operation is None:
            return False
        if operation.is_pinned:
            operation.is_pinned = False
            if operation.has_ended:
                place = bisect.bisect_right([other.ended_at for other in self._ended], operation.ended_at)
                self._ended.insert(place, operation)
                self.trim(now)
        return True

    def evict(self, operation_id: int) -> bool:
        """Forget an operation now; False if it is not here, running or pinned."""
        operation = self._tracked.get(operation_id)
        if operation is None or operation.is_pinned or not operation.has_ended:
            return False
        self._ended.remove(operation)
        self._forget(operation)
        return True

    def _forget(self, operation: Operation) -> None:
        del self._tracked[operation.id]
        if self._on_forgotten is not None:
            self._on_forgotten(operation)
