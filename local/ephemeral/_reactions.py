"""What signals ask of a coordinator: pass items over, hold them back, let them run again, drain.

Decides from what was heard, and from nothing else: no clock, no sink, no waiting. Only the newest match of each pattern
is kept, which is what makes the decision for an item cost the same however many signals were raised.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from ._drain_requests import DRAIN_ID, DRAIN_PATTERN
from ._patterns import Pattern, matches_pattern
from ._signals import SignalEvent

Kind: TypeAlias = Literal["cancel", "defer", "resume"]
KINDS: Final[tuple[Kind, ...]] = ("cancel", "defer", "resume")


class Verdict(Enum):
    """What is to happen with the item whose turn it is."""

    RUN = "run"
    SKIP = "skip"
    HOLD = "hold"


# Read for each item: a member of an enum takes four times as long to reach through its class.
RUN: Final = Verdict.RUN


class Match(NamedTuple):
    """A signal that matched.

    Attributes:
        event: The signal.
        heard_at: When it was heard, by the clock of its stamp.
        place: How many were heard before.
    """

    event: SignalEvent
    heard_at: float
    place: int

    def is_newer_than(self, other: Match) -> bool:
        """Whether its stamp is later, or the same and it was heard later."""
        return (self.event.timestamp, self.place) > (other.event.timestamp, other.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactionRules:
    """To which signals a coordinator reacts; a pattern that is None matches none.

    Attributes:
        cancel: Items are passed over.
        defer: Items are held back.
        resume: They run again.
        drain: It drains.
        max_hold: Seconds after its stamp until a signal holds nothing back any more.
        coordinator_id: Whom requests to drain name.
    """

    cancel: Pattern | None = None
    defer: Pattern | None = None
    resume: Pattern | None = None
    drain: Pattern | None = None
    max_hold: float = math.inf
    coordinator_id: str | None = None

    @property
    def pattern(self) -> Pattern:
        """All that means anything here; empty if nothing does."""
        patterns = (self.cancel, self.defer, self.resume, self.drain)
        return tuple(
            part
            for pattern in patterns
            if pattern is not None
            for part in ((pattern,) if isinstance(pattern, str) else pattern)
        )

    @property
    def steer(self) -> bool:
        """Whether a signal may decide about an item."""
        return self.cancel is not None or self.defer is not None

    def match(self, kind: Kind, name: str) -> bool:
        """Whether a signal of this name is of this kind."""
        pattern: Pattern | None = getattr(self, kind)
        return pattern is not None and matches_pattern(name, pattern)

    def ask_to_drain(self, event: SignalEvent) -> bool:
        """Whether *event* asks this coordinator to drain."""
        if self.drain is None or not matches_pattern(event.signal, self.drain):
            return False
        if event.signal not in (DRAIN_ID, DRAIN_PATTERN):
            return True
        if self.coordinator_id is None or event.key is None:
            return False
        if event.signal == DRAIN_ID:
            return event.key == self.coordinator_id
        try:
            return matches_pattern(self.coordinator_id, event.key)
        except ValueError:  # anybody may raise anything under this name
            return False


@dataclass(frozen=True, slots=True)
class Reactions:
    """What was heard so far; each step returns what is known after it.

    Attributes:
        rules: To what it reacts.
        cancel: The newest match of each pattern, None if there is none.
        defer: As above.
        resume: As above.
        places: How many matches were heard.
        completed_at: When the coordinator completed.
        has_last_hold: Whether it has completed, and was held back then or has been since: once, so that draining ends.
    """

    rules: ReactionRules
    cancel: Match | None = None
    defer: Match | None = None
    resume: Match | None = None
    places: int = 0
    completed_at: float = math.inf
    has_last_hold: bool = False

    def heard(self, event: SignalEvent, now: float) -> Self:
        """Take in a signal that was just raised."""
        after = self._with(event, now, ("cancel", "resume") if self.has_last_hold else KINDS)
        if after.defer is not self.defer and self.completed_at != math.inf:
            return replace(after, has_last_hold=True)
        return after

    def heard_again(self, event: SignalEvent, now: float) -> Self:
        """Take in a signal that may have been heard before, after some were taken back; in order of arrival."""
        return self._with(event, now, KINDS if event.timestamp <= self.completed_at else ("cancel", "resume"))

    def _with(self, event: SignalEvent, now: float, kinds: tuple[Kind, ...]) -> Self:
        match = Match(event, now, self.places)
        changes: dict[str, Any] = {}
        for kind in kinds:
            if self.rules.match(kind, event.signal):
                newest: Match | None = getattr(self, kind)
                if newest is None or match.is_newer_than(newest):
                    changes[kind] = match
        return replace(self, places=self.places + 1, **changes) if changes else self

    @property
    def matches(self) -> tuple[Match, ...]:
        """The matches that are kept."""
        return tuple(match for match in (self.cancel, self.defer, self.resume) if match is not None)

    def without(self, gone: Collection[Match]) -> Self:
        """Leave out what was taken back; what was raised before may then be the newest, and is to be heard again."""
        changes: dict[str, Any] = {kind: None for kind in KINDS if getattr(self, kind) in gone}
        return replace(self, **changes) if changes else self

    def completed(self, now: float, max_age: float) -> Self:
        """Let signals hold items back once more at the most: what holds them now, or else the next that would."""
        if self.completed_at != math.inf:
            return self
        return replace(self, completed_at=now, has_last_hold=now < self.held_until(max_age))

    def waited_out(self, held_by: Match | None) -> Self:
        """Let *held_by* hold nothing back any more, if it still is what does."""
        return replace(self, defer=None) if self.defer is held_by else self

    def verdict(self, now: float, max_age: float) -> Verdict:
        """Decide about the next item.

        Args:
            now: The sink's time.
            max_age: Seconds a signal lives, by its stamp; as in the window, at exactly that age it still does.
        """
        if self.cancel is not None and self.cancel.event.timestamp >= now - max_age:
            return Verdict.SKIP
        if self.defer is not None and now < self.held_until(max_age):
            return Verdict.HOLD
        return Verdict.RUN

    def held_until(self, max_age: float) -> float:
        """Return the sink's time at which items run again if nothing more is heard; minus infinity if they run."""
        defer = self.defer
        if defer is None or (self.resume is not None and self.resume.is_newer_than(defer)):
            return -math.inf
        stamp = defer.event.timestamp
        # A stamp that lies ahead, of whatever clock, must not hold for longer.
        return min(min(stamp, defer.heard_at) + self.rules.max_hold, stamp + max_age)
