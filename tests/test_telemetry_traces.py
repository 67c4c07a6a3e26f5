"""Traces: the enqueuer's goes on in the body, a signal becomes an event of the span it is raised in."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer

from ephemeral import (
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    EphemeralResultCoordinator,
    EphemeralWorkCoordinator,
    Operation,
    PriorityProcessorAtom,
    SignalSink,
    ephemeral_for_each,
)
from ephemeral.testing import MemoryBus
from ephemeral_redis.telemetry.otel import add_span_events, traced


class Traces:
    """A tracer, and the spans it has ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span


@pytest.fixture
def traces() -> Iterator[Traces]:
    traces = Traces()
    yield traces
    traces.provider.shutdown()


Run = Callable[[Any], Awaitable[object]]
"""Runs one item, whose body has started once this returns or its block is left."""


@asynccontextmanager
async def work(body: Any) -> AsyncGenerator[Run]:
    async with EphemeralWorkCoordinator[Any](body) as coordinator:
        yield coordinator.enqueue


@asynccontextmanager
async def keyed(body: Any) -> AsyncGenerator[Run]:
    async with EphemeralKeyedWorkCoordinator[Any, Any](str, body, EphemeralOptions(max_concurrency=1)) as coordinator:
        yield coordinator.enqueue


@asynccontextmanager
async def keyed_fair(body: Any) -> AsyncGenerator[Run]:
    options = EphemeralOptions(enable_fair_scheduling=True)
    async with EphemeralKeyedWorkCoordinator[Any, Any](str, body, options) as coordinator:
        yield coordinator.enqueue


@asynccontextmanager
async def result(body: Any) -> AsyncGenerator[Run]:
    async with EphemeralResultCoordinator[Any, Any](body) as coordinator:
        yield coordinator.submit


@asynccontextmanager
async def from_other_threads(body: Any) -> AsyncGenerator[Run]:
    async with EphemeralWorkCoordinator[Any](body) as coordinator:
        yield functools.partial(anyio.to_thread.run_sync, coordinator.enqueue_threadsafe)


@asynccontextmanager
async def for_each(body: Any) -> AsyncGenerator[Run]:
    yield lambda item: ephemeral_for_each([item], body)


@asynccontextmanager
async def ladder_items(body: Any) -> AsyncGenerator[Run]:
    async with SignalSink() as sink, PriorityProcessorAtom[Any, Any](1, body, sink) as atom:
        yield atom.enqueue


@asynccontextmanager
async def ladder_calls(body: Any) -> AsyncGenerator[Run]:
    async with SignalSink() as sink, PriorityProcessorAtom[Any, Any](1, body, sink) as atom:
        yield atom.call


WAYS = [work, keyed, keyed_fair, result, from_other_threads, for_each, ladder_items, ladder_calls]


@pytest.mark.real_time
@pytest.mark.parametrize("is_plain", [False, True], ids=["async", "plain"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_the_trace_of_the_enqueuer_goes_on_in_the_body(way: Any, is_plain: bool, traces: Traces) -> None:
    """Two enqueuers at once: each body is in the trace of its own, in whatever task or thread it runs."""

    def note(item: str) -> None:
        threads.add(threading.get_ident())
        with traces.tracer.start_as_current_span(f"body of {item}"):
            pass

    async def body(item: str) -> None:
        await anyio.lowlevel.checkpoint()
        note(item)
        await anyio.lowlevel.checkpoint()
        note(f"{item}, later")

    async def enqueue(run: Run, item: str) -> None:
        with traces.tracer.start_as_current_span(f"enqueue {item}"):
            await run(item)

    threads: set[int] = set()
    async with way(note if is_plain else body) as run, anyio.create_task_group() as tasks:
        for item in ("one", "two"):
            tasks.start_soon(enqueue, run, item)
    assert (threading.get_ident() in threads) == (not is_plain)
    for item in ("one", "two"):
        source = traces.one(f"enqueue {item}").get_span_context()
        for name in [f"body of {item}"] if is_plain else [f"body of {item}", f"body of {item}, later"]:
            child = traces.one(name)
            assert child.parent is not None
            assert (child.context.trace_id, child.parent.span_id) == (source.trace_id, source.span_id)


@pytest.mark.parametrize("way", [ladder_items, ladder_calls], ids=lambda way: way.__name__)
async def test_it_goes_on_on_the_next_rung(way: Any, traces: Traces) -> None:
    async def fail(item: str) -> None:
        with traces.tracer.start_as_current_span("first"):
            raise ConnectionError(item)

    async def succeed(item: str) -> None:
        with traces.tracer.start_as_current_span("second"):
            pass

    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, fail, sink, reroute_failed=True) as primary,
        PriorityProcessorAtom(2, succeed, sink),
    ):
        with traces.tracer.start_as_current_span("enqueue"):
            await (primary.enqueue("x") if way is ladder_items else primary.call("x"))
        await primary.drain()
    root = traces.one("enqueue").get_span_context()
    assert [traces.one(name).parent for name in ("first", "second")] == [root, root]


