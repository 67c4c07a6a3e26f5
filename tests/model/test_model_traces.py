"""The explored table is `HealthTable`; a real server's is Lua. Random ways through the model are gone on both."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import anyio
import pytest
import redis.asyncio

from ephemeral_redis._clock import BusClock
from ephemeral_redis._keys import Keys
from ephemeral_redis._scripts import Calls, Evidence

from .fleet import Fleet
from .parts import P
from .world import World

pytestmark = [pytest.mark.real_time, pytest.mark.server]

# No successes: which of two calls ended first is told by the millisecond there, and by the second here.
WORLDS = [
    World(fails=4, threshold=2, probes=4, seconds=4, isolates=2, resets=2, cuts=3),
    World(fails=3, probes=3, seconds=3, isolates=1, resets=1, cuts=2, flushes=1, crashes=1),
    World(workers=3, fails=4, threshold=2, quorum=2, probes=3, seconds=3, resets=1, flushes=1),
]
STEPS = 80
unique = itertools.count()


class Asked:
    """What a model's server was asked, and what it answered; in order."""

    def __init__(self, fleet):
        self.calls = []
        self.fleet = fleet
        server = fleet.server
        self._swap, self._report, self._empty = server.swap, server.report, server.empty
        server.swap, server.report, server.empty = self.swap, self.report, self.empty

    def swap(self, origin, swap):
        is_done = self._swap(origin, swap)
        self.calls.append(("swap", origin, swap, is_done, self.fleet.server.row, None))
        return is_done

    def report(self, origin, kept):
        down = kept.report.down_at(self.fleet.server.now)
        is_counted = self._report(origin, kept)
        failures = len(self.fleet.server.table._failures.get(P, ()))
        self.calls.append(("report", origin, kept, is_counted, self.fleet.server.row, (down, failures)))
        return is_counted

    def empty(self):
        self._empty()
        self.calls.append(("empty", "", None, None, None, None))


class Real:
    """A real server that is asked the same."""

    def __init__(self, client, rules):
        self.calls = Calls(client, Keys(f"trace-{next(unique)}"), bytes(8), BusClock())
        self.rules = rules
        # A version is a server's own; the model's are told by which row they were.
        self.versions = {0: 0}

    async def ask(self, kind, origin, what, answer, row, more):
        calls = self.calls._replace(origin=bytes.fromhex(origin)) if origin else self.calls
        if kind == "empty":
            await self.calls.client.flushdb()
            return
        if kind == "swap":
            versions = self.versions
            swap = what._replace(expected=versions[what.expected], version=versions[what.version])
            is_done, _, found = await calls.swap(swap)
            assert is_done == answer
        else:
            found = await self.report(calls, what, answer, row, *more)
        assert (None if found is None else found.record) == (None if row is None else row.record)
        if row is not None:
            assert self.versions.setdefault(row.version, found.version) == found.version

    async def report(self, calls, kept, is_counted, row, down, failures):
        member = calls.origin + kept.key[4].to_bytes(6, "big")
        evidence, nothing = Evidence([member], [0]), Evidence([], [])
        said = kept.report
        failed, well = (evidence, nothing) if said.has_failed else (nothing, evidence)
        answer = await calls.report(P, said.epoch, self.rules, failures=failed, successes=well, down=down)
        assert answer.is_counted == is_counted
        if is_counted and row is not None and not row.record.is_up:
            assert answer.failures == row.record.failures
        elif is_counted:
            assert answer.failures == failures
        return answer.row


def walk(world, seed):
    """Go a random way, and return what the server was asked."""
    choose = random.Random(seed)
    fleet = Fleet(world)
    asked = Asked(fleet)
    for _ in range(STEPS):
        actions = fleet.actions()
        if not actions:
            break
        fleet.apply(choose.choice(actions))
    fleet.settle()
    return asked.calls, fleet.server.log


@pytest.mark.parametrize("world", WORLDS, ids=range(len(WORLDS)))
def test_the_scripts_answer_as_the_explored_table_does(redis_server, world):
    async def compare():
        async with redis.asyncio.Redis.from_url(redis_server.url, db=9) as client:
            kinds = set()
            for seed in range(25):
                await client.flushdb()
                calls, log = walk(replace(world), seed)
                real = Real(client, world.rules())
                for call in calls:
                    await real.ask(*call)
                    kinds |= {(call[0], call[3])}
                entries = [fields for _, fields in await client.xrange(real.calls.keys.control)]
                told = [(fields[b"k"].decode(), fields[b"o"].hex()) for fields in entries]
                assert told == [(entry.news.kind, entry.news.origin) for entry in log]
            # Taken and refused, counted and ignored: all of it was met.
            assert {("swap", True), ("swap", False), ("report", True), ("report", False)} <= kinds

    anyio.run(compare)
