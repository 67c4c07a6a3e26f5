"""A worker that Prometheus scrapes: a failover is seen in its metrics, with the work that went past it.

Run it: ``python examples/prometheus_metrics.py``. It serves its metrics on a free port, scrapes itself before, during
and after an outage, and checks what a scrape shows. Needs the extra ``prometheus``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import anyio
import anyio.to_thread
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from ephemeral import EphemeralResultCoordinator, PriorityProcessorAtom, SignalSink
from ephemeral_redis.telemetry import Watched
from ephemeral_redis.telemetry.prometheus import PrometheusCollector

Scrape = dict[str, float]

SHOWN = {"ephemeral_rung_state", "ephemeral_ladder_items_total", "ephemeral_coordinator_operations_total"}


class Gateway:
    """Takes payments, until it goes down."""

    is_up = True

    async def pay(self, order: str) -> str:
        """Take one payment."""
        if not self.is_up:
            raise ConnectionError("the gateway does not answer")
        return f"{order} paid"


async def pay_by_bank(order: str) -> str:
    """Take one payment elsewhere."""
    return f"{order} paid by bank"


@contextmanager
def served(registry: CollectorRegistry) -> Iterator[str]:
    """Serve the metrics on a thread, and give their address; an application on ASGI mounts ``make_asgi_app()``."""
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def scrape(url: str) -> Scrape:
    """Return what Prometheus would see: the values that are not 0, by name and labels."""
    with urlopen(url, timeout=10) as response:  # noqa: S310  its own address
        families = text_string_to_metric_families(response.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return {label(sample): sample.value for sample in samples if sample.value and sample.name in SHOWN}


def label(sample: Sample) -> str:
    """Return the name of a series, less the sink, for there is one."""
    labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()) if name != "sink")
    return f"{sample.name}{{{labels}}}"


async def main() -> None:
    """Take the gateway down and bring it back, and look at the metrics each time."""
    gateway = Gateway()
    registry = CollectorRegistry()
    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(
            1, gateway.pay, sink, group="pay", failure_threshold=1, probe_interval=0.05, reroute_failed=True
        ) as primary,
        PriorityProcessorAtom(2, pay_by_bank, sink, group="pay"),
        EphemeralResultCoordinator(primary.call) as checkout,
    ):
        with PrometheusCollector(Watched(sink, checkout=checkout), registry), served(registry) as url:
            await checkout.submit("order-1")
            before = await anyio.to_thread.run_sync(scrape, url)

            gateway.is_up = False
            await checkout.submit("order-2")
            during = await anyio.to_thread.run_sync(scrape, url)

            gateway.is_up = True
            await anyio.sleep(0.1)  # until a probe is due; the next order is the probe
            await checkout.submit("order-3")
            after = await anyio.to_thread.run_sync(scrape, url)

    for when, seen in (("before", before), ("during", during), ("after", after)):
        print(f"{when} the outage")
        for name, value in sorted(seen.items()):
            print(f"  {name} {value:g}")
    assert before["ephemeral_rung_state{group=pay,processor=pay.pri1,state=up}"] == 1
    assert during["ephemeral_rung_state{group=pay,processor=pay.pri1,state=down}"] == 1
    assert after["ephemeral_rung_state{group=pay,processor=pay.pri1,state=up}"] == 1
    assert after["ephemeral_ladder_items_total{group=pay,outcome=completed}"] == 3


if __name__ == "__main__":
    anyio.run(main)
