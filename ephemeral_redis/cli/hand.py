"""``ephemeral isolate`` and ``ephemeral reset``: the health of a processor, decided by hand from outside of the fleet.

The decision is the one that a worker takes by ``isolate()`` and ``reset_health()``, offered to the table by the same
swap, and told by the same signals: a swap that is refused is decided anew.
"""

from __future__ import annotations

import getpass
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import anyio
import anyio.to_thread

from ephemeral import BusUnavailableError
from ephemeral.abc import HealthRecord, HealthWatcher, SharedRecord, Swap
from ephemeral.abc import isolate as isolated
from ephemeral.abc import reset as restored
from ephemeral_redis._printable import printable
from ephemeral_redis.watch.compose import picture_rung

from .running import ToolError, require_reached, run_tool
from .words import clock_text, json_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ephemeral import SignalSink
    from ephemeral.abc import Change, HealthNews, SignalBackend
    from ephemeral_redis.watch.picture import FleetPicture, GroupPicture

    from .running import Fleet

ANSWER_SECONDS = 5.0
"""How long the table may take to answer."""

MAX_NAMED = 20
"""Known processors that a mistake is answered with."""

_MAX_TRIES = 20

Wish = Literal["isolate", "reset"]


def isolate(fleet: Fleet, processor: str, *, as_json: bool) -> int:
    """Take *processor* out by hand and return the exit code."""
    return run_tool(partial(_act, fleet, "isolate", processor, as_json=as_json))


def reset(fleet: Fleet, processor: str, *, as_json: bool) -> int:
    """Bring *processor* back by hand and return the exit code."""
    return run_tool(partial(_act, fleet, "reset", processor, as_json=as_json))


class Done(NamedTuple):
    """What became of a wish.

    Attributes:
        before: The record until then.
        after: From then on; the same if there was nothing to change.
        at: The bus's time then.
    """

    before: HealthRecord
    after: HealthRecord
    at: float


async def _act(fleet: Fleet, wish: Wish, processor: str, *, as_json: bool) -> int:
    watch = fleet.watch()
    async with watch.pictures() as pictures:
        picture = await anext(pictures)
    require_reached(watch, picture)
    group = _group_of(picture, processor)
    async with fleet.sink() as sink:
        backend = sink.backend
        assert backend is not None
        done = await _decide(backend, wish, processor)
        if done.before != done.after:
            _tell_edge(sink, group, done)
            await sink.flush(ANSWER_SECONDS)
    if as_json:
        print(json_line(_as_json(wish, done)))  # noqa: T201 - said to the user
    else:
        print(printable(_sentence(wish, group, done)))  # noqa: T201 - as above
    return 0


def _group_of(picture: FleetPicture, processor: str) -> GroupPicture:
    """Return the ladder that *processor* is a rung of.

    Raises:
        ToolError: Nobody has such a one.
    """
    known = [rung.processor for group in picture.groups for rung in group.rungs]
    for group in picture.groups:
        if any(rung.processor == processor for rung in group.rungs):
            return group
    named = ", ".join(known[:MAX_NAMED]) + (f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else "")
    raise ToolError(
        f"no worker of namespace {picture.namespace!r} has a processor {processor!r};"
        + (f" known: {named}" if known else " no worker tells of any: is the namespace spelt right?")
    )


class _Table(HealthWatcher):
    """The health table as it comes; a watcher of the backend, on its thread."""

    def __init__(self) -> None:
        self.rows: dict[str, SharedRecord] = {}
        self.is_known = threading.Event()

    def table(self, rows: Mapping[str, SharedRecord]) -> None:
        self.rows.update(rows)
        self.is_known.set()

    def news(self, news: HealthNews) -> None:
        if news.row is not None:
            self.rows[news.processor] = news.row

    def lost(self) -> None:
        pass  # whoever asks is told by the answer


async def _decide(backend: SignalBackend, wish: Wish, processor: str) -> Done:
    """Offer the decision until the table takes it.

    Raises:
        ToolError: The bus went away, or does not understand.
    """
    table = _Table()
    backend.watch(table)
    try:
        return await _offer(backend, table, wish, processor)
    finally:
        backend.unwatch(table)


