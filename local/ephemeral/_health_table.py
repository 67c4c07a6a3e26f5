"""The health table that a fleet shares, as one process can hold it: what `MemoryBus` keeps for its sinks.

Pure but for its own state: it reads no clock and tells nobody. A shared store elsewhere has to give the same answers
to the same reports.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ._health import Counts, judge
from .abc import HealthNews, SharedRecord

if TYPE_CHECKING:
    from .abc import HealthRecord, HealthReport, Swap


class _Call(NamedTuple):
    """One call that ended: when, where."""

    at: float
    origin: str


class HealthTable:
    """Rows of processors, and how their calls ended since each last changed. Times are seconds of one clock."""

    def __init__(self) -> None:
        self.rows: dict[str, SharedRecord] = {}
        self._failures: dict[str, list[_Call]] = {}
        self._successes: dict[str, list[_Call]] = {}

    def report(self, origin: str, report: HealthReport, at: float, now: float) -> HealthNews | None:
        """Count a call that ended at *at*; return what the fleet must know, None if nothing.

        Calls are put in the order in which they ended, however late their reports come.
        """
        processor, rules = report.processor, report.rules
        row = self.rows.get(processor)
        if (row is not None and not row.record.is_up) or report.epoch != (row.record.epoch if row else 0):
            return None
        failures, successes = self._recent(processor, now - rules.failure_window)
        cleared = 0
        if report.has_failed:
            # The newest success of a streak that is over is all that is kept of it.
            is_late = rules.policy == "consecutive" and any(at <= success.at for success in successes)
            if at >= now - rules.failure_window and not is_late:
                failures.append(_Call(at, origin))
        elif rules.policy == "consecutive":
            successes[:] = [max([*successes, _Call(at, origin)])]
            cleared = len(failures)
            failures[:] = [failure for failure in failures if failure.at > successes[0].at]
            cleared -= len(failures)
        elif rules.policy == "rate" and at >= now - rules.failure_window:
            successes.append(_Call(at, origin))
        counts = Counts(len(failures), len(successes))
        origins = len({failure.origin for failure in failures})
        if report.has_failed and judge(rules, own=Counts(0), fleet=counts, origins=origins) == "fleet":
            down = replace(report.down_at(now), failures=counts.failures)
            return HealthNews("failures", origin, processor, self._put(down, now), counts.failures, 1)
        if report.has_failed or cleared:
            return HealthNews("counted", origin, processor, None, counts.failures, int(report.has_failed))
        return None

    def swap(self, origin: str, swap: Swap, now: float) -> HealthNews | None:
        """Put a decision into the table; None if the row has changed since it was taken."""
        processor = swap.record.processor
        row = self.rows.get(processor)
        if (row.version if row else 0) != swap.expected:
            return None
        put = self._put(swap.record, now, swap.version)
        return HealthNews(swap.cause, origin, processor, put, swap.record.failures)

    def _put(self, record: HealthRecord, now: float, version: int = 0) -> SharedRecord:
        processor = record.processor
        before = self.rows.get(processor)
        # A new one is at least the clock's ms, so that it grows on after the table was lost.
        version = max((before.version if before else 0) + 1, version or int(now * 1000))
        if before is None or before.record.epoch != record.epoch:
            self._drop_calls(processor)
        self.rows[processor] = SharedRecord(version, record)
        return self.rows[processor]

    def _recent(self, processor: str, oldest: float) -> tuple[list[_Call], list[_Call]]:
        failures = self._failures.setdefault(processor, [])
        successes = self._successes.setdefault(processor, [])
        for calls in (failures, successes):
            calls[:] = [call for call in calls if call.at >= oldest]
        return failures, successes

    def _drop_calls(self, processor: str) -> None:
        self._failures.pop(processor, None)
        self._successes.pop(processor, None)
