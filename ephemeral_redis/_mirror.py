"""The health table as it is known here, and those who want to hear of it. Lives on the portal's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio

from ephemeral.abc import Swap

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ephemeral.abc import HealthNews, HealthWatcher, SharedRecord


class _Asked(NamedTuple):
    """A swap that the server has answered; whoever asked is told once the row it speaks of is known here."""

    processor: str
    version: int
    is_done: bool
    future: Future[bool]


class Mirror:
    """Follows the table in the order in which the server changed it.

    All news come by the control stream, a worker's own too, so that every worker sees every change in one order. An
    answer that is quicker than the stream waits for it.

    Attributes:
        rows: The table.
        is_lost: Whether it cannot be followed now.
    """

    def __init__(self) -> None:
        self.rows: dict[str, SharedRecord] = {}
        self.is_lost = True
        self._watchers: list[HealthWatcher] = []
        self._has_left: anyio.Event | None = None
        self._asked: list[_Asked] = []

    def watch(self, watcher: HealthWatcher) -> None:
        """Begin to tell *watcher*."""
        self._watchers.append(watcher)
        if self.is_lost:
            watcher.lost()
        else:
            watcher.table(dict(self.rows))

    def unwatch(self, watcher: HealthWatcher) -> None:
        """Tell *watcher* no more."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)
        if self._has_left is not None:
            self._has_left.set()

    async def left(self) -> None:
        """Wait for those that are leaving to leave: what they have heard last is told by then."""
        while any(watcher.is_leaving for watcher in self._watchers):
            self._has_left = anyio.Event()
            await self._has_left.wait()

    def hear(self, news: HealthNews) -> None:
        """Take one entry of the control stream."""
        if news.row is not None:
            known = self.rows.get(news.processor)
            if known is not None and news.row.version <= known.version:
                return
            self.rows[news.processor] = news.row
        for watcher in tuple(self._watchers):
            watcher.news(news)
        self._answer()

    def found(self, rows: dict[str, SharedRecord]) -> None:
        """Take the whole table, as read when the bus was reached; rows that are newer here stay as they are."""
        for processor, row in rows.items():
            known = self.rows.get(processor)
            if known is None or row.version > known.version:
                self.rows[processor] = row
        self.is_lost = False
        for watcher in tuple(self._watchers):
            watcher.table(dict(self.rows))

    def lost_by_server(self, processor: str, row: SharedRecord | None) -> Swap | None:
        """Return what puts back the row of *processor* if the server, whose row is *row*, has lost what is known here.

        An answer that was merely slower than the stream looks the same; then the server refuses, and nothing is lost.
        """
        known = self.rows.get(processor)
        version = row.version if row else 0
        if known is None or not known.is_readable or known.version <= version:
            return None
        return Swap("healed", version, known.record)

    def lose(self) -> None:
        """Tell everybody that the bus is away."""
        if not self.is_lost:
            self.is_lost = True
            for watcher in tuple(self._watchers):
                watcher.lost()

    def answer_when_known(self, processor: str, version: int, future: Future[bool], *, is_done: bool) -> None:
        """End *future* with *is_done* once the row of *processor* is known here in *version* or a later one."""
        self._asked.append(_Asked(processor, version, is_done, future))
        self._answer()

    def drop_questions(self) -> None:
        """Wait for no news on behalf of swaps any more: their session has ended, and with it their futures."""
        self._asked.clear()

    def _answer(self) -> None:
        asked, self._asked = self._asked, []
        for question in asked:
            known = self.rows.get(question.processor)
            if (known.version if known else 0) >= question.version:
                if not question.future.done():
                    question.future.set_result(question.is_done)
            else:
                self._asked.append(question)
