"""Writes down what one worker's ladder does: from its own signals, and from the health table as it is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ephemeral.abc import HealthWatcher, current_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ephemeral import SignalEvent, SignalSink
    from ephemeral.abc import HealthNews, SharedRecord

    from .journal import Journal
    from .traffic import Probe, WidgetAtom


class Witness(HealthWatcher):
    """One worker's; made on the loop's thread before its ladder, which :meth:`begin` then names.

    Args:
        journal: Where all is written.
        origin: Returns who this worker is on the bus.
    """

    def __init__(self, journal: Journal, origin: Callable[[], str]) -> None:
        self._journal = journal
        self._origin = origin
        self._loop = current_loop()
        self._primary: WidgetAtom | None = None
        self._held: dict[str, tuple[int, str, bool]] = {}
        self._fences: dict[str, int] = {}

    def begin(self, sink: SignalSink, primary: WidgetAtom) -> None:
        """Write from now on what *primary*'s ladder does.

        The ladder's blocks are open: what it is told of health, it is told before this is.
        """
        self._primary = primary
        sink.subscribe(self._heard, "processing.complete:*, failover.*, probe.*")
        if sink.backend is not None:
            sink.backend.watch(self)

    def end(self, sink: SignalSink) -> None:
        """Hear nothing more of the bus: a worker that leaves it has not lost it."""
        if sink.backend is not None:
            sink.backend.unwatch(self)

    def watch_probe(self, processor: str, probe: Probe) -> Probe:
        """Return *probe* with a line before and after each run; a run without a line after it was cut short."""

        async def probing() -> bool:
            fence = self._fences.pop(processor, 0)
            self._journal.write("probe began", processor, fence=fence)
            try:
                return await probe()
            finally:
                self._journal.write("probe ended", processor, fence=fence)

        return probing

    # On the loop: what the ladder says

    def _heard(self, event: SignalEvent) -> None:
        if event.origin != self._origin():
            return
        if event.in_scope("processing.complete"):
            self._journal.write("done", event.signal.rpartition(":")[2])
            return
        self._look()
        processor = event.signal.partition(":")[2].partition("→")[0]
        epoch, _, is_local = self._held.get(processor, (0, "", False))
        self._journal.write("signal", event.signal, epoch=epoch, is_local=is_local)

    def _look(self) -> None:
        """Write which processors are now held for something else than before."""
        if self._primary is None:
            return
        for health in self._primary.get_ladder():
            # Who probes and who does not is a line of its own.
            state = "down" if health.state == "probing" else health.state
            held = health.epoch, state, health.is_local
            if self._held.get(health.processor, (0, "up", False)) != held:
                self._journal.write(
                    "health", health.processor, state=state, epoch=health.epoch, is_local=health.is_local
                )
            self._held[health.processor] = held

    # On the bus's thread: what the table says. The ladder hops to the loop before this does, so it is ahead there.

    def table(self, rows: Mapping[str, SharedRecord]) -> None:  # noqa: ARG002  the ladder says what it makes of them
        """Be told that the bus is reached."""
        self._hop(lambda: self._bus("reached"))

    def news(self, news: HealthNews) -> None:
        """Be told one change."""
        lease = news.row.record.lease if news.row is not None else None
        if lease is not None and lease.owner == self._origin():
            # At once: the probe starts as soon as the ladder knows.
            self._fences[news.processor] = lease.fence
        self._hop(self._look)

    def lost(self) -> None:
        """Be told that the bus is away."""
        self._hop(lambda: self._bus("lost"))

    def _bus(self, state: str) -> None:
        self._journal.write("bus", state=state)
        self._look()

    def _hop(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return  # the loop has ended, and there is nothing left to see
