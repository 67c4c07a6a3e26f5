"""What the coordinator's tests stand on: a body that ends when told, counters that must agree, calls cut short."""

from __future__ import annotations

import asyncio
import functools
import itertools
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, Operation
from ephemeral.testing import wait_all_blocked

Work = EphemeralWorkCoordinator[Any]


class Gates:
    """A body whose every run waits until the test lets its item go.

    ``open`` lets all go at once. An item in ``errors`` raises that; one in ``stubborn`` swallows its cancellation.
    """

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.ended: list[Any] = []
        self.cancelled: list[Any] = []
        self.operations: dict[Any, Operation] = {}
        self.errors: dict[Any, BaseException] = {}
        self.stubborn: set[Any] = set()
        self.most_active = 0
        self._open = False
        self._gates: dict[Any, anyio.Event] = {}

    @property
    def active(self) -> list[Any]:
        return [item for item in self.started if item not in self.ended]

    async def __call__(self, item: Any, op: Operation) -> None:
        self.started.append(item)
        self.operations[item] = op
        self.most_active = max(self.most_active, len(self.active))
        try:
            if not self._open:
                await self._gate(item).wait()
            if item in self.errors:
                raise self.errors[item]
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(item)
            if item not in self.stubborn:
                raise
        finally:
            self.ended.append(item)

    def _gate(self, item: Any) -> anyio.Event:
        return self._gates.setdefault(item, anyio.Event())

    def let_go(self, *items: Any) -> None:
        for item in items:
            self._gate(item).set()

    def open(self) -> None:
        self._open = True
        for gate in self._gates.values():
            gate.set()


def balance(work: Work) -> None:
    """Check that the counters agree, now."""
    seen = work.statistics()
    ended = seen.total_completed + seen.total_failed + seen.total_skipped + seen.total_cancelled
    assert seen.total_enqueued == seen.pending_count + seen.active_count + ended
    assert seen.active_count == len(work.get_running())
    assert min(seen.pending_count, seen.active_count) >= 0


def totals(work: Work) -> tuple[int, int, int]:
    """Return how many completed, failed and were cancelled."""
    balance(work)
    return work.total_completed, work.total_failed, work.total_cancelled


async def settle(work: Work) -> None:
    """Let everything happen that can happen without time passing, and check the counters."""
    await wait_all_blocked()
    balance(work)


@asynccontextmanager
async def working(body: Callable[..., Any], **options: Any) -> AsyncGenerator[Work]:
    """A started coordinator with these options."""
    async with EphemeralWorkCoordinator[Any](body, EphemeralOptions(**options)) as work:
        yield work


async def assert_whole(work: Work, gates: Gates, *, limit: int, bound: int) -> None:
    """Check that no place in the line and no slot was lost, by filling both; ends all that runs."""
    gates.open()
    await settle(work)
    assert (work.pending_count, work.active_count) == (0, 0)
    gates._open = False
    work.pause()
    room = sum(work.try_enqueue(("probe", number)) for number in range(bound + 1))
    assert room == bound, f"the line takes {room} items, not {bound}"
    work.resume()
    await settle(work)
    room += sum(work.try_enqueue(("probe", bound + 1 + number)) for number in range(limit + 1))
    await settle(work)
    assert work.active_count == min(limit, room)
    assert work.pending_count == room - work.active_count
    gates.open()
    await settle(work)
    assert (work.pending_count, work.active_count) == (0, 0)


@types.coroutine
def _stepped(coroutine: Coroutine[Any, Any, Any], before_wait: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Await *coroutine*, and call *before_wait* each time it is about to give control to the loop."""
    advance: Callable[[], Any] = functools.partial(coroutine.send, None)
    while True:
        try:
            waits_for = advance()
        except StopIteration as stop:
            return stop.value
        before_wait()
        try:
            answer = yield waits_for
        except BaseException as error:
            advance = functools.partial(coroutine.throw, error)
        else:
            advance = functools.partial(coroutine.send, answer)


def by_scope(scope: anyio.CancelScope) -> None:
    scope.cancel()


def by_task(scope: anyio.CancelScope) -> None:
    """Cancel as asyncio's own code does, ``asyncio.timeout`` among it."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def cut(
    call: Callable[[], Coroutine[Any, Any, Any]], at: int, how: Callable[[anyio.CancelScope], None] = by_scope
) -> bool:
    """Run ``await call()`` cancelled at its wait number *at*; return whether there were that many."""
    reached = False
    steps = itertools.count()

    def before_wait() -> None:
        nonlocal reached
        if next(steps) == at:
            reached = True
            how(scope)

    with anyio.CancelScope() as scope:
        try:
            await _stepped(call(), before_wait)
        except asyncio.CancelledError:
            if how is not by_task:
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
    return reached


async def cut_everywhere(scenario: Callable[[int], Awaitable[bool]]) -> int:
    """Run *scenario* with 0, 1, 2 … until it says that it was not cut; return how many cuts there were."""
    for at in itertools.count():
        if not await scenario(at):
            return at
        assert at < 100, "it never ends"
    raise AssertionError
