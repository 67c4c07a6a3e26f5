"""Lays a batch of signals out for the publish script: few long arguments instead of many short ones.

Pure. The script slices one table of scores and members, so signals lie sorted by scope: deep scopes within shallow
ones, each a range. What goes into no stream comes last, what ladders raise for each item before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ephemeral.abc import ITEM_SIGNALS

from . import _codec
from ._keys import counted_scopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._codec import Outgoing

_SIGNALS, _ITEMS, _COUNTED = 0, 1, 2


class Numbers(NamedTuple):
    """Where a sender stands.

    Attributes:
        serial: Batches laid out so far.
        sequence: Signals so far, whatever stream; makes members of sorted sets unique.
        signals: Position in the stream of signals: those sent or dropped so far.
        items: The same in the stream of items.
        has_signals: Whether anything went into the stream of signals yet.
        has_items: The same for the stream of items.
    """

    serial: int = 0
    sequence: int = 0
    signals: int = 0
    items: int = 0
    has_signals: bool = False
    has_items: bool = False

    def skip(self, signals: int, items: int) -> Numbers:
        """Number signals that will not be sent, so that readers know how many they miss."""
        return self._replace(signals=self.signals + signals, items=self.items + items)


class Lane(NamedTuple):
    """One stream's share of a batch.

    Attributes:
        position: Position of its first signal.
        body: The packed signals; empty if there are none.
        size: How many.
        is_first: Whether the sender put nothing there before, so that what lies before it was dropped, not read.
    """

    position: int
    body: bytes
    size: int
    is_first: int


class Batch(NamedTuple):
    """What one call of the script carries; only the ages change from one try to the next.

    Attributes:
        serial: Number of the batch.
        stamps: When each signal was raised, by the sink's clock, in the order of *members*.
        members: Their members in the sorted sets.
        scopes: The scopes they count in.
        ranges: First and last of each scope's signals.
        signals: Share of the stream of signals.
        items: Share of the stream of items.
    """

    serial: int
    stamps: list[float]
    members: bytes
    scopes: list[str]
    ranges: bytes
    signals: Lane
    items: Lane

    def ages(self, now: float) -> bytes:
        """Return the packed ages as of *now*, by the sink's clock."""
        return b"".join([_codec.pack_age(now - stamp) for stamp in self.stamps])


def is_item(signal: str) -> bool:
    """Whether ladders raise *signal* for each item."""
    return signal.startswith(ITEM_SIGNALS)


def lay_out(
    origin: bytes, signals: Sequence[Outgoing], numbers: Numbers, *, publish_items: bool
) -> tuple[Batch, Numbers]:
    """Return *signals* as a batch, and where the sender stands once it is applied.

    Args:
        origin: The sender, 8 bytes.
        signals: At least one, at most 256, as raised.
        numbers: Where the sender stands.
        publish_items: Whether what ladders raise for each item goes into its stream, or is only counted.
    """
    item_lane = _ITEMS if publish_items else _COUNTED
    laid = sorted(
        [
            (item_lane if is_item(signal.record[0]) else _SIGNALS, *_scopes(signal.record[0]), place, signal)
            for place, signal in enumerate(signals)
        ]
    )
    members = b"".join([origin + (numbers.sequence + place).to_bytes(6, "big") for _, _, _, place, _ in laid])
    scopes, ranges = _ranges([(shallow, deep) for _, shallow, deep, _, _ in laid])
    into_signals = _lane(
        numbers.signals, numbers.has_signals, [(place, signal) for at, _, _, place, signal in laid if at == _SIGNALS]
    )
    into_items = _lane(
        numbers.items, numbers.has_items, [(place, signal) for at, _, _, place, signal in laid if at == _ITEMS]
    )
    after = Numbers(
        numbers.serial + 1,
        numbers.sequence + len(signals),
        numbers.signals + into_signals.size,
        numbers.items + into_items.size,
        numbers.has_signals or into_signals.size > 0,
        numbers.has_items or into_items.size > 0,
    )
    stamps = [signal.record[3] for _, _, _, _, signal in laid]
    return Batch(after.serial, stamps, members, scopes, ranges, into_signals, into_items), after


def _lane(position: int, is_used: bool, placed: list[tuple[int, Outgoing]]) -> Lane:
    if not placed:
        return Lane(position, b"", 0, 0)
    # Places are those within the batch; a reader wants those within the entry.
    order = {place: index for index, place in enumerate(sorted([place for place, _ in placed]))}
    return Lane(
        position, _codec.pack_body([(order[place], signal) for place, signal in placed]), len(placed), 1 - is_used
    )


def _scopes(signal: str) -> tuple[str, str]:
    shallow, deep = counted_scopes(signal)
    return shallow, deep or ""


def _ranges(pairs: list[tuple[str, str]]) -> tuple[list[str], bytes]:
    """Return the scopes of sorted (shallow, deep) pairs, and the first and last of each, counted from 1."""
    spans: dict[str, tuple[int, int]] = {}
    for index, (shallow, deep) in enumerate(pairs, start=1):
        for scope in (shallow, deep) if deep else (shallow,):
            spans[scope] = (spans.get(scope, (index,))[0], index)
    packed = [first.to_bytes(2, "big") + last.to_bytes(2, "big") for first, last in spans.values()]
    return list(spans), b"".join(packed)
