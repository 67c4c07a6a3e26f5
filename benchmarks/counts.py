"""How many signals of one scope were raised lately, over 5 000 of them: beside a scan and beside rate limiters.

The limiters are asked what they can be asked: how many hits of one key a window holds.
"""

from __future__ import annotations

import time
from collections import deque

from measuring import Measure, Result, Row, at_least, at_most, bars, check, interleaved, is_there, ratios, timed

from ephemeral import SignalSink

KEPT = 5_000
SCOPE = "processing.failed:pri1"
WITHIN = 10.0
QUESTIONS_PER_SIGNALS = 10


NAMES = [f"processing.failed:pri{number % 2}:widget-{number}" for number in range(50)]
"""Every other one is in the scope that is asked for."""


def name_of(number: int) -> str:
    """Return the name of one signal."""
    return NAMES[number % len(NAMES)]


def full_sink() -> SignalSink:
    """Return a sink that holds 5 000 signals, half of them in the scope."""
    sink = SignalSink(max_capacity=KEPT)
    for number in range(KEPT):
        sink.raise_signal(name_of(number))
    return sink


def full_deque() -> deque[tuple[float, str]]:
    """Return the same signals in a deque of tuples."""
    return deque(((time.time(), name_of(number)) for number in range(KEPT)), maxlen=KEPT)


def scan(window: deque[tuple[float, str]]) -> int:
    """Count in the obvious way."""
    since, inside = time.time() - WITHIN, f"{SCOPE}:"
    return sum(1 for at, name in window if at >= since and (name.startswith(inside) or name == SCOPE))


def repeated(count: int) -> float:
    """Ask again and again, with nothing new."""
    sink = full_sink()
    check(sink.count_recent_in_scope(SCOPE, within=WITHIN) == KEPT // 2, "the scope holds 2 500 signals")

    def ask() -> None:
        for _ in range(count):
            sink.count_recent_in_scope(SCOPE, within=WITHIN)

    return timed(ask) / count


def scanned(count: int) -> float:
    """Scan as often."""
    window = full_deque()
    check(scan(window) == KEPT // 2, "the scan finds 2 500 signals")

    def ask() -> None:
        for _ in range(count):
            scan(window)

    return timed(ask) / count


def first(count: int) -> float:
    """Ask a full window each time for a prefix that it was never asked for."""
    sink = full_sink()
    sink.count_recent_by_prefix("", within=WITHIN)

    def ask() -> None:
        for number in range(count):
            sink.count_recent_by_prefix(f"processing.failed:pri{number}", within=WITHIN)

    return timed(ask) / count


def first_scanned(count: int) -> float:
    """Scan for the same prefixes."""
    window = full_deque()

    def ask() -> None:
        for number in range(count):
            since, prefix = time.time() - WITHIN, f"processing.failed:pri{number}"
            sum(1 for at, name in window if at >= since and name.startswith(prefix))

    return timed(ask) / count


def mixed(count: int) -> float:
    """Raise ten and ask once; seconds for one signal, its tenth of a question included."""
    sink = full_sink()

    def work() -> None:
        for number in range(count):
            sink.raise_signal(name_of(number))
            if number % QUESTIONS_PER_SIGNALS == 0:
                sink.count_recent_in_scope(SCOPE, within=WITHIN)

    seconds = timed(work)
    check(sink.count_recent_in_scope(SCOPE, within=WITHIN) == KEPT // 2, "the scope holds 2 500 signals")
    return seconds / count


def mixed_scanned(count: int) -> float:
    """Append ten and scan once."""
    window = full_deque()

    def work() -> None:
        for number in range(count):
            window.append((time.time(), name_of(number)))
            if number % QUESTIONS_PER_SIGNALS == 0:
                scan(window)

    return timed(work) / count


def limits(count: int) -> float:
    """Ask the moving window of ``limits``, in memory, that holds 2 500 hits."""
    from limits import RateLimitItemPerSecond  # noqa: PLC0415  a peer, if it is installed
    from limits.storage import MemoryStorage  # noqa: PLC0415  as above
    from limits.strategies import MovingWindowRateLimiter  # noqa: PLC0415  as above

    limiter, item = MovingWindowRateLimiter(MemoryStorage()), RateLimitItemPerSecond(KEPT, 600)
    for _ in range(KEPT // 2):
        limiter.hit(item, SCOPE)
    check(limiter.get_window_stats(item, SCOPE).remaining == KEPT // 2, "the limiter counts 2 500 hits")

    def ask() -> None:
        for _ in range(count):
            limiter.get_window_stats(item, SCOPE)

    return timed(ask) / count


def pyrate_limiter(count: int) -> float:
    """Ask a bucket of ``pyrate-limiter``, in memory, that holds 2 500 items: let go of the old ones, then count."""
    from pyrate_limiter import InMemoryBucket, Rate, RateItem  # noqa: PLC0415  a peer, if it is installed

    bucket = InMemoryBucket([Rate(KEPT, 600_000)])
    for _ in range(KEPT // 2):
        bucket.put(RateItem(SCOPE, bucket.now()))
    check(bucket.count() == KEPT // 2, "the bucket counts 2 500 items")

    def ask() -> None:
        for _ in range(count):
            bucket.leak(bucket.now())
            bucket.count()

    return timed(ask) / count


def measure(quick: bool) -> Result:
    """Run all cases, interleaved."""
    many, few, rounds = (500, 5, 3) if quick else (5_000, 50, 15)
    cases: dict[str, Measure] = {
        "ephemeral": lambda: repeated(many),
        "naive scan": lambda: scanned(few),
        "first": lambda: first(few),
        "first, scan": lambda: first_scanned(few),
        "mixed": lambda: mixed(many),
        "mixed, scan": lambda: mixed_scanned(few * QUESTIONS_PER_SIGNALS),
    }
    cases |= {
        peer.__name__: lambda peer=peer: peer(many) for peer in (limits, pyrate_limiter) if is_there(peer.__name__)
    }
    took = interleaved(cases, rounds)
    ours = took["ephemeral"]
    rows = [
        Row("repeated scope count over 5 000 signals", "µs", [seconds * 1e6 for seconds in ours], at_most(1.5)),
        Row("its rate / a scan's", "x", ratios(took["naive scan"], ours), at_least(300)),
        *(
            Row(f"its rate / {peer}'s", "x", ratios(took[peer], ours), at_least(1))
            for peer in ("limits", "pyrate_limiter")
            if peer in took
        ),
        Row("first count of a new prefix / a scan", "x", ratios(took["first"], took["first, scan"]), at_most(1.2)),
        Row(
            "10 raises and a count, rate / append and scan",
            "x",
            ratios(took["mixed, scan"], took["mixed"]),
            at_least(80),
        ),
    ]
    shown = {name: took[name] for name in ("ephemeral", "naive scan", "limits", "pyrate_limiter") if name in took}
    return Result(rows, [bars("counts", "How many of one scope, over 5 000 signals", shown, unit="µs", scale=1e6)])
