"""How often signals of each scope were raised over the last minutes, for viewers who come later."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ephemeral_redis.watch.picture import FleetPicture

SECONDS = 300
"""How far back the chart of rates goes."""

SCOPES = 40
"""How many of the busiest scopes are kept and shown. A longer list is read by nobody."""


class RateHistory:
    """The rates of the busiest scopes, a point a second for `SECONDS`."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, dict[str, float]]] = deque(maxlen=SECONDS)

    def add(self, picture: FleetPicture) -> None:
        """Keep what *picture* says, unless it says nothing new or comes within the same second."""
        if picture.problem is not None or (self._points and picture.at - self._points[-1][0] < 0.9):
            return
        self._points.append((picture.at, rates_of(picture)))

    def as_json(self) -> dict[str, Any]:
        """Return ``{"at": [instants], "rates": {scope: [a second, or None where it was not among the busiest]}}``."""
        scopes = self._points[-1][1] if self._points else {}
        return {
            "at": [round(at, 1) for at, _ in self._points],
            "rates": {scope: [rates.get(scope) for _, rates in self._points] for scope in scopes},
        }


def rates_of(picture: FleetPicture) -> dict[str, float]:
    """Return how many signals a second each of the busiest scopes has."""
    return {scope.scope: round(scope.count / scope.within, 2) for scope in picture.scopes[:SCOPES]}
