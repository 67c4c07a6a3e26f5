"""A download that tells what it is doing: each stage and each percent is a signal.

The server is a part of the example, so nothing leaves this machine. httpx comes with
``ephemeral-redis[demo]``.

Run it: ``python examples/http_download.py``
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import anyio
import httpx

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, Operation, SignalSink

FILE = random.Random(1).randbytes(1_000_000)


class FileHandler(BaseHTTPRequestHandler):
    """Serves the one file there is."""

    def do_GET(self) -> None:
        """Send the file."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(FILE)))
        self.end_headers()
        self.wfile.write(FILE)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class calls it so
        """Say nothing: the signals do."""


@contextmanager
def serving() -> Generator[str]:
    """Serve on a free port of this machine while the block is open; gives the file's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), FileHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/file"
        finally:
            server.shutdown()
            thread.join()


class Downloader:
    """Downloads files, and keeps their digests.

    Attributes:
        digests: SHA-256 of what was downloaded, by address.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.digests: dict[str, str] = {}
        self._client = client

    async def download(self, url: str, op: Operation) -> None:
        """Download *url*: the body of a coordinator."""
        op.emit("stage.starting")
        digest, received, percent = hashlib.sha256(), 0, 0
        op.emit("stage.request")
        async with self._client.stream("GET", url) as response:
            response.raise_for_status()
            op.emit("stage.headers")
            length = int(response.headers["Content-Length"])
            op.emit("stage.reading")
            async for chunk in response.aiter_bytes():
                digest.update(chunk)
                received += len(chunk)
                if received * 100 // length > percent:
                    percent = received * 100 // length
                    op.emit(f"progress:{percent}")
        self.digests[url] = digest.hexdigest()
        op.emit("stage.completed")


async def main() -> None:
    """Download the file, follow the signals, and check both."""
    with serving() as url:
        # trust_env: a proxy that is meant for the world must not be asked for a local server.
        async with httpx.AsyncClient(trust_env=False) as client, SignalSink() as sink:
            sink.subscribe(lambda event: print(event.signal), "stage.*, progress:*")
            downloader = Downloader(client)
            options = EphemeralOptions(signals=sink)
            async with EphemeralWorkCoordinator[str](downloader.download, options) as downloads:
                operation_id = await downloads.enqueue(url)

    operation = downloads.try_get_operation(operation_id)
    assert operation is not None
    assert operation.error is None, operation.error
    stages = [event.signal for event in sink.get_op_signals(operation_id, "stage.*")]
    progress = [int(event.signal.partition(":")[2]) for event in sink.get_op_signals(operation_id, "progress:*")]
    assert stages == [f"stage.{stage}" for stage in ("starting", "request", "headers", "reading", "completed")]
    assert all(earlier < later for earlier, later in pairwise(progress))
    assert progress[-1] == 100
    assert downloader.digests[url] == hashlib.sha256(FILE).hexdigest()
    print(f"{len(FILE)} bytes in {operation.duration:.2f} s, {len(operation.signals)} signals, digest as expected")


if __name__ == "__main__":
    anyio.run(main)
