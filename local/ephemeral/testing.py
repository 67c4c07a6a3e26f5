"""For tests: virtual time on asyncio and trio, a bus in memory, a sink that keeps all it was told.

A test that sleeps is slow and still flaky. In virtual time the clock stands while anything can run and jumps to the
next timer once nothing can, so a test states exact times and gets them:

    >>> import anyio
    >>> from ephemeral import testing
    >>> async def an_hour() -> float:
    ...     await anyio.sleep(3600)
    ...     return anyio.current_time()
    >>> testing.run(an_hour)
    3600.0

Under pytest with the anyio plugin, one fixture puts every async test there, on a clock of its own:

    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(request):
        return testing.virtual_time(request.param)

Virtual time is for code without threads, processes and sockets. The clock does not know of them and jumps past them: a
timeout beside a running thread fires at once. Give such tests the real clock.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, Literal, TypeVar, TypeVarTuple, assert_never

import anyio

from ._errors import EphemeralError
from ._memory_backend import MemoryBusStatistics
from ._memory_bus import MemoryBus
from ._recording_sink import RecordingSink

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from _typeshed import FileDescriptorLike

__all__ = [
    "BackendName",
    "DeadlockError",
    "MemoryBus",
    "MemoryBusStatistics",
    "RecordingSink",
    "VirtualTimeLoop",
    "run",
    "virtual_time",
    "wait_all_blocked",
]

T = TypeVar("T")
Args = TypeVarTuple("Args")
BackendName = Literal["asyncio", "trio"]
"""The event loops a test can run on."""

_STALL_SECONDS = 1.0
"""Real seconds without a timer before a loop counts as stuck: only a thread or a socket could still wake it."""


class DeadlockError(EphemeralError):
    """Every task waits and no timer is set, so nothing could ever happen again."""

    def __str__(self) -> str:
        return "deadlock: every task waits and no timer is set; something that was to wake one of them never will"


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose clock starts at 0.0 and jumps to the next timer instead of sleeping.

    Raises:
        DeadlockError: Out of whatever runs the loop, when every task waits and no timer is set.
    """

    def __init__(self) -> None:
        self._virtual_now = 0.0
        self._idle_waiters: list[asyncio.Future[None]] = []
        super().__init__(_JumpingSelector(self._pass_time))

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._virtual_now

    async def wait_idle(self) -> None:
        """Wait until every other task is blocked; the clock does not move meanwhile. A cancellation point."""
        waiter = self.create_future()
        self._idle_waiters.append(waiter)
        await waiter

    def _pass_time(self, seconds: float | None) -> bool:
        """Let time pass while nothing is ready; False if none is left to pass."""
        if self._idle_waiters:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
            return True
        if seconds is None:
            return False
        self._virtual_now += seconds
        return True


class _JumpingSelector(selectors.BaseSelector):
    """A selector that asks for time to pass where another one would sleep."""

    def __init__(self, pass_time: Callable[[float | None], bool]) -> None:
        self._real = selectors.DefaultSelector()
        self._pass_time = pass_time

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0 or self._pass_time(timeout):
            return ready
        ready = self._real.select(_STALL_SECONDS)
        if not ready:
            raise DeadlockError
        return ready

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


def virtual_time(backend: BackendName) -> tuple[str, dict[str, Any]]:
    """Return *backend* with the options that put it in virtual time, as an ``anyio_backend`` fixture gives them.

    Each call makes a new clock at 0.0; call it once per test. trio is imported when asked for, not before.

    Args:
        backend: ``"asyncio"`` or ``"trio"``.

    Raises:
        ImportError: trio was asked for and is not installed.
    """
    if backend == "asyncio":
        return backend, {"loop_factory": VirtualTimeLoop}
    if backend == "trio":
        from trio.testing import MockClock  # noqa: PLC0415 - asyncio users need not have trio

        return backend, {"clock": MockClock(autojump_threshold=0)}
    assert_never(backend)


def run(function: Callable[[*Args], Awaitable[T]], *args: *Args, backend: BackendName = "asyncio") -> T:
    """Run an async function to its end in virtual time and return its result, as ``anyio.run`` does in real time.

    Meant for scripts, plain tests and property tests, which want a new clock for each example.

    Args:
        function: What to run.
        *args: Its positional arguments.
        backend: ``"asyncio"`` or ``"trio"``.

    Raises:
        DeadlockError: On asyncio, when every task waits and no timer is set. trio would hang there: put
            ``anyio.fail_after(3600)`` around the test, and both fail at once.
    """
    name, options = virtual_time(backend)
    return anyio.run(function, *args, backend=name, backend_options=options)


async def wait_all_blocked() -> None:
    """Wait until every other task is blocked: all that can happen without time passing has happened.

    In virtual time the clock stands still meanwhile, but timers that are due already fire first. On other loops this is
    ``anyio.wait_all_tasks_blocked``, which may take 0.1 s steps of the loop's time. A cancellation point.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None
    if isinstance(loop, VirtualTimeLoop):
        await loop.wait_idle()
    else:
        await anyio.wait_all_tasks_blocked()
