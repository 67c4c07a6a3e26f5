"""Running a user's function for one item: async functions stepped in the item's own context, plain ones in threads.

A long-lived worker task runs many items, each in the context of its enqueuer. A task has one context for life, so the
coroutine of an item is stepped by a `BodyRunner`, and only one that really waits is awaited. A body that never waits
thus costs neither a task nor a trip through the event loop.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, Generic, TypeVar, cast

import anyio
import anyio.to_thread

from ._loops import current_loop

J = TypeVar("J")

_log: Final = logging.getLogger("ephemeral")


def is_async_function(function: Callable[..., object]) -> bool:
    """Whether *function* makes a coroutine: ``async def``, a partial of one, an object with async ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  the method itself is asked for, not whether there is one


def require_plain(name: str, callback: Callable[..., object] | None, *, instead: str = "a plain function") -> None:
    """Refuse a callback that would make a coroutine nobody awaits.

    Raises:
        TypeError: *callback* is ``async def`` or not callable; the message names the parameter and *instead*.
    """
    if callback is None:
        return
    if not callable(callback):
        raise TypeError(f"{name} must be callable, not {callback!r}")
    if is_async_function(callback):
        raise TypeError(f"{name} is called, not awaited, and {callback!r} is async; give {instead}")


def takes_operation(body: Callable[..., object]) -> bool:
    """Whether *body* is written as ``body(item, op)``.

    A second positional parameter counts if it has no default or is called ``op``: ``body(item, tries=3)`` keeps its 3.
    """
    try:
        parameters = list(inspect.signature(body).parameters.values())
    except (TypeError, ValueError):  # some built-ins have no signature: they take the item alone
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2:
        return False
    second = positional[1]
    return second.default is second.empty or second.name == "op"


def order_to_end(error: BaseException) -> BaseException | None:
    """Return the ``KeyboardInterrupt`` or ``SystemExit`` that *error* is, or that a task group put into it."""
    while isinstance(error, BaseExceptionGroup):
        orders = cast("BaseExceptionGroup[BaseException]", error).subgroup((KeyboardInterrupt, SystemExit))
        if orders is None:
            return None
        error = orders.exceptions[0]
    return error if isinstance(error, KeyboardInterrupt | SystemExit) else None


ENDED: Final = object()
"""What a `BodyRunner` gives instead of something to wait for: the coroutine has ended."""


