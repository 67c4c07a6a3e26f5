"""Looking at a fleet: what its bus, or one process, shows to whoever watches. Nothing here changes anything.

`watch_sink` gives what a sink shows, `BusWatch.from_url` what a namespace does; both give pictures and live signals.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bus import BusWatch as BusWatch
    from .local import LocalWatch as LocalWatch
    from .source import FleetWatch as FleetWatch
    from .source import watch_sink as watch_sink

# Looked up when first used: who watches one process needs no Redis, and what is told on the bus needs neither.
_HOMES = {"BusWatch": ".bus", "FleetWatch": ".source", "LocalWatch": ".local", "watch_sink": ".source"}

__all__ = ["BusWatch", "FleetWatch", "LocalWatch", "watch_sink"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
