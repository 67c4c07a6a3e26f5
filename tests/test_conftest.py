"""The ground the other tests stand on: both loops, a clock each, and no test that can hang."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nanyio_mode = auto\nmarkers = real_time: real clock\n")
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_inprocess("-q", "-p", "no:cacheprovider", "-p", "no:asyncio", *args)


def test_a_deadlock_fails_at_once_and_says_so(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import anyio
        from hypothesis import given, strategies

        async def test_plain():
            await anyio.Event().wait()

        @given(number=strategies.integers())
        async def test_property(number):
            await anyio.Event().wait()
        """
    )
    result = run(project)
    result.assert_outcomes(failed=4)
    assert result.stdout.str().count("deadlock: the test was still waiting") >= 4


def test_a_timeout_of_the_test_itself_is_no_deadlock(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import anyio

        async def test_plain():
            with anyio.fail_after(5):
                await anyio.Event().wait()
        """
    )
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*deadlock: *")


def test_each_test_runs_on_both_loops_from_zero(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import asyncio
        import anyio
        import pytest
        from hypothesis import given, settings, strategies

        def running_loop():
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return "trio"
            return "asyncio"

        async def test_first(anyio_backend_name):
            assert running_loop() == anyio_backend_name
            assert anyio.current_time() == 0
            await anyio.sleep(1000)

        async def test_second():
            assert anyio.current_time() == 0

        @settings(max_examples=5)
        @given(number=strategies.integers())
        async def test_property(number, anyio_backend_name):
            assert running_loop() == anyio_backend_name
            assert anyio.current_time() == 0
            await anyio.sleep(1000)

        @pytest.mark.real_time
        async def test_real(anyio_backend_name):
            assert running_loop() == anyio_backend_name
            assert anyio.current_time() > 0
        """
    )
    result = run(project)
    result.assert_outcomes(passed=8)
    for loop in ("asyncio", "trio"):
        outcome = run(project, "-k", loop)
        outcome.assert_outcomes(passed=4, deselected=4)


def test_fixtures_share_the_loop_and_clock_of_their_test(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import anyio
        import pytest

        @pytest.fixture
        async def later():
            await anyio.sleep(7)
            yield anyio.current_time()
            assert anyio.current_time() == 10

        async def test_plain(later):
            assert later == anyio.current_time() == 7
            await anyio.sleep(3)
        """
    )
    run(project).assert_outcomes(passed=2)
