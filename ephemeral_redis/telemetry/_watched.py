"""Whose numbers are exported: sinks, coordinators and dispatchers, each by a name of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from ephemeral import (
    CoordinatorStatistics,
    DispatcherStatistics,
    EphemeralKeyedWorkCoordinator,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
    GroupStatistics,
    RungStatus,
    SignalDispatcher,
    SignalSink,
    SinkStatistics,
)

S = TypeVar("S")
Coordinator: TypeAlias = (
    EphemeralWorkCoordinator[Any] | EphemeralKeyedWorkCoordinator[Any, Any] | EphemeralResultCoordinator[Any, Any]
)
Watchable: TypeAlias = SignalSink | SignalDispatcher | Coordinator
Named: TypeAlias = tuple[tuple[str, ...], S]
"""Something to measure, and the values of the labels that tell it from others of its kind."""

_COORDINATORS: Final = (EphemeralWorkCoordinator, EphemeralKeyedWorkCoordinator, EphemeralResultCoordinator)
_SINKS: Final = (SignalSink,)
_DISPATCHERS: Final = (SignalDispatcher,)
_log: Final = logging.getLogger("ephemeral")


class RungReading(NamedTuple):
    """A rung as of now.

    Attributes:
        group: Its ladder's.
        status: What it shows.
        state: ``"up"``, ``"down"``, ``"probing"`` or ``"isolated"``.
    """

    group: str
    status: RungStatus
    state: str


class Watched:
    """What is measured, for any number of exporters.

        watched = Watched(sink, orders=orders, mails=mails)

    The ladders of a sink, and its bus, are measured with it. Names become labels, so there should be few, and the same
    ones in each process. What is watched is kept alive until it is removed. Callable from any thread.

    Args:
        sink: A sink, under the name ``default``.
        **named: More of them: sinks, coordinators and dispatchers.

    Raises:
        TypeError: Something is of another kind.
    """

    def __init__(self, sink: SignalSink | None = None, **named: Watchable) -> None:
        self._lock = threading.Lock()
        # Replaced as a whole: an exporter goes through the one it began with.
        self._things: dict[str, Watchable] = {}
        self._failing: set[tuple[str, str]] = set()
        if sink is not None:
            self.add("default", sink)
        for name, thing in named.items():
            self.add(name, thing)

    def add(self, name: str, thing: Watchable) -> None:
        """Measure *thing* from now on, under *name*.

        Raises:
            TypeError: *thing* is neither a sink nor a coordinator nor a dispatcher.
            ValueError: *name* is empty, or taken.
        """
        if not isinstance(thing, _SINKS + _COORDINATORS + _DISPATCHERS):  # pyright: ignore[reportUnnecessaryIsInstance]  not everybody checks types
            raise TypeError(
                f"{name} must be a SignalSink, a coordinator or a SignalDispatcher, not {type(thing).__name__}; the"
                " ladders of a sink are measured with it"
            )
        if not name:
            raise ValueError("name must not be empty: it tells this from others in the metrics")
        with self._lock:
            if name in self._things:
                raise ValueError(f"{name!r} is measured already; remove it first, or give this another name")
            self._things = {**self._things, name: thing}

    def remove(self, name: str) -> None:
        """Measure what is called *name* no longer; nothing happens if nothing is."""
        with self._lock:
            self._things = {other: thing for other, thing in self._things.items() if other != name}
            self._failing = {(other, what) for other, what in self._failing if other != name}

    # For exporters, on any thread: what cannot be read is passed over, and logged once

    def sinks(self) -> Iterator[Named[SinkStatistics]]:
        """Yield the counters of each sink, by (its name,)."""
        return self._read("counters", _SINKS, SignalSink.statistics)

    def buses(self) -> Iterator[Named[Any]]:
        """Yield the counters of the bus of each sink that has one, by (the sink's name,)."""
        return ((labels, statistics.bus) for labels, statistics in self.sinks() if statistics.bus is not None)

    def ladders(self) -> Iterator[Named[GroupStatistics]]:
        """Yield the counters of each open ladder, by (the sink's name, its group)."""
        for (sink,), ladders in self._read("ladders", _SINKS, SignalSink.get_ladders):
            for ladder in ladders:
                yield (sink, ladder.group), ladder.statistics

    def rungs(self) -> Iterator[Named[RungReading]]:
        """Yield each rung of each open ladder, by (the sink's name, its group, its name)."""
        for (sink,), readings in self._read("rungs", _SINKS, _read_rungs):
            for reading in readings:
                yield (sink, reading.group, reading.status.record.processor), reading

    def coordinators(self) -> Iterator[Named[CoordinatorStatistics]]:
        """Yield the counters of each coordinator, by (its name,)."""
        return self._read("counters", _COORDINATORS, lambda coordinator: coordinator.statistics())

    def dispatchers(self) -> Iterator[Named[DispatcherStatistics]]:
        """Yield the counters of each dispatcher, by (its name,)."""
        return self._read("counters", _DISPATCHERS, SignalDispatcher.statistics)

    def _read(self, what: str, kinds: tuple[type[Any], ...], read: Callable[[Any], S]) -> Iterator[Named[S]]:
        for name, thing in self._things.items():
            if isinstance(thing, kinds):
                try:
                    reading = read(thing)
                except Exception:  # noqa: BLE001  what is measured must not suffer, nor what is measured beside it
                    if (name, what) not in self._failing:
                        self._failing.add((name, what))
                        _log.exception("the %s of %r cannot be measured; all else is", what, name)
                    continue
                self._failing.discard((name, what))
                yield (name,), reading


def _read_rungs(sink: SignalSink) -> list[RungReading]:
    now = sink.now()
    return [
        RungReading(ladder.group, rung, rung.record.state_at(now))
        for ladder in sink.get_ladders()
        for rung in ladder.rungs
    ]