class BodyRunner(Generic[J]):
    """Runs the coroutines of jobs, one after the other, each step in a context of the caller's choice.

    One for each worker, whose task has one context for life. A coroutine that is stepped by hand tells its end by
    raising ``StopIteration``, which costs a body that never waits 0.9 µs; a generator that delegates to it is told
    without. So this is such a generator, kept alive from job to job.

    Args:
        call: Makes the coroutine of a job; called in the job's context.

    Attributes:
        value: What the coroutine that ended last returned; whoever takes it clears it.
        error: What it raised instead, or None; whoever takes it clears it.
        start: Takes a job, begins its coroutine and returns what that waits for, or `ENDED`. To be called by
            ``context.run``.
    """

    __slots__ = ("_call", "_is_closing", "_steps", "error", "start", "value")

    def __init__(self, call: Callable[[J], Coroutine[Any, Any, Any]]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._is_closing = False
        self._steps = cast("Generator[object, Any, None]", self._run())
        self._steps.send(None)
        self.start: Callable[[J], object] = self._steps.send

    @types.coroutine
    def _run(self) -> Generator[Any, Any, None]:
        call = self._call
        while True:
            job = yield ENDED
            try:
                self.value = yield from call(job)
            except BaseException as error:  # a body may raise anything, ``GeneratorExit`` too
                if self._is_closing:
                    raise
                self.error = error
            del job

    @types.coroutine
    def rest(self, context: Context, waiting_for: object) -> Generator[Any, Any, None]:
        """Await the end of a coroutine that has begun and waits for something.

        A cancellation point wherever the coroutine has one: what the loop throws in reaches the coroutine.
        """
        send, throw = self._steps.send, self._steps.throw
        while waiting_for is not ENDED:
            try:
                answer = yield waiting_for
            except GeneratorExit:  # the loop is torn down, and leaves the task unfinished
                self._is_closing = True
                context.run(self._steps.close)
                raise
            except BaseException as error:  # noqa: BLE001  cancellation belongs to the coroutine, as in a plain await
                waiting_for = context.run(throw, error)
            else:
                waiting_for = context.run(send, answer)


def as_coroutine_function(
    function: Callable[..., Any], timeout: float | None
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return *function* as something that makes one coroutine per call, whatever kind of function it is.

    An async function without a timeout comes back as it is. A plain one runs in a worker thread, is never interrupted
    and has to be waited for, whatever is cancelled meanwhile.

    Args:
        function: The user's function.
        timeout: Seconds a call may take; then the coroutine raises ``TimeoutError``. None: for ever.

    Raises:
        TypeError: *function* is a generator function: calling it would run nothing.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function!r} yields, so that calling it runs nothing; take the yield out")
    if not is_async_function(function):
        return _in_thread(function, timeout)
    if timeout is None:
        return function

    async def limited(*arguments: object) -> Any:
        # The scope is opened by the coroutine itself: in its first step, before any scope of the function's own.
        with anyio.CancelScope() as scope:
            _end_at(anyio.current_time() + timeout, scope)
            result = await function(*arguments)
            if not scope.cancel_called:  # else it swallowed its cancellation, and was cut short all the same
                return result
        raise RanOutOfTimeError(f"cancelled after {timeout:g} s")

    return limited


def _end_at(deadline: float, scope: anyio.CancelScope) -> None:
    # A loop's timer keeps a copy of the context it was made in until it is due, long after the body has ended: set
    # from an empty context, it keeps nothing of the item's.
    Context().run(setattr, scope, "deadline", deadline)


class RanOutOfTimeError(TimeoutError):
    """A call ran out of the time given by a ``timeout``; told from a ``TimeoutError`` that it raised itself."""


class StillRunningError(RanOutOfTimeError):
    """A plain function ran out of time and runs on in its thread; its slot is taken until *returned* is set."""

    def __init__(self, timeout: float, returned: anyio.Event) -> None:
        super().__init__(f"no result after {timeout:g} s; a plain function cannot be interrupted and runs on")
        self.timeout = timeout
        self.returned = returned

    def __reduce__(self) -> tuple[type[RanOutOfTimeError], tuple[object, ...]]:
        """Leave the event behind: elsewhere there is no thread to wait for."""
        return RanOutOfTimeError, self.args


def _in_thread(function: Callable[..., Any], timeout: float | None) -> Callable[..., Coroutine[Any, Any, Any]]:
    # Slots already bound the threads; anyio's default limiter would share its 40 with the whole process.
    limiter = anyio.CapacityLimiter(math.inf)

    def call(*arguments: object) -> Any:
        result = function(*arguments)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError(f"{function!r} is a plain function that returned an awaitable; declare it async def")
        return result

    async def unlimited(*arguments: object) -> Any:
        with anyio.CancelScope(shield=True):
            return await anyio.to_thread.run_sync(call, *arguments, limiter=limiter)

    async def limited(*arguments: object) -> Any:
        assert timeout is not None
        loop, returned = current_loop(), anyio.Event()
        # Taken once: by the thread that begins, or by the timeout that comes before. What has not begun never will.
        turn = threading.Lock()

        def call_and_tell() -> Any:
            if not turn.acquire(blocking=False):
                return None
            try:
                return call(*arguments)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever waited
                    loop.call_soon_threadsafe(returned.set)

        with anyio.CancelScope(shield=True) as scope:
            _end_at(loop.now() + timeout, scope)
            return await anyio.to_thread.run_sync(call_and_tell, limiter=limiter, abandon_on_cancel=True)
        if turn.acquire(blocking=False):
            raise RanOutOfTimeError(f"no thread was free to begin it within {timeout:g} s")
        raise StillRunningError(timeout, returned)

    return unlimited if timeout is None else limited


def call_guarded(owner: str, callback: Callable[..., object], *arguments: object) -> bool:
    """Call a user's callback, log what it raises, and return whether it returned.

    ``KeyboardInterrupt`` and ``SystemExit`` are passed on: they are meant for the program.
    """
    try:
        callback(*arguments)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001  whatever a callback raises, its caller's work goes on
        _log.exception("%s: callback %r raised", owner, callback)
        return False
    return True
