"""What led to a signal, what may not lead to it, and that both travel with it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from ephemeral import (
    EphemeralOptions,
    EphemeralWorkCoordinator,
    Operation,
    SignalBlockReason,
    SignalConstraints,
    SignalEvent,
    SignalPropagation,
    SignalSink,
)

from .work_kit import working

DEEP, CYCLE, TERMINAL = SignalBlockReason


def way(*names: str) -> SignalPropagation:
    return SignalPropagation(names)


# The way


def test_a_way_begins_at_its_root_and_grows_by_one() -> None:
    root = SignalPropagation.root("a")
    assert (root.path, root.depth) == (("a",), 1)
    longer = root.extend("b")
    assert (longer.path, longer.depth) == (("a", "b"), 2)
    assert root.path == ("a",)
    assert longer.contains("a")
    assert longer.contains("b")
    assert not longer.contains("c")


def test_a_way_is_a_value() -> None:
    assert way("a", "b") == way("a").extend("b")
    assert hash(way("a", "b")) == hash(way("a", "b"))
    assert pickle.loads(pickle.dumps(way("a", "b"))) == way("a", "b")


@pytest.mark.parametrize("path", [(), ("a", ""), ("a", "b\n")])
def test_a_way_of_what_no_signal_could_be_called_is_refused(path: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="signal"):
        SignalPropagation(path)


@pytest.mark.parametrize("path", [["a"], "a", None, (1,)])
def test_a_way_of_another_type_is_refused(path: Any) -> None:
    with pytest.raises(TypeError, match=r"tuple|str"):
        SignalPropagation(path)


@pytest.mark.parametrize("propagation", [("a",), "a", 3])
def test_an_event_takes_no_other_propagation(propagation: Any) -> None:
    with pytest.raises(TypeError, match="propagation must be a SignalPropagation"):
        SignalEvent("a", propagation=propagation)


# What is blocked

CASES: list[tuple[SignalConstraints, str, SignalPropagation | None, SignalBlockReason | None]] = [
    (SignalConstraints(), "a", None, None),
    (SignalConstraints(terminal_signals="*"), "a", None, None),
    (SignalConstraints(max_depth=2), "b", way("a"), None),
    (SignalConstraints(max_depth=2), "c", way("a", "b"), DEEP),
    (SignalConstraints(max_depth=1), "b", way("a"), DEEP),
    (SignalConstraints(max_depth=None), "z", way(*map(str, range(500))), None),
    (SignalConstraints(), "a", way("a"), CYCLE),
    (SignalConstraints(), "a", way("a", "b"), CYCLE),
    (SignalConstraints(block_cycles=False), "a", way("a", "b"), None),
    (SignalConstraints(terminal_signals="end.*, last"), "b", way("a", "end.here"), TERMINAL),
    (SignalConstraints(terminal_signals="end.*, last"), "b", way("end.here", "a"), None),
    (SignalConstraints(terminal_signals={"last"}), "b", way("last"), TERMINAL),
    # In this order: too deep, then a circle, then the end of the line.
    (SignalConstraints(max_depth=2, terminal_signals="b"), "a", way("a", "b"), DEEP),
    (SignalConstraints(max_depth=3, terminal_signals="b"), "a", way("a", "b"), CYCLE),
    (SignalConstraints(max_depth=3, terminal_signals="b"), "c", way("a", "b"), TERMINAL),
    (SignalConstraints.DEFAULT, "z", way(*map(str, range(9))), None),
    (SignalConstraints.DEFAULT, "z", way(*map(str, range(10))), DEEP),
    (SignalConstraints.STRICT, "z", way(*map(str, range(4))), None),
    (SignalConstraints.STRICT, "z", way(*map(str, range(5))), DEEP),
    (SignalConstraints.STRICT, "a", way("a"), CYCLE),
    (SignalConstraints.NONE, "1", way(*map(str, range(500))), None),
]


@pytest.mark.parametrize(("constraints", "signal", "propagation", "reason"), CASES)
def test_what_may_lead_to_what(
    constraints: SignalConstraints, signal: str, propagation: SignalPropagation | None, reason: SignalBlockReason | None
) -> None:
    assert constraints.should_block(signal, propagation) is reason


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_depth", 0),
        ("max_depth", 1.5),
        ("block_cycles", 1),
        ("terminal_signals", "a,,b"),
        ("leaf_signals", 3),
        ("leaf_signals", [3]),
    ],
)
def test_a_bad_constraint_is_named(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        SignalConstraints(**{option: value})


def test_on_blocked_is_a_plain_function() -> None:
    async def later(*_: object) -> None: ...

    with pytest.raises(TypeError, match="on_blocked"):
        SignalConstraints(on_blocked=later)


def test_patterns_that_can_be_read_once_are_kept() -> None:
    constraints = SignalConstraints(terminal_signals=(name for name in ("a", "b")), leaf_signals=[])
    for _ in range(2):
        assert constraints.should_block("c", way("b")) is TERMINAL
    assert constraints.leaf_signals is None


# What operations emit because of another signal


async def emitted(cause: Any, signal: str, **constraints: Any) -> tuple[bool, SignalEvent | None, Operation]:
    sink, told, seen = SignalSink(), [], []

    def body(_: object, op: Operation) -> None:
        told.append((op.emit_caused(signal, cause), op))

    sink.subscribe(seen.append)
    made = SignalConstraints(**constraints) if constraints else None
    async with working(body_in_loop(body), signals=sink, signal_constraints=made) as work:
        await work.enqueue("item")
    [(was_emitted, op)] = told
    assert [(event.signal, event.propagation) for event in op.events] == [(e.signal, e.propagation) for e in seen]
    return was_emitted, seen[0] if seen else None, op


def body_in_loop(body: Any) -> Any:
    async def run(item: object, op: Operation) -> None:
        body(item, op)

    return run


async def test_an_event_tells_what_led_to_it() -> None:
    was_emitted, event, op = await emitted(SignalEvent("first"), "second")
    assert was_emitted
    assert event is not None
    assert event.propagation == way("first", "second")
    assert (event.depth, event.operation_id) == (2, op.id)
    assert event.would_cycle("first")
    was_emitted, event, _ = await emitted(event, "third")
    assert event is not None
    assert event.propagation == way("first", "second", "third")


async def test_a_way_may_be_given_instead_of_the_event_at_its_end() -> None:
    _, event, _ = await emitted(way("a", "b"), "c")
    assert event is not None
    assert event.propagation == way("a", "b", "c")


async def test_without_a_cause_nothing_is_blocked_and_nothing_led_to_it() -> None:
    was_emitted, event, _ = await emitted(None, "a", max_depth=1, terminal_signals="*")
    assert was_emitted
    assert event is not None
    assert event.propagation is None


async def test_without_constraints_a_circle_may_go_on() -> None:
    was_emitted, event, _ = await emitted(way(*["a", "b"] * 20), "a")
    assert was_emitted
    assert event is not None
    assert event.depth == 41


async def test_what_is_blocked_is_told_and_not_emitted() -> None:
    told: list[tuple[object, ...]] = []

    def note(*call: object) -> None:
        told.append(call)

    was_emitted, event, op = await emitted(way("a", "b"), "a", on_blocked=note)
    assert not was_emitted
    assert event is None
    assert not op.has_signal("a")
    assert told == [("a", way("a", "b"), CYCLE)]


async def test_on_blocked_that_raises_harms_nobody() -> None:
    def fail(*_: object) -> None:
        raise ValueError("mine")

    async def body(item: str, op: Operation) -> None:
        assert not op.emit_caused(item, SignalEvent(item))

    constraints = SignalConstraints(on_blocked=fail)
    async with working(body, signal_constraints=constraints) as work:
        await work.enqueue("a")
    assert (work.total_completed, work.statistics().callback_errors) == (1, 1)


async def test_a_leaf_is_emitted_and_begins_a_new_chain() -> None:
    was_emitted, event, _ = await emitted(way("a", "b"), "leaf.c", leaf_signals="leaf.*")
    assert was_emitted
    assert event is not None
    assert event.propagation is None
    _, event, _ = await emitted(event, "a", leaf_signals="leaf.*")
    assert event is not None
    assert event.propagation == way("leaf.c", "a")


@pytest.mark.parametrize(
    ("signal", "cause", "kind"), [("a", "b", TypeError), (3, None, TypeError), ("", None, ValueError)]
)
async def test_what_is_no_signal_or_no_cause_is_refused(signal: Any, cause: Any, kind: type[Exception]) -> None:
    async def body(_: object, op: Operation) -> None:
        with pytest.raises(kind):
            op.emit_caused(signal, cause)

    async with working(body) as work:
        await work.enqueue("item")
    assert work.total_completed == 1


def test_constraints_are_an_option_of_their_own_type() -> None:
    with pytest.raises(ValueError, match="signal_constraints"):
        EphemeralOptions(signal_constraints="strict")  # type: ignore[arg-type]


async def test_two_coordinators_that_answer_each_other_end_by_themselves() -> None:
    sink = SignalSink()
    answers = {"ping": "pong", "pong": "ping"}

    async def answer(event: SignalEvent, op: Operation) -> None:
        op.emit_caused(answers[event.signal], event)

    def coordinator() -> EphemeralWorkCoordinator[SignalEvent]:
        return EphemeralWorkCoordinator(
            answer, EphemeralOptions(signals=sink, signal_constraints=SignalConstraints.DEFAULT)
        )

    async with coordinator() as pinger, coordinator() as ponger:
        with (
            sink.subscribe(pinger.try_enqueue, "pong"),
            sink.subscribe(ponger.try_enqueue, "ping"),
        ):
            sink.raise_signal("ping")
            for work in (ponger, pinger):
                work.complete()
                await work.drain()
    assert [event.signal for event in sink.sense()] == ["ping", "pong"]
