"""Every error the library raises, under one base.

Data lives in ``args`` and attributes, the sentence in ``__str__``, so that each error survives pickle.
"""

from __future__ import annotations

from datetime import UTC, datetime


class EphemeralError(Exception):
    """Base of all errors of this library; catch it to catch them all."""


class CoordinatorCompletedError(EphemeralError):
    """Work was offered after intake had ended (``complete()``, or the block was left).

    Attributes:
        name: Which coordinator or ladder refused the item.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name} has completed and takes no more items; enqueue before complete() and inside its block"


class CoordinatorNotCompletedError(EphemeralError):
    """``drain()`` was called while items may still arrive, so it could never end.

    Attributes:
        name: Which coordinator was asked.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name} still takes items, so a drain could never end; call complete() before drain()"


class OperationCancelledError(EphemeralError):
    """The awaited item was cancelled or skipped, so there is no result.

    Attributes:
        operation_id: The operation that ended so.
    """

    def __init__(self, operation_id: int) -> None:
        super().__init__(operation_id)
        self.operation_id = operation_id

    def __str__(self) -> str:
        return f"operation {self.operation_id} was cancelled or skipped and has no result; enqueue its item again"


class UnknownOperationError(EphemeralError):
    """The result of an operation was asked for that is neither waiting, nor running, nor in the window.

    Attributes:
        operation_id: What was asked for.
    """

    def __init__(self, operation_id: int) -> None:
        super().__init__(operation_id)
        self.operation_id = operation_id

    def __str__(self) -> str:
        return (
            f"operation {self.operation_id} is not known here: it was cancelled or skipped before it began,"
            " is forgotten, or is another coordinator's; wait for it before it leaves the window, pin() it, or give"
            " max_tracked_operations and max_operation_lifetime more room"
        )


class UnknownCoordinatorError(EphemeralError):
    """A factory was asked for a coordinator that was never added to it.

    Attributes:
        name: What was asked for.
        known: The names that were added, sorted.
    """

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        known = ", ".join(map(repr, self.known)) or "none"
        return f"there is no coordinator {self.name!r}; added so far: {known}; add it before it is asked for"


class NoHealthyProcessorError(EphemeralError):
    """A ``call`` found every rung of its group out of service.

    Attributes:
        group: The group that was asked.
        retry_at: When the next probe is due, UTC epoch seconds; None if no rung is going to be probed
            (all are isolated by hand).
    """

    def __init__(self, group: str, retry_at: float | None) -> None:
        super().__init__(group, retry_at)
        self.group = group
        self.retry_at = retry_at

    def __str__(self) -> str:
        if self.retry_at is None:
            when = "none is going to be probed: enter a block, or bring one back with reset_health()"
        else:
            when = (
                f"the next probe is due at {datetime.fromtimestamp(self.retry_at, UTC).isoformat('T', 'milliseconds')}"
            )
        return f"no processor of group {self.group!r} is healthy; {when}, or use enqueue() to let the item wait"


class ProcessingFailedError(EphemeralError):
    """A processor said ``False``: the item failed without an exception of its own.

    Attributes:
        processor: The rung that failed, as its signals name it (``pri1``, ``eu.pri2``).
        item_id: The item, as its signals name it; empty where the group has ``item_signals=False``.
    """

    def __init__(self, processor: str, item_id: str) -> None:
        super().__init__(processor, item_id)
        self.processor = processor
        self.item_id = item_id

    def __str__(self) -> str:
        item = repr(self.item_id) if self.item_id else "an item"
        return f"{self.processor} returned False for {item}: the item failed; raise an error there to say why"


class BusUnavailableError(EphemeralError):
    """The bus could not be asked: it is away, or it went away before it answered.

    Attributes:
        reason: What was seen of it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the bus is away ({self.reason}); what was raised is kept and sent when it is back"
