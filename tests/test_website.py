"""The documentation as a site: what is on its pages; that no link leads nowhere and nothing comes from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
WEBSITE = ROOT / "docs" / "website"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"website_{name}", WEBSITE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check, conf, pages, reference = map(load, ("check", "conf", "pages", "reference"))


# Pages


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return pages.Pages().texts


def toctree(text: str) -> list[str]:
    [entries] = re.findall(r"^```\{toctree\}\n(?::.*\n)*\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    return entries.splitlines()


def test_every_document_and_example_has_a_page_that_is_reached_from_the_first(texts: dict[str, str]) -> None:
    top = toctree(texts["index.md"])
    assert top == ["guide.md", "examples.md", "reference/index.rst", "project.md"]
    reached = [page for entry in top if entry in texts for page in toctree(texts[entry])]
    assert set(texts) == {"index.md", *reached, *top} - {"reference/index.rst"}
    assert len(reached) == len(set(reached))
    assert set(reached) >= {path.name for path in (ROOT / "docs").glob("*.md")}
    assert set(reached) >= {f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.py")}


def test_the_guide_begins_where_the_readme_says(texts: dict[str, str]) -> None:
    assert toctree(texts["guide.md"])[:3] == ["signals.md", "reactions.md", "propagation.md"]


def test_links_lead_to_pages_and_programs_stay_as_they_are(texts: dict[str, str]) -> None:
    assert "(source/local/ephemeral/_health.py.md)" in texts["index.md"]
    assert "(examples/quick_start.md)" in texts["index.md"]
    assert "(index.md#what-it-is-not)" in texts["fleet.md"]
    assert (ROOT / "examples" / "quick_start.py").read_text(encoding="utf-8") in texts["examples/quick_start.md"]


def test_a_link_to_nothing_is_told_with_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("[gone](docs/gone.md)\n", encoding="utf-8")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"README\.md links to docs/gone\.md, which is not there"):
        pages.Pages()


# Reference


def test_every_public_name_is_described_once() -> None:
    described: list[str] = []
    for place, text in reference.reference_pages().items():
        module = place.removeprefix("reference/").removesuffix(".rst")
        described += [
            f"{module}.{name}" for name in re.findall(r"^\.\. auto(?:class|function|data):: (\w+)$", text, re.MULTILINE)
        ]
    assert len(described) == len(set(described))
    names = {
        "ephemeral.SignalSink",
        "ephemeral.testing.RecordingSink",
        "ephemeral.abc.SignalBackend",
        "ephemeral_redis.RedisSignalBackend",
        "ephemeral_redis.telemetry.otel.traced",
        "ephemeral_redis.telemetry.logs.SignalHandler",
        "ephemeral_redis.telemetry.prometheus.PrometheusCollector",
        "ephemeral_redis.dashboard.app",
    }
    assert names - set(described) == set()
    assert "ephemeral.abc.BusUnavailableError" not in described  # told where `ephemeral` is


def test_every_public_module_has_a_page() -> None:
    packages = [ROOT / "local" / "ephemeral", ROOT / "ephemeral_redis", ROOT / "ephemeral_redis" / "telemetry"]
    modules = {
        ".".join(path.with_suffix("").relative_to(ROOT).parts).removeprefix("local.").removesuffix(".__init__")
        for package in packages
        for path in package.glob("*.py")
        if not path.name.startswith("_") or path.name == "__init__.py"
    }
    assert {f"reference/{module}.rst" for module in modules} - set(reference.reference_pages()) == set()


def test_programs_in_docstrings_are_shown_as_programs() -> None:
    lines = [
        "So:",
        "",
        "    a = 1",
        "    b = 2",
        "",
        "Then ::",
        "",
        "    c",
        "",
        "Args:",
        "    x: What.",
        "        More.",
    ]
    conf.mark_programs(None, "", "", None, None, lines)
    assert lines == ["So:", "", ".. code-block:: python", "", *lines[4:]]
    assert lines[4:6] == ["    a = 1", "    b = 2"]
    assert lines.count(".. code-block:: python") == 1


# The finished site


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('<a href="b.html">', "a.html: leads to b.html, which is not there"),
        ('<a href="#x">', "a.html: leads to #x, where there is no such place"),
        ('<img src="../up.png">', "a.html: leads to ../up.png, which is not there"),
        ('<script src="https://cdn.example/x.js">', "a.html: fetches https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "a.html: fetches //fonts.example/x.css"),
        ("<a href='https://example.org'><p id='x'><a href='a.html#x'><a href='#x'>", None),
    ],
)
def test_a_fault_of_a_page_is_found(content: str, fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(content, encoding="utf-8")
    assert check.faults_of(tmp_path) == ([] if fault is None else [fault])


@pytest.mark.parametrize(
    "style", ["url(https://fonts.example/x)", "url('//fonts.example/x')", '@import "http://x.example"']
)
def test_a_style_that_fetches_is_found(style: str, tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(f"p {{ background: url(x.png) }} {style}", encoding="utf-8")
    [fault] = check.faults_of(tmp_path)
    assert fault.startswith("a.css: fetches ")


@pytest.mark.long
def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    options = ["--into", str(tmp_path / "site"), "--source", str(tmp_path / "source")]
    command = [sys.executable, str(WEBSITE / "build.py"), *options]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"{(tmp_path / 'site' / 'index.html').as_uri()}\n"
    assert "SignalSink.listen" in (tmp_path / "site" / "reference" / "ephemeral.html").read_text(encoding="utf-8")
