"""The verdict on a fleet, whole cases as arguments: journals, ledger rows and a timeline in, a judgement out."""

from __future__ import annotations

import dataclasses

import pytest

from ephemeral_redis.demo.fleet.evidence import Evidence, Probe, collisions_of, count_between, probes_of, turns_of
from ephemeral_redis.demo.fleet.scenario import FleetScenario
from ephemeral_redis.demo.fleet.verdict import judge_fleet, percentile
from ephemeral_redis.demo.journal import Line
from ephemeral_redis.demo.ledger import Attempt
from ephemeral_redis.demo.timeline import Entry

DOWN, UP = 1000, 2000


def accepted(at: float, widget: str) -> Line:
    return Line(at, "accepted", widget)


def done(at: float, widget: str) -> Line:
    return Line(at, "done", widget)


def health(at: float, state: str, epoch: int, **values) -> Line:
    return Line(at, "health", "pri1", state, epoch, **values)


def told(at: float, signal: str, epoch: int, **values) -> Line:
    return Line(at, "signal", signal, epoch=epoch, **values)


def probe(began_at: float, ended_at: float | None, fence: int) -> list[Line]:
    lines = [Line(began_at, "probe began", "pri1", fence=fence)]
    return lines if ended_at is None else [*lines, Line(ended_at, "probe ended", "pri1", fence=fence)]


REQUESTED, RESTORED = "failover.requested:pri1→pri2", "failover.restored:pri1"

# One of each: the primary dies at 10, worker-2 at 12 while it probes, the bus from 20 to 22.
JOURNALS = {
    "worker-1": [
        accepted(9.0, "w1"),
        health(10.2, "down", DOWN),
        told(10.2, REQUESTED, DOWN),
        *probe(11.0, 11.1, 1),
        *probe(16.0, 16.1, 3),
        health(16.2, "up", UP),
        told(16.2, RESTORED, UP),
        Line(20.1, "bus", state="lost"),
        done(21.0, "w1"),
        Line(22.3, "bus", state="reached"),
    ],
    "worker-2": [accepted(9.0, "w2"), accepted(9.1, "w3"), health(10.3, "down", DOWN), *probe(11.9, None, 2)],
    "worker-3": [
        accepted(9.5, "w4"),
        health(10.7, "down", DOWN),
        health(16.3, "up", UP),
        Line(20.1, "bus", state="lost"),
        Line(22.1, "bus", state="reached"),
    ],
}
ENTRIES = [Entry("service.killed:primary", 10.0), Entry("bus.killed", 20.0), Entry("bus.restarted", 22.0)]
ATTEMPTS = [
    Attempt("w1", "primary", 9.2, is_repeat=False),
    Attempt("w1", "backup", 21.0, is_repeat=True),
    Attempt("w3", "primary", 9.3, is_repeat=False),
    Attempt("w4", "backup", 10.9, is_repeat=False),
]
GOOD = Evidence(
    journals=JOURNALS,
    killed={"worker-2": 12.0},
    exit_codes={"worker-1": 0, "worker-3": 0},
    sent=["w1", "w2", "w3", "w4"],
    effects={"w1", "w3", "w4"},
    attempts=ATTEMPTS,
    entries=ENTRIES,
)


def changed(worker: str | None = None, lines=(), *, without=(), **values) -> Evidence:
    journals = dict(JOURNALS)
    if worker is not None:
        journals[worker] = [line for line in journals[worker] if line not in without] + list(lines)
    return dataclasses.replace(GOOD, **{"journals": journals, **values})


def test_a_fleet_that_held_together() -> None:
    verdict = judge_fleet(GOOD)
    assert verdict.objections == ()
    assert verdict.holds
    assert (verdict.accepted, verdict.done, verdict.lost) == (4, 3, ())
    assert verdict.died == ("w2",)
    assert verdict.repeats_refused == 1
    assert verdict.done_by == {"primary": 2, "backup": 1}
    assert [(turn.state, turn.epoch, turn.told_by) for turn in verdict.turns] == [
        ("down", DOWN, ("worker-1",)),
        ("up", UP, ("worker-1",)),
    ]
    assert verdict.seconds_to_first == pytest.approx((0.2,))
    assert verdict.seconds_to_last == pytest.approx((0.7,))
    assert verdict.spread == pytest.approx((0.1, 0.1, 0.5))
    assert (verdict.probes, verdict.collisions) == (3, ())
    assert verdict.prober_killed == "worker-2"
    assert verdict.seconds_to_recover == pytest.approx(4.2)
    assert verdict.bus_seconds == pytest.approx(2.0)
    assert verdict.done_meanwhile == 1
    assert verdict.seconds_to_rejoin == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("evidence", "objection"),
    [
        (changed(effects={"w1", "w3"}), "1 widgets of workers that lived were lost: w4"),
        (
            changed(attempts=[*ATTEMPTS, Attempt("w3", "backup", 12.0, is_repeat=False)]),
            "1 of the widgets took effect more than once: w3",
        ),
        (changed(effects={"w1", "w3", "w4", "x"}), "1 widgets were done that nobody sent: x"),
        (changed(exit_codes={"worker-1": 0, "worker-3": 1}), "worker-3 did not end in order (exit code 1)"),
        (changed(exit_codes={"worker-1": None, "worker-3": 0}), "worker-1 did not end in order (exit code None)"),
        (changed("worker-3", [told(10.7, REQUESTED, DOWN)]), f"pri1 down (epoch {DOWN}) was told 2 times, not once"),
        (
            changed("worker-1", without=[told(10.2, REQUESTED, DOWN)]),
            f"pri1 down (epoch {DOWN}) was told 0 times, not once",
        ),
        (
            changed("worker-1", without=[told(16.2, RESTORED, UP)]),
            f"pri1 up (epoch {UP}) was told 0 times, not once",
        ),
        (changed("worker-3", without=[health(10.7, "down", DOWN)]), f"pri1 down (epoch {DOWN}) never reached worker-3"),
        (changed("worker-3", probe(11.05, 11.2, 9)), "worker-1 and worker-3 probed at the same time"),
        (changed("worker-3", probe(11.95, 11.97, 9)), "worker-2 and worker-3 probed at the same time"),
        (
            changed(entries=[*ENTRIES, Entry("service.killed:primary", 30.0)]),
            "the primary was killed, but the fleet did not leave it",
        ),
        (changed("worker-2", [Line(11.95, "probe ended", "pri1", fence=2)]), "no worker was killed while it held the"),
        (
            changed("worker-3", [health(30.0, "down", 3000)]),
            "in the end the primary was down",
        ),
        (changed(entries=ENTRIES[:1]), "the bus was not killed and started again"),
        (changed("worker-1", without=[done(21.0, "w1")]), "no work was done while the bus was away"),
        (
            changed("worker-3", without=[Line(22.1, "bus", state="reached")]),
            "not every worker shared again when the bus was back",
        ),
    ],
)
def test_what_did_not_hold_is_said(evidence: Evidence, objection: str) -> None:
    verdict = judge_fleet(evidence)
    assert not verdict.holds
    assert any(said.startswith(objection) for said in verdict.objections), verdict.objections