async def _offer(backend: SignalBackend, table: _Table, wish: Wish, processor: str) -> Done:
    if not await anyio.to_thread.run_sync(table.is_known.wait, ANSWER_SECONDS):
        raise ToolError(f"the bus has not shown its health table within {ANSWER_SECONDS:g} s; nothing was changed")
    for _ in range(_MAX_TRIES):
        now = backend.bus_time()
        row = table.rows.get(processor) or SharedRecord(0, HealthRecord(processor, epoch=0, since=now, by=_own_name()))
        if not row.is_readable:
            raise ToolError(f"a newer version of this library decided about {processor!r}; upgrade this one")
        change = _change(wish, row.record, now)
        if change is None:
            return Done(row.record, row.record, now)
        try:
            answer = backend.swap(Swap(change.cause, row.version, change.after))
            if await anyio.to_thread.run_sync(answer.result, ANSWER_SECONDS):
                return Done(row.record, change.after, now)
        except (BusUnavailableError, TimeoutError) as error:
            raise ToolError(f"the bus went away, and may or may not have taken it ({error}); look at `top`") from None
    raise ToolError(f"{processor!r} changes faster than it can be decided about; try again")


def _change(wish: Wish, record: HealthRecord, now: float) -> Change | None:
    decide = isolated if wish == "isolate" else restored
    return decide(record, by=_own_name(), now=now)


def _own_name() -> str:
    """Return who decides, for views: nobody's origin says that to people."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = "somebody"
    return printable(f"{user}@{socket.gethostname()}")[:120]


def _tell_edge(sink: SignalSink, group: GroupPicture, done: Done) -> None:
    """Raise what the worker that caused the edge would raise."""
    name, was_up, is_up = done.after.processor, done.before.is_up, done.after.is_up
    if is_up and not was_up:
        route = _route(group, name, is_up=True)
        sink.raise_signal(f"failover.restored:{name}", payload={"route": route, "local": False})
    elif was_up and not is_up:
        route = _route(group, name, is_up=False)
        sink.raise_signal(f"failover.requested:{name}→{_next(group, name)}", payload={"route": route, "local": False})
        if route is None:
            sink.raise_signal("failover.exhausted", group.group)


def _route(group: GroupPicture, changed: str, *, is_up: bool) -> str | None:
    """Return the highest processor that is up, once *changed* is or is not."""
    ups = (rung.processor for rung in group.rungs if (is_up if rung.processor == changed else rung.state == "up"))
    return next(ups, None)


def _next(group: GroupPicture, name: str) -> str:
    """Return the rung below, healthy or not; the next number where there is none."""
    names = [rung.processor for rung in group.rungs]
    place = names.index(name)
    if place + 1 < len(names):
        return names[place + 1]
    priority = group.rungs[place].priority
    return f"{name.removesuffix(str(priority))}{priority + 1}"


def _sentence(wish: Wish, group: GroupPicture, done: Done) -> str:
    before, after = done.before, done.after
    name, was = after.processor, before.state_at(done.at)
    if before == after:
        return f"{name} is isolated already, since {clock_text(before.since, done.at)}, by {before.by}; nothing changed"
    if wish == "reset" and before.is_up:
        return f"{name} is up, as before; what was counted against it is forgotten (epoch {after.epoch})"
    since = f" since {clock_text(before.since, done.at)}" if before.epoch else ""
    if wish == "reset":
        return f"{name} is up; it was {was}{since} (epoch {before.epoch} → {after.epoch})"
    route = _route(group, name, is_up=False)
    work = "no rung is left, so work waits" if route is None else f"work goes to {route}"
    return f"{name} is isolated; it was {was}{since} (epoch {before.epoch} → {after.epoch}); {work}"


def _as_json(wish: Wish, done: Done) -> dict[str, object]:
    def shown(record: HealthRecord) -> dict[str, object]:
        rung = picture_rung(record.processor, 0, record, failures=0, now=done.at)
        return {"state": rung.state, "since": rung.since, "epoch": rung.epoch, "by": rung.by}

    return {
        "processor": done.after.processor,
        "cause": wish,
        "changed": done.before != done.after,
        "before": shown(done.before),
        "after": shown(done.after),
    }
