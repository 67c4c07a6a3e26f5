"""A primary and a backup: the primary stops answering, and every widget is done all the same.

Run it: ``python examples/quick_start.py``
"""

from __future__ import annotations

import anyio

from ephemeral import PriorityProcessorAtom, SignalSink


class Primary:
    """Does widgets until it goes down."""

    def __init__(self) -> None:
        self.is_up = True

    async def process(self, widget: str) -> str:
        """Do one widget."""
        await anyio.sleep(0.01)
        if not self.is_up:
            raise ConnectionError("the primary does not answer")
        return f"{widget} by the primary"


async def process_by_backup(widget: str) -> str:
    """Do one widget elsewhere."""
    await anyio.sleep(0.02)
    return f"{widget} by the backup"


async def main() -> None:
    """Take the primary down between two batches of work."""
    service = Primary()
    async with (
        SignalSink() as sink,
        PriorityProcessorAtom[str, str](
            1, service.process, sink, failure_threshold=3, reroute_failed=True, max_concurrency=4
        ) as primary,
        PriorityProcessorAtom[str, str](2, process_by_backup, sink, max_concurrency=4) as backup,
    ):
        sink.subscribe(lambda event: print(event.signal), "failover.*")

        await primary.enqueue_many(f"widget-{number}" for number in range(10))  # in the background
        first = await primary.call("widget-a")  # here and now, with the result
        await primary.drain()

        service.is_up = False
        await primary.enqueue_many(f"widget-{number}" for number in range(10, 20))
        await primary.drain()
        second = await primary.call("widget-b")

        print(first)
        print(second)
        print(f"primary: {primary.get_health().state}, backup: {backup.get_health().state}")
        assert not primary.is_healthy
        assert sink.count_recent_in_scope("failover.requested:pri1→pri2") == 1

    done = primary.statistics()
    print(f"{done.total_completed} of {done.total_enqueued} done, {done.total_failed} lost")
    assert (first, second) == ("widget-a by the primary", "widget-b by the backup")
    assert done.total_completed == done.total_enqueued == 22


if __name__ == "__main__":
    anyio.run(main)
