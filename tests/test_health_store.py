"""What a store counts, keeps and tells: whole histories of calls in, states and changes out."""

from __future__ import annotations

import pytest

from ephemeral import HealthOptions
from ephemeral._health import Cause, Change, HealthRules
from ephemeral._health_store import LocalHealthStore

START = 100.0


class Watched:
    """A store of one processor, with every change that it told of."""

    def __init__(self, health: HealthOptions | None = None, **rules: object) -> None:
        self.changes: list[Change] = []
        self.store = LocalHealthStore("worker")
        self.store.on_change = self.changes.append
        self.store.register("pri1", HealthRules.of(health or HealthOptions(), **rules), START)

    @property
    def epoch(self) -> int:
        return self.store.record("pri1").epoch

    @property
    def is_up(self) -> bool:
        return self.store.record("pri1").is_up

    @property
    def causes(self) -> list[Cause]:
        return [change.cause for change in self.changes]

    def fail(self, *times: float, epoch: int | None = None) -> None:
        for now in times:
            self.store.failed("pri1", self.epoch if epoch is None else epoch, now)

    def succeed(self, *times: float, epoch: int | None = None) -> None:
        for now in times:
            self.store.succeeded("pri1", self.epoch if epoch is None else epoch, now)

    def play(self, history: str) -> None:
        """Let calls end, one a second: ``x`` failed, ``.`` succeeded, a space is a second without any."""
        for second, call in enumerate(history):
            {"x": self.fail, ".": self.succeed, " ": lambda now: None}[call](START + second)


CONSECUTIVE = HealthOptions()
WINDOWED = HealthOptions(policy="windowed")
RATE = HealthOptions(policy="rate", minimum_calls=4)


# ---- policies: threshold 3, window 10 s


@pytest.mark.parametrize(
    ("health", "history", "is_up"),
    [
        pytest.param(CONSECUTIVE, "xx", True, id="consecutive: below the threshold"),
        pytest.param(CONSECUTIVE, "xxx", False, id="consecutive: at the threshold"),
        pytest.param(CONSECUTIVE, "xx.xx", True, id="consecutive: a success ends the streak"),
        pytest.param(CONSECUTIVE, "xx.xxx", False, id="consecutive: a new streak"),
        pytest.param(CONSECUTIVE, "x    x    x", False, id="consecutive: the window's edge counts"),
        pytest.param(CONSECUTIVE, "x    x     x", True, id="consecutive: the first has left the window"),
        pytest.param(WINDOWED, "x.x.", True, id="windowed: below the threshold"),
        pytest.param(WINDOWED, "x.x.x", False, id="windowed: whatever succeeded between"),
        pytest.param(WINDOWED, "x    x    x", False, id="windowed: the window's edge counts"),
        pytest.param(WINDOWED, "x    x     x", True, id="windowed: the first has left the window"),
        pytest.param(RATE, "xxx", True, id="rate: too few calls, though at the threshold"),
        pytest.param(RATE, "xxxx", False, id="rate: all failed"),
        pytest.param(RATE, "..xx", False, id="rate: exactly the rate"),
        pytest.param(RATE, "...xx", True, id="rate: below it"),
        pytest.param(RATE, "xx..", True, id="rate: a success decides nothing"),
        pytest.param(RATE, "xx..x", False, id="rate: the next failure does"),
        pytest.param(RATE, "....    xxx", True, id="rate: a success at the window's edge counts"),
        pytest.param(RATE, "....     xxx", False, id="rate: one that has left it does not"),
    ],
)
def test_a_history_of_calls_takes_it_down_or_does_not(health: HealthOptions, history: str, is_up: bool):
    watched = Watched(health)
    watched.play(history)
    assert watched.is_up is is_up
    assert watched.causes == ([] if is_up else ["failures"])


@pytest.mark.parametrize(("quorum", "is_local"), [(1, False), (2, True)])
def test_with_a_quorum_that_one_process_cannot_reach_it_trips_for_itself(quorum: int, is_local: bool):
    watched = Watched(HealthOptions(quorum=quorum))
    watched.play("xxx")
    assert watched.store.record("pri1").is_local is is_local


def test_failures_are_counted_exactly_while_nothing_happens_too():
    watched = Watched()
    watched.fail(START, START + 4)
    assert [watched.store.failures("pri1", START + after) for after in (4, 10, 10.001, 14, 14.001)] == [2, 2, 1, 1, 0]


def test_what_took_it_down_can_be_read_until_it_is_restored():
    watched = Watched(failure_threshold=2)
    watched.play("xx")
    assert watched.store.failures("pri1", START + 500) == 2
    watched.store.reset("pri1", START + 500)
    assert watched.store.failures("pri1", START + 500) == 0


# ---- epochs


