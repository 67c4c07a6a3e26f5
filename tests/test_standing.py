"""Which failures a worker holds for counted: what it tells again where the server forgets them."""

from __future__ import annotations

import pytest

from ephemeral import HealthOptions
from ephemeral._health import HealthRules
from ephemeral.abc import HealthNews, HealthReport
from ephemeral_redis._standing import Kept, Standing, standing


def rules_of(policy="consecutive", threshold=3):
    return HealthRules.of(HealthOptions(policy=policy), failure_threshold=threshold, failure_window=10.0)


def ended(calls, rules, *, first=0, epoch=0):
    """Return calls that ended one a second: ``x`` failed, ``.`` did not."""
    return [
        Kept(HealthReport("pri1", epoch, call == "x", rules, lambda _: None), float(at), at)
        for at, call in enumerate(calls, first)
    ]


@pytest.mark.parametrize(
    ("policy", "told", "recent", "numbers"),
    [
        ("consecutive", "", "x", [0]),
        ("consecutive", "xx", "x", [0, 1, 2]),
        ("consecutive", "xx", ".", []),
        ("consecutive", "xx", "x.x", [4]),
        ("consecutive", "xx", "xxxx", [3, 4, 5]),  # enough is enough
        ("windowed", "xx", ".x", [0, 1, 3]),
        ("rate", "xx", "x", []),
    ],
)
def test_what_counts_is_what_nothing_has_cleared(policy, told, recent, numbers):
    rules = rules_of(policy)
    counting = standing(ended(told, rules), ended(recent, rules, first=len(told)), rules, 6.0)
    assert [kept.number for kept in counting] == numbers


def test_what_has_left_the_window_counts_no_longer():
    rules = rules_of()
    assert [kept.number for kept in standing(ended("xxx", rules), ended("x", rules, first=12), rules, 12.0)] == [2, 12]


@pytest.mark.parametrize(
    ("kind", "row", "failures", "is_kept"),
    [
        ("counted", None, 2, True),
        ("counted", None, 0, False),
        ("uncounted", None, 0, True),
        ("failures", object(), 3, False),
    ],
)
def test_a_new_row_and_a_success_anywhere_end_what_stood(kind, row, failures, is_kept):
    known, rules = Standing(), rules_of()
    known.keep("pri1", ended("xx", rules, epoch=7))
    known.news(HealthNews(kind, "other", "pri1", row, failures))
    assert bool(known.told("pri1", 7)) == is_kept


def test_failures_of_another_epoch_are_none_of_this_one():
    known, rules = Standing(), rules_of()
    known.keep("pri1", ended("xx", rules, epoch=7))
    assert known.told("pri1", 8) == []
    assert len(known.told("pri1", 7)) == 2
    known.keep("pri1", [])
    assert known.told("pri1", 7) == []
