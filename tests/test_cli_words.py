"""How values read to people, and that nothing in them drives a terminal."""

from __future__ import annotations

import json
import math
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemeral_redis._printable import printable
from ephemeral_redis.cli.words import (
    clock_text,
    json_line,
    jsonable,
    payload_text,
    size_text,
    span_text,
    who,
    worker_names,
)

from .dashboard_kit import WHO, fleet, worker

HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\n\u202egnp.exe\x00\x9b2J"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (251, "4 min 11 s"),
        (3600, "1 h"),
        (4800, "1 h 20 min"),
        (86400 * 2 + 3600 * 3, "2 d 3 h"),
    ],
)
def test_a_span_shows_its_largest_unit_and_the_next(seconds, text) -> None:
    assert span_text(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_340_000, "2.3 MB"), (64_000_000_000, "64 GB")]
)
def test_sizes(size, text) -> None:
    assert size_text(size) == text


@pytest.fixture
def in_zone(monkeypatch):
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    yield
    monkeypatch.delenv("TZ")
    time.tzset()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no tzset")
def test_times_of_day_are_the_readers_with_the_date_of_another_day(in_zone) -> None:
    now = 1_764_443_400.25  # 2025-11-29 19:10:00.25 UTC
    assert clock_text(now, now) == "21:10:00"
    assert clock_text(now, now, millis=True) == "21:10:00.250"
    assert clock_text(now - 86400, now) == "2025-11-28 21:10:00"
    assert clock_text(1e300, now) == "?"


def test_names_are_told_apart_and_made_safe() -> None:
    picture = fleet(workers=(worker("web", origin="aa" * 8), worker("web", origin="bb" * 8), worker(HOSTILE)))
    names = worker_names(picture)
    assert (names["aa" * 8], names["bb" * 8]) == ("web#aaaaaa", "web#bbbbbb")
    assert all(name.isprintable() for name in names.values())
    assert who("aa" * 8, names) == "web#aaaaaa"
    assert who(WHO["api-1"], {}) == WHO["api-1"][:8]
    assert who("alice@laptop", {}) == "alice@laptop"
    assert who("\x1b[2J", {}).isprintable()
    assert who(None, {}) == "nobody known"


@given(st.text())
def test_printable_text_stays_and_the_rest_is_written_out(text) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert (shown == text) == text.isprintable()


def test_hostile_text_keeps_its_letters_and_loses_its_power() -> None:
    assert printable(HOSTILE) == r"\x1b[31mred\x1b]0;title\x07\r\n\u202egnp.exe\x00\x9b2J"


payloads = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(payloads)
def test_every_payload_is_json_in_one_line_that_drives_no_terminal(payload) -> None:
    line = json_line(jsonable(payload))
    assert line.isascii()
    assert line.isprintable()
    json.loads(line)
    assert payload_text(payload).isprintable()


def test_what_json_cannot_hold_stays_readable() -> None:
    assert jsonable({"b": b"\x00\xff", "n": math.inf, "t": (1, 2)}) == {
        "b": {"base64": "AP8="},
        "n": "inf",
        "t": [1, 2],
    }
    assert jsonable(object()).startswith("<object")
