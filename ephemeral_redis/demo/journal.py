"""What one worker did and saw, as JSON lines in a file of its own that outlives it, however it ends."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

Kind: TypeAlias = Literal["accepted", "done", "signal", "health", "bus", "probe began", "probe ended", "left"]


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a worker did or saw.

    Attributes:
        at: When, in seconds of ``time.monotonic()``, which is one clock for all processes of a machine.
        kind: ``accepted`` and ``done``: of a widget. ``signal``: raised by this worker's own ladder. ``health``: what
            it now holds a processor for. ``bus``: reached or lost. ``probe began`` and ``probe ended``: its own probe,
            as it runs. ``left``: it has ended in order.
        name: The widget, the signal or the processor.
        state: Of ``health`` the processor's, of ``bus`` ``reached`` or ``lost``.
        epoch: That of the processor's health; 0 where it has none.
        fence: That of the lease it probes under; 0 for a probe on its own account, while the bus is away.
        is_local: Whether only this worker holds it so.
    """

    at: float
    kind: Kind
    name: str = ""
    state: str = ""
    epoch: int = 0
    fence: int = 0
    is_local: bool = False


_DEFAULTS = {field.name: field.default for field in fields(Line)}


class Journal:
    """Writes the lines of one worker; a context manager that closes the file. For one thread.

    A line is with the kernel when ``write`` returns, so that a SIGKILL takes none; a power cut may.

    Args:
        path: The file, which is made or appended to; None: nothing is written.
    """

    def __init__(self, path: Path | None) -> None:
        # Unbuffered: one write a line, so that no reader and no death ever finds two halves far apart.
        self._file = None if path is None else path.open("ab", buffering=0)

    def write(
        self,
        kind: Kind,
        name: str = "",
        *,
        state: str = "",
        epoch: int = 0,
        fence: int = 0,
        is_local: bool = False,
    ) -> None:
        """Write one line, of now."""
        if self._file is None:
            return
        line = Line(time.monotonic(), kind, name, state, epoch, fence, is_local)
        told = {name: value for name in _DEFAULTS if (value := getattr(line, name)) != _DEFAULTS[name]}
        self._file.write(json.dumps(told).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


class JournalReader:
    """Reads what a worker has written so far, again and again.

    Args:
        path: The worker's file; need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Line]:
        """Return the lines written since the last call; one that is half written waits for its end."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                written = file.read()
        except FileNotFoundError:
            return []
        whole = written[: written.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [Line(**json.loads(line)) for line in whole.splitlines()]
