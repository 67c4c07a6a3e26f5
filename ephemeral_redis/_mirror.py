"""The health table as it is known here, and those who want to hear of it. Lives on the portal's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio

from ephemeral.abc import Swap

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ephemeral.abc import HealthNews, HealthWatcher, SharedRecord

    from ._scripts import Calls


class _Asked(NamedTuple):
    """A swap that the server has answered; whoever asked is told once the row it speaks of is known here."""

    news: HealthNews
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
        self._older: dict[str, SharedRecord | None] = {}
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
            if known is not None and not news.row.follows(known):
                if known.follows(news.row):
                    self._older[news.processor] = news.row
                return
            self.rows[news.processor] = news.row
        for watcher in tuple(self._watchers):
            watcher.news(news)
        self._answer()

    def found(self, rows: dict[str, SharedRecord]) -> None:
        """Take the whole table, as read when the bus was reached; rows that are newer here stay as they are."""
        for processor, row in rows.items():
            known = self.rows.get(processor)
            if known is None or row.follows(known):
                self.rows[processor] = row
        self.is_lost = False
        for watcher in tuple(self._watchers):
            watcher.table(dict(self.rows))

    def compared(self, rows: dict[str, SharedRecord]) -> None:
        """Take what the table says beyond what was heard of it, if anything: the server has lost those entries."""
        if any(processor not in self.rows or row.follows(self.rows[processor]) for processor, row in rows.items()):
            self.found(rows)
            self._answer()

    def lost_by_server(self, processor: str, row: SharedRecord | None) -> Swap | None:
        """Return what puts back the row of *processor* if the server, whose row is *row*, has lost what is known here.

        An answer that was merely slower than the stream looks the same; then the server refuses, and nothing is lost.
        """
        known = self.rows.get(processor)
        if known is None or not known.is_readable or (row is not None and not known.follows(row)):
            return None
        return Swap("healed", row.version if row else 0, known.record, known.version)

    def is_over(self, processor: str, epoch: int) -> bool:
        """Whether *epoch* of *processor* is known to be over, so that nothing reported of it may count."""
        known = self.rows.get(processor)
        return known is not None and known.is_readable and known.record.epoch > epoch

    async def heal(self, calls: Calls, processor: str, row: SharedRecord | None) -> SharedRecord | None:
        """Put back what the server has lost of *processor*, whose row it says is *row*; return what is there then."""
        # Refused if another worker was quicker, which may know less: then once more, on top of what it put back.
        while (healing := self.lost_by_server(processor, row)) is not None:
            _, _, row = await calls.swap(healing)
        return row

    async def heal_older(self, calls: Calls) -> None:
        """Put back the rows that are newer here than what was heard last: the server lost its data meanwhile.

        Or only an entry came twice; then the server refuses, and says what it has.
        """
        while self._older:
            await self.heal(calls, *self._older.popitem())

    def lose(self) -> None:
        """Tell everybody that the bus is away."""
        if not self.is_lost:
            self.is_lost = True
            for watcher in tuple(self._watchers):
                watcher.lost()

    def answer_when_known(self, news: HealthNews, future: Future[bool], *, is_done: bool) -> None:
        """End *future* with *is_done* once the row of *news*, of which the server's answer told, is known here."""
        self._asked.append(_Asked(news, is_done, future))
        self._answer()

    def take_answers(self) -> None:
        """Learn from the answers themselves, for nothing more comes by the stream: the server has lost its entries."""
        for question in tuple(self._asked):
            self._older[question.news.processor] = None
            self.hear(question.news)

    def drop_questions(self) -> None:
        """Wait for no news on behalf of swaps any more: their session has ended, and with it their futures."""
        self._asked.clear()

    def _answer(self) -> None:
        asked, self._asked = self._asked, []
        for question in asked:
            known, row = self.rows.get(question.news.processor), question.news.row
            if row is None or (known is not None and not row.follows(known)):
                if not question.future.done():
                    question.future.set_result(question.is_done)
            else:
                self._asked.append(question)
