"""Random lives of a ladder, watched at every signal: nothing lost, nothing done twice, nothing out of turn.

Times are multiples of a quarter second, so that many things happen in the same instant, and floats are exact.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral import HealthOptions, NoHealthyProcessorError, PriorityProcessorAtom, SignalSink
from ephemeral.testing import wait_all_blocked

MOST_ATTEMPTS = 3


class ItemAtFaultError(Exception):
    """What a healthy processor says of a bad item."""


class ProcessorAtFaultError(Exception):
    """What a sick processor says."""


@dataclass(frozen=True)
class Settings:
    """One group to try."""

    slots: list[int]
    reroutes: bool
    threshold: int
    has_probe: bool
    slow_after: float | None
    timeout: float | None
    recovery_probes: int
    max_pending: int


groups = st.builds(
    Settings,
    slots=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    reroutes=st.booleans(),
    threshold=st.integers(1, 2),
    has_probe=st.booleans(),
    slow_after=st.sampled_from([None, 0.5]),
    timeout=st.sampled_from([None, 0.75]),
    recovery_probes=st.integers(1, 2),
    max_pending=st.sampled_from([2, 100]),
)
rungs = st.integers(0, 2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.integers(1, 5)),
        st.tuples(st.just("call"), st.integers(1, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("pass"), st.sampled_from([0.25, 0.5, 1.0, 2.0])),
        st.tuples(st.just("ends"), rungs, st.sampled_from(["good", "sick", "item", "false"])),
        st.tuples(st.just("takes"), rungs, st.sampled_from([0.25, 0.5, 1.0])),
        st.tuples(st.just("isolate"), rungs),
        st.tuples(st.just("reset"), rungs),
        st.tuples(st.just("drain"), st.sampled_from([0.0, 1.0])),
    ),
    min_size=5,
    max_size=30,
)


class Processor:
    """One rung's processor, whose runs all end as it says when they end."""

    def __init__(self, world: World, priority: int, slots: int) -> None:
        self.world, self.priority, self.slots = world, priority, slots
        self.ends, self.takes, self.active = "good", 0.25, 0

    async def __call__(self, item: str) -> Any:
        self.active += 1
        assert self.active <= self.slots, f"pri{self.priority} runs {self.active}"
        try:
            await anyio.sleep(self.takes)
            if self.ends == "sick":
                raise ProcessorAtFaultError(item)
            if self.ends == "item":
                raise ItemAtFaultError(item)
            if self.ends == "false":
                return False
            self.world.done[item] += 1
            return item
        finally:
            self.active -= 1

    async def probe(self) -> bool:
        await anyio.sleep(0.25)
        return self.ends == "good"


