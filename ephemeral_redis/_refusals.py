"""What an error says: the bus is away, a refusal that passes or comes again, or a mistake in a program."""

from __future__ import annotations

import traceback
from typing import Any

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
    # The slot is on its way to another node, or is there: asked anew, the cluster says where.
    exceptions.AskError,
    exceptions.MovedError,
)
_PASSING_CODES = ("MISCONF", "NOREPLICAS", "BUSY ", "LOADING", "OOM", "READONLY", "NOAUTH", "NOPERM", "MASTERDOWN")

_OUTAGES = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ResponseError,
    exceptions.InvalidResponse,
    exceptions.RedisClusterException,
    exceptions.ClusterError,
    OSError,
    EOFError,
)


def is_outage(error: BaseException) -> bool:
    """Whether the server, or the way to it, is to blame; else a program is, and no waiting mends it."""
    if isinstance(error, _OUTAGES):
        return True
    # A write to a peer that has closed makes some versions raise TypeError or AttributeError within the loop itself.
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__", "").startswith("asyncio.")


def reason_of(error: BaseException) -> str:
    """Return what *error* says, in words that help: some say nothing, and a cluster only where to go."""
    if isinstance(error, exceptions.AskError):
        moved: Any = error
        place = f"{moved.host}:{moved.port}"
        if isinstance(error, exceptions.MovedError):
            return f"another node of this cluster has the namespace, {place}; a redis+cluster:// URL finds it"
        return f"the namespace is on its way to another node of the cluster, {place}"
    return str(error) or type(error).__name__


def is_passing(error: exceptions.ResponseError) -> bool:
    """Whether the same call may succeed later: a full, read-only or starting server, or a right that is missing."""
    # The text too: an error from within a script comes as a plain ResponseError.
    return isinstance(error, _PASSING) or any(code in str(error) for code in _PASSING_CODES)
