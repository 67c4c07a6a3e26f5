"""How values read to people: times, spans, sizes, and what a payload holds. Names come out safe for a terminal."""

from __future__ import annotations

import base64
import json
import math
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ephemeral_redis._printable import printable
from ephemeral_redis.watch.headline import Clock, Due, Name, Span

if TYPE_CHECKING:
    from ephemeral_redis.watch.headline import Part, Sentence
    from ephemeral_redis.watch.picture import FleetPicture

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def span_text(seconds: float) -> str:
    """Return a span in its largest unit and the next: ``4 min``, ``1 h 20 min``, ``9.3 s``."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = int(seconds + 0.5)
    for size, unit in _UNITS:
        if whole >= size:
            smaller = next((pair for pair in (*_UNITS, (1, "s")) if pair[0] < size), (1, "s"))
            rest = whole % size // smaller[0]
            return f"{whole // size} {unit}" + (f" {rest} {smaller[1]}" if rest else "")
    return f"{whole} s"


def clock_text(at: float, now: float, *, millis: bool = False) -> str:
    """Return a time of day where the reader is, with its date if that is not the day of *now*."""
    try:
        when, today = datetime.fromtimestamp(at).astimezone(), datetime.fromtimestamp(now).astimezone()
    except (OverflowError, OSError, ValueError):  # a number from elsewhere that is no time at all
        return "?"
    text = when.strftime("%H:%M:%S") + (f".{when.microsecond // 1000:03d}" if millis else "")
    return text if when.date() == today.date() else f"{when.date().isoformat()} {text}"


def size_text(size: int) -> str:
    """Return bytes in a unit that leaves few digits."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"


def part_text(part: Part, now: float) -> str:
    """Return one part of a sentence as it reads at *now*."""
    match part:
        case Name():
            return printable(part.text)
        case Clock():
            return clock_text(part.at, now)
        case Span():
            return span_text(now - part.at)
        case Due():
            return f"in {span_text(part.at - now)}" if part.at > now else "is due"
        case str():
            return part


def sentence_text(sentence: Sentence, now: float) -> str:
    """Return a sentence as it reads at *now*."""
    return "".join(part_text(part, now) for part in sentence.parts)


def worker_names(picture: FleetPicture) -> dict[str, str]:
    """Return what each worker is called, safe to show; the first digits of its origin too where names are the same."""
    names = [worker.name for worker in picture.workers]
    return {
        worker.origin: printable(worker.name) + (f"#{worker.origin[:6]}" if names.count(worker.name) > 1 else "")
        for worker in picture.workers
    }


def who(origin: str | None, names: dict[str, str]) -> str:
    """Return what a worker is called; one that has gone, by the first digits of its origin."""
    if not origin:
        return "nobody known"
    return names.get(origin) or printable(origin[:8] if len(origin) == 16 else origin)


def payload_text(payload: Any) -> str:
    """Return a payload as JSON in one line, safe to show."""
    return printable(json.dumps(jsonable(payload), ensure_ascii=False, separators=(",", ":")))


def jsonable(value: Any) -> Any:
    """Return *value* as JSON can hold it: bytes as ``{"base64": …}``, numbers that are none as text, else its repr."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case list() | tuple():
            return [jsonable(item) for item in value]  # pyright: ignore[reportUnknownVariableType]  whatever was raised
        case dict():
            return {str(name): jsonable(item) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  as above
        case _:
            return repr(value)


def json_line(value: Any) -> str:
    """Return *value* as JSON in one line, in ASCII alone, so that no terminal takes anything in it as a command."""
    return json.dumps(value, allow_nan=False)
