"""Holds a coordinator to what signals ask of it: listens in every thread, acts on the loop."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio

from ._checks import seconds
from ._loops import Loop
from ._options import EphemeralOptions
from ._reactions import Match, ReactionRules, Reactions, Verdict
from ._signals import Predicate, SignalEvent
from ._sink import SignalSink
from ._turn import Turn
from ._workers import Workers

A = TypeVar("A")

# As many events at most are kept alive by a coordinator, and asked about at each clear: a tenth of the usual window.
MAX_REMEMBERED: Final = 100


def rules_of(options: EphemeralOptions) -> ReactionRules:
    """Return what *options* say of signals."""
    interval = seconds("defer_check_interval", options.defer_check_interval)
    return ReactionRules(
        cancel=options.cancel_on_signals,
        defer=options.defer_on_signals,
        resume=options.resume_on_signals,
        drain=options.drain_on_signals,
        max_hold=options.max_defer_attempts * interval,
        coordinator_id=options.coordinator_id,
    )


class Steering:
    """One coordinator's ear on its sink, from the moment the coordinator is made.

    Signals are taken in by whoever raises them, so that nothing piles up; a raise never waits for that. What follows
    from them happens soon afterwards on the loop.

    Args:
        sink: Where signals are raised.
        rules: What they mean.
        refuse: Has newcomers refused, ahead of *drain*. Called in any thread and at any point, in signal handlers too:
            it may set a flag and no more.
        drain: Completes the coordinator and runs what was accepted. Called on the loop, once.
        rouse: Has the items that wait looked at. Called on the loop.
    """

    def __init__(
        self,
        sink: SignalSink,
        rules: ReactionRules,
        *,
        refuse: Callable[[], object],
        drain: Callable[[], object],
        rouse: Callable[[], object],
    ) -> None:
        self._sink = sink
        self._rules = rules
        self._refuse = refuse
        self._drain = drain
        self._rouse = rouse
        self._made_at = sink.now()
        self._reactions = Reactions(rules)
        # What was heard and not taken in yet; only while somebody is at it.
        self._arrived: deque[SignalEvent] = deque()
        # The last that were, for when the newest is taken back and the window has let go of the one before.
        self._heard: deque[SignalEvent] = deque(maxlen=MAX_REMEMBERED)
        self._turn = Turn()
        self._removals = 0
        self._loop: Loop | None = None
        self._is_scheduled = False
        self._is_drain_asked = self._has_drained = False
        self._is_holding = False
        self._hold_changed: anyio.Event | None = None
        self._end: Callable[[], object] | None = None
        if rules.pattern:
            subscription = sink.watch(_weakly(self._hear), rules.pattern, on_removed=_weakly(self._forget))
            # A coordinator that is dropped without ever having been started leaves nothing behind.
            subscription.close_with(self)
            self._end = subscription.close
        if rules.steer:
            self._hear_again()

    @property
    def steers(self) -> bool:
        """Whether items are to run by `verdict` alone."""
        return self._rules.steer

    @property
    def is_holding(self) -> bool:
        """Whether the next item would be held back, as far as signals have been taken in; changes nothing."""
        return self._reactions.verdict(self._sink.now(), self._sink.max_age) is Verdict.HOLD

    def start(self, workers: Workers) -> None:
        """Act from now on, on the loop of *workers*, until `end`."""
        if self._rules.defer is not None:
            workers.spawn(self._keep_time, name="ephemeral hold")
        self._loop = workers.loop
        self._react()

    def end(self) -> None:
        """Hear nothing more. Idempotent."""
        if self._end is not None:
            self._end()

    def complete(self) -> None:
        """Let signals hold items back once more at the most."""
        with self._turn:
            self._reactions = self._reactions.completed(self._sink.now(), self._sink.max_age)

    def verdict(self) -> Verdict:
        """Decide about the item whose turn it is; what this says holds until the loop gets control again.

        After a `HOLD` the coordinator is roused as soon as that has changed.
        """
        verdict = self._verdict()
        if verdict is Verdict.HOLD and not self._is_holding:
            self._is_holding = True
            self._tell_timekeeper()
        return verdict

    def _verdict(self) -> Verdict:
        if self._arrived:
            with self._turn:
                self._take_in()
        return self._reactions.verdict(self._sink.now(), self._sink.max_age)

    # In any thread

    def _hear(self, event: SignalEvent) -> None:
        self._arrived.append(event)
        # If the turn is taken, its holder takes this in too, or the loop does before its next decision.
        if self._turn.try_take():
            try:
                self._take_in()
            finally:
                self._turn.give_back()
        self._call_react()

    def _take_in(self) -> None:
        now = self._sink.now()
        while self._arrived:
            event = self._arrived[0]
            self._heard.append(event)
            self._reactions = self._reactions.heard(event, now)
            if event.timestamp >= self._made_at and self._rules.ask_to_drain(event):
                self._is_drain_asked = True
                self._reactions = self._reactions.completed(now, self._sink.max_age)
                self._refuse()
            # Last: whoever finds none left may rely on all having been taken in.
            self._arrived.popleft()

    def _forget(self, which: Predicate | None) -> None:
        """Follow a removal from the window, by whoever; *which* is asked of what had left it and is remembered, too."""
        with self._turn:
            self._take_in()
            self._removals += 1
            newest = [match.event for match in self._reactions.matches]
            known = {id(event): event for event in (*self._heard, *newest)}
        # Outside of the turn: it may raise and clear.
        gone = {number for number, event in known.items() if which is None or _is_meant(which, event)}
        if gone and self._drop(gone):
            self._hear_again()
        self._call_react()

    def _drop(self, gone: set[int]) -> bool:
        """Forget the events with these ids; returns whether one of them was the newest of its pattern."""
        with self._turn:
            self._heard = deque((event for event in self._heard if id(event) not in gone), MAX_REMEMBERED)
            newest = [match for match in self._reactions.matches if id(match.event) in gone]
            self._reactions = self._reactions.without(newest)
        return bool(newest)

    def _hear_again(self) -> None:
        while True:
            removals = self._removals
            events = self._sink.sense(self._rules.pattern)
            with self._turn:
                if removals != self._removals:
                    continue  # some of them may have been taken back meanwhile
                live = {_identity(event) for event in events}
                pushed_out = [event for event in self._heard if _identity(event) not in live]
                known = pushed_out + events
                self._heard = deque(known, MAX_REMEMBERED)
                now = self._sink.now()
                for event in known:
                    self._reactions = self._reactions.heard_again(event, now)
                return

    def _call_react(self) -> None:
        # Also from the loop's own thread: the raiser may be a signal handler, in the middle of anything.
        if self._loop is not None and not self._is_scheduled:
            self._is_scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it what could follow
                self._loop.call_soon_threadsafe(self._react)

    # On the loop

    def _react(self) -> None:
        # First, so that what is heard from here on is scheduled again.
        self._is_scheduled = False
        verdict = self._verdict()
        if self._is_drain_asked and not self._has_drained:
            self._has_drained = True
            self._drain()
        if self._is_holding:
            self._is_holding = verdict is Verdict.HOLD
            self._tell_timekeeper()
            if not self._is_holding:
                self._rouse()

    def _tell_timekeeper(self) -> None:
        if self._hold_changed is not None:
            self._hold_changed.set()

    async def _keep_time(self) -> None:
        """End each hold when its time is over; sets a timer only while an item is held back."""
        while True:
            changed = self._hold_changed = anyio.Event()
            held_by, seconds = self._hold()
            with anyio.move_on_after(seconds) as scope:
                await changed.wait()
            if scope.cancelled_caught:
                # By the loop's clock. The sink's may be another one, and stand.
                with self._turn:
                    self._reactions = self._reactions.waited_out(held_by)
                self._react()

    def _hold(self) -> tuple[Match | None, float]:
        if not self._is_holding:
            return None, math.inf
        reactions, max_age = self._reactions, self._sink.max_age
        return reactions.defer, max(0.0, reactions.held_until(max_age) - self._sink.now())


def _is_meant(which: Predicate, event: SignalEvent) -> bool:
    try:
        return bool(which(event))
    except Exception:  # noqa: BLE001  it is the user's, and need not expect signals that had left the window
        return False


def _identity(event: SignalEvent) -> tuple[object, ...]:
    return event[:4]  # each reading of the window makes other objects; and a payload need not compare


def _weakly(method: Callable[[A], Any]) -> Callable[[A], None]:
    """Return a function that calls *method* as long as its object lives, and does not keep it alive."""
    reference = weakref.WeakMethod(method)

    def call(argument: A) -> None:
        live = reference()
        if live is not None:
            live(argument)

    return call
