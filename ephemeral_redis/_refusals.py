"""Which refusals of a server pass by themselves, and which will come again however often one asks."""

from __future__ import annotations

from redis import exceptions

_PASSING = (
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.NoPermissionError,
    exceptions.AuthenticationError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
)
_PASSING_CODES = ("MISCONF", "NOREPLICAS", "BUSY ", "LOADING", "OOM", "READONLY", "NOAUTH", "NOPERM", "MASTERDOWN")


def is_passing(error: exceptions.ResponseError) -> bool:
    """Whether the same call may succeed later: a full, read-only or starting server, or a right that is missing."""
    # The text too: an error from within a script comes as a plain ResponseError.
    return isinstance(error, _PASSING) or any(code in str(error) for code in _PASSING_CODES)
