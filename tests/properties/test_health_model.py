"""The store against a model that remembers every report and recounts all of it each time.

Times are multiples of a quarter second, so that edges of windows and leases are met exactly, and floats are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ephemeral import HealthOptions
from ephemeral._health import Change, HealthRules, Lease
from ephemeral._health_store import LocalHealthStore

MINIMUM_CALLS = 4
INTERVAL = 1.0
LONGEST = 3.0


@dataclass
class Prober:
    """A lease as the model sees it: it is answered, given back, revoked or overtaken once, and ends by time."""

    lease: Lease
    is_held: bool = True


class HealthMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(["consecutive", "windowed", "rate"]),
        threshold=st.integers(1, 4),
        window=st.sampled_from([0.5, 2.0, 10.0]),
        backoff=st.sampled_from([1.0, 2.0]),
        recovery=st.integers(1, 3),
        quorum=st.integers(1, 2),
    )
    def begin(self, policy: Any, threshold: int, window: float, backoff: float, recovery: int, quorum: int) -> None:
        self.policy, self.threshold, self.window, self.backoff = policy, threshold, window, backoff
        self.recovery, self.quorum = recovery, quorum
        health = HealthOptions(
            policy=policy,
            minimum_calls=MINIMUM_CALLS,
            quorum=quorum,
            recovery_probes=recovery,
            probe_backoff=backoff,
            max_probe_interval=LONGEST,
        )
        self.rules = HealthRules.of(
            health, failure_threshold=threshold, failure_window=window, probe_interval=INTERVAL, timeout=1.0
        )
        self.now = 50.0
        self.changes: list[Change] = []
        self.store = LocalHealthStore("me")
        self.store.on_change = self.changes.append
        self.store.register("p", self.rules, self.now)
        # The model.
        self.state = "up"
        self.epochs = [self.store.record("p").epoch]
        self.reports: list[tuple[float, bool]] = []
        self.edges: list[str] = []
        self.probers: list[Prober] = []
        self.probe_at = math.inf
        self.good = self.bad = 0

    # ---- the model's own decisions

    def enter(self, state: str) -> None:
        if (state == "up") != (self.state == "up"):
            self.edges.append("restored" if state == "up" else "down")
        self.state = state
        self.reports = []
        self.good = self.bad = 0
        self.probe_at = self.now + INTERVAL if state == "down" else math.inf
        self.drop_leases()
        self.epochs.append(self.store.record("p").epoch)

    def drop_leases(self) -> None:
        for prober in self.probers:
            prober.is_held = False

    def counted(self) -> tuple[int, int]:
        """Recount failures and successes from the reports of this epoch."""
        reports = self.reports
        if self.policy == "consecutive":
            last_success = max((i for i, (_, is_good) in enumerate(reports) if is_good), default=-1)
            reports = reports[last_success + 1 :]
        live = [is_good for at, is_good in reports if self.now - at <= self.window]
        return live.count(False), live.count(True)

    def has_failed_too_often(self) -> bool:
        failures, successes = self.counted()
        if self.policy == "rate":
            return failures + successes >= MINIMUM_CALLS and failures * 2 >= failures + successes
        return failures >= self.threshold

    # ---- what may happen

    @rule(quarters=st.sampled_from([1, 2, 4, 8, 41]))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4

    @rule(
        calls=st.lists(
            st.tuples(st.sampled_from([0, 0, 1, 2]), st.booleans(), st.sampled_from([0, 0, 0, 1, 2])), min_size=1
        )
    )
    def calls_end(self, calls: list[tuple[int, bool, int]]) -> None:
        for quarters, is_good, epochs_ago in calls:
            self.now += quarters / 4
            is_late = 0 < epochs_ago < len(self.epochs)
            epoch = self.epochs[-1 - epochs_ago] if is_late else self.epochs[-1]
            (self.store.succeeded if is_good else self.store.failed)("p", epoch, self.now)
            if self.state == "up" and not is_late:
                self.reports.append((self.now, is_good))
                if not is_good and self.has_failed_too_often():
                    self.enter("down")
            self.the_store_and_the_model_agree()

    # One rule from the wait to the verdict: in pieces, too few examples would ever get through a recovery.
    @rule(
        early_or_late=st.sampled_from([-0.25, 0.0, 0.0, 0.25]),
        quarters=st.sampled_from([0, 1, 12, 13]),
        outcome=st.sampled_from(["good", "good", "bad", "bad", "given back", "died"]),
        repeat=st.integers(1, 3),
    )
    def probers_come(self, early_or_late: float, quarters: int, outcome: str, repeat: int) -> None:
        for _ in range(repeat):
            due_at = self.store.record("p").probe_due_at
            if math.isfinite(due_at):
                self.now = max(self.now, due_at + early_or_late)
            prober = self.ask_to_probe()
            assert self.store.record("p").state_at(self.now) == self.shown_state()
            if prober is not None:
                self.now += quarters / 4
                self.end_probe(prober, outcome)

    @precondition(lambda self: self.probers)
    @rule(back=st.integers(1, 3), outcome=st.sampled_from(["good", "bad", "given back"]))
    def an_earlier_prober_speaks_up(self, back: int, outcome: str) -> None:
        self.end_probe(self.probers[-min(back, len(self.probers))], outcome)

    def ask_to_probe(self) -> Prober | None:
        lease = finished(self.store.acquire("p", self.now))
        is_free = not any(prober.is_held and self.now < prober.lease.until for prober in self.probers)
        assert (lease is not None) == (self.now >= self.probe_at and is_free)
        if lease is None:
            return None
        assert all(lease.fence > prober.lease.fence for prober in self.probers)
        assert lease.until == self.now + self.rules.lease_seconds
        self.drop_leases()
        self.probers.append(Prober(lease))
        return self.probers[-1]

    def end_probe(self, prober: Prober, outcome: str) -> None:
        if outcome == "died":
            return
        was_held, prober.is_held = prober.is_held, False
        if outcome == "given back":
            self.store.give_back(prober.lease)
            return
        self.store.finish(prober.lease, self.now, is_good=outcome == "good")
        if was_held and outcome == "bad":
            self.good, self.bad = 0, self.bad + 1
            self.probe_at = self.now + min(INTERVAL * self.backoff**self.bad, LONGEST)
        elif was_held:
            self.good, self.bad = self.good + 1, 0
            self.probe_at = self.now + INTERVAL
            if self.good == self.recovery:
                self.enter("up")

    def shown_state(self) -> str:
        is_probing = any(prober.is_held and self.now < prober.lease.until for prober in self.probers)
        return "probing" if is_probing else self.state

    # Hands do nothing half of the time: they must not interrupt so often that probing never gets anywhere.
    @rule(decision=st.sampled_from(["nothing", "nothing", "up", "isolated"]))
    def a_hand_decides(self, decision: str) -> None:
        if decision == "up":
            self.store.reset("p", self.now)
            if self.state == "up":
                self.reports = []
                self.epochs.append(self.store.record("p").epoch)
        elif decision == "isolated":
            self.store.isolate("p", self.now)
        if decision not in {"nothing", self.state}:
            self.enter(decision)

    # ---- what must hold

    @invariant()
    def the_store_and_the_model_agree(self) -> None:
        record = self.store.record("p")
        held = [prober.lease for prober in self.probers if prober.is_held]
        assert record.state == self.state
        assert record.state_at(self.now) == self.shown_state()
        assert record.probe_at == self.probe_at
        assert record.is_local == (self.state == "down" and self.quorum > 1)
        assert ([] if record.lease is None else [record.lease]) == held
        if self.state == "up":
            assert self.store.failures("p", self.now) == self.counted()[0]

    @invariant()
    def epochs_grow_with_each_change_of_state_and_each_reset_and_only_then(self) -> None:
        assert self.store.record("p").epoch == self.epochs[-1]
        assert all(earlier < later for earlier, later in zip(self.epochs, self.epochs[1:], strict=False))

    @invariant()
    def every_edge_is_told_once_and_they_alternate(self) -> None:
        told = ["down" if change.went_down else "restored" for change in self.changes if is_edge(change)]
        assert told == self.edges
        assert told == ["down", "restored"] * (len(told) // 2) + ["down"] * (len(told) % 2)

    @invariant()
    def each_change_follows_from_the_one_before(self) -> None:
        afters = [change.after for change in self.changes]
        assert all(after == change.before for after, change in zip(afters, self.changes[1:], strict=False))
        assert not afters or afters[-1] == self.store.record("p")


def is_edge(change: Change) -> bool:
    return change.went_down or change.came_up


def finished(asked: Any) -> Any:
    """Return what a coroutine returns that must not wait."""
    try:
        asked.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a local store has nothing to wait for")


TestHealth = HealthMachine.TestCase
TestHealth.settings = settings(max_examples=200, stateful_step_count=40)
