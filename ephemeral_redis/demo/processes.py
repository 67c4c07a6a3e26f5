"""Services as local processes: started, killed, started again at the same address, and never left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

START_TIMEOUT = 30.0
"""Seconds that a service may take to listen. Usually half of one; a loaded machine with a cold disk needs more."""


class ServiceStartError(Exception):
    """A service did not come up.

    Attributes:
        name: Which one.
        reason: The last line it wrote to its log, or what was waited for.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"the {self.name} service did not start: {self.reason}"


class ServiceProcess:
    """One HTTP service in a process of its own; a context manager that leaves no process behind.

    All on the event loop's thread: the kernel ends a service together with the *thread* that started it.

    Args:
        name: What the ledger and the log call it.
        ledger: The ledger's file; the log is written beside it.
        latency: Seconds that a request takes, (lowest, highest).
        seed: Of the latencies.
    """

    def __init__(self, name: str, ledger: Path, *, latency: tuple[float, float], seed: int) -> None:
        self.name = name
        self._ledger = ledger
        self._log = ledger.with_name(f"{name}.log")
        self._latency = latency
        self._seed = seed
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens; known once it has been ready, and the same after a restart."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process now or last running; 0 before the first."""
        return self._process.pid if self._process else 0

    def spawn(self) -> None:
        """Start the process, at its old address if it had one; :meth:`wait_ready` says when it listens.

        Blocks for the few milliseconds of a fork; no cancellation point.
        """
        self.close()
        low, high = self._latency
        command = [
            *(sys.executable, "-m", "ephemeral_redis.demo.service", "--name", self.name, "--ledger", str(self._ledger)),
            *("--port", str(self._port), "--latency", str(low), str(high), "--seed", str(self._seed)),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # A terminal's Ctrl-C goes to its whole foreground group; only the demo shall hear it, and act.
                start_new_session=True,
            )

    async def wait_ready(self) -> float:
        """Wait until the process that was spawned listens.

        A cancellation point; a cancelled wait leaves the process running until :meth:`close`.

        Returns:
            When it began to listen, in seconds of ``time.monotonic()``.

        Raises:
            ServiceStartError: It ended, or did not listen within ``START_TIMEOUT``.
        """
        process = self._process
        if process is None or process.stdout is None:
            raise ServiceStartError(self.name, "spawn() comes first")
        line = b""
        with anyio.move_on_after(START_TIMEOUT):
            # The thread of an abandoned read ends when close() kills the process and so ends its output.
            line = await anyio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
        if not line:
            raise ServiceStartError(self.name, self._last_words())
        ready = json.loads(line)
        self._port = int(ready["port"])
        return float(ready["listening_at"])

    def kill(self) -> None:
        """Kill the process where it stands (SIGKILL); nothing happens if it does not run."""
        if self._process:
            self._process.kill()

    def close(self) -> None:
        """Kill the process, if one runs, and wait for its end; may be repeated. No cancellation point."""
        if self._process is None:
            return
        self.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1] if said else f"it said nothing within {START_TIMEOUT:g} s"
