"""What type checkers must see in the telemetry: nothing here runs."""

from __future__ import annotations

from typing import assert_type

from ephemeral import (
    EphemeralKeyedWorkCoordinator,
    EphemeralResultCoordinator,
    Operation,
    PriorityProcessorAtom,
    SignalSink,
    Subscription,
)
from ephemeral_redis.telemetry import Watched
from ephemeral_redis.telemetry.logs import SignalHandler, log_signals
from ephemeral_redis.telemetry.otel import OpenTelemetryMetrics, add_span_events, traced
from ephemeral_redis.telemetry.prometheus import PrometheusCollector


async def price_of(item: str) -> int:
    return len(item)


async def price_with_operation(item: str, op: Operation) -> int:
    return len(item) + op.id


def plain_price_of(item: str) -> int:
    return len(item)


async def a_traced_body_keeps_its_types(sink: SignalSink) -> None:
    result = EphemeralResultCoordinator(traced(price_of))
    assert_type(await result.submit("item"), int)
    with_operation = EphemeralResultCoordinator(traced(price_with_operation, name="price"))
    assert_type(await with_operation.submit("item"), int)
    plain = EphemeralResultCoordinator(traced(plain_price_of))
    assert_type(await plain.submit("item"), int)
    assert_type(await PriorityProcessorAtom(1, traced(price_of), sink).call("item"), int)
    await result.submit(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def what_is_watched_is_given_as_it_is(
    sink: SignalSink, keyed: EphemeralKeyedWorkCoordinator[str, bytes], result: EphemeralResultCoordinator[str, int]
) -> None:
    watched = Watched(sink, keyed=keyed, result=result)
    with PrometheusCollector(watched) as collector, OpenTelemetryMetrics(watched) as metrics:
        assert_type(collector, PrometheusCollector)
        assert_type(metrics, OpenTelemetryMetrics)
    assert_type(log_signals(sink, {"order.*"}, levels={"*.lost": 40}), Subscription)
    assert_type(add_span_events(sink, "order.*"), Subscription)
    with SignalHandler(sink).attached() as handler:
        assert_type(handler, SignalHandler)
    Watched(orders="orders")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
