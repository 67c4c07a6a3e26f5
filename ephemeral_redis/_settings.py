"""What a backend was made with, for all that serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemeral.abc import Pattern

    from ._keys import Keys
    from ._scripts import Bounds


class Settings(NamedTuple):
    """What a backend was made with.

    Attributes:
        make_client: Makes a redis-py client from its settings.
        address: Where the bus is, for people; no secrets in it.
        keys: The namespace.
        bounds: What the bus keeps.
        publish: Which signals leave this process.
        mirror: Which signals of others are wanted; None: none.
        publish_items: Whether what ladders raise for each item goes into its stream.
        mirror_items: Whether that of others is wanted.
        max_outbox: Signals that may wait to be sent.
        require: Whether opening fails while the bus is away.
    """

    make_client: Callable[..., Any]
    address: str
    keys: Keys
    bounds: Bounds
    publish: Pattern
    mirror: Pattern | None
    publish_items: bool
    mirror_items: bool
    max_outbox: int
    require: bool
