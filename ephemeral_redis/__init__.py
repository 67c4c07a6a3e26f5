"""The shared side of ephemeral: one bus for the signals, counts and health of many workers, and tools around them.

Names are looked up when they are first used: who watches one process without a bus never imports redis.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._backend import RedisSignalBackend as RedisSignalBackend
    from ._errors import ServerStartError as ServerStartError
    from ._errors import SignalBusError as SignalBusError
    from ._statistics import BusStatistics as BusStatistics

_HOMES = {
    "BusStatistics": "._statistics",
    "RedisSignalBackend": "._backend",
    "ServerStartError": "._errors",
    "SignalBusError": "._errors",
}

__all__ = ["BusStatistics", "RedisSignalBackend", "ServerStartError", "SignalBusError"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
