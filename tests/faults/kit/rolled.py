"""One worker process that a rolling restart starts and ends: raises numbers, works items off, and says how it went.

``rolled.py URL NAMESPACE FOLDER NAME RATE``. It ends as applications do on SIGTERM: it takes nothing new, and leaves
its blocks. What it accepted stands in a file that outlives a SIGKILL.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
from pathlib import Path

import anyio

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend

NUMBERED = "n"
TIMEOUT = 1.0
PROBE_INTERVAL = 0.2


class Work:
    """What it does, and how often: three counts that are written down before what they count happens."""

    NAMES = ("raised", "accepted", "primary")

    def __init__(self, folder, name):
        self._broken = folder / "broken"
        with (folder / f"{name}.counts").open("w+b") as file:
            file.write(bytes(8 * len(self.NAMES)))
            file.flush()
            self._memory = mmap.mmap(file.fileno(), 8 * len(self.NAMES))

    def count(self, name):
        place = 8 * self.NAMES.index(name)
        number = int.from_bytes(self._memory[place : place + 8], "big")
        self._memory[place : place + 8] = (number + 1).to_bytes(8, "big")
        return number

    @classmethod
    def counts(cls, folder, name):
        data = (folder / f"{name}.counts").read_bytes()
        return {key: int.from_bytes(data[8 * at : 8 * at + 8], "big") for at, key in enumerate(cls.NAMES)}

    async def primary(self, _):
        self.count("primary")
        await anyio.sleep(0.002)
        if self._broken.exists():
            raise ConnectionError

    async def backup(self, _):
        await anyio.sleep(0.002)

    async def probe(self):
        await anyio.sleep(0.05)
        return not self._broken.exists()


async def work_on(work, sink, atom, rate):
    parent = os.getppid()
    # An orphan ends, too: whoever started it is gone, however that came.
    while os.getppid() == parent:
        sink.raise_signal(NUMBERED, str(work.count("raised")))
        if atom.try_enqueue("item"):
            work.count("accepted")
        await anyio.sleep(1 / rate)
    os._exit(1)


async def main(url, namespace, folder, name, rate):
    work = Work(Path(folder), name)
    with anyio.open_signal_receiver(signal.SIGTERM) as requests:
        backend = RedisSignalBackend.from_url(url, namespace=namespace, retention=600.0)
        options = {"failure_threshold": 3, "probe_interval": PROBE_INTERVAL, "timeout": TIMEOUT, "reroute_failed": True}
        async with (
            SignalSink(backend=backend) as sink,
            PriorityProcessorAtom(1, work.primary, sink, probe=work.probe, **options) as atom,
            PriorityProcessorAtom(2, work.backup, sink),
            anyio.create_task_group() as tasks,
        ):
            sink.raise_signal("joined", name)
            tasks.start_soon(work_on, work, sink, atom, float(rate))
            async for _ in requests:
                break
            tasks.cancel_scope.cancel()
        counts = atom.statistics()
        left = sink.statistics().bus.outbox
        print(json.dumps({"done": counts.total_completed, "undelivered": counts.total_undelivered, "left": left}))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
