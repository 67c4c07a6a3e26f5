"""User functions: how they are told apart, wrapped, stepped in a context of their own and guarded."""

from __future__ import annotations

import asyncio
import functools
import logging
import pickle
import threading
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from ephemeral._bodies import (
    ENDED,
    BodyRunner,
    RanOutOfTimeError,
    as_coroutine_function,
    call_guarded,
    is_async_function,
    is_cancellation,
    require_plain,
    takes_operation,
)
from ephemeral.testing import wait_all_blocked

mark: ContextVar[str] = ContextVar("mark", default="outside")


async def asynchronous(item: Any) -> Any:
    return item


def plain(item: Any) -> Any:
    return item


class Methods:
    async def asynchronous(self, item: Any, op: Any) -> None: ...

    def plain(self, item: Any) -> None: ...

    @classmethod
    async def of_class(cls, item: Any) -> None: ...

    @staticmethod
    async def static(item: Any) -> None: ...


class CalledAsync:
    async def __call__(self, item: Any) -> None: ...


class CalledPlain:
    def __call__(self, item: Any, op: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (asynchronous, True), (functools.partial(asynchronous, 1), True), (Methods().asynchronous, True),
        (Methods.of_class, True), (Methods.static, True), (CalledAsync(), True),
        (plain, False), (functools.partial(plain, 1), False), (Methods().plain, False), (CalledPlain(), False),
        (print, False), (lambda item: None, False), (Methods, False), (int, False),
    ],
)  # fmt: skip
def test_what_makes_a_coroutine(function: Callable[..., Any], expected: bool) -> None:
    assert is_async_function(function) is expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda item: None, False), (lambda item, op: None, True), (lambda item, whatever: None, True),
        (lambda item, op=None: None, True), (lambda item, tries=3: None, False), (lambda item, *rest: None, False),
        (lambda *both: None, False), (lambda item, *, op=None: None, False),
        (lambda item, /, op, third=1: None, True), (Methods().asynchronous, True), (CalledPlain(), True),
        (CalledAsync(), False), (functools.partial(lambda setting, item, op: None, 1), True),
        (functools.partial(lambda item, op: None, op=1), False), (print, False), (dict.fromkeys, False),
    ],
)  # fmt: skip
def test_whether_a_body_takes_the_operation(function: Callable[..., Any], expected: bool) -> None:
    assert takes_operation(function) is expected


@pytest.mark.parametrize("callback", [asynchronous, CalledAsync(), Methods().asynchronous, 3, "print"])
def test_what_cannot_be_called_in_passing_is_refused_by_name(callback: Any) -> None:
    with pytest.raises(TypeError, match="on_tick"):
        require_plain("on_tick", callback)


def test_a_plain_callback_and_none_are_accepted() -> None:
    require_plain("on_tick", plain)
    require_plain("on_tick", None)


def yields(item: Any) -> Any:
    yield item


async def yields_asynchronously(item: Any) -> Any:
    yield item


@pytest.mark.parametrize("function", [yields, yields_asynchronously])
def test_a_generator_is_no_body_for_calling_it_runs_nothing(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="yield"):
        as_coroutine_function(function, None)


# Time limits


def test_an_async_function_without_a_limit_stays_as_it_is() -> None:
    assert as_coroutine_function(asynchronous, None) is asynchronous


async def test_a_limited_function_returns_raises_or_runs_out_of_time() -> None:
    async def body(seconds: float) -> float:
        await anyio.sleep(seconds)
        if seconds == 1:
            raise TimeoutError("its own")
        return seconds

    limited = as_coroutine_function(body, 5)
    assert await limited(2) == 2
    with pytest.raises(TimeoutError, match="its own") as own:
        await limited(1)
    assert not isinstance(own.value, RanOutOfTimeError)
    with pytest.raises(RanOutOfTimeError, match="5 s"):
        await limited(6)
    assert anyio.current_time() == 2 + 1 + 5


async def test_a_cancellation_from_outside_is_no_time_out() -> None:
    limited = as_coroutine_function(anyio.sleep, 5)
    with anyio.move_on_after(1) as scope:
        await limited(10)
    assert scope.cancelled_caught


async def test_a_body_may_not_hold_on_beyond_its_time() -> None:
    async def holds_on(item: int) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(7)
        return "done all the same"

    with pytest.raises(RanOutOfTimeError):
        await as_coroutine_function(holds_on, 5)(1)
    assert anyio.current_time() == 7


async def test_an_error_that_ran_out_of_time_says_whose_time_it_was_and_survives_pickling() -> None:
    inner = as_coroutine_function(anyio.sleep, 1)
    outer = as_coroutine_function(inner, 5)
    with pytest.raises(RanOutOfTimeError) as raised:
        await outer(9)
    assert raised.value.limited is inner
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.real_time
@pytest.mark.parametrize("timeout", [None, 20.0])
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)  # trio's tasks are cancelled by scopes alone
async def test_asyncios_own_cancel_waits_for_the_thread_too(timeout: float | None) -> None:
    begun, may_end, has_returned = threading.Event(), threading.Event(), []

    def plain(item: str) -> None:
        begun.set()
        may_end.wait(20)
        has_returned.append(item)

    task = asyncio.ensure_future(as_coroutine_function(plain, timeout)("w"))
    await anyio.to_thread.run_sync(begun.wait, 20)
    for _ in range(3):  # however often
        task.cancel()
        await wait_all_blocked()
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert has_returned == ["w"]


