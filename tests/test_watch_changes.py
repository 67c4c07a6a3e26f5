"""What a view remembers of what has happened to health."""

from __future__ import annotations

import gc

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis.watch.changes import MAX_EDGES, MAX_STEPS, ChangeLog
from ephemeral_redis.watch.local import LocalWatch
from ephemeral_redis.watch.picture import Change


def change(at: float, *, is_edge: bool) -> Change:
    return Change(at=at, kind="down" if is_edge else "probe failed", processor="pri1", epoch=1, by="a", is_edge=is_edge)


def test_a_night_of_probes_pushes_out_no_edge() -> None:
    log = ChangeLog()
    log.add(change(0, is_edge=True))
    for at in range(1, 10_000):
        log.add(change(at, is_edge=False))
    log.add(change(10_000, is_edge=True))
    kept = [one.at for one in log.latest_first()]
    assert kept == [10_000, *range(9_999, 9_999 - MAX_STEPS, -1), 0]


def test_edges_are_bounded_too() -> None:
    log = ChangeLog()
    for at in range(2 * MAX_EDGES):
        log.add(change(at, is_edge=True))
    assert [one.at for one in log.latest_first()] == list(range(2 * MAX_EDGES - 1, MAX_EDGES - 1, -1))


async def test_one_process_remembers_what_happened_while_nobody_looked() -> None:
    async def process(item: str) -> str:
        return item

    async with SignalSink() as sink, PriorityProcessorAtom(1, process, sink) as first:
        watch = LocalWatch(sink)
        first.isolate()
        first.reset_health()
        sink.clear()
        assert [one.kind for one in watch.picture().changes] == ["restored", "isolated"]


async def test_nothing_is_kept_for_a_watch_that_is_gone() -> None:
    async with SignalSink() as sink:
        watch = LocalWatch(sink)
        assert sink.statistics().listeners == 1
        del watch
        gc.collect()
        assert sink.statistics().listeners == 0
