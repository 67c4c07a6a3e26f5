"""What a coordinator remembers of its operations: read, kept and forgotten by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar, cast

from ._history import OperationHistory
from ._operation_signals import OperationSignals
from ._operations import EphemeralOperationSnapshot, Operation, Outcome
from ._workers import Workers

S = TypeVar("S", bound=EphemeralOperationSnapshot)
"""The kind of snapshot that a kind of coordinator gives."""


class OperationWindow(OperationSignals, Generic[S]):
    """The window of a coordinator; every read is exact as of its moment."""

    _history: OperationHistory
    _workers: Workers

    def _recent(self) -> OperationHistory:
        self._history.trim(self._workers.now())
        return self._history

    def get_snapshot(self) -> tuple[S, ...]:
        """Return what is remembered, running operations included, in order of start."""
        return self._snapshots(self._recent())

    def get_running(self) -> tuple[S, ...]:
        """Return the operations that run, in order of start."""
        return self._snapshots(self._recent().running())

    def get_completed(self) -> tuple[S, ...]:
        """Return the remembered operations whose body returned, in order of start."""
        return self._with(Outcome.COMPLETED)

    def get_failed(self) -> tuple[S, ...]:
        """Return the remembered operations whose body raised or ran out of time, in order of start."""
        return self._with(Outcome.FAILED)

    def _with(self, outcome: Outcome) -> tuple[S, ...]:
        return self._snapshots(operation for operation in self._recent() if operation.outcome is outcome)

    def _snapshots(self, operations: Iterable[Operation]) -> tuple[S, ...]:
        return tuple(cast("S", operation.snapshot()) for operation in operations)

    def try_get_operation(self, operation_id: int) -> S | None:
        """Return one remembered operation; None if it has not started, or is forgotten."""
        operation = self._recent().get(operation_id)
        return None if operation is None else cast("S", operation.snapshot())

    def pin(self, operation_id: int) -> bool:
        """Remember an operation until `unpin`, beyond all bounds; False if it is not in the window."""
        return self._recent().pin(operation_id)

    def unpin(self, operation_id: int) -> bool:
        """Let an operation be forgotten in its turn again; False if it is not in the window."""
        return self._recent().unpin(operation_id, self._workers.now())

    def evict(self, operation_id: int) -> bool:
        """Forget an ended operation now; False if it is not in the window, running or pinned."""
        return self._recent().evict(operation_id)
