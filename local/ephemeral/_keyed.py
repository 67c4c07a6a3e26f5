"""The keyed coordinator: in order within a key, keys beside each other."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterable, Callable, Hashable, Iterable
from contextvars import Context
from typing import Any, Generic, TypeVar, cast

from ._bodies import StillRunningError, require_plain
from ._coordinator import Body, CoordinatorBase
from ._ids import next_id
from ._intake import Intake
from ._keyed_intake import KeyedIntake, KeyedItem
from ._keyed_line import KeyedLine
from ._lanes import Lanes, Line
from ._operations import EphemeralOperationSnapshot, Operation
from ._options import EphemeralOptions

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
# Of a method alone: pyright leaves a class's own ones open when a method of the bare class is called.
L = TypeVar("L", bound=Hashable)
U = TypeVar("U")


class _KeyedOperation(Operation):
    """An operation that takes a place of its key while it runs.

    Attributes:
        lane_key: The key itself, until the place is given back: it may hold the item.
    """

    __slots__ = ("lane_key",)

    lane_key: Hashable


class EphemeralKeyedWorkCoordinator(CoordinatorBase[T, EphemeralOperationSnapshot], Generic[K, T]):
    """Runs a body for each item, the items of one key in order, different keys beside each other.

    ::

        async def apply(command: Command) -> None: ...

        async with EphemeralKeyedWorkCoordinator(lambda command: command.account, apply) as work:
            await work.enqueue(command)  # after those of the same account, beside those of others

    At most ``max_concurrency_per_key`` items of a key run at once (1: strictly one after the other), and
    ``max_concurrency`` altogether. A busy key holds up no other and takes no slot while it waits; an idle one leaves
    nothing behind. Items start in order of arrival among the keys that may run; with ``enable_fair_scheduling`` keys
    take turns, and one with ``fair_scheduling_threshold`` waiting items is full: ``try_enqueue`` returns False and
    ``enqueue`` waits, for that key alone.

    Args:
        key_selector: The key of an item, any hashable value. Called once an item, by whoever enqueues it, who gets what
            it raises. Snapshots and signals show the key if it is a ``str``, else ``str(key)``.
        body: ``async def body(item)`` or ``async def body(item, op)``; a plain function runs in a worker thread.
        options: Bounds and callbacks; None: the defaults.

    Raises:
        TypeError: *body* or *key_selector* cannot be called, or *key_selector* is ``async def``.
    """

    def __init__(self, key_selector: Callable[[T], K], body: Body[T], options: EphemeralOptions | None = None) -> None:
        if not callable(key_selector):
            raise TypeError(f"key_selector must be a function of one item, not {key_selector!r}")
        require_plain("key_selector", key_selector)
        self._key_selector = key_selector
        super().__init__(body, options)
        self._ready = self._lanes.ready
        self._heeds_ends = True

    @classmethod
    def from_async_iterable(
        cls,
        source: AsyncIterable[U],
        key_selector: Callable[[U], L],
        body: Body[U],
        options: EphemeralOptions | None = None,
    ) -> EphemeralKeyedWorkCoordinator[L, U]:
        """Make one that takes its items from an async iterable, once its block is entered and each once there is room.

        ``drain()`` and leaving the block normally wait for the end of *source*; ``complete()`` takes no more and closes
        it. What *source* raises ends intake and comes out of ``drain()`` or the block after all that was accepted has
        ended. Other items may be enqueued as well.

        Args:
            source: Where the items come from, taken and closed (``aclose``) in one task of the coordinator.
            key_selector: As for the class; what it raises counts as raised by *source*.
            body: As for the class.
            options: As for the class.

        Raises:
            TypeError: As for the class, or *source* is no async iterable.
        """
        kind = cast("type[EphemeralKeyedWorkCoordinator[L, U]]", cls)
        return kind(key_selector, body, options)._fed_by(source)  # noqa: SLF001  its own class

    def _make_line(self) -> Line[Any]:
        options = self._options
        is_fair = options.enable_fair_scheduling
        self._producers = KeyedIntake.lanes(options.fair_scheduling_threshold) if is_fair else None
        places = options.max_concurrency_per_key
        self._lanes: Lanes[_KeyedOperation] | KeyedLine[_KeyedOperation] = (
            Lanes(places, operator.attrgetter("lane_key"), in_turn=True, upstream=self._producers)
            if is_fair
            else KeyedLine(places)
        )
        return self._lanes

    def _make_intake(self) -> Intake[Any]:
        waiting, bound = self._lanes.waiting, self._options.max_pending
        if self._producers is None:
            return Intake(self._name, bound, waiting, self._admit)
        return KeyedIntake(self._name, bound, waiting, self._admit, self._producers)

    # Intake

    def _with_key(self, item: T) -> KeyedItem:
        select = self._key_selector
        key = select(item)
        try:
            hash(key)
        except TypeError as error:
            raise TypeError(
                f"key_selector returned {key!r}, which is not hashable; make it a str or a tuple"
            ) from error
        return key, key if isinstance(key, str) else str(key), item

    async def enqueue(self, item: T) -> int:
        """Accept *item* and return its operation's id; waits only while its key is full or `max_pending` items wait.

        A cancellation point only while it waits; a cancelled call leaves no trace. The body will run in a copy of
        the caller's context.

        Raises:
            CoordinatorCompletedError: The coordinator has completed, or completes while this waits.
            TypeError: The key is not hashable.
        """
        keyed = self._with_key(item)
        operation_id = self._intake.enqueue_at_once(keyed)
        return await self._intake.enqueue(keyed) if operation_id is None else operation_id

    def try_enqueue(self, item: T) -> bool:
        """Accept *item* if there is room for it now; False if its key or the line is full, or after `complete`.

        Raises:
            RuntimeError: Called on another thread than the loop's, as in a body that is a plain function.
            TypeError: The key is not hashable.
        """
        self._workers.require_own_thread("try_enqueue()")
        return self._intake.try_enqueue(self._with_key(item)) is not None

    async def enqueue_many(self, items: Iterable[T]) -> int:
        """Accept *items* in order, as `enqueue` does each, and return how many there were.

        A full key holds up the items after it, which could be overtaken otherwise.
        """
        return await self._intake.enqueue_many(self._with_key(item) for item in items)

    def enqueue_threadsafe(self, item: T) -> int:
        """Accept *item* from a thread other than the loop's; blocks that thread until it is accepted.

        Raises:
            RuntimeError: Called on the loop's own thread, or before the block was entered.
            CoordinatorCompletedError: The coordinator has completed, or completes while this waits.
        """
        return super().enqueue_threadsafe(self._with_key(item))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  the intake takes items with their keys

    def _admit(self, item: Any, context: Context) -> int:
        key, name, item = item
        operation = _KeyedOperation(self._emitter, next_id(), name, item, context)
        operation.lane_key = key
        self._line.append(operation)
        if len(self._ready) == 1:  # else a worker is on its way already, or none may come
            self._workers.wake()
        return operation.id

    # Running

    def _after_end(self, operation: Operation) -> None:
        # A plain function that ran out of time runs on, and may not meet another one of its key.
        if operation.error is None or not isinstance(operation.error, StillRunningError):
            self._release(operation)
        if self._tells_ends:
            super()._after_end(operation)

    async def _after_failure(self, operation: Operation, error: BaseException) -> None:
        try:
            await super()._after_failure(operation, error)
        finally:
            if isinstance(error, StillRunningError):
                self._release(operation)

    def _skip(self, operation: Operation) -> None:
        self._release(operation)
        super()._skip(operation)

    def _release(self, operation: Any) -> None:
        self._lanes.release(operation.lane_key)
        operation.lane_key = None

    # Window

    def get_pending_count_for_key(self, key: K) -> int:
        """Return how many items of *key* wait. Looks at all that wait, unless scheduling is fair."""
        return self._lanes.count(key)

    def get_snapshot_for_key(self, key: K) -> tuple[EphemeralOperationSnapshot, ...]:
        """Return what is remembered of *key*, running operations included, in order of start.

        Keys are told apart as snapshots show them: 7 and ``"7"`` are one here.
        """
        name = key if isinstance(key, str) else str(key)
        return self._snapshots(operation for operation in self._recent() if operation.key == name)
