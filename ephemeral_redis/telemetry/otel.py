"""Metrics, span events and spans for OpenTelemetry; extra ``otel``, which is its API alone.

Which SDK exports them, and where to, is your application's choice; without one nothing is measured and nothing breaks.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, cast

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
from opentelemetry.trace import Span, StatusCode, Tracer

from ephemeral import SignalEvent, SignalSink, Subscription, current_operation
from ephemeral.abc import Pattern

from ._measures import FAMILIES, Family, Measure, points
from ._watched import Watched

__all__ = ["OpenTelemetryMetrics", "add_span_events", "traced"]

P = ParamSpec("P")
R = TypeVar("R")

_SCOPE: Final = "ephemeral"


class OpenTelemetryMetrics:
    """Gives OpenTelemetry the numbers of what is watched, read anew at each collection.

        with OpenTelemetryMetrics(Watched(sink, orders=orders)):
            ...

    The block begins it; leaving it, or `close`, ends it. Callable from any thread: a collection waits for no event loop
    and takes nothing from one. Several at once share the instruments, so give what they watch different names.

    Args:
        watched: What is measured; may change meanwhile.
        meter_provider: Whose instruments; None: the application's, whenever that is set.
    """

    def __init__(self, watched: Watched, meter_provider: MeterProvider | None = None) -> None:
        self._watched = watched
        self._instruments = _instruments_of(meter_provider)

    def __enter__(self) -> Self:
        self._instruments.add(self._watched)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give nothing more. Idempotent, and callable from any thread."""
        self._instruments.remove(self._watched)


class _Instruments:
    """The instruments of one provider, made once: what is made twice under one name keeps its first callback."""

    def __init__(self, meter: Meter) -> None:
        self._lock = threading.Lock()
        # Replaced as a whole: a collection goes through the ones it began with.
        self._watched: tuple[Watched, ...] = ()
        makers: dict[str, Callable[..., object]] = {
            "counter": meter.create_observable_counter,
            "amount": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }
        for family in FAMILIES:
            for measure in family.measures:
                callback = functools.partial(self._observe, family, measure)
                makers[measure.kind](measure.name, [callback], unit=measure.unit, description=measure.help)

    def add(self, watched: Watched) -> None:
        """Give the numbers of *watched* from now on."""
        with self._lock:
            if watched not in self._watched:
                self._watched = (*self._watched, watched)

    def remove(self, watched: Watched) -> None:
        """Give them no longer."""
        with self._lock:
            self._watched = tuple(other for other in self._watched if other is not watched)

    def _observe(self, family: Family, measure: Measure, options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG002  the SDK's call
        names = [f"ephemeral.{label}" for label in family.labels_of(measure)]
        for watched in self._watched:
            for labels, value in points(measure, family.find(watched)):
                yield Observation(value, dict(zip(names, labels, strict=True)))


_lock = threading.Lock()
_of_provider: weakref.WeakKeyDictionary[MeterProvider, _Instruments] = weakref.WeakKeyDictionary()
# Of the application's provider: before that is set, a stand-in takes its place and later passes all on to it.
_of_application: list[_Instruments] = []


def _instruments_of(provider: MeterProvider | None) -> _Instruments:
    with _lock:
        if provider is None or provider is metrics.get_meter_provider():
            if not _of_application:
                _of_application.append(_Instruments(metrics.get_meter(_SCOPE)))
            return _of_application[0]
        if provider not in _of_provider:
            _of_provider[provider] = _Instruments(provider.get_meter(_SCOPE))
        return _of_provider[provider]


def add_span_events(sink: SignalSink, pattern: Pattern) -> Subscription:
    """Add an event to the current span for each matching signal that this sink raises within one.

    The event is named by the first segment of the signal's name, of which there are few, and bears the name, key and
    operation id as attributes; payloads stay out, for a trace is kept by others. Signals of other workers, and those
    raised outside of a recording span, add nothing.

    Args:
        sink: Whose signals.
        pattern: Which names.

    Returns:
        A context manager; closing it ends this.

    Raises:
        TypeError: *pattern* has the wrong type.
        ValueError: *pattern* has an empty part.
    """

    def add(event: SignalEvent) -> None:
        span = trace.get_current_span()
        if span.is_recording() and event.origin == sink.origin:
            name = event.signal.partition(":")[0] or event.signal
            # Stamped by the span's clock, not the sink's, so that it lies within the span.
            span.add_event(name, _attributes_of(event))

    return sink.subscribe(add, pattern)


def _attributes_of(event: SignalEvent) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {"ephemeral.signal": event.signal}
    if event.key is not None:
        attributes["ephemeral.key"] = event.key
    if event.operation_id:
        attributes["ephemeral.operation_id"] = event.operation_id
    return attributes


def traced(body: Callable[P, R], *, name: str | None = None, tracer: Tracer | None = None) -> Callable[P, R]:
    """Return *body* with a span around each run, within the trace of whoever enqueued the item.

        EphemeralWorkCoordinator(traced(send_mail))

    A body runs in the context of its enqueuer with or without this; but the enqueuer's own span has often ended by
    then, and takes no more events. The span tells the operation's id and key. An exception is recorded and makes its
    status an error, as a cancellation does.

    Args:
        body: ``async def body(item)``, ``body(item, op)``, or a plain function, which runs in a thread; for
            coordinators, for ``ephemeral_for_each`` and for ladders.
        name: The span's; None: the function's.
        tracer: Whose; None: the application's.
    """
    title = name or str(getattr(body, "__name__", type(body).__name__))
    whose = tracer or trace.get_tracer(_SCOPE)
    # A function, a partial of one, or an object whose call is one.
    if inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(getattr(body, "__call__", None)):  # noqa: B004  the method itself is asked for, not whether there is one

        @functools.wraps(body)
        async def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            with _span(whose, title):
                return await cast("Any", body(*args, **kwargs))

        return cast("Callable[P, R]", run)

    @functools.wraps(body)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with _span(whose, title):
            return body(*args, **kwargs)

    return call


@contextmanager
def _span(tracer: Tracer, name: str) -> Generator[Span]:
    with tracer.start_as_current_span(name) as span:
        try:
            operation = current_operation()
        except LookupError:  # a ladder runs it, or a test
            pass
        else:
            span.set_attribute("ephemeral.operation_id", operation.id)
            if operation.key is not None:
                span.set_attribute("ephemeral.key", str(operation.key))
        try:
            yield span
        except Exception:
            raise  # recorded by whoever holds the span
        except BaseException:  # the loop's own cancellation, or an order to end
            span.set_status(StatusCode.ERROR, "cancelled")
            raise
