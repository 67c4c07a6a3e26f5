"""A coordinator that reacts to signals, held to a model that keeps every signal and looks at all of them each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, SignalEvent, SignalSink
from ephemeral.testing import wait_all_blocked

EPOCH = 1_000_000.0
MAX_HOLD = 2.0
WORDS = ["stop", "slow", "fast", "other"]
# Multiples of a power of two: sums of them are exact, and instants often coincide.
STEPS = st.sampled_from([0.25, 0.5, 1.0, 1.75, 3.0])

ACTIONS = st.one_of(
    st.tuples(st.just("raise"), st.sampled_from(WORDS), st.sampled_from("xy"), st.sampled_from([0.0, 0.0, -0.5, -2.5])),
    st.tuples(st.just("enqueue"), st.integers(1, 3)),
    st.tuples(st.just("pass"), STEPS),
    st.tuples(st.just("clear"), st.sampled_from([*WORDS, "s*", "*"])),
    st.tuples(st.just("clear key"), st.sampled_from("xy")),
    st.tuples(st.just("age"), st.sampled_from([0.75, 1.5, 6.0])),
    st.tuples(st.just("complete")),
)


@dataclass
class Heard:
    word: str
    key: str
    stamp: float
    is_gone: bool = False


@dataclass
class Model:
    now: float = EPOCH
    max_age: float = 6.0
    heard: list[Heard] = field(default_factory=list)
    waiting: int = 0
    ran_at: list[float] = field(default_factory=list)
    skipped: int = 0
    is_completed: bool = False
    was_held_for_the_last_time: bool = False

    def newest(self, word: str) -> tuple[float, int] | None:
        found = [(seen.stamp, place) for place, seen in enumerate(self.heard) if seen.word == word and not seen.is_gone]
        return max(found, default=None)

    @property
    def is_cancelled(self) -> bool:
        newest = self.newest("stop")
        return newest is not None and newest[0] >= self.now - self.max_age

    @property
    def held_until(self) -> float:
        slow, fast = self.newest("slow"), self.newest("fast")
        if slow is None or (fast is not None and fast > slow):
            return 0.0
        return slow[0] + min(MAX_HOLD, self.max_age)

    def settle(self) -> None:
        if self.is_cancelled:
            self.skipped += self.waiting
        elif self.held_until <= self.now:
            self.ran_at += [self.now] * self.waiting
        else:
            return
        self.waiting = 0

    def let_pass(self, seconds: float) -> None:
        end = self.now + seconds
        if self.waiting and self.held_until <= end:
            self.now = self.held_until
            self.settle()
        self.now = end

    def hear(self, word: str, key: str, stamp: float) -> None:
        is_gone = False
        if self.is_completed and word == "slow":
            stamp = self.now
            is_gone = self.was_held_for_the_last_time
            self.was_held_for_the_last_time = True
        self.heard.append(Heard(word, key, stamp, is_gone or stamp < self.now - self.max_age))

    def take_back(self, word: str | None, key: str | None) -> None:
        for seen in self.heard:
            if seen.key == (key or seen.key) and (
                word in ("*", None, seen.word) or (word == "s*" and seen.word[0] == "s")
            ):
                seen.is_gone = True

    def resize(self, max_age: float) -> None:
        oldest = self.now - min(max_age, self.max_age)
        for seen in self.heard:
            seen.is_gone |= seen.stamp < oldest
        self.max_age = max_age

    def complete(self) -> None:
        if not self.is_completed:
            self.is_completed = True
            self.was_held_for_the_last_time = self.now < self.held_until


async def apply(model: Model, sink: SignalSink, work: EphemeralWorkCoordinator[int], action: tuple[Any, ...]) -> None:
    kind, *arguments = action
    if kind == "raise":
        word, key, offset = arguments
        stamp = model.now + (0.0 if model.is_completed else offset)
        model.hear(word, key, stamp)
        sink.raise_signal(SignalEvent(word, key=key, timestamp=stamp))
    elif kind == "enqueue":
        if not model.is_completed:
            model.waiting += arguments[0]
            await work.enqueue_many(range(arguments[0]))
    elif kind == "pass":
        model.let_pass(arguments[0])
        await anyio.sleep(arguments[0])
    elif kind == "clear":
        model.take_back(arguments[0], None)
        sink.clear_pattern(arguments[0])
    elif kind == "clear key":
        model.take_back(None, arguments[0])
        sink.clear_key(arguments[0])
    elif kind == "age":
        model.resize(arguments[0])
        sink.update_window_size(max_age=arguments[0])
    else:
        model.complete()
        work.complete()


@settings(max_examples=120)
@given(st.lists(ACTIONS, max_size=25), st.integers(1, 3), st.sampled_from([1, 2, 1000]))
@example([("raise", "slow", "x", 0.0), ("enqueue", 1), ("raise", "fast", "x", 0.0), ("clear", "fast")], 1, 1000)
@example([("raise", "slow", "x", 0.0), ("raise", "slow", "y", 0.0), ("enqueue", 1), ("clear key", "y")], 1, 1000)
@example([("raise", "stop", "x", 0.0), ("raise", "stop", "y", 0.0), ("clear key", "y"), ("enqueue", 1)], 1, 1)
@example(
    [("raise", "slow", "x", 0.0), ("enqueue", 1), ("complete",), ("pass", 1.0), ("raise", "slow", "x", 0.0)], 1, 1000
)
@example(
    [
        ("raise", "slow", "x", 0.0),
        ("pass", 0.5),
        ("raise", "slow", "y", 0.0),
        ("enqueue", 1),
        ("clear key", "y"),
        ("pass", 1.75),
    ],
    1,
    1000,
)
@example([("age", 0.75), ("raise", "slow", "x", 0.0), ("enqueue", 1), ("pass", 1.0)], 1, 1000)
@example(
    [("raise", "stop", "x", 0.0), ("pass", 3.0), ("pass", 3.0), ("enqueue", 1), ("pass", 0.25), ("enqueue", 1)], 1, 1000
)
async def test_items_run_wait_and_are_skipped_as_the_model_says(
    actions: list[Any], concurrency: int, capacity: int
) -> None:
    start = anyio.current_time()
    sink = SignalSink(capacity, 6.0, clock=lambda: EPOCH + anyio.current_time() - start)
    ran_at: list[float] = []

    async def body(item: int) -> None:
        ran_at.append(sink.now())

    options = EphemeralOptions(
        signals=sink,
        max_concurrency=concurrency,
        cancel_on_signals="stop",
        defer_on_signals="slow",
        resume_on_signals="fast",
        max_defer_attempts=4,
        defer_check_interval=MAX_HOLD / 4,
    )
    model = Model()
    async with EphemeralWorkCoordinator(body, options) as work:
        for action in actions:
            await apply(model, sink, work, action)
            await wait_all_blocked()
            model.settle()
            seen = work.statistics()
            assert (ran_at, seen.total_skipped, seen.pending_count) == (model.ran_at, model.skipped, model.waiting)
        model.complete()
    model.let_pass(MAX_HOLD)
    assert (ran_at, work.total_skipped) == (model.ran_at, model.skipped)
    assert sink.statistics().listener_errors == 0


@settings(max_examples=80)
@given(st.lists(st.tuples(st.sampled_from(WORDS), STEPS), max_size=30), st.integers(1, 4))
async def test_a_window_too_small_for_them_forgets_no_reaction(raised: list[tuple[str, float]], capacity: int) -> None:
    start = anyio.current_time()
    sink = SignalSink(capacity, 6.0, clock=lambda: EPOCH + anyio.current_time() - start)
    ran_at: list[float] = []

    async def body(item: int) -> None:
        ran_at.append(sink.now())

    options = EphemeralOptions(
        signals=sink,
        cancel_on_signals="stop",
        defer_on_signals="slow",
        resume_on_signals="fast",
        max_defer_attempts=4,
        defer_check_interval=MAX_HOLD / 4,
    )
    model = Model()
    async with EphemeralWorkCoordinator(body, options) as work:
        for word, seconds in raised:
            for action in (("raise", word, "x", 0.0), *[("raise", "other", "x", 0.0)] * 3, ("enqueue", 1)):
                await apply(model, sink, work, action)
            await wait_all_blocked()
            model.settle()
            await apply(model, sink, work, ("pass", seconds))
            await wait_all_blocked()
            assert (ran_at, work.total_skipped, work.pending_count) == (model.ran_at, model.skipped, model.waiting)
