"""The machine that is explored: a few workers, one processor, one server, and all that may happen to them.

How often each thing may happen is bounded by a `World`; within it, every order is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from . import promises
from .explore import Action
from .parts import NOTHING, P, Server
from .worker import DOWN, HEALING, UP, Worker
from .world import BUDGETS, INTERVAL, MOMENT, World


class Past(NamedTuple):
    """What has to be remembered to say what must hold now.

    Attributes:
        has_forgotten: Whether the server ever lost what it had acknowledged.
        was_alone: Whether any worker ever found the bus away, or died.
        edges: How often the table's row went down, less how often it came up.
        by_hand: The last decision by hand, and whose; None: none, or something later overrules it.
        good: Who has told a good verdict under a lease that was valid, and nothing has come in between; -1: nobody.
    """

    has_forgotten: bool = False
    was_alone: bool = False
    edges: int = 0
    by_hand: tuple[str, int] | None = None
    good: int = -1


class FleetState(NamedTuple):
    """The fleet, as a value; server and workers by number, for most steps change few of them."""

    left: tuple[int, ...]
    past: Past
    server: int
    copy: int
    workers: tuple[int, ...]


class Fleet:
    """Some workers and their server.

    Args:
        world: How much may happen.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.server = Server()
        rules = world.rules()
        self.workers = [Worker(i, self.server, rules, is_prompt=world.is_prompt) for i in range(world.workers)]
        self.left = {name: getattr(world, name) for name in BUDGETS}
        self.past = Past()
        self.copy = -1
        self._numbers: dict[Hashable, int] = {}
        self._values: list[Any] = []
        self._steps: dict[str, Callable[[Action], None]] = {
            name.removeprefix("_do_"): getattr(self, name) for name in dir(self) if name.startswith("_do_")
        }
        self._loaded: list[int] = [-2] * (world.workers + 1)
        self._changed: set[int] = set(range(world.workers + 1))
        self._recovers: dict[tuple[int, ...], str | None] = {}
        self.settle()
        for name in world.begins:
            self.apply(Action(name, -1 if name in {"tick", "lose", "flush"} else 0))
            self.settle()
        self.left = {name: getattr(world, name) for name in BUDGETS}

    # As a value

    def save(self) -> FleetState:
        """Return its state."""
        for place in self._changed:
            part: Any = self.server if place == 0 else self.workers[place - 1]
            self._loaded[place] = self._number(part.save())
        self._changed.clear()
        server, *workers = self._loaded
        return FleetState(tuple(self.left.values()), self.past, server, self.copy, tuple(workers))

    def load(self, state: FleetState) -> None:
        """Be in *state*."""
        self.left = dict(zip(BUDGETS, state.left, strict=True))
        self.past, self.copy = state.past, state.copy
        for place, number in enumerate((state.server, *state.workers)):
            if self._loaded[place] != number or place in self._changed:
                part: Any = self.server if place == 0 else self.workers[place - 1]
                part.load(self._values[number])
                self._loaded[place] = number
        self._changed.clear()

    def value(self, number: int) -> Any:
        """Return the part of a state that has this number."""
        return self._values[number]

    def _number(self, value: Hashable) -> int:
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number

    # What may happen

    def actions(self) -> list[Action]:
        """Return what may happen now."""
        may: list[Action] = []
        for index, worker in enumerate(self.workers):
            may += self._due(index, worker)
        # One that has done nothing yet is like any other that has not: only the first of them begins.
        fresh = [index for index, worker in enumerate(self.workers) if not worker.has_acted]
        for index, worker in enumerate(self.workers):
            if index not in fresh[1:]:
                may += self._chosen(index, worker)
        left = self.left
        for name, action in (("seconds", "tick"), ("losses", "lose"), ("flushes", "flush")):
            if left[name]:
                may.append(Action(action))
        if left["copies"]:
            may.append(Action("copy" if self.copy < 0 else "promote"))
        return may

    def _due(self, index: int, worker: Worker) -> Iterator[Action]:
        if worker.loop.waiting:
            yield Action("turn", index, is_due=True)
        if worker.link != HEALING and worker.kept:
            yield Action("tell", index, is_due=True)
        if worker.link == UP:
            if worker.unserved() is not None:
                yield Action("serve", index, is_due=True)
            if self.server.after(worker.cursor or NOTHING) is not None:
                yield Action("hear", index, is_due=True)
            elif worker.mirror._asked:
                yield Action("hear_nothing", index, is_due=True)
            return
        if worker.asked:  # asked while there was no connection: ended at once, long before there is one
            yield Action("break_off", index, is_due=True)
        elif worker.link == DOWN and not worker.kept:
            yield Action("greet", index, is_due=True)
        elif worker.link == HEALING:
            yield Action("return", index, is_due=True)

    def _chosen(self, index: int, worker: Worker) -> Iterator[Action]:
        left = self.left
        if worker.is_open:
            yield from self._calls(index, worker)
            yield from self._probes(index, worker)
            if left["isolates"]:
                yield Action("isolate", index)
            if left["resets"]:
                yield Action("reset", index)
        if left["cuts"] and worker.link != DOWN:
            yield Action("cut", index)
        if left["cuts"] and worker.link == UP:
            if worker.unserved() is not None:
                yield Action("serve_unanswered", index)
            if worker.kept:
                yield Action("tell_unanswered", index)
        if worker.link == DOWN and (not worker.mirror.is_lost or not worker.is_open):
            yield Action("give_up", index)
        if left["crashes"]:
            yield Action("crash", index)

    def _calls(self, index: int, worker: Worker) -> Iterator[Action]:
        left, entry = self.left, worker.entry
        if entry.shown.is_up:
            if left["fails"]:
                yield Action("fail", index)
            if left["successes"] and (entry.is_streak_open or entry.evidence.heeds_success):
                yield Action("succeed", index)
            if left["slow_calls"]:
                yield Action("start", index)
        if worker.calls:
            yield Action("fail_late", index)
            yield Action("succeed_late", index)

    def _probes(self, index: int, worker: Worker) -> Iterator[Action]:
        left, entry = self.left, worker.entry
        asking = [which for which, promise in enumerate(worker.asked) if promise.key[1] == "lease"]
        if worker.leases:
            yield from (Action(name, index) for name in ("good", "bad", "give_back"))
        elif asking and left["cancels"]:
            yield Action("cancel", index, asking[0])
        elif not asking and left["probes"] and not entry.shown.is_up and self.server.now >= entry.shown.probe_due_at:
            yield Action("acquire", index)

    def apply(self, action: Action) -> None:
        """Let it happen."""
        if action.who >= 0:
            self._changed |= {0, action.who + 1}
            self.workers[action.who].has_acted |= not action.is_due
        row = self.server.row
        was_up = row is None or row.record.is_up
        self._steps[action.name](action)
        row = self.server.row
        is_up = row is None or row.record.is_up
        if was_up != is_up and action.name not in {"lose", "flush", "promote"}:
            self.past = self.past._replace(edges=self.past.edges + (1 if was_up else -1))

    def _spend(self, name: str) -> None:
        self.left[name] -= 1

    def _note(self, **values: Any) -> None:
        self.past = self.past._replace(**values)

    # What is due

    def _do_turn(self, action: Action) -> None:
        self.workers[action.who].loop.waiting.pop(0).run()

    def _do_tell(self, action: Action) -> None:
        self.workers[action.who].tell()

    def _do_serve(self, action: Action) -> None:
        if self.past.has_forgotten and self.past.good != action.who:
            self._note(good=-1)  # who knows less may take decisions of its own on the row that it has put back
        self.workers[action.who].serve()

    def _do_hear(self, action: Action) -> None:
        self.workers[action.who].hear()

    def _do_hear_nothing(self, action: Action) -> None:
        self.workers[action.who].hear_nothing()

    def _do_break_off(self, action: Action) -> None:
        self.workers[action.who].break_off()

    def _do_greet(self, action: Action) -> None:
        self.workers[action.who].greet()

    def _do_return(self, action: Action) -> None:
        self.workers[action.who].return_()

    # What users and ladders do

    def _do_fail(self, action: Action) -> None:
        self._spend("fails")
        worker = self.workers[action.who]
        worker.store.failed(P, worker.entry.shown.epoch, self.server.now)
        self._note(by_hand=_only("isolate", self.past.by_hand), good=-1)

    def _do_succeed(self, action: Action) -> None:
        self._spend("successes")
        worker = self.workers[action.who]
        worker.store.succeeded(P, worker.entry.shown.epoch, self.server.now)

    def _do_start(self, action: Action) -> None:
        self._spend("slow_calls")
        worker = self.workers[action.who]
        worker.calls.append(worker.entry.shown.epoch)

    def _do_fail_late(self, action: Action) -> None:
        worker = self.workers[action.who]
        epoch = worker.calls.pop()
        if epoch == worker.entry.shown.epoch:
            self._note(by_hand=_only("isolate", self.past.by_hand), good=-1)
        worker.store.failed(P, epoch, self.server.now)

    def _do_succeed_late(self, action: Action) -> None:
        worker = self.workers[action.who]
        worker.store.succeeded(P, worker.calls.pop(), self.server.now)

    def _do_acquire(self, action: Action) -> None:
        self._spend("probes")
        self.workers[action.who].acquire()

    def _do_cancel(self, action: Action) -> None:
        self._spend("cancels")
        self.workers[action.who].cancel(action.which)

    def _do_good(self, action: Action) -> None:
        worker = self.workers[action.who]
        lease, row = worker.leases.pop(), self.server.row
        is_valid = row is not None and row.record.lease == lease and self.server.now < lease.until
        is_wanted = all(other.entry.wish is None for other in self.workers if other.is_open)
        if is_valid and is_wanted and self.world.recovery_probes == 1:
            self._note(good=action.who)
        worker.store.finish(lease, self.server.now, is_good=True)

    def _do_bad(self, action: Action) -> None:
        worker = self.workers[action.who]
        worker.store.finish(worker.leases.pop(), self.server.now, is_good=False)

    def _do_give_back(self, action: Action) -> None:
        worker = self.workers[action.who]
        worker.store.give_back(worker.leases.pop())

    def _do_isolate(self, action: Action) -> None:
        self._spend("isolates")
        worker = self.workers[action.who]
        self._wish("isolate", action.who)
        will_ask = worker.store._is_alone and worker.link == DOWN
        if worker.entry.expected.state == "isolated" and not will_ask:
            self._note(by_hand=None)  # as it seems there is nothing to decide, and what it goes by may just be over
        worker.store.isolate(P, self.server.now)

    def _do_reset(self, action: Action) -> None:
        self._spend("resets")
        self._wish("reset", action.who)
        self.workers[action.who].store.reset(P, self.server.now)

    def _wish(self, wish: str, who: int) -> None:
        # Of two that are under way at once either may come last.
        others = [worker for index, worker in enumerate(self.workers) if index != who and worker.is_open]
        is_alone = all(worker.entry.wish is None for worker in others)
        self._note(by_hand=(wish, who) if is_alone else None, good=-1)

    # What befalls them

    def _do_cut(self, action: Action) -> None:
        self._spend("cuts")
        self.workers[action.who].cut()

    def _do_serve_unanswered(self, action: Action) -> None:
        self._spend("cuts")
        self.workers[action.who].serve(is_answered=False)
        self.workers[action.who].cut()

    def _do_tell_unanswered(self, action: Action) -> None:
        self._spend("cuts")
        self.workers[action.who].tell(is_answered=False)
        self.workers[action.who].cut()

    def _do_give_up(self, action: Action) -> None:
        self._note(was_alone=True)
        self.workers[action.who].give_up()

    def _do_crash(self, action: Action) -> None:
        self._spend("crashes")
        worker, past = self.workers[action.who], self.past
        is_whose = past.by_hand is not None and past.by_hand[1] == action.who
        good = -1 if past.good == action.who else past.good
        self._note(was_alone=True, by_hand=None if is_whose else past.by_hand, good=good)
        worker.begin(worker.life + 1)

    def _do_tick(self, action: Action) -> None:
        self._spend("seconds")
        self._changed |= {0}
        self.server.now += INTERVAL
        self._note(good=-1)  # the lease may have ended, and another worker may take it

    def _do_lose(self, action: Action) -> None:
        self._spend("losses")
        self._restart(self.server.empty)

    def _do_flush(self, action: Action) -> None:
        self._spend("flushes")
        self._changed |= {0}
        by_hand = self._by_hand_if_others_know()
        # What the table has taken and its stream had not told yet is gone without a trace.
        is_open = by_hand is not None and self.workers[by_hand[1]].entry.wish is not None
        self._note(has_forgotten=True, by_hand=None if is_open else by_hand)
        self.server.empty()
        self.server.now += MOMENT

    def _do_copy(self, action: Action) -> None:
        self.copy = self._number(self.server.save())

    def _do_promote(self, action: Action) -> None:
        self._spend("copies")
        now = self.server.now
        self._restart(lambda: self.server.load((now, *self._values[self.copy][1:])))
        self.copy = -1

    def _restart(self, forget: Callable[[], None]) -> None:
        """Have the server gone and come back; not within the millisecond, by which versions grow."""
        self._changed |= set(range(len(self.workers) + 1))
        self._note(has_forgotten=True, by_hand=self._by_hand_if_others_know())
        for worker in self.workers:
            if worker.link != DOWN:
                worker.cut()
        forget()
        self.server.now += MOMENT

    def _by_hand_if_others_know(self) -> tuple[str, int] | None:
        """Return the last decision by hand, if nobody has yet to tell of failures of a time before it."""
        by_hand = self.past.by_hand
        others = [worker for index, worker in enumerate(self.workers) if by_hand and index != by_hand[1]]
        return None if any(worker.kept or worker.calls for worker in others) else by_hand

    # What must hold

    def settle(self) -> None:
        """Let all that is due happen."""
        for _ in range(1000):
            due = [action for action in self.actions() if action.is_due]
            if not due:
                return
            self.apply(due[0])
        raise AssertionError("what is due goes on for ever")

    def what_cannot_go_on(self) -> str | None:
        """Return what does not work when the processor fails and gets well once more; None: all does."""
        parts = tuple(self._loaded)
        if parts not in self._recovers:
            before = self.save()
            self._changed |= set(range(len(self.workers) + 1))
            self._recovers[parts] = next(promises.troubles_to_come(self), None)
            self.load(before)
        return self._recovers[parts]

    def faults_of_step(self, before: FleetState, action: Action, after: FleetState) -> Iterator[str]:
        """Yield what must never happen in one step, and has."""
        return promises.faults_of_step(self, before, action, after)

    def faults_at_rest(self) -> Iterator[str]:
        """Yield what must not be where nothing is due any more, and is."""
        return promises.faults_at_rest(self)


def _only(wish: str, by_hand: tuple[str, int] | None) -> tuple[str, int] | None:
    return by_hand if by_hand is not None and by_hand[0] == wish else None
