"""What every view reads from, and how a sink becomes such a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from ephemeral import SignalEvent, SignalSink

    from .picture import FleetPicture


class FleetWatch(Protocol):
    """Where pictures and signals come from.

    Each block reads anew, on the loop it is entered on, until it is left; what goes on outside meanwhile ends neither:
    a bus that is away is a picture with a ``problem``.
    """

    def pictures(self) -> AbstractAsyncContextManager[AsyncIterator[FleetPicture]]:
        """Give one at once, then at least one a second, and one within half a second of a change of health."""
        ...

    def signals(self) -> AbstractAsyncContextManager[AsyncIterator[Sequence[SignalEvent]]]:
        """Give all signals raised from now on, a few at a time; none, when something is to be known of the bus."""
        ...


def watch_sink(sink: SignalSink) -> FleetWatch:
    """Return what *sink* shows: its whole fleet where its backend is a `RedisSignalBackend`, else this process.

    It reads the bus by connections of its own, as the backend makes them.
    """
    watch_fleet = getattr(sink.backend, "watch_fleet", None)
    if watch_fleet is not None:
        return cast("FleetWatch", watch_fleet())
    from .local import LocalWatch  # noqa: PLC0415  only here is it known that this is wanted

    return LocalWatch(sink)
