"""Locks for short sections that neither wait for themselves nor survive a fork in the wrong hands."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_held_for_fork: list[Any] = []


def reentrant_lock() -> Any:
    """Return a ``threading.RLock`` that no other thread holds in a forked child.

    The thread that held it would not exist there, so nobody could ever release it, and what it guards would stay half
    done: a fork waits for such locks. Nobody may take a second one while holding one.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


class Turn:
    """A mutual exclusion whose holder is refused, with an error, where a plain lock would wait for ever.

    A signal handler or a finalizer can run anywhere, so also in the middle of a section that its own thread is in. The
    reentrant lock lets it through to the flag, which tells whether the interrupted section had begun or ended.
    """

    __slots__ = ("_is_taken", "_lock")

    def __init__(self) -> None:
        self._lock = reentrant_lock()
        self._is_taken = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._is_taken:
            self._lock.release()
            raise RuntimeError(
                "a signal handler or finalizer asked a sink that its own thread was just asking, which could only wait"
                " for itself; raise a signal there and ask elsewhere"
            )
        self._is_taken = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.give_back()

    def try_take(self) -> bool:
        """Take the turn if nobody has it, this thread included; never waits. Then `give_back` is due."""
        if not self._lock.acquire(blocking=False):
            return False
        if self._is_taken:
            self._lock.release()
            return False
        self._is_taken = True
        return True

    def give_back(self) -> None:
        """End a turn."""
        self._is_taken = False
        self._lock.release()


def _hold_all() -> None:
    for lock in list(_locks):
        lock.acquire()
        _held_for_fork.append(lock)


def _release_all() -> None:
    while _held_for_fork:
        _held_for_fork.pop().release()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
