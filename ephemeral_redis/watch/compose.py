"""Puts a picture together from what was read: values in, values out."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from .picture import Change, GroupPicture, RungPicture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ephemeral.abc import HealthNews, HealthRecord, SharedRecord
    from ephemeral_redis._roster import Told, ToldLadder

_NAME = re.compile(r"(?:(?P<group>.+)\.)?pri(?P<priority>[0-9]{1,6})")
_KINDS = {
    "failures": ("down", True),
    "isolate": ("isolated", True),
    "reset": ("reset", True),
    "healed": ("healed", True),
    "probe_started": ("probing", False),
    "probe_failed": ("probe failed", False),
    "probe_returned": ("lease given back", False),
}


class Place(NamedTuple):
    """Where a processor stands.

    Attributes:
        group: Its ladder.
        priority: Its rung.
    """

    group: str
    priority: int


def place_of(processor: str) -> Place | None:
    """Return where *processor* stands by its name; None if no ladder names its rungs so."""
    found = _NAME.fullmatch(processor)
    return found and Place(found["group"] or "default", int(found["priority"]))


def compose_groups(
    told: Sequence[Told], rows: Mapping[str, SharedRecord], counted: Mapping[str, int], now: float
) -> tuple[GroupPicture, ...]:
    """Return the ladders of a fleet by name: what workers have, and what the health table still speaks of.

    Args:
        told: What the workers tell of themselves.
        rows: The health table; a processor without a row has never been down.
        counted: Failures that count against processors that are up.
        now: The bus's time.
    """
    places: dict[str, dict[str, int]] = {}
    ladders: dict[str, list[tuple[str, ToldLadder]]] = {}
    for one in told:
        for ladder in one.ladders:
            ladders.setdefault(ladder.group, []).append((one.worker.origin, ladder))
            places.setdefault(ladder.group, {}).update({rung.processor: rung.priority for rung in ladder.rungs})
    for processor in rows:
        place = place_of(processor)
        if place is not None:
            places.setdefault(place.group, {}).setdefault(processor, place.priority)
    return tuple(
        _group(group, places[group], ladders.get(group, []), rows=rows, counted=counted, now=now)
        for group in sorted(places)
    )


def _group(
    group: str,
    priorities: Mapping[str, int],
    ladders: Sequence[tuple[str, ToldLadder]],
    *,
    rows: Mapping[str, SharedRecord],
    counted: Mapping[str, int],
    now: float,
) -> GroupPicture:
    alone: dict[str, list[str]] = {}
    for origin, ladder in ladders:
        for rung in ladder.rungs:
            if rung.is_alone and rung.state != "up":
                alone.setdefault(rung.processor, []).append(origin)
    rungs = tuple(
        picture_rung(
            processor,
            priority,
            row.record if (row := rows.get(processor)) is not None and row.is_readable else None,
            failures=counted.get(processor, 0),
            down_alone=tuple(alone.get(processor, ())),
            now=now,
        )
        for processor, priority in sorted(priorities.items(), key=lambda item: (item[1], item[0]))
    )
    statistics = [ladder.statistics for _, ladder in ladders]
    return GroupPicture(
        group=group,
        rungs=rungs,
        route=next((rung.processor for rung in rungs if rung.state == "up"), None),
        workers=len(ladders),
        pending=sum(one.pending_count for one in statistics),
        active=sum(one.active_count for one in statistics),
        completed=sum(one.total_completed for one in statistics),
        failed=sum(one.total_failed for one in statistics),
        cancelled=sum(one.total_cancelled for one in statistics),
        abandoned=sum(one.total_abandoned for one in statistics),
        undelivered=sum(one.total_undelivered for one in statistics),
    )


def picture_rung(
    processor: str,
    priority: int,
    record: HealthRecord | None,
    *,
    failures: int,
    down_alone: tuple[str, ...] = (),
    now: float,
) -> RungPicture:
    """Return one rung.

    Args:
        processor: Its name.
        priority: Its place.
        record: Its health; None: nothing is known of it, so it is up.
        failures: Those that count against it while it is up.
        down_alone: Who holds it down alone.
        now: The clock of the record's times.
    """
    if record is None or record.epoch == 0:
        return RungPicture(processor=processor, priority=priority, state="up", failures=failures, down_alone=down_alone)
    lease = record.lease if record.lease is not None and now < record.lease.until else None
    return RungPicture(
        processor=processor,
        priority=priority,
        state=record.state_at(now),
        since=record.since,
        epoch=record.epoch,
        by=record.by,
        failures=failures if record.is_up else record.failures,
        failed_probes=record.failed_probes,
        prober=lease and lease.owner,
        probe_until=lease and lease.until,
        next_probe=record.probe_due_at if math.isfinite(record.probe_due_at) else None,
        last_probe=record.last_probe_at,
        down_alone=down_alone,
    )


def change_of(at: float, news: HealthNews) -> Change | None:
    """Return what a view shows of *news*; None: nothing, for it is a count alone."""
    if news.row is None or not news.row.is_readable:
        return None
    record = news.row.record
    if news.kind == "probe_passed":
        kind: tuple[str, bool] | None = ("restored", True) if record.is_up else ("probe good", False)
    else:
        kind = _KINDS.get(news.kind)
    if kind is None:
        return None
    return Change(
        at=at,
        kind=kind[0],
        processor=news.processor,
        epoch=record.epoch,
        by=record.by if kind[1] and news.kind != "healed" else news.origin,
        is_edge=kind[1],
    )
