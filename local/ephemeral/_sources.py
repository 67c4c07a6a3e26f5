"""Taking the items of an async iterable into a coordinator, no further ahead than it has room."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel

from ._bodies import order_to_end
from ._errors import CoordinatorCompletedError
from ._intake import Intake
from ._workers import SLICE, Workers

T = TypeVar("T")

# A source that is closed may have to say goodbye to somebody, but must not hold up the end for ever.
CLOSE_SECONDS: Final = 5.0

_END: Final[Any] = object()

_log: Final = logging.getLogger("ephemeral")


class Feed(Generic[T]):
    """Takes one item after the other from a source, each once there is room for it, until either side has had enough.

    Belongs to the loop's thread.

    Args:
        source: Where the items come from. It is taken in one task, and closed in it (``aclose``) if it can be.

    Raises:
        TypeError: *source* is no async iterable.
    """

    def __init__(self, source: AsyncIterable[T]) -> None:
        if not hasattr(source, "__aiter__"):
            raise TypeError(f"source must be an async iterable, not {source!r}; ephemeral_for_each() takes plain ones")
        self._source = source
        self._scope = anyio.CancelScope()
        self._is_stopped = False
        self._error: BaseException | None = None
        self.is_running = False
        """Whether it takes items, or closes the source; set by whoever starts `run`."""

    def stop(self) -> None:
        """Take no more; a source that is being waited for is cancelled there. Callable in a plain loop callback."""
        self._is_stopped = True
        self._scope.cancel()

    def raise_error(self) -> None:
        """Raise what the source raised, once: then it is forgotten, for its traceback keeps items alive."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error

    def log_error(self) -> None:
        """Log what the source raised if nobody was told: another exception leaves the block."""
        error, self._error = self._error, None
        if error is not None:
            _log.error("a source raised, and its block was left by something else", exc_info=error)

    async def run(
        self, workers: Workers, intake: Intake[Any], enqueue: Callable[[T], Awaitable[int]], ended: Callable[[], None]
    ) -> None:
        """Take all items, close the source and call *ended*.

        Raises only the loop's cancellation error; what the source raises is kept for `raise_error`, and what is meant
        for the program ends the block of *workers*.
        """
        try:
            await self._take_and_close(workers, intake, enqueue)
        except workers.cancelled_class:
            # The source may have raised it by itself: then nobody is told to end, and it is an error as any other.
            await anyio.lowlevel.checkpoint_if_cancelled()
            self._error = RuntimeError("the source was cancelled from within, before its end")
        except BaseException as error:  # noqa: BLE001  a source may raise anything
            if order_to_end(error) is None:
                self._error = error
            else:
                workers.end_with(error)
        finally:
            self.is_running = False
            ended()

    async def _take_and_close(
        self, workers: Workers, intake: Intake[Any], enqueue: Callable[[T], Awaitable[int]]
    ) -> None:
        iterator = aiter(self._source)
        try:
            with self._scope:
                await self._take_all(iterator, workers, intake, enqueue)
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await close()

    async def _take_all(
        self,
        iterator: AsyncIterator[T],
        workers: Workers,
        intake: Intake[Any],
        enqueue: Callable[[T], Awaitable[int]],
    ) -> None:
        next_turn = workers.now() + SLICE
        while not self._is_stopped:
            try:
                await intake.wait_for_room()
            except CoordinatorCompletedError:
                return
            item = await anext(iterator, _END)
            if item is _END:
                return
            try:
                await enqueue(item)
            except CoordinatorCompletedError:
                return
            del item  # waiting for the next one must not keep this one alive
            if workers.now() >= next_turn:
                await anyio.lowlevel.checkpoint()
                next_turn = workers.now() + SLICE
