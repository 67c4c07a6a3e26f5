"""The decisions on health, each case stated whole: a record and a time in, a change or none out."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace
from datetime import timedelta

import pytest

from ephemeral import HealthOptions, _health
from ephemeral._health import Change, Counts, HealthRecord, HealthRules, Lease

NOW = 1000.0
EPOCH = 7
DUE = NOW - 1
LEASE = Lease("pri1", "prober", fence=3, until=NOW + 5)

UP = HealthRecord("pri1", epoch=EPOCH, since=0.0, by="start", fence=2)
DOWN = replace(UP, state="down", by="a", failures=3, probe_at=DUE)
PROBED = replace(DOWN, lease=LEASE, fence=LEASE.fence, last_probe_at=NOW - 5)
ORPHANED = replace(PROBED, lease=LEASE._replace(until=NOW), fence=LEASE.fence)
ISOLATED = replace(UP, state="isolated", by="a")


def rules(health: HealthOptions | None = None, **options: object) -> HealthRules:
    names = ("failure_threshold", "failure_window", "probe_interval", "timeout")
    own = {name: options.pop(name) for name in names if name in options}
    return HealthRules.of(health or HealthOptions(**options), **own)


# ---- options and rules


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("policy", "sometimes"),
        ("policy", None),
        ("failure_rate", 0),
        ("failure_rate", 1.01),
        ("failure_rate", math.nan),
        ("failure_rate", "0.5"),
        ("failure_rate", True),
        ("minimum_calls", 0),
        ("minimum_calls", 2.0),
        ("slow_after", 0),
        ("slow_after", -1.0),
        ("slow_after", math.inf),
        ("quorum", 0),
        ("quorum", True),
        ("recovery_probes", 0),
        ("recovery_probes", "1"),
        ("probe_backoff", 0.99),
        ("probe_backoff", math.inf),
        ("probe_backoff", math.nan),
        ("max_probe_interval", 0.0),
        ("max_probe_interval", math.nan),
        ("max_probe_interval", None),
    ],
)
def test_an_option_out_of_range_is_refused_by_name_and_value(field: str, value: object):
    with pytest.raises(ValueError, match=rf"^{field} must be ") as caught:
        HealthOptions(**{field: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("failure_threshold", 0),
        ("failure_threshold", 2.5),
        ("failure_window", 0),
        ("failure_window", math.inf),
        ("probe_interval", -1),
        ("probe_interval", "5"),
        ("timeout", 0),
    ],
)
def test_a_rule_out_of_range_is_refused_by_name_and_value(field: str, value: object):
    with pytest.raises(ValueError, match=rf"^{field} must be ") as caught:
        HealthRules.of(HealthOptions(), **{field: value})
    assert repr(value) in str(caught.value)


def test_options_hold_the_defaults_of_the_contract_and_cannot_change():
    options = HealthOptions()
    assert options == HealthOptions(
        policy="consecutive",
        failure_rate=0.5,
        minimum_calls=20,
        slow_after=None,
        quorum=1,
        recovery_probes=1,
        probe_backoff=1.0,
        max_probe_interval=60.0,
    )
    with pytest.raises(FrozenInstanceError):
        options.quorum = 2  # type: ignore[misc]


def test_durations_may_be_timedeltas_and_are_kept_as_seconds():
    options = HealthOptions(slow_after=timedelta(milliseconds=250), max_probe_interval=timedelta(minutes=2))
    assert (options.slow_after, options.max_probe_interval) == (0.25, 120.0)
    made = HealthRules.of(options, failure_window=timedelta(minutes=1), probe_interval=timedelta(seconds=3))
    assert (made.failure_window, made.probe_interval, made.max_probe_interval) == (60.0, 3.0, 120.0)


@pytest.mark.parametrize(
    ("options", "lease_seconds"),
    [
        pytest.param({"timeout": 3.0}, 5.0, id="until the timeout must have struck"),
        pytest.param({"slow_after": 1.0}, 3.0, id="until the probe counts as slow"),
        pytest.param({"timeout": 3.0, "slow_after": 1.0}, 3.0, id="slow strikes first"),
        pytest.param({"timeout": 1.0, "slow_after": 3.0}, 3.0, id="timeout strikes first"),
        pytest.param({"timeout": timedelta(seconds=3)}, 5.0, id="a timedelta"),
        pytest.param({}, 60.0, id="nothing bounds the probe"),
        pytest.param({"max_probe_interval": 300.0}, 300.0, id="nothing bounds it, and probing may be slower still"),
    ],
)
def test_a_lease_lasts_until_the_verdict_must_be_known(options: dict[str, object], lease_seconds: float):
    assert rules(**options).lease_seconds == lease_seconds


# ---- too many failures?


@pytest.mark.parametrize(
    ("options", "own", "fleet", "origins", "reach"),
    [
        pytest.param({}, Counts(2), Counts(2), 1, None, id="below the threshold"),
        pytest.param({}, Counts(3), Counts(3), 1, "fleet", id="at the threshold"),
        pytest.param({}, Counts(1), Counts(3), 3, "fleet", id="the fleet's failures add up"),
        pytest.param({"policy": "windowed"}, Counts(3), Counts(3), 1, "fleet", id="windowed, at the threshold"),
        pytest.param({"quorum": 2}, Counts(3), Counts(3), 1, "worker", id="one worker is no quorum: for itself"),
        pytest.param({"quorum": 2}, Counts(2), Counts(3), 2, "fleet", id="the quorum agrees"),
        pytest.param({"quorum": 3}, Counts(1), Counts(9), 2, None, id="no quorum, and my own share is small"),
        pytest.param({"quorum": 3}, Counts(3), Counts(9), 2, "worker", id="no quorum, but I have seen enough"),
        pytest.param({"quorum": 2}, Counts(3), Counts(1), 2, "worker", id="others succeed: my streak is mine alone"),
        pytest.param({"policy": "rate"}, Counts(19, 0), Counts(19, 0), 1, None, id="rate, too few calls"),
        pytest.param({"policy": "rate"}, Counts(10, 10), Counts(10, 10), 1, "fleet", id="rate, exactly reached"),
        pytest.param({"policy": "rate"}, Counts(10, 11), Counts(10, 11), 1, None, id="rate, just missed"),
        pytest.param({"policy": "rate", "minimum_calls": 1}, Counts(1), Counts(1), 1, "fleet", id="rate, no threshold"),
        pytest.param(
            {"policy": "rate", "failure_rate": 0.07}, Counts(7, 93), Counts(7, 93), 1, "fleet", id="rate, no rounding"
        ),
        pytest.param(
            {"policy": "rate"}, Counts(20, 0), Counts(20, 100), 2, None, id="quorum of one: the fleet overrules me"
        ),
        pytest.param(
            {"policy": "rate", "quorum": 2}, Counts(20, 0), Counts(21, 100), 2, "worker", id="I am sick, they are not"
        ),
    ],
)
def test_for_whom_a_failure_is_one_too_many(
    options: dict[str, object], own: Counts, fleet: Counts, origins: int, reach: str | None
):
    assert _health.judge(rules(**options), own=own, fleet=fleet, origins=origins) == reach


# ---- epochs


@pytest.mark.parametrize(
    ("last", "now", "expected"),
    [
        pytest.param(0, 12.3456, 12345, id="the millisecond of the clock"),
        pytest.param(0, 0.0, 1, id="a clock that starts at nothing"),
        pytest.param(12345, 12.3456, 12346, id="twice in a millisecond"),
        pytest.param(99_999, 12.0, 100_000, id="a clock that is behind"),
    ],
)
def test_an_epoch_always_grows(last: int, now: float, expected: int):
    assert _health.next_epoch(last, now) == expected


STATES = [UP, DOWN, PROBED, ISOLATED]
STATE_IDS = ["up", "down", "probing", "isolated"]


# ---- edges


@pytest.mark.parametrize(("reach", "is_local"), [("fleet", False), ("worker", True)])
def test_a_trip_takes_the_processor_down_until_a_probe(reach: _health.Reach, is_local: bool):
    change = _health.trip(UP, rules(probe_interval=5.0), reach, failures=3, by="a", now=NOW)
    assert change.after == HealthRecord(
        "pri1",
        epoch=1_000_000,
        since=NOW,
        by="a",
        state="down",
        is_local=is_local,
        failures=3,
        probe_at=NOW + 5.0,
        fence=2,
    )
    assert (change.cause, change.before) == ("failures", UP)
    assert (change.went_down, change.came_up) == (True, False)


@pytest.mark.parametrize(
    ("record", "went_down"),
    [pytest.param(UP, True, id="up"), pytest.param(DOWN, False, id="down"), pytest.param(PROBED, False, id="probing")],
)
def test_isolating_takes_out_without_any_probe(record: HealthRecord, went_down: bool):
    change = _health.isolate(record, by="hand", now=NOW)
    assert change is not None
    assert change.after == HealthRecord(
        "pri1",
        epoch=1_000_000,
        since=NOW,
        by="hand",
        state="isolated",
        fence=record.fence,
        last_probe_at=record.last_probe_at,
    )
    assert (change.cause, change.went_down, change.came_up) == ("isolate", went_down, False)
    assert change.after.probe_due_at == math.inf


@pytest.mark.parametrize("record", STATES[1:], ids=STATE_IDS[1:])
def test_resetting_brings_back_and_remembers_no_failure(record: HealthRecord):
    change = _health.reset(record, by="hand", now=NOW)
    assert change is not None
    assert change.after == HealthRecord(
        "pri1", epoch=1_000_000, since=NOW, by="hand", fence=record.fence, last_probe_at=record.last_probe_at
    )
    assert (change.cause, change.went_down, change.came_up) == ("reset", False, True)


def test_isolating_the_isolated_changes_nothing():
    assert _health.isolate(ISOLATED, by="hand", now=NOW) is None


def test_resetting_the_healthy_is_no_edge_but_an_epoch_in_which_nothing_older_counts():
    change = _health.reset(UP, by="hand", now=NOW)
    assert change.after == replace(UP, epoch=change.after.epoch)
    assert change.after.epoch > UP.epoch
    assert not change.went_down
    assert not change.came_up


# ---- probing


@pytest.mark.parametrize(
    ("record", "now"),
    [
        pytest.param(UP, NOW, id="up: nothing to probe"),
        pytest.param(ISOLATED, NOW, id="isolated: never probed"),
        pytest.param(DOWN, DUE - 0.001, id="not yet due"),
        pytest.param(PROBED, NOW, id="another prober is at it"),
        pytest.param(PROBED, LEASE.until - 0.001, id="the last millisecond of its lease"),
    ],
)
def test_no_lease_is_given(record: HealthRecord, now: float):
    assert _health.grant(record, rules(), owner="b", now=now) is None


@pytest.mark.parametrize(
    ("record", "now"),
    [
        pytest.param(DOWN, DUE, id="exactly due"),
        pytest.param(DOWN, NOW, id="long due"),
        pytest.param(PROBED, LEASE.until, id="a prober died, its lease ends now"),
        pytest.param(PROBED, LEASE.until + 100, id="a prober died long ago"),
    ],
)
def test_a_due_probe_gets_a_lease_with_a_new_fence(record: HealthRecord, now: float):
    change = _health.grant(record, rules(timeout=3.0), owner="b", now=now)
    assert change is not None
    lease = change.after.lease
    assert lease == Lease("pri1", "b", fence=int(now * 1000), until=now + 5.0)
    assert change.after == replace(record, lease=lease, fence=lease.fence, last_probe_at=now)
    assert change.cause == "probe_started"
    assert (change.went_down, change.came_up) == (False, False)


def test_two_leases_in_one_millisecond_have_different_fences():
    first = _health.grant(DOWN, rules(), owner="a", now=NOW)
    assert first is not None
    returned = _health.give_back(first.after, first.after.lease)
    assert returned is not None
    second = _health.grant(returned.after, rules(), owner="b", now=NOW)
    assert second is not None
    assert second.after.lease.fence > first.after.lease.fence


@pytest.mark.parametrize(
    ("record", "now", "state"),
    [
        (UP, NOW, "up"),
        (DOWN, NOW, "down"),
        (ISOLATED, NOW, "isolated"),
        (PROBED, LEASE.until - 0.001, "probing"),
        pytest.param(PROBED, LEASE.until, "down", id="the prober died"),
    ],
)
def test_probing_is_what_a_running_lease_looks_like(record: HealthRecord, now: float, state: str):
    assert record.state_at(now) == state


@pytest.mark.parametrize(
    ("good_probes", "recovery_probes", "is_restored"),
    [
        pytest.param(0, 1, True, id="one is enough"),
        pytest.param(0, 2, False, id="first of two"),
        pytest.param(1, 2, True, id="second of two"),
        pytest.param(1, 3, False, id="second of three"),
    ],
)
def test_good_probes_restore_once_there_are_enough_in_a_row(good_probes: int, recovery_probes: int, is_restored: bool):
    record = replace(PROBED, good_probes=good_probes, failed_probes=4)
    decided_by = rules(recovery_probes=recovery_probes, probe_interval=5.0)
    change = _health.finish(record, decided_by, LEASE, is_good=True, now=NOW)
    assert change is not None
    assert (change.cause, change.came_up) == ("probe_passed", is_restored)
    if is_restored:
        assert change.after == HealthRecord(
            "pri1", epoch=1_000_000, since=NOW, by="prober", fence=LEASE.fence, last_probe_at=NOW - 5
        )
    else:
        expected = replace(PROBED, lease=None, good_probes=good_probes + 1, failed_probes=0, probe_at=NOW + 5.0)
        assert change.after == expected


def test_a_bad_probe_ends_the_row_of_good_ones_and_waits_longer():
    record = replace(PROBED, good_probes=2, failed_probes=1)
    decided_by = rules(recovery_probes=3, probe_interval=5.0, probe_backoff=2.0)
    change = _health.finish(record, decided_by, LEASE, is_good=False, now=NOW)
    after = replace(PROBED, lease=None, good_probes=0, failed_probes=2, probe_at=NOW + 20.0)
    assert change == Change("probe_failed", record, after)


@pytest.mark.parametrize("is_good", [True, False], ids=["good", "bad"])
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(replace(PROBED, lease=LEASE._replace(owner="b", fence=4), fence=4), id="another has taken over"),
        pytest.param(replace(PROBED, lease=None), id="answered already"),
        pytest.param(ISOLATED, id="isolated meanwhile"),
        pytest.param(UP, id="reset meanwhile"),
    ],
)
def test_a_verdict_under_a_lost_lease_is_ignored(record: HealthRecord, is_good: bool):
    assert _health.finish(record, rules(), LEASE, is_good=is_good, now=NOW) is None
    assert _health.give_back(record, LEASE) is None


def test_a_verdict_that_nobody_overtook_counts_though_its_lease_has_ended():
    change = _health.finish(ORPHANED, rules(), LEASE, is_good=True, now=NOW + 60)
    assert change is not None
    assert change.came_up


def test_a_lease_given_back_makes_the_next_probe_due_at_once():
    change = _health.give_back(PROBED, LEASE)
    assert change == Change("probe_returned", PROBED, replace(PROBED, lease=None))
    assert _health.grant(change.after, rules(), owner="b", now=NOW) is not None


@pytest.mark.parametrize(
    ("options", "failed_probes", "delay"),
    [
        pytest.param({"probe_interval": 5.0}, 9, 5.0, id="no backoff"),
        pytest.param({"probe_interval": 5.0, "probe_backoff": 2.0}, 0, 5.0, id="none failed yet"),
        pytest.param({"probe_interval": 5.0, "probe_backoff": 2.0}, 1, 10.0, id="one failed"),
        pytest.param({"probe_interval": 5.0, "probe_backoff": 2.0}, 3, 40.0, id="three failed"),
        pytest.param({"probe_interval": 5.0, "probe_backoff": 2.0}, 4, 60.0, id="up to the maximum"),
        pytest.param({"probe_interval": 5.0, "probe_backoff": 2.0}, 10**6, 60.0, id="beyond any float"),
        pytest.param({"probe_interval": 90.0}, 1, 90.0, id="longer than the maximum, as asked for"),
        pytest.param({"probe_interval": 90.0, "probe_backoff": 2.0}, 5, 90.0, id="longer, and does not grow"),
    ],
)
def test_the_delay_to_the_next_probe(options: dict[str, object], failed_probes: int, delay: float):
    assert _health.probe_delay(rules(**options), failed_probes) == delay
