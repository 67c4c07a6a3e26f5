"""A whole run of a fleet, from the first process to the verdict."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import anyio
import httpx

from ephemeral_redis.demo.ledger import Ledger
from ephemeral_redis.demo.load import Sender
from ephemeral_redis.demo.processes import ServiceProcess
from ephemeral_redis.demo.run import BACKUP_LATENCY, PRIMARY_LATENCY, drawing
from ephemeral_redis.demo.timeline import Timeline
from ephemeral_redis.demo.traffic import REQUEST_TIMEOUT

from .acts import Acts
from .board import board_of
from .bus import open_bus
from .crew import STOP_TIMEOUT, Crew
from .evidence import Evidence
from .verdict import FleetVerdict, judge_fleet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ephemeral_redis.demo.processes import LocalProcess
    from ephemeral_redis.demo.view import View

    from .board import FleetBoard
    from .bus import Bus
    from .scenario import FleetScenario

END_TIMEOUT = STOP_TIMEOUT + 10.0
"""Seconds after which a worker that was asked to end is killed: its own limit, and room for its sockets."""

_RETRY = 0.05
"""Seconds until a widget that no worker took is offered again."""


async def play_fleet(
    scenario: FleetScenario, redis_url: str | None, view: View[FleetBoard, FleetVerdict]
) -> FleetVerdict:
    """Run *scenario* and judge it.

    A cancellation point throughout; cancelled or not, it leaves no process, file or key behind.

    Args:
        scenario: What the fleet is.
        redis_url: A server that is there and is left alone; None: one is found or embedded, and killed.
        view: Where it is shown.

    Raises:
        SignalBusError: Nothing answers at *redis_url*.
        ServerStartError: No server can be started here.
        ServiceStartError: A service or a worker did not come up at the start.
    """
    started_at = time.monotonic()
    history = Timeline(on_entry=lambda entry: view.entry(entry, entry.at - started_at))
    with TemporaryDirectory(prefix="ephemeral-demo-") as directory:
        folder = Path(directory)
        path = folder / "ledger.db"
        async with open_bus(redis_url) as bus:
            with (
                Ledger.create(path) as ledger,
                ServiceProcess("primary", path, latency=PRIMARY_LATENCY, seed=scenario.seed) as primary,
                ServiceProcess("backup", path, latency=BACKUP_LATENCY, seed=scenario.seed + 1) as backup,
            ):
                history.note("fleet.starting", f"{scenario.workers} workers, two services, one ledger, one bus")
                await _start([primary, backup], history)
                with Crew(scenario.names, folder, _options(bus, primary, backup)) as crew:
                    await _start([member.process for member in crew.members], history)
                    acts = Acts(crew, primary, bus, history)
                    sent = await _send(scenario, crew, acts, view, started_at)
                    exit_codes = await _end(crew, acts, history)
                    evidence = Evidence(
                        journals={member.name: member.lines for member in crew.members},
                        killed={m.name: m.killed_at for m in crew.members if m.killed_at is not None},
                        exit_codes=exit_codes,
                        sent=sent,
                        effects=ledger.effects(),
                        attempts=ledger.attempts(),
                        entries=history.entries,
                    )
    verdict = judge_fleet(evidence)
    view.verdict(verdict)
    return verdict


def _options(bus: Bus, primary: ServiceProcess, backup: ServiceProcess) -> Sequence[str]:
    return [
        *("--redis", bus.url, "--namespace", bus.namespace, "--primary", primary.url, "--backup", backup.url),
        *("--stop-timeout", str(STOP_TIMEOUT)),
    ]


async def _start(processes: Sequence[LocalProcess], history: Timeline) -> None:
    """Start *processes* side by side and wait until all listen."""
    for process in processes:
        process.spawn()
    for process in processes:
        at = await process.wait_ready()
        history.note(f"listening:{process.name}", f"{process.url}, pid {process.pid}", at=at)


async def _send(
    scenario: FleetScenario, crew: Crew, acts: Acts, view: View[FleetBoard, FleetVerdict], started_at: float
) -> Sequence[str]:
    """Send widgets at a steady rate while the acts are played, and return their names."""
    sent: list[str] = []
    is_played = anyio.Event()

    def draw() -> None:
        acts.read()
        now = time.monotonic()
        view.board(board_of(crew, elapsed=now - started_at, sent=len(sent), now=now))

    async def play() -> None:
        await acts.play()
        is_played.set()

    # trust_env: a proxy that is meant for the world must not be asked for a local worker.
    async with httpx.AsyncClient(timeout=REQUEST_TIMEOUT, trust_env=False) as client, drawing(draw):
        sender = Sender(client, {member.name: member.process.url for member in crew.members})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(play)
            first_at = anyio.current_time()
            while not (is_played.is_set() and len(sent) >= scenario.items):
                await anyio.sleep_until(first_at + len(sent) / scenario.rate)
                sent.append(scenario.widget(len(sent)))
                tasks.start_soon(partial(_hand_over, sender, sent[-1]))
        await acts.settle()
    return sent


async def _hand_over(sender: Sender, widget: str) -> None:
    while True:
        if await sender.send(widget):
            return
        await anyio.sleep(_RETRY)


async def _end(crew: Crew, acts: Acts, history: Timeline) -> dict[str, int | None]:
    """Ask the workers that live to end, and return how each did."""
    codes: dict[str, int | None] = {}

    async def wait(process: LocalProcess) -> None:
        codes[process.name] = await process.wait_ended(END_TIMEOUT)

    history.note("fleet.ending", "SIGTERM to every worker")
    async with anyio.create_task_group() as tasks:
        for member in crew.survivors:
            member.process.terminate()
            tasks.start_soon(wait, member.process)
    acts.read()
    return codes
