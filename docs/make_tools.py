"""Write the outputs of the commands into ``docs/tools.md``: ``python docs/make_tools.py``.

Starts a private server and a fleet of three workers in this process, and runs each command as a user does, into a pipe
of 80 columns.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend
from ephemeral_redis.server import RedisServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PAGE = Path(__file__).parent / "tools.md"
NAMES = ("api-1", "api-2", "api-3")


async def fails(item: str) -> None:
    """Stand in for a service that is down."""
    await anyio.sleep(0.01)
    raise ConnectionError(item)


async def works(item: str) -> None:
    """Stand in for one that is well."""
    del item
    await anyio.sleep(0.05)


@contextlib.asynccontextmanager
async def worker(url: str, name: str, **options: Any) -> AsyncGenerator[tuple[SignalSink, Any]]:
    """Be one worker with a ladder of two rungs, the first of which is down."""
    backend = RedisSignalBackend.from_url(url, namespace="shop", name=name)
    ladder: dict[str, Any] = {"reroute_failed": True, "max_concurrency": 2, **options}
    async with (
        SignalSink(backend=backend) as sink,
        PriorityProcessorAtom(1, fails, sink, **ladder) as first,
        PriorityProcessorAtom(2, works, sink, **ladder),
    ):
        yield sink, first


async def ephemeral(url: str, *commands: str) -> list[str]:
    """Run *commands* one after the other and return their prompts and outputs."""
    lines: list[str] = []
    for command in commands:
        run = partial(
            subprocess.run,
            [sys.executable, "-m", "ephemeral_redis.cli", *shlex.split(command)],
            env={
                **os.environ,
                "EPHEMERAL_REDIS_URL": url,
                "EPHEMERAL_NAMESPACE": "shop",
                "COLUMNS": "80",
                "USER": "you",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        ran = await anyio.to_thread.run_sync(run)
        lines += [f"$ ephemeral {command}", *ran.stdout.splitlines()]
    return lines


async def take_outputs(url: str) -> dict[str, list[str]]:
    """Return what each section of the page shows."""
    outputs: dict[str, list[str]] = {}
    async with (
        worker(url, NAMES[0]) as (sink, first),
        worker(url, NAMES[1]) as (_, second),
        worker(url, NAMES[2], failure_threshold=5),
        anyio.create_task_group() as tasks,
    ):

        async def send() -> None:
            for number in range(100_000):
                await first.enqueue(f"order-{2 * number}")
                await second.enqueue(f"order-{2 * number + 1}")
                sink.raise_signal("order.placed:eu", f"customer-{number % 40}", payload={"items": number % 5 + 1})
                await anyio.sleep(0.05)

        tasks.start_soon(send)
        await anyio.sleep(12)
        outputs["top"] = await ephemeral(url, "top --once")
        outputs["tail"] = await ephemeral(url, "tail --limit 6", 'tail "order.*" --limit 2 --json')
        outputs["raising"] = await ephemeral(
            url, "signal rate-limit.hit:stripe --key eu --payload '{\"retry_after\": 30}'", "drain mail-sender"
        )
        outputs["hand"] = await ephemeral(url, "isolate pri1", "isolate pri3", "reset pri1")
        await ephemeral(url, "isolate pri1")
        outputs["doctor"] = await ephemeral(url, "doctor")
        tasks.cancel_scope.cancel()
    return outputs


def splice(page: str, name: str, lines: list[str]) -> str:
    """Return *page* with *lines* between the marks called *name*."""
    begin, end = f"<!-- output: {name} -->\n", f"<!-- /output: {name} -->"
    before, rest = page.split(begin, 1)
    return before + begin + "\n".join(["```text", *lines, "```", ""]) + end + rest.split(end, 1)[1]


def main() -> None:
    """Run the fleet and write the page."""
    with RedisServer() as server:
        outputs = anyio.run(take_outputs, server.url)
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in outputs.items():
        page = splice(page, name, lines)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
