"""The sink against a model that keeps a list and recounts: bounds, order and counts agree after any history."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ephemeral import SignalEvent, SignalSink, _sink, matches_pattern

NAMES = ["a", "a:x", "a:x:1", "a:xy", "b", "b:x", "a*"]
names = st.sampled_from(NAMES)
# Steps and bounds share a grid, so that stamps fall exactly on the edge of the window now and then.
steps = st.integers(0, 24).map(lambda quarter: quarter / 4)
TEXTS = {
    "prefix": ["", "a", "a:x", "b", "z"],
    "scope": ["a", "a:x", "b", "a:x:1"],
    "exact": NAMES,
    "contains": ["", ":x", "*", "y"],
}
questions = st.sampled_from([(kind, text) for kind, texts in TEXTS.items() for text in texts])


def is_meant(kind: str, text: str, name: str) -> bool:
    return {
        "prefix": name.startswith(text),
        "scope": name == text or name.startswith(text + ":"),
        "exact": name == text,
        "contains": text in name,
    }[kind]


class SinkMachine(RuleBasedStateMachine):
    PENDING = 3  # arrivals between two clean-ups, so that some come without a query

    @initialize(capacity=st.integers(1, 12), age=st.integers(1, 5))
    def start(self, capacity: int, age: int) -> None:
        self.time = 1000.0
        _sink._MIN_PENDING = self.PENDING  # type: ignore[misc]
        self.sink = SignalSink(capacity, float(age), clock=lambda: self.time)
        self.capacity, self.age = capacity, float(age)
        self.arrived: list[SignalEvent] = []  # since the last clean-up
        self.live: list[SignalEvent] = []
        self.raised = self.cleared = 0

    def teardown(self) -> None:
        _sink._MIN_PENDING = 1024  # type: ignore[misc]

    def settled(self) -> list[SignalEvent]:
        seen = [event for event in self.live + self.arrived if event.timestamp >= self.time - self.age]
        self.live, self.arrived = seen[-self.capacity :], []
        return self.live

    def arrive(self, event: SignalEvent) -> None:
        self.raised += 1
        self.arrived.append(event._replace(origin=self.sink._origin))
        if len(self.arrived) > max(self.PENDING, self.capacity):
            self.settled()

    @rule(name=names, key=st.sampled_from([None, "k"]), operation=st.integers(0, 2))
    def raise_name(self, name: str, key: str | None, operation: int) -> None:
        self.sink.raise_signal(name, key, operation_id=operation)
        self.arrive(SignalEvent(name, operation, key, self.time))

    @rule(name=names, back=steps, ahead=st.booleans())
    def raise_event_with_a_stamp_of_its_own(self, name: str, back: float, ahead: bool) -> None:
        event = SignalEvent(name, timestamp=self.time + (back if ahead else -back))
        self.sink.raise_signal(event)
        self.arrive(event)

    @rule(name=names, count=st.integers(1, 40))
    def raise_many(self, name: str, count: int) -> None:
        for _ in range(count):
            self.raise_name(name, None, 0)

    @rule(step=steps)
    def pass_time(self, step: float) -> None:
        self.time += step

    @rule(step=steps)
    def set_the_clock_back(self, step: float) -> None:
        self.time -= step

    @rule(capacity=st.none() | st.integers(1, 12), age=st.none() | st.integers(1, 5))
    def resize(self, capacity: int | None, age: int | None) -> None:
        self.sink.update_window_size(capacity, age)
        self.settled()
        self.capacity, self.age = capacity or self.capacity, float(age or self.age)
        self.settled()

    @rule(question=questions, back=st.none() | steps, within=st.booleans())
    def count(self, question: tuple[str, str], back: float | None, within: bool) -> None:
        kind, text = question
        ask: Any = {
            "prefix": self.sink.count_recent_by_prefix,
            "scope": self.sink.count_recent_in_scope,
            "exact": self.sink.count_recent_exact,
            "contains": self.sink.count_recent_by_contains,
        }[kind]
        if back is None:
            found = ask(text)
        elif within:
            found = ask(text, within=back)
        else:
            found = ask(text, since=self.time - back)
        since = -math.inf if back is None else self.time - back
        assert found == sum(is_meant(kind, text, event.signal) and event.timestamp >= since for event in self.settled())

    @rule(name=names)
    def detect(self, name: str) -> None:
        assert self.sink.detect(name) == any(event.signal == name for event in self.settled())

    @rule(pattern=st.sampled_from(["a:*", "*x*", "b, a", "?", "*"]))
    def sense(self, pattern: str) -> None:
        found = self.sink.sense(pattern)
        assert found == [event for event in self.settled() if matches_pattern(event.signal, pattern)]

    @rule(operation=st.integers(0, 2))
    def ask_for_an_operation(self, operation: int) -> None:
        found = self.sink.get_op_signals(operation)
        assert found == [event for event in self.settled() if event.operation_id == operation]

    def remove(self, doomed: Any) -> int:
        count = sum(map(doomed, self.settled()))
        self.live = [event for event in self.live if not doomed(event)]
        self.cleared += count
        return count

    @rule()
    def clear(self) -> None:
        count = self.sink.clear()
        assert count == self.remove(lambda _: True)
        if count:
            self.arrive(SignalEvent("sink.cleared", key=str(count), timestamp=self.time))

    @rule(pattern=st.sampled_from(["a:*", "b*"]))
    def clear_pattern(self, pattern: str) -> None:
        count = self.sink.clear_pattern(pattern)
        assert count == self.remove(lambda event: matches_pattern(event.signal, pattern))
        if count:
            self.arrive(SignalEvent("sink.cleared.pattern", key=f"{pattern}:{count}", timestamp=self.time))

    @rule(operation=st.integers(1, 2))
    def clear_operation(self, operation: int) -> None:
        assert self.sink.clear_operation(operation) == self.remove(lambda event: event.operation_id == operation)

    @rule()
    def clear_key(self) -> None:
        assert self.sink.clear_key("k") == self.remove(lambda event: event.key == "k")

    @rule()
    def look_at_everything(self) -> None:
        assert self.sink.sense() == self.settled()
        assert len(self.sink) == len(self.live)

    @rule()
    def read_the_statistics(self) -> None:
        found = self.sink.statistics()
        assert (found.raised, found.live, found.cleared) == (self.raised, len(self.settled()), self.cleared)
        assert found.forgotten == self.raised - len(self.live) - self.cleared

    @invariant()
    def nothing_grows_beyond_a_few_windows(self) -> None:
        if hasattr(self, "sink"):
            window = self.sink._window
            bound = 3 * len(window) + 64 + max(self.PENDING, self.capacity) + 1
            assert len(window._log) <= 2 * bound
            assert len(window._stragglers) <= 2 * bound


TestSinkMachine = SinkMachine.TestCase
TestSinkMachine.settings = settings(max_examples=60, stateful_step_count=50)
