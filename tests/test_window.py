"""The window alone: what stays, what it costs to count, and that nothing is kept behind its back."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from ephemeral._counts import CountIndex
from ephemeral._signals import SignalEvent
from ephemeral._window import MAX_INDEXES, Record, Window


def record(stamp: float, name: str = "a", payload: Any = None) -> Record:
    return (name, 0, None, stamp, payload, None, "origin")


def filled(*stamps: float, capacity: int = 100, age: float = 10.0, now: float = 10.0) -> Window:
    window = Window(capacity, age)
    window.add([record(stamp) for stamp in stamps])
    window.trim(now)
    return window


def stamps_in(window: Window) -> list[float]:
    return [event.timestamp for event in window.events()]


@pytest.mark.parametrize(
    ("now", "left"),
    [(10.0, [0.0, 3.0, 5.0]), (10.5, [3.0, 5.0]), (13.0, [3.0, 5.0]), (15.0, [5.0]), (15.5, [])],
)
def test_an_event_is_live_up_to_and_at_its_age(now: float, left: list[float]) -> None:
    window = filled(0.0, 3.0, 5.0, now=now)
    assert stamps_in(window) == left
    assert len(window) == len(left)


def test_order_is_arrival_and_age_each_events_own() -> None:
    window = filled(9.0, 2.0, 8.0, 1.0, now=10.0)
    assert stamps_in(window) == [9.0, 2.0, 8.0, 1.0]
    window.trim(11.5)
    assert stamps_in(window) == [9.0, 2.0, 8.0]
    window.trim(18.5)
    assert stamps_in(window) == [9.0]


def test_a_straggler_never_takes_a_live_event_with_it() -> None:
    # Two expired ones behind the head make room; a clean-up by count would evict the live 9.0 instead.
    window = filled(9.0, 1.0, 1.5, 9.5, capacity=2, now=12.0)
    assert stamps_in(window) == [9.0, 9.5]


def test_a_straggler_lives_up_to_and_at_its_age_too() -> None:
    window = filled(5.0, 0.0, -1.0, now=10.0)
    assert stamps_in(window) == [5.0, 0.0]


def test_a_straggler_that_expires_among_live_ones_is_counted_no_more() -> None:
    window = filled(5.0, 1.0, 6.0)
    assert window.count("exact", "a", float("-inf")) == 3
    window.trim(11.5)
    assert window.count("exact", "a", float("-inf")) == 2
    assert window.count("prefix", "a", float("-inf")) == 2  # asked for the first time
    window.trim(15.5)
    assert window.count("exact", "a", float("-inf")) == 1


def test_dead_on_arrival_pushes_nothing_out() -> None:
    window = filled(9.0, 9.5, capacity=2)
    window.add([record(-5.0), record(-6.0)])
    window.trim(10.0)
    assert stamps_in(window) == [9.0, 9.5]


def test_an_event_of_the_future_makes_stragglers_of_all_and_they_still_expire() -> None:
    window = filled(1000.0, 1.0, 2.0, 3.0)
    window.trim(12.5)
    assert stamps_in(window) == [1000.0, 3.0]
    for number in range(10_000):
        window.add([record(13.0 + number)])
        window.trim(13.0 + number)
        assert len(window._log) < 300
        assert len(window._stragglers) < 300
    assert stamps_in(window) == [10_002.0 + number for number in range(11)]


def test_counting_again_looks_at_new_arrivals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    window = Window(5000, 60.0)
    window.add([record(float(number) / 1000, f"a:{number}") for number in range(5000)])
    window.trim(5.0)
    assert window.count("scope", "a", 0.0) == 5000
    index = window._indexes["scope", "a"]
    select = index._select

    def look(log: Any, first: int) -> list[int]:
        looked_at.extend(one[0] for one in log)
        return select(log, first)

    monkeypatch.setattr(index, "_select", look)
    assert window.count("scope", "a", 1.0) == 4000
    assert looked_at == []
    window.add([record(6.0, "a:new"), record(6.0, "b:new")])
    window.trim(6.0)
    assert window.count("scope", "a", 0.0) == 4999
    assert looked_at == ["a:new", "b:new"]


def test_an_index_left_behind_takes_up_where_the_window_is() -> None:
    window = filled(capacity=10)
    assert window.count("exact", "a", 0.0) == 0
    for start in (0, 100, 105):
        window.add([record(start + number / 10) for number in range(10)])
        window.trim(float(start))
        assert window.count("exact", "a", 0.0) == 10
    assert window.count("exact", "a", 105.5) == 5


def test_questions_remembered_are_bounded_and_the_laggard_goes_first() -> None:
    window = filled(1.0)
    window.count("prefix", "laggard", 0.0)
    window.add([record(2.0)])
    window.trim(2.0)
    for number in range(MAX_INDEXES):
        window.count("prefix", f"p{number}", 0.0)
    assert len(window._indexes) == MAX_INDEXES
    assert ("prefix", "laggard") not in window._indexes
    assert ("prefix", "p0") in window._indexes


def test_a_refused_question_takes_no_place() -> None:
    window = filled(1.0)
    with pytest.raises(ValueError, match="scope must not be empty"):
        window.count("scope", "", 0.0)
    assert window._indexes == {}


def test_equal_stamps_leave_the_index_one_by_one() -> None:
    index = CountIndex("exact", "a")
    log: list[Record | None] = [record(1.0), record(1.0), record(0.5), record(1.0)]
    index.follow(log, 0, 0, "first")
    assert index.count_since(1.0) == 3
    index.follow(log, 0, 2, "second")
    assert (index.count_since(0.0), index.count_since(1.0)) == (2, 1)
    index.follow(log, 0, 4, "third")
    assert index.count_since(0.0) == 0


@pytest.mark.parametrize("late", [0.5, 2.5, 9.0])
def test_what_somebody_reads_of_an_index_stays_as_it_is(late: float) -> None:
    index = CountIndex("exact", "a")
    log: list[Record | None] = [record(stamp) for stamp in (1.0, 2.0, 3.0, 4.0)]
    index.follow(log, 0, 0, "first")
    edition, stamps, first, end = index.standing
    log += [record(late), record(5.0)]
    index.follow(log, 0, 0, "second")
    index.follow(log, 0, 3, "third")
    assert (edition, stamps[first:end]) == ("first", [1.0, 2.0, 3.0, 4.0])
    assert index.count_since(0.0) == 3


def test_an_answer_stands_until_something_comes_or_goes() -> None:
    window = filled(1.0, 2.0, 3.0)
    question = ("exact", "a", 0.0)
    assert window.standing_count(*question, now=3.0) is None
    assert window.count(*question) == 3
    assert window.standing_count(*question, now=3.0) == 3
    assert window.standing_count("exact", "a", 2.0, now=3.0) == 2
    assert window.standing_count("exact", "b", 0.0, now=3.0) is None
    window.trim(3.0)
    assert window.standing_count(*question, now=3.0) == 3
    # The first grows too old: it must be let go, not just left out.
    assert window.standing_count(*question, now=1.5 + window.max_age) is None
    window.add([record(3.5)])
    assert window.standing_count(*question, now=3.5) is None
    assert window.count(*question) == 4
    window.remove({id(window.events()[0])})
    assert window.standing_count(*question, now=3.5) is None
    assert window.count(*question) == window.standing_count(*question, now=3.5) == 3


def test_removing_counts_only_what_is_still_there() -> None:
    window = filled(1.0, 2.0, 3.0)
    first, second, third = window.events()
    assert window.remove({id(first), id(third), 12345}) == 2
    assert window.remove({id(first)}) == 0
    assert window.events() == [second]
    assert window.removed == 2
    assert window.count("exact", "a", 0.0) == 1


def test_events_are_built_once() -> None:
    window = filled(1.0, 2.0)
    before = window.events()
    window.add([record(3.0)])
    window.trim(3.0)
    after = window.events()
    assert all(one is other for one, other in zip(before, after, strict=False))
    assert all(isinstance(event, SignalEvent) for event in after)


class Big:
    pass


@pytest.mark.parametrize("how", ["age", "capacity", "remove"])
def test_what_has_left_is_not_kept_alive_for_long(how: str) -> None:
    window = Window(8, 10.0)
    payloads = [Big() for _ in range(8)]
    alive = [weakref.ref(one) for one in payloads]
    window.add([record(1.0, payload=one) for one in payloads])
    window.trim(1.0)
    del payloads
    if how == "age":
        window.trim(20.0)
    elif how == "capacity":
        window.add([record(2.0) for _ in range(8)])
        window.trim(2.0)
    else:
        window.remove({id(event) for event in window.events()})
    gc.collect()
    assert [one() for one in alive] == [None] * 8
