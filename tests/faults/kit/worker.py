"""One worker process of a fleet: raises numbered signals, makes calls down a ladder, and writes down what it sees.

Told what to do by lines of JSON on its standard input, it answers each with one on its standard output.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import sys
import time
from collections import Counter
from pathlib import Path

import anyio

OPTIONS = json.loads(sys.argv[1])
# Everything in this process that asks what time it is may get it wrong; nothing that only measures does.
_right = time.time
time.time = lambda: _right() + OPTIONS["clock_off"]

from ephemeral import HealthOptions, PriorityProcessorAtom, SignalSink  # noqa: E402  after the clock was put wrong
from ephemeral_redis import RedisSignalBackend  # noqa: E402

NUMBERED = "n"


class Service:
    """What the fleet calls: broken for all while the file is there, for one worker while it is told so."""

    def __init__(self, is_alone, folder, name):
        self._is_alone = is_alone
        self._broken = Path(folder) / f"{name}.broken"
        self.name = name
        self.is_broken_here = False
        self.probes = []

    async def call(self, item):
        await anyio.sleep(0.001)
        if self.is_broken:
            raise ConnectionError(self.name)

    async def probe(self):
        entry = [self.name, time.monotonic(), None, self._is_alone(self.name)]
        self.probes.append(entry)
        await anyio.sleep(OPTIONS["probe_takes"])
        entry[2] = time.monotonic()
        return not self.is_broken

    @property
    def is_broken(self):
        return self.is_broken_here or self._broken.exists()


class Worker:
    def __init__(self, sink, folder):
        self.sink = sink
        self.raised = Counter()
        self.received = {}
        self.runs = {}
        self.numbers = 0
        self.gaps = 0
        self.slowest = 0.0
        self.edges = []
        self.alone = set()
        self.calls = Counter()
        self.services = [Service(self.is_alone, folder, name) for name in ("pri1", "pri2")]
        self.atoms = {}
        self.rate = self.call_rate = 0.0
        self.running = 0
        # A count that outlives a SIGKILL: the kernel has it the moment it is written.
        self._count = _shared_memory(Path(folder) / f"{OPTIONS['name']}.count")
        sink.subscribe(self.hear)

    def hear(self, event):
        if event.signal.startswith("bus.gap"):
            self.gaps += int(event.signal.partition(":")[2])
            return
        if event.origin != self.sink.origin:
            self.received.setdefault(event.origin, Counter())[event.signal] += 1
            if event.signal == NUMBERED:
                self.extend(self.runs.setdefault(event.origin, []), int(event.key))
            return
        self.raised[event.signal.partition(":")[0] if event.signal.startswith("processing.") else event.signal] += 1
        if event.signal.startswith(("failover.requested", "failover.restored")):
            self.tell_edge(event)

    def is_alone(self, processor):
        """Whether what it now holds of a processor is its own view: its ladder hears a moment later of the bus."""
        return self.sink.is_degraded or self.atoms[processor].get_health().is_local

    def tell_edge(self, event):
        processor = event.signal.partition(":")[2].partition("→")[0]
        health = self.atoms[processor].get_health()
        # Who went down alone comes back alone, with the bus or without.
        is_alone = self.is_alone(processor) or processor in self.alone
        if event.signal.startswith("failover.requested") and is_alone:
            self.alone.add(processor)
        else:
            self.alone.discard(processor)
        self.edges.append([event.signal, health.epoch, is_alone])

    @staticmethod
    def extend(runs, number):
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])

    def raise_next(self):
        number = self.numbers
        self._count[:8] = (number + 1).to_bytes(8, "big")
        began_at = time.perf_counter()
        self.sink.raise_signal(NUMBERED, str(number))
        self.slowest = max(self.slowest, time.perf_counter() - began_at)
        self.numbers += 1

    async def raise_steadily(self):
        await self.steadily(lambda: self.rate, self.raise_next)

    async def call_steadily(self, tasks):
        await self.steadily(lambda: self.call_rate, lambda: tasks.start_soon(self.call))

    @staticmethod
    async def steadily(rate, act):
        """Act so often a second; what was missed while the loop was busy is not made up for."""
        due_at = time.monotonic()
        while True:
            if not rate():
                await anyio.sleep(0.005)
                due_at = time.monotonic()
                continue
            act()
            due_at = max(due_at + 1 / rate(), time.monotonic() - 0.05)
            await anyio.sleep(max(0.0, due_at - time.monotonic()))

    async def call(self):
        self.running += 1
        try:
            await self.atoms["pri1"].call(f"{self.calls.total()}")
            self.calls["good"] += 1
        except ConnectionError:
            self.calls["failed"] += 1
        except Exception as error:  # whatever it was, the account wants to know
            self.calls[type(error).__name__] += 1
        finally:
            self.running -= 1

    # What it can be told; each returns what is answered.

    def do_rate(self, raises, calls):
        self.rate, self.call_rate = raises, calls

    def do_is_up(self, processor):
        return self.atoms[processor].is_healthy

    def do_running(self):
        return self.running

    def do_set_clock(self, off):
        OPTIONS["clock_off"] = off

    def do_break(self, processor, *, is_broken):
        next(service for service in self.services if service.name == processor).is_broken_here = is_broken

    def do_block(self, seconds, raises=0):
        """Raise so many, and then keep the loop busy without a rest, until it is allowed to rest."""
        self.do_raise(raises)
        until = time.monotonic() + seconds
        while time.monotonic() < until or not Path(OPTIONS["folder"], "rest").exists():
            pass

    def do_raise(self, count):
        for _ in range(count):
            self.raise_next()

    def do_reset(self, processor):
        self.atoms[processor].reset_health()

    def do_isolate(self, processor):
        self.atoms[processor].isolate()

    async def do_count(self, scope, within):
        return await self.sink.shared_count(scope, within=within)

    async def do_flush(self, timeout):
        return await self.sink.flush(timeout)

    def do_books(self):
        statistics = self.sink.statistics()
        health = [dataclasses.asdict(atom.get_health()) for atom in self.atoms.values()]
        return {
            "name": OPTIONS["name"],
            "origin": self.sink.origin,
            "raised": self.raised,
            "numbers": self.numbers,
            "received": self.received,
            "runs": self.runs,
            "gaps": self.gaps,
            "slowest": self.slowest,
            "edges": self.edges,
            "probes": [probe for service in self.services for probe in service.probes],
            "calls": self.calls,
            "health": [{**one, "since": one["since"].timestamp(), "last_probe": None} for one in health],
            "live": self.sink.count_recent_exact(NUMBERED),
            "bus": dataclasses.asdict(statistics.bus),
            "undelivered": statistics.undelivered,
        }

    async def obey(self):
        async for line in anyio.wrap_file(sys.stdin):
            order = json.loads(line)
            answer = getattr(self, f"do_{order.pop('do')}")(**order)
            if hasattr(answer, "__await__"):
                answer = await answer
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _shared_memory(path):
    with path.open("w+b") as file:
        file.write(bytes(8))
        file.flush()
        return mmap.mmap(file.fileno(), 8)


async def main():
    backend = RedisSignalBackend.from_url(OPTIONS["url"], namespace=OPTIONS["namespace"], **OPTIONS["backend"])
    health = HealthOptions(**OPTIONS["ladder"].pop("health", {}))
    async with SignalSink(50_000, backend=backend, **({"clock": time.time} if OPTIONS["clock_off"] else {})) as sink:
        worker = Worker(sink, OPTIONS["folder"])
        primary, reserve = worker.services
        async with (
            PriorityProcessorAtom(
                1, primary.call, sink, probe=primary.probe, health=health, **OPTIONS["ladder"]
            ) as one,
            PriorityProcessorAtom(
                2, reserve.call, sink, probe=reserve.probe, health=health, **OPTIONS["ladder"]
            ) as two,
            anyio.create_task_group() as tasks,
        ):
            worker.atoms = {"pri1": one, "pri2": two}
            tasks.start_soon(worker.raise_steadily)
            tasks.start_soon(worker.call_steadily, tasks)
            await worker.obey()
            tasks.cancel_scope.cancel()


if os.environ.get("PYTHONFAULTHANDLER"):
    import faulthandler
    import signal

    faulthandler.register(signal.SIGUSR1)
anyio.run(main, backend=OPTIONS["loop"])
