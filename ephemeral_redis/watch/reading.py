"""Reads a namespace, again and again: a few bounded questions each time, in two or three trips. On asyncio alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from redis.exceptions import NoPermissionError, ResponseError

from ephemeral_redis import _codec, _roster
from ephemeral_redis._reader import FIRST, is_before, news_of

from .changes import ChangeLog
from .compose import change_of, compose_groups
from .picture import FleetPicture, ScopeRate, ServerPicture

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ephemeral.abc import SharedRecord
    from ephemeral_redis._clock import BusClock
    from ephemeral_redis._keys import Keys


MAX_SCOPES = 1000
"""Scopes that are counted in one reading, those raised last; a thousand ZCOUNT take the server 3 ms."""

MAX_ENTRIES = 500
"""Entries of the control stream that are read at once."""

FIRST_ENTRIES = 5000
"""Those that are read when nothing is known yet, so that the night can be seen: the server gives them in 5 ms."""

RATE_SECONDS = 10.0
"""Over how long signals are counted; less where the bus keeps them for less."""

Question: TypeAlias = "tuple[Any, ...]"
"""A command and its arguments."""

SERVER_SECONDS = 5.0
"""How often the server is asked how it is."""


class Scopes(NamedTuple):
    """How busy the scopes are.

    Attributes:
        rates: The busiest first.
        known: How many there are, counted or not.
    """

    rates: tuple[ScopeRate, ...] = ()
    known: int = 0


class Reading:
    """What is known of a namespace, through one connection after the other.

    Args:
        namespace: Its name.
        keys: Its keys.
        clock: The bus's; heeds the answers.

    Attributes:
        told: What the workers tell of themselves.
        denied: Commands that this user may not use.
        control_id: Up to where the control stream was read.
    """

    def __init__(self, namespace: str, keys: Keys, clock: BusClock) -> None:
        self.told: tuple[_roster.Told, ...] = ()
        self.denied: set[str] = set()
        self.control_id: bytes | None = None
        self._namespace = namespace
        self._keys = keys
        self._clock = clock
        self._rows: dict[str, SharedRecord] = {}
        self._counted: dict[str, int] = {}
        self._scopes = Scopes()
        self._changes = ChangeLog()
        self._server: ServerPicture | None = None
        self._asked_server_at = 0.0
        self._greeting = ("redis", "unknown")
        self._read_at = 0.0
        self._unreadable: dict[str, int] = {}
        self._unreadable_entries = 0

    def picture(self, problem: str | None = None) -> FleetPicture:
        """Return what is known; with the *problem* that keeps it from being read anew."""
        now = self._clock.now()
        return FleetPicture(
            namespace=self._namespace,
            at=max(now, self._read_at),
            read_at=self._read_at,
            problem=problem,
            groups=compose_groups(self.told, self._rows, self._counted, now),
            workers=tuple(sorted((one.worker for one in self.told), key=lambda worker: (worker.name, worker.origin))),
            scopes=self._scopes.rates,
            scopes_known=self._scopes.known,
            changes=self._changes.latest_first(),
            server=self._server,
            unreadable=sum(self._unreadable.values()) + self._unreadable_entries,
        )

    async def greet(self, client: Any) -> None:
        """Learn who the server is, through a new connection; raises what redis-py raises."""
        try:
            answer = await client.execute_command("HELLO")
        except ResponseError:
            return  # not allowed, or older than 6
        pairs: Any = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=False)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  whatever redis-py made of it
        facts = {_text(name): _text(value) for name, value in pairs}
        self._greeting = (facts.get("server", "redis"), facts.get("version", "unknown"))
        self._asked_server_at = 0.0

    async def read(self, client: Any, *, with_scopes: bool = True) -> None:
        """Read what there is; raises what redis-py raises, and `UndecodableError` for a namespace of another layout."""
        asked_at = time.monotonic()
        server_time = _seconds(await client.time())
        answered_at = time.monotonic()
        self._clock.learn(server_time, asked_at=asked_at, answered_at=answered_at)
        await self._ask_server(client, answered_at - asked_at)
        heard, scopes = await self._read_tables(client, with_scopes=with_scopes)
        await self._read_records(client, heard)
        await self._read_counts(client, scopes, server_time)
        self._read_at = self._clock.now()

    async def _ask_server(self, client: Any, latency: float) -> None:
        known = self._server
        memory: dict[str, Any] = {}
        is_due = time.monotonic() >= self._asked_server_at + SERVER_SECONDS
        if is_due or known is None:
            self._asked_server_at = time.monotonic()
            try:
                memory = await client.info("memory")
            except NoPermissionError:
                self.denied.add("INFO")
        elif known.max_memory is not None:
            memory = {"used_memory": known.used_memory, "maxmemory": known.max_memory, "maxmemory_policy": known.policy}
        self._server = ServerPicture(
            kind=self._greeting[0],
            version=self._greeting[1],
            latency=latency,
            used_memory=memory.get("used_memory"),
            max_memory=memory.get("maxmemory"),
            policy=memory.get("maxmemory_policy"),
        )

    async def _read_tables(
        self, client: Any, *, with_scopes: bool
    ) -> tuple[list[tuple[bytes, float]], list[str] | None]:
        """Read table and changes; return who was heard of, when, and the names of scopes if they are asked for."""
        keys, cursor = self._keys, self.control_id
        questions: list[Question] = [
            ("HGET", keys.marks, b"layout"),
            ("ZRANGE", keys.roster, 0, -1, "WITHSCORES"),
            ("HGETALL", keys.health),
            ("XREVRANGE", keys.control, "+", "-", "COUNT", 1),
            ("XREVRANGE", keys.control, "+", "-", "COUNT", FIRST_ENTRIES)
            if cursor is None
            else ("XRANGE", keys.control, b"(" + cursor, "+", "COUNT", MAX_ENTRIES),
        ]
        if with_scopes:
            questions += [("ZCARD", keys.shallow), ("ZCARD", keys.deep)]
            questions += [("ZRANGE", key, -MAX_SCOPES, -1) for key in (keys.shallow, keys.deep)]
        layout, roster, table, newest, entries, *scopes = await self._ask(client, questions)
        if layout is not None:
            _codec.check_version(layout, b"%d" % _codec.LAYOUT)
        self._rows = self._readable_rows(_mapping(table))
        self._follow(newest or [], entries or [], cursor)
        heard = _scored(roster)
        if not with_scopes:
            return heard, None
        shallow_known, deep_known, shallow, deep = scopes
        self._scopes = self._scopes._replace(known=(shallow_known or 0) + (deep_known or 0))
        # The first segments first: they hold what the others count again.
        names: list[bytes] = [*reversed(shallow or ()), *reversed(deep or ())]
        return heard, [_codec.text(name) for name in names[:MAX_SCOPES]]

    async def _read_records(self, client: Any, heard: Sequence[tuple[bytes, float]]) -> None:
        values = await self._ask(client, [("GET", self._keys.record(origin)) for origin, _ in heard])
        self.told = self._readable_records([(*one, value) for one, value in zip(heard, values, strict=True)])

    async def _read_counts(self, client: Any, scopes: Sequence[str] | None, now: float) -> None:
        """Count failures of those that are up, and signals in *scopes*; None: those were counted lately."""
        keys, windows = self._keys, self._windows()
        within = min([RATE_SECONDS, *(one.retention for one in self.told)])
        since = {name: _micros(now - window) for name, window in windows.items()}
        questions: list[Question] = [("ZCOUNT", keys.failures(name), at, "+inf") for name, at in since.items()]
        questions += [("ZCOUNT", keys.scope(name), _micros(now - within), "+inf") for name in scopes or ()]
        answers = iter(await self._ask(client, questions))
        self._counted = {name: next(answers) or 0 for name in windows}
        if scopes is not None:
            rates = (ScopeRate(scope=name, count=next(answers) or 0, within=within) for name in scopes)
            busiest = sorted((rate for rate in rates if rate.count), key=lambda rate: (-rate.count, rate.scope))
            self._scopes = self._scopes._replace(rates=tuple(busiest))

    def _windows(self) -> dict[str, float]:
        """Return the processors that are up, each with the longest window by which a worker judges it."""
        windows: dict[str, float] = {}
        for rung in (rung for one in self.told for ladder in one.ladders for rung in ladder.rungs):
            row = self._rows.get(rung.processor)
            if row is None or row.record.is_up:
                windows[rung.processor] = max(windows.get(rung.processor, 0.0), rung.rules.failure_window)
        return windows

    async def _ask(self, client: Any, questions: list[Question]) -> list[Any]:
        """Ask all at once; what this user may not ask is None, and noted."""
        if not questions:
            return []
        pipeline = client.pipeline(transaction=False)
        for question in questions:
            pipeline.execute_command(*question)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        for place, (question, answer) in enumerate(zip(questions, answers, strict=True)):
            if isinstance(answer, NoPermissionError) and question[0] != "HGETALL":
                self.denied.add(question[0])
                answers[place] = None
            elif isinstance(answer, Exception):
                raise answer
        return answers

    def _follow(self, newest: Iterable[Any], entries: Iterable[Any], cursor: bytes | None) -> None:
        last = next((entry_id for entry_id, _ in newest), FIRST)
        if cursor is not None and is_before(last, cursor):
            # The server lost its data. What was seen stays in view; read anew from its beginning next time.
            self.control_id = FIRST
            return
        read = list(entries)
        if cursor is None:
            read.reverse()
        for entry_id, fields in read:
            self.control_id = entry_id
            try:
                change = change_of(int(entry_id.partition(b"-")[0]) / 1000, news_of(_mapping(fields)))
            except Exception:  # noqa: BLE001  whatever anybody wrote there, the view goes on
                self._unreadable_entries += 1
                continue
            if change is not None:
                self._changes.add(change)
        if self.control_id is None:
            self.control_id = FIRST

    def _readable_rows(self, table: Mapping[bytes, bytes]) -> dict[str, SharedRecord]:
        rows: dict[str, SharedRecord] = {}
        self._unreadable["rows"] = 0
        for name, value in table.items():
            processor = _codec.text(name)
            row = _codec.known_row(processor, value)
            if row is not None:
                rows[processor] = row
            if row is None or not row.is_readable:
                self._unreadable["rows"] += 1
        return rows

    def _readable_records(self, records: Iterable[tuple[bytes, float, bytes | None]]) -> tuple[_roster.Told, ...]:
        told: list[_roster.Told] = []
        self._unreadable["records"] = 0
        for origin, heard_at, value in records:
            if value is None:
                continue  # it has just left
            try:
                told.append(_roster.unpack(origin, heard_at, value))
            except _codec.UndecodableError:
                self._unreadable["records"] += 1
        return tuple(told)


def _seconds(answer: Any) -> float:
    seconds, micros = answer
    return int(seconds) + int(micros) / 1e6


def _micros(at: float) -> str:
    return f"{at * 1e6:.0f}"


def _mapping(answer: Any) -> dict[bytes, bytes]:
    if answer is None:
        return {}
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))  # pyright: ignore[reportUnknownVariableType]  whatever redis-py made of it


def _scored(answer: Any) -> list[tuple[bytes, float]]:
    """Return members with their scores, of epoch ms, as seconds."""
    if not answer:
        return []
    pairs = answer if isinstance(answer[0], list | tuple) else zip(answer[::2], answer[1::2], strict=True)
    return [(member, float(score) / 1000) for member, score in pairs]


def _text(value: Any) -> str:
    return _codec.text(value) if isinstance(value, bytes) else str(value)
