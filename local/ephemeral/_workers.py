"""Long-lived worker tasks: started on demand, parked when there is nothing to take, never one per item.

What a worker does is its owner's; how many there are, when they sleep and how they end is decided here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from ._bodies import StillRunningError
from ._loops import Loop, current_loop

# Bodies that never wait would keep the loop to themselves: after this many seconds it gets a turn between two items.
SLICE: Final = 0.005
# Identities of threads are never 0.
NO_THREAD: Final = 0


class Worker:
    """One task of a pool, as the owner of its job sees it."""

    __slots__ = ("interrupted", "scope")

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.interrupted = False

    def interrupt(self) -> None:
        """Cancel the job this worker runs; the worker itself lives on."""
        self.interrupted = True
        self.scope.cancel()


class Workers:
    """A pool of worker tasks, open as long as its ``async with`` block.

    Everything here belongs to the loop's thread. `wake` may be called in a plain loop callback too: starting a task
    needs a running task, so a pump task of the pool's own does that.

    Args:
        serve: What a worker does, until it is interrupted: take a job and run it, or `park` if there is none, or if
            `surplus` is above 0. Before it takes one it calls `breathe` if `latest` has reached `slice_end`. It raises
            only the loop's cancellation error, and what ends the block: ``KeyboardInterrupt``, ``SystemExit``.
        limit: How many workers may be awake.
    """

    def __init__(self, serve: Callable[[Worker], Coroutine[Any, Any, None]], *, limit: int) -> None:
        self._serve = serve
        self._limit = limit
        self.surplus = -limit
        """Workers awake beyond the limit; below 0 as long as more may wake, above it after the limit has shrunk."""
        self._is_rousing = False
        self._to_start = 0
        self._parked: list[anyio.Event] = []
        self._group: TaskGroup | None = None
        self._pump_wanted: anyio.Event | None = None
        self._fatal: BaseException | None = None
        self.cancelled_class: type[BaseException] = BaseException
        self.loop = Loop(time.monotonic, _no_loop, NO_THREAD)
        self.now = time.monotonic
        self.latest = 0.0
        """The newest reading of the clock: whoever stamps a job shares it here."""
        self.slice_end = 0.0
        """When the loop is to get its turn."""
        self._is_slice_used_up = False

    @property
    def limit(self) -> int:
        """How many workers may be awake; setting it wakes some at once, or lets some park as their jobs end."""
        return self._limit

    @limit.setter
    def limit(self, value: int) -> None:
        self.surplus += self._limit - value
        self._limit = value
        self.wake()

    @property
    def is_open(self) -> bool:
        """Whether the block has been entered and not yet left."""
        return self._group is not None

    def require_own_thread(self, call: str) -> None:
        """Refuse *call*, as a user wrote it, on another thread than the loop's; before the block any thread may call.

        Raises:
            RuntimeError: Called on another thread; nothing may have been touched yet.
        """
        own = self.loop.thread_id
        if own != get_ident() and own != NO_THREAD:
            raise RuntimeError(
                f"{call} belongs to the thread of its loop; from another thread use enqueue_threadsafe() for items, and"
                " anyio.from_thread.run_sync() or the loop's own call_soon_threadsafe() for anything else"
            )

    def wake(self) -> None:
        """Have one more worker look for a job, if the limit allows one.

        One at a time is on its way: the owner calls again when that one's job waits and more jobs are there.
        """
        if self._is_rousing or self.surplus >= 0 or self._group is None:
            return
        self._is_rousing = True
        self.surplus += 1
        if self._parked:
            self._parked.pop().set()
        else:
            self._to_start += 1
            if self._pump_wanted is not None:  # else the pump has yet to look for the first time
                self._pump_wanted.set()

    def spawn(self, function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Start a task of the owner's that lives as long as the block; call it from a task."""
        assert self._group is not None
        self._group.start_soon(function, name=name)

    def cancel(self) -> None:
        """Cancel the block: every job, and the code inside the block as well."""
        if self._group is not None:
            self._group.cancel_scope.cancel()

    def end_with(self, error: BaseException) -> None:
        """Cancel the block and let *error* come out of it, bare."""
        self._fatal = error
        self.cancel()

    async def __aenter__(self) -> Self:
        self.loop = current_loop()
        self.now = self.loop.now
        self.cancelled_class = anyio.get_cancelled_exc_class()
        group = anyio.create_task_group()
        await group.__aenter__()
        self._group = group
        group.start_soon(self._pump, name="ephemeral pump")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        group, self._group = self._group, None
        assert group is not None
        # An exception of the user's is not handed to the task group, which would wrap it: it leaves the block bare.
        is_cancellation = isinstance(error, self.cancelled_class)
        group.cancel_scope.cancel()
        swallowed = await group.__aexit__(*((kind, error, trace) if is_cancellation else (None, None, None)))
        if self._fatal is not None:
            raise self._fatal
        return is_cancellation and bool(swallowed)

    async def _pump(self) -> None:
        while self._group is not None:
            self._pump_wanted = anyio.Event()
            for _ in range(self._to_start):
                self._group.start_soon(self._work, name="ephemeral worker")
            self._to_start = 0
            await self._pump_wanted.wait()

    async def _work(self) -> None:
        worker = Worker()
        self._is_rousing = False
        self._new_slice()
        try:
            while True:
                # A scope of its own: cancelling one job must reach neither its siblings nor the user's block.
                with worker.scope:
                    await self._serve(worker)
                worker.interrupted = False
                worker.scope = anyio.CancelScope()
        except (KeyboardInterrupt, SystemExit) as error:
            self.end_with(error)
        except self.cancelled_class:
            # The block ends; or a body has cancelled the task it ran in, which must not reach the block: another
            # worker takes its place.
            pass
        finally:
            self.surplus -= 1
            self.wake()

    async def after_failure(self, error: BaseException) -> None:
        """Let a worker go on after its job failed or was cancelled, as soon as it may."""
        if isinstance(error, StillRunningError):
            # A plain function that ran out of time: its slot stays taken until it returns, whatever is cancelled.
            with anyio.CancelScope(shield=True):
                await error.returned.wait()
            self.latest = self.now()
        # A cancellation goes on only if this worker is meant too: a job may raise the loop's error by itself.
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def breathe(self) -> None:
        """Give the loop its turn. The worker that first finds the slice used up opens the next one when it is back.

        Until then the others pass as well: a slice each would keep the loop waiting for all of them in one turn.
        """
        while self.latest >= self.slice_end:
            if self._is_slice_used_up:
                await anyio.lowlevel.checkpoint()
                continue
            self._is_slice_used_up = True
            try:
                await anyio.lowlevel.checkpoint()
            finally:
                self._is_slice_used_up = False
            self._new_slice()

    async def park(self) -> None:
        """Wait until `wake` finds something to do."""
        event = anyio.Event()
        self._parked.append(event)
        self.surplus -= 1
        try:
            await event.wait()
        except BaseException:
            if event in self._parked:
                self._parked.remove(event)
                self.surplus += 1
            else:  # roused, and cancelled in the same turn: as it ends, it passes that on
                self._is_rousing = False
            raise
        self._is_rousing = False
        self._new_slice()

    def _new_slice(self) -> None:
        # The first worker that runs in a turn of the loop opens the slice that the others of that turn share.
        self.latest = self.now()
        if self.latest >= self.slice_end and not self._is_slice_used_up:
            self.slice_end = self.latest + SLICE


def _no_loop(function: Callable[[], object]) -> None:
    raise RuntimeError(f"{function!r} cannot be called: no event loop yet")
