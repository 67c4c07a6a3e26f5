"""A sink for tests: it keeps what it was told, whatever its window forgets, and says what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from ._checks import whole_number
from ._patterns import Pattern, compile_pattern
from ._signals import SignalEvent
from ._sink import SignalSink
from .abc import SignalBackend

_MAX_SHOWN: Final = 20


class RecordingSink(SignalSink):
    """A `SignalSink` that keeps every signal for assertions, beyond age, capacity and clearing.

        sink = RecordingSink()
        ...
        sink.assert_raised("order.placed", times=2)
        assert sink.names == ["order.placed", "order.placed", "order.paid"]

    It is given to coordinators and ladders as any sink is. What a bus brings is kept too, once its listeners are told.
    It is a listener of its own, the first one: a raise that is nested too deep to reach listeners is not kept. Callable
    from any thread.

    Args:
        max_capacity: As for `SignalSink`.
        max_age: As for `SignalSink`.
        backend: As for `SignalSink`.
        clock: As for `SignalSink`.

    Raises:
        ValueError: As `SignalSink` does.
        TypeError: As `SignalSink` does.
    """

    __slots__ = ("_recorded",)

    def __init__(
        self,
        max_capacity: int = 1000,
        max_age: float | timedelta = 60.0,
        *,
        backend: SignalBackend | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(max_capacity, max_age, backend=backend, clock=clock)
        self._recorded: list[SignalEvent] = []
        self.subscribe(self._recorded.append)

    @property
    def recorded(self) -> tuple[SignalEvent, ...]:
        """The signals so far, in the order they were raised."""
        return tuple(self._recorded)

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [event.signal for event in self.recorded]

    def forget(self) -> None:
        """Begin anew: what was recorded counts no longer. The window stays as it is."""
        self._recorded.clear()

    def assert_raised(self, pattern: Pattern, *, times: int | None = None) -> list[SignalEvent]:
        """Return the signals whose names match, oldest first; there must be some.

        Args:
            pattern: Which names.
            times: How many there must be, 0 or more; None: at least one.

        Raises:
            AssertionError: There are none, or more or fewer than *times*; the message lists what was raised.
            TypeError: *pattern* has the wrong type.
            ValueError: *pattern* has an empty part, or *times* is no whole number of at least 0.
        """
        __tracebackhide__ = True
        matches = compile_pattern(pattern)
        wanted = None if times is None else whole_number("times", times, least=0)
        recorded = self.recorded
        found = [event for event in recorded if matches(event.signal)]
        if not found if wanted is None else len(found) != wanted:
            expected = "at least once" if wanted is None else _times(wanted)
            was = _times(len(found)) if found else "never"
            raise AssertionError(f"{pattern!r} was raised {was}, not {expected}; {_listed(recorded)}")
        return found

    def assert_not_raised(self, pattern: Pattern) -> None:
        """Make sure that no signal matches; raises as `assert_raised` does."""
        __tracebackhide__ = True
        self.assert_raised(pattern, times=0)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _listed(recorded: tuple[SignalEvent, ...]) -> str:
    """Return the names of *recorded*, each once, with how often it was raised."""
    if not recorded:
        return "nothing was raised at all"
    counts = Counter(event.signal for event in recorded)
    shown = [f"{name!r}{f' x{count}' if count > 1 else ''}" for name, count in list(counts.items())[:_MAX_SHOWN]]
    more = f" and {len(counts) - _MAX_SHOWN} other names" if len(counts) > _MAX_SHOWN else ""
    return f"raised were: {', '.join(shown)}{more}"
