"""The way into a bounded line: who may put an item into it, in which order, from which thread.

The owner keeps the line itself. An intake counts the room left, lets producers wait for it in arrival order and closes.
"""

from __future__ import annotations

import concurrent.futures
from collections import deque
from collections.abc import Callable, Iterable, Sized
from contextvars import Context, copy_context
from typing import Any, Final, Generic, TypeVar

import anyio

from ._errors import CoordinatorCompletedError
from ._lanes import Line
from ._loops import Loop

T = TypeVar("T")

NO_ITEM: Final[Any] = object()
"""What a producer offers who only wants to know that there is room."""


class Producer(Generic[T]):
    """Somebody who waits until there is room for one item."""

    __slots__ = ("context", "item", "operation_id", "tell")

    def __init__(self, item: T, context: Context, tell: Callable[[], object]) -> None:
        self.item = item
        self.context = context
        self.tell = tell
        self.operation_id: int | None = None


class _ThreadRequest(Generic[T]):
    """A thread that blocks until its item is admitted; `begin` and the thread's own cancel exclude each other."""

    __slots__ = ("answer", "context", "item")

    def __init__(self, item: T, context: Context) -> None:
        self.item = item
        self.context = context
        self.answer: concurrent.futures.Future[int] = concurrent.futures.Future()

    def begin(self) -> bool:
        return not self.answer.done() and self.answer.set_running_or_notify_cancel()

    def refuse(self, error: Exception) -> None:
        if self.begin():
            self.answer.set_exception(error)


