"""Taking signals out of a sink's window, beside what age and capacity take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ._patterns import Pattern, compile_pattern, pattern_text, require_str
from ._signals import Predicate, check_context


class SignalClears(ABC):
    """The clears of a sink. Each acts on this process's window alone, and returns how many signals it removed."""

    __slots__ = ()

    @abstractmethod
    def raise_signal(self, signal: Any, key: str | None = None) -> None:
        """Raise a signal."""

    @abstractmethod
    def _remove(self, which: Predicate | None) -> int:
        """Take the live signals that satisfy *which* (None: all) out of the window and return how many."""

    def clear(self) -> int:
        """Empty the window and return how many signals that removed.

        If any, ``sink.cleared`` is raised afterwards, with the number as its key.
        """
        count = self._remove(None)
        if count:
            self.raise_signal("sink.cleared", str(count))
        return count

    def clear_pattern(self, pattern: Pattern) -> int:
        """Remove the live signals whose name matches and return how many.

        If any, ``sink.cleared.pattern`` is raised afterwards, with the key ``"{pattern}:{number}"`` (a collection of
        patterns is written as a comma list, sorted).

        Raises:
            TypeError: *pattern* has the wrong type.
            ValueError: *pattern* has an empty part.
        """
        text = pattern_text(pattern)
        matches = compile_pattern(text)
        count = self._remove(lambda event: matches(event.signal))
        if count:
            self.raise_signal("sink.cleared.pattern", f"{text}:{count}")
        return count

    def clear_matching(self, predicate: Predicate) -> int:
        """Remove the live signals that satisfy *predicate* and return how many; what it raises comes out.

        Coordinators that still react to a signal which capacity has pushed out ask it about that one too; there, what
        it raises means no.

        Raises:
            TypeError: *predicate* is not callable.
        """
        if not callable(predicate):
            raise TypeError(f"predicate must be a function of an event, not {predicate!r}; patterns: clear_pattern()")
        return self._remove(predicate)

    def clear_operation(self, operation_id: int) -> int:
        """Remove the live signals of one operation and return how many.

        Raises:
            TypeError: *operation_id* is no ``int``.
            ValueError: *operation_id* is 0 (no operation), negative or too large.
        """
        check_context(None, operation_id)
        if operation_id == 0:
            raise ValueError("operation_id 0 means no operation; clear_matching() removes such signals")
        return self._remove(lambda event: event.operation_id == operation_id)

    def clear_key(self, key: str) -> int:
        """Remove the live signals with exactly this key and return how many.

        Raises:
            TypeError: *key* is no ``str``.
            ValueError: *key* is empty.
        """
        if not require_str("key", key):
            raise ValueError("key must not be empty; clear_matching() removes signals without one")
        return self._remove(lambda event: event.key == key)
