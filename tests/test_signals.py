"""Names and events as values."""

from __future__ import annotations

import copy
import math
import pickle
import time
from datetime import UTC, datetime
from enum import StrEnum

import pytest

from ephemeral import SignalEvent, SignalPropagation, SignalSink
from ephemeral._signals import known_names, validate_name

EVENT = SignalEvent("processing.failed:pri1:w42", 7, "customer", 1_700_000_000.25, {"n": [1]}, None, "here")


@pytest.mark.parametrize(
    "name", ["a", "x" * 512, "ä" * 256, "€" * 170, "a b", "request.*", "failover:pri1→pri2", "a,b"]
)
def test_printable_names_of_up_to_512_bytes_are_valid(name: str) -> None:
    assert validate_name(name) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "must not be empty"),
        ("a\nb", r"'a\\nb' holds an unprintable character"),
        ("\x1b[2J", r"'\\x1b\[2J' holds"),
        ("a\u200bb", r"'a\\u200bb' holds"),
        ("\ud800", r"'\\ud800' holds"),
        ("x" * 513, r"takes 513 bytes of UTF-8, more than 512; put the long part into the payload"),
        ("ä" * 257, "takes 514 bytes"),
        ("\n" * 10_000, r"…"),
    ],
)
def test_other_names_are_refused_in_a_printable_sentence_of_a_length_to_read(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        validate_name(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("name", [None, 1, b"a", ["a"], {"a"}])
def test_a_name_of_another_type_is_refused_by_type(name: object) -> None:
    for attempt in (validate_name, SignalSink().raise_signal):
        with pytest.raises(TypeError, match=f"signal name must be a str, not {type(name).__name__}"):
            attempt(name)  # type: ignore[operator]


def test_a_refused_name_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="unprintable"):
            SignalSink().raise_signal("a\n")


def test_names_found_valid_are_remembered_within_a_bound() -> None:
    for number in range(10_000):
        validate_name(f"bounded:{number}")
    assert len(known_names) <= 4096


def test_members_of_a_str_enum_are_names() -> None:
    class Signal(StrEnum):
        FAILED = "failed"

    sink = SignalSink()
    sink.raise_signal(Signal.FAILED)
    assert sink.detect("failed")
    assert sink.count_recent_in_scope("failed") == 1
    assert all(type(name) is str for name in known_names)


def test_an_event_is_an_immutable_value() -> None:
    same = SignalEvent(*EVENT)
    assert same == EVENT
    assert hash(same) == hash(EVENT)
    assert EVENT._replace(key="other") != EVENT
    assert pickle.loads(pickle.dumps(EVENT)) == EVENT
    assert type(pickle.loads(pickle.dumps(EVENT))) is SignalEvent
    with pytest.raises(AttributeError):
        EVENT.signal = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        EVENT.extra = 1  # type: ignore[attr-defined]


def test_a_raised_event_is_the_same_value() -> None:
    sink = SignalSink()
    sink.raise_signal("a", "k", operation_id=7, payload=[1])
    [event] = sink.sense()
    built = SignalEvent(*event)
    assert event == built
    assert hash(event) == hash(built)
    assert repr(event) == repr(built)
    for copied in (pickle.loads(pickle.dumps(event)), copy.copy(event), copy.deepcopy(event)):
        assert copied == built
        assert type(copied) is SignalEvent
    assert event._replace(key="other") == built._replace(key="other")
    assert not hasattr(event, "__dict__")


def test_an_event_shows_what_it_carries_and_nothing_else() -> None:
    text = repr(EVENT)
    assert text == (
        "<SignalEvent 'processing.failed:pri1:w42' operation_id=7 key='customer' payload={'n': [1]} origin='here'"
        " at 2023-11-14T22:13:20.250+00:00>"
    )
    assert repr(SignalEvent("a", timestamp=0)) == "<SignalEvent 'a' at 1970-01-01T00:00:00.000+00:00>"


def test_an_event_without_a_stamp_happened_now() -> None:
    before = time.time()
    event = SignalEvent("a")
    assert before <= event.timestamp <= time.time()
    assert (event.operation_id, event.key, event.payload, event.propagation, event.origin) == (0, None, None, None, "")


def test_its_instant_is_aware() -> None:
    assert EVENT.at == datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=UTC)
    assert SignalEvent("a", timestamp=EVENT.at).timestamp == EVENT.timestamp


@pytest.mark.parametrize(
    "stamp", [math.nan, math.inf, -math.inf, 1e300, -1e12, 2.6e11, "now", True, datetime(2024, 1, 1)]
)
def test_a_stamp_that_is_no_instant_is_refused(stamp: object) -> None:
    with pytest.raises(ValueError, match="timestamp must be"):
        SignalEvent("a", timestamp=stamp)  # type: ignore[arg-type]
    if isinstance(stamp, float):
        with pytest.raises(ValueError, match="timestamp must be"):
            SignalSink().raise_signal(EVENT._replace(timestamp=stamp))


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"key": 1}, TypeError, "key must be a str or None, not int"),
        ({"operation_id": "1"}, TypeError, "operation_id must be an int, not str"),
        ({"operation_id": None}, TypeError, "operation_id must be an int, not NoneType"),
        ({"operation_id": True}, TypeError, "operation_id must be an int, not bool"),
        ({"operation_id": -1}, ValueError, r"operation_id must lie in 0\.\.2\*\*63-1, not -1"),
        ({"operation_id": 2**63}, ValueError, "operation_id must lie in"),
    ],
)
def test_key_and_operation_are_checked_wherever_they_enter(
    fields: dict[str, object], error: type[Exception], message: str
) -> None:
    sink = SignalSink()
    with pytest.raises(error, match=message):
        SignalEvent("a", **fields)  # type: ignore[arg-type]
    with pytest.raises(error, match=message):
        sink.raise_signal("a", **fields)  # type: ignore[arg-type]
    with pytest.raises(error, match=message):
        sink.raise_signal(EVENT._replace(**fields))  # type: ignore[arg-type]
    assert len(sink) == 0


@pytest.mark.parametrize("stamp", [-62_135_596_800, 253_402_300_798.5])
def test_every_stamp_that_is_accepted_can_be_shown(stamp: float) -> None:
    assert SignalEvent("a", timestamp=stamp).at.timestamp() == stamp


def test_questions_to_an_event() -> None:
    assert EVENT.startswith("processing.f")
    assert EVENT.in_scope("processing.failed:pri1")
    assert EVENT.in_scope(EVENT.signal)
    assert not SignalEvent("processing.failed:pri10:w1").in_scope("processing.failed:pri1")
    assert EVENT.matches("processing.*, other")
    assert not EVENT.matches("other")
    assert EVENT.depth == 1


def test_a_cycle_is_its_own_name_or_one_on_its_way() -> None:
    event = SignalEvent("third", propagation=SignalPropagation(("first", "second", "third")))
    assert event.depth == 3
    assert event.would_cycle("third")
    assert event.would_cycle("first")
    assert not event.would_cycle("fourth")
    assert SignalEvent("a").would_cycle("a")
    assert not SignalEvent("a").would_cycle("b")
