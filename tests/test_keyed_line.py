"""The line by key: whom a busy key lets past, where those it held up go on, and that an idle key is forgotten."""

from __future__ import annotations

import itertools
from collections.abc import Hashable

import pytest

from ephemeral._keyed_line import KeyedLine


class Element:
    """Counts how often its key is asked for."""

    looks = 0

    def __init__(self, number: int, key: Hashable) -> None:
        self.id = number
        self._key = key

    @property
    def lane_key(self) -> Hashable:
        Element.looks += 1
        return self._key

    def __repr__(self) -> str:
        return f"{self._key}{self.id}"


def filled(text: str, places: int = 1) -> tuple[KeyedLine[Element], list[Element]]:
    """Return a line in which each letter of *text* waits under itself, and its elements."""
    line, elements = KeyedLine[Element](places), [Element(number, letter) for number, letter in enumerate(text)]
    for element in elements:
        line.append(element)
    return line, elements


def taken(line: KeyedLine[Element]) -> str:
    """Take all that may go on and return them."""
    names: list[str] = []
    while line:
        names.append(repr(line.popleft()))
    return " ".join(names)


def test_a_busy_key_holds_up_no_other() -> None:
    line, _ = filled("aaab")
    assert taken(line) == "a0 b3"
    assert len(line) == 2
    line.release("b")
    assert not line, "b has nobody waiting and a no free place"
    line.release("a")
    assert taken(line) == "a1"


def test_with_places_enough_all_go_on_by_arrival() -> None:
    assert taken(filled("aabbca", 9)[0]) == "a0 a1 b2 b3 c4 a5"


def test_a_key_is_busy_once_all_its_places_are_taken() -> None:
    line, _ = filled("aaaab", 2)
    assert taken(line) == "a0 a1 b4"
    line.release("a")
    assert taken(line) == "a2"
    for _ in range(2):
        line.release("a")
    assert taken(line) == "a3"


def test_those_that_were_held_up_go_on_by_arrival_and_before_later_ones() -> None:
    line, _ = filled("aabbccd")
    assert [repr(line.popleft()) for _ in range(3)] == ["a0", "b2", "c4"]
    for key in "cab":
        line.release(key)
    assert taken(line) == "a1 b3 c5 d6"


@pytest.mark.parametrize("order", [1, -1])
def test_many_that_may_go_on_at_once_go_on_by_arrival(order: int) -> None:
    keys = [chr(0x100 + number) for number in range(40)]
    line, _ = filled("".join(keys * 2) + "z")
    assert [repr(line.popleft()) for _ in keys] == [f"{key}{number}" for number, key in enumerate(keys)]
    for key in keys[::order]:
        line.release(key)
    assert taken(line) == " ".join([f"{key}{40 + number}" for number, key in enumerate(keys)] + ["z80"])


def test_an_element_of_a_busy_key_waits_also_if_it_comes_when_nothing_else_does() -> None:
    line, _ = filled("a")
    line.popleft()
    line.append(Element(1, "a"))
    assert not line
    line.append(Element(2, "b"))
    line.release("a")
    assert taken(line) == "a1 b2"


def test_an_idle_key_leaves_nothing_behind() -> None:
    line, _ = filled("")
    for number in range(1000):
        line.append(Element(number, number))
        assert line.popleft().id == number
        assert line.keys() == {number}
        line.release(number)
        assert not line.keys()
    line, _ = filled("aab", 1)
    line.popleft()
    line.clear()
    assert line.keys() == {"a"}
    line.release("a")
    assert not line.keys()
    assert not line


def test_an_element_that_leaves_hands_the_place_kept_for_it_to_the_next() -> None:
    line, elements = filled("aaab")
    assert taken(line) == "a0 b3"
    line.release("a")
    line.remove(elements[1])
    assert taken(line) == "a2"


def test_an_element_that_was_never_held_up_leaves_no_place_behind() -> None:
    line, elements = filled("aaaba")
    line.popleft()
    line.remove(elements[4])
    assert taken(line) == "b3"
    assert len(line) == 2
    line.release("a")
    assert taken(line) == "a1"


def test_taking_out_the_first_lets_none_go_on_whose_key_is_busy() -> None:
    line, elements = filled("aba")
    line.popleft()
    line.remove(elements[1])
    assert not line
    line.remove(elements[2])
    assert (len(line), line.keys()) == (0, {"a"})


def test_what_does_not_wait_cannot_be_taken_out() -> None:
    line, elements = filled("ab")
    line.popleft()
    assert elements[0] not in line
    with pytest.raises(KeyError):
        line.remove(elements[0])
    assert list(line) == elements[1:]


def test_all_that_wait_are_seen_in_order_of_arrival() -> None:
    line, elements = filled("aabcab")
    line.popleft()
    assert list(line) == elements[1:]
    assert all(element in line for element in elements[1:])
    assert [line.count(key) for key in "abx"] == [2, 2, 0]


def test_a_key_is_the_same_by_identity_too() -> None:
    nan = float("nan")
    line, _ = filled("")
    for number in range(2):
        line.append(Element(number, nan))
    assert line.count(nan) == 2
    line.popleft()
    assert not line


def test_those_that_a_busy_key_holds_up_are_looked_at_once() -> None:
    held_up, others = 500, 500
    line, _ = filled("a" * (1 + held_up) + "b" * others)
    assert line.popleft().lane_key == "a"
    Element.looks = 0
    for _ in itertools.repeat(None, others):
        assert line.popleft().id > held_up
        line.release("b")
    assert not line
    assert Element.looks < 5 * (held_up + others)
