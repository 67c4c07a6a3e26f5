"""The plain coordinator: items in, bodies run in arrival order, what happened is remembered for a while."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import TypeVar, cast

from ._coordinator import Body, CoordinatorBase
from ._operations import EphemeralOperationSnapshot
from ._options import EphemeralOptions

T = TypeVar("T")
# Of a method alone: pyright leaves a class's own ones open when a method of the bare class is called.
U = TypeVar("U")


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

    @classmethod
    def from_async_iterable(
        cls, source: AsyncIterable[U], body: Body[U], options: EphemeralOptions | None = None
    ) -> EphemeralWorkCoordinator[U]:
        """Make one that takes its items from an async iterable, once its block is entered and each once there is room.

        ``drain()`` and leaving the block normally wait for the end of *source*; ``complete()`` takes no more and closes
        it. What *source* raises ends intake and comes out of ``drain()`` or the block after all that was accepted has
        ended. Other items may be enqueued as well.

        Args:
            source: Where the items come from, taken and closed (``aclose``) in one task of the coordinator.
            body: As for the class.
            options: As for the class.

        Raises:
            TypeError: As for the class, or *source* is no async iterable.
        """
        kind = cast("type[EphemeralWorkCoordinator[U]]", cls)
        return kind(body, options)._fed_by(source)  # noqa: SLF001  its own class
