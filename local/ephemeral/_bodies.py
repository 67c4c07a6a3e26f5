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
from typing import Any, Final, Generic, Self, TypeVar, cast

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

    Raises:
        TypeError: It can be called neither so nor as ``body(item)``.
    """
    try:
        signature = inspect.signature(body)
    except (TypeError, ValueError):  # some built-ins have no signature: they take the item alone
        return False
    positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    second = positional[1] if len(positional) > 1 else None
    takes_two = second is not None and (second.default is second.empty or second.name == "op")
    try:
        signature.bind(*("item", "op")[: 1 + takes_two])
    except TypeError:
        raise TypeError(
            f"a body takes one item, body(item), or its operation too, body(item, op); {body!r} takes {signature}"
        ) from None
    return takes_two


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
        was_cut: Whether a loop has had a coroutine raise something, as it does to cancel: one that is at its end in
            the very instant in which it is cancelled is not cut short.
        start: Takes a job, begins its coroutine and returns what that waits for, or `ENDED`. To be called by
            ``context.run``.
    """

    __slots__ = ("_call", "_is_closing", "_steps", "error", "start", "value", "was_cut")

    def __init__(self, call: Callable[[J], Coroutine[Any, Any, Any]]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.was_cut = False
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
                self.was_cut = True
                waiting_for = context.run(throw, error)
            else:
                # Some loops throw; others send what the coroutine is to raise, as an outcome.
                if answer is not None and hasattr(answer, "error"):
                    self.was_cut = True
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
        raise RanOutOfTimeError(f"cancelled after {timeout:g} s").came_from(limited)

    return limited


def _end_at(deadline: float, scope: anyio.CancelScope) -> None:
    # A loop's timer keeps a copy of the context it was made in until it is due, long after the body has ended: set
    # from an empty context, it keeps nothing of the item's.
    Context().run(setattr, scope, "deadline", deadline)


class RanOutOfTimeError(TimeoutError):
    """A call ran out of the time given by a ``timeout``; told from a ``TimeoutError`` that it raised itself.

    Attributes:
        limited: The function whose ``timeout`` it was: one that came out of an inner call is another's.
    """

    limited: object = None

    def came_from(self, limited: object) -> Self:
        """Say whose ``timeout`` it was."""
        self.limited = limited
        return self

    def __reduce__(self) -> tuple[type[RanOutOfTimeError], tuple[object, ...]]:
        """Leave behind what is of this process alone: functions, and threads to wait for."""
        return RanOutOfTimeError, self.args


class StillRunningError(RanOutOfTimeError):
    """A plain function ran out of time and runs on in its thread; its slot is taken until *returned* is set."""

    def __init__(self, timeout: float, returned: anyio.Event) -> None:
        super().__init__(f"no result after {timeout:g} s; a plain function cannot be interrupted and runs on")
        self.timeout = timeout
        self.returned = returned


def is_cancellation(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether *error* is the loop's cancellation, of *kind*, or a group of nothing else, as trio's nurseries make."""
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(kind)[1] is None
    return isinstance(error, kind)


class _ThreadCall:
    """One call of a plain function in a thread: begun or withdrawn, never both, and waited for only if need be."""

    __slots__ = ("_arguments", "_function", "_has_returned", "_tell", "_turn")

    def __init__(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> None:
        self._function = function
        self._arguments = arguments
        self._turn = threading.Lock()
        self._tell: Callable[[], object] | None = None
        self._has_returned = False

    def __call__(self) -> Any:
        """Run the function, in its thread."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            result = self._function(*self._arguments)
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise TypeError(
                    f"{self._function!r} is a plain function that returned an awaitable; declare it async def"
                )
            return result
        finally:
            self._has_returned = True
            if self._tell is not None:
                self._tell()

    def withdraw(self) -> bool:
        """Keep it from beginning; False if it has begun."""
        return self._turn.acquire(blocking=False)

    def returned(self) -> anyio.Event:
        """Return an event that is set once it has returned; on the loop's thread, at most once."""
        event, loop = anyio.Event(), current_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever waited
                loop.call_soon_threadsafe(event.set)

        self._tell = tell
        if self._has_returned:  # looked at last: the thread says so first, and looks for whom to tell last
            event.set()
        return event


def _in_thread(function: Callable[..., Any], timeout: float | None) -> Callable[..., Coroutine[Any, Any, Any]]:
    # Slots already bound the threads; anyio's default limiter would share its 40 with the whole process.
    limiter = anyio.CapacityLimiter(math.inf)

    async def threaded(*arguments: object) -> Any:
        call = _ThreadCall(function, arguments)
        with anyio.CancelScope(shield=True) as scope:
            if timeout is not None:
                _end_at(anyio.current_time() + timeout, scope)
            try:
                return await anyio.to_thread.run_sync(call, limiter=limiter, abandon_on_cancel=timeout is not None)
            except anyio.get_cancelled_exc_class():
                # No shield holds off asyncio's own cancel(): the thread is waited for all the same.
                if not scope.cancel_called and not call.withdraw():
                    await _outlast(call.returned(), scope)
                raise
        assert timeout is not None
        if call.withdraw():
            raise RanOutOfTimeError(f"no thread was free to begin it within {timeout:g} s").came_from(threaded)
        raise StillRunningError(timeout, call.returned()).came_from(threaded)

    return threaded


async def _outlast(returned: anyio.Event, scope: anyio.CancelScope) -> None:
    """Wait for *returned* however often the task is cancelled meanwhile; no longer than *scope* allows."""
    while not returned.is_set():
        try:
            await returned.wait()
        except anyio.get_cancelled_exc_class():
            if scope.cancel_called:
                raise


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
