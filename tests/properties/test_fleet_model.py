"""Whatever befalls a fleet, its workers agree again once they can talk, and while they can there is one prober."""

from __future__ import annotations

import contextlib

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral import HealthOptions, SignalSink, testing
from ephemeral._health import HealthRules
from ephemeral._loops import current_loop
from ephemeral._shared_health import SharedHealthStore

WORKERS = 3
STEPS = ["fail", "fail", "fail", "succeed", "acquire", "good", "bad", "give_back", "isolate", "reset", "reset"]
FAULTS = ["cut", "join", "lose_data", "repeat"]
WAITS = [0.0, 0.0, 0.02, 0.5, 1.1, 7.5]


class Worker:
    def __init__(self, sink, rules):
        self.backend = sink.backend
        self.now = current_loop().now
        self.store = SharedHealthStore(sink.backend)
        self.store.on_change = self.note
        self.store.register("pri1", rules, self.now())
        self.leases = []
        self.edges = []
        self.started = []

    @property
    def record(self):
        return self.store.record("pri1")

    def note(self, change):
        if change.is_own and (change.went_down or change.came_up):
            self.edges.append("down" if change.went_down else "up")
        if change.is_own and change.cause == "probe_started":
            self.started.append(change.after.lease.fence)

    async def take(self, step):
        now = self.now()
        if step == "fail":
            self.store.failed("pri1", self.record.epoch, now)
        elif step == "succeed":
            self.store.succeeded("pri1", self.record.epoch, now)
        elif step == "acquire":
            lease = await self.store.acquire("pri1", now)
            self.leases += [lease] if lease else []
        elif step in {"isolate", "reset"}:
            getattr(self.store, step)("pri1", now)
        elif self.leases:
            lease = self.leases.pop()
            if step == "give_back":
                self.store.give_back(lease)
            else:
                self.store.finish(lease, now, is_good=step == "good")


def what_all_say(workers):
    return {(w.record.epoch, w.record.state, w.record.good_probes, w.record.failed_probes) for w in workers}


@contextlib.asynccontextmanager
async def fleet(policy, quorum, recovery_probes):
    options = HealthOptions(policy=policy, quorum=quorum, recovery_probes=recovery_probes, minimum_calls=3)
    rules = HealthRules.of(options, failure_threshold=2, failure_window=10.0, probe_interval=1.0, timeout=5.0)
    async with testing.MemoryBus() as bus, contextlib.AsyncExitStack() as stack:
        sinks = [
            await stack.enter_async_context(SignalSink(backend=bus.backend(), clock=current_loop().now))
            for _ in range(WORKERS)
        ]
        workers = [Worker(sink, rules) for sink in sinks]
        await anyio.sleep(0.01)
        yield bus, workers


def histories(steps):
    return st.lists(
        st.tuples(st.sampled_from(steps), st.integers(0, WORKERS - 1), st.sampled_from(WAITS)), min_size=5, max_size=40
    )


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=40)
@given(history=histories(STEPS), policy=st.sampled_from(["consecutive", "windowed", "rate"]), probes=st.integers(1, 2))
def test_while_they_can_talk_they_agree_and_every_edge_is_told_once(backend, history, policy, probes):
    async def live():
        async with fleet(policy, 1, probes) as (_, workers):
            for step, index, wait in history:
                await workers[index].take(step)
                if wait:
                    await anyio.sleep(wait)
                    assert len(what_all_say(workers)) == 1
            await anyio.sleep(0.01)
            edges = [edge for worker in workers for edge in worker.edges]
            is_up = workers[0].record.is_up
            # What takes it down and what brings it back alternate, and each is told by one worker.
            assert edges.count("down") - edges.count("up") == (0 if is_up else 1)
            fences = [fence for worker in workers for fence in worker.started]
            assert len(fences) == len(set(fences))

    testing.run(live, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=60)
@given(history=histories([*STEPS, *FAULTS, *FAULTS]), policy=st.sampled_from(["consecutive", "rate"]))
def test_whatever_befell_them_they_agree_once_they_are_joined_again(backend, history, policy):
    async def live():
        async with fleet(policy, 1, 1) as (bus, workers):
            for step, index, wait in history:
                if step in {"cut", "join"}:
                    getattr(bus, step)(workers[index].backend)
                elif step == "lose_data":
                    bus.lose_data()
                elif step == "repeat":
                    bus.repeats = not bus.repeats
                else:
                    await workers[index].take(step)
                if wait:
                    await anyio.sleep(wait)
            # Whoever was never cut off does not know of lost data: coming back is when a worker heals it.
            bus.cut()
            bus.join()
            await anyio.sleep(0.05)
            assert len(what_all_say(workers)) == 1
            # And the ladder can go on: by hand it comes back everywhere.
            workers[0].store.reset("pri1", workers[0].now())
            await anyio.sleep(0.05)
            assert all(worker.record.is_up for worker in workers)
            assert len(what_all_say(workers)) == 1

    testing.run(live, backend=backend)
