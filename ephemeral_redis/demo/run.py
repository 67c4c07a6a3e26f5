"""A whole run, from the first process to the verdict: the one place where the scenario's acts are done."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import anyio

from . import timeline
from .ledger import Ledger
from .processes import ServiceProcess, ServiceStartError
from .timeline import Timeline
from .traffic import open_traffic
from .verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from .board import Board
    from .scenario import Scenario
    from .traffic import Traffic
    from .view import View

PRIMARY_LATENCY = (0.02, 0.06)
BACKUP_LATENCY = (0.04, 0.08)
"""Seconds from lowest to highest; a backup is second choice for a reason."""
FRAME = 0.1
"""Seconds between two boards: smooth to the eye, and a few per cent of one core."""
SETTLE_TIMEOUT = 30.0
"""Seconds that the end of the work and the return of the primary may take, after the last widget was sent."""


async def play(scenario: Scenario, view: View[Board, Verdict]) -> Verdict:
    """Run *scenario* and judge it.

    A cancellation point throughout; cancelled or not, it leaves no process and no file behind.

    Args:
        scenario: What is to happen.
        view: Where it is shown.

    Raises:
        ServiceStartError: A service did not come up at the start.
    """
    started_at = time.monotonic()
    history = Timeline(on_entry=lambda entry: view.entry(entry, entry.at - started_at))
    with TemporaryDirectory(prefix="ephemeral-demo-") as directory:
        path = Path(directory, "ledger.db")
        with (
            Ledger.create(path) as ledger,
            ServiceProcess("primary", path, latency=PRIMARY_LATENCY, seed=scenario.seed) as primary,
            ServiceProcess("backup", path, latency=BACKUP_LATENCY, seed=scenario.seed + 1) as backup,
        ):
            await _start(primary, backup, history)
            async with (
                open_traffic(primary.url, backup.url, history) as traffic,
                drawing(lambda: view.board(traffic.board(elapsed=time.monotonic() - started_at, items=scenario.items))),
            ):
                await _send_all(scenario, traffic, primary, history)
                await _settle(traffic, history)
            verdict = judge(traffic.sent, ledger.effects(), ledger.attempts(), history.entries)
    view.verdict(verdict)
    return verdict


async def _start(primary: ServiceProcess, backup: ServiceProcess, history: Timeline) -> None:
    history.note("services.starting", "a primary and a backup, over one ledger")
    for service in (primary, backup):
        service.spawn()
    listening = [(await service.wait_ready(), service) for service in (primary, backup)]
    for at, service in sorted(listening, key=itemgetter(0)):
        history.note(f"service.listening:{service.name}", f"{service.url}, pid {service.pid}", at=at)


async def _send_all(scenario: Scenario, traffic: Traffic, primary: ServiceProcess, history: Timeline) -> None:
    """Send every widget when it is due, and do to the primary what the scenario says; ends when it listens again."""
    history.note("widgets.sending", f"{scenario.items} at {scenario.rate:g}/s, seed {scenario.seed}")
    first_at = anyio.current_time()
    async with anyio.create_task_group() as restart:
        for number in range(scenario.items):
            await anyio.sleep_until(first_at + scenario.due(number))
            if number == scenario.kill_at:
                primary.kill()
                history.note(timeline.KILLED, f"SIGKILL, pid {primary.pid}")
            if number == scenario.restart_at:
                primary.spawn()
                history.note(timeline.RESTARTED, f"pid {primary.pid}")
                restart.start_soon(_watch_restart, primary, history)
            await traffic.send(scenario.widget(number))
        history.note("widgets.sent", f"all {scenario.items}")


async def _watch_restart(primary: ServiceProcess, history: Timeline) -> None:
    try:
        listening_at = await primary.wait_ready()
    except ServiceStartError as error:
        history.note("service.failed:primary", error.reason)
    else:
        history.note(timeline.LISTENING, primary.url, at=listening_at)


async def _settle(traffic: Traffic, history: Timeline) -> None:
    with anyio.move_on_after(SETTLE_TIMEOUT):
        await traffic.drain()
        history.note("widgets.done", "nothing waits, nothing runs")
        await traffic.wait_primary()
        return
    history.note("widgets.unsettled", f"after {SETTLE_TIMEOUT:g} s")


@asynccontextmanager
async def drawing(draw: Callable[[], None]) -> AsyncGenerator[None]:
    """Call *draw* every ``FRAME`` seconds while the block runs, and once at its end."""

    async def keep_drawing() -> None:
        while True:
            draw()
            await anyio.sleep(FRAME)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_drawing)
        yield
        draw()
        tasks.cancel_scope.cancel()
