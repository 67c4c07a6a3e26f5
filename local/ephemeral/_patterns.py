"""The one matcher of signal names: ``*`` any run, ``?`` one character, comma lists, sets.

No regular expressions: ``*a*a*a…`` makes them try every split. Here each run of literals between two stars is looked
for once, from the left, which is right because an earlier find leaves more of the name for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

Pattern = str | Iterable[str]
"""One pattern, a comma list of patterns, or a collection of either."""

Matcher = Callable[[str], bool]


def matches_pattern(name: str, pattern: Pattern) -> bool:
    """Whether *name* matches *pattern*, case-sensitively and from end to end.

    ``*`` stands for any run of characters, the empty one too, and ``?`` for exactly one; both may stand anywhere, and
    either in a *name* is a character like any other. A comma list matches if one of its parts does (spaces around
    parts are trimmed; write ``?`` for a comma in a name), and so does a collection. The time is bounded by
    ``len(name) * len(pattern)``, whatever the pattern.

    Args:
        name: The signal name.
        pattern: For example ``"order.*"``, ``"error.*, rate-limit"`` or ``{"error.*", "rate-limit"}``.

    Raises:
        TypeError: *name* is no ``str``, or *pattern* neither a ``str`` nor a collection of them.
        ValueError: *pattern*, or a part of it, is empty.
    """
    return compile_pattern(pattern)(require_str("name", name))


def compile_pattern(pattern: Pattern) -> Matcher:
    """Return the function that `matches_pattern` would apply for *pattern*; raises as it does.

    The last 512 patterns are kept compiled.
    """
    if isinstance(pattern, str):
        return _compile_parts((str.__str__(pattern),))
    return _compile_parts(_parts(pattern))


def optional_pattern(name: str, value: object) -> Pattern | None:
    """Return *value* as an option keeps a pattern: a ``str`` or a tuple of them; None for None and for nothing at all.

    Raises:
        ValueError: It is no pattern; the message names the option.
    """
    if value is None:
        return None
    try:
        pattern = value if isinstance(value, str) else _parts(value)  # type: ignore[arg-type]  # what it is, is checked there
        if pattern == ():
            return None
        compile_pattern(pattern)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a pattern of signal names or None: {error}") from None
    return pattern


def pattern_text(pattern: Pattern) -> str:
    """Return *pattern* as one comma list, which matches the same; a collection sorted, each pattern once.

    Raises:
        TypeError: *pattern* is neither a ``str`` nor a collection of them.
    """
    return pattern if isinstance(pattern, str) else ", ".join(sorted(set(_parts(pattern))))


def require_str(what: str, value: object) -> str:
    """Return *value* if it is a ``str``.

    Raises:
        TypeError: It is not; the message says *what* it was to be.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}: {value!a:.80}")
    return value


def _parts(patterns: Iterable[object]) -> tuple[str, ...]:
    try:
        parts = tuple(patterns)
    except TypeError:
        raise TypeError(f"pattern must be a str or a collection of str, not {patterns!a:.80}") from None
    return tuple(str.__str__(require_str("each pattern of a collection", part)) for part in parts)


@lru_cache(maxsize=512)
def _compile_parts(patterns: tuple[str, ...]) -> Matcher:
    parts = [part.strip() for pattern in patterns for part in pattern.split(",")]
    if not parts or "" in parts:
        raise ValueError(f"pattern {', '.join(patterns)!r} has an empty part; write '*' to match every name")
    exact = frozenset(part for part in parts if "*" not in part and "?" not in part)
    matchers = [_compile_one(part) for part in dict.fromkeys(parts) if part not in exact]
    if not matchers:
        return exact.__contains__
    if len(matchers) == 1 and not exact:
        return matchers[0]
    return lambda name: name in exact or any(matches(name) for matches in matchers)


def _compile_one(pattern: str) -> Matcher:
    """Return a matcher for one pattern with a wildcard in it."""
    head, *inner = pattern.split("*")
    if not inner:
        return lambda name: len(name) == len(head) and _fits(name, head, 0)
    tail = inner.pop()
    segments = [segment for segment in inner if segment]
    if "?" not in pattern:
        if not segments and not tail:
            return lambda name: name.startswith(head)
        if not segments and not head:
            return lambda name: name.endswith(tail)
        if len(segments) == 1 and not head and not tail:
            return lambda name: segments[0] in name
    return _GreedyMatcher(head, segments, tail)


class _GreedyMatcher:
    """Matches ``head*segment*…*tail``: both ends are fixed, each segment goes to its leftmost place."""

    def __init__(self, head: str, segments: list[str], tail: str) -> None:
        self._head = head
        self._segments = segments
        self._tail = tail
        # A longer pattern than the name fails here, so its length never costs anything below.
        self._shortest = len(head) + sum(map(len, segments)) + len(tail)

    def __call__(self, name: str) -> bool:
        end = len(name) - len(self._tail)
        if len(name) < self._shortest or not _fits(name, self._head, 0) or not _fits(name, self._tail, end):
            return False
        position = len(self._head)
        for segment in self._segments:
            position = _find(name, segment, position, end)
            if position < 0:
                return False
            position += len(segment)
        return True


def _find(name: str, segment: str, start: int, end: int) -> int:
    """Return the first place in ``name[start:end]`` where *segment* fits, or -1."""
    if "?" not in segment:
        return name.find(segment, start, end)
    for position in range(start, end - len(segment) + 1):
        if _fits(name, segment, position):
            return position
    return -1


def _fits(name: str, segment: str, position: int) -> bool:
    """Whether *segment*, in which ``?`` is any character, stands in *name* at *position*."""
    if "?" not in segment:
        return name.startswith(segment, position)
    return all(wanted in ("?", found) for wanted, found in zip(segment, name[position:], strict=False))
