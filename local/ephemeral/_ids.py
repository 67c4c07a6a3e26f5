"""Operation ids: one counter per process, started at a random place.

Hashing each id would collide by birthday long before 2**63; a counter cannot collide with itself, and two processes
meet only if their random starts lie closer together than the ids they hand out.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Final

from xxhash import xxh64_intdigest

MAX_ID: Final = 2**63 - 1

# Starts end here, so 2**62 ids (146 000 years at a million a second) fit above the highest one.
_LAST_START: Final = 2**62

_next: Callable[[], int]


def next_id() -> int:
    """Return a new operation id: a positive 63-bit integer, rising within a process.

    Unique across threads, processes, forks (a child starts anew) and containers, whatever their process ids.
    Callable from any thread; takes no lock, never blocks.
    """
    return _next()


def _start_anew() -> None:
    global _next  # noqa: PLW0603  the one counter of the process, replaced only here, at import and after a fork
    start = 1 + xxh64_intdigest(os.urandom(32)) % _LAST_START
    _next = itertools.count(start).__next__


_start_anew()
if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_start_anew)
