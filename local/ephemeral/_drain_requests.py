"""Asking coordinators to drain, through the sink they look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

from ._patterns import Pattern, compile_pattern, pattern_text
from ._signals import validate_name

DRAIN_ALL: Final = "coordinator.drain.all"
DRAIN_ID: Final = "coordinator.drain.id"
DRAIN_PATTERN: Final = "coordinator.drain.pattern"


class DrainRequests(ABC):
    """The requests of a sink. Whoever reacts to them completes and drains: once, at once, and if it is idle too.

    A request reaches the coordinators whose ``signals`` is this sink; with *fleet* also those of all sinks on its bus.
    One that is made later does not heed it. Callable from any thread; never blocks.
    """

    __slots__ = ()

    @abstractmethod
    def raise_signal(self, signal: Any, key: str | None = None) -> None:
        """Raise a signal."""

    @abstractmethod
    def _raise_here(self, signal: str, key: str | None) -> None:
        """Raise a signal that the bus is not told of."""

    def request_drain_all(self, fleet: bool = False) -> None:
        """Ask every coordinator to drain, by the signal ``coordinator.drain.all``.

        Args:
            fleet: Whether the coordinators of other workers are meant too.
        """
        self._request(DRAIN_ALL, None, fleet=fleet)

    def request_drain(self, coordinator_id: str, fleet: bool = False) -> None:
        """Ask the coordinators with this ``coordinator_id`` to drain, by ``coordinator.drain.id`` with it as key.

        Args:
            coordinator_id: Which.
            fleet: Whether those of other workers are meant too.

        Raises:
            TypeError: *coordinator_id* is no ``str``.
            ValueError: *coordinator_id* is empty, unprintable, or longer than 512 bytes.
        """
        self._request(DRAIN_ID, validate_name(coordinator_id, "coordinator_id"), fleet=fleet)

    def request_drain_pattern(self, pattern: Pattern, fleet: bool = False) -> None:
        """Ask the coordinators whose id matches to drain, by ``coordinator.drain.pattern`` with the pattern as key.

        Args:
            pattern: As for names of signals; a collection becomes a comma list, sorted.
            fleet: Whether those of other workers are meant too.

        Raises:
            TypeError: *pattern* has the wrong type.
            ValueError: *pattern* has an empty part.
        """
        text = pattern_text(pattern)
        compile_pattern(text)  # refuses an empty part
        self._request(DRAIN_PATTERN, text, fleet=fleet)

    def _request(self, signal: str, key: str | None, *, fleet: bool) -> None:
        if fleet:
            self.raise_signal(signal, key)
        else:
            self._raise_here(signal, key)
