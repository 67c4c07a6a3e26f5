"""Build the documentation as a site: ``python docs/website/build.py``; needs the extra ``docs``.

The pages are laid out in ``build/website`` and built into ``site``, whose ``index.html`` opens in any browser, without
a network. Warnings are errors: a link that leads nowhere, a name in a docstring that is not there, a page without a
place, anything that a reader's browser would fetch from elsewhere.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from check import faults_of
from pages import ROOT, Pages
from reference import reference_pages
from sphinx.cmd.build import build_main

HERE = Path(__file__).parent


def lay_out(source: Path) -> None:
    """Write all pages below *source*, which is emptied first."""
    shutil.rmtree(source, ignore_errors=True)
    pages = Pages()
    for place, text in {**pages.texts, **reference_pages()}.items():
        page = source / place
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    for place, path in pages.files.items():
        copy = source / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def build(into: Path, source: Path) -> list[str]:
    """Build the site into the folder *into*, by way of *source*, and return what is wrong with it, a line each."""
    lay_out(source)
    shutil.rmtree(into, ignore_errors=True)
    config = ["-c", str(HERE), "-d", str(source / ".doctrees")]
    if build_main(["-q", "-W", "--keep-going", "-j", "auto", "-b", "html", *config, str(source), str(into)]):
        return ["Sphinx has warned of what stands above"]
    return faults_of(into)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build the documentation as a site.")
    parser.add_argument("--into", type=Path, default=ROOT / "site", help="where the site goes")
    parser.add_argument("--source", type=Path, default=ROOT / "build" / "website", help="where its pages are laid out")
    arguments = parser.parse_args()
    faults = build(arguments.into, arguments.source)
    if faults:
        sys.exit("\n".join(faults))
    sys.stdout.write(f"{(arguments.into / 'index.html').resolve().as_uri()}\n")
