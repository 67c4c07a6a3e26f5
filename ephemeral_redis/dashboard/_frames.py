"""What is sent to a page: pictures and signals as server-sent events, each bounded."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import replace
from math import isfinite
from reprlib import Repr
from typing import TYPE_CHECKING, Any, cast

from ephemeral_redis.watch.headline import headline

from ._history import SCOPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ephemeral import SignalEvent
    from ephemeral_redis.watch.picture import Change, FleetPicture, GroupPicture, WorkerPicture

GROUPS = 50
"""How many ladders are sent, those in trouble first."""

WORKERS = 100
"""How many workers are sent, those in trouble first."""

EDGES = 150
STEPS = 50
"""How many changes of health are sent, the latest first, and how many steps on the way to one, such as probes."""

SENTENCES = 8
"""How many sentences of the headline are sent, the worst first; all they speak of stands below."""

ROWS = 30
"""How many signals are sent at a time. More than anybody reads; the others are counted."""

TEXT = 300
"""How many characters of a key and of a payload are sent."""


def frame(event: str, data: Any) -> bytes:
    """Return one server-sent event."""
    try:
        # ASCII only, so that neither a line break nor half a surrogate pair in a name can end or spoil the event.
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:  # somebody told of a number that is none, which JSON does not know
        text = json.dumps(_without_nan(data), separators=(",", ":"))
    return f"event: {event}\ndata: {text}\n\n".encode("ascii")


def picture_frame(picture: FleetPicture) -> bytes:
    """Return what the page shows of *picture*, with its headline, however large the fleet."""
    shown = replace(
        picture,
        groups=tuple(sorted(picture.groups, key=_is_up)[:GROUPS]),
        workers=tuple(sorted(picture.workers, key=_is_well)[:WORKERS]),
        scopes=picture.scopes[:SCOPES],
        changes=_latest(picture.changes),
    )
    known = {"groups_known": len(picture.groups), "workers_known": len(picture.workers)}
    sentences = [sentence.as_json() for sentence in headline(picture)[:SENTENCES]]
    return frame("picture", {**shown.as_json(), **known, "headline": sentences})


class Backlog:
    """The signals that one viewer has yet to be sent: the newest few, and how many more there were.

    Args:
        is_wanted: Whether a signal of this name is to be sent.
    """

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        self._is_wanted = is_wanted
        self._newest: deque[SignalEvent] = deque(maxlen=ROWS)
        self._count = 0

    def add(self, events: Iterable[SignalEvent]) -> bool:
        """Take what was raised, the oldest going where there is no room; return whether there is anything to send."""
        for event in events:
            if self._is_wanted(event.signal):
                self._newest.append(event)
                self._count += 1
        return self._count > 0

    def take(self) -> bytes:
        """Return what there is as one event, newest last, and begin anew."""
        rows = [_row(event) for event in self._newest]
        data = {"rows": rows, "count": self._count, "lost": self._count - len(rows)}
        self._newest.clear()
        self._count = 0
        return frame("signals", data)


def _without_nan(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _without_nan(value) for name, value in cast("dict[str, Any]", data).items()}
    if isinstance(data, list | tuple):
        return [_without_nan(value) for value in cast("Sequence[Any]", data)]
    return None if isinstance(data, float) and not isfinite(data) else data


def _row(event: SignalEvent) -> list[Any]:
    # The id as text: JavaScript rounds a 63-bit number.
    operation = str(event.operation_id) if event.operation_id else ""
    payload = "" if event.payload is None else payload_text(event.payload)
    return [event.timestamp, event.signal, _cut(event.key or ""), event.origin, operation, payload]


class _Plain(Repr):
    """Shows what a payload on a bus may be; of anything else only its type, as what it holds is nobody's here."""

    def repr1(self, x: object, level: int) -> str:
        if type(x) not in (type(None), bool, int, float, str, bytes, list, tuple, dict):
            return f"<{type(x).__name__}>"
        try:
            return super().repr1(x, level)
        except ValueError:  # an int of thousands of digits
            return f"<{type(x).__name__}>"


_PLAIN = _Plain()
_PLAIN.maxstring = _PLAIN.maxother = _PLAIN.maxlong = 100
_PLAIN.maxlist = _PLAIN.maxtuple = _PLAIN.maxdict = 8
_PLAIN.maxlevel = 4


def payload_text(payload: object) -> str:
    """Return *payload* as Python writes it, shortened; runs no code of its type."""
    return _cut(_PLAIN.repr(payload))


def _cut(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[:TEXT]}…"


def _latest(changes: tuple[Change, ...]) -> tuple[Change, ...]:
    left = {True: EDGES, False: STEPS}
    shown: list[Change] = []
    for change in changes:
        if left[change.is_edge] > 0:
            left[change.is_edge] -= 1
            shown.append(change)
    return tuple(shown)


def _is_up(group: GroupPicture) -> bool:
    return all(rung.state == "up" for rung in group.rungs)


def _is_well(worker: WorkerPicture) -> bool:
    amiss = (worker.dropped, worker.missed, worker.undecodable, worker.undelivered, worker.listener_errors)
    return not (worker.is_degraded or any(amiss))
