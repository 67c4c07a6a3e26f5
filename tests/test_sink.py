"""What a sink keeps, answers, counts and clears."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ephemeral import OperationSignalSummary, SignalEvent, SignalSink


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, time: float = 1000.0) -> None:
        self.time = time

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sink(clock: Clock) -> SignalSink:
    return SignalSink(clock=clock)


def names(sink: SignalSink) -> list[str]:
    return [event.signal for event in sink.sense()]


# Raising


def test_an_event_carries_what_was_given(sink: SignalSink) -> None:
    payload = {"any": object()}
    sink.raise_signal("a", "key", operation_id=7, payload=payload)
    [event] = sink.sense()
    assert event == SignalEvent("a", 7, "key", 1000.0, payload, None, sink.sense()[0].origin)
    assert event.payload is payload
    assert event.origin


def test_two_sinks_have_two_origins() -> None:
    origins = set()
    for sink in (SignalSink(), SignalSink()):
        sink.raise_signal("a")
        origins.add(sink.sense()[0].origin)
    assert len(origins) == 2


def test_a_raised_event_keeps_its_stamp_and_its_origin(sink: SignalSink) -> None:
    sink.raise_signal(SignalEvent("a", timestamp=990.0, origin="elsewhere"))
    sink.raise_signal(SignalEvent("b", timestamp=980.0, payload=["no hash"]))
    sink.raise_signal("c")
    first, second, third = sink.sense()
    assert (first.timestamp, first.origin) == (990.0, "elsewhere")
    assert (second.timestamp, second.origin) == (980.0, third.origin)


@pytest.mark.parametrize("more", [{"key": "k"}, {"operation_id": 1}, {"payload": 1}])
@pytest.mark.parametrize("payload", [None, []])
def test_an_event_is_raised_alone(sink: SignalSink, more: dict[str, Any], payload: object) -> None:
    with pytest.raises(TypeError, match="pass the event alone"):
        sink.raise_signal(SignalEvent("a", payload=payload), **more)
    assert len(sink) == 0


def test_without_a_clock_stamps_are_wall_time() -> None:
    sink = SignalSink()
    before = time.time()
    sink.raise_signal("a")
    # Both clocks are read once, so they may differ by what a step of the wall clock since then was.
    assert sink.sense()[0].timestamp == pytest.approx(before, abs=1.0)
    assert sink.now() == pytest.approx(time.time(), abs=1.0)


def test_a_wall_clock_that_is_set_neither_empties_nor_freezes_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SignalSink()
    sink.raise_signal("before")
    for set_to in (time.time() + 86400, time.time() - 86400):
        monkeypatch.setattr(time, "time", lambda set_to=set_to: set_to)
        assert "before" in names(sink)
        sink.raise_signal("after")
        assert sink.count_recent_exact("after", within=10) > 0
        sink.clear_matching(lambda event: event.signal == "after")


# Bounds


def test_age_is_exact_in_a_silent_sink(sink: SignalSink, clock: Clock) -> None:
    sink.raise_signal("a")
    clock.time += 60.0
    assert names(sink) == ["a"]
    assert sink.count_recent_exact("a") == 1
    clock.time += 0.001
    # No signal comes to trigger a clean-up, and each question must notice by itself.
    assert not sink.detect("a")
    assert sink.count_recent_exact("a") == sink.count_recent_in_scope("a") == 0
    assert len(sink) == 0
    assert sink.sense() == []
    assert sink.get_op_signals(0) == []
    assert sink.statistics().live == 0


@pytest.mark.parametrize(
    "ask",
    [
        len,
        lambda sink: len(sink.sense()),
        lambda sink: sink.count_recent_by_prefix(""),
        lambda sink: sink.statistics().live,
        lambda sink: len(sink.get_op_signals(0)),
        lambda sink: sink.clear_matching(lambda _: True),
    ],
)
def test_each_question_is_the_first_to_notice_age_and_capacity(clock: Clock, ask: Any) -> None:
    sink = SignalSink(5, 10.0, clock=clock)
    for _ in range(8):
        sink.raise_signal("a")
        clock.time += 2.0
    # Raised at 0, 2 … 14, now 16: by capacity 6 … 14 are left, by age 6 … 14, and at 17 only 8 … 14.
    clock.time += 1.0
    assert ask(sink) == 4


def test_capacity_drops_the_oldest_arrivals(clock: Clock) -> None:
    sink = SignalSink(3, clock=clock)
    for number in range(5):
        sink.raise_signal(f"n{number}")
    assert names(sink) == ["n2", "n3", "n4"]
    assert len(sink) == 3


def test_a_clean_up_never_takes_a_live_event(clock: Clock) -> None:
    sink = SignalSink(100, 10.0, clock=clock)
    expected = []
    for number in range(20_000):  # many clean-ups by raises alone
        clock.time += 0.5
        name = f"n{number % 50}"
        sink.raise_signal(name)
        expected = [*expected[-20:], name]
        if number % 997 == 0:
            assert names(sink) == expected[-21:]
    assert names(sink) == expected


def test_arrivals_that_nobody_asks_for_are_bounded() -> None:
    sink = SignalSink(10)
    for _ in range(50_000):
        sink.raise_signal("a")
    assert len(sink._pending) <= 1025
    assert len(sink._window._log) <= 20
    assert sink.statistics().raised == 50_000


def test_resizing_acts_at_once_and_keeps_what_fits(sink: SignalSink, clock: Clock) -> None:
    for number in range(10):
        sink.raise_signal(f"n{number}")
        clock.time += 1.0
    sink.update_window_size(max_capacity=4)
    assert names(sink) == ["n6", "n7", "n8", "n9"]
    sink.update_window_size(max_capacity=100, max_age=timedelta(seconds=2))
    assert names(sink) == ["n8", "n9"]
    sink.update_window_size(max_age=60)
    assert names(sink) == ["n8", "n9"]  # gone is gone
    assert (sink.max_capacity, sink.max_age) == (100, 60.0)
    sink.update_window_size()
    assert (sink.max_capacity, sink.max_age) == (100, 60.0)


BAD_BOUNDS: list[dict[str, Any]] = [
    {"max_capacity": 0},
    {"max_capacity": -1},
    {"max_capacity": 1.5},
    {"max_capacity": True},
    {"max_capacity": "10"},
    {"max_age": 0},
    {"max_age": -1.0},
    {"max_age": math.nan},
    {"max_age": math.inf},
    {"max_age": "60"},
    {"max_age": timedelta(0)},
]


@pytest.mark.parametrize("bounds", BAD_BOUNDS, ids=str)
def test_bad_bounds_are_refused_by_name_and_change_nothing(bounds: dict[str, Any]) -> None:
    [name] = bounds
    with pytest.raises(ValueError, match=name):
        SignalSink(**bounds)
    sink = SignalSink(7, 8.0)
    with pytest.raises(ValueError, match=name):
        sink.update_window_size(**{"max_capacity": 1, "max_age": 1.0} | bounds)
    assert (sink.max_capacity, sink.max_age) == (7, 8.0)


# Asking


def test_sense_takes_a_pattern_a_set_a_predicate_or_nothing(sink: SignalSink) -> None:
    for name in ("order.placed", "order.paid", "rate-limit"):
        sink.raise_signal(name, key=name[-1])
    assert [event.signal for event in sink.sense("order.*")] == ["order.placed", "order.paid"]
    assert [event.signal for event in sink.sense("order.paid, rate-*")] == ["order.paid", "rate-limit"]
    assert [event.signal for event in sink.sense({"order.placed"})] == ["order.placed"]
    assert [event.signal for event in sink.sense(lambda event: event.key == "d")] == ["order.placed", "order.paid"]
    assert len(sink.sense()) == 3
    with pytest.raises(TypeError, match="pattern must be"):
        sink.sense(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty part"):
        sink.sense("")


def test_what_sense_returns_is_the_callers_own(sink: SignalSink) -> None:
    sink.raise_signal("a")
    sink.sense().clear()
    assert len(sink.sense()) == 1


def test_detect_takes_a_name_to_the_letter(sink: SignalSink) -> None:
    sink.raise_signal("request.*.done")
    assert sink.detect("request.*.done")
    assert not sink.detect("request.*")
    assert not sink.detect("*")
    assert sink.detect(lambda event: event.matches("request.*"))
    assert not sink.detect(lambda event: event.key == "k")
    with pytest.raises(TypeError, match="which must be a name"):
        sink.detect(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be empty"):
        sink.detect("")


def test_a_scope_ends_at_a_colon_and_a_prefix_anywhere(sink: SignalSink) -> None:
    for name in ("processing.failed:pri1:w1", "processing.failed:pri10:w1", "processing.failed:pri1", "x"):
        sink.raise_signal(name)
    assert sink.count_recent_in_scope("processing.failed:pri1") == 2
    assert sink.count_recent_by_prefix("processing.failed:pri1") == 3
    assert sink.count_recent_in_scope("processing.failed") == 3
    assert sink.count_recent_in_scope("processing") == 0
    assert sink.count_recent_exact("processing.failed:pri1") == 1
    assert sink.count_recent_by_contains("pri1") == 3
    assert sink.count_recent_by_prefix("") == sink.count_recent_by_contains("") == 4


def test_times_of_counts(sink: SignalSink, clock: Clock) -> None:
    for _ in range(5):
        sink.raise_signal("a")
        clock.time += 10.0
    # Stamped 1000, 1010 … 1040; now 1050.
    assert sink.count_recent_exact("a") == 5
    assert sink.count_recent_exact("a", since=1020.0) == 3
    assert sink.count_recent_exact("a", since=1020.0001) == 2
    assert sink.count_recent_exact("a", since=datetime.fromtimestamp(1020, UTC)) == 3
    assert sink.count_recent_exact("a", since=datetime.fromtimestamp(1020, UTC).astimezone()) == 3
    assert sink.count_recent_exact("a", within=30) == 3
    assert sink.count_recent_exact("a", within=timedelta(seconds=10)) == 1
    assert sink.count_recent_exact("a", within=0) == 0
    assert sink.count_recent_exact("a", within=10**9) == 5
    assert sink.count_recent_exact("a", since=sink.sense()[2].timestamp) == 3


@pytest.mark.parametrize(
    ("times", "error"),
    [
        ({"since": 1.0, "within": 1.0}, TypeError),
        ({"since": datetime(2024, 1, 1)}, ValueError),
        ({"since": math.nan}, ValueError),
        ({"since": "now"}, ValueError),
        ({"within": -1.0}, ValueError),
        ({"within": math.nan}, ValueError),
        ({"within": "1"}, ValueError),
    ],
)
@pytest.mark.parametrize("kind", ["by_prefix", "in_scope", "exact", "by_contains"])
def test_bad_times_are_refused(sink: SignalSink, kind: str, times: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"since|within"):
        getattr(sink, f"count_recent_{kind}")("a", **times)


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("by_prefix", None, TypeError),
        ("by_contains", 5, TypeError),
        ("in_scope", ["a"], TypeError),
        ("in_scope", "", ValueError),
        ("exact", "", ValueError),
        ("exact", "a\n", ValueError),
    ],
)
def test_texts_that_no_name_has_are_refused(sink: SignalSink, kind: str, text: Any, error: type[Exception]) -> None:
    for _ in range(2):
        with pytest.raises(error, match=r"must|holds"):
            getattr(sink, f"count_recent_{kind}")(text)


def test_signals_of_an_operation(sink: SignalSink, clock: Clock) -> None:
    sink.raise_signal("other", operation_id=8)
    sink.raise_signal("started", operation_id=7)
    clock.time += 5
    sink.raise_signal(SignalEvent("late", 7, "k", 999.0))
    sink.raise_signal("ended", "k2", operation_id=7)
    sink.raise_signal("none")
    assert [event.signal for event in sink.get_op_signals(7)] == ["started", "late", "ended"]
    assert [event.signal for event in sink.get_op_signals(7, "*ed")] == ["started", "ended"]
    assert [event.signal for event in sink.get_op_signals(0)] == ["none"]
    assert sink.get_op(7) == OperationSignalSummary(
        operation_id=7,
        key="k",
        first_at=datetime.fromtimestamp(999, UTC),
        last_at=datetime.fromtimestamp(1005, UTC),
        signals=("started", "late", "ended"),
    )
    summary = sink.get_op(8)
    assert summary is not None
    assert summary.key is None
    assert sink.get_op(9) is None
    assert sink.get_op(0) is None
    clock.time += 100
    assert sink.get_op(7) is None


@pytest.mark.parametrize(("operation_id", "error"), [(None, TypeError), ("7", TypeError), (-1, ValueError)])
def test_operation_ids_are_checked(sink: SignalSink, operation_id: Any, error: type[Exception]) -> None:
    for ask in (sink.get_op, sink.get_op_signals, sink.clear_operation):
        with pytest.raises(error, match="operation_id"):
            ask(operation_id)


# Clearing


def test_clear_says_so_and_how_much(sink: SignalSink) -> None:
    assert sink.clear() == 0
    assert sink.sense() == []  # nothing to say
    for _ in range(3):
        sink.raise_signal("a")
    assert sink.clear() == 3
    [event] = sink.sense()
    assert (event.signal, event.key) == ("sink.cleared", "3")


def test_clear_pattern_says_which_and_how_much(sink: SignalSink) -> None:
    for name in ("a:1", "a:2", "b:1"):
        sink.raise_signal(name)
    assert sink.clear_pattern("z*") == 0
    assert sink.clear_pattern("a:*") == 2
    assert [(event.signal, event.key) for event in sink.sense()] == [("b:1", None), ("sink.cleared.pattern", "a:*:2")]
    assert sink.clear_pattern(["sink.*", "b:*"]) == 2
    assert [(event.signal, event.key) for event in sink.sense()] == [("sink.cleared.pattern", "b:*, sink.*:2")]


def test_other_clears_take_exactly_what_they_name_and_say_nothing(sink: SignalSink) -> None:
    sink.raise_signal("a", "k", operation_id=1)
    sink.raise_signal("b", "k2", operation_id=2)
    sink.raise_signal("c", "k2")
    sink.raise_signal("d")
    assert sink.clear_key("k2") == 2
    assert names(sink) == ["a", "d"]
    assert sink.clear_operation(1) == 1
    assert sink.clear_operation(1) == 0
    assert sink.clear_matching(lambda event: event.signal == "d") == 1
    assert names(sink) == []
    assert sink.statistics().cleared == 4


def test_counts_follow_a_clear(sink: SignalSink) -> None:
    for name in ("a:1", "a:2", "b"):
        sink.raise_signal(name)
    assert sink.count_recent_in_scope("a") == 2
    sink.clear_matching(lambda event: event.signal == "a:1")
    assert sink.count_recent_in_scope("a") == 1
    sink.raise_signal("a:3")
    assert sink.count_recent_in_scope("a") == 2


@pytest.mark.parametrize(
    ("clear", "argument", "error"),
    [
        ("clear_pattern", "", ValueError),
        ("clear_pattern", None, TypeError),
        ("clear_pattern", set(), ValueError),
        ("clear_matching", None, TypeError),
        ("clear_matching", "a*", TypeError),
        ("clear_operation", 0, ValueError),
        ("clear_operation", None, TypeError),
        ("clear_key", "", ValueError),
        ("clear_key", None, TypeError),
    ],
)
def test_an_empty_or_missing_argument_never_clears(
    sink: SignalSink, clear: str, argument: Any, error: type[Exception]
) -> None:
    sink.raise_signal("a")
    with pytest.raises(error, match=clear.removeprefix("clear_").replace("matching", "predicate")):
        getattr(sink, clear)(argument)
    assert names(sink) == ["a"]


def test_a_predicate_that_raises_comes_out_and_clears_nothing(sink: SignalSink) -> None:
    sink.raise_signal("a")
    for ask in (sink.clear_matching, sink.sense, sink.detect):
        with pytest.raises(ZeroDivisionError):
            ask(lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    assert names(sink) == ["a"]


def test_a_predicate_may_use_the_sink(sink: SignalSink) -> None:
    for name in ("a", "b"):
        sink.raise_signal(name)

    def greedy(event: SignalEvent) -> bool:
        sink.raise_signal("seen")
        return len(sink) > 0 and sink.clear_matching(lambda other: other.signal == event.signal) == 1

    # Each was taken by the inner call, so nothing was left for the outer one to count.
    assert sink.clear_matching(greedy) == 0
    assert names(sink) == ["seen", "seen"]


# The rest


def test_statistics_balance(sink: SignalSink, clock: Clock) -> None:
    sink.update_window_size(max_capacity=5)
    for _ in range(8):
        sink.raise_signal("a")
    sink.clear_matching(lambda event: event.signal == "a")
    for _ in range(3):
        sink.raise_signal("b")
    clock.time += 100
    sink.raise_signal("c")
    found = sink.statistics()
    assert (found.raised, found.live, found.cleared, found.forgotten) == (12, 1, 5, 6)
    assert (found.listeners, found.listener_errors, found.deliveries_cut) == (0, 0, 0)


def test_an_empty_sink_is_true_so_that_or_does_not_replace_it() -> None:
    assert SignalSink()


def test_it_shows_how_full_it_is(sink: SignalSink) -> None:
    sink.raise_signal("a")
    assert repr(sink).startswith("<SignalSink ")
    assert repr(sink).endswith(": 1 of 1000 signals, 60 s>")


def test_one_block_at_a_time_and_bare_before_and_after(sink: SignalSink) -> None:
    sink.raise_signal("before")
    for _ in range(2):
        with sink as same:
            assert same is sink
            sink.raise_signal("inside")
            with pytest.raises(RuntimeError, match="open already"), sink:
                pass
    sink.raise_signal("after")
    assert names(sink) == ["before", "inside", "inside", "after"]


async def test_an_async_block_does_the_same(sink: SignalSink) -> None:
    async with sink as same:
        assert same is sink
        with pytest.raises(RuntimeError, match="open already"):
            async with sink:
                pass
    sink.raise_signal("after")
    assert names(sink) == ["after"]


@pytest.mark.parametrize("tail", [0.1234564, 0.1234565, 0.1234566, 0.1234569, 0.9999996])
def test_a_count_since_the_moment_an_event_shows_includes_that_event(
    sink: SignalSink, clock: Clock, tail: float
) -> None:
    event = SignalEvent("shown", timestamp=clock.time + tail)
    sink.raise_signal(event)
    assert sink.count_recent_exact("shown", since=event.at) == 1


def test_a_backend_that_is_none_is_refused_without_showing_its_password() -> None:
    with pytest.raises(TypeError, match=r"backend must be a SignalBackend, not str; .*from_url\(\)") as caught:
        SignalSink(backend="redis://:secret@localhost")  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_detecting_several_names_is_refused_by_the_parameters_name() -> None:
    with pytest.raises(TypeError, match=r"which must be a name or a function of an event, not \['x'\]"):
        SignalSink().detect(["x"])  # type: ignore[arg-type]
