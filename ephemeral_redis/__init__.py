"""The shared side of ephemeral: one bus for the signals, counts and health of many workers, and tools around them."""

from ._backend import RedisSignalBackend as RedisSignalBackend
from ._errors import ServerStartError as ServerStartError
from ._errors import SignalBusError as SignalBusError
from ._statistics import BusStatistics as BusStatistics
