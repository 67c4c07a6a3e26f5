"""What a finished site must not have: links that lead nowhere, and anything fetched from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {"audio", "embed", "iframe", "img", "link", "object", "script", "source", "track", "video"}
_IN_STYLE = re.compile(r"url\(\s*['\"]?((?:https?:)?//[^)'\"]+)|@import\s+['\"]((?:https?:)?//[^'\"]+)")


class _Page(HTMLParser):
    """The links and anchors of one page.

    Attributes:
        anchors: What can be linked to in it.
        links: What it links to, whether by a reader's click or by itself: (tag, address).
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"id", "name"} and value:
                self.anchors.add(value)
            if name in {"href", "src", "data"} and value:
                self.links.append((tag, value))


def faults_of(site: Path) -> list[str]:
    """Return what is wrong with the site in the folder *site*, a line each."""
    paths = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]  # there: templates
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in paths}
    faults = [
        f"{path.relative_to(site)}: {fault}"
        for path, page in pages.items()
        for tag, link in page.links
        if (fault := _fault_of(tag, link, path, pages))
    ]
    faults += [
        f"{path.relative_to(site)}: fetches {match[1] or match[2]}"
        for path in sorted(site.rglob("*.css"))
        for match in _IN_STYLE.finditer(path.read_text(encoding="utf-8"))
    ]
    return faults


def _fault_of(tag: str, link: str, path: Path, pages: dict[Path, _Page]) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        is_fetched = tag in _FETCHED and parts.scheme != "data"
        return f"fetches {link}" if is_fetched else None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return f"leads to {link}, which is not there"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
        return f"leads to {link}, where there is no such place"
    return None
