"""The plain coordinator: items in, bodies run in arrival order, what happened is remembered for a while."""

from __future__ import annotations

from typing import TypeVar

from ._coordinator import CoordinatorBase
from ._operations import EphemeralOperationSnapshot

T = TypeVar("T")


class EphemeralWorkCoordinator(CoordinatorBase[T, EphemeralOperationSnapshot]):
    """Runs a body for each item, at most ``max_concurrency`` at once, in order of arrival.

    ::

        async def resize(path: str) -> None: ...

        async with EphemeralWorkCoordinator(resize, EphemeralOptions(max_concurrency=4)) as work:
            await work.enqueue("a.png")
        # left normally: all that was accepted has run

    Leaving the block by an exception cancels what runs and waits, and that exception comes out as it is. Items may be
    enqueued before the block is entered; they run once it is.

    Args:
        body: ``async def body(item)`` or ``async def body(item, op)``; a plain function runs in a worker thread.
        options: Bounds and callbacks; None: the defaults.

    Raises:
        TypeError: *body* cannot be called.
    """
