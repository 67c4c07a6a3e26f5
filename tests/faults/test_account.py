"""The account that fault tests end with finds each kind of disagreement, and none where there is none."""

from __future__ import annotations

import copy

import pytest

from .kit.account import Books, Figures, disagreements, figures, one_edge_each, one_health, one_prober
from .kit.fleet import Fleet
from .kit.proxy import Proxy

BUS = {"sent": 12, "dropped": 0, "stale": 0, "outbox": 0, "missed": 0}


def two_books():
    """What two workers write down of a quiet hour: ten numbers, one word on health and one item each."""
    raised = {"n": 10, "failover.restored:pri1": 1, "processing.started": 1, "bus.gap:3": 0}
    heard = {"n": 10, "failover.restored:pri1": 1}
    return [
        Books(
            name,
            origin,
            dict(raised),
            10,
            received={other: dict(heard)},
            runs={other: [[0, 9]]},
            health=[{"processor": "pri1", "state": "up", "epoch": 5}],
            bus=dict(BUS),
        )
        for name, origin, other in (("w0", "a", "b"), ("w1", "b", "a"))
    ]


COUNTED = {"a": 12, "b": 12}


def test_books_that_tell_one_story_do_not_disagree():
    books = two_books()
    assert disagreements(books, COUNTED) == []
    assert figures(books, COUNTED) == Figures(raised=22, received=22, expected=22, counted=24, reported=0)


def lost_on_the_way(one, two):
    one.received["b"]["n"], one.runs["b"] = 9, [[0, 3], [5, 9]]


def doubled(one, two):
    one.received["b"]["n"], one.runs["b"] = 11, [[0, 4], [4, 9]]


def out_of_order(one, two):
    one.runs["b"] = [[0, 3], [5, 9], [4, 4]]


def raised_and_not_heard(one, two):
    one.raised["n"] = 9


def dropped_and_not_reported(one, two):
    two.raised["n"] = two.numbers = 11


def missed_without_a_gap(one, two):
    one.bus["missed"], two.bus["dropped"], two.numbers, two.raised["n"] = 1, 1, 11, 11


def missed_what_nobody_dropped(one, two):
    one.gaps = one.bus["missed"] = 1
    two.numbers = two.raised["n"] = 11
    two.bus["sent"] = 13


def invented(one, two):
    one.received["b"]["x"] = 1


@pytest.mark.parametrize(
    "spoil",
    [
        lost_on_the_way,
        doubled,
        out_of_order,
        raised_and_not_heard,
        dropped_and_not_reported,
        missed_without_a_gap,
        missed_what_nobody_dropped,
        invented,
    ],
)
def test_each_kind_of_disagreement_is_found(spoil):
    books = two_books()
    spoil(*books)
    assert disagreements(books, COUNTED | {"b": books[1].bus["sent"]}) != []


@pytest.mark.parametrize("counted", [{"a": 12, "b": 11}, {"a": 13, "b": 12}])
def test_a_server_that_counts_otherwise_disagrees(counted):
    assert len(disagreements(two_books(), counted)) == 1


def test_a_server_that_forgot_may_count_less_and_what_it_forgot_is_missed():
    one, two = two_books()
    one.received["b"]["n"], one.runs["b"] = 9, [[0, 3], [5, 9]]
    one.gaps = one.bus["missed"] = 1
    assert disagreements([one, two], {"a": 0, "b": 3}, forgot=True) == []
    assert disagreements([one, two], COUNTED) != []


def test_a_loss_that_both_sides_report_is_no_disagreement():
    one, two = two_books()
    one.received["b"]["n"], one.runs["b"] = 9, [[1, 9]]
    one.gaps = one.bus["missed"] = two.bus["dropped"] = 1
    two.bus["sent"] = 11
    assert disagreements([one, two], {"a": 12, "b": 11}) == []


def test_a_worker_that_was_killed_is_held_to_nothing_but_what_others_have_of_it():
    one, _ = two_books()
    killed = Books("w1", "b", {"n": 12}, 12)
    one.received["b"] = {"n": 10}
    assert disagreements([one, killed], COUNTED) == []
    one.runs["b"] = [[0, 12]]
    assert disagreements([one, killed], COUNTED) != []


def test_edges_probes_and_health_are_compared_over_all_workers():
    one, two = two_books()
    assert one_edge_each([one, two]) == one_prober([one, two]) == one_health([one, two]) == []
    spoiled = copy.deepcopy([one, two])
    for book, begin in zip(spoiled, (1.0, 1.5), strict=True):
        book.edges = [["failover.requested:pri1→pri2", 5, False]]
        book.probes = [["pri1", begin, begin + 1, False]]
    spoiled[1].health[0]["epoch"] = 6
    assert len(one_edge_each(spoiled)) == len(one_prober(spoiled)) == len(one_health(spoiled)) == 1
    # For oneself alone, each may do as it likes.
    for book in spoiled:
        book.edges[0][2] = book.probes[0][3] = True
    assert one_edge_each(spoiled) == one_prober(spoiled) == []


@pytest.mark.real_time
@pytest.mark.server
def test_a_fleet_that_has_a_bad_moment_agrees_on_it(server):
    with Proxy(server.url) as proxy, Fleet(proxy.url, server=server.url, count=2) as fleet:
        fleet.run(raises=100, calls=20)
        with fleet.broken():
            fleet.until(lambda: not any(fleet.are_up()))
            assert proxy.cut() > 0
        fleet.until(lambda: all(fleet.are_up()))
        fleet.settle()
        assert fleet.disagreements() == []
        assert all(book.bus["missed"] == 0 for book in fleet.books())
