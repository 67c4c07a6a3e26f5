"""What signals ask of a coordinator, decided from what was heard: the whole case stands in the arguments."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ephemeral import SignalEvent
from ephemeral._reactions import Match, ReactionRules, Reactions, Verdict

RUN, SKIP, HOLD = Verdict
RULES = ReactionRules(cancel="stop, stop.*", defer="slow", resume="fast", max_hold=10.0)
MAX_AGE = 60.0


def heard(*signals: tuple[str, float] | tuple[str, float, float], rules: ReactionRules = RULES) -> Reactions:
    """Hear (name, stamp) each at its stamp, or (name, stamp, heard at)."""
    reactions = Reactions(rules)
    for name, stamp, *at in signals:
        reactions = reactions.heard(SignalEvent(name, timestamp=stamp), at[0] if at else stamp)
    return reactions


CASES: list[tuple[str, list[Any], float, Verdict]] = [
    ("nothing was heard", [], 100, RUN),
    ("nothing that means anything", [("other", 99), ("slower", 99)], 100, RUN),
    ("a signal that cancels", [("stop", 100)], 100, SKIP),
    ("one that matches by a wildcard", [("stop.all", 100)], 100, SKIP),
    ("one exactly as old as may be", [("stop", 40)], 100, SKIP),
    ("one a little older", [("stop", 39.9)], 100, RUN),
    ("a newer one after an older", [("stop", 30), ("stop", 70)], 100, SKIP),
    ("an older one after a newer", [("stop", 70), ("stop", 30)], 100, SKIP),
    ("one stamped ahead", [("stop", 1000)], 100, SKIP),
    ("a signal that defers", [("slow", 100)], 100, HOLD),
    ("just before its time is over", [("slow", 100)], 109.9, HOLD),
    ("when its time is over", [("slow", 100)], 110, RUN),
    ("a newer one extends the hold", [("slow", 100), ("slow", 105)], 112, HOLD),
    ("until that one is over", [("slow", 100), ("slow", 105)], 115, RUN),
    ("an older one does not shorten it", [("slow", 105), ("slow", 100)], 112, HOLD),
    ("one stamped ahead holds no longer than one of now", [("slow", 1000, 100)], 109.9, HOLD),
    ("and then lets go", [("slow", 1000, 100)], 110, RUN),
    ("a signal that resumes, later", [("slow", 100), ("fast", 101)], 101, RUN),
    ("one that resumes, earlier", [("fast", 99), ("slow", 100)], 101, HOLD),
    ("one with an earlier stamp, heard later", [("slow", 100), ("fast", 99)], 101, HOLD),
    ("one with a later stamp, heard earlier", [("fast", 101), ("slow", 100)], 101, RUN),
    ("one of the same instant, heard later", [("slow", 100), ("fast", 100)], 100, RUN),
    ("one of the same instant, heard earlier", [("fast", 100), ("slow", 100)], 100, HOLD),
    ("deferred again after a resume", [("slow", 100), ("fast", 101), ("slow", 102)], 103, HOLD),
    ("a resume with nothing deferred", [("fast", 100)], 100, RUN),
    ("cancelled and deferred", [("slow", 100), ("stop", 100)], 100, SKIP),
    ("cancelled and resumed", [("stop", 100), ("fast", 101)], 101, SKIP),
]


@pytest.mark.parametrize(("case", "signals", "now", "verdict"), CASES, ids=[case[0] for case in CASES])
def test_the_next_item(case: str, signals: list[Any], now: float, verdict: Verdict) -> None:
    assert heard(*signals).verdict(now, MAX_AGE) is verdict


def test_a_hold_ends_with_the_age_of_its_signal_if_that_comes_first() -> None:
    reactions = heard(("slow", 100))
    assert reactions.held_until(MAX_AGE) == 110
    assert reactions.held_until(5) == 105
    assert reactions.verdict(104.9, 5) is HOLD
    assert reactions.verdict(105, 5) is RUN


def test_without_a_hold_there_is_nothing_to_wait_for() -> None:
    assert heard().held_until(MAX_AGE) == -math.inf
    assert heard(("slow", 100), ("fast", 101)).held_until(MAX_AGE) == -math.inf


def test_one_signal_may_mean_several_things() -> None:
    rules = ReactionRules(defer="*", resume="*", max_hold=10)
    assert heard(("a", 100), rules=rules).verdict(100, MAX_AGE) is HOLD
    assert heard(("a", 100), ("b", 101), rules=rules).verdict(101, MAX_AGE) is HOLD


def test_what_means_nothing_leaves_everything_as_it_was() -> None:
    reactions = heard(("slow", 100))
    assert reactions.heard(SignalEvent("other", timestamp=101), 101) is reactions
    assert reactions.heard(SignalEvent("slow", timestamp=99), 101) is reactions


# What was taken back


def test_what_was_taken_back_is_left_out() -> None:
    reactions = heard(("stop", 100), ("slow", 100), ("fast", 99))
    cancel, defer, resume = reactions.matches
    assert reactions.without([cancel]).matches == (defer, resume)
    assert reactions.without([cancel]).verdict(100, MAX_AGE) is HOLD
    assert reactions.without([cancel, defer, resume]).verdict(100, MAX_AGE) is RUN
    assert reactions.without([]) is reactions
    assert reactions.without([Match(SignalEvent("stop", timestamp=1), 1, 0)]) is reactions


def test_what_is_heard_again_keeps_its_order() -> None:
    events = [SignalEvent(name, timestamp=100) for name in ("fast", "slow", "fast")]
    reactions = Reactions(RULES)
    for count, verdict in enumerate([RUN, HOLD, RUN], 1):
        for event in events[:count]:
            reactions = reactions.heard_again(event, 100)
        assert reactions.verdict(100, MAX_AGE) is verdict


def test_what_had_left_the_window_is_older_than_what_is_in_it() -> None:
    reactions = heard(("fast", 100), ("slow", 100))
    for _ in range(2):
        reactions = reactions.heard_again(SignalEvent("slow", timestamp=100), 101)
    assert reactions.verdict(101, MAX_AGE) is HOLD


# Completed


def test_once_completed_no_later_signal_extends_a_hold() -> None:
    reactions = heard(("slow", 100)).completed(105, MAX_AGE)
    for stamp in (104, 105, 106):
        assert reactions.heard(SignalEvent("slow", timestamp=stamp), 106).held_until(MAX_AGE) == 110


def test_once_completed_there_is_no_second_hold() -> None:
    reactions = heard(("slow", 100)).completed(105, MAX_AGE)
    assert reactions.heard(SignalEvent("slow", timestamp=120), 120).verdict(120, MAX_AGE) is RUN


@pytest.mark.parametrize("before", [[], [("slow", 90)], [("slow", 100), ("fast", 101)]])
def test_what_is_not_held_as_it_completes_may_be_held_once(before: list[Any]) -> None:
    reactions = heard(*before).completed(105, MAX_AGE)
    for stamp in (107, 108):
        reactions = reactions.heard(SignalEvent("slow", timestamp=stamp), stamp)
    assert reactions.held_until(MAX_AGE) == 117
    assert reactions.heard(SignalEvent("fast", timestamp=109), 109).verdict(109, MAX_AGE) is RUN
    assert reactions.heard(SignalEvent("slow", timestamp=130), 130).verdict(130, MAX_AGE) is RUN


def test_completing_again_allows_no_other_hold() -> None:
    reactions = heard(("slow", 100)).completed(105, MAX_AGE)
    assert reactions.completed(200, MAX_AGE) is reactions


def test_once_completed_signals_still_cancel_and_resume() -> None:
    reactions = heard(("slow", 100)).completed(105, MAX_AGE)
    assert reactions.heard(SignalEvent("stop", timestamp=106), 106).verdict(106, MAX_AGE) is SKIP
    assert reactions.heard(SignalEvent("fast", timestamp=106), 106).verdict(106, MAX_AGE) is RUN


def test_what_had_deferred_before_may_be_heard_again_once_completed() -> None:
    reactions = heard(("slow", 100), ("slow", 102)).completed(105, MAX_AGE)
    reactions = reactions.without(reactions.matches)
    for stamp in (100, 106):
        reactions = reactions.heard_again(SignalEvent("slow", timestamp=stamp), 107)
    assert reactions.held_until(MAX_AGE) == 110


# Waited out


def test_a_hold_that_was_waited_out_is_over_whatever_a_clock_says() -> None:
    reactions = heard(("slow", 100))
    assert reactions.waited_out(reactions.defer).verdict(100, MAX_AGE) is RUN


def test_a_newer_signal_holds_although_an_older_was_waited_out() -> None:
    before = heard(("slow", 100)).defer
    reactions = heard(("slow", 100), ("slow", 101))
    assert reactions.waited_out(before) is reactions


# Drain

MAIL = ReactionRules(drain="coordinator.drain.*, shutdown", coordinator_id="mail.out")
DRAINS: list[tuple[str, str | None, bool]] = [
    ("coordinator.drain.all", None, True),
    ("coordinator.drain.all", "anything", True),
    ("coordinator.drain.id", "mail.out", True),
    ("coordinator.drain.id", "mail", False),
    ("coordinator.drain.id", None, False),
    ("coordinator.drain.pattern", "mail.*", True),
    ("coordinator.drain.pattern", "web, mail.*", True),
    ("coordinator.drain.pattern", "web.*", False),
    ("coordinator.drain.pattern", None, False),
    ("coordinator.drain.pattern", "", False),
    ("coordinator.drain.pattern", "mail.*,,", False),
    ("shutdown", None, True),
    ("other", None, False),
]


@pytest.mark.parametrize(("signal", "key", "asked"), DRAINS)
def test_who_is_asked_to_drain(signal: str, key: str | None, asked: bool) -> None:
    assert MAIL.ask_to_drain(SignalEvent(signal, key=key)) is asked


def test_a_coordinator_without_an_id_is_meant_by_requests_to_all_alone() -> None:
    rules = ReactionRules(drain="coordinator.drain.*")
    assert rules.ask_to_drain(SignalEvent("coordinator.drain.all"))
    assert not rules.ask_to_drain(SignalEvent("coordinator.drain.id", key="mail"))
    assert not rules.ask_to_drain(SignalEvent("coordinator.drain.pattern", key="*"))


def test_without_a_pattern_nothing_asks_to_drain() -> None:
    assert not ReactionRules(coordinator_id="mail").ask_to_drain(SignalEvent("coordinator.drain.all"))


# Rules


def test_the_pattern_of_all_rules() -> None:
    assert ReactionRules().pattern == ()
    assert ReactionRules(cancel="a, b", defer=("c", "d"), drain="e").pattern == ("a, b", "c", "d", "e")


@pytest.mark.parametrize(("kind", "steers"), [("cancel", True), ("defer", True), ("resume", False), ("drain", False)])
def test_only_cancel_and_defer_decide_about_items(kind: str, steers: bool) -> None:
    assert ReactionRules(**{kind: "a"}).steer is steers  # type: ignore[arg-type]
