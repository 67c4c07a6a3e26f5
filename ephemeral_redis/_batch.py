"""Lays a batch of signals out for the publish script: few long arguments instead of many short ones.

Pure. The script slices one table of scores and members, so signals lie sorted by scope: deep scopes within shallow
ones, each a range. What ladders raise for each item comes last, and may go into no stream.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ephemeral.abc import ITEM_SIGNALS

from . import _codec
from ._keys import counted_scopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._codec import Outgoing

_Place: TypeAlias = tuple[bool, str, str]
"""Whether a ladder raises it for each item, its first segment, its first two or nothing: how signals are sorted."""


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
        return _codec.pack_ages(self.stamps, now)


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
    groups: dict[_Place, list[int]] = {}
    for index, signal in enumerate(signals):
        groups.setdefault(_place(signal[0][0]), []).append(index)
    places = sorted(groups)
    laid = [index for place in places for index in groups[place]]
    items_from = sum(len(groups[place]) for place in places if not place[0])
    first_member = int.from_bytes(origin + numbers.sequence.to_bytes(6, "big"), "big")
    members = b"".join([(first_member + index).to_bytes(14, "big") for index in laid])
    scopes, ranges = _ranges([(place, len(groups[place])) for place in places])
    into_signals = _lane(numbers.signals, numbers.has_signals, laid[:items_from], signals)
    into_items = _lane(numbers.items, numbers.has_items, laid[items_from:] if publish_items else [], signals)
    after = Numbers(
        numbers.serial + 1,
        numbers.sequence + len(signals),
        numbers.signals + into_signals.size,
        numbers.items + into_items.size,
        numbers.has_signals or into_signals.size > 0,
        numbers.has_items or into_items.size > 0,
    )
    stamps = [signals[index][0][3] for index in laid]
    return Batch(after.serial, stamps, members, scopes, ranges, into_signals, into_items), after


@lru_cache(maxsize=4096)
def _place(signal: str) -> _Place:
    """Return where *signal* lies in a batch: items last, by scope within."""
    shallow, deep = counted_scopes(signal)
    return is_item(signal), shallow, deep or ""


def _lane(position: int, is_used: bool, laid: list[int], signals: Sequence[Outgoing]) -> Lane:
    if not laid:
        return Lane(position, b"", 0, 0)
    if len(laid) == len(signals):
        placed = [(index, signals[index]) for index in laid]
    else:
        # Indexes are those within the batch; a reader wants those within the entry.
        rank = {index: rank for rank, index in enumerate(sorted(laid))}
        placed = [(rank[index], signals[index]) for index in laid]
    return Lane(position, _codec.pack_body(placed), len(laid), 1 - is_used)


def _ranges(groups: list[tuple[_Place, int]]) -> tuple[list[str], bytes]:
    """Return the scopes of the groups, and the first and last signal of each, counted from 1."""
    spans: dict[str, tuple[int, int]] = {}
    end = 0
    for (_, shallow, deep), size in groups:
        first, end = end + 1, end + size
        spans[shallow] = (spans.get(shallow, (first,))[0], end)
        if deep:
            spans[deep] = (first, end)
    return list(spans), b"".join([first.to_bytes(2, "big") + last.to_bytes(2, "big") for first, last in spans.values()])
