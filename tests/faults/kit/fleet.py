"""A fleet of worker processes on one namespace, steered by a test and held to account by it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import fields
from pathlib import Path

import redis

from ephemeral_redis import _codec

from .account import Books, disagreements, figures, one_edge_each, one_health, one_prober

WORKER = Path(__file__).with_name("worker.py")
ANSWER_SECONDS = 90.0
LADDER = {"failure_threshold": 3, "probe_interval": 0.2, "timeout": 1.0, "reroute_failed": True}
_unique = itertools.count()


class Member:
    """One worker process.

    Args:
        options: What ``worker.py`` takes, as a dict.
        prefix: What its command begins with.

    Attributes:
        name: What it is called.
        origin: Who it is on the bus.
        process: Its process.
    """

    def __init__(self, options, prefix=()):
        self.name = options["name"]
        self._folder = Path(options["folder"])
        self._unread = b""
        self._owed = 0
        self.origin = ""
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(WORKER), json.dumps(options)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def tell(self, do, **order):
        """Tell it to do something, and do not wait."""
        self.process.stdin.write(json.dumps({"do": do, **order}).encode() + b"\n")
        self.process.stdin.flush()
        self._owed += 1

    def ask(self, do, **order):
        """Tell it to do something, and return its answer."""
        self.tell(do, **order)
        return self.last_answer()

    def last_answer(self):
        """Return the answer to what it was told last."""
        while self._owed > 1:
            self._answer()
        return self._answer()

    def wait(self):
        """Wait until it has done all that it was told."""
        while self._owed:
            self._answer()

    def freeze(self):
        """Stop it (SIGSTOP)."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        """Let a stopped one go on."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        """Kill it (SIGKILL); its books are then what it had written down."""
        self.process.kill()
        self.process.wait()

    def end(self):
        """Let it leave its blocks, and wait until it has ended."""
        if self.process.poll() is None:
            self.process.stdin.close()
            assert self.process.wait(ANSWER_SECONDS) == 0, f"{self.name} ended with {self.process.returncode}"

    def greet(self):
        """Wait until it is there."""
        self.origin = self.ask("books")["origin"]

    def books(self):
        """Return its books."""
        if self.process.poll() is not None:
            numbers = int.from_bytes((self._folder / f"{self.name}.count").read_bytes(), "big")
            return Books(self.name, self.origin, {"n": numbers}, numbers)
        told = self.ask("books")
        return Books(**{field.name: told[field.name] for field in fields(Books)})

    def health(self, processor="pri1"):
        """Return the health of a processor as it sees it."""
        return next(one for one in self.ask("books")["health"] if one["processor"] == processor)

    def _answer(self):
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{self.name} does not answer"
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            assert more, f"{self.name} has ended, and said why above"
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        self._owed -= 1
        return json.loads(line)


class Fleet:
    """Workers on one namespace; iterating gives the members.

    Args:
        url: Where they find the server, or one URL for each.
        server: The server's own URL, for who watches from outside.
        count: How many; as many as there are URLs, if it is several.
        loop: ``asyncio`` or ``trio``.
        backend: Options of `RedisSignalBackend`.
        ladder: Options of both atoms.
        probe_takes: Seconds that a probe takes.
        clock_off: Seconds that the first worker's clock is ahead.
        prefixes: What the command of each begins with.

    Attributes:
        namespace: Theirs.
        members: The workers.
        folder: Where their files are.
    """

    def __init__(
        self,
        url,
        *,
        server,
        count=None,
        loop="asyncio",
        backend=None,
        ladder=None,
        probe_takes=0.02,
        clock_off=0.0,
        prefixes=None,
    ):
        self.namespace = f"fleet-{next(_unique)}"
        self._server = redis.Redis.from_url(server)
        self._urls = [url] * count if isinstance(url, str) else list(url)
        self._options = {
            "namespace": self.namespace,
            "loop": loop,
            "backend": {"retention": 600.0, **(backend or {})},
            "ladder": {**LADDER, **(ladder or {})},
            "probe_takes": probe_takes,
        }
        self._clocks_off = [clock_off] + [0.0] * (len(self._urls) - 1)
        self._prefixes = prefixes or [()] * len(self._urls)
        self._files = tempfile.TemporaryDirectory(prefix="eph-fleet-")
        self.folder = Path(self._files.name)
        self.members = []

    def __enter__(self):
        try:
            for index, how in enumerate(zip(self._urls, self._clocks_off, self._prefixes, strict=True)):
                self.members.append(self._start(f"w{index}", *how))
            for member in self.members:
                member.greet()
        except BaseException:
            self._sweep()
            raise
        return self

    def __exit__(self, kind, error, trace):
        try:
            if kind is None:
                for member in self.members:
                    member.end()
        finally:
            self._sweep()

    def __iter__(self):
        return iter(self.members)

    def __getitem__(self, index):
        return self.members[index]

    def join(self, name, url=None):
        """Start one more worker, and return it once it is there."""
        member = self._start(name, url or self._urls[0])
        self.members.append(member)
        member.greet()
        return member

    def all(self, do, **order):
        """Tell all of them to do something, and return their answers."""
        for member in self.members:
            member.tell(do, **order)
        return [member.last_answer() for member in self.members]

    def run(self, *, raises=0.0, calls=0.0):
        """Have each raise and call so often a second."""
        self.all("rate", raises=raises, calls=calls)

    def go_on(self, seconds):
        """Let traffic go on for so long."""
        threading.Event().wait(seconds)

    def until(self, condition, seconds=60.0, *, why=lambda: "it never came true"):
        """Wait until *condition* holds; fails after *seconds*, and says *why*."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, why()
            self.go_on(0.02)

    def are_up(self, processor="pri1"):
        """Return, for each that lives, whether it holds a processor for up."""
        living = [member for member in self.members if member.process.poll() is None]
        for member in living:
            member.tell("is_up", processor=processor)
        return [member.last_answer() for member in living]

    @contextlib.contextmanager
    def broken(self, processor="pri1"):
        """Break a processor for all."""
        flag = self.folder / f"{processor}.broken"
        flag.touch()
        try:
            yield
        finally:
            flag.unlink()

    def settle(self, seconds=60.0):
        """End all traffic, and wait until the last of it has arrived with everybody who lives.

        Each raises one signal more, by which the others see what of those before never came.
        """
        living = [member for member in self.members if member.process.poll() is None]
        for member in living:
            member.ask("rate", raises=0, calls=0)
        self.until(lambda: all(not book.bus["is_degraded"] for book in self.books(living)), seconds, why=self._story)
        for member in living:
            member.ask("raise", count=1)
        for member in living:
            assert member.ask("flush", timeout=10), f"{member.name} did not get rid of its signals"
        self.until(lambda: self._have_last(living), seconds, why=self._story)

    def _story(self):
        return f"not all has arrived: {self.disagreements()}"

    def _have_last(self, living):
        books = self.books(living)
        for one in books:
            for other in books:
                runs = one.runs.get(other.origin)
                if one is not other and (not runs or runs[-1][1] != other.numbers - 1):
                    return False
        return all(book.bus["outbox"] == 0 for book in books)

    def books(self, members=None):
        """Return the books of all."""
        return [member.books() for member in (self.members if members is None else members)]

    def counted(self):
        """Return, by origin, how many signals the server counts in scopes of one segment."""
        counted = Counter()
        for key in self._server.scan_iter(f"{{{self.namespace}}}:z:*"):
            if b":" not in key.partition(b":z:")[2]:
                counted.update(member[:8].hex() for member in self._server.zrange(key, 0, -1))
        return counted

    def rows(self, processor="pri1"):
        """Return the changes of a processor's row as the server took them: (kind, row)."""
        entries = self._server.xrange(f"{{{self.namespace}}}:c")
        return [
            (fields[b"k"].decode(), _codec.unpack_row(processor, fields[b"r"]))
            for _, fields in entries
            if fields[b"p"].decode() == processor and b"r" in fields
        ]

    def row(self, processor="pri1"):
        """Return a processor's row as the server has it; None: there is none."""
        stored = self._server.hget(f"{{{self.namespace}}}:h", processor)
        return None if stored is None else _codec.unpack_row(processor, stored)

    def disagreements(self, **options):
        """Return what does not agree in all that was written down, reported and counted; options of the account."""
        books = self.books()
        said = disagreements(books, self.counted(), **options)
        said += one_edge_each(books) + one_prober(books) + one_health(books)
        for processor in ("pri1", "pri2"):
            epochs = [row.record.epoch for _, row in self.rows(processor)]
            if epochs != sorted(epochs):
                said.append(f"the epoch of {processor} went back: {epochs}")
        return said

    def figures(self):
        """Return the four figures as a dict, for `tried`."""
        total = figures(self.books(), self.counted())
        return {name: getattr(total, name) for name in ("raised", "received", "counted", "reported")}

    def _start(self, name, url, clock_off=0.0, prefix=()):
        own = {"name": name, "url": url, "folder": str(self.folder), "clock_off": clock_off}
        return Member({**self._options, **own}, prefix)

    def _sweep(self):
        for member in self.members:
            with contextlib.suppress(OSError):
                member.resume()
            member.kill()
            member.process.stdin.close()
            member.process.stdout.close()
        self._server.close()
        self._files.cleanup()
