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

    @rule(quarters=st.integers(1, 20))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4

    @rule(back=st.integers(0, 2), is_good=st.booleans(), times=st.integers(1, 4))
    def calls_end(self, back: int, is_good: bool, times: int) -> None:
        for _ in range(times):
            is_current = back == 0 or len(self.epochs) == 1
            epoch = self.epochs[-1] if is_current else self.epochs[max(0, len(self.epochs) - 1 - back)]
            (self.store.succeeded if is_good else self.store.failed)("p", epoch, self.now)
            if is_current and self.state == "up":
                self.reports.append((self.now, is_good))
                if not is_good and self.has_failed_too_often():
                    self.enter("down")

    @rule()
    def somebody_asks_to_probe(self) -> None:
        lease = finished(self.store.acquire("p", self.now))
        is_free = not any(prober.is_held and self.now < prober.lease.until for prober in self.probers)
        assert (lease is not None) == (self.now >= self.probe_at and is_free)
        if lease is not None:
            assert all(lease.fence > prober.lease.fence for prober in self.probers)
            assert lease.until == self.now + self.rules.lease_seconds
            self.drop_leases()
            self.probers.append(Prober(lease))

    @precondition(lambda self: self.probers)
    @rule(back=st.integers(0, 2), is_good=st.booleans())
    def a_prober_reports(self, back: int, is_good: bool) -> None:
        prober = self.probers[max(0, len(self.probers) - 1 - back)]
        self.store.finish(prober.lease, self.now, is_good=is_good)
        if not prober.is_held:
            return
        prober.is_held = False
        if not is_good:
            self.good, self.bad = 0, self.bad + 1
            self.probe_at = self.now + min(INTERVAL * self.backoff**self.bad, LONGEST)
            return
        self.good, self.bad = self.good + 1, 0
        self.probe_at = self.now + INTERVAL
        if self.good == self.recovery:
            self.enter("up")

    @precondition(lambda self: self.probers)
    @rule(back=st.integers(0, 2))
    def a_prober_gives_up(self, back: int) -> None:
        prober = self.probers[max(0, len(self.probers) - 1 - back)]
        self.store.give_back(prober.lease)
        prober.is_held = False

    @rule()
    def a_hand_isolates(self) -> None:
        self.store.isolate("p", self.now)
        if self.state != "isolated":
            self.enter("isolated")

    @rule()
    def a_hand_resets(self) -> None:
        self.store.reset("p", self.now)
        self.reports = []
        if self.state != "up":
            self.enter("up")

    # ---- what must hold

    @invariant()
    def the_store_and_the_model_agree(self) -> None:
        record = self.store.record("p")
        held = [prober.lease for prober in self.probers if prober.is_held]
        is_probing = any(self.now < lease.until for lease in held)
        assert record.state == self.state
        assert record.state_at(self.now) == ("probing" if is_probing else self.state)
        assert record.probe_at == self.probe_at
        assert record.is_local == (self.state == "down" and self.quorum > 1)
        assert ([] if record.lease is None else [record.lease]) == held
        if self.state == "up":
            assert self.store.failures("p", self.now) == self.counted()[0]

    @invariant()
    def epochs_grow_with_each_change_of_state_and_only_then(self) -> None:
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
TestHealth.settings = settings(max_examples=60, stateful_step_count=40)
