"""The documents tell the truth: their programs run, print what is said of them, and what they point at is there.

A ```` ```python ```` block runs as it stands in a process of its own. If a ```` ```output ```` block follows it at
once, that is what it prints. Everything else (``sh``, ``bash``, ``text``, ``mermaid``) is not run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"python", "output", "sh", "bash", "text", "mermaid"}

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")


class Block(NamedTuple):
    place: str
    language: str
    text: str
    output: str | None


def blocks_of(path: Path) -> list[Block]:
    document = path.read_text(encoding="utf-8")
    blocks: list[Block] = []
    for match in FENCED.finditer(document):
        following = FENCED.match(document, match.end() + len("\n\n"))
        line = document.count("\n", 0, match.start()) + 1
        output = following[2] if following and following[1] == "output" else None
        blocks.append(Block(f"{path.name}:{line}", match[1], match[2], output))
    return blocks


BLOCKS = [block for path in DOCUMENTS for block in blocks_of(path)]
PROGRAMS = [block for block in BLOCKS if block.language == "python"]


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.place)
def test_a_program_in_a_document_runs_as_it_stands(block: Block, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block.text, encoding="utf-8")
    command = [sys.executable, "-W", "error", "program.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    if block.output is not None:
        assert ran.stdout == block.output


PAGES_OF_COORDINATORS = ("coordinators", "keyed", "results", "for-each", "factory")


def test_programs_of_the_coordinators_pages_need_no_annotation_more_under_strict_mypy(tmp_path: Path) -> None:
    for page in PAGES_OF_COORDINATORS:
        for number, block in enumerate(block for block in PROGRAMS if block.place.startswith(f"{page}.md:")):
            (tmp_path / f"{page.replace('-', '_')}_{number}.py").write_text(block.text, encoding="utf-8")
    programs = [str(path) for path in sorted(tmp_path.glob("*.py"))]
    assert len(programs) >= len(PAGES_OF_COORDINATORS)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={tmp_path / 'cache'}",
        *programs,
    ]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_block_says_what_it_is() -> None:
    assert [block.place for block in BLOCKS if block.language not in LANGUAGES] == []


def test_each_output_follows_its_program() -> None:
    shown = sum(block.output is not None for block in PROGRAMS)
    assert shown == sum(block.language == "output" for block in BLOCKS)


def test_each_page_is_linked_from_the_readmes_table() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("## Read on\n")[2].partition("\n## ")[0]
    linked = {link[1] for link in LINK.finditer(table)}
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    assert pages - linked == set()


def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    text = FENCED.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_points_at_is_there(path: Path) -> None:
    text = FENCED.sub("", path.read_text(encoding="utf-8"))
    missing: list[str] = []
    for match in LINK.finditer(text):
        link = match[1] or match[2]
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            missing.append(link)
    assert missing == []
