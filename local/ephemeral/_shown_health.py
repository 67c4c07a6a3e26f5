"""What a ladder is shown of the health that its fleet shares: what holds here, in the time of its own loop."""

from __future__ import annotations

from collections.abc import Callable

from ._health import Cause, Change, HealthRecord
from ._health_store import OnChange, ignore_change
from ._loops import Loop
from ._shared_entry import SharedEntry
from .abc import HealthWatcher, SignalBackend


class ShownHealth(HealthWatcher):
    """Shows what entries hold, and tells of each change, on the loop of the ladder.

    Args:
        backend: The bus.
    """

    def __init__(self, backend: SignalBackend) -> None:
        self.on_change: OnChange = ignore_change
        self._backend = backend
        self._loop: Loop | None = None

    def _put_own(self, entry: SharedEntry, change: Change) -> None:
        entry.own = change.after
        if change.after.epoch != change.before.epoch:
            entry.forget_counts()
        self._refresh(entry, change.cause, is_own=True)

    def _drop_own(self, entry: SharedEntry, cause: Cause) -> None:
        entry.own = None
        # Up again is this worker's own to tell, as its trip was; that the fleet is down has been told by another.
        self._refresh(entry, cause, is_own=entry.row.record.is_up)

    def _refresh(self, entry: SharedEntry, cause: Cause, *, is_own: bool) -> None:
        """Show what now holds. What was shown ahead of the table, a decision by hand, has come true or is over."""
        before, entry.promised = entry.settled, None
        self._show(entry, self._localized(entry.current), cause, is_own=is_own, before=before)

    def _show(
        self,
        entry: SharedEntry,
        record: HealthRecord,
        cause: Cause,
        *,
        is_own: bool,
        before: HealthRecord | None = None,
    ) -> None:
        before = entry.shown if before is None else before
        entry.shown = record
        if _differs(before, record):
            # Last: it may call back into the store, and what it raises must find the table right.
            self.on_change(Change(cause, before, record, is_own, is_alone=entry.own is not None))

    def _localized(self, record: HealthRecord) -> HealthRecord:
        """Return a record of the bus's time in the loop's."""
        return record.shifted(self._loop_now() - self._backend.bus_time())

    def _loop_now(self) -> float:
        assert self._loop is not None
        return self._loop.now()

    def _hop(self, function: Callable[[], object]) -> None:
        """Run *function* on the loop. From any thread."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(function)
            except RuntimeError:
                self._backend.unwatch(self)  # the loop has ended, and the ladder with it


def _differs(one: HealthRecord, other: HealthRecord) -> bool:
    """Whether the ladder must be told: times are estimates, and say nothing by themselves."""
    return _said(one) != _said(other)


def _said(record: HealthRecord) -> tuple[object, ...]:
    lease = record.lease and record.lease.fence
    return record.epoch, record.state, record.is_local, record.failed_probes, record.good_probes, record.fence, lease