# Bodies with a span of their own


async def test_a_traced_body_has_a_span_that_tells_its_operation(traces: Traces) -> None:
    async def send(item: str, op: Operation) -> str:
        operations.append(op)
        return item.upper()

    operations: list[Operation] = []
    body = traced(send, tracer=traces.tracer)
    async with EphemeralKeyedWorkCoordinator[str, str](str, body) as coordinator:
        with traces.tracer.start_as_current_span("request"):
            await coordinator.enqueue("mail")
        assert traces.named("send") == []  # it ends with the body, not with whoever enqueued
    span = traces.one("send")
    assert span.parent == traces.one("request").get_span_context()
    assert dict(span.attributes or {}) == {"ephemeral.operation_id": operations[0].id, "ephemeral.key": "mail"}
    assert span.status.status_code is StatusCode.UNSET


async def test_a_failure_is_recorded_and_a_cancellation_is_marked(traces: Traces) -> None:
    async def body(item: str) -> None:
        if item == "bad":
            raise ValueError("no such address")
        await anyio.sleep_forever()

    run = traced(body, name="send mail", tracer=traces.tracer)
    async with EphemeralWorkCoordinator(run, EphemeralOptions(max_concurrency=1)) as coordinator:
        await coordinator.enqueue("bad")
        running = await coordinator.enqueue("slow")
        await anyio.sleep(1)
        coordinator.cancel_operation(running)
    failed, cancelled = traces.named("send mail")
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "ValueError: no such address")
    assert [event.name for event in failed.events] == ["exception"]
    assert (cancelled.status.status_code, cancelled.status.description) == (StatusCode.ERROR, "cancelled")
    assert (coordinator.total_failed, coordinator.total_cancelled) == (1, 1)


@pytest.mark.real_time
async def test_a_plain_body_is_traced_in_its_thread(traces: Traces) -> None:
    def body(item: str) -> str:
        threads.append(threading.get_ident())
        return item.upper()

    threads: list[int] = []
    async with EphemeralResultCoordinator[str, str](traced(body, tracer=traces.tracer)) as coordinator:
        with traces.tracer.start_as_current_span("request"):
            assert await coordinator.submit("mail") == "MAIL"
    assert traces.one("body").parent == traces.one("request").get_span_context()
    assert threads != [threading.get_ident()]


class Sender:
    """An object whose call is the body."""

    async def __call__(self, item: str) -> str:
        return item.upper()


@pytest.mark.parametrize(
    ("body", "name"),
    [(Sender(), "Sender"), (functools.partial(Sender.__call__, Sender()), "partial")],
    ids=["object", "partial"],
)
async def test_whatever_can_be_a_body_can_be_traced(body: Any, name: str, traces: Traces) -> None:
    async with SignalSink() as sink, PriorityProcessorAtom(1, traced(body, tracer=traces.tracer), sink) as atom:
        assert await atom.call("mail") == "MAIL"
    assert dict(traces.one(name).attributes or {}) == {}


async def test_without_an_sdk_a_traced_body_just_runs() -> None:
    async def body(item: str) -> str:
        return item.upper()

    async with EphemeralResultCoordinator[str, str](traced(body)) as coordinator:
        assert await coordinator.submit("mail") == "MAIL"


