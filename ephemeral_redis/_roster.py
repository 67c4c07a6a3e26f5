"""What each sink tells of itself on the bus every other second, for whoever watches the fleet.

Nobody's decisions rest on it: a record that is lost, late or cannot be read is missing from a view and nowhere else.
"""

from __future__ import annotations

import logging
import math
import os
import platform
import socket
import time
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import anyio
from redis.exceptions import ResponseError

from ephemeral import GroupStatistics
from ephemeral.abc import HealthRules

from . import _codec
from .watch.picture import WorkerPicture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ephemeral import LadderStatus, RungStatus, SinkStatistics
    from ephemeral.abc import SignalReceiver

    from ._clock import BusClock
    from ._scripts import Calls
    from ._settings import Settings
    from ._statistics import BusStatistics

VERSION = 1
"""Of a record. Fields may be added under the same one; readers pass over what they do not know."""

BEAT_SECONDS = 2.0
LIFETIME_SECONDS = 10.0
"""How long a record holds unless told again: a worker that died is seen as silent before it is gone."""

MAX_WORKERS = 1000
"""Records that the bus keeps, those told last."""

MAX_RECORD_BYTES = 64 * 1024
MAX_LADDERS = 32
"""Ladders that a record has room for; the others of such a sink are not told."""

MAX_RUNGS = 32
MAX_NAME_BYTES = 128
_log = logging.getLogger("ephemeral")


@dataclass(frozen=True, slots=True)
class ToldRung:
    """One rung, as one worker sees it.

    Attributes:
        processor: Its name in signals.
        priority: Its place in the ladder.
        state: ``"up"``, ``"down"`` or ``"isolated"``.
        is_alone: Whether this worker alone holds it down.
        failures: What counts against it here.
        rules: By which this worker judges it.
    """

    processor: str
    priority: int
    state: str
    is_alone: bool
    failures: int
    rules: HealthRules


