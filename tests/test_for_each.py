"""One call for many items: lazily, within bounds, with progress, and with the truth about what failed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from ephemeral import EphemeralOptions, RunSummary, SignalSink, ephemeral_for_each

from .work_kit import Gates, by_scope, by_task, cut, cut_everywhere


async def squares(item: int) -> int:
    await anyio.sleep(1)
    return item * item


async def fails_for_odd(item: int) -> None:
    await anyio.sleep(1)
    if item % 2:
        raise ValueError(item)


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


class Taken:
    """Items that know how many of them were taken and have not started."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.taken = self.started = self.most_ahead = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(self.count):
            self.taken += 1
            self.most_ahead = max(self.most_ahead, self.taken - self.started)
            yield number

    async def slowly(self) -> AsyncIterator[int]:
        for number in self:
            yield number

    async def body(self, item: int) -> None:
        self.started += 1
        await anyio.sleep(1 + item % 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [0, 1, 2],
        lambda: range(3),
        lambda: iter([0, 1, 2]),
        lambda: {0: "a", 1: "b", 2: "c"},
        lambda: numbers(3),
    ],
)
async def test_it_runs_the_body_for_each_of_any_iterable(make: Callable[[], Any]) -> None:
    ran: list[int] = []

    async def body(item: int) -> None:
        ran.append(item)

    summary = await ephemeral_for_each(make(), body, EphemeralOptions(max_concurrency=1))
    assert ran == [0, 1, 2]
    assert summary == RunSummary(
        total=3, completed=3, failed=0, skipped=0, cancelled=0, duration=summary.duration, failures=()
    )


@pytest.mark.parametrize("kind", ["iterable", "async iterable"])
@pytest.mark.parametrize("options", [{}, {"enable_fair_scheduling": True, "fair_scheduling_threshold": 1}])
@pytest.mark.parametrize("key", [None, lambda item: item % 3])
async def test_never_more_than_max_pending_are_taken_ahead(kind: str, options: Any, key: Any) -> None:
    taken = Taken(30)
    source: Any = taken if kind == "iterable" else taken.slowly()
    bounds = EphemeralOptions(max_concurrency=2, max_pending=4, **options)
    summary = await ephemeral_for_each(source, taken.body, bounds, key=key)
    assert summary.completed == 30
    assert taken.most_ahead <= 4
    assert key is not None or taken.most_ahead == 4


async def test_the_duration_is_that_of_the_run() -> None:
    summary = await ephemeral_for_each(range(6), squares, EphemeralOptions(max_concurrency=2))
    assert summary.duration == 3


async def test_the_items_of_a_key_run_in_order() -> None:
    started: list[tuple[str, int]] = []

    async def body(item: tuple[str, int]) -> None:
        assert not any(other[0] == item[0] and other[1] > item[1] for other in started)
        started.append(item)
        await anyio.sleep(item[1] % 3)

    items = [(letter, number) for number in range(5) for letter in "abc"]
    summary = await ephemeral_for_each(items, body, EphemeralOptions(max_concurrency=9), key=lambda item: item[0])
    assert summary.completed == 15


# Failures


async def test_failures_are_told_and_stop_nothing() -> None:
    summary = await ephemeral_for_each(range(6), fails_for_odd)
    assert (summary.total, summary.completed, summary.failed) == (6, 3, 3)
    assert [str(failure.error) for failure in summary.failures] == ["1", "3", "5"]
    assert all("fails_for_odd" in (failure.error_trace or "") for failure in summary.failures)


async def test_only_the_first_failures_are_kept() -> None:
    options = EphemeralOptions(max_concurrency=1, max_tracked_operations=2)
    summary = await ephemeral_for_each(range(10), fails_for_odd, options)
    assert summary.failed == 5
    assert [str(failure.error) for failure in summary.failures] == ["1", "3"]


async def test_failures_may_raise_once_all_has_ended() -> None:
    ended: list[int] = []

    async def body(item: int) -> None:
        await fails_for_odd(item)
        ended.append(item)

    with pytest.raises(ExceptionGroup, match="3 of 6 items failed") as caught:
        await ephemeral_for_each(range(6), body, raise_on_error=True)
    assert ended == [0, 2, 4]
    assert [str(error) for error in caught.value.exceptions] == ["1", "3", "5"]
    assert all("fails_for_odd" in error.__notes__[0] for error in caught.value.exceptions)


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class SlottedError(Exception):
    __slots__ = ("code",)


@pytest.mark.parametrize("error", [FrozenError(7), SlottedError(7), ValueError(7)])
async def test_an_error_that_several_items_raise_gets_one_note_for_each_and_frozen_ones_too(error: Exception) -> None:
    async def body(item: int) -> None:
        raise error

    with pytest.raises(ExceptionGroup, match="3 of 3 items failed") as caught:
        await ephemeral_for_each(range(3), body, raise_on_error=True)
    assert [type(one) for one in caught.value.exceptions] == [type(error)] * 3
    assert [len(one.__notes__) for one in caught.value.exceptions] == [1, 1, 1]


