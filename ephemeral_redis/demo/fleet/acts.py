"""What is done to the fleet, act by act, each once the one before has shown in the workers' own journals."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from ephemeral import matches_pattern
from ephemeral_redis.demo import timeline
from ephemeral_redis.demo.processes import ServiceStartError

from .verdict import BUS_KILLED, BUS_RESTARTED, BUS_SPARED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemeral_redis.demo.processes import ServiceProcess
    from ephemeral_redis.demo.timeline import Timeline

    from .bus import Bus
    from .crew import Crew, Member

CALM = 1.0
"""Seconds between acts, so that the eye sees the fleet at rest."""
BUS_AWAY = 1.5
"""Seconds that the bus stays dead: several times what the workers need to notice."""
PROBER_SEEN = 0.5
"""Seconds that a prober is left to hang before it is killed, so that the eye sees it; well below its own time limit."""
ACT_TIMEOUT = 20.0
"""Seconds that the fleet may take to answer an act. The longest is to wait for a dead prober's lease to end: 4 s."""

_LOOK = 0.01
"""Seconds between two looks into the journals, when an act waits for what they are to show."""
_TOLD = "failover.*, probe.success:*, probe.failed:*"


class Acts:
    """Does one act after the other, and notes what happens; for one event loop.

    Args:
        crew: The workers.
        primary: The service that is killed.
        bus: The server that is killed, if it is ours.
        history: Where all is noted.
    """

    def __init__(self, crew: Crew, primary: ServiceProcess, bus: Bus, history: Timeline) -> None:
        self._crew = crew
        self._primary = primary
        self._bus = bus
        self._history = history

    async def play(self) -> None:
        """Do all of them; a cancellation point throughout. What the fleet fails to do is left to the verdict."""
        await anyio.sleep(CALM)
        await self._kill_primary()
        await self._kill_prober()
        await anyio.sleep(CALM)
        if self._bus.is_own:
            await self._kill_bus()
            await anyio.sleep(CALM)
        else:
            self._history.note(BUS_SPARED, "it was there before")
        # Once more: the fleet that the bus has come back to shares one health again.
        await self._kill_primary()
        await self._start_primary()
        await self._until("primary back in use", lambda member: member.holds("pri1") == "up")
        await anyio.sleep(CALM)

    def read(self) -> None:
        """Read the journals, and note what they say that a person wants to see."""
        for member, line in self._crew.read():
            if line.kind == "signal" and matches_pattern(line.name, _TOLD):
                self._history.note(line.name, f"by {member.name}", at=line.at)
            elif line.kind == "bus":
                self._history.note(f"bus.{line.state}", member.name, at=line.at)

    async def settle(self) -> bool:
        """Wait until every worker that lives has done what it accepted; return whether that came in time."""
        return await self._until("widgets done", lambda member: member.done >= member.accepted)

    async def _kill_primary(self) -> None:
        # Noted before: a worker may see it fail in the instant of its death.
        self._history.note(timeline.KILLED, f"SIGKILL, pid {self._primary.pid}")
        self._primary.kill()
        await self._until("primary left", lambda member: member.holds("pri1") == "down")

    async def _start_primary(self, *extra: str) -> None:
        self._primary.spawn(*extra)
        self._history.note(timeline.RESTARTED, f"pid {self._primary.pid}" + (", frozen" if extra else ""))
        try:
            listening_at = await self._primary.wait_ready()
        except ServiceStartError as error:
            self._history.note("service.failed:primary", error.reason)
        else:
            self._history.note(timeline.LISTENING, self._primary.url, at=listening_at)

    async def _kill_prober(self) -> None:
        """Have the primary come back hanging, so that whoever probes it holds the lease; kill that one, and thaw it."""
        await self._start_primary("--frozen")
        prober = await self._find_prober()
        if prober is not None:
            await anyio.sleep(PROBER_SEEN)
            self._history.note(f"worker.killed:{prober.name}", f"SIGKILL, pid {prober.process.pid}, as the prober")
            prober.kill()
        self._primary.thaw()
        self._history.note("service.thawed:primary")
        await self._until("primary back in use", lambda member: member.holds("pri1") == "up")

    async def _find_prober(self) -> Member | None:
        frozen_at = time.monotonic()
        found: list[Member] = []

        def is_probing(member: Member) -> bool:
            # A probe from before may yet be ending; a primary that hangs ends none.
            if member.probe is not None and member.probe.fence and member.probe.at >= frozen_at:
                found.append(member)
            return bool(found)

        await self._until("prober found", is_probing, of_all=False)
        return found[0] if found else None

    async def _kill_bus(self) -> None:
        self._history.note(BUS_KILLED, f"SIGKILL, pid {await self._bus.kill()}")
        await anyio.sleep(BUS_AWAY)
        self.read()
        # Noted before, and dated then: workers reach it before it has answered us.
        restarted_at = time.monotonic()
        pid = await self._bus.restart()
        self._history.note(BUS_RESTARTED, f"empty, pid {pid}", at=restarted_at)
        await self._until("bus shared", lambda member: member.bus == "reached")

    async def _until(self, what: str, holds: Callable[[Member], bool], *, of_all: bool = True) -> bool:
        """Wait until *holds* of every worker that lives, or of any; note it if it never comes."""
        with anyio.move_on_after(ACT_TIMEOUT):
            while True:
                self.read()
                if (all if of_all else any)(holds(member) for member in self._crew.survivors):
                    return True
                await anyio.sleep(_LOOK)
        self._history.note(f"fleet.unsettled:{what}", f"after {ACT_TIMEOUT:g} s")
        return False
