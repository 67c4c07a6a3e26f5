"""Ctrl-C and SIGTERM as a cancellation: whatever is open closes in order, whenever they come and however often."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, TypeVar, cast

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskStatus

T = TypeVar("T")


class Interrupted(Exception):  # noqa: N818 - what happened is nobody's error
    """The work was ended by a signal, after everything it had open was closed.

    Attributes:
        number: Which signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    def __str__(self) -> str:
        return f"ended by {signal.Signals(self.number).name}"


def run_interruptible(work: Callable[[], Awaitable[T]]) -> T:
    """Run *work* on an event loop of its own and return its result; in the main thread.

    SIGINT and SIGTERM cancel it. Those that come while it closes what it had open change nothing, so that closing must
    be bounded in time. On Windows there is SIGINT only, and a second one does not wait.

    Raises:
        Interrupted: A signal came before *work* had ended.
        KeyboardInterrupt: The same on Windows.
        BaseException: What *work* raised; if that is a single error it comes in no group.
    """
    return anyio.run(_until_signalled, work)


async def _until_signalled(work: Callable[[], Awaitable[T]]) -> T:
    received: list[int] = []
    scope = anyio.CancelScope()

    async def watch(*, task_status: TaskStatus[None]) -> None:
        if sys.platform == "win32":  # its loops take no signal handlers; asyncio itself cancels on SIGINT
            task_status.started()
            return
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                received.append(number)
                scope.cancel()

    try:
        async with anyio.create_task_group() as watching:
            await watching.start(watch)
            try:
                with scope:
                    return await work()
            finally:
                watching.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise _bare(group) from None
    raise Interrupted(received[0])


def _bare(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Take an error out of the groups that hold nothing else."""
    first, *more = group.exceptions
    if more:
        return group
    if isinstance(first, BaseExceptionGroup):
        return _bare(cast("BaseExceptionGroup[BaseException]", first))
    return first
