"""A lock for short sections that interrupts the one mistake a lock makes silently: waiting for itself."""

from __future__ import annotations

import threading
from types import TracebackType


class Turn:
    """A mutual exclusion whose holder is refused, with an error, where a plain lock would wait for ever.

    A signal handler or a finalizer can run anywhere, so also in the middle of a section that its own thread is in. The
    reentrant lock lets it through to the flag, which tells whether the interrupted section had begun or ended.
    """

    __slots__ = ("_is_taken", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_taken = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._is_taken:
            self._lock.release()
            raise RuntimeError(
                "a signal handler or finalizer asked a sink whose state it had interrupted its own thread in changing;"
                " raise a signal there, and ask from a listener in another thread"
            )
        self._is_taken = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._is_taken = False
        self._lock.release()

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
        """End a turn that `try_take` began."""
        self._is_taken = False
        self._lock.release()
