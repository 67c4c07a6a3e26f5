"""One worker of the modelled fleet: the library's own store and mirror, with a connection that steps when told to.

What runs here is `SharedHealthStore` and `Mirror`, as they are. What is written down anew is what stands between them
and the server and cannot be stepped, for it awaits: `Session` (greeting, questions and their answers), `Reports` and
`ControlReader`. Each of their calls of the server is one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from ephemeral._health import Change, HealthRules, Lease
from ephemeral._shared_entry import SharedEntry
from ephemeral._shared_health import SharedHealthStore
from ephemeral.abc import HealthNews, HealthReport, SharedRecord, Swap
from ephemeral_redis._mirror import Mirror

from .parts import NOTHING, Ended, Kept, Loop, P, Promise, Server, kept

UP, DOWN, HEALING = "up", "down", "healing"


# The count is shown to people, and when it was heard decides nothing but for how long.
_FIELDS = tuple(name for name in SharedEntry.__slots__ if name not in {"rules", "evidence", "counted_at"})


class _Entry(NamedTuple):
    """A `SharedEntry`, and what its store knows beside it."""

    is_alone: bool | None
    row: SharedRecord
    fields: tuple[Any, ...]
    failures: tuple[float, ...]
    heeds_success: bool


class State(NamedTuple):
    """A worker, as a value."""

    life: int
    entry: _Entry | None
    mirror: tuple[bool, SharedRecord | None, tuple[Any, ...]]
    link: str
    cursor: tuple[float, int] | None
    found: SharedRecord | None
    asked: tuple[Promise, ...]
    kept: tuple[Kept, ...]
    numbered: int
    leases: tuple[Lease, ...]
    calls: tuple[int, ...]
    hops: tuple[Any, ...]
    told: int
    has_acted: bool


class Worker:
    """One worker; dead and begun anew it is another, by its origin.

    Attributes:
        leases: Those that it holds, and has told no verdict of.
        calls: Epochs in which calls began that have not ended.
        told: How many edges down it has told, less those up.
        has_acted: Whether anything but what is due has happened to it.
    """

    def __init__(self, index: int, server: Server, rules: HealthRules, *, is_prompt: bool) -> None:
        self._index = index
        self._server = server
        self._rules = rules
        self._is_prompt = is_prompt
        self._stores: dict[int, tuple[SharedHealthStore, Mirror, Loop]] = {}
        self._entries: dict[int, SharedEntry] = {}
        self.told = 0
        self.has_acted = False
        self.begin(0)

    # Its lives

    def begin(self, life: int) -> None:
        """Be a new process."""
        self.life = life
        self.origin = f"{self._index:08x}{life:08x}"
        if life not in self._stores:
            store = SharedHealthStore(self)  # type: ignore[arg-type]  as much of a backend as it looks at
            store._loop = Loop(self._server, is_prompt=self._is_prompt)  # type: ignore[assignment]  likewise
            store.on_change = self._changed
            self._stores[life] = (store, Mirror(), store._loop)  # type: ignore[arg-type]  likewise
        self.store, self.mirror, self.loop = self._stores[life]
        self.store._entries.clear()
        self.store._is_alone = None
        self.mirror.rows, self.mirror.is_lost, self.mirror._watchers = {}, True, []
        self.mirror._asked = []
        self.mirror._older = {}
        self.loop.waiting = []
        self.link = DOWN
        self.cursor: tuple[float, int] | None = None
        self.found: SharedRecord | None = None
        self.asked: list[Promise] = []
        self.kept: list[Kept] = []
        self._numbered = 0
        self.leases: list[Lease] = []
        self.calls: list[int] = []

    def register(self) -> None:
        """Have a ladder, once the bus is reached or known to be away."""
        if not self.store._entries:
            self.store.register(P, self._rules, 0.0)
            # One object for each life, whichever way it is come to: what is under way holds on to it.
            entry = self.store._entries[P]
            self.store._entries[P] = self._entries.setdefault(self.life, entry)
            self._load_entry(self._save_entry(entry))

    def save(self) -> State:
        """Return its state."""
        entry = self.store._entries.get(P)
        saved = None if entry is None else self._save_entry(entry)
        mirror = self.mirror
        return State(
            self.life,
            saved,
            (mirror.is_lost, mirror.rows.get(P), tuple(mirror._asked)),
            self.link,
            self.cursor,
            self.found,
            tuple(self.asked),
            tuple(self.kept),
            self._numbered,
            tuple(self.leases),
            tuple(self.calls),
            tuple(self.loop.waiting),
            self.told,
            self.has_acted,
        )

    def load(self, state: State) -> None:
        """Be in *state*."""
        if state.life != self.life or (state.entry is None and self.store._entries):
            self.begin(state.life)
        if state.entry is not None:
            self.register()
            self._load_entry(state.entry)
        mirror = self.mirror
        mirror.is_lost, row, asked = state.mirror
        mirror.rows = {} if row is None else {P: row}
        mirror._asked = list(asked)
        mirror._watchers = [] if state.entry is None else [self.store]
        self.link, self.cursor, self.found = state.link, state.cursor, state.found
        self.asked, self.kept, self._numbered = list(state.asked), list(state.kept), state.numbered
        self.leases, self.calls, self.told = list(state.leases), list(state.calls), state.told
        self.has_acted = state.has_acted
        self.loop.waiting = list(state.hops)

    def _save_entry(self, entry: SharedEntry) -> _Entry:
        evidence = entry.evidence
        fields = tuple(getattr(entry, name) for name in _FIELDS)
        return _Entry(self.store._is_alone, entry.row, fields, tuple(evidence._failures), evidence.heeds_success)

    def _load_entry(self, saved: _Entry) -> None:
        entry = self.store._entries[P]
        self.store._is_alone = saved.is_alone
        for name, value in zip(_FIELDS, saved.fields, strict=True):
            setattr(entry, name, value)
        entry.evidence.heeds_success = saved.heeds_success
        entry.evidence._failures.clear()
        entry.evidence._failures.extend(saved.failures)

    # What the store asks of its backend

    def bus_time(self) -> float:
        """Return the bus's time."""
        return self._server.now

    def watch(self, watcher: Any) -> None:
        """Be watched."""
        self.mirror.watch(watcher)

    def unwatch(self, watcher: Any) -> None:
        """Be watched no more."""
        self.mirror.unwatch(watcher)

    def report(self, report: HealthReport) -> None:
        """Keep a report."""
        self.kept.append(kept(report, self._server.now, self._numbered))
        self._numbered += 1

    def swap(self, swap: Swap) -> Promise:
        """Ask for a swap."""
        self.asked.append(Promise(swap, "decision"))
        return self.asked[-1]

    def _changed(self, change: Change) -> None:
        if not change.is_own or change.after.is_local or change.before.is_local:
            return  # a trip of this worker alone is no edge of the fleet's
        if change.went_down or change.came_up:
            self.told += 1 if change.went_down else -1

    # What users and ladders do

    @property
    def entry(self) -> Any:
        """What it knows of the processor."""
        return self.store._entries[P]

    @property
    def is_open(self) -> bool:
        """Whether it has a ladder."""
        return bool(self.store._entries)

    def acquire(self) -> None:
        """Ask for the lease to probe, as ``acquire`` does but for the wait."""
        change, promise = self.store._ask(P, self._server.now)
        if promise is not None:
            promise.key = (promise.swap, "lease")  # type: ignore[union-attr]  one of ours
            promise.add_done_callback(lambda ended: self.store._hop(partial(self._acquired, change, ended)))
        elif change is not None:
            self._acquired(change, Ended(is_done=True))

    def _acquired(self, change: Any, ended: Ended) -> None:
        if ended.is_done:
            self.leases.append(self.store._localized(change.after).lease)

    def cancel(self, which: int) -> None:
        """Be cancelled while asking."""
        asked = self.asked[which]
        record = asked.swap.record
        change = Change("probe_started", record, record)
        other = asked.for_nobody(lambda ended: self.store._hop(partial(self.store._unwanted, change, ended)))
        self.asked[which] = other
        self.mirror._asked = [
            question._replace(future=_Once(other, self)) if question.future.promise is asked else question
            for question in self.mirror._asked
        ]

    # What the connection does, one call of the server each

    def tell(self, *, is_answered: bool = True) -> None:
        """Tell the first report; put back the row first if the server has lost it."""
        first = self.kept[0]
        if self.mirror.is_over(P, first.report.epoch):
            self.kept.pop(0)
            return
        is_counted = self._server.report(self.origin, first)
        if is_answered and (is_counted or not self.heal()):
            self.kept.pop(0)

    def heal(self) -> bool:
        """Put back what the server has lost; return whether it had lost anything."""
        healing = self.mirror.lost_by_server(P, self._server.row)
        return healing is not None and self._server.swap(self.origin, healing)

    def serve(self, *, is_answered: bool = True) -> None:
        """Have the server answer the next swap."""
        which = self.unserved()
        assert which is not None
        promise = self.asked[which]
        is_done = self._server.swap(self.origin, promise.swap)
        kind, origin = (promise.swap.cause, self.origin) if is_done else ("healed", "")
        if is_answered:
            if not is_done:
                self.heal()
            row = self._server.row
            news = HealthNews(kind, origin, P, row, 0 if row is None else row.record.failures)
            self.mirror.answer_when_known(news, _Once(promise, self), is_done=is_done)  # type: ignore[arg-type]  as much of a future as it looks at

    def unserved(self) -> int | None:
        """Return which swap the server answers next: they reach it one after the other."""
        answered = {id(question.future.promise) for question in self.mirror._asked}
        return next((which for which, promise in enumerate(self.asked) if id(promise) not in answered), None)

    def hear(self) -> None:
        """Hear the next entry of the control stream."""
        entry = self._server.after(self.cursor or NOTHING)
        assert entry is not None
        self.cursor = entry.id
        self.mirror.hear(entry.news)
        self._heal_older()

    def hear_nothing(self) -> None:
        """Find that the control stream has nothing more, though an answer is still to be told there."""
        self.mirror.take_answers()
        self._heal_older()

    def _heal_older(self) -> None:
        if self.mirror._older:
            self.mirror._older.clear()
            if self.link == UP:
                self.heal()

    def cut(self) -> None:
        """Lose the connection; whoever asked is told so."""
        self.link, self.found = DOWN, None
        self.mirror.drop_questions()
        self.break_off()

    def break_off(self) -> None:
        """End what is asked without an answer."""
        asked, self.asked = self.asked, []
        for promise in asked:
            promise.set_result(None)

    def give_up(self) -> None:
        """Find that the bus is away."""
        self.register()
        self.mirror.lose()

    def greet(self) -> None:
        """Read the table, and hear what was missed."""
        server = self._server
        if self.cursor is None:
            self.cursor = server.last_id
        elif server.last_id < self.cursor:
            self.cursor = NOTHING
        while server.after(self.cursor) is not None:
            self.hear()
        self.link, self.found = HEALING, server.row

    def return_(self) -> None:
        """Put back what the server has lost, and be there."""
        if P in self.mirror.rows and self.mirror.lost_by_server(P, self.found) is not None:
            self.heal()
        rows: Mapping[str, SharedRecord] = {} if self.found is None else {P: self.found}
        self.link, self.found = UP, None
        self.mirror.found(dict(rows))
        self.register()


class _Once:
    """A promise as the mirror holds it; taken off the list of what is asked as it ends."""

    __slots__ = ("_worker", "promise")

    def __init__(self, promise: Promise, worker: Worker) -> None:
        self.promise = promise
        self._worker = worker

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Once) and self.promise == other.promise

    def __hash__(self) -> int:
        return hash(self.promise)

    def done(self) -> bool:
        return False

    def set_result(self, is_done: bool) -> None:
        self._worker.asked = [other for other in self._worker.asked if other is not self.promise]
        self.promise.set_result(is_done)
