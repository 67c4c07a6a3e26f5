"""Draw the pictures of the dashboard from a real run: ``python docs/make_dashboard_pictures.py``.

The services of ``docker-compose.yml`` run as local processes: a server, two services, three workers, a load, and the
dashboard. The first service is killed with SIGKILL, started again, and killed for good. What a headless Chromium then
shows becomes ``docs/images/dashboard-*.png``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the driver of the browser is the tests' own

from ephemeral_redis.server import RedisServer  # noqa: E402  as above
from tests.browser_kit import Browser  # noqa: E402  as above

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGES = Path(__file__).parent / "images"
UP_SECONDS = 60.0
DOWN_SECONDS = 20.0
PICTURES = {"light": (1280, 1000, False), "dark": (1280, 1000, True), "narrow": (390, 844, False)}


class Fleet:
    """Processes that are ended together."""

    def __init__(self, folder: Path, redis: str) -> None:
        self._folder = folder
        self._redis = redis
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}

    def url(self, name: str) -> str:
        """Return where *name* listens, or is going to."""
        if name not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as probe:
                self._ports[name] = probe.getsockname()[1]
        return f"http://127.0.0.1:{self._ports[name]}"

    def start(self, name: str, module: str, *arguments: str) -> None:
        """Run *module* as *name*."""
        port = self.url(name).rpartition(":")[2]
        self._running[name] = subprocess.Popen(  # noqa: S603  our own modules
            [sys.executable, "-m", module, *arguments, *([] if name == "load" else ["--port", port])],
            env={
                **os.environ,
                "EPHEMERAL_REDIS_URL": self._redis,
                "EPHEMERAL_NAMESPACE": "shop",
                "EPHEMERAL_WORKER": name,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def start_service(self, name: str) -> None:
        """Run one of the two services."""
        ledger = str(self._folder / "ledger.db")
        self.start(name, "ephemeral_redis.demo.service", "--name", name, "--ledger", ledger, "--create")
        self.wait_for(name)

    def wait_for(self, name: str) -> None:
        """Wait until *name* listens."""
        address = ("127.0.0.1", self._ports[name])
        while True:
            with contextlib.suppress(OSError), socket.create_connection(address, 1):
                return
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        """End *name* with SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        """End all that run."""
        for name in list(self._running):
            self.kill(name)


@contextlib.contextmanager
def fleet() -> Iterator[Fleet]:
    """Run everything but the outage."""
    with tempfile.TemporaryDirectory() as folder, RedisServer() as server:
        running = Fleet(Path(folder), server.url)
        try:
            for service in ("primary", "backup"):
                running.start_service(service)
            workers = ("worker-1", "worker-2", "worker-3")
            services = ("--primary", running.url("primary"), "--backup", running.url("backup"))
            for worker in workers:
                running.start(worker, "ephemeral_redis.cli", "worker", *services)
                running.wait_for(worker)
            running.start("dashboard", "ephemeral_redis.cli", "dashboard")
            running.wait_for("dashboard")
            running.start("load", "ephemeral_redis.demo.load", "--rate", "20", *map(running.url, workers))
            yield running
        finally:
            running.close()


def main() -> None:
    """Run the fleet, its outage, and the browser."""
    with fleet() as running, Browser() as browser:
        time.sleep(UP_SECONDS)
        running.kill("primary")
        time.sleep(DOWN_SECONDS)
        running.start_service("primary")
        time.sleep(UP_SECONDS)
        running.kill("primary")
        time.sleep(DOWN_SECONDS)
        for name, (width, height, is_dark) in PICTURES.items():
            browser.resize(width, height, dark=is_dark)
            browser.open(f"{running.url('dashboard')}/")
            browser.until("document.querySelectorAll('#signals tbody tr').length > 20", 20)
            browser.screenshot(IMAGES / f"dashboard-{name}.png", whole=False)


if __name__ == "__main__":
    main()
