"""The one matcher: what matches, what is refused, and that no pattern can make it slow."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemeral import _patterns, matches_pattern


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("order.placed", "order.placed", True),
        ("order.placed", "order", False),
        ("order.placed", "order.*", True),
        ("order.", "order.*", True),
        ("order", "order.*", False),
        ("order.placed", "*.placed", True),
        ("order.placed", "*der*", True),
        ("order.placed", "*", True),
        ("order.placed", "o*r.p*d", True),
        ("order.placed", "Order.*", False),
        ("ab", "a?", True),
        ("a", "a?", False),
        ("abc", "a?", False),
        ("a", "?", True),
        ("ab", "?*", True),
        ("abcd", "a??d", True),
        ("xaybz", "*a?b*", True),
        ("xaybz", "*a??b*", False),
        # Stars at both ends of a run must not share characters.
        ("ab", "ab*b", False),
        ("aba", "aba*aba", False),
        ("a", "a*a", False),
        ("aa", "a*a", True),
        # A star or a question mark in a name is a character.
        ("request.*.done", "request.*", True),
        ("request.*.done", "request.*.done", True),
        ("a*bc", "a*c", True),
        ("a*bc", "a?bc", True),
        ("what?", "what?", True),
        ("[ab]", "[ab]", True),
        ("a", "[ab]", False),
        # Comma lists and collections.
        ("rate-limit", "error.*, rate-limit", True),
        ("error.disk", "error.*,rate-limit", True),
        ("warning", "error.*, rate-limit", False),
        ("rate-limit", {"error.*", "rate-limit"}, True),
        ("rate-limit", ["error.*", "other, rate-*"], True),
        ("rate-limit", ("error.*", "other"), False),
        ("a,b", "a?b", True),
    ],
)
def test_what_matches(name: str, pattern: str, expected: bool) -> None:
    assert matches_pattern(name, pattern) is expected


@pytest.mark.parametrize("pattern", ["", " ", "a,", ",a", "a,,b", set(), [], ["a", ""], [" "]])
def test_an_empty_part_is_refused_with_the_way_to_match_all(pattern: object) -> None:
    with pytest.raises(ValueError, match=r"empty part; write '\*'"):
        matches_pattern("a", pattern)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", [None, 1, b"a*", [1], {None}])
def test_other_types_are_refused(pattern: object) -> None:
    with pytest.raises(TypeError, match="must be a str"):
        matches_pattern("a", pattern)  # type: ignore[arg-type]


def test_a_name_must_be_text() -> None:
    with pytest.raises(TypeError, match="name must be a str, not bytes"):
        matches_pattern(b"a", "*")  # type: ignore[arg-type]


def naive(name: str, pattern: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(naive(name[start:], pattern[1:]) for start in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and naive(name[1:], pattern[1:])


@given(st.text("ab*?", max_size=8), st.text("ab*?", min_size=1, max_size=7))
def test_it_agrees_with_the_definition(name: str, pattern: str) -> None:
    assert matches_pattern(name, pattern) is naive(name, pattern)


@given(st.text("ab*", max_size=6), st.lists(st.text("ab*?", min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_list_matches_if_one_of_its_parts_does(name: str, parts: list[str]) -> None:
    expected = any(naive(name, part) for part in parts)
    assert matches_pattern(name, ", ".join(parts)) is expected
    assert matches_pattern(name, set(parts)) is expected


class CountingText(str):
    """Counts the searches and comparisons that a matcher makes on it."""

    __slots__ = ()
    steps = 0

    def find(self, *args: object) -> int:
        CountingText.steps += 1
        return super().find(*args)  # type: ignore[arg-type]

    def startswith(self, *args: object) -> bool:
        CountingText.steps += 1
        return super().startswith(*args)  # type: ignore[arg-type]

    def __getitem__(self, key: object) -> str:
        CountingText.steps += 1
        return super().__getitem__(key)  # type: ignore[index]


@pytest.mark.parametrize(
    "pattern", ["*a" * 200 + "b", "*?a" * 150 + "b", "a*" * 200 + "b*", "*" * 500 + "b", "*a?" * 100 + "c", "?" * 512]
)
def test_no_pattern_makes_matching_explode(pattern: str) -> None:
    name = CountingText("a" * 512)
    CountingText.steps = 0
    assert not (_patterns.compile_pattern(pattern)(name) and "b" in pattern)
    # Backtracking would need more steps than there are atoms; one look per segment and place needs fewer than this.
    assert CountingText.steps <= 512 + pattern.count("*")


def test_a_pattern_longer_than_a_name_can_be_fails_without_a_look() -> None:
    name = CountingText("a" * 512)
    CountingText.steps = 0
    assert not _patterns.compile_pattern("*?" * 100_000)(name)
    assert CountingText.steps == 0


def test_printable_ascii_other_than_the_wildcards_stands_for_itself() -> None:
    plain = [one for one in string.printable if one.isprintable() and one not in "*?, "]
    for one in plain:
        assert [other for other in plain if matches_pattern(other, one)] == [one]
