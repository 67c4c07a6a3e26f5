"""Hands widgets to the workers of a fleet: ``python -m ephemeral_redis.demo.load --rate 20 http://worker1:8080 …``.

Run by itself it sends for ever and prints one JSON line a second: how many widgets each worker took, and how many
nobody did. It ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
from collections import Counter
from typing import TYPE_CHECKING

import anyio
import httpx

from .worker import HTTP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REPORT_SECONDS = 1.0


class Sender:
    """Hands each widget to one worker, in turn; for one event loop.

    Args:
        client: Used for all requests.
        urls: The workers' addresses by name.

    Attributes:
        taken: Widgets that each worker has confirmed.
        refused: Times that no worker took a widget.
    """

    def __init__(self, client: httpx.AsyncClient, urls: Mapping[str, str]) -> None:
        self.taken: Counter[str] = Counter()
        self.refused = 0
        self._client = client
        self._urls = list(urls.items())
        self._turn = 0

    async def send(self, widget: str) -> bool:
        """Hand *widget* to the next worker in turn, or to the first after it that takes it.

        A cancellation point. A worker that died before it answered may have taken it too; then the ledger refuses the
        repeat.

        Returns:
            Whether a worker took it.
        """
        turn, self._turn = self._turn, self._turn + 1
        for step in range(len(self._urls)):
            name, url = self._urls[(turn + step) % len(self._urls)]
            try:
                reply = await self._client.put(f"{url}/widgets/{widget}")
            except httpx.TransportError:
                continue
            if reply.is_success:
                self.taken[name] += 1
                return True
        self.refused += 1
        return False


async def _load(urls: Sequence[str], rate: float) -> None:
    # So that a load that was started again does not ask for what was done before.
    run = secrets.token_hex(3)
    async with (
        httpx.AsyncClient(timeout=HTTP_SECONDS, trust_env=False) as client,
        anyio.create_task_group() as tasks,
    ):
        sender = Sender(client, {url: url for url in urls})
        tasks.start_soon(_report, sender)
        tasks.start_soon(_end_on_signal, tasks.cancel_scope)
        first_at, number = anyio.current_time(), 0
        while True:
            await anyio.sleep_until(first_at + number / rate)
            tasks.start_soon(sender.send, f"{run}-{number}")
            number += 1


async def _report(sender: Sender) -> None:
    while True:
        try:
            await anyio.sleep(REPORT_SECONDS)
        finally:  # how it stood when it ended is said too
            print(json.dumps({"taken": sender.taken, "refused": sender.refused}), flush=True)  # noqa: T201 - said to the user


async def _end_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()


def main(arguments: Sequence[str] | None = None) -> None:
    """Send widgets as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m ephemeral_redis.demo.load", description=__doc__)
    parser.add_argument("workers", nargs="+", metavar="URL", help="where the workers listen")
    parser.add_argument("--rate", type=float, default=20.0, help="widgets a second")
    given = parser.parse_args(arguments)
    if not given.rate > 0:
        parser.error(f"--rate must be above 0, not {given.rate:g}")
    anyio.run(_load, given.workers, given.rate)


if __name__ == "__main__":
    main()
