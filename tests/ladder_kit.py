"""What the ladder's tests stand on: services that do as told, and ears that check the counters at every signal."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import anyio

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral.testing import wait_all_blocked

Atom = PriorityProcessorAtom[Any, Any]


class Service:
    """A processor that does as told, and remembers what it was asked.

    ``takes`` seconds each, then fails while ``is_down``; while ``gate`` is closed nothing ends. ``errors`` says what
    single items raise, ``answers`` what they return.
    """

    def __init__(self, name: str = "service", *, is_down: bool = False, takes: float = 0.0) -> None:
        self.name = name
        self.is_down = is_down
        self.takes = takes
        self.gate: anyio.Event | None = None
        self.errors: dict[Any, BaseException] = {}
        self.answers: dict[Any, Any] = {}
        self.started: list[Any] = []
        self.done: list[Any] = []
        self.cancelled: list[Any] = []
        self.active = 0
        self.most_active = 0

    async def __call__(self, item: Any) -> Any:
        self.started.append(item)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.takes:
                await anyio.sleep(self.takes)
            if item in self.errors:
                raise self.errors[item]
            if self.is_down:
                raise ConnectionError(f"{self.name} is down")
            self.done.append(item)
            return self.answers.get(item, f"{self.name}:{item}")
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(item)
            raise
        finally:
            self.active -= 1

    def close_gate(self) -> None:
        self.gate = anyio.Event()

    def open_gate(self) -> None:
        assert self.gate is not None
        gate, self.gate = self.gate, None
        gate.set()


class Ears:
    """Hears every signal of a sink in order, and checks the counters of *atom*'s group at each.

    The sum is the definition of ``total_enqueued``: an item that is nowhere for an instant shows as a sum that shrinks.
    """

    def __init__(self, sink: SignalSink, atom: Atom) -> None:
        self.heard: list[str] = []
        self.events: list[Any] = []
        self.imbalances: list[str] = []
        self._atom = atom
        self._most = 0
        sink.subscribe(self._hear)

    def _hear(self, event: Any) -> None:
        self.heard.append(event.signal)
        self.events.append(event)
        counts = self._atom.statistics()
        if counts.total_enqueued < self._most or min(counts.pending_count, counts.active_count) < 0:
            self.imbalances.append(f"{event.signal}: {counts}")
        self._most = max(self._most, counts.total_enqueued)

    def starting(self, *prefixes: str) -> list[str]:
        return [signal for signal in self.heard if signal.startswith(prefixes)]

    @contextlib.contextmanager
    def only(self) -> Generator[list[str]]:
        """Give a list that holds, after the block, what was heard in it."""
        before, found = len(self.heard), list[str]()
        yield found
        found.extend(self.heard[before:])


def statuses(atom: Atom) -> dict[str, int]:
    """Return the counters that are not zero."""
    counts = atom.statistics()
    names = ("pending_count", "active_count", "total_completed", "total_failed", "total_cancelled", "total_abandoned")
    found = {name.removeprefix("total_").removesuffix("_count"): getattr(counts, name) for name in names}
    found["undelivered"] = counts.total_undelivered
    assert sum(found.values()) == counts.total_enqueued
    return {name: number for name, number in found.items() if number}


class Ladder:
    """A group with its services, as `ladder` opens it."""

    def __init__(self, sink: SignalSink, atoms: list[Atom]) -> None:
        self.sink = sink
        self.atoms = atoms
        self.first = atoms[0]
        self.ears = Ears(sink, atoms[0])

    async def settle(self, seconds: float = 0.0) -> None:
        """Let *seconds* pass, then all that can happen without time passing."""
        if seconds:
            await anyio.sleep(seconds)
        await wait_all_blocked()

    async def enqueue(self, *items: Any) -> None:
        for item in items:
            await self.first.enqueue(item)
        await self.settle()

    @property
    def statuses(self) -> dict[str, int]:
        return statuses(self.first)


@contextlib.asynccontextmanager
async def ladder(
    *services: Callable[[Any], Any], every: dict[str, Any] | None = None, **first: Any
) -> AsyncGenerator[Ladder]:
    """Open a group of one rung per service; *every* goes to all atoms, the rest to the first alone.

    Slots default to 1, for order that can be read off.
    """
    async with contextlib.AsyncExitStack() as stack:
        sink = await stack.enter_async_context(SignalSink(clock=anyio.current_time))
        atoms = list[Atom]()
        for priority, service in enumerate(services, 1):
            options = {"max_concurrency": 1, **(every or {}), **(first if priority == 1 else {})}
            atoms.append(PriorityProcessorAtom(priority, service, sink, **options))
        for atom in atoms:
            await stack.enter_async_context(atom)
        opened = Ladder(sink, atoms)
        yield opened
    assert opened.ears.imbalances == []
    assert sink.statistics().listener_errors == 0