@dataclass(frozen=True, slots=True)
class ToldLadder:
    """One ladder of one worker.

    Attributes:
        group: Its name.
        statistics: Its counters in this worker.
        rungs: By priority.
    """

    group: str
    statistics: GroupStatistics
    rungs: tuple[ToldRung, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What one sink told of itself.

    Attributes:
        worker: For views.
        retention: Seconds that its bus keeps signals.
        ladders: By group.
    """

    worker: WorkerPicture
    retention: float
    ladders: tuple[ToldLadder, ...]


class Roster:
    """Tells of one sink. Lives on the portal's thread.

    Args:
        settings: What its backend was made with.
        clock: The bus's.
        receiver: The sink.
    """

    def __init__(self, settings: Settings, clock: BusClock, receiver: SignalReceiver) -> None:
        self._settings = settings
        self._clock = clock
        self._receiver = receiver
        self._started = time.monotonic()
        self._is_refused = False

    async def run(self, calls: Calls) -> None:
        """Tell for ever; raises when the connection ends."""
        while True:
            await self._tell(calls, self._record())
            await anyio.sleep(BEAT_SECONDS)

    async def leave(self, calls: Calls) -> None:
        """Take back what was told; raises when the connection ends."""
        await self._tell(calls, b"")

    async def _tell(self, calls: Calls, record: bytes) -> None:
        try:
            await calls.enrol(record, lifetime=LIFETIME_SECONDS, limit=MAX_WORKERS)
        except ResponseError as error:
            # Whatever it may not or cannot do for now, no work waits for this.
            if not self._is_refused:
                self._is_refused = True
                _log.warning("the bus keeps no record of this worker, so views of the fleet miss it: %s", error)

    def _record(self) -> bytes:
        started = self._clock.now() - (time.monotonic() - self._started)
        name = self._settings.name or default_name()
        return pack(
            describe(name, started, self._receiver.statistics()),
            self._receiver.get_ladders(),
            retention=self._settings.bounds.retention,
        )


def default_name() -> str:
    """Return what a worker calls itself unless it was told: of this process, so a fork has one of its own."""
    return f"{socket.gethostname()}:{os.getpid()}"


@cache
def _own_version() -> str:
    try:
        return version("ephemeral-redis")
    except PackageNotFoundError:  # used from a checkout that was never installed
        return "unknown"


def describe(name: str, started: float, sink: SinkStatistics) -> dict[str, Any]:
    """Return what a worker's picture says, but for who it is, when it said so, and its ladders' sums."""
    bus: BusStatistics = sink.bus
    return {
        "name": name,
        "version": _own_version(),
        "python": platform.python_version(),
        "started": started,
        "is_degraded": bus.is_degraded,
        "degraded_seconds": bus.degraded_seconds,
        "raised": sink.raised - bus.remote,
        "sent": bus.sent,
        "dropped": bus.dropped + bus.stale,
        "outbox": bus.outbox,
        "remote": bus.remote,
        "missed": bus.missed,
        "lag": bus.lag,
        "undecodable": bus.undecodable,
        "reconnects": bus.reconnects,
        "round_trip": bus.round_trip_p99,
        "listener_errors": sink.listener_errors,
        "undelivered": sink.undelivered,
        "reports_dropped": bus.reports_dropped,
    }


def pack(worker: Mapping[str, Any], ladders: tuple[LadderStatus, ...], *, retention: float) -> bytes:
    """Pack a record: its version, and a map that may grow."""
    shown = [_packed_ladder(ladder) for ladder in ladders[:MAX_LADDERS]]
    totals = {
        "pending": sum(ladder.statistics.pending_count for ladder in ladders),
        "active": sum(ladder.statistics.active_count for ladder in ladders),
    }
    return _codec.pack([VERSION, {**worker, **totals, "retention": retention, "ladders": shown}])


def _packed_ladder(ladder: LadderStatus) -> dict[str, Any]:
    rungs = [_packed_rung(rung) for rung in ladder.rungs[:MAX_RUNGS]]
    return {"group": ladder.group, "statistics": asdict(ladder.statistics), "rungs": rungs}


def _packed_rung(rung: RungStatus) -> dict[str, Any]:
    return {
        "processor": rung.record.processor,
        "priority": rung.priority,
        "state": rung.record.state,
        "is_alone": rung.record.is_local,
        "failures": rung.failures,
        "rules": asdict(rung.rules),
    }


def unpack(origin: bytes, told: float, value: bytes) -> Told:
    """Return what a record says.

    Args:
        origin: Who told it, 8 bytes.
        told: When, by the server's clock.
        value: The record.

    Raises:
        NewerError: It is of another version.
        UndecodableError: It breaks a limit, or is no record of ours at all.
    """
    try:
        if len(value) > MAX_RECORD_BYTES or len(origin) != 8:
            raise _codec.UndecodableError("beyond the limits")  # noqa: TRY301  one handler words them all
        found, record = _codec.unpack(value)
        if found != VERSION:
            raise _codec.NewerError(f"version {found!r:.20}")  # noqa: TRY301  as above
        return Told(
            _worker(record, origin.hex(), told),
            _finite(record["retention"]),
            tuple(_ladder(ladder) for ladder in record["ladders"][:MAX_LADDERS]),
        )
    except _codec.UndecodableError:
        raise
    except Exception as error:  # noqa: BLE001  hostile bytes find every error there is
        raise _codec.UndecodableError(f"{type(error).__name__}: {error}") from None


def _ladder(value: dict[str, Any]) -> ToldLadder:
    rungs = (
        ToldRung(
            _text(rung["processor"]),
            int(rung["priority"]),
            _text(rung["state"]),
            bool(rung["is_alone"]),
            int(rung["failures"]),
            HealthRules(**_checked(HealthRules, rung["rules"])),
        )
        for rung in value["rungs"][:MAX_RUNGS]
    )
    statistics = GroupStatistics(**_checked(GroupStatistics, value["statistics"]))
    return ToldLadder(_text(value["group"]), statistics, tuple(rungs))


def _worker(record: dict[str, Any], origin: str, told: float) -> WorkerPicture:
    fields_of: dict[str, Any] = {**_checked(WorkerPicture, record), "origin": origin, "told": told}
    return WorkerPicture(**fields_of)


def _checked(kind: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return those of *values* that *kind* has fields for, each of the type that its annotation says."""
    types = {field.name: field.type for field in fields(kind)}
    return {name: _as(types[name], value) for name, value in values.items() if name in types}


def _as(annotation: Any, value: Any) -> Any:
    if value is None and "None" in annotation:
        return None
    match annotation.partition(" ")[0]:
        case "int":
            return _whole(value)
        case "float":
            return _finite(value)
        case "bool":
            return bool(value)
        case _:
            return _text(value)


def _whole(value: Any) -> int:
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("out of range")
    return number


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("no number")
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value.encode()) > 512:
        raise _codec.UndecodableError("text beyond the limits")
    return value
