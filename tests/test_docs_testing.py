"""The tests that docs/testing.md shows are tests: they pass as they stand, and fail where what they say is not so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "testing.md").read_text(encoding="utf-8")
FILE = re.compile(r"^```python\n# (\w+\.py)(, with pytest-asyncio)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pytest_run(folder: Path, tool: str) -> str:
    """Run the tests in *folder* without the plugin *tool*; warnings are errors here as everywhere."""
    options = ["-p", "no:cacheprovider", "-p", f"no:{tool}", "-W", "error", "-q"]
    if tool != "asyncio":
        options += ["-o", "asyncio_default_fixture_loop_scope=function"]  # as the page says
    command = [sys.executable, "-m", "pytest", *options, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.parametrize(
    ("is_asyncio_plugin", "other", "passed"),
    [(False, "asyncio", "4 passed"), (True, "anyio", "1 passed")],
    ids=["anyio", "pytest-asyncio"],
)
def test_the_tests_of_the_page_pass(is_asyncio_plugin: bool, other: str, passed: str, tmp_path: Path) -> None:
    files = [(name, text) for name, asyncio_only, text in FILE.findall(PAGE) if bool(asyncio_only) == is_asyncio_plugin]
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert passed in pytest_run(tmp_path, other)
    [test] = [tmp_path / name for name, _ in files if name.startswith("test_")]
    numbers = {"== 60 + 30": "== 60 + 31", "== 3600.0": "== 3601.0"}
    test.write_text(re.sub("|".join(map(re.escape, numbers)), lambda match: numbers[match[0]], test.read_text("utf-8")))
    assert "failed" in pytest_run(tmp_path, other)
