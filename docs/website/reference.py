"""The pages of the reference: each public name of each public module, from its docstring."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from types import ModuleType

_MODULES = (
    "ephemeral",
    "ephemeral.testing",
    "ephemeral.abc",
    "ephemeral_redis",
    "ephemeral_redis.server",
    "ephemeral_redis.watch",
    "ephemeral_redis.dashboard",
    "ephemeral_redis.telemetry",
    "ephemeral_redis.telemetry.prometheus",
    "ephemeral_redis.telemetry.otel",
    "ephemeral_redis.telemetry.logs",
)
_DIRECTIVES = {"Functions": "autofunction", "Types and numbers": "autodata"}
_KINDS = ("Classes", "Functions", "Values", "Errors", "Types and numbers")
# What comes from Python itself, or from no class that a user sees.
_NOT_INHERITED = "tuple, BaseException, object, Generic, ABC, Protocol, dict, str"


def reference_pages() -> dict[str, str]:
    """Return the pages as reStructuredText, by their path within the site."""
    documented: dict[int, str] = {}
    pages = {f"reference/{name}.rst": _page(importlib.import_module(name), documented) for name in _MODULES}
    names = "\n".join(f"   {name}" for name in _MODULES)
    pages["reference/index.rst"] = f"{_title('Reference', '=')}\n.. toctree::\n   :maxdepth: 1\n\n{names}\n"
    return pages


def _page(module: ModuleType, documented: dict[int, str]) -> str:
    """Return the page of *module*; what is *documented* on another page already is led there."""
    names = public_names(module)
    elsewhere = [documented[id(getattr(module, name))] for name in names if id(getattr(module, name)) in documented]
    new = {name: getattr(module, name) for name in names if id(getattr(module, name)) not in documented}
    documented.update({id(value): f"{module.__name__}.{name}" for name, value in new.items()})
    parts = [_title(module.__name__, "="), f".. automodule:: {module.__name__}\n"]
    for kind in _KINDS:
        members = [name for name, value in new.items() if _kind_of(value) == kind]
        if members:
            parts.append(_title(kind, "-"))
            parts += [_directive(kind, name) for name in members]
    if elsewhere:
        parts += [_title("Also here", "-"), *(f"- `{name}`" for name in elsewhere), ""]
    return "\n".join(parts)


def _directive(kind: str, name: str) -> str:
    directive = _DIRECTIVES.get(kind)
    if directive is None:
        return f".. autoclass:: {name}\n   :members:\n   :inherited-members: {_NOT_INHERITED}\n"
    return f".. {directive}:: {name}\n"


def public_names(module: ModuleType) -> list[str]:
    """Return the names that *module* is for: those it lists, else those it defines."""
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith(module.__name__)
    ]


def _kind_of(value: object) -> str:
    if not inspect.isclass(value):
        return "Functions" if inspect.isroutine(value) else "Types and numbers"
    if issubclass(value, BaseException):
        return "Errors"
    is_value = dataclasses.is_dataclass(value) or (issubclass(value, tuple) and hasattr(value, "_fields"))
    return "Values" if is_value else "Classes"


def _title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"
