"""What a backend was made with, for all that serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ephemeral.abc import Pattern

    from ._keys import Keys
    from ._scripts import Bounds
    from ._servers import FindServer


class Settings(NamedTuple):
    """What a backend was made with.

    Attributes:
        find_server: Returns the server as it is now; called in the bus's thread.
        address: Where the bus is, for people; no secrets in it.
        keys: The namespace.
        bounds: What the bus keeps.
        publish: Which signals leave this process.
        mirror: Which signals of others are wanted; None: none.
        publish_items: Whether what ladders raise for each item goes into its stream.
        mirror_items: Whether that of others is wanted.
        max_outbox: Signals that may wait to be sent.
        require: Whether opening fails while the bus is away.
        name: What the worker calls itself for those who watch the fleet; None: its host's name and process's number.
        is_listed: Whether it tells of itself at all.
    """

    find_server: FindServer
    address: str
    keys: Keys
    bounds: Bounds
    publish: Pattern
    mirror: Pattern | None
    publish_items: bool
    mirror_items: bool
    max_outbox: int
    require: bool
    name: str | None
    is_listed: bool
