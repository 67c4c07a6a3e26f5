"""Where things lie on the server. Every key begins with ``{namespace}``, so a namespace is one slot of a cluster."""

from __future__ import annotations

MAX_NAMESPACE_BYTES = 128


class Keys:
    """The keys of one namespace, as bytes.

    Args:
        namespace: What keeps applications on one server apart: non-empty, printable, at most 128 bytes of UTF-8,
            without spaces and braces.

    Attributes:
        marks: Hash: version of the layout, and how much went into the streams.
        signals: Stream of batches of signals.
        items: Stream of batches of the signals that a ladder raises for each item.
        control: Stream of changes of health.
        health: Hash of processor to record: the table.
        shallow: Sorted set of the known scopes of one segment, by when they were last seen.
        deep: The same for scopes of two segments.
        unused: A key that nothing is ever kept in.
        roster: Sorted set of the sinks that tell of themselves, by when they did so last.

    Raises:
        TypeError: *namespace* is no ``str``.
        ValueError: It is not as it must be.
    """

    def __init__(self, namespace: str) -> None:
        self._prefix = b"{%s}:" % _checked(namespace).encode()
        self.marks = self._prefix + b"m"
        self.signals = self._prefix + b"s"
        self.items = self._prefix + b"i"
        self.control = self._prefix + b"c"
        self.health = self._prefix + b"h"
        self.shallow = self._prefix + b"n1"
        self.deep = self._prefix + b"n2"
        self.roster = self._prefix + b"w"
        self.unused = self._prefix + b"unused"

    def scope(self, scope: str) -> bytes:
        """Sorted set of the signals in *scope*, by when they were raised."""
        return self._prefix + b"z:" + scope.encode()

    def last_batch(self, origin: bytes) -> bytes:
        """Serial of the last batch that was applied for *origin*."""
        return self._prefix + b"o:" + origin

    def record(self, origin: bytes) -> bytes:
        """What the sink of that *origin* tells of itself."""
        return self._prefix + b"w:" + origin

    def failures(self, processor: str) -> bytes:
        """Sorted set of the failures that count against *processor*."""
        return self._prefix + b"f:" + processor.encode()

    def successes(self, processor: str) -> bytes:
        """Sorted set of its successes, as far as its policy heeds them."""
        return self._prefix + b"g:" + processor.encode()


def counted_scopes(name: str) -> tuple[str, str | None]:
    """Return the scopes that *name* counts in: its first segment, and its first two if it has them."""
    first, colon, rest = name.partition(":")
    if not colon:
        return name, None
    return first, f"{first}:{rest.partition(':')[0]}"


def _checked(namespace: object) -> str:
    if not isinstance(namespace, str):
        raise TypeError(f"namespace must be a str, not {type(namespace).__name__}")
    if not namespace or not namespace.isprintable() or any(mark in namespace for mark in " {}"):
        raise ValueError(f"namespace must be printable, not empty, and without spaces and braces, not {namespace!r}")
    if len(namespace.encode()) > MAX_NAMESPACE_BYTES:
        raise ValueError(f"namespace must take at most {MAX_NAMESPACE_BYTES} bytes of UTF-8, not {namespace!r:.60}")
    return namespace
