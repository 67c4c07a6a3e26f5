"""One reading for any number of viewers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")


class Relay(Generic[T]):
    """Reads while somebody follows, once for all who do; all on one event loop.

    It owns no task: the follower who came first reads for the others, and the next one goes on when that one leaves. So
    an application that is mounted into another one needs nothing started and nothing stopped.

    Args:
        read: Opens the reading, anew for each who takes it over.
    """

    def __init__(self, read: Callable[[], AbstractAsyncContextManager[AsyncIterator[T]]]) -> None:
        self._read = read
        self._takers: set[Callable[[T], None]] = set()
        self._reading = anyio.Lock()

    async def follow(self, take: Callable[[T], None]) -> None:
        """Call *take* with all that is read from now on, until cancelled, or until the reading ends.

        *take* must return at once: it is called by whoever reads.
        """
        self._takers.add(take)
        try:
            async with self._reading, self._read() as values:
                async for value in values:
                    for taker in tuple(self._takers):
                        taker(value)
        finally:
            self._takers.discard(take)
