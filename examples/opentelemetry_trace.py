"""One trace from a request through the queue to the processor that did the work, and the failover in it.

Run it: ``python examples/opentelemetry_trace.py``. It prints the spans of two orders with their events, and a few
metrics; an application would export both. Needs the extra ``otel`` and ``opentelemetry-sdk``.
"""

from __future__ import annotations

import anyio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, PriorityProcessorAtom, SignalSink
from ephemeral_redis.telemetry import Watched
from ephemeral_redis.telemetry.otel import OpenTelemetryMetrics, add_span_events, traced

exporter = InMemorySpanExporter()
tracing = TracerProvider(shutdown_on_exit=False)
tracing.add_span_processor(SimpleSpanProcessor(exporter))
tracer = tracing.get_tracer("shop")
reader = InMemoryMetricReader()
metering = MeterProvider([reader], shutdown_on_exit=False)


async def pay(order: str) -> str:
    """Stand in for a payment gateway that is down."""
    raise ConnectionError(f"the gateway does not answer for {order}")


async def pay_by_bank(order: str) -> str:
    """Stand in for another way to pay."""
    return f"{order} paid by bank"


async def main() -> None:
    """Answer two requests at once, and do their work behind them."""
    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, traced(pay, tracer=tracer), sink, failure_threshold=1, reroute_failed=True) as primary,
        PriorityProcessorAtom(2, traced(pay_by_bank, tracer=tracer), sink),
    ):

        async def check_out(order: str) -> None:
            sink.raise_signal("order.received", key=order)
            await primary.call(order)

        options = EphemeralOptions(max_concurrency=1, signals=sink)
        async with EphemeralWorkCoordinator(traced(check_out, tracer=tracer), options) as work:
            watched = Watched(sink, check_out=work)
            with (
                OpenTelemetryMetrics(watched, metering),
                add_span_events(sink, "order.*, failover.*, processing.failed:*"),
            ):
                for order in ("order-1", "order-2"):
                    with tracer.start_as_current_span("POST /orders"):  # ends long before the work does
                        await work.enqueue(order)
                work.complete()
                await work.drain()
                metrics = measured()

    first, second = (show(root) for root in spans_below(None))
    print(*first, *second, *metrics, sep="\n")
    assert first == [
        "POST /orders",
        "  check_out: order.received, processing.failed, failover.requested",
        "    pay: exception",
        "    pay_by_bank",
    ]
    assert second == ["POST /orders", "  check_out: order.received", "    pay_by_bank"]
    assert "ephemeral.coordinator.operations check_out,completed 2" in metrics
    assert "ephemeral.rung.state default,default,pri1,down 1" in metrics


def spans_below(parent: ReadableSpan | None) -> list[ReadableSpan]:
    """Return the spans whose parent is *parent*, in order of their start."""
    wanted = None if parent is None else parent.context
    children = [span for span in exporter.get_finished_spans() if span.parent == wanted]
    return sorted(children, key=lambda span: span.start_time or 0)


def show(span: ReadableSpan, depth: int = 0) -> list[str]:
    """Return a span with those below it, a line each."""
    events = ", ".join(event.name for event in span.events)
    line = f"{'  ' * depth}{span.name}{': ' if events else ''}{events}"
    return [line, *(below for child in spans_below(span) for below in show(child, depth + 1))]


def measured() -> list[str]:
    """Return the metrics of the coordinator and of the rungs that are not 0, a line each."""
    data = reader.get_metrics_data()
    assert data is not None
    return [
        f"{metric.name} {','.join(map(str, (point.attributes or {}).values()))} {point.value:g}"
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name in {"ephemeral.coordinator.operations", "ephemeral.rung.state"}
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint) and point.value
    ]


if __name__ == "__main__":
    anyio.run(main)
