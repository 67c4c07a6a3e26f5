"""The workers of a run: their processes, what each has written, and what that tells at any instant."""

from __future__ import annotations

import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from ephemeral_redis.demo.journal import JournalReader, Line
from ephemeral_redis.demo.processes import LocalProcess

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

STOP_TIMEOUT = 20.0
"""Seconds that a worker has for what it has accepted, once it is asked to end."""


class Member:
    """One worker, as its journal shows it.

    Args:
        process: Its process.
        reader: Its journal.

    Attributes:
        name: What it is called.
        process: Its process.
        lines: All it has written, as far as it was read.
        killed_at: When it was killed; None: it was not.
        accepted: Widgets that it has accepted.
        done: Of these, done.
        bus: ``reached`` or ``lost``.
        probe: Its probe that runs; None: none does.
    """

    def __init__(self, process: LocalProcess, reader: JournalReader) -> None:
        self.name = process.name
        self.process = process
        self.lines: list[Line] = []
        self.killed_at: float | None = None
        self.accepted = 0
        self.done = 0
        self.bus = "lost"
        self.probe: Line | None = None
        self._reader = reader
        self._held: dict[str, Line] = {}
        self._recent: deque[float] = deque()

    def read(self) -> Sequence[Line]:
        """Return what it has written since the last call."""
        lines = self._reader.read()
        for line in lines:
            self._heed(line)
        self.lines += lines
        return lines

    def holds(self, processor: str) -> str:
        """Return what it holds *processor* for: ``up``, ``down``, ``isolated``."""
        line = self._held.get(processor)
        return "up" if line is None else line.state

    def is_alone_with(self, processor: str) -> bool:
        """Whether what it holds *processor* for is its own view and not the fleet's."""
        line = self._held.get(processor)
        return line is not None and line.is_local

    def rate(self, now: float) -> int:
        """Return how many widgets it has done in the last second."""
        while self._recent and self._recent[0] < now - 1.0:
            self._recent.popleft()
        return len(self._recent)

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.process.kill()
        self.killed_at = time.monotonic()

    def _heed(self, line: Line) -> None:
        match line.kind:
            case "accepted":
                self.accepted += 1
            case "done":
                self.done += 1
                self._recent.append(line.at)
            case "health":
                self._held[line.name] = line
            case "bus":
                self.bus = line.state
            case "probe began":
                self.probe = line
            case "probe ended":
                self.probe = None
            case _:
                pass


class Crew:
    """All workers; a context manager that leaves no process behind. On the event loop's thread.

    Args:
        names: What they are called.
        folder: Where their journals and logs go.
        options: What each is started with, beside its name and journal.
    """

    def __init__(self, names: Sequence[str], folder: Path, options: Sequence[str]) -> None:
        self.members: list[Member] = []
        self._stack = ExitStack()
        for name in names:
            journal = folder / f"{name}.journal"
            command = ["-m", "ephemeral_redis.cli", "worker", *options, "--name", name, "--journal", str(journal)]
            process = LocalProcess(name, command, folder / f"{name}.log")
            self.members.append(Member(process, JournalReader(journal)))

    @property
    def survivors(self) -> list[Member]:
        """Those that were not killed."""
        return [member for member in self.members if member.killed_at is None]

    def read(self) -> list[tuple[Member, Line]]:
        """Return what all have written since the last call, oldest first."""
        written = [(member, line) for member in self.members for line in member.read()]
        return sorted(written, key=lambda pair: pair[1].at)

    def __enter__(self) -> Self:
        for member in self.members:
            self._stack.enter_context(member.process)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
