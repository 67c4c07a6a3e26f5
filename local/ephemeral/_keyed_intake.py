"""The way into a line in which each key has so much room: a full key holds up its own producers and nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sized
from contextvars import Context
from typing import Any

from ._intake import NO_ITEM, Intake, Producer
from ._lanes import Lanes

KeyedItem = tuple[Hashable, str, Any]
"""An item on its way in, with its key and the key's name: asked for once, where who offers it gets what that raises."""


class KeyedIntake(Intake[KeyedItem]):
    """Admits items to a line of at most *bound* waiting items in all, and at most *bound_per_key* of each key.

    An item takes a place of its key when it is admitted, or when its producer is told to come in. Whoever takes it out
    of the line gives that back: ``intake.producers.release(key)``, as lanes do with ``upstream=intake.producers``.
    """

    producers: Lanes[Producer[KeyedItem]]

    def __init__(
        self,
        name: str,
        bound: int,
        line: Sized,
        admit: Callable[[KeyedItem, Context], int],
        producers: Lanes[Producer[KeyedItem]],
    ) -> None:
        self._producers_by_key = producers
        super().__init__(name, bound, line, admit)

    @staticmethod
    def lanes(bound_per_key: int) -> Lanes[Producer[KeyedItem]]:
        """Make the lanes in which producers wait."""
        return Lanes(bound_per_key, _key_of)

    def _make_line_of_producers(self) -> Lanes[Producer[KeyedItem]]:
        return self._producers_by_key

    def try_enqueue(self, item: KeyedItem) -> int | None:
        """Admit *item* and return its id if there is room for its key now, else return None. Never waits."""
        return None if self.producers.is_full(item[0]) else self._with_place(item[0], super().try_enqueue(item))

    def enqueue_at_once(self, item: KeyedItem) -> int | None:
        """Admit *item* and return its id if `enqueue` would not have to wait, else return None."""
        return None if self.producers.is_full(item[0]) else self._with_place(item[0], super().enqueue_at_once(item))

    def _with_place(self, key: Hashable, operation_id: int | None) -> int | None:
        if operation_id is not None:
            self.producers.take(key)
        return operation_id

    def _give_back(self, producer: Producer[KeyedItem]) -> None:
        self.producers.release(_key_of(producer))


def _key_of(producer: Producer[KeyedItem]) -> Hashable:
    # Who offers nothing has a lane of its own, that is never full.
    return producer if producer.item is NO_ITEM else producer.item[0]
