"""Explores a machine exhaustively: every state that it can be in, by every way into it, shortest ways first."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


class Action(NamedTuple):
    """Something that may happen.

    Attributes:
        name: What.
        who: Which worker's doing it is, or whom it befalls; -1: the server, or the world.
        which: Which of several, where there are.
        is_due: Whether it is only a matter of time: news under way arrive, questions are answered, workers reconnect.
    """

    name: str
    who: int = -1
    which: int = 0
    is_due: bool = False

    def __str__(self) -> str:
        return f"{self.name}({'' if self.who < 0 else self.who}{f'.{self.which}' if self.which else ''})"


class Machine(Protocol):
    """What can be explored."""

    def save(self) -> Hashable:
        """Return its state, as a value."""
        ...

    def load(self, state: Any) -> None:
        """Be in *state*."""
        ...

    def actions(self) -> list[Action]:
        """Return what may happen now."""
        ...

    def apply(self, action: Action) -> None:
        """Let it happen."""
        ...

    def faults_of_step(self, before: Any, action: Action, after: Any) -> Iterator[str]:
        """Yield what must never happen in one step, and has."""
        ...

    def faults_at_rest(self) -> Iterator[str]:
        """Yield what must not be where nothing is due any more, and is."""
        ...


class Broken(Exception):
    """An invariant does not hold; says by what way."""

    def __init__(self, fault: str, way: list[Action]) -> None:
        super().__init__(fault, way)
        self.fault = fault
        self.way = way

    def __str__(self) -> str:
        return f"{self.fault}, by {' '.join(map(str, self.way))}"


@dataclass
class Explored:
    """What an exploration has covered.

    Attributes:
        states: How many different ones were reached.
        edges: How many steps between them were taken.
        at_rest: In how many of them nothing was due.
        longest: Steps of the longest of the shortest ways.
    """

    states: int = 0
    edges: int = 0
    at_rest: int = 0
    longest: int = 0
    actions: dict[str, int] = field(default_factory=dict)


class _Seen(NamedTuple):
    """A state, with how it was first reached."""

    parent: int
    action: Action | None
    depth: int


def explore(machine: Machine, *, most: int = 10_000_000) -> Explored:
    """Visit every reachable state once.

    Raises:
        Broken: An invariant does not hold, or what is due can go on for ever.
        OverflowError: There are more than *most* states.
    """
    explored = Explored()
    first = machine.save()
    numbers: dict[Hashable, int] = {first: 0}
    seen = [_Seen(-1, None, 0)]
    states = [first]
    due: list[list[int]] = [[]]
    frontier = deque([0])
    while frontier:
        number = frontier.popleft()
        state = states[number]
        machine.load(state)
        actions = machine.actions()
        if not any(action.is_due for action in actions):
            explored.at_rest += 1
            for fault in machine.faults_at_rest():
                raise Broken(fault, _way(seen, number))
        for action in actions:
            machine.load(state)
            try:
                machine.apply(action)
            except Exception as error:
                raise Broken(f"{type(error).__name__}: {error}", [*_way(seen, number), action]) from error
            after = machine.save()
            explored.edges += 1
            explored.actions[action.name] = explored.actions.get(action.name, 0) + 1
            for fault in machine.faults_of_step(state, action, after):
                raise Broken(fault, [*_way(seen, number), action])
            found = numbers.setdefault(after, len(states))
            if found == len(states):
                states.append(after)
                seen.append(_Seen(number, action, seen[number].depth + 1))
                due.append([])
                frontier.append(found)
                if found >= most:
                    raise OverflowError(f"more than {most} states")
            if action.is_due:
                due[number].append(found)
    explored.states, explored.longest = len(states), seen[-1].depth
    endless = _on_a_circle(due)
    if endless is not None:
        raise Broken("what is due goes on for ever", _way(seen, endless))
    return explored


def _way(seen: list[_Seen], number: int) -> list[Action]:
    way: list[Action] = []
    while seen[number].action is not None:
        way.append(seen[number].action)  # type: ignore[arg-type]  not None, as just asked
        number = seen[number].parent
    return way[::-1]


def _on_a_circle(edges: list[list[int]]) -> int | None:
    """Return a node that can be come back to, if there is one: what is left when all that end are taken away."""
    missing = [len(targets) for targets in edges]
    sources: list[list[int]] = [[] for _ in edges]
    for source, targets in enumerate(edges):
        for target in targets:
            sources[target].append(source)
    ended = [number for number, count in enumerate(missing) if count == 0]
    left = len(edges)
    while ended:
        left -= 1
        for source in sources[ended.pop()]:
            missing[source] -= 1
            if missing[source] == 0:
                ended.append(source)
    return None if left == 0 else next(number for number, count in enumerate(missing) if count)
