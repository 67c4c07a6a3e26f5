"""A signal with 0, 1 and 10 listeners: beside libraries that call listeners, and beside the least that could do it.

Ours also stores each signal; of the others none does. What one thread does is measured in its own processor time;
threads together in wall time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from measuring import Measure, Result, Row, at_least, at_most, bars, check, interleaved, is_there, ratios, timed

from ephemeral import SignalSink

NAME = "processing.failed:pri1:widget-42"
AUDIENCES = (0, 1, 10)


def listener() -> Callable[[object], None]:
    """Return a listener of its own: some keep each function once."""

    def hear(event: object) -> None:
        pass

    return hear


def append(count: int) -> float:
    """The floor without listeners: a stamped tuple appended to a bounded deque."""
    window: deque[tuple[float, str]] = deque(maxlen=1000)

    def work() -> None:
        for _ in range(count):
            window.append((time.time(), NAME))

    return timed(work) / count


class Least:
    """What a method costs that stamps and appends what a signal is made of, and does nothing else."""

    def __init__(self) -> None:
        self._window: list[tuple[object, ...]] = []
        self._clock = time.monotonic
        self._origin = "0123456789abcdef"

    def raise_signal(self, signal: str, key: str | None = None, operation_id: int = 0, payload: object = None) -> None:
        self._window.append((signal, operation_id, key, self._clock(), payload, None, self._origin))


def least(count: int) -> float:
    """The floor of any method, without listeners and without bounds."""
    sink = Least()

    def work() -> None:
        for _ in range(count):
            sink.raise_signal(NAME)

    return timed(work) / count


def plain(count: int, listeners: int) -> float:
    """The floor with listeners: the same, and a loop over functions."""
    window: deque[tuple[float, str]] = deque(maxlen=1000)
    audience = [listener() for _ in range(listeners)]

    def work() -> None:
        for _ in range(count):
            record = (time.time(), NAME)
            window.append(record)
            for hear in audience:
                hear(record)

    return timed(work) / count


def ours(count: int, listeners: int) -> float:
    """Raise into a sink of the default size, what it trims meanwhile included."""
    sink = SignalSink()
    for _ in range(listeners):
        sink.subscribe(listener())

    def work() -> None:
        for _ in range(count):
            sink.raise_signal(NAME)

    seconds = timed(work)
    require_all(sink, count)
    return seconds / count


def together(count: int, threads: int) -> float:
    """Raise into one sink from *threads* threads; wall seconds a signal."""
    sink = SignalSink()
    start = threading.Barrier(threads + 1)

    def work() -> None:
        start.wait()
        for _ in range(count // threads):
            sink.raise_signal(NAME)

    crew = [threading.Thread(target=work) for _ in range(threads)]
    for thread in crew:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in crew:
        thread.join()
    seconds = time.perf_counter() - begin
    require_all(sink, count)
    return seconds / count


def require_all(sink: SignalSink, count: int) -> None:
    """Stop unless the sink has recorded all and kept the newest."""
    counted = sink.statistics()
    check(counted.raised == count, f"{counted.raised} of {count} signals were recorded")
    check(counted.live == min(count, sink.max_capacity), f"{counted.live} signals are live")


def blinker(count: int, listeners: int) -> float:
    """``send``, its listeners held strongly; the cheaper way there."""
    from blinker import Signal  # noqa: PLC0415  a peer, if it is installed

    signal = Signal()
    for _ in range(listeners):
        signal.connect(listener(), weak=False)

    def work() -> None:
        for _ in range(count):
            signal.send(NAME)

    return timed(work) / count


def psygnal(count: int, listeners: int) -> float:
    """``emit`` of one argument."""
    from psygnal import SignalInstance  # noqa: PLC0415  a peer, if it is installed

    signal = SignalInstance((str,))
    for _ in range(listeners):
        signal.connect(listener())

    def work() -> None:
        for _ in range(count):
            signal.emit(NAME)

    return timed(work) / count


def pyee(count: int, listeners: int) -> float:
    """``emit`` of one argument."""
    from pyee import EventEmitter  # noqa: PLC0415  a peer, if it is installed

    emitter = EventEmitter()
    for _ in range(listeners):
        emitter.on(NAME, listener())

    def work() -> None:
        for _ in range(count):
            emitter.emit(NAME, NAME)

    return timed(work) / count


def cases(count: int) -> dict[str, Measure]:
    """Return what is measured, by name."""
    every: dict[str, Callable[[int, int], float]] = {"a loop over functions": plain, "ephemeral": ours}
    every |= {peer.__name__: peer for peer in (blinker, psygnal, pyee) if is_there(peer.__name__)}
    found: dict[str, Measure] = {"append": lambda: append(count), "least": lambda: least(count)}
    for name, case in every.items():
        for listeners in AUDIENCES:
            found[f"{name}, {listeners}"] = lambda case=case, listeners=listeners: case(count, listeners)
    return found


def measure(quick: bool) -> Result:
    """Run all cases, interleaved."""
    # Short rounds and many: a slow moment of the machine then spoils few of them.
    count, rounds = (2_000, 3) if quick else (5_000, 61)
    took = interleaved(cases(count), rounds)
    # Longer: a thread's turn alone lasts 5 ms.
    crowd = interleaved({str(n): lambda n=n: together(16 * count, n) for n in (1, 4)}, min(rounds, 15))
    goals = {0: at_most(2.2), 1: at_most(4.5)}
    rows = [
        Row(
            f"raise_signal, {n} listeners / append of a stamp",
            "x",
            ratios(took[f"ephemeral, {n}"], took["append"]),
            goals.get(n),
        )
        for n in AUDIENCES
    ]
    rows.append(
        Row("the floor: a method that stamps and appends alone / append", "x", ratios(took["least"], took["append"]))
    )
    for n in AUDIENCES:
        floor = took[f"a loop over functions, {n}"]
        rows.append(
            Row(f"the same / a loop over functions and an append, {n}", "x", ratios(took[f"ephemeral, {n}"], floor))
        )
        for peer in ("blinker", "psygnal", "pyee"):
            if f"{peer}, {n}" in took:
                ahead = ratios(took[f"{peer}, {n}"], took[f"ephemeral, {n}"])
                rows.append(Row(f"rate / {peer}'s, {n} listeners", "x", ahead, at_least(1)))
    rows.append(Row("rate of 4 threads / rate of 1, one sink", "x", ratios(crowd["1"], crowd["4"]), at_least(0.9)))
    pictures = [
        bars(
            f"raise-{n}",
            f"One signal, {n} listener{'' if n == 1 else 's'}",
            {name.rpartition(",")[0]: took[name] for name in took if name.endswith(f", {n}")},
            unit="µs",
            scale=1e6,
        )
        for n in AUDIENCES
    ]
    return Result(rows, pictures)
