"""What a fleet is made of and what it is given: a plan that reads no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_WORKERS = 8
"""As many as a board of 24 rows can show."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetScenario:
    """A fleet and a steady stream of widgets, which lasts at least as long as the acts do.

    Attributes:
        workers: Processes, 2 to ``MAX_WORKERS``: one of them is killed.
        items: Widgets to send at least.
        rate: Widgets a second, above 0.
        seed: Of everything that is random: the services' latencies.

    Raises:
        ValueError: A value is out of its range.
    """

    workers: int = 3
    items: int = 300
    rate: float = 40.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not 2 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers must be from 2, for one is killed, to {MAX_WORKERS}, not {self.workers}")
        if self.items < 1:
            raise ValueError(f"items must be at least 1, not {self.items}")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"rate must be a number of widgets a second above 0, not {self.rate:g}")

    @property
    def names(self) -> tuple[str, ...]:
        """What the workers are called."""
        return tuple(f"worker-{number}" for number in range(1, self.workers + 1))

    def widget(self, number: int) -> str:
        """Name the widget of *number* (from 0)."""
        return f"widget-{number:05d}"
