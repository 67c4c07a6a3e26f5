"""Each example runs on its own, quietly, to the end of its own checks."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    expected = {"adaptive_workflow", "http_download", "logging_bridge", "opentelemetry_trace", "ordered_fallback"}
    expected |= {"prometheus_metrics", "quick_start", "web_app"}
    assert {path.stem for path in EXAMPLES} >= expected


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_from_anywhere_to_its_end(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout, "an example shows what happened"
    assert list(tmp_path.iterdir()) == [], "an example leaves nothing behind"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_checks_its_result_and_says_how_to_run_it(path: Path) -> None:
    module = ast.parse(path.read_text(encoding="utf-8"))
    [main] = [node for node in module.body if isinstance(node, ast.AsyncFunctionDef) and node.name == "main"]
    assert any(isinstance(node, ast.Assert) for node in ast.walk(main))
    assert f"``python examples/{path.name}``" in (ast.get_docstring(module) or "")
