"""Metrics for Prometheus: a collector over what is watched; extra ``prometheus``.

Each worker exposes its own numbers. Serve them in your application with ``prometheus_client.make_asgi_app()``, or
beside it with ``prometheus_client.start_http_server(port)``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ._measures import FAMILIES, Family, Measure, points
from ._watched import Watched

__all__ = ["PrometheusCollector"]

_BASE_UNITS: Final = {"s": "_seconds"}


class PrometheusCollector(Collector):
    """Gives Prometheus the numbers of what is watched, read anew at each scrape.

        with PrometheusCollector(Watched(sink, orders=orders)):
            ...

    The block puts it into the registry; leaving it, or `close`, takes it out. Callable from any thread: a scrape waits
    for no event loop and takes nothing from one.

    Args:
        watched: What is measured; may change while this is registered.
        registry: Where it is registered; None: the client's own, which ``make_asgi_app()`` serves.
    """

    def __init__(self, watched: Watched, registry: CollectorRegistry | None = None) -> None:
        self._watched = watched
        self._registry = REGISTRY if registry is None else registry

    def __enter__(self) -> Self:
        """Register it.

        Raises:
            ValueError: The registry has these metrics already; add to what is watched there instead.
        """
        self._registry.register(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Take it out of the registry. Idempotent, and callable from any thread."""
        with contextlib.suppress(KeyError):  # it is not in there, or no longer
            self._registry.unregister(self)

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield every metric without a value: by this a registry knows which names are taken."""
        for family in FAMILIES:
            for measure in family.measures:
                yield _empty(family, measure)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield every metric that has a value now."""
        for family in FAMILIES:
            found = list(family.find(self._watched))
            for measure in family.measures:
                metric = _empty(family, measure)
                for labels, value in points(measure, found):
                    metric.add_metric(labels, value)
                if metric.samples:
                    yield metric


def name_of(measure: Measure) -> str:
    """Return what Prometheus calls *measure*."""
    base = measure.name.replace(".", "_") + _BASE_UNITS.get(measure.unit, "")
    return f"{base}_total" if measure.kind == "counter" else base


def _empty(family: Family, measure: Measure) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if measure.kind == "counter" else GaugeMetricFamily
    return kind(name_of(measure), measure.help, labels=family.labels_of(measure))
