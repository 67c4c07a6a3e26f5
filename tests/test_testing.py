from __future__ import annotations

import doctest
import time

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, strategies

from ephemeral import testing


async def test_clock_starts_at_zero_and_jumps() -> None:
    assert anyio.current_time() == 0.0
    await anyio.sleep(600)
    assert anyio.current_time() == 600.0


@given(seconds=strategies.floats(0, 1000))
async def test_each_example_has_a_clock_of_its_own(seconds: float) -> None:
    assert anyio.current_time() == 0.0
    await anyio.sleep(seconds)
    assert anyio.current_time() == pytest.approx(seconds)


async def test_timers_fire_in_order() -> None:
    fired: list[float] = []

    async def sleeper(delay: float) -> None:
        await anyio.sleep(delay)
        fired.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        for delay in (5.0, 0.25, 1.0):
            tasks.start_soon(sleeper, delay)
    assert fired == [0.25, 1.0, 5.0]


async def test_wait_all_blocked_lets_everything_happen_and_no_time_pass() -> None:
    steps: list[str] = []

    async def worker() -> None:
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        steps.append("blocked")
        await anyio.sleep(0.05)
        steps.append("woken")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker)
        await testing.wait_all_blocked()
        assert steps == ["blocked"]
        assert anyio.current_time() == 0.0
    assert steps == ["blocked", "woken"]


async def test_two_tasks_may_wait_for_all_blocked_and_one_be_cancelled() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(testing.wait_all_blocked)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await testing.wait_all_blocked()
        await testing.wait_all_blocked()
    assert anyio.current_time() == 0.0


async def test_a_wait_for_nothing_meets_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        with anyio.fail_after(100):
            await anyio.Event().wait()
    assert anyio.current_time() == 100.0


@pytest.mark.real_time
async def test_real_time_runs_on_the_real_clock() -> None:
    before = time.monotonic()
    await anyio.sleep(0.01)
    assert time.monotonic() - before >= 0.01
    await testing.wait_all_blocked()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_run_returns_the_result(backend: testing.BackendName) -> None:
    async def add(left: int, right: int) -> float:
        await anyio.sleep(60)
        return left + right + anyio.current_time()

    assert testing.run(add, 1, 2, backend=backend) == 63.0


def test_a_deadlock_is_an_error_and_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "_STALL_SECONDS", 0.0)
    with pytest.raises(testing.DeadlockError, match="deadlock"):
        testing.run(lambda: anyio.Event().wait())


def test_the_example_in_the_docs_runs() -> None:
    results = doctest.testmod(testing)
    assert results.attempted > 0
    assert results.failed == 0