async def test_a_note_of_the_users_own_stays_first_and_the_error_itself_is_left_as_it_was() -> None:
    error = ValueError(7)
    error.add_note("mine")

    async def body(item: int) -> None:
        raise error

    with pytest.raises(ExceptionGroup) as caught:
        await ephemeral_for_each([1], body, raise_on_error=True)
    (noted,) = caught.value.exceptions
    assert (noted.__notes__[0], len(noted.__notes__), error.__notes__) == ("mine", 2, ["mine"])


async def test_without_failures_nothing_is_raised() -> None:
    assert (await ephemeral_for_each(range(3), squares, raise_on_error=True)).completed == 3


async def test_a_failure_that_is_no_exception_raises_a_group_of_its_kind() -> None:
    async def body(item: int) -> None:
        raise GeneratorExit

    with pytest.raises(BaseExceptionGroup) as caught:
        await ephemeral_for_each([1], body, raise_on_error=True)
    assert not isinstance(caught.value, ExceptionGroup)


async def test_an_error_of_the_items_comes_out_bare_after_those_before_it() -> None:
    ran: list[int] = []

    async def body(item: int) -> None:
        await anyio.sleep(1)
        ran.append(item)

    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await ephemeral_for_each(items(), body, raise_on_error=True)
    assert sorted(ran) == [1, 2]


async def test_skipped_items_are_counted() -> None:
    sink = SignalSink()
    progress: list[int] = []

    async def body(item: int) -> None:
        if item == 1:
            sink.raise_signal("stop")

    options = EphemeralOptions(max_concurrency=1, signals=sink, cancel_on_signals="stop")
    summary = await ephemeral_for_each(range(4), body, options, on_progress=lambda done, total: progress.append(done))
    assert (summary.completed, summary.skipped, summary.total) == (2, 2, 4)
    assert progress == [1, 2, 3, 4]


@pytest.mark.parametrize("arguments", [([1], None), ([1], 7), (7, squares), (None, squares)])
async def test_what_cannot_be_run_is_refused_at_once(arguments: Any) -> None:
    with pytest.raises(TypeError):
        await ephemeral_for_each(*arguments)


async def test_callbacks_must_be_plain_functions() -> None:
    async def asynchronous(*_: object) -> str:
        return "a"

    with pytest.raises(TypeError, match="on_progress"):
        await ephemeral_for_each([1], squares, on_progress=asynchronous)
    with pytest.raises(TypeError, match="key"):
        await ephemeral_for_each([1], squares, key=asynchronous)


# Progress


@pytest.mark.parametrize(("make", "total"), [(range, 3), (lambda n: list(range(n)), 3), (numbers, None)])
async def test_progress_fits_a_bar(make: Callable[[int], Any], total: int | None) -> None:
    seen: list[tuple[int, int | None]] = []
    options = EphemeralOptions(max_concurrency=1)
    await ephemeral_for_each(make(3), fails_for_odd, options, on_progress=lambda *progress: seen.append(progress))
    assert seen == [(1, total), (2, total), (3, total)]


async def test_a_progress_callback_that_raises_is_logged_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def raises(done: int, total: int | None) -> None:
        raise ValueError("no bar")

    assert (await ephemeral_for_each(range(3), squares, on_progress=raises)).completed == 3
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["ephemeral_for_each"] * 3


# Its end


async def test_a_body_that_ends_the_program_does() -> None:
    async def body(item: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await ephemeral_for_each(range(3), body)


async def test_a_drain_timeout_of_the_options_does_not_cut_the_run_short() -> None:
    summary = await ephemeral_for_each(range(3), squares, EphemeralOptions(max_concurrency=1, drain_timeout=1))
    assert summary.completed == 3


@pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [("asyncio", by_scope), ("asyncio", by_task), ("trio", by_scope)],
    indirect=["anyio_backend"],
)
async def test_a_cancelled_run_cancels_what_runs_and_leaves_no_task(how: Callable[[anyio.CancelScope], None]) -> None:
    async def scenario(at: int) -> bool:
        gates = Gates()

        async def body(item: int, op: Any) -> None:
            gates.let_go(item)
            await gates(item, op)

        reached = await cut(lambda: ephemeral_for_each(numbers(3), body, EphemeralOptions(max_concurrency=1)), at, how)
        assert gates.active == []
        assert reached or gates.ended == [0, 1, 2]
        assert not [task.name for task in anyio.get_running_tasks() if "ephemeral" in str(task.name)]
        return reached

    assert await cut_everywhere(scenario) > 0


class Thing:
    pass


async def test_failures_keep_no_item_alive() -> None:
    references: list[weakref.ref[Thing]] = []

    def things() -> Iterator[Thing]:
        for _ in range(3):
            thing = Thing()
            references.append(weakref.ref(thing))
            yield thing
            del thing

    async def body(item: Thing) -> None:
        raise ValueError("failed")

    gc.collect()
    gc.disable()
    try:
        summary = await ephemeral_for_each(things(), body)
        assert summary.failed == 3
        assert [reference() for reference in references] == [None] * 3
    finally:
        gc.enable()
