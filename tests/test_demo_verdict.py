"""The verdict, whole cases as arguments: ledger rows and a timeline in, a judgement out."""

from __future__ import annotations

import pytest

from ephemeral_redis.demo.ledger import Attempt
from ephemeral_redis.demo.scenario import Scenario
from ephemeral_redis.demo.timeline import Entry, Timeline
from ephemeral_redis.demo.verdict import judge

OUTAGE = [
    Entry("service.killed:primary", 10.0),
    Entry("failover.requested:pri1→pri2", 10.1),
    Entry("service.restarted:primary", 20.0),
    Entry("service.listening:primary", 20.5),
    Entry("failover.restored:pri1", 21.0),
]


def done(widget: str, at: float, service: str = "primary") -> Attempt:
    return Attempt(widget, service, at, is_repeat=False)


def repeat(widget: str, at: float, service: str = "backup") -> Attempt:
    return Attempt(widget, service, at, is_repeat=True)


def test_an_outage_survived() -> None:
    attempts = [done("w1", 9.0), done("w2", 9.9), repeat("w2", 10.2), done("w3", 10.3, "backup"), done("w4", 21.5)]
    verdict = judge(["w1", "w2", "w3", "w4"], {"w1", "w2", "w3", "w4"}, attempts, OUTAGE)
    assert verdict.holds
    assert (verdict.sent, verdict.done, verdict.repeats_refused) == (4, 4, 1)
    assert verdict.done_by == {"primary": 3, "backup": 1}
    assert verdict.seconds_to_backup == pytest.approx(0.3)  # the refused repeat was no work done
    assert verdict.seconds_to_listen == pytest.approx(0.5)
    assert verdict.seconds_to_restored == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("sent", "attempts", "objection"),
    [
        pytest.param(["w1", "w2"], [done("w1", 1.0)], "1 of the widgets sent were lost: w2", id="lost"),
        pytest.param(
            [f"w{n}" for n in range(9)],
            [],
            "9 of the widgets sent were lost: w0, w1, w2, w3, w4 …",
            id="many lost: the first few are named",
        ),
        pytest.param(["w1"], [repeat("w1", 1.0)], "1 of the widgets sent were lost: w1", id="a repeat is no effect"),
        pytest.param(
            ["w1"],
            [done("w1", 1.0), done("w1", 2.0, "backup")],
            "1 of the widgets took effect more than once: w1",
            id="doubled",
        ),
        pytest.param(
            ["w1"], [done("w1", 1.0), done("w9", 2.0)], "1 widgets were done that nobody sent: w9", id="unknown"
        ),
    ],
)
def test_what_the_ledger_shows_is_held_against_the_run(sent, attempts, objection) -> None:
    verdict = judge(sent, {a.widget for a in attempts if not a.is_repeat}, attempts, OUTAGE)
    assert verdict.objections == (objection,)
    assert not verdict.holds


@pytest.mark.parametrize(
    ("entries", "is_back"),
    [
        pytest.param([], True, id="never killed"),
        pytest.param(OUTAGE[:1], True, id="killed, but too few failed for the ladder to turn"),
        pytest.param(OUTAGE[:4], False, id="given up and not taken back"),
        pytest.param(OUTAGE, True, id="taken back"),
        pytest.param([*OUTAGE, Entry("failover.requested:pri1→pri2", 30.0)], False, id="given up once more"),
        pytest.param([Entry("failover.requested:pri2→pri3", 1.0)], True, id="another rung"),
        pytest.param([OUTAGE[1], Entry("failover.restored:pri10", 1.0)], False, id="another rung taken back"),
    ],
)
def test_the_primary_must_be_back(entries, is_back) -> None:
    verdict = judge([], set(), [], entries)
    assert verdict.is_primary_back is is_back
    assert verdict.holds is is_back


def test_times_of_what_did_not_happen_are_unknown() -> None:
    verdict = judge(["w1"], {"w1"}, [done("w1", 9.0, "backup")], OUTAGE[:2])
    assert verdict.seconds_to_backup is None  # what the backup did before the death is no failover
    assert verdict.seconds_to_listen is None
    assert verdict.seconds_to_restored is None


def test_the_first_start_is_no_restart() -> None:
    entries = [Entry("service.listening:primary", 1.0), *OUTAGE]
    assert judge([], set(), [], entries).seconds_to_listen == pytest.approx(0.5)


def test_a_timeline_keeps_and_tells_each_entry() -> None:
    told: list[Entry] = []
    history = Timeline(on_entry=told.append)
    history.note("a", "b", at=3.0)
    history.note("c")
    assert told == history.entries
    assert told[0] == Entry("a", 3.0, "b")


@pytest.mark.parametrize("items", [3, 4, 100, 300])
def test_the_primary_dies_and_returns_within_the_run(items: int) -> None:
    scenario = Scenario(items=items, rate=50.0)
    assert 0 < scenario.kill_at < scenario.restart_at < items
    assert scenario.due(items - 1) == pytest.approx((items - 1) / 50.0)
    names = [scenario.widget(number) for number in range(items)]
    assert names == sorted(set(names))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"items": 2}, "items must be at least 3"),
        ({"rate": 0.0}, "rate must be a number of widgets a second above 0, not 0"),
        ({"rate": -1.0}, "rate must be"),
        ({"rate": float("nan")}, "rate must be"),
        ({"rate": float("inf")}, "rate must be"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(given, message) -> None:
    with pytest.raises(ValueError, match=message):
        Scenario(**given)
