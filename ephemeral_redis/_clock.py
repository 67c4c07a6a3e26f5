"""The server's clock as far as it is known here: workers' clocks may be wrong by hours, ages may not."""

from __future__ import annotations

import time


class BusClock:
    """Estimates the server's time from the answers that carry it.

    An answer bounds the truth: the server read its clock after the question was sent and before the answer came. The
    estimate moves into these bounds, and no further than it must: a slow answer moves it little, a server whose clock
    was set moves it at once. May be read from any thread.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Return the server's time, UTC epoch seconds; this machine's until the first answer."""
        return time.monotonic() + self._offset

    def learn(self, server_time: float, *, asked_at: float, answered_at: float) -> None:
        """Heed an answer that carries *server_time*; the other two are of this process's monotonic clock."""
        self._offset = min(max(self._offset, server_time - answered_at), server_time - asked_at)
