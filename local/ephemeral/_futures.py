"""Waiting, on either loop, for a future that another thread ends."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

import anyio

from ._loops import current_loop

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")


async def wait_for_future(future: Future[T]) -> T:
    """Return what *future* ends with, or raise it. Always a cancellation point; cancelled, it leaves *future* alone."""
    ended = anyio.Event()
    loop = current_loop()

    def wake(_: Future[T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and whoever waited with it
            loop.call_soon_threadsafe(ended.set)

    # By way of the loop even if it has ended already: what was handed to the loop before it did is done first.
    future.add_done_callback(wake)
    await ended.wait()
    return future.result()
