"""A bus within one process: joins several sinks, and fails on request. For tests, in virtual time too."""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio

from ._health_table import HealthTable
from ._loops import Loop, current_loop
from ._memory_backend import MemoryBackend
from ._signals import in_scope

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ._memory_backend import Entry
    from .abc import HealthNews, HealthReport, SharedRecord, SignalRecord, Swap

_KEPT = 100_000


class MemoryBus:
    """Joins the sinks of one process as Redis joins those of many; each sink gets a `backend` of its own.

        async with MemoryBus() as bus:
            async with SignalSink(backend=bus.backend()) as one, SignalSink(backend=bus.backend()) as two: ...

    News travel on the loop of the block, *delay* seconds after they were raised, so that virtual time rules them. All
    of it belongs to that loop's thread. Faults are those of real buses: `cut` and `join`, `repeats`, `lose_data`.

    Args:
        delay: Seconds from the bus to each sink, 0 or more.
        clock: The bus's own clock, UTC epoch seconds; None: the loop's time from now on.

    Attributes:
        delay: May be changed at any time, for what is sent from then on.
        repeats: Whether each news is delivered twice, as after an answer that was lost.
    """

    def __init__(self, *, delay: float = 0.0, clock: Callable[[], float] | None = None) -> None:
        self.delay = delay
        self.repeats = False
        self._clock = clock
        self._signals: deque[SignalRecord] = deque(maxlen=_KEPT)
        self._table = HealthTable()
        # What was told, in order, for those that come back: entry i has the number _first + i.
        self._log: list[Entry] = []
        self._first = 0
        self._backends: list[MemoryBackend] = []
        self._loop: Loop | None = None
        self._post: deque[tuple[float, Callable[[], object]]] = deque()
        self._posted: anyio.Event | None = None
        self._tasks: Any = None

    async def __aenter__(self) -> Self:
        self._loop = current_loop()
        if self._clock is None:
            offset = time.time() - self._loop.now()
            self._clock = lambda: self._now() + offset
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._deliver)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)

    def backend(self, *, mirror_items: bool = False) -> MemoryBackend:
        """Return a backend for one sink.

        Args:
            mirror_items: Whether what ladders of other sinks raise for each item enters its window.
        """
        backend = MemoryBackend(self, mirror_items=mirror_items)
        self._backends.append(backend)
        return backend

    def now(self) -> float:
        """Return the bus's clock, UTC epoch seconds."""
        return time.time() if self._clock is None else self._clock()

    def cut(self, *backends: MemoryBackend) -> None:
        """Take *backends* off the bus, all of them if none is named: they are degraded until `join`."""
        for backend in backends or self._backends:
            backend.go_away()

    def join(self, *backends: MemoryBackend) -> None:
        """Put *backends* back, all of them if none is named: what they kept is sent, and they learn the table."""
        for backend in backends or self._backends:
            backend.come_back()

    def lose_data(self) -> None:
        """Forget all signals and the health table, as a server that is restarted without its data."""
        self._signals.clear()
        self._table = HealthTable()
        self._first += len(self._log)
        self._log.clear()

    # For the backends

    def add_signal(self, sender: MemoryBackend, position: int, record: SignalRecord) -> None:
        """Keep a signal and send it to the others."""
        self._signals.append(record)
        origin = sender.origin

        def entry(to: MemoryBackend) -> None:
            if to is not sender:
                to.take_signal(origin, position, record)

        self._tell(entry)

    def log_from(self, number: int) -> list[tuple[int, Entry]]:
        """Return what was told from *number* on, as far as it is kept, with its numbers."""
        return list(enumerate(self._log[max(0, number - self._first) :], max(number, self._first)))

    @property
    def log_end(self) -> int:
        """The number of the next entry."""
        return self._first + len(self._log)

    def count(self, scope: str, within: float) -> int:
        """Count the signals in *scope* of the last *within* seconds."""
        oldest = self.now() - within
        return sum(record[3] >= oldest and in_scope(record[0], scope) for record in self._signals)

    def rows(self) -> dict[str, SharedRecord]:
        """Return the health table."""
        return dict(self._table.rows)

    def report(self, origin: str, report: HealthReport, ended_at: float) -> None:
        """Count how a call ended, by the bus's clock."""
        self._tell_news(self._table.report(origin, report, ended_at, self.now()))

    def swap(self, origin: str, swap: Swap) -> bool:
        """Take a decision, or not."""
        news = self._table.swap(origin, swap, self.now())
        self._tell_news(news)
        return news is not None

    def after_news(self, function: Callable[[], object]) -> None:
        """Call *function* once all that was sent until now has arrived."""
        self._enqueue(function)

    def call_later(self, seconds: float, function: Callable[[], object]) -> bool:
        """Call *function* after so many seconds; False if that cannot be, outside of the block."""

        async def call() -> None:
            await anyio.sleep(seconds)
            function()

        if self._tasks is not None:
            self._tasks.start_soon(call)
        return self._tasks is not None

    def _tell_news(self, news: HealthNews | None) -> None:
        if news is not None:
            self._tell(lambda to: to.take_news(news))

    def _tell(self, entry: Entry) -> None:
        number = self.log_end
        self._log.append(entry)
        if len(self._log) > _KEPT:
            del self._log[0]
            self._first += 1
        for backend in self._backends:
            for _ in range(2 if self.repeats else 1):
                self._enqueue(partial(backend.take, number, entry))

    def _enqueue(self, function: Callable[[], object]) -> None:
        if self._loop is None:
            raise RuntimeError("the bus carries nothing outside of its block: `async with MemoryBus() as bus:`")
        self._post.append((self._now() + self.delay, function))
        if self._posted is not None:
            self._loop.call_soon_threadsafe(self._posted.set)

    def _now(self) -> float:
        return 0.0 if self._loop is None else self._loop.now()

    async def _deliver(self) -> None:
        while True:
            self._posted = anyio.Event()
            while self._post:
                # In the order they were sent: a shorter delay overtakes nothing.
                due_at, function = self._post.popleft()
                await anyio.sleep(max(0.0, due_at - self._now()))
                function()
            await self._posted.wait()
