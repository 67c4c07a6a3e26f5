"""Gaps and duplicates of numbered streams, as whole cases and against a set of all numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemeral import _positions
from ephemeral._positions import Positions


@pytest.mark.parametrize(
    ("entries", "fresh_from", "missed"),
    [
        pytest.param([(0, 3)], 0, 0, id="the first"),
        pytest.param([(7, 3)], 0, 0, id="the first of one that began before"),
        pytest.param([(0, 3), (3, 2)], 0, 0, id="the next"),
        pytest.param([(0, 3), (5, 2)], 0, 2, id="a gap"),
        pytest.param([(0, 3), (0, 3)], 3, 0, id="twice"),
        pytest.param([(0, 3), (2, 3)], 1, 0, id="half new"),
        pytest.param([(0, 3), (5, 2), (3, 2)], 2, 0, id="what was missed comes late: in order or not at all"),
        pytest.param([(0, 9), (0, 3), (9, 1)], 0, 0, id="a duplicate moves nothing back"),
    ],
)
def test_what_an_entry_brings(entries, fresh_from, missed):
    positions = Positions()
    for position, count in entries:
        arrival = positions.arrive("a", position, count)
    assert arrival == (fresh_from, missed)


def test_what_a_new_sender_dropped_before_its_first_signal_is_missed():
    positions = Positions()
    assert positions.arrive("a", 7, 3, is_first=True) == (0, 7)
    assert positions.arrive("a", 7, 3, is_first=True) == (3, 0)


def test_senders_are_told_apart_and_the_longest_silent_is_forgotten(monkeypatch):
    monkeypatch.setattr(_positions, "MAX_SENDERS", 2)
    positions = Positions()
    positions.arrive("a", 0, 5)
    positions.arrive("b", 0, 5)
    positions.arrive("a", 5, 1)
    positions.arrive("c", 0, 5)
    assert positions.arrive("a", 8, 1).missed == 2
    assert positions.arrive("b", 8, 1).missed == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=30))
def test_each_number_is_fresh_at_most_once_and_missed_plus_fresh_is_all(entries):
    positions = Positions()
    seen, missed, first = [], 0, None
    for position, count in entries:
        arrival = positions.arrive("a", position, count)
        first = position if first is None else first
        seen += range(position + arrival.fresh_from, position + count)
        missed += arrival.missed
    assert seen == sorted(set(seen))
    if seen:
        assert len(seen) + missed == seen[-1] + 1 - first
