"""Long-lived worker tasks: started on demand, parked when there is nothing to take, never one per item.

The owner says what there is to take and how to begin it; who runs, when and for how long is decided here.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from contextvars import Context
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from ._bodies import StillRunningError, TornDownError, resume
from ._loops import Loop, current_loop


class HasContext(Protocol):
    """What a job must carry."""

    @property
    def context(self) -> Context:
        """The context its coroutine runs in, of whoever enqueued it."""
        ...


Job = TypeVar("Job", bound=HasContext)
Started = tuple[Coroutine[Any, Any, Any], object]

# Bodies that never wait would keep the loop to themselves: after this many seconds it gets a turn between two items.
SLICE: Final = 0.005


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


class JobOwner(ABC, Generic[Job]):
    """Whoever has jobs to run. All is called on the loop's thread, one call at a time, and must not wait."""

    @abstractmethod
    def take(self, worker: Worker) -> Job | None:
        """Return the next job for *worker*, or None if there is none now."""

    @abstractmethod
    def has_more(self) -> bool:
        """Whether another worker would find a job now."""

    @abstractmethod
    def first_step(self, job: Job) -> Started:
        """Make the coroutine of *job* and take its first step; called in the job's context.

        Returns:
            The coroutine, and what it waits for.

        Raises:
            StopIteration: It ended at once; the exception carries what it returned.
        """

    @abstractmethod
    def returned(self, job: Job, value: object) -> None:
        """Note that *job* ended well."""

    @abstractmethod
    def raised(self, job: Job, error: BaseException) -> None:
        """Note that *job* failed or was cancelled; raise only what must end the whole block."""


class Workers(Generic[Job]):
    """A pool of worker tasks, open as long as its ``async with`` block.

    Everything here belongs to the loop's thread. `wake` may be called in a plain loop callback too: starting a task
    needs a running task, so a pump task of the pool's own does that.

    Args:
        owner: Says what there is to run, and is told how it ended.
        limit: How many workers may be awake.
    """

    def __init__(self, owner: JobOwner[Job], *, limit: int) -> None:
        self._owner = owner
        self._limit = limit
        self._awake = 0
        self._is_rousing = False
        self._to_start = 0
        self._parked: list[anyio.Event] = []
        self._group: TaskGroup | None = None
        self._pump_wanted = anyio.Event()
        self._slice_end = 0.0
        self._fatal: BaseException | None = None
        self.cancelled_class: type[BaseException] = BaseException
        self.loop = Loop(time.monotonic, _no_loop, 0)
        self.now = time.monotonic
        self.latest = 0.0
        """The newest reading of the clock: the owner, who stamps each job, shares it here."""

    @property
    def limit(self) -> int:
        """How many workers may be awake; setting it wakes some at once, or lets some park as their jobs end."""
        return self._limit

    @limit.setter
    def limit(self, value: int) -> None:
        self._limit = value
        self.wake()

    @property
    def is_open(self) -> bool:
        """Whether the block has been entered and not yet left."""
        return self._group is not None

    def wake(self) -> None:
        """Have one more worker look for a job, if the limit allows one.

        One at a time is on its way: the owner calls again when that one's job waits and more jobs are there.
        """
        if self._is_rousing or self._awake >= self._limit or self._group is None:
            return
        self._is_rousing = True
        self._awake += 1
        if self._parked:
            self._parked.pop().set()
        else:
            self._to_start += 1
            self._pump_wanted.set()

    def spawn(self, function: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Start a task of the owner's that lives as long as the block; call it from a task."""
        assert self._group is not None
        self._group.start_soon(function, name=name)

    def cancel(self) -> None:
        """Cancel the block: every job, and the code inside the block as well."""
        if self._group is not None:
            self._group.cancel_scope.cancel()

    async def __aenter__(self) -> Workers[Job]:
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
            self._fatal = error
            self.cancel()
        finally:
            self._awake -= 1

    async def _serve(self, worker: Worker) -> None:
        """Take and run jobs until this worker is interrupted."""
        owner = self._owner
        take, first_step, returned = owner.take, owner.first_step, owner.returned
        while not worker.interrupted:
            job = take(worker) if self._awake <= self._limit else None
            if job is None:
                await self._park()
                continue
            try:
                coroutine, waiting_for = job.context.run(first_step, job)
            except StopIteration as stop:
                returned(job, stop.value)
            except BaseException as error:  # noqa: BLE001  the owner passes on what is not the job's own
                owner.raised(job, error)
            else:
                if owner.has_more():
                    self.wake()
                await self._finish(job, coroutine, waiting_for)
                del coroutine, waiting_for
            del job  # a worker that parks must keep no item alive
            if self.latest >= self._slice_end:
                await anyio.lowlevel.checkpoint()
                self._new_slice()

    async def _finish(self, job: Job, coroutine: Coroutine[Any, Any, Any], waiting_for: object) -> None:
        try:
            value = await resume(job.context, coroutine, waiting_for)
        except TornDownError:
            raise
        except BaseException as error:  # noqa: BLE001  as in _serve
            self._owner.raised(job, error)
            failure = error
        else:
            self._owner.returned(job, value)
            return
        # A cancellation goes on only if this worker is meant too: a job may raise the loop's error by itself.
        await anyio.lowlevel.checkpoint_if_cancelled()
        if isinstance(failure, StillRunningError):
            # A plain function that ran out of time: its slot stays taken until it returns.
            with anyio.CancelScope(shield=True):
                await failure.returned.wait()

    async def _park(self) -> None:
        event = anyio.Event()
        self._parked.append(event)
        self._awake -= 1
        try:
            await event.wait()
        except BaseException:
            if event in self._parked:
                self._parked.remove(event)
                self._awake += 1
            raise
        self._is_rousing = False
        self._new_slice()

    def _new_slice(self) -> None:
        # The first worker that runs in a turn of the loop opens the slice that the others of that turn share.
        self.latest = self.now()
        if self.latest >= self._slice_end:
            self._slice_end = self.latest + SLICE


def _no_loop(function: Callable[[], object]) -> None:
    raise RuntimeError(f"{function!r} cannot be called: no event loop yet")
