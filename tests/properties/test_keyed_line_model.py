"""Random lives of a line by key, beside a list that is searched anew each time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral._keyed_line import KeyedLine

KEYS = "abc"

commands = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([0, 0, 0, 1, 2])),
        st.tuples(st.sampled_from(["append", "popleft", "popleft"]), st.integers(0, 2)),
        st.tuples(st.sampled_from(["popleft", "release"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["release", "release", "remove"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["append", "append", "append", "clear"]), st.integers(0, 2)),
    ),
    min_size=10,  # shorter ones seldom hold anything up
    max_size=80,
)


@dataclass(frozen=True)
class Element:
    id: int
    lane_key: str


class Pair:
    """The line and its model, taking the same steps."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.line: KeyedLine[Element] = KeyedLine(places)
        self.waiting: list[Element] = []
        self.running: list[Element] = []
        self.made = 0

    def may_go_on(self) -> list[Element]:
        taken = Counter(element.lane_key for element in self.running)
        return [element for element in self.waiting if taken[element.lane_key] < self.places]

    def append(self, number: int) -> None:
        self.made += 1
        element = Element(self.made, KEYS[number])
        self.line.append(element)
        self.waiting.append(element)

    def popleft(self, number: int) -> None:
        for element in self.may_go_on()[:1]:
            assert self.line.popleft() == element
            self.waiting.remove(element)
            self.running.append(element)

    def release(self, number: int) -> None:
        if self.running:
            self.line.release(self.running.pop(number % len(self.running)).lane_key)

    def remove(self, number: int) -> None:
        if self.waiting:
            self.line.remove(self.waiting.pop(number % len(self.waiting)))

    def clear(self, number: int) -> None:
        self.line.clear()
        self.waiting.clear()

    def compare(self) -> None:
        assert bool(self.line) == bool(self.line.ready) == bool(self.may_go_on())
        assert list(self.line) == self.waiting
        assert len(self.line) == len(self.line.waiting) == len(self.waiting)
        assert self.line.keys() == {element.lane_key for element in self.waiting + self.running}
        for key in KEYS:
            assert self.line.count(key) == sum(element.lane_key == key for element in self.waiting)


@settings(max_examples=300)
@given(script=commands, places=st.integers(1, 3))
def test_a_line_by_key_does_what_a_list_does(script: list[tuple[str, int]], places: int) -> None:
    pair = Pair(places)
    for name, number in script:
        getattr(pair, name)(number)
        pair.compare()
    while pair.waiting or pair.running:
        pair.popleft(0)
        pair.compare()
        if not pair.may_go_on():
            pair.release(0)
            pair.compare()
    assert not pair.line.keys()
