"""What a signal costs, as ratios to the cheapest thing that could record one: ``deque.append((time.time(), name))``.

    python benchmarks/signals.py [--quick]

Rounds are short and of all cases in turn, so that a slow moment of the machine hits them alike; each ratio is taken
within a round. What one thread does is measured in its own processor time, so that neighbours do not count; threads
together in wall time. Exits with 1 only if a result is wrong, never for being slow.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

import measuring

from ephemeral import SignalSink

NAME = "processing.failed:pri1:widget-42"
SCOPE = "processing.failed:pri1"


def bare(count: int) -> float:
    """Return seconds per append of a stamped tuple to a bounded deque."""
    window: deque[tuple[float, str]] = deque(maxlen=1000)

    def append() -> None:
        for _ in range(count):
            window.append((time.time(), NAME))

    return _timed(append) / count


def raising(count: int, *, listeners: int = 0, threads: int = 0) -> float:
    """Return seconds per raise into a sink of the default size, what it trims meanwhile included.

    Processor time of this thread; or, with *threads*, wall time of so many that share the work.
    """
    sink = SignalSink()
    for _ in range(listeners):
        sink.subscribe(_ignore)
    share = count // (threads or 1)

    def work() -> None:
        for _ in range(share):
            sink.raise_signal(NAME)

    seconds = _together(threads, work) if threads else _timed(work)
    counted = sink.statistics()
    measuring.check(counted.raised == count, f"{counted.raised} of {count} signals were recorded")
    measuring.check(counted.live == min(count, sink.max_capacity), f"{counted.live} signals are live")
    return seconds / count


def _together(threads: int, work: Callable[[], None]) -> float:
    """Return wall seconds from the start of *threads* threads at *work* to the end of the last."""
    start = threading.Barrier(threads + 1)
    crew = [threading.Thread(target=lambda: (start.wait(), work())) for _ in range(threads)]
    for thread in crew:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in crew:
        thread.join()
    return time.perf_counter() - begin


def counting(count: int, *, fresh: bool) -> float:
    """Return seconds per repeated scope count over 5 000 signals; *fresh*: with one new signal before each."""
    sink = SignalSink(max_capacity=5000)
    for number in range(5000):
        sink.raise_signal(f"processing.failed:pri{number % 2}:w{number}")
    measuring.check(sink.count_recent_in_scope(SCOPE, within=10) == 2500, "the scope holds 2500 signals")

    def ask() -> None:
        for _ in range(count):
            sink.count_recent_in_scope(SCOPE, within=10)

    def raise_and_ask() -> None:
        for _ in range(count):
            sink.raise_signal(NAME)
            sink.count_recent_in_scope(SCOPE, within=10)

    return _timed(raise_and_ask if fresh else ask) / count


def measure(quick: bool) -> list[measuring.Row]:
    """Run all cases, interleaved, and return a row for each."""
    count, rounds = (5_000, 11) if quick else (20_000, 51)
    ratios: dict[str, list[float]] = {"none": [], "one": [], "threads": [], "count": [], "fresh": []}
    for _ in range(rounds):
        floor = bare(count)
        ratios["none"].append(raising(count) / floor)
        ratios["one"].append(raising(count, listeners=1) / floor)
        # Longer: a thread's turn alone lasts 5 ms.
        ratios["threads"].append(raising(4 * count, threads=1) / raising(4 * count, threads=4))
        ratios["count"].append(counting(count // 20, fresh=False) * 1e6)
        ratios["fresh"].append(counting(count // 20, fresh=True) * 1e6)
    return [
        measuring.Row("raise_signal, no listener / bare append", "x", ratios["none"], "<= 2.75"),
        measuring.Row("raise_signal, one listener / bare append", "x", ratios["one"], "<= 5.5"),
        measuring.Row("rate of 4 threads / rate of 1, one sink", "x", ratios["threads"], ">= 0.8"),
        measuring.Row("repeated scope count over 5 000 signals", "µs", ratios["count"], "<= 3"),
        measuring.Row("raise and scope count over 5 000 signals", "µs", ratios["fresh"], "-"),
    ]


def _ignore(event: object) -> None:
    pass


def _timed(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


if __name__ == "__main__":
    measuring.main(__doc__, measure)
