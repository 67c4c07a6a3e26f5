"""What this worker has told of failures that still count: told again where a server that is short of memory forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ephemeral.abc import HealthWatcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ephemeral.abc import HealthNews, HealthReport, HealthRules, SharedRecord


class Kept(NamedTuple):
    """A report on its way.

    Attributes:
        report: How the call ended.
        ended_at: When, by this process's monotonic clock.
        number: Grows with each report of this worker; names it on the server.
    """

    report: HealthReport
    ended_at: float
    number: int


class Standing(HealthWatcher):
    """By processor, the failures that the server has counted and that nothing has cleared since, as far as is known.

    Without it a processor that always fails would stay up for as long as an eviction policy throws its count away.
    """

    def __init__(self) -> None:
        self._told: dict[str, Sequence[Kept]] = {}

    def told(self, processor: str, epoch: int) -> Sequence[Kept]:
        """Return the failures of calls that started in *epoch*, the oldest first."""
        return [kept for kept in self._told.get(processor, ()) if kept.report.epoch == epoch]

    def keep(self, processor: str, failures: Sequence[Kept]) -> None:
        """Take note that these count, and no others."""
        if failures:
            self._told[processor] = failures
        else:
            self._told.pop(processor, None)

    def news(self, news: HealthNews) -> None:
        """Be told one change: a new row begins to count anew, and a success anywhere ends a streak."""
        if news.row is not None or (news.kind == "counted" and news.failures == 0):
            self._told.pop(news.processor, None)

    def table(self, rows: Mapping[str, SharedRecord]) -> None:
        """Be told the whole table: what counts is known by epoch."""

    def lost(self) -> None:
        """Be told that the bus is away: what was told is still true."""


def standing(told: Sequence[Kept], recent: Sequence[Kept], rules: HealthRules, now: float) -> Sequence[Kept]:
    """Return the failures that count once *recent* is told, too, as far as this worker can know.

    None under ``"rate"``, whose count is one of all workers' calls: it fills up again by itself.

    Args:
        told: Failures that counted before, the oldest first.
        recent: Calls that have ended since.
        rules: Of their processor.
        now: This process's monotonic clock.
    """
    if rules.policy == "rate":
        return ()
    calls = [*(kept for kept in told if now - kept.ended_at <= rules.failure_window), *recent]
    if rules.policy == "consecutive":
        places = [place for place, kept in enumerate(calls) if not kept.report.has_failed]
        calls = calls[places[-1] + 1 :] if places else calls
    # More than it takes to be too much say no more.
    return [kept for kept in calls if kept.report.has_failed][-rules.failure_threshold :]
