"""What is measured, and that OpenTelemetry and Prometheus are told the same of it."""

from __future__ import annotations

import dataclasses
import json
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest, make_asgi_app

from ephemeral import (
    CoordinatorStatistics,
    DispatcherStatistics,
    EphemeralKeyedWorkCoordinator,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
    GroupStatistics,
    HealthOptions,
    PriorityProcessorAtom,
    SignalDispatcher,
    SignalEvent,
    SignalSink,
    SinkStatistics,
)
from ephemeral.testing import MemoryBus
from ephemeral_redis import BusStatistics, RedisSignalBackend
from ephemeral_redis.server import RedisServer
from ephemeral_redis.telemetry import Watched
from ephemeral_redis.telemetry._measures import FAMILIES, Measure, points
from ephemeral_redis.telemetry.otel import OpenTelemetryMetrics
from ephemeral_redis.telemetry.prometheus import PrometheusCollector

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(watched: Watched) -> Series:
    """Return what a scrape shows."""
    registry = CollectorRegistry()
    with PrometheusCollector(watched, registry):
        samples = [sample for metric in registry.collect() for sample in metric.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


def value(series: Series, name: str, **labels: str) -> float:
    return series[name, tuple(sorted(labels.items()))]


class Collection:
    """A meter provider whose numbers a test reads."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def metrics(self) -> Iterator[Any]:
        data = self.reader.get_metrics_data()
        for resource in () if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                yield from scope.metrics

    def series(self) -> Series:
        """Return them under the names that Prometheus has for them."""
        found: Series = {}
        for metric in self.metrics():
            is_counter = getattr(metric.data, "is_monotonic", False)
            name = metric.name.replace(".", "_") + ("_seconds" * (metric.unit == "s")) + ("_total" * is_counter)
            for point in metric.data.data_points:
                labels = {key.removeprefix("ephemeral."): str(part) for key, part in point.attributes.items()}
                found[name, tuple(sorted(labels.items()))] = point.value
        return found


@pytest.fixture
def collection() -> Iterator[Collection]:
    collection = Collection()
    yield collection
    collection.provider.shutdown()


async def process(item: str) -> str:
    if item.startswith("bad"):
        raise ConnectionError(item)
    return item


async def test_a_scrape_tells_what_happened() -> None:
    async def body(item: str) -> None:
        if item == "bad":
            raise ValueError(item)

    async with (
        SignalSink(max_capacity=100) as sink,
        PriorityProcessorAtom(1, process, sink, failure_threshold=2, reroute_failed=True) as primary,
        PriorityProcessorAtom(2, lambda item: item, sink),
        EphemeralWorkCoordinator(body) as work,
        SignalDispatcher() as dispatcher,
    ):
        dispatcher.attach(sink)
        dispatcher.register("order.*", handle)
        sink.raise_signal("order.placed", key="customer-7")
        await work.enqueue_many(["good", "bad", "good"])
        work.complete()
        await work.drain()
        await dispatcher.flush()
        primary.isolate()
        raised = sink.statistics().raised
        series = scraped(Watched(sink, mails=work, handlers=dispatcher))

    assert value(series, "ephemeral_signals_raised_total", sink="default") == raised
    assert value(series, "ephemeral_coordinator_operations_total", coordinator="mails", outcome="completed") == 2
    assert value(series, "ephemeral_coordinator_operations_total", coordinator="mails", outcome="failed") == 1
    assert value(series, "ephemeral_coordinator_state", coordinator="mails", state="completed") == 1
    assert value(series, "ephemeral_coordinator_state", coordinator="mails", state="paused") == 0
    assert value(series, "ephemeral_dispatcher_calls_total", dispatcher="handlers", outcome="processed") == 1
    rung = {"sink": "default", "group": "default", "processor": "pri1"}
    states = {state: value(series, "ephemeral_rung_state", state=state, **rung) for state in STATES}
    assert states == {"up": 0, "down": 0, "probing": 0, "isolated": 1}
    assert value(series, "ephemeral_ladder_pending", sink="default", group="default") == 0
    assert not [name for name, _ in series if name.startswith("ephemeral_bus")]


STATES = ("up", "down", "probing", "isolated")


async def handle(event: SignalEvent) -> None:
    await anyio.lowlevel.checkpoint()


async def test_a_failover_is_seen_as_it_happens_and_its_items_by_how_they_ended() -> None:
    sick = True

    async def flaky(item: str) -> str:
        if sick:
            raise ConnectionError(item)
        return item

    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, flaky, sink, group="mail", failure_threshold=1, probe_interval=5) as primary,
        PriorityProcessorAtom(2, process, sink, group="mail"),
    ):
        watched = Watched(sink)
        rung = {"sink": "default", "group": "mail", "processor": "mail.pri1"}
        assert value(scraped(watched), "ephemeral_rung_state", state="up", **rung) == 1
        with pytest.raises(ConnectionError):
            await primary.call("one")
        await primary.enqueue("two")
        await primary.drain()
        series = scraped(watched)
        assert value(series, "ephemeral_rung_state", state="down", **rung) == 1
        assert value(series, "ephemeral_rung_state", state="up", **rung) == 0
        assert value(series, "ephemeral_rung_failures", **rung) == 1
        since = primary.get_health().since.timestamp()
        assert value(series, "ephemeral_rung_since_seconds", **rung) == pytest.approx(since)
        ended = {
            outcome: value(series, "ephemeral_ladder_items_total", sink="default", group="mail", outcome=outcome)
            for outcome in ("completed", "failed", "cancelled", "abandoned", "undelivered")
        }
        assert ended == {"completed": 1, "failed": 1, "cancelled": 0, "abandoned": 0, "undelivered": 0}
        sick = False
        await anyio.sleep(5)
        await primary.call("three")
        assert value(scraped(watched), "ephemeral_rung_state", state="up", **rung) == 1


async def test_a_probe_under_way_is_seen() -> None:
    async def probe() -> bool:
        await anyio.sleep(1)
        return True

    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, process, sink, failure_threshold=1, probe_interval=5, probe=probe) as atom,
    ):
        with pytest.raises(ConnectionError):
            await atom.call("bad")
        rung = {"sink": "default", "group": "default", "processor": "pri1"}
        for seconds, state in ((4.5, "down"), (1, "probing"), (1, "up")):
            await anyio.sleep(seconds)
            series = scraped(Watched(sink))
            seen = {state: value(series, "ephemeral_rung_state", state=state, **rung) for state in STATES}
            assert seen == {**dict.fromkeys(STATES, 0), state: 1}


async def test_both_exporters_tell_the_same(collection: Collection) -> None:
    async with (
        MemoryBus() as bus,
        SignalSink(backend=bus.backend(), clock=anyio.current_time) as sink,
        SignalSink() as other,
        PriorityProcessorAtom(1, process, sink, health=HealthOptions(policy="windowed")) as primary,
        EphemeralKeyedWorkCoordinator[str, str](str, process) as keyed,
        EphemeralResultCoordinator[str, str](process) as result,
        SignalDispatcher() as dispatcher,
    ):
        with pytest.raises(ConnectionError):
            await primary.call("bad")
        await keyed.enqueue_many(["a", "bad", "a"])
        await result.submit("b")
        watched = Watched(sink, other=other, keyed=keyed, result=result, handlers=dispatcher)
        with OpenTelemetryMetrics(watched, collection.provider):
            told = collection.series()
        assert told == scraped(watched)
        assert len(told) > 60


LEFT_OUT = {
    SinkStatistics: {"bus"},  # a family of its own
    BusStatistics: {"last_error", "applied"},  # a text; what is sent less what is duplicate
    GroupStatistics: {"total_enqueued"},
    CoordinatorStatistics: {"total_enqueued"},
    DispatcherStatistics: set[str](),
}


class Noting:
    """Stands for statistics, and notes what is read of them."""

    def __init__(self) -> None:
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> float:
        self.read.add(name)
        return 1.0


@pytest.mark.parametrize("kind", LEFT_OUT, ids=lambda kind: kind.__name__)
def test_every_counter_that_something_shows_is_measured(kind: type[Any]) -> None:
    wanted = {field.name for field in dataclasses.fields(kind)} - LEFT_OUT[kind]
    by_family = [read_of(family.measures) for family in FAMILIES]
    assert wanted in by_family


def read_of(measures: Iterable[Measure]) -> set[str]:
    noting = Noting()
    for measure in measures:
        try:
            list(points(measure, [(("x",), noting)]))
        except AttributeError:  # a rung is read through its record
            return set()
    return noting.read


def test_names_follow_the_conventions_of_both() -> None:
    measures = [(family, measure) for family in FAMILIES for measure in family.measures]
    names = [measure.name for _, measure in measures]
    assert len(set(names)) == len(names)
    for family, measure in measures:
        assert measure.name.startswith("ephemeral.")
        assert measure.name.replace(".", "").replace("_", "").isalpha()
        assert measure.unit in {"1", "s"} or (measure.unit[0], measure.unit[-1]) == ("{", "}")
        assert measure.help.endswith(".")
        assert len(set(family.labels_of(measure))) == len(family.labels_of(measure))
    # None is the namespace of another one.
    assert not [(one, two) for one in names for two in names if two.startswith(f"{one}.")]


async def test_no_label_grows_with_the_work() -> None:
    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, process, sink) as primary,
        EphemeralKeyedWorkCoordinator[str, str](str, process) as work,
    ):
        watched = Watched(sink, work=work)
        before = set(scraped(watched))
        for number in range(50):
            sink.raise_signal(f"order.placed:{number}", key=f"customer-{number}")
            await primary.enqueue(f"item-{number}")
            await work.enqueue(f"key-{number}")
        await primary.drain()
        assert set(scraped(watched)) == before


# The registry of things


def test_what_is_watched_has_a_name_of_its_own_and_a_kind_that_is_known() -> None:
    watched = Watched(SignalSink())
    with pytest.raises(ValueError, match="'default' is measured already"):
        watched.add("default", SignalSink())
    with pytest.raises(ValueError, match="must not be empty"):
        watched.add("", SignalSink())
    with pytest.raises(TypeError, match="orders must be a SignalSink, a coordinator or a SignalDispatcher, not str"):
        Watched(orders="orders")  # type: ignore[arg-type]
    watched.remove("default")
    watched.remove("default")
    watched.add("default", SignalSink())


async def test_what_is_removed_is_measured_no_longer() -> None:
    watched = Watched(SignalSink(), second=SignalSink())
    assert value(scraped(watched), "ephemeral_signals_live", sink="second") == 0
    watched.remove("second")
    assert {dict(labels)["sink"] for _, labels in scraped(watched)} == {"default"}


def test_what_cannot_be_read_costs_the_rest_nothing_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, collection: Collection
) -> None:
    class Broken(SignalSink):
        is_broken = True

        def now(self) -> float:
            if self.is_broken:
                raise OSError("no clock")
            return super().now()

    broken = Broken()
    watched = Watched(SignalSink(), broken=broken)
    with OpenTelemetryMetrics(watched, collection.provider):
        for _ in range(2):
            assert value(scraped(watched), "ephemeral_signals_live", sink="default") == 0
            assert value(collection.series(), "ephemeral_signals_live", sink="default") == 0
    assert [record.getMessage() for record in caplog.records] == [
        "the counters of 'broken' cannot be measured; all else is",
        "the rungs of 'broken' cannot be measured; all else is",
    ]
    broken.is_broken = False
    assert value(scraped(watched), "ephemeral_signals_live", sink="broken") == 0
    broken.is_broken = True
    scraped(watched)
    assert len(caplog.records) == 4  # well in between, it is logged again


# Prometheus


def test_a_registry_has_one_collector_and_closing_it_is_idempotent() -> None:
    registry = CollectorRegistry()
    collector = PrometheusCollector(Watched(SignalSink()), registry)
    collector.close()
    with collector:
        with pytest.raises(ValueError, match="Duplicated timeseries"):
            PrometheusCollector(Watched(), registry).__enter__()
        assert b"ephemeral_signals_live" in generate_latest(registry)
        collector.close()
    collector.close()
    assert generate_latest(registry) == b""
    with collector:
        registry.unregister(collector)


def test_an_empty_collector_can_be_registered_and_takes_the_names() -> None:
    registry = CollectorRegistry(auto_describe=True)
    with PrometheusCollector(Watched(), registry):
        assert generate_latest(registry) == b""
        with pytest.raises(ValueError, match="ephemeral_rung_state"):
            PrometheusCollector(Watched(), registry).__enter__()


async def get(app: Any) -> str:
    """Return what an ASGI application answers."""
    sent: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "http.request"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}, receive, send)
    assert sent[0]["status"] == 200
    return b"".join(message.get("body", b"") for message in sent).decode()


async def test_it_is_served_by_the_clients_own_application() -> None:
    registry = CollectorRegistry()
    sink = SignalSink()
    sink.raise_signal("order.placed")
    with PrometheusCollector(Watched(sink), registry):
        shown = await get(make_asgi_app(registry))
    assert 'ephemeral_signals_raised_total{sink="default"} 1.0' in shown
    assert "# TYPE ephemeral_signals_raised_total counter" in shown


# Threads


@contextmanager
def scraping(watched: Watched) -> Iterator[list[Series]]:
    """Scrape in another thread, over and over, while the block is open; there is one scrape before and one after."""
    series = [scraped(watched)]
    is_over = threading.Event()

    def scrape() -> None:
        while not is_over.is_set():
            series.append(scraped(watched))

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield series
    finally:
        is_over.set()
        thread.join()
        series.append(scraped(watched))


@pytest.mark.real_time
async def test_a_scrape_on_another_thread_sees_counters_that_only_grow(caplog: pytest.LogCaptureFixture) -> None:
    async def body(item: int) -> None:
        await anyio.lowlevel.checkpoint()

    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(
            1, process, sink, failure_threshold=2, probe_interval=0.001, reroute_failed=True
        ) as first,
        PriorityProcessorAtom(2, process, sink, failure_threshold=1_000_000),
        EphemeralWorkCoordinator(body) as work,
    ):
        watched = Watched(sink, work=work)
        with scraping(watched) as series:
            for number in range(300):
                await work.enqueue(number)
                await first.enqueue(f"bad-{number}" if number % 7 == 0 else f"{number}")
                await anyio.lowlevel.checkpoint()
                while not series:
                    await anyio.lowlevel.checkpoint()
            await first.drain()
            work.complete()
            await work.drain()
    assert len(series) > 2
    assert not [record for record in caplog.records if "cannot be measured" in record.getMessage()]
    for name, labels in series[0]:
        if name.endswith("_total"):
            values = [seen[name, labels] for seen in series if (name, labels) in seen]
            assert values == sorted(values), name
    assert value(series[-1], "ephemeral_coordinator_operations_total", coordinator="work", outcome="completed") == 300


@pytest.mark.real_time
async def test_nothing_that_collects_waits_for_a_loop(collection: Collection) -> None:
    """As when an exporter is shut down on the loop's own thread, which waits for the exporter's last collection."""

    def collect() -> None:
        collected.append((scraped(watched), collection.series()))

    collected: list[tuple[Series, Series]] = []
    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, process, sink),
        EphemeralWorkCoordinator(process) as work,
        SignalDispatcher() as dispatcher,
    ):
        watched = Watched(sink, work=work, dispatcher=dispatcher)
        with OpenTelemetryMetrics(watched, collection.provider):
            thread = threading.Thread(target=collect)
            thread.start()
            thread.join(20)  # the loop stands still meanwhile
            assert not thread.is_alive()
    [(scrape, told)] = collected
    assert set(scrape) == set(told)


# OpenTelemetry's instruments


def test_kinds_and_units_are_those_of_the_table(collection: Collection) -> None:
    with OpenTelemetryMetrics(Watched(SignalSink()), collection.provider):
        told = {metric.name: (type(metric.data).__name__, metric.unit) for metric in collection.metrics()}
        monotonic = {
            metric.name: getattr(metric.data, "is_monotonic", None)
            for metric in collection.metrics()
            if metric.name.startswith("ephemeral.signals")
        }
    assert told["ephemeral.signals.raised"] == ("Sum", "{signal}")
    assert told["ephemeral.signals.live"] == ("Sum", "{signal}")
    assert (monotonic["ephemeral.signals.raised"], monotonic["ephemeral.signals.live"]) == (True, False)


def test_a_second_export_of_one_provider_is_told_beside_the_first_and_ends_alone(collection: Collection) -> None:
    def sinks() -> set[str]:
        return {dict(labels)["sink"] for _, labels in collection.series()}

    first = OpenTelemetryMetrics(Watched(one=SignalSink()), collection.provider)
    with first:
        with OpenTelemetryMetrics(Watched(two=SignalSink()), collection.provider):
            assert sinks() == {"one", "two"}
        assert sinks() == {"one"}
        first.close()
        assert sinks() == set()
    first.close()
    with OpenTelemetryMetrics(Watched(three=SignalSink()), collection.provider):
        assert sinks() == {"three"}


GLOBAL = """
from ephemeral import SignalSink
from ephemeral_redis.telemetry import Watched
from ephemeral_redis.telemetry.otel import OpenTelemetryMetrics
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

early = OpenTelemetryMetrics(Watched(early=SignalSink())).__enter__()
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
late = OpenTelemetryMetrics(Watched(late=SignalSink()), metrics.get_meter_provider()).__enter__()
[scope] = reader.get_metrics_data().resource_metrics[0].scope_metrics
[live] = [metric for metric in scope.metrics if metric.name == "ephemeral.signals.live"]
print(sorted(point.attributes["ephemeral.sink"] for point in live.data.data_points))
"""


def test_the_applications_provider_may_be_set_later() -> None:
    ran = subprocess.run([sys.executable, "-c", GLOBAL], capture_output=True, text=True, timeout=30, check=False)
    assert (ran.stdout, ran.stderr) == ("['early', 'late']\n", "")


# A real bus


@pytest.mark.real_time
@pytest.mark.server
async def test_a_bus_is_measured_with_its_sink(redis_server: RedisServer, collection: Collection) -> None:
    backend = RedisSignalBackend.from_url(redis_server.url, namespace="telemetry-measured")
    async with SignalSink(backend=backend) as sink:
        for _ in range(3):
            sink.raise_signal("order.placed")
        assert await sink.flush(10)
        watched = Watched(sink)
        series = scraped(watched)
        with OpenTelemetryMetrics(watched, collection.provider):
            assert set(collection.series()) == set(series)
    assert value(series, "ephemeral_bus_sent_total", sink="default") == 3
    assert value(series, "ephemeral_bus_degraded", sink="default") == 0
    assert value(series, "ephemeral_bus_round_trip_seconds", sink="default", quantile="0.99") > 0


# What loads what


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("ephemeral_redis.telemetry", {"opentelemetry", "prometheus_client"}),
        ("ephemeral_redis.telemetry.logs", {"opentelemetry", "prometheus_client"}),
        ("ephemeral_redis.telemetry.otel", {"prometheus_client"}),
        ("ephemeral_redis.telemetry.prometheus", {"opentelemetry"}),
    ],
)
def test_nobody_needs_what_another_module_needs(module: str, unwanted: set[str]) -> None:
    code = f"import {module}, json, sys; print(json.dumps(list(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert {name.partition(".")[0] for name in json.loads(ran.stdout)} & (unwanted | {"redis", "msgpack"}) == set()


def test_the_page_lists_the_metrics_there_are() -> None:
    docs = Path(__file__).parent.parent / "docs"
    page = (docs / "telemetry.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(docs / "make_tables.py"))["with_metrics"](page) == page, "run python docs/make_tables.py"