def test_a_prober_that_died_for_good_is_an_objection() -> None:
    lines = {worker: [line for line in lines if line.epoch != UP] for worker, lines in JOURNALS.items()}
    assert judge_fleet(changed(journals=lines)).objections == (
        "the primary was not taken back after worker-2 died as its prober",
        "in the end the primary was down",
    )


def test_a_bus_that_is_not_ours_is_not_asked_for() -> None:
    spared = changed(entries=[ENTRIES[0], Entry("bus.spared", 20.0)])
    verdict = judge_fleet(spared)
    assert verdict.is_bus_spared
    assert verdict.objections == ()


def test_what_only_a_dead_worker_accepted_is_told_apart_from_what_another_took_over() -> None:
    assert judge_fleet(changed("worker-3", [accepted(12.5, "w2")])).lost == ("w2",)
    assert judge_fleet(changed("worker-3", [accepted(12.5, "w2")])).died == ()


def test_what_a_worker_holds_alone_is_no_turn_of_the_fleet() -> None:
    alone = [health(21.0, "down", 2500, is_local=True), told(21.0, REQUESTED, 2500, is_local=True)]
    assert [turn.epoch for turn in turns_of(changed("worker-1", alone))] == [DOWN, UP]


def test_what_the_fleet_confirms_is_no_turn_for_those_who_had_found_it_alone() -> None:
    confirmed = [health(21.0, "down", 2500, is_local=True), health(22.5, "down", 2600)]
    lines = {worker: [*JOURNALS[worker], *confirmed] for worker in ("worker-1", "worker-3")}
    assert [turn.epoch for turn in turns_of(changed(journals={**JOURNALS, **lines}))] == [DOWN, UP]


def test_the_dead_are_not_expected_to_follow() -> None:
    assert [turn.unaware for turn in turns_of(GOOD)] == [(), ()]


def test_probes_are_paired_with_their_ends_and_with_deaths() -> None:
    assert [(p.worker, p.fence, p.began_at, p.ended_at, p.is_cut_short) for p in probes_of(GOOD)] == [
        ("worker-1", 1, 11.0, 11.1, False),
        ("worker-2", 2, 11.9, 12.0, True),
        ("worker-1", 3, 16.0, 16.1, False),
    ]


def ran(began_at: float, ended_at: float, fence: int, processor: str = "pri1") -> Probe:
    return Probe(
        worker=f"at-{began_at:g}",
        processor=processor,
        fence=fence,
        began_at=began_at,
        ended_at=ended_at,
        is_cut_short=False,
    )


@pytest.mark.parametrize(
    ("probes", "count"),
    [
        ([], 0),
        ([ran(1, 2, 1), ran(2, 3, 2)], 0),
        ([ran(1, 2.1, 1), ran(2, 3, 2)], 1),
        ([ran(1, 2, 1), ran(3, 4, 1)], 1),
        ([ran(1, 2, 2), ran(3, 4, 1)], 1),
        ([ran(1, 9, 1), ran(2, 3, 2, "pri2")], 0),
        ([ran(1, 9, 0), ran(2, 3, 2)], 0),
    ],
)
def test_two_probes_collide_in_time_or_by_fence(probes: list[Probe], count: int) -> None:
    assert len(collisions_of(probes)) == count


def test_widgets_are_counted_by_when_they_were_done() -> None:
    assert [count_between(GOOD, *span) for span in [(20.0, 22.0), (21.0, 21.0), (21.1, 22.0)]] == [1, 1, 0]


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, None), ([1.0], 0.5, 1.0), ([1.0, 2.0, 3.0], 0.5, 2.0), ([1.0, 2.0], 0.5, 1.0), ([1.0, 2.0], 1.0, 2.0)],
)
def test_percentiles_are_values_that_were_measured(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"workers": 1}, "workers must be from 2, for one is killed, to 8, not 1"),
        ({"workers": 9}, "workers must be from 2, for one is killed, to 8, not 9"),
        ({"items": 0}, "items must be at least 1, not 0"),
        ({"rate": 0.0}, "rate must be a number of widgets a second above 0, not 0"),
        ({"rate": float("nan")}, "rate must be a number of widgets a second above 0, not nan"),
    ],
)
def test_a_scenario_out_of_range_is_refused(values: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        FleetScenario(**values)
