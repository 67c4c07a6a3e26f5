"""A workflow that steers itself by signals alone: three coordinators, one sink, no ladder.

::

    widgets -> router (16 slots) -> primary (4 slots, 30-80 ms, fails 30 %)
                                 -> backup  (4 slots, 50-120 ms, fails 5 %)

The router picks a processor for each widget and stays with it until a signal says that it is done; a widget that
failed is routed again. Three failures of the primary within ten seconds raise ``failover.triggered:pri1→pri2``. From
then on everything goes to the backup, until the prober, which looks every three seconds, finds the primary well.

`PriorityProcessorAtom` does all of this in two lines, and more. This is what the parts below it can be made to do.

Run it: ``python examples/adaptive_workflow.py``
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, Operation, SignalEvent, SignalSink

WIDGETS = 100
ARRIVAL_INTERVAL = 0.05
"""Seconds between two widgets: a run lasts long enough for the prober to be needed."""
FAILURES_ALLOWED = 3
FAILURE_WINDOW = 10.0
PROBE_INTERVAL = 3.0


@dataclass(frozen=True)
class Service:
    """Something outside that does widgets, more or less well.

    Attributes:
        priority: 1 for the primary, 2 for the backup.
        fastest: Seconds a widget takes at least.
        slowest: Seconds it takes at most.
        failure_rate: Share of the widgets that fail.
        chance: Where luck comes from.
    """

    priority: int
    fastest: float
    slowest: float
    failure_rate: float
    chance: random.Random

    async def ask(self) -> None:
        """Do one thing.

        Raises:
            ConnectionError: Not this time.
        """
        await anyio.sleep(self.chance.uniform(self.fastest, self.slowest))
        if self.chance.random() < self.failure_rate:
            raise ConnectionError(f"service {self.priority} did not answer")

    async def process(self, widget: str, op: Operation) -> None:
        """Do one widget, and say how it went: the body of a coordinator."""
        try:
            await self.ask()
        except ConnectionError:
            op.emit(f"processing.failed:pri{self.priority}:{widget}")
            raise
        op.emit(f"processing.complete:pri{self.priority}:{widget}")


class Route:
    """Where widgets go now. Knows nothing but the signals.

    Attributes:
        priority: 1 for the primary, 2 for the backup.
    """

    def __init__(self, sink: SignalSink) -> None:
        self.priority = 1
        self._sink = sink
        self._well_since = sink.now()
        sink.subscribe(self._primary_failed, "processing.failed:pri1:*")
        sink.subscribe(self._primary_is_well, "probe.success:pri1")

    def _primary_failed(self, _event: SignalEvent) -> None:
        # What failed before the primary was found well says nothing about it now.
        since = max(self._well_since, self._sink.now() - FAILURE_WINDOW)
        failures = self._sink.count_recent_in_scope("processing.failed:pri1", since=since)
        if self.priority == 1 and failures >= FAILURES_ALLOWED:
            self.priority = 2
            self._sink.raise_signal("failover.triggered:pri1→pri2")

    def _primary_is_well(self, event: SignalEvent) -> None:
        self.priority = 1
        self._well_since = event.timestamp


def routing(
    sink: SignalSink, route: Route, processors: dict[int, EphemeralWorkCoordinator[str]]
) -> Callable[[str, Operation], Awaitable[None]]:
    """Return the router's body, which has a widget in hand until a processor has done it."""

    async def route_widget(widget: str, op: Operation) -> None:
        async with sink.listen(f"processing.*:{widget}") as outcomes:
            is_done = False
            while not is_done:
                priority = route.priority
                op.emit(f"route.assigned:pri{priority}:{widget}")
                await processors[priority].enqueue(widget)
                is_done = (await anext(outcomes)).in_scope("processing.complete")

    return route_widget


@asynccontextmanager
async def probing(sink: SignalSink, route: Route, primary: Service) -> AsyncGenerator[None]:
    """Look every three seconds, while the block is open, whether a primary that is out of use is well again."""

    async def probe() -> None:
        while True:
            await anyio.sleep(PROBE_INTERVAL)
            if route.priority == 1:
                continue
            sink.raise_signal("probe.testing:pri1")
            try:
                await primary.ask()
            except ConnectionError:
                sink.raise_signal("probe.failed:pri1")
            else:
                sink.raise_signal("probe.success:pri1")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(probe)
        yield
        tasks.cancel_scope.cancel()


async def main() -> None:
    """Send the widgets through, and check from the signals that each was done once."""
    chance = random.Random(1)
    primary_service = Service(1, 0.03, 0.08, failure_rate=0.30, chance=chance)
    backup_service = Service(2, 0.05, 0.12, failure_rate=0.05, chance=chance)
    widgets = [f"widget-{number}" for number in range(WIDGETS)]

    sink = SignalSink(max_capacity=5_000)
    route = Route(sink)
    sink.subscribe(lambda event: print(event.signal), "failover.*, probe.*")
    options = EphemeralOptions(max_concurrency=4, signals=sink)
    async with (
        # Left from the last to the first, which is upstream first: when the router has drained, every widget is done.
        sink,
        EphemeralWorkCoordinator[str](primary_service.process, options) as primary,
        EphemeralWorkCoordinator[str](backup_service.process, options) as backup,
        probing(sink, route, primary_service),
        EphemeralWorkCoordinator[str](
            routing(sink, route, {1: primary, 2: backup}), EphemeralOptions(max_concurrency=16, signals=sink)
        ) as router,
    ):
        for widget in widgets:
            await router.enqueue(widget)
            await anyio.sleep(ARRIVAL_INTERVAL)

    done = sorted(event.signal.rpartition(":")[2] for event in sink.sense("processing.complete:*"))
    failures = sink.count_recent_in_scope("processing.failed")
    by = {priority: sink.count_recent_in_scope(f"processing.complete:pri{priority}") for priority in (1, 2)}
    print(f"{len(done)} of {WIDGETS} widgets done, {by[1]} by the primary, {by[2]} by the backup")
    print(f"{failures} failures, each routed again")

    assert done == sorted(widgets), "each widget is done once, and none is lost"
    assert sink.count_recent_in_scope("route.assigned") == WIDGETS + failures
    assert primary.total_failed + backup.total_failed == failures
    assert router.total_completed == WIDGETS
    assert sink.detect("failover.triggered:pri1→pri2")
    assert by[2] > 0


if __name__ == "__main__":
    anyio.run(main)