@pytest.mark.real_time
@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_what_asyncio_cancels_before_its_thread_has_begun_never_begins() -> None:
    ran = list[str]()
    task = asyncio.ensure_future(as_coroutine_function(ran.append, None)("w"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ran == []


def test_a_group_is_a_cancellation_if_there_is_nothing_else_in_it() -> None:
    class Cancelled(BaseException):
        pass

    assert is_cancellation(Cancelled(), Cancelled)
    assert is_cancellation(BaseExceptionGroup("", [Cancelled(), BaseExceptionGroup("", [Cancelled()])]), Cancelled)
    assert not is_cancellation(BaseExceptionGroup("", [Cancelled(), ValueError()]), Cancelled)
    assert not is_cancellation(ValueError(), Cancelled)


# Stepping


Function = Callable[[], Any]


def called(function: Function) -> Any:
    return function()


async def run_to_its_end(runner: BodyRunner[Function], function: Function, context: Context) -> tuple[Any, Any]:
    """Run one job and take what came of it, as a worker does."""
    await runner.rest(context, context.run(runner.start, function))
    ended = runner.value, runner.error
    runner.value = runner.error = None
    return ended


async def test_every_step_runs_in_the_given_context_and_leaves_the_own_alone() -> None:
    async def body() -> list[str]:
        seen = [mark.get()]
        for number in range(3):
            mark.set(f"step {number}")
            await anyio.lowlevel.checkpoint()
            seen.append(mark.get())
        try:
            with anyio.move_on_after(1):
                await anyio.sleep(10)
        finally:
            seen.append(mark.get())
        return seen

    context = copy_context()
    context.run(mark.set, "inside")
    value, error = await run_to_its_end(BodyRunner(called), body, context)
    assert value == ["inside", "step 0", "step 1", "step 2", "step 2"]
    assert error is None
    assert (mark.get(), context[mark]) == ("outside", "step 2")


async def test_one_runner_runs_job_after_job_each_in_its_own_context() -> None:
    async def at_once() -> str:
        return mark.get()

    async def later() -> str:
        await anyio.sleep(1)
        return mark.get()

    async def fails() -> None:
        raise LookupError(mark.get())

    runner: BodyRunner[Function] = BodyRunner(called)
    found = []
    for number, function in enumerate([at_once, later, fails, later, fails, at_once]):
        context = copy_context()
        context.run(mark.set, str(number))
        value, error = await run_to_its_end(runner, function, context)
        found.append(value if error is None else error.args[0])
    assert found == ["0", "1", "2", "3", "4", "5"]
    assert mark.get() == "outside"


async def test_what_is_raised_before_there_is_a_coroutine_is_the_jobs_too() -> None:
    def no_body() -> Any:
        raise LookupError("no body")

    value, error = await run_to_its_end(BodyRunner(called), no_body, copy_context())
    assert value is None
    assert isinstance(error, LookupError)


def test_a_coroutine_that_never_waits_is_at_its_end_after_one_step() -> None:
    runner: BodyRunner[Any] = BodyRunner(asynchronous)
    assert copy_context().run(runner.start, "item") is ENDED
    assert (runner.value, runner.error) == ("item", None)


async def test_a_cancellation_reaches_the_stepped_coroutine() -> None:
    async def body() -> str:
        try:
            await anyio.sleep(10)
        finally:
            reached.append(mark.get())
        return "never"

    reached: list[str] = []
    runner: BodyRunner[Function] = BodyRunner(called)
    context = copy_context()
    context.run(mark.set, "inside")
    with anyio.CancelScope() as scope:
        scope.cancel()
        _, error = await run_to_its_end(runner, body, context)
    assert isinstance(error, anyio.get_cancelled_exc_class())
    assert reached == ["inside"]
    assert await run_to_its_end(runner, lambda: asynchronous("next"), context) == ("next", None)


class Pause:
    """An awaitable that gives control away once."""

    def __await__(self) -> Any:
        yield self


def test_teardown_closes_the_coroutine_and_is_told_from_a_generator_exit_of_its_own() -> None:
    async def waits() -> None:
        try:
            await Pause()
        finally:
            closed.append(mark.get())

    async def raises_at_once() -> None:
        raise GeneratorExit

    async def raises_later() -> None:
        await Pause()
        raise GeneratorExit

    async def awaits(function: Function) -> None:
        try:
            found.append(type((await run_to_its_end(BodyRunner(called), function, context))[1]))
        except GeneratorExit:
            found.append("torn down")
            raise

    closed: list[str] = []
    found: list[Any] = []
    context = copy_context()
    context.run(mark.set, "inside")
    torn_down = awaits(waits)
    torn_down.send(None)
    torn_down.close()
    with pytest.raises(StopIteration):
        awaits(raises_at_once).send(None)
    raising = awaits(raises_later)
    raising.send(None)
    with pytest.raises(StopIteration):
        raising.send(None)
    assert (closed, found) == (["inside"], ["torn down", GeneratorExit, GeneratorExit])


# Callbacks


@pytest.mark.parametrize("error", [ValueError("v"), GeneratorExit(), StopIteration()])
def test_a_callback_that_raises_is_logged_and_harms_nobody(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(*_: object) -> None:
        raise error

    with caplog.at_level(logging.ERROR, logger="ephemeral"):
        assert not call_guarded("the owner", raises, 1)
    assert "the owner" in caplog.text
    assert type(error).__name__ in caplog.text


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, SystemExit])
def test_an_order_to_end_passes_through_a_callback(fatal: type[BaseException]) -> None:
    def raises() -> None:
        raise fatal

    with pytest.raises(fatal):
        call_guarded("the owner", raises)


def test_a_callback_that_returns_is_said_to_have() -> None:
    assert call_guarded("the owner", plain, 0)
