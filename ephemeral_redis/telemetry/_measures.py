"""What there is to measure: one table, which each exporter reads, so that no two of them differ.

Names, units and kinds are those of OpenTelemetry; Prometheus' are derived from them. No value of a label is ever an id
or a key: there are as many series as there are sinks, coordinators, rungs and outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from ._watched import Named, RungReading, Watched

Kind: TypeAlias = Literal["counter", "amount", "gauge"]
"""``"counter"``: only grows while the process lives. ``"amount"``: as it is now, and the sum over processes means
something. ``"gauge"``: as it is now, and it does not."""

STATES: Final = ("up", "down", "probing", "isolated")


class Point(NamedTuple):
    """One value.

    Attributes:
        labels: Values of the labels of its family, and of its measure's own if that has one.
        value: The number.
    """

    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric of whatever a family measures.

    Attributes:
        kind: Whether it only grows.
        name: Dotted.
        unit: As UCUM writes it, ``{signal}`` for things that are counted; ``1`` for yes and no.
        help: One sentence.
        read: Takes the number, or one for each value of the label *by*, from what the family found; None: unknown.
        by: A label of its own; empty: it has none.
    """

    kind: Kind
    name: str
    unit: str
    help: str
    read: Callable[[Any], float | Mapping[str, float | None] | None]
    by: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Measures of one kind of thing.

    Attributes:
        labels: What tells one such thing from others.
        find: Yields what there is to read, with the values of *labels*.
        measures: What is read of each.
    """

    labels: tuple[str, ...]
    find: Callable[[Watched], Iterable[Named[Any]]]
    measures: tuple[Measure, ...]

    def labels_of(self, measure: Measure) -> tuple[str, ...]:
        """Return the names of all labels of *measure*."""
        return (*self.labels, measure.by) if measure.by else self.labels


def points(measure: Measure, found: Iterable[Named[Any]]) -> Iterable[Point]:
    """Yield the values of *measure* for all that its family has found; what is unknown is left out."""
    for labels, subject in found:
        value = measure.read(subject)
        if isinstance(value, Mapping):
            for part, number in value.items():
                if number is not None:
                    yield Point((*labels, part), number)
        elif value is not None:
            yield Point(labels, value)


def _field(name: str) -> Callable[[Any], float | None]:
    # Other buses than Redis count other things: what they do not know has no series.
    return lambda statistics: getattr(statistics, name, None)


def _fields(**fields: str) -> Callable[[Any], Mapping[str, float | None]]:
    readers = {part: attrgetter(name) for part, name in fields.items()}
    return lambda statistics: {part: read(statistics) for part, read in readers.items()}


def _quantiles(bus: Any) -> Mapping[str, float | None]:
    return {"0.5": getattr(bus, "round_trip_p50", None), "0.99": getattr(bus, "round_trip_p99", None)}


def _state(reading: RungReading) -> Mapping[str, float | None]:
    return {state: float(state == reading.state) for state in STATES}


_SINK: Final = (
    Measure("counter", "ephemeral.signals.raised", "{signal}",
            "Signals raised into the window, those that the bus brought included.", _field("raised")),
    Measure("amount", "ephemeral.signals.live", "{signal}", "Signals in the window.", _field("live")),
    Measure("counter", "ephemeral.signals.forgotten", "{signal}",
            "Signals that left the window by age or capacity.", _field("forgotten")),
    Measure("counter", "ephemeral.signals.cleared", "{signal}",
            "Signals taken out of the window by a clear.", _field("cleared")),
    Measure("amount", "ephemeral.listeners.open", "{listener}", "Open subscriptions.", _field("listeners")),
    Measure("counter", "ephemeral.listeners.errors", "{error}",
            "How often a listener raised.", _field("listener_errors")),
    Measure("counter", "ephemeral.listeners.cut", "{delivery}",
            "How often listeners were not called because raises had nested too deep.", _field("deliveries_cut")),
    Measure("counter", "ephemeral.listeners.undelivered", "{signal}",
            "Signals of other workers whose listeners were not called because their loop was too far behind.",
            _field("undelivered")),
)  # fmt: skip

_BUS: Final = (
    Measure("amount", "ephemeral.bus.degraded", "1",
            "Whether the bus cannot be reached now (1) or can (0).", _field("is_degraded")),
    Measure("counter", "ephemeral.bus.degraded_time", "s",
            "How long the bus could not be reached.", _field("degraded_seconds")),
    Measure("counter", "ephemeral.bus.reconnects", "{reconnect}",
            "How often the bus was reached again.", _field("reconnects")),
    Measure("amount", "ephemeral.bus.outbox", "{signal}", "Signals that wait to be sent.", _field("outbox")),
    Measure("gauge", "ephemeral.bus.outbox_age", "s",
            "Age of the oldest signal that waits to be sent.", _field("oldest_age")),
    Measure("counter", "ephemeral.bus.sent", "{signal}",
            "Signals that the server has acknowledged.", _field("sent")),
    Measure("counter", "ephemeral.bus.dropped", "{signal}",
            "Signals not sent because the outbox was full or the server refused them.", _field("dropped")),
    Measure("counter", "ephemeral.bus.stale", "{signal}",
            "Signals not sent because they were older than the bus keeps.", _field("stale")),
    Measure("counter", "ephemeral.bus.duplicate", "{signal}",
            "Signals acknowledged of batches that the server had already.", _field("duplicate")),
    Measure("counter", "ephemeral.bus.batches", "{batch}", "Batches acknowledged.", _field("batches")),
    Measure("gauge", "ephemeral.bus.round_trip", "s",
            "Time from sending a batch to its acknowledgement, of the last 512.", _quantiles, by="quantile"),
    Measure("counter", "ephemeral.bus.received", "{signal}",
            "Signals of other workers that were received.", _field("remote")),
    Measure("gauge", "ephemeral.bus.lag", "s",
            "Age of the last of them when it was received.", _field("lag")),
    Measure("counter", "ephemeral.bus.repeated", "{signal}",
            "Signals received twice and passed on once.", _field("repeated")),
    Measure("counter", "ephemeral.bus.missed", "{signal}",
            "Signals of other workers that will never come.", _field("missed")),
    Measure("counter", "ephemeral.bus.gaps", "{gap}", "How often signals of others never came.", _field("gaps")),
    Measure("counter", "ephemeral.bus.undecodable", "{entry}",
            "Entries of the bus that could not be read.", _field("undecodable")),
    Measure("counter", "ephemeral.bus.foreign", "{entry}",
            "Entries and rows passed over because a newer version of this library wrote them.", _field("foreign")),
    Measure("counter", "ephemeral.bus.reports", "{report}",
            "Ends of calls that the health table has counted.", _field("reports")),
    Measure("counter", "ephemeral.bus.reports_dropped", "{report}",
            "Ends of calls that were never told because too many waited.", _field("reports_dropped")),
    Measure("counter", "ephemeral.bus.transitions", "{transition}",
            "Changes of health that this worker made for the fleet.", _field("transitions")),
)  # fmt: skip

_LADDER: Final = (
    Measure("counter", "ephemeral.ladder.items", "{item}", "Items and calls that ended, by how.",
            _fields(completed="total_completed", failed="total_failed", cancelled="total_cancelled",
                    abandoned="total_abandoned", undelivered="total_undelivered"), by="outcome"),
    Measure("amount", "ephemeral.ladder.pending", "{item}", "Items and calls that wait.", _field("pending_count")),
    Measure("amount", "ephemeral.ladder.active", "{item}", "Items and calls that run.", _field("active_count")),
    Measure("counter", "ephemeral.ladder.callback_errors", "{error}",
            "How often on_failed or is_failure raised.", _field("callback_errors")),
)  # fmt: skip

_RUNG: Final = (
    Measure("amount", "ephemeral.rung.state", "1",
            "Health of the rung as this worker knows it: 1 for the state it is in, 0 for the others.",
            _state, by="state"),
    Measure("gauge", "ephemeral.rung.since", "s",
            "When it went up or down, seconds since 1970.", attrgetter("status.record.since")),
    Measure("amount", "ephemeral.rung.alone", "1",
            "Whether only this worker holds it for down (1) or not (0).", attrgetter("status.record.is_local")),
    Measure("amount", "ephemeral.rung.failures", "{failure}",
            "Failures that count against it; of one that is down, those that took it down.",
            attrgetter("status.failures")),
    Measure("amount", "ephemeral.rung.slots", "{item}",
            "How many items it may process at once.", attrgetter("status.slots")),
    Measure("amount", "ephemeral.rung.active", "{item}",
            "Items, calls and probes that it processes.", attrgetter("status.active")),
)  # fmt: skip

# How many were accepted is not among them: off the loop's thread it could be read one too low, and a counter that
# shrinks is taken for a restart. It is the sum of what ended, waits and runs.
_COORDINATOR: Final = (
    Measure("counter", "ephemeral.coordinator.operations", "{operation}", "Operations that ended, by how.",
            _fields(completed="total_completed", failed="total_failed", skipped="total_skipped",
                    cancelled="total_cancelled"), by="outcome"),
    Measure("amount", "ephemeral.coordinator.pending", "{item}", "Items that wait.", _field("pending_count")),
    Measure("amount", "ephemeral.coordinator.active", "{operation}", "Operations that run.", _field("active_count")),
    Measure("amount", "ephemeral.coordinator.limit", "{operation}",
            "How many operations may run.", _field("max_concurrency")),
    Measure("amount", "ephemeral.coordinator.tracked", "{operation}",
            "Operations that are remembered.", _field("tracked")),
    Measure("amount", "ephemeral.coordinator.state", "1",
            "Whether it is paused by hand, deferred by a signal, completed: 1 or 0 for each.",
            _fields(paused="is_paused", deferred="is_deferred", completed="is_completed"), by="state"),
    Measure("counter", "ephemeral.coordinator.callback_errors", "{error}",
            "How often a callback of the options raised.", _field("callback_errors")),
    Measure("counter", "ephemeral.coordinator.dropped_signals", "{signal}",
            "Signals that on_signal_async was not told of because too many waited.", _field("dropped_signals")),
)  # fmt: skip

_DISPATCHER: Final = (
    Measure("counter", "ephemeral.dispatcher.calls", "{call}", "Calls of handlers that ended, by how.",
            _fields(processed="processed", failed="failed", dropped="dropped"), by="outcome"),
    Measure("amount", "ephemeral.dispatcher.queued", "{call}", "Calls of handlers that wait.", _field("queued")),
    Measure("amount", "ephemeral.dispatcher.active", "{call}", "Calls of handlers under way.", _field("active")),
)  # fmt: skip

FAMILIES: Final = (
    Family(("sink",), Watched.sinks, _SINK),
    Family(("sink",), Watched.buses, _BUS),
    Family(("sink", "group"), Watched.ladders, _LADDER),
    Family(("sink", "group", "processor"), Watched.rungs, _RUNG),
    Family(("coordinator",), Watched.coordinators, _COORDINATOR),
    Family(("dispatcher",), Watched.dispatchers, _DISPATCHER),
)
