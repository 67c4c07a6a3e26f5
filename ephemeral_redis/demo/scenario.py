"""What is going to happen, and when: a plan that reads no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """A steady stream of widgets, a third of it before the primary dies, a third of it before it is started again.

    Attributes:
        items: How many widgets; at least 3, one for each third.
        rate: Widgets a second, above 0.
        seed: Of everything that is random: the services' latencies.

    Raises:
        ValueError: A value is out of its range.
    """

    items: int = 300
    rate: float = 40.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.items < 3:
            raise ValueError(f"items must be at least 3, one for each third of the run, not {self.items}")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"rate must be a number of widgets a second above 0, not {self.rate:g}")

    @property
    def kill_at(self) -> int:
        """The primary is killed before the widget of this number is sent."""
        return self.items // 3

    @property
    def restart_at(self) -> int:
        """The primary is started again before the widget of this number is sent."""
        return 2 * self.items // 3

    def widget(self, number: int) -> str:
        """Name the widget of *number* (from 0); names sort as their numbers do."""
        return f"widget-{number:0{len(str(self.items - 1))}d}"

    def due(self, number: int) -> float:
        """Return when the widget of *number* is sent, in seconds from the first. Late ones do not delay those after."""
        return number / self.rate