def test_a_late_success_of_a_call_from_before_the_trip_restores_nothing():
    watched = Watched()
    started = watched.epoch
    watched.play("xxx")
    watched.succeed(START + 3, epoch=started)
    assert not watched.is_up
    assert watched.causes == ["failures"]


async def test_failures_from_before_a_recovery_cause_no_relapse():
    watched = Watched(probe_interval=1.0)
    before = watched.epoch
    watched.play("xxx")
    lease = await watched.store.acquire("pri1", START + 3)
    watched.store.finish(lease, START + 3, is_good=True)
    assert watched.is_up
    # Three old ones lie within the window; two calls of old end only now; two new ones fail.
    watched.fail(START + 4, START + 4, epoch=before)
    watched.fail(START + 4, START + 4)
    assert watched.is_up
    assert watched.store.failures("pri1", START + 4) == 2


def test_a_late_success_does_not_break_the_streak_of_a_later_epoch():
    watched = Watched(probe_interval=1.0)
    before = watched.epoch
    watched.play("xxx")
    watched.store.reset("pri1", START + 3)
    watched.fail(START + 4, START + 4)
    watched.succeed(START + 4, epoch=before)
    watched.fail(START + 4)
    assert not watched.is_up


def test_failures_while_down_change_nothing():
    watched = Watched()
    watched.play("xxx")
    down = watched.store.record("pri1")
    watched.fail(START + 4, START + 4, START + 4)
    watched.succeed(START + 4)
    assert watched.store.record("pri1") == down
    assert watched.causes == ["failures"]


@pytest.mark.parametrize("health", [CONSECUTIVE, WINDOWED, RATE], ids=lambda health: health.policy)
def test_counting_starts_anew_after_a_recovery(health: HealthOptions):
    watched = Watched(health)
    watched.play("xxxx" if health is RATE else "xxx")
    watched.store.reset("pri1", START + 4)
    watched.fail(START + 4)
    assert watched.is_up
    assert watched.store.failures("pri1", START + 4) == 1


def test_under_rate_calls_from_before_a_recovery_dilute_nothing_and_later_ones_count():
    watched = Watched(RATE)
    watched.succeed(START, START)
    watched.store.isolate("pri1", START)
    watched.store.reset("pri1", START)
    watched.fail(START, START)
    assert watched.is_up, "two calls are below the minimum of four"
    watched.store.reset("pri1", START)
    watched.succeed(START, START)
    watched.fail(START, START)
    assert not watched.is_up


def test_under_rate_a_busy_processor_keeps_no_more_than_its_window():
    watched = Watched(RATE, failure_window=10.0)
    watched.succeed(*(START + second for second in range(1000)))
    assert len(watched.store._entries["pri1"].evidence._successes) == 11


# ---- probing


async def test_only_one_prober_at_a_time():
    watched = Watched(probe_interval=5.0)
    watched.play("xxx")
    due = START + 7
    assert await watched.store.acquire("pri1", due - 0.001) is None
    lease = await watched.store.acquire("pri1", due)
    assert lease is not None
    assert await watched.store.acquire("pri1", due) is None
    watched.store.give_back(lease)
    assert await watched.store.acquire("pri1", due) is not None
    assert watched.causes == ["failures", "probe_started", "probe_returned", "probe_started"]


async def test_a_prober_that_dies_holds_up_nobody():
    watched = Watched(timeout=1.0, probe_interval=5.0)
    watched.play("xxx")
    dead = await watched.store.acquire("pri1", START + 7)
    assert await watched.store.acquire("pri1", dead.until - 0.001) is None
    next_one = await watched.store.acquire("pri1", dead.until)
    assert next_one is not None
    # The dead one was only slow, and speaks up after all: the lease is another's now.
    watched.store.finish(dead, dead.until, is_good=True)
    watched.store.give_back(dead)
    assert not watched.is_up
    assert await watched.store.acquire("pri1", dead.until) is None
    watched.store.finish(next_one, dead.until, is_good=True)
    assert watched.is_up


async def test_failed_probes_wait_longer_each_and_good_ones_in_a_row_restore():
    watched = Watched(HealthOptions(recovery_probes=2, probe_backoff=2.0, max_probe_interval=15.0), probe_interval=5.0)
    watched.play("xxx")
    now, waited = START + 2, []
    for is_good in (False, False, False, True, False, True, True):
        due = watched.store.record("pri1").probe_due_at
        waited.append(due - now)
        lease = await watched.store.acquire("pri1", due)
        watched.store.finish(lease, due, is_good=is_good)
        now = due
    assert waited == [5.0, 10.0, 15.0, 15.0, 5.0, 10.0, 5.0]
    assert watched.is_up
    assert [change.cause for change in watched.changes if change.went_down] == ["failures"]
    assert [change.cause for change in watched.changes if change.came_up] == ["probe_passed"]