class World:
    """A group, what was asked of it, and a naive account of what it says."""

    def __init__(self, sink: SignalSink, group: Settings) -> None:
        self.group = group
        self.done: Counter[str] = Counter()
        self.given_up: Counter[str] = Counter()
        self.called: Counter[str] = Counter()
        self.accepted: list[str] = []
        self.calls_accepted = 0
        self.callers: list[anyio.CancelScope] = []
        self.first_starts: list[str] = []
        self.seen: set[str] = set()
        self.charged: Counter[str] = Counter()
        self.probing: set[str] = set()
        self.canaries: set[str] = set()
        self.wrong: list[str] = []
        self.step = 0
        self.most = 0
        self.processors = [Processor(self, number, slots) for number, slots in enumerate(group.slots, 1)]
        self.atoms = [self._atom(sink, processor) for processor in self.processors]
        sink.subscribe(lambda event: self.hear(event.signal))

    def _atom(self, sink: SignalSink, processor: Processor) -> PriorityProcessorAtom[str, Any]:
        group = self.group
        return PriorityProcessorAtom(
            processor.priority,
            processor,
            sink,
            failure_threshold=group.threshold,
            probe_interval=1.0,
            probe=processor.probe if group.has_probe else None,
            max_concurrency=processor.slots,
            timeout=group.timeout,
            is_failure=lambda error: not isinstance(error, ItemAtFaultError),
            health=HealthOptions(slow_after=group.slow_after, recovery_probes=group.recovery_probes),
            max_pending=group.max_pending,
            reroute_failed=group.reroutes,
            max_attempts=MOST_ATTEMPTS,
            on_failed=self.on_failed,
            drain_timeout=1.0,
        )

    def on_failed(self, item: str, error: BaseException) -> None:
        self.given_up[item] += 1

    # What is said

    def hear(self, signal: str) -> None:
        counts = self.atoms[0].statistics()
        if counts.total_enqueued < self.most or counts.pending_count < 0:
            self.wrong.append(f"{signal}: {counts}")
        self.most = max(self.most, counts.total_enqueued)
        name, rung, *item = [*signal.split(":"), ""]
        if name == "probe.testing":
            if rung in self.probing:
                self.wrong.append(f"{signal}: another probe is running")
            self.probing.add(rung)
            self.canaries.add(rung)
        elif name in {"probe.success", "probe.failed"}:
            self.probing.discard(rung)
        elif name == "processing.started":
            self.hear_start(signal, rung, item[0])
        elif name == "processing.failed":
            self.charged[item[0]] += 1

    def hear_start(self, signal: str, rung: str, item: str) -> None:
        is_canary = rung in self.canaries
        self.canaries.discard(rung)
        if item in self.seen:
            return
        self.seen.add(item)
        if item.startswith("item"):
            self.first_starts.append(item)
        route = next((atom.get_health().processor for atom in self.atoms if atom.is_healthy), None)
        if not is_canary and rung != route:
            self.wrong.append(f"{signal}: the route is {route}")

    # What is done

    async def play(self, tasks: Any, what: str, *how: Any) -> None:
        await self.act(tasks, what, *how)
        await wait_all_blocked()
        self.step += 1

    async def act(self, tasks: Any, what: str, *how: Any) -> None:
        chosen = self.atoms[how[0] % len(self.atoms)] if what in {"isolate", "reset"} else self.atoms[0]
        processor = self.processors[how[0] % len(self.processors)] if what in {"ends", "takes"} else None
        if what == "enqueue":
            for number in range(how[0]):
                item = f"item {self.step}.{number}"
                if self.atoms[self.step % len(self.atoms)].try_enqueue(item):
                    self.accepted.append(item)
        elif what == "call":
            for number in range(how[0]):
                tasks.start_soon(self.call, f"call {self.step}.{number}")
        elif what == "cancel" and self.callers:
            self.callers[how[0] % len(self.callers)].cancel()
            await wait_all_blocked()
            self.forget_probes()
        elif what == "pass":
            await anyio.sleep(how[0])
        elif what == "drain":
            is_idle = await chosen.drain(how[0])
            assert is_idle == (chosen.pending_count == chosen.active_count == 0)
        elif what == "isolate":
            chosen.isolate()
            self.forget_probes()
        elif what == "reset":
            chosen.reset_health()
            self.forget_probes()
        elif what == "ends":
            assert processor is not None
            processor.ends = how[1]
        elif what == "takes":
            assert processor is not None
            processor.takes = how[1]

    def forget_probes(self) -> None:
        """A lease that was given back, or outdated by hand, ends without a verdict."""
        for atom in self.atoms:
            if atom.get_health().state != "probing":
                self.probing.discard(atom.get_health().processor)

    async def call(self, item: str) -> None:
        started_in = self.step
        outcome = "cancelled"
        with anyio.CancelScope() as scope:
            self.callers.append(scope)
            try:
                assert await self.atoms[0].call(item) == item
                outcome = "completed"
            except NoHealthyProcessorError:
                # Every run takes time: one refused in the step in which it came was never accepted.
                outcome = "refused" if self.step == started_in else "failed"
            except Exception:
                outcome = "failed"
            finally:
                self.callers.remove(scope)
        self.called[outcome] += 1

    # What must hold

    def check(self) -> None:
        assert self.wrong == []
        assert self.first_starts == self.accepted[: len(self.first_starts)]
        assert max(self.done.values(), default=0) <= 1
        assert max(self.given_up.values(), default=0) <= 1
        counts = self.atoms[0].statistics()
        running = len(self.callers)
        ended = self.called.total() - self.called["refused"]
        assert counts.total_enqueued == len(self.accepted) + ended + running
        assert counts.active_count == sum(processor.active for processor in self.processors)
        if not self.atoms[0].is_healthy or counts.active_count == 0:
            return
        # The highest rung is healthy: while one waits for it, none of its slots may be free.
        if counts.pending_count > sum(len(atom._rung.handed) for atom in self.atoms):
            assert self.atoms[0]._rung.active == self.group.slots[0]

    async def heal_and_check(self) -> None:
        for atom, processor in zip(self.atoms, self.processors, strict=True):
            processor.ends, processor.takes = "good", 0.25
            atom.reset_health()
        self.forget_probes()
        assert await self.atoms[0].drain(1000.0)
        self.check()
        self.check_account()
        counts = self.atoms[0].statistics()
        assert (counts.total_cancelled, counts.total_undelivered) == (self.called["cancelled"], 0)

    def check_account(self) -> None:
        """All has ended: each item in one way, each call as its caller was told."""
        counts = self.atoms[0].statistics()
        left_over = Counter(self.atoms[0].undelivered)
        ends = {item: self.done[item] + self.given_up[item] + left_over[item] for item in self.accepted}
        cancelled = [item for item, times in ends.items() if times == 0]
        assert max(ends.values(), default=1) <= 1
        assert (counts.pending_count, counts.active_count) == (0, 0)
        assert counts.total_undelivered == len(self.atoms[0].undelivered)
        assert counts.total_completed == sum(self.done[item] for item in self.accepted) + self.called["completed"]
        assert counts.total_cancelled == len(cancelled) + self.called["cancelled"]
        assert counts.total_failed + counts.total_abandoned == self.given_up.total() + self.called["failed"]
        assert [atom._rung.active for atom in self.atoms] == [0] * len(self.atoms)
        assert self.group.reroutes or counts.total_abandoned == 0


class LeaveError(Exception):
    """Ends a block by an exception."""


@settings(max_examples=100)
@given(group=groups, steps=steps)
async def test_a_ladder_loses_nothing_and_does_nothing_twice(group: Settings, steps: list[tuple[Any, ...]]) -> None:
    async with opened(group) as world, anyio.create_task_group() as tasks:
        for step in steps:
            await world.play(tasks, *step)
            world.check()
        await world.heal_and_check()


@settings(max_examples=60)
@given(group=groups, steps=steps, fails=st.booleans())
async def test_a_ladder_that_ends_at_any_moment_accounts_for_all_it_accepted(
    group: Settings, steps: list[tuple[Any, ...]], fails: bool
) -> None:
    async with anyio.create_task_group() as tasks:
        with contextlib.suppress(LeaveError):
            async with opened(group) as world:
                for step in steps:
                    await world.play(tasks, *step)
                if fails:
                    raise LeaveError
    world.check_account()
    assert not (fails and world.atoms[0].undelivered)


@contextlib.asynccontextmanager
async def opened(group: Settings) -> AsyncGenerator[World]:
    async with contextlib.AsyncExitStack() as stack:
        sink = await stack.enter_async_context(SignalSink(clock=anyio.current_time))
        world = World(sink, group)
        for atom in world.atoms:
            await stack.enter_async_context(atom)
        yield world
    assert world.wrong == []
    assert sink.statistics().listener_errors == 0
