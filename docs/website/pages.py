"""Which pages the site has and what is on them: the documents of the repository, and whatever they link to.

An example or a source file that a document links to becomes a page with its text, so that no link leads out of the site
but those to the web. Nothing is listed here: the order of the guide is that of the table "Read on" in the README.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

_DOCUMENTS = {"README.md": "index.md", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}
_PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_LANGUAGES = {".py": "python", ".yml": "yaml", ".toml": "toml", ".lua": "lua"}


class Pages:
    """The pages, made from the README on.

    Attributes:
        texts: Markdown, by path within the site.
        files: What is shown as it is, pictures, by path within the site.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.files: dict[str, Path] = {}
        self._add(ROOT / "README.md")
        for example in sorted((ROOT / "examples").glob("*.py")):
            self._add(example)
        guide = [place_of(path) for path in guide_pages() if path.name not in _PROJECT]
        project = [place_of(ROOT / name) for name in _PROJECT]
        table = self._linked(_read_on(), ROOT / "README.md", "guide.md")
        self.texts["guide.md"] = f"# Guide\n\n{table}\n{_toctree(guide, ':hidden:')}"
        self._add_list("examples.md", "Examples", sorted(self._below("examples/")))
        self._add_list("project.md", "Project", [*project, *sorted(self._below("source/"))])
        top = ["guide.md", "examples.md", "reference/index.rst", "project.md"]
        self.texts["index.md"] += _toctree(top, ":hidden:")

    def _below(self, folder: str) -> list[str]:
        return [page for page in self.texts if page.startswith(folder)]

    def _add_list(self, page: str, title: str, pages: list[str]) -> None:
        self.texts[page] = f"# {title}\n{_toctree(pages, ':maxdepth: 1')}"

    def _add(self, path: Path) -> str:
        """Add the page of *path*, and those of all it links to, and return its place."""
        place = place_of(path)
        if place in self.texts or place in self.files:
            return place
        if path.suffix == ".md":
            self.texts[place] = ""  # it is on its way: pages link to each other
            self.texts[place] = self._linked(path.read_text(encoding="utf-8"), path, place)
        elif path.suffix in {".svg", ".png"}:
            self.files[place] = path
        elif path.is_dir():
            self.texts[place] = self._listing(path)
        else:
            self.texts[place] = _source(path)
        return place

    def _linked(self, text: str, path: Path, place: str) -> str:
        """Return *text* with each link to a file led to its page; programs stay as they are."""

        def lead(match: re.Match[str]) -> str:
            if re.match(r"\w+:", match[1]):
                return match[0]
            target = (path.parent / match[1]).resolve()
            if not target.exists():
                raise FileNotFoundError(f"{path} links to {match[1]}, which is not there")
            return os.path.relpath(self._add(target), Path(place).parent) + (match[2] or "")

        parts: list[str] = []
        end = 0
        for fence in _FENCE.finditer(text):
            parts += [_LINK.sub(lead, text[end : fence.start()]), fence[0].replace("```output", "```text", 1)]
            end = fence.end()
        return "".join([*parts, _LINK.sub(lead, text[end:])])

    def _listing(self, folder: Path) -> str:
        """Return the page of a folder: its files, each with what it says of itself."""
        rows: list[str] = []
        for path in sorted(folder.rglob("*.py")):
            summary = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
            page = os.path.relpath(self._add(path), Path(place_of(folder)).parent)
            rows.append(f"- [`{path.relative_to(folder)}`]({page}) {summary}")
        return "\n".join([f"# {folder.relative_to(ROOT)}\n", *rows, ""])


def guide_pages() -> list[Path]:
    """Return the documents that the README's table "Read on" links to, in its order."""
    linked = [(ROOT / match[1]).resolve() for match in _LINK.finditer(_read_on()) if match[1].endswith(".md")]
    return list(dict.fromkeys(linked))


def _read_on() -> str:
    """Return the README's table of pages."""
    section = (ROOT / "README.md").read_text("utf-8").partition("## Read on\n")[2].partition("\n## ")[0]
    return "\n".join(line for line in section.splitlines() if line.startswith("|"))


def place_of(path: Path) -> str:
    """Return where the page of *path* is in the site."""
    name = path.relative_to(ROOT).as_posix()
    if name in _DOCUMENTS:
        return _DOCUMENTS[name]
    if path.suffix in {".svg", ".png", ".md"} and name.startswith("docs/"):
        return name.removeprefix("docs/")
    if name.startswith("examples/"):
        return name.removesuffix(".py") + ".md"
    return f"source/{name}.md"


def _source(path: Path) -> str:
    """Return the page of a file: what it says of itself, and its text."""
    text = path.read_text(encoding="utf-8")
    language = _LANGUAGES.get(path.suffix, "text")
    summary = ""
    if path.parent == ROOT / "examples":
        summary = (ast.get_docstring(ast.parse(text)) or "").replace("``", "`") + "\n\n"
    return f"# {path.relative_to(ROOT).as_posix()}\n\n{summary}````{language}\n{text}````\n"


def _toctree(pages: list[str], *options: str) -> str:
    return "\n".join(["\n```{toctree}", *options, "", *pages, "```", ""])