async def test_a_probe_out_while_a_hand_decides_changes_nothing_any_more():
    watched = Watched(probe_interval=1.0)
    watched.play("xxx")
    lease = await watched.store.acquire("pri1", START + 3)
    watched.store.isolate("pri1", START + 3)
    watched.store.finish(lease, START + 4, is_good=True)
    assert watched.store.record("pri1").state == "isolated"
    assert await watched.store.acquire("pri1", START + 1e6) is None
    watched.store.reset("pri1", START + 5)
    watched.store.finish(lease, START + 6, is_good=False)
    assert watched.is_up


# ---- by hand


def test_isolating_and_resetting_raise_one_edge_each():
    watched = Watched()
    for now in (START, START + 1):
        watched.store.isolate("pri1", now)
    for now in (START + 2, START + 3):
        watched.store.reset("pri1", now)
    assert [(change.cause, change.went_down, change.came_up) for change in watched.changes] == [
        ("isolate", True, False),
        ("reset", False, True),
        ("reset", False, False),
    ]


def test_resetting_the_healthy_forgets_its_failures_and_what_is_under_way_and_raises_no_edge():
    watched = Watched()
    watched.play("xx")
    epoch = watched.epoch
    watched.store.reset("pri1", START + 2)
    watched.fail(START + 2, START + 2)
    for _ in range(3):
        watched.store.failed("pri1", epoch, START + 3)
    assert watched.is_up
    assert [(change.went_down, change.came_up) for change in watched.changes] == [(False, False)]


# ---- the table and its listener


def test_processors_do_not_share_failures():
    watched = Watched()
    watched.store.register("pri2", HealthRules.of(HealthOptions()), START)
    watched.play("xx")
    watched.store.failed("pri2", watched.store.record("pri2").epoch, START + 2)
    assert watched.is_up
    assert watched.store.record("pri2").is_up


def test_a_listener_sees_the_table_changed_and_may_change_it_again():
    watched = Watched()
    seen: list[tuple[str, str]] = []

    def restore_at_once(change: Change) -> None:
        seen.append((change.cause, watched.store.record("pri1").state))
        watched.fail(START + 2, epoch=change.before.epoch)
        if change.went_down:
            watched.store.reset("pri1", START + 2)

    watched.store.on_change = restore_at_once
    watched.play("xxx")
    assert seen == [("failures", "down"), ("reset", "up")]
    assert watched.is_up
    assert watched.store.failures("pri1", START + 2) == 0


async def test_a_lease_revoked_by_the_listener_of_its_own_start_is_worth_nothing():
    watched = Watched(probe_interval=1.0)
    watched.play("xxx")
    watched.store.on_change = lambda change: watched.store.isolate("pri1", START + 3)
    lease = await watched.store.acquire("pri1", START + 3)
    watched.store.finish(lease, START + 3, is_good=True)
    assert watched.store.record("pri1").state == "isolated"


def test_a_listener_that_raises_leaves_the_table_right():
    watched = Watched()

    def refuse(change: Change) -> None:
        raise RuntimeError(change.cause)

    watched.store.on_change = refuse
    with pytest.raises(RuntimeError, match="failures"):
        watched.play("xxx")
    assert not watched.is_up
    watched.fail(START + 3)
    with pytest.raises(RuntimeError, match="reset"):
        watched.store.reset("pri1", START + 3)
    assert watched.is_up
    assert watched.store.failures("pri1", START + 3) == 0


def test_a_store_that_nobody_listens_to_decides_all_the_same():
    store = LocalHealthStore("worker")
    store.register("pri1", HealthRules.of(HealthOptions(), failure_threshold=1), START)
    store.failed("pri1", store.record("pri1").epoch, START)
    assert not store.record("pri1").is_up


async def test_what_a_call_reports_after_its_processor_was_forgotten_is_ignored():
    watched = Watched(probe_interval=1.0)
    watched.play("xxx")
    lease = await watched.store.acquire("pri1", START + 3)
    watched.store.forget("pri1")
    watched.store.forget("pri1")
    watched.store.failed("pri1", 1, START)
    watched.store.succeeded("pri1", 1, START)
    watched.store.finish(lease, START, is_good=True)
    watched.store.give_back(lease)
    watched.store.isolate("pri1", START)
    watched.store.reset("pri1", START)
    assert await watched.store.acquire("pri1", START) is None
    assert watched.causes == ["failures", "probe_started"]
    with pytest.raises(KeyError, match="pri1"):
        watched.store.record("pri1")
    with pytest.raises(KeyError, match="pri1"):
        watched.store.failures("pri1", START)


def test_a_processor_registered_twice_is_refused_and_kept():
    watched = Watched()
    watched.play("xxx")
    with pytest.raises(ValueError, match="'pri1' is registered already"):
        watched.store.register("pri1", HealthRules.of(HealthOptions()), START)
    assert not watched.is_up