class Intake(Generic[T]):
    """Admits items to a line of at most *bound* waiting items.

    Belongs to the loop's thread, but for `enqueue_threadsafe`. The room left is not counted but derived: the bound less
    the items that wait, less the producers that were told to come in and have not resumed yet.

    Args:
        name: Who takes the items, for messages.
        bound: How many items may wait.
        line: Whose length is how many do.
        admit: Puts one item into the line and returns its operation id.

    Attributes:
        bound: How many items may wait.
        granted: Producers that were told to come in and have not resumed yet.
        is_closed: Whether it takes nothing more.
    """

    def __init__(self, name: str, bound: int, line: Sized, admit: Callable[[T, Context], int]) -> None:
        self._name = name
        self.bound = bound
        self._line = line
        self._admit = admit
        self.producers = self._make_line_of_producers()
        """Who waits for room; the owner calls `freed` if there is anybody."""
        self.granted: deque[Producer[T]] = deque()
        self._from_threads: set[_ThreadRequest[T]] = set()
        self.is_closed = False

    def _make_line_of_producers(self) -> Line[Producer[T]]:
        return deque[Producer[T]]()

    # Producers on the loop's thread

    def try_enqueue(self, item: T) -> int | None:
        """Admit *item* and return its id if there is room now, else return None. Never waits."""
        return None if self.is_closed or not self._has_room() else self._admit(item, copy_context())

    def enqueue_at_once(self, item: T) -> int | None:
        """Admit *item* and return its id if `enqueue` would not have to wait, else return None."""
        # Somebody who was granted room has not come in yet: a newcomer must not overtake him.
        if self.is_closed or self.granted or len(self._line) >= self.bound:
            return None
        admit = self._admit
        return admit(item, copy_context())

    async def enqueue(self, item: T) -> int:
        """Admit *item*; waits, and is a cancellation point, only while there is no room.

        Raises:
            CoordinatorCompletedError: The intake is closed, or closes meanwhile. Nothing was admitted.
        """
        operation_id = self.enqueue_at_once(item)
        if operation_id is not None:
            return operation_id
        if self.is_closed:
            raise CoordinatorCompletedError(self._name)
        return await self._wait_for_room(item)

    async def enqueue_many(self, items: Iterable[T]) -> int:
        """Admit all *items* in order and return how many; waits as `enqueue` does.

        Raises:
            CoordinatorCompletedError: The intake is closed; the items before the refused one were admitted.
        """
        count = 0
        for item in items:
            await self.enqueue(item)
            count += 1
        return count

    async def _wait_for_room(self, item: T) -> int:
        return self._redeem(await self._take_turn(item))

    async def wait_for_room(self) -> None:
        """Wait until an item could be admitted, offering none: for whoever has to fetch it first.

        Room is not kept for the caller. A cancellation point only while it waits.

        Raises:
            CoordinatorCompletedError: The intake is closed, or closes meanwhile.
        """
        if not self.is_closed and not self._has_room():
            await self._take_turn(NO_ITEM)
        if self.is_closed:
            raise CoordinatorCompletedError(self._name)

    async def _take_turn(self, item: T) -> Producer[T]:
        event = anyio.Event()
        producer = Producer(item, copy_context(), event.set)
        self.producers.append(producer)
        self.freed()
        try:
            await event.wait()
        except BaseException:
            self._leave(producer)
            raise
        return producer

    def _redeem(self, producer: Producer[T]) -> int:
        """Turn granted room into admitted items: this producer's, and of those granted before it.

        A loop may resume producers in another order than they were told in (trio shuffles); the line keeps theirs.
        """
        while producer.operation_id is None:
            if self.is_closed:
                self._leave(producer)
                raise CoordinatorCompletedError(self._name)
            first = self.granted.popleft()
            first.operation_id = self._admit(first.item, first.context)
        return producer.operation_id

    def _leave(self, producer: Producer[T]) -> None:
        """Forget a producer that gave up; room it was granted goes to the next."""
        if producer in self.producers:
            self.producers.remove(producer)
        elif producer in self.granted:
            self.granted.remove(producer)
            self._give_back(producer)
            self.freed()

    def _give_back(self, producer: Producer[T]) -> None:
        """Note that *producer* will not use the room it was granted."""

    def _has_room(self) -> bool:
        return len(self._line) + len(self.granted) < self.bound

    # Producers on other threads

    def enqueue_threadsafe(self, item: T, loop: Loop) -> int:
        """Admit *item* from a thread that is not the loop's; blocks that thread until there is room.

        Raises:
            RuntimeError: Called on the loop's own thread, which would wait for itself.
            CoordinatorCompletedError: The intake is closed, or closes meanwhile. Nothing was admitted.
        """
        if loop.runs_here and not self.is_closed:  # once closed it blocks nobody, and that loop may be long over
            raise RuntimeError(f"enqueue_threadsafe() would block the loop of {self._name}; there, await enqueue()")
        request = _ThreadRequest(item, copy_context())
        # Registered before the flag is read: whoever closes either sees the request or is seen here.
        self._from_threads.add(request)
        try:
            if self.is_closed:
                raise CoordinatorCompletedError(self._name)
            try:
                loop.call_soon_threadsafe(lambda: self._serve_thread(request, loop))
            except RuntimeError as error:
                raise CoordinatorCompletedError(self._name) from error
            return request.answer.result()
        finally:
            request.answer.cancel()  # after an interrupt: an item not admitted yet never will be
            self._from_threads.discard(request)

    def _serve_thread(self, request: _ThreadRequest[T], loop: Loop) -> None:
        if self.is_closed:
            request.refuse(CoordinatorCompletedError(self._name))
            return

        def come_in() -> None:
            self._redeem_for_thread(producer, request)

        def tell() -> None:
            # Who got room before and has not come in yet may still be cancelled: he must not be taken along.
            if self.granted and self.granted[0] is not producer:
                loop.call_soon_threadsafe(come_in)
            else:
                come_in()

        producer = Producer(request.item, request.context, tell)
        self.producers.append(producer)
        self.freed()

    def _redeem_for_thread(self, producer: Producer[T], request: _ThreadRequest[T]) -> None:
        if not request.begin():  # the thread was interrupted while it waited: nothing of it may remain
            self._leave(producer)
            return
        try:
            request.answer.set_result(self._redeem(producer))
        except Exception as error:  # noqa: BLE001  it is the producer's: raised again in its thread
            request.answer.set_exception(error)

    # The owner

    def resize(self, bound: int) -> None:
        """Change how many items may wait; those that wait already stay."""
        self.bound = bound
        self.freed()

    def freed(self) -> None:
        """Places in the line may be free: they go to the producers that have waited longest."""
        while self.producers and self._has_room():
            producer = self.producers.popleft()
            if producer.item is NO_ITEM:
                self._give_back(producer)
            else:
                self.granted.append(producer)
            producer.tell()

    def close(self) -> None:
        """Take nothing more; whoever waits gets `CoordinatorCompletedError`. Idempotent."""
        self.is_closed = True
        waiting = list(self.producers)
        self.producers.clear()
        for producer in waiting:
            producer.tell()

    def end(self) -> None:
        """The block is left for good: no thread may wait for a loop that could stop before it answers."""
        self.close()
        for request in tuple(self._from_threads):
            request.refuse(CoordinatorCompletedError(self._name))
