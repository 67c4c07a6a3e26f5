"""What doctor finds: each case stated as facts, and each well fleet left in peace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ephemeral import GroupStatistics, HealthOptions
from ephemeral.abc import HealthRules
from ephemeral_redis._roster import Told, ToldLadder, ToldRung
from ephemeral_redis.watch.findings import Facts, Finding, find
from ephemeral_redis.watch.picture import ServerPicture

from .dashboard_kit import NOW, WHO, fleet, group, rung, worker

SERVER = ServerPicture(
    kind="redis", version="7.0.15", latency=0.0004, used_memory=10, max_memory=1000, policy="noeviction"
)
NOTHING_DONE = GroupStatistics(
    pending_count=0,
    active_count=0,
    total_enqueued=0,
    total_completed=0,
    total_failed=0,
    total_cancelled=0,
    total_abandoned=0,
    total_undelivered=0,
    callback_errors=0,
)


def facts(picture=None, **known):
    return Facts(
        picture=picture or fleet(server=SERVER), **{"told": (), "latencies": [0.0004], "may_write": True, **known}
    )


def told(name, **rules):
    judged = ToldRung("pri1", 1, "up", False, 0, HealthRules.of(HealthOptions(), **rules))
    return Told(worker(name), 60.0, (ToldLadder("default", NOTHING_DONE, (judged,)),))


def found(given: Facts) -> list[tuple[str, str]]:
    return [(finding.severity, finding.subject) for finding in find(given)]


def the_one(given: Facts) -> Finding:
    (finding,) = find(given)
    return finding


def test_a_fleet_that_is_well_is_left_in_peace() -> None:
    assert find(facts()) == []


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"version": "6.0.16"}, [("critical", "server version")]),
        ({"version": "6.2.0"}, []),
        ({"version": "unknown"}, []),
        ({"policy": "allkeys-lru"}, [("warning", "eviction policy")]),
        ({"policy": "volatile-ttl", "max_memory": 0}, [("note", "eviction policy")]),
        ({"policy": None, "used_memory": None, "max_memory": None}, []),
        ({"used_memory": 749}, []),
        ({"used_memory": 750}, [("warning", "memory")]),
        ({"used_memory": 900}, [("critical", "memory")]),
        ({"used_memory": 10**9, "max_memory": 0}, []),
    ],
)
def test_the_server(server, expected) -> None:
    assert found(facts(fleet(server=replace(SERVER, **server)))) == expected


@pytest.mark.parametrize(
    ("latencies", "expected"),
    [
        ([0.019], []),
        ([0.02], [("warning", "latency")]),
        ([0.1], [("critical", "latency")]),
        ([0.001, 0.001, 5.0], []),  # the median, for one slow answer says nothing
    ],
)
def test_latency(latencies, expected) -> None:
    assert found(facts(latencies=latencies)) == expected


def test_rights() -> None:
    assert found(facts(denied=["INFO"])) == [("note", "rights to look")]
    assert found(facts(may_write=False, lacking=["SET", "DEL"])) == [("note", "rights of a worker")]
    lacking = the_one(facts(lacking=["XTRIM", "HINCRBY"]))
    assert (lacking.severity, lacking.subject) == ("critical", "rights of a worker")
    assert "XTRIM, HINCRBY" in lacking.found


def down(state="down", seconds=10.0, **fields):
    return rung(1, state, since=NOW - seconds, epoch=5, by=WHO["api-2"], **fields)


@pytest.mark.parametrize(
    ("rungs", "expected"),
    [
        ([down(), rung(2)], [("note", "pri1")]),
        ([down(seconds=599), rung(2)], [("note", "pri1")]),
        ([down(seconds=600), rung(2)], [("warning", "pri1")]),
        ([down("probing", seconds=600), rung(2)], [("warning", "pri1")]),
        ([down("isolated", seconds=3599), rung(2)], [("note", "pri1")]),
        ([down("isolated", seconds=3600), rung(2)], [("warning", "pri1")]),
        ([down()], [("critical", "ladder default"), ("note", "pri1")]),
        ([rung(1, down_alone=(WHO["api-3"],)), rung(2)], [("warning", "pri1")]),
    ],
)
def test_rungs(rungs, expected) -> None:
    assert found(facts(fleet(group(*rungs), server=SERVER))) == expected


def test_a_ladder_without_workers_is_not_said_to_have_no_rung_left() -> None:
    assert found(facts(fleet(group(down(), workers=0), server=SERVER))) == [("note", "pri1")]


def test_a_rung_that_was_isolated_and_forgotten_is_told_with_who_did_it_and_how_to_mend_it() -> None:
    ladder = group(down("isolated", seconds=3 * 3600), rung(2))
    finding = the_one(facts(fleet(ladder, server=SERVER)))
    assert "isolated by api-2, for 3 h" in finding.found
    assert "ephemeral reset pri1" in finding.fix
    assert "pri2" in finding.means


def test_workers_whose_rules_differ_are_named_with_both_values() -> None:
    finding = the_one(facts(told=[told("api-1"), told("api-2"), told("api-3", failure_threshold=5, failure_window=30)]))
    assert (finding.severity, finding.subject) == ("warning", "pri1")
    assert "failure_threshold=3 in api-1, api-2; failure_threshold=5 in api-3" in finding.found
    assert "failure_window=10.0 in api-1, api-2; failure_window=30.0 in api-3" in finding.found


def test_workers_whose_rules_are_the_same_are_not_told() -> None:
    assert find(facts(told=[told("api-1", probe_interval=2), told("api-2", probe_interval=2)])) == []


def test_different_versions_are_told_with_who_runs_which() -> None:
    workers = (worker("api-1"), worker("api-2", version="0.2.0"))
    finding = the_one(facts(fleet(workers=workers, server=SERVER)))
    assert (finding.subject, "0.1.0 in api-1; 0.2.0 in api-2" in finding.found) == ("library versions", True)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"told": NOW - 5.5}, "has not told of itself for"),
        ({"is_degraded": True}, "was without the bus"),
        ({"reconnects": 5, "degraded_seconds": 12.5}, "12.5 s in all"),
        ({"dropped": 1200}, "dropped 1,200 signals"),
        ({"outbox": 1000}, "1,000 signals wait"),
        ({"missed": 3}, "missed 3 signals"),
        ({"lag": 1.5}, "1.5 s after"),
        ({"undecodable": 2}, "could not read 2"),
        ({"undelivered": 4}, "4 signals of others reached no listener"),
        ({"listener_errors": 7}, "raised 7 times"),
        ({"reports_dropped": 9}, "9 calls ended"),
    ],
)
def test_a_worker_that_is_unwell(fields, said) -> None:
    finding = the_one(facts(fleet(workers=(worker("api-1", **fields),), server=SERVER)))
    assert (finding.severity, finding.subject) == ("warning", "api-1")
    assert said in finding.found


@pytest.mark.parametrize(
    "fields",
    [{"told": NOW - 4.9}, {"reconnects": 4, "degraded_seconds": 12.5}, {"outbox": 999}, {"lag": 1.0}],
)
def test_a_worker_that_is_well_enough(fields) -> None:
    assert find(facts(fleet(workers=(worker("api-1", **fields),), server=SERVER))) == []


def test_what_cannot_be_read_and_an_empty_namespace() -> None:
    assert found(facts(fleet(server=SERVER, unreadable=2))) == [("warning", "namespace")]
    assert "none ever did" in the_one(facts(fleet(workers=(), server=SERVER), is_used=False)).means


def test_the_worst_comes_first_and_only_notes_need_no_action() -> None:
    picture = fleet(group(down()), workers=(worker("api-1", missed=1),), server=SERVER)
    findings = find(facts(picture))
    assert [(finding.severity, finding.needs_action) for finding in findings] == [
        ("critical", True),
        ("warning", True),
        ("note", False),
    ]


def test_each_finding_says_what_it_means_and_what_to_do() -> None:
    workers = (
        worker("a", told=0, dropped=1, outbox=5000, missed=1, lag=9, undecodable=1, undelivered=1, reports_dropped=1),
        worker("b", version="9", is_degraded=True),
    )
    server = replace(SERVER, version="5.0", policy="allkeys-lru", used_memory=999)
    picture = fleet(
        group(down("isolated"), down(), rung(3, down_alone=("x",))), workers=workers, server=server, unreadable=1
    )
    findings = find(facts(picture, lacking=["SET"], denied=["INFO"], latencies=[1.0]))
    assert len(findings) >= 15
    for finding in findings:
        assert finding.found
        assert finding.means
        assert finding.fix
