"""A plugin for pytest: writes what was tried, and how the suite ended, into a file; ``python tests/faults`` loads it.

``--outcomes FILE`` is where to. ``--admin NAME:PASSWORD`` is whom the tests' own clients shall be on the server, where
its default user has a worker's rights alone.
"""

from __future__ import annotations

import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

import pytest
import redis


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="write what was tried and how it ended into this file")
    parser.addoption("--admin", help="NAME:PASSWORD of whom the tests' own clients are")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--outcomes"):
        config.pluginmanager.register(Outcomes(config.getoption("--outcomes")))
    if config.getoption("--admin"):
        name, password = config.getoption("--admin").split(":")
        make = redis.Redis.from_url
        # The bus's clients are redis.asyncio's: these here are the tests', which look behind it.
        redis.Redis.from_url = lambda url, **options: make(url, **{"username": name, "password": password, **options})


class Outcomes:
    """Gathers the outcome of each test, and what it says that it tried."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began_at = time.monotonic()
        self._outcomes: dict[str, str] = {}
        self._tried: dict[str, list[dict]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worst = self._outcomes.get(report.nodeid, "passed")
        if report.failed or (report.skipped and worst == "passed"):
            self._outcomes[report.nodeid] = report.outcome
        else:
            self._outcomes.setdefault(report.nodeid, "passed")
        if report.when == "teardown":
            tried: dict[tuple[str, str], dict] = {}
            for name, what in report.user_properties:
                if name == "tried":
                    # Said first without figures, it is there even if the test fails before it has some.
                    tried.setdefault((what["area"], what["what"]), {}).update(what)
            self._tried[report.nodeid] = list(tried.values())

    def pytest_sessionfinish(self) -> None:
        outcomes = list(self._outcomes.values())
        found = {
            "python": platform.python_version(),
            "redis_py": version("redis"),
            "seconds": round(time.monotonic() - self._began_at),
            **{outcome: outcomes.count(outcome) for outcome in ("passed", "failed", "skipped")},
            "tried": [
                {**what, "outcome": self._outcomes[test]} for test, tried in self._tried.items() for what in tried
            ],
        }
        self._path.write_text(json.dumps(found), encoding="utf-8")
