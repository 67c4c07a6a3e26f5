"""How Sphinx builds the site, from the pages that ``build.py`` has laid out."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Any, cast

from sphinx.util.nodes import make_refnode

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.domains.python import PythonDomain
    from sphinx.environment import BuildEnvironment

project = "ephemeral-redis"
release = version = version_of("ephemeral-redis")
copyright = "none: it is in the public domain"  # noqa: A001  Sphinx's name for it

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nitpicky = True
# What docstrings refer to in single quotes must be there; types in signatures may be private, or of other libraries.
nitpick_ignore_regex = [(r"py:(?!obj)\w+", r".*")]

# Documents
myst_heading_anchors = 4

# Docstrings
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
napoleon_numpy_docstring = False

# Looks
html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "show_prev_next": True,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


def mark_programs(_app: Sphinx, _what: str, _name: str, _thing: object, _options: object, lines: list[str]) -> None:
    """Have an indented paragraph shown as a program: docstrings say it without a marker."""
    marked: list[str] = []
    previous = ""
    for line in lines:
        begins = line.startswith("    ") and marked[-1:] == [""] and previous[:1] not in {"", " "}
        if begins and not previous.endswith("::") and not line.lstrip().startswith(">>>"):
            marked += [".. code-block:: python", ""]
        marked.append(line)
        previous = line or previous
    lines[:] = marked


def pass_over(_app: Sphinx, _what: str, _name: str, thing: object, *_: object) -> bool | None:
    """Pass over the fields of named tuples: the class tells of them, they themselves only of their number."""
    return True if type(thing).__name__ == "_tuplegetter" else None


def find_elsewhere(app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: Element) -> Element | None:
    """Lead a name to where it is, in whatever module: a docstring uses the short names that its own module uses."""
    if node.get("reftype") != "obj":
        return None
    python = cast("PythonDomain", env.get_domain("py"))
    found = python.find_obj(env, None, None, node["reftarget"], "obj", searchmode=1)
    if not found:
        return None
    name, place = found[0]
    return make_refnode(app.builder, node["refdoc"], place.docname, place.node_id, [shown], name)


def setup(app: Sphinx) -> None:
    """Mark programs before the sections of docstrings are read, and lead names to where they are."""
    app.connect("autodoc-process-docstring", mark_programs, priority=400)
    app.connect("autodoc-skip-member", pass_over)
    app.connect("missing-reference", find_elsewhere)
