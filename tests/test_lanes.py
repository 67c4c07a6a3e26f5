"""Lanes: whose turn it is, what a full lane holds up, and that an idle one is forgotten."""

from __future__ import annotations

import pytest

from ephemeral._lanes import Lanes

Element = tuple[str, int]


def key_of(element: Element) -> str:
    return element[0]


def lanes(places: int = 1, *, in_turn: bool = False) -> Lanes[Element]:
    return Lanes(places, key_of, in_turn=in_turn)


def filled(text: str, places: int = 1, *, in_turn: bool = False) -> Lanes[Element]:
    """Return lanes in which each letter of *text* waits under itself, numbered."""
    made = lanes(places, in_turn=in_turn)
    for number, letter in enumerate(text):
        made.append((letter, number))
    return made


def taken(queue: Lanes[Element]) -> str:
    """Take all that may go on and return their letters."""
    letters = ""
    while queue:
        letters += queue.popleft()[0]
    return letters


def test_a_full_lane_holds_up_no_other() -> None:
    queue = filled("aaab")
    assert taken(queue) == "ab"
    assert len(queue) == 2
    assert queue.is_full("a")
    queue.release("b")
    assert not queue, "b has nobody waiting and a no free place"
    queue.release("a")
    assert taken(queue) == "a"


@pytest.mark.parametrize(("in_turn", "order"), [(False, "aaabbc"), (True, "abcaba")])
def test_elements_go_on_by_arrival_or_lanes_in_turn(in_turn: bool, order: str) -> None:
    assert taken(filled("aaabbc", 9, in_turn=in_turn)) == order


def test_a_lane_that_was_full_goes_on_by_the_arrival_of_its_first() -> None:
    queue = filled("aabbcc")
    assert taken(queue) == "abc"
    queue.release("c")
    queue.release("a")
    assert taken(queue) == "ac"


def test_in_turn_a_lane_that_was_full_comes_after_those_that_wait() -> None:
    queue = filled("aabc", 1, in_turn=True)
    assert queue.popleft()[0] == "a"
    queue.release("a")
    assert taken(queue) == "bca"


def test_an_idle_lane_leaves_nothing_behind() -> None:
    queue = lanes()
    for number in range(1000):
        queue.append((str(number), number))
        assert queue.popleft() == (str(number), number)
        assert len(queue.keys()) == 1
        queue.release(str(number))
        assert len(queue.keys()) == 0
    queue.take("x")
    queue.release("x")
    filled_and_cleared = filled("abc")
    filled_and_cleared.clear()
    assert (len(queue.keys()), len(filled_and_cleared.keys())) == (0, 0)


@pytest.mark.parametrize(
    ("element", "by_arrival", "in_turn"),
    [
        (("a", 0), "bab", "abb"),  # a keeps its turn when its first element goes
        (("b", 1), "aab", "aba"),
        (("a", 2), "abb", "abb"),
        (("b", 3), "aba", "aba"),
    ],
)
def test_any_element_may_be_taken_out(element: Element, by_arrival: str, in_turn: str) -> None:
    for order, is_in_turn in ((by_arrival, False), (in_turn, True)):
        queue = filled("abab", 9, in_turn=is_in_turn)
        queue.remove(element)
        assert element not in queue
        assert len(queue) == 3
        assert taken(queue) == order


def test_a_lane_without_a_free_place_is_not_made_ready_by_a_removal() -> None:
    queue = filled("aaa")
    queue.popleft()
    queue.remove(("a", 1))
    assert not queue
    queue.release("a")
    assert taken(queue) == "a"


def test_taking_out_the_last_of_a_lane_forgets_it_unless_a_place_is_taken() -> None:
    queue = filled("ab")
    queue.remove(("a", 0))
    assert len(queue.keys()) == 1
    assert queue.popleft() == ("b", 1)
    queue.append(("b", 2))
    queue.remove(("b", 2))
    assert len(queue.keys()) == 1
    queue.release("b")
    assert len(queue.keys()) == 0


def test_all_that_wait_are_seen_in_order_of_arrival() -> None:
    queue = filled("cabcab")
    assert list(queue) == [(letter, number) for number, letter in enumerate("cabcab")]
    assert [queue.count(key) for key in "abx"] == [2, 2, 0]


def test_clearing_keeps_the_places_that_are_taken() -> None:
    queue = filled("aab")
    assert queue.popleft()[0] == "a"
    queue.clear()
    assert (len(queue), bool(queue)) == (0, False)
    queue.append(("a", 9))
    assert not queue
    queue.release("a")
    assert queue.popleft() == ("a", 9)


def test_leaving_gives_the_place_upstream_back() -> None:
    upstream = lanes(2)
    queue = Lanes(9, key_of, upstream=upstream)
    for number in range(2):
        upstream.take("a")
        queue.append(("a", number))
    upstream.take("b")
    queue.append(("b", 2))
    upstream.append(("a", 3))
    assert not upstream
    queue.popleft()
    assert upstream.popleft() == ("a", 3)
    queue.remove(("b", 2))
    queue.clear()
    upstream.release("a")
    assert len(upstream.keys()) == 0