# Signals as events


async def test_a_signal_raised_within_a_span_becomes_an_event_of_it(traces: Traces) -> None:
    sink = SignalSink(clock=lambda: 1_700_000_000.0)
    with add_span_events(sink, "order.*") as subscription:
        sink.raise_signal("order.lost")  # in no span
        with traces.tracer.start_as_current_span("request"):
            sink.raise_signal("order.placed:eu:42", "customer-7", operation_id=5, payload={"card": "4111"})
            sink.raise_signal("cart.emptied")
            sink.raise_signal("order.paid")
        subscription.close()
        subscription.close()
        with traces.tracer.start_as_current_span("later"):
            sink.raise_signal("order.shipped")
    placed, paid = traces.one("request").events
    assert (placed.name, paid.name) == ("order.placed", "order.paid")
    assert dict(placed.attributes or {}) == {
        "ephemeral.signal": "order.placed:eu:42",
        "ephemeral.key": "customer-7",
        "ephemeral.operation_id": 5,
    }
    span = traces.one("request")
    assert (span.start_time or 0) <= placed.timestamp <= paid.timestamp <= (span.end_time or 0)
    assert traces.one("later").events == ()


async def test_what_a_body_emits_is_an_event_of_its_own_span(traces: Traces) -> None:
    async def body(item: str, op: Operation) -> None:
        op.emit(f"sent:{item}")

    async with SignalSink() as sink:
        options = EphemeralOptions(signals=sink)
        with add_span_events(sink, "sent"), add_span_events(sink, "sent:*"):
            async with EphemeralWorkCoordinator(traced(body, tracer=traces.tracer), options) as coordinator:
                with traces.tracer.start_as_current_span("request"):
                    await coordinator.enqueue("mail")
    assert [event.name for event in traces.one("body").events] == ["sent"]
    assert traces.one("request").events == ()


async def test_a_span_that_has_ended_gets_no_event_and_no_complaint(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(item: str, op: Operation) -> None:
        op.emit("sent")

    async with SignalSink() as sink:
        with add_span_events(sink, "sent"):
            async with EphemeralWorkCoordinator(body, EphemeralOptions(signals=sink)) as coordinator:
                with traces.tracer.start_as_current_span("request"):
                    await coordinator.enqueue("mail")
    assert sink.detect("sent")
    assert traces.one("request").events == ()
    assert caplog.records == []


async def test_signals_of_other_workers_are_no_events_here(traces: Traces) -> None:
    with traces.tracer.start_as_current_span("main"):  # the bus's own task is in this span too
        async with (
            MemoryBus() as bus,
            SignalSink(backend=bus.backend()) as one,
            SignalSink(backend=bus.backend()) as two,
        ):
            with add_span_events(two, "order.*"):
                one.raise_signal("order.placed")
                await two.wait_for("order.*")
                two.raise_signal("order.paid")
    assert [event.name for event in traces.one("main").events] == ["order.paid"]


async def test_a_call_shows_its_ladder_in_the_callers_span(traces: Traces) -> None:
    async def fail(item: str) -> None:
        raise ConnectionError(item)

    async def succeed(item: str) -> str:
        return item

    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, fail, sink, failure_threshold=1, reroute_failed=True) as primary,
        PriorityProcessorAtom(2, succeed, sink),
    ):
        with add_span_events(sink, "processing.*, failover.*"), traces.tracer.start_as_current_span("request"):
            await primary.call("mail")
    assert [event.name for event in traces.one("request").events] == [
        "processing.started",
        "processing.failed",
        "failover.requested",
        "processing.started",
        "processing.complete",
    ]


def test_a_span_that_refuses_events_harms_no_raiser(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(trace.NonRecordingSpan):
        def is_recording(self) -> bool:
            return True

        def add_event(self, *args: Any, **kwargs: Any) -> None:
            raise OSError("the exporter is gone")

    sink = SignalSink()
    with add_span_events(sink, "*"), trace.use_span(Refusing(trace.INVALID_SPAN_CONTEXT)):
        sink.raise_signal("order.placed")
    assert sink.detect("order.placed")
    assert sink.statistics().listener_errors == 1
