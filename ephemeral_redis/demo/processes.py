"""Local processes that listen: started, killed, started again at the same address, and never left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

START_TIMEOUT = 30.0
"""Seconds that a process may take to listen. Usually half of one; a loaded machine with a cold disk needs more."""


class ServiceStartError(Exception):
    """A process did not come up.

    Attributes:
        name: Which one.
        reason: The last line it wrote to its log, or what was waited for.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"the {self.name} did not start: {self.reason}"


class LocalProcess:
    """A process of its own that listens on loopback; a context manager that leaves none behind.

    What it runs takes ``--port`` and ``--with-parent`` and prints one JSON line once it listens, see ``child``. All on
    the event loop's thread: the kernel ends a process together with the *thread* that started it.

    Args:
        name: What logs and the timeline call it.
        command: What Python is to run: arguments of the interpreter.
        log: Where its stderr goes; appended to.
        kind: What errors call it after its name.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, *, kind: str = "process") -> None:
        self.name = name
        self._kind = kind
        self._command = tuple(command)
        self._log = log
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

    def spawn(self, *extra: str) -> None:
        """Start the process, at its old address if it had one; :meth:`wait_ready` says when it listens.

        Blocks for the few milliseconds of a fork; no cancellation point.

        Args:
            *extra: Further arguments for this life alone.
        """
        self.close()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and modules
                [sys.executable, *self._command, "--port", str(self._port), "--with-parent", *extra],
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
            raise ServiceStartError(self._title, "spawn() comes first")
        line = b""
        with anyio.move_on_after(START_TIMEOUT):
            # The thread of an abandoned read ends when close() kills the process and so ends its output.
            line = await anyio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
        if not line:
            raise ServiceStartError(self._title, self._last_words())
        ready = json.loads(line)
        self._port = int(ready["port"])
        return float(ready["listening_at"])

    def kill(self) -> None:
        """Kill the process where it stands (SIGKILL), frozen or not; nothing happens if it does not run."""
        if self._process:
            self._process.kill()

    def thaw(self) -> None:
        """Let a process go on that was frozen (SIGSTOP)."""
        if self._process:
            self._process.send_signal(signal.SIGCONT)

    def hang_up(self) -> None:
        """Close the pipe by which the process knows that its parent lives."""
        if self._process and self._process.stdin:
            self._process.stdin.close()

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM); :meth:`wait_ended` says how it did."""
        if self._process:
            self._process.terminate()

    async def wait_ended(self, timeout: float) -> int | None:
        """Wait until the process has ended; a cancellation point.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Its exit code, negative for the signal that ended it; None if it still runs, or was never started.
        """
        process = self._process
        if process is None or process.stdout is None:
            return None
        with anyio.move_on_after(timeout):
            # Its output ends when it does; as above, close() ends an abandoned read.
            await anyio.to_thread.run_sync(process.stdout.read, abandon_on_cancel=True)
            # Blocks for no longer than the kernel takes between closing its files and reporting its end.
            return process.wait()
        return None

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

    @property
    def _title(self) -> str:
        return f"{self.name} {self._kind}"

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1] if said else f"it said nothing within {START_TIMEOUT:g} s"


class ServiceProcess(LocalProcess):
    """One HTTP service, see ``service``.

    Args:
        name: What the ledger and the log call it.
        ledger: The ledger's file; the log is written beside it.
        latency: Seconds that a request takes, (lowest, highest).
        seed: Of the latencies.
    """

    def __init__(self, name: str, ledger: Path, *, latency: tuple[float, float], seed: int) -> None:
        low, high = latency
        command = [
            *("-m", "ephemeral_redis.demo.service", "--name", name, "--ledger", str(ledger)),
            *("--latency", str(low), str(high), "--seed", str(seed)),
        ]
        super().__init__(name, command, ledger.with_name(f"{name}.log"), kind="service")
