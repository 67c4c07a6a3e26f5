"""Every order of events, within bounds: the health that a fleet shares keeps its promises, and breaks them if broken.

What is explored is told in docs/shared-health.md, whose figures `python -m tests.model` writes. Each world bounds how
often things may happen; the long ones (`--long`) take minutes. The second half breaks the library on purpose, one part
at a time: an exploration that would not notice proves nothing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ephemeral import _health, _shared_entry
from ephemeral._health import Change, HealthRecord
from ephemeral._health_table import HealthTable
from ephemeral._shared_entry import SharedEntry
from ephemeral._shared_health import SharedHealthStore
from ephemeral.abc import SharedRecord
from ephemeral_redis._mirror import Mirror

from .explore import Action, Broken, explore
from .fleet import Fleet
from .world import World
from .worlds import DOWN, LONG, QUICK


@pytest.mark.parametrize("name", QUICK)
def test_whatever_the_order_the_promises_hold(name):
    explored = explore(Fleet(QUICK[name]))
    assert explored.at_rest > 1  # somewhere all came to rest, and was looked at


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_in_larger_worlds_too(name):
    assert explore(Fleet(LONG[name])).at_rest > 1


# What the exploration finds in a library that is broken on purpose


def ignore_the_fence(patch):
    patch.setattr(_health, "_is_held", lambda record, lease: record.lease is not None)


def ignore_the_owner(patch):
    def is_held(record, lease):
        return record.lease is not None and record.lease.fence == lease.fence

    patch.setattr(_health, "_is_held", is_held)


def ignore_that_a_lease_runs(patch):
    patch.setattr(HealthRecord, "probe_due_at", property(lambda record: record.probe_at))


def take_every_swap(patch):
    take = HealthTable.swap

    def swap(table, origin, swap, now):
        row = table.rows.get("pri1")
        return take(table, origin, swap._replace(expected=row.version if row else 0), now)

    patch.setattr(HealthTable, "swap", swap)


def put_nothing_back(patch):
    patch.setattr(Mirror, "lost_by_server", lambda mirror, processor, row: None)


def put_rows_back_as_new_ones(patch):
    lost = Mirror.lost_by_server

    def lost_by_server(mirror, processor, row):
        healing = lost(mirror, processor, row)
        return healing and healing._replace(version=0)

    patch.setattr(Mirror, "lost_by_server", lost_by_server)


def compare_rows_by_version_alone(patch):
    patch.setattr(SharedRecord, "follows", lambda row, other: row.version > other.version)


def count_reports_of_any_epoch(patch):
    count = HealthTable.report

    def report(table, origin, report, at, now):
        row = table.rows.get("pri1")
        return count(table, origin, report._replace(epoch=row.record.epoch if row else 0), at, now)

    patch.setattr(HealthTable, "report", report)
    patch.setattr("tests.model.parts.Server.counts", lambda server, report: True)


def tell_reports_of_epochs_that_are_over(patch):
    patch.setattr(Mirror, "is_over", lambda mirror, processor, epoch: False)


def keep_the_epoch_when_reset(patch):
    reset = _health.reset

    def kept(record, *, by, now):
        return Change("reset", record, record) if record.is_up else reset(record, by=by, now=now)

    patch.setattr(_shared_entry, "reset", kept)


def give_up_refused_decisions(patch):
    patch.setattr(SharedEntry, "is_overruled", lambda entry, decision: True)


def take_up_overruled_decisions(patch):
    patch.setattr(SharedEntry, "is_overruled", lambda entry, decision: False)


def forget_what_is_undecided(patch):
    patch.setattr(SharedEntry, "keep", lambda entry, decision: None)


def have_nobody_tell(patch):
    follow = SharedHealthStore._follow
    patch.setattr(SharedHealthStore, "_follow", lambda *args, is_own: follow(*args, is_own=False))


def have_everybody_tell(patch):
    follow = SharedHealthStore._follow
    patch.setattr(SharedHealthStore, "_follow", lambda *args, is_own: follow(*args, is_own=True))


def have_a_quorum_hide_the_edge(patch):
    localized = SharedHealthStore._localized

    def as_it_was(store, record):
        entry = store._entries["pri1"]
        return entry.shown if record is not entry.current else localized(store, record)

    patch.setattr(SharedHealthStore, "_localized", as_it_was)


def wait_for_what_a_flush_took_away(patch):
    patch.setattr(Mirror, "take_answers", lambda mirror: None)


def let_probes_undo_isolation(patch):
    finish = _health.finish

    def verdict(record, rules, lease, *, is_good, now):
        if record.state == "isolated" and is_good:
            return Change("probe_passed", record, replace(record, state="up", epoch=record.epoch + 1))
        return finish(record, rules, lease, is_good=is_good, now=now)

    patch.setattr(_shared_entry, "finish", verdict)


PROBING = {"begins": DOWN, "probes": 2, "seconds": 1}
BREAKS = [
    (ignore_the_fence, PROBING, "two probers"),
    (ignore_the_owner, {"begins": DOWN, "probes": 2, "cuts": 1}, "two probers"),
    (ignore_that_a_lease_runs, PROBING, "a lease is given out while another one runs"),
    (take_every_swap, PROBING, "a lease is given out while another one runs"),
    (put_nothing_back, {"fails": 1, "losses": 1}, "the table has lost the row"),
    (put_rows_back_as_new_ones, {"begins": DOWN, "probes": 1, "losses": 1}, "a good verdict"),
    pytest.param(
        *(compare_rows_by_version_alone, {"begins": DOWN, "probes": 2, "losses": 1}, "the epoch go back"),
        marks=pytest.mark.long,
    ),
    (count_reports_of_any_epoch, {"fails": 1, "resets": 1}, "reset by hand"),
    (tell_reports_of_epochs_that_are_over, {"fails": 1, "resets": 1, "flushes": 1}, "reset by hand"),
    (keep_the_epoch_when_reset, {"fails": 2, "threshold": 2, "resets": 1}, "reset by hand"),
    (give_up_refused_decisions, {"fails": 1, "isolates": 1}, "isolated by hand, and is not"),
    (take_up_overruled_decisions, {"fails": 1, "isolates": 1, "resets": 1}, "reset by hand"),
    (forget_what_is_undecided, {"isolates": 1, "cuts": 1}, "shows what does not hold"),
    (have_nobody_tell, {"fails": 1}, "1 edges, and [0, 0] told"),
    (have_everybody_tell, {"fails": 1}, "1 edges, and [1, 1] told"),
    (have_a_quorum_hide_the_edge, {"fails": 3, "threshold": 2, "quorum": 2}, "1 edges, and [0, 0] told"),
    (wait_for_what_a_flush_took_away, {"isolates": 1, "flushes": 1}, "what is due goes on for ever"),
    (let_probes_undo_isolation, {"begins": DOWN, "probes": 1, "isolates": 1}, "undone by probe_passed"),
]


@pytest.mark.parametrize(("break_it", "bounds", "fault"), BREAKS, ids=lambda part: getattr(part, "__name__", ""))
def test_what_is_broken_on_purpose_is_found(monkeypatch, break_it, bounds, fault):
    world = World(**bounds)
    break_it(monkeypatch)
    with pytest.raises(Broken) as found:
        explore(Fleet(world))
    assert fault in found.value.fault
    monkeypatch.undo()
    replay(world, found.value.way[:-1])


def replay(world, way):
    """Go a way again, in the library as it is: it may part from it, for fewer things are due there."""
    fleet = Fleet(world)
    for action in way:
        if action in fleet.actions():
            fleet.apply(action)
    fleet.settle()
    assert list(fleet.faults_at_rest()) == []


# The explorer itself


class Counter:
    """Goes up and down between 0 and 3; *due* names what must not go on for ever."""

    def __init__(self, due):
        self.number = 0
        self.due = due

    def save(self):
        return self.number

    def load(self, state):
        self.number = state

    def actions(self):
        may = [Action("up", is_due="up" in self.due)] if self.number < 3 else []
        return may + ([Action("down", is_due="down" in self.due)] if self.number else [])

    def apply(self, action):
        self.number += 1 if action.name == "up" else -1

    def faults_of_step(self, before, action, after):
        yield from ()

    def faults_at_rest(self):
        if self.number == 2:
            yield "two"


def test_the_explorer_visits_every_state_once_and_comes_to_rest_where_nothing_is_due():
    explored = explore(Counter({"up"}))
    assert (explored.states, explored.edges, explored.at_rest, explored.longest) == (4, 6, 1, 3)


def test_the_explorer_tells_the_shortest_way_to_a_fault():
    with pytest.raises(Broken, match=r"two, by up\(\) up\(\)"):
        explore(Counter(set()))


def test_the_explorer_finds_what_goes_on_for_ever():
    with pytest.raises(Broken, match="for ever"):
        explore(Counter({"up", "down"}))


def test_the_explorer_stops_where_it_is_told_to():
    with pytest.raises(OverflowError, match="more than 2"):
        explore(Counter({"up"}), most=2)
