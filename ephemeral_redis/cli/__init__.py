"""The ``ephemeral`` command.

This module imports nothing that may be missing and little that is slow, so that a missing extra and an early Ctrl-C end
in a line of text, not in a traceback.
"""

from __future__ import annotations

import importlib.util
import io
import re
import sys

from ephemeral_redis._printable import printable

EXTRAS = {"cli": ("typer", "rich"), "dashboard": ("starlette", "uvicorn"), "demo": ("httpx", "starlette", "uvicorn")}
"""What each extra of the distribution brings that a command imports."""

# Whatever stands before the @ of a URL, which somebody may have given in the wrong place; and what its query may hold.
_SECRETS = re.compile(r"(?<=://)[^\s'\"]*(?=@)|(?<=[?&]password=)[^&\s'\"]*|(?<=[?&]username=)[^&\s'\"]*")


def main() -> int:
    """Run the command that ``sys.argv`` names and return its exit code.

    0: done. 1: the command's own verdict is bad. 2: a mistake in how it was called, told in one line on stderr.
    128 + n: ended by signal n, such as 130 by Ctrl-C, 141 where nobody reads the output any more.
    """
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal or file of a narrow encoding gets an escape for an arrow, not a crash.
                stream.reconfigure(errors="backslashreplace")
        if (problem := missing_extra("cli")) is not None:
            return complain(problem)
        from .app import run  # noqa: PLC0415 - it imports what the line above has looked for

        return run()
    except KeyboardInterrupt:
        return 130


def missing_extra(extra: str) -> str | None:
    """Return the line that says what to install if a module of *extra* is missing, else None."""
    missing = [module for module in EXTRAS[extra] if importlib.util.find_spec(module) is None]
    if not missing:
        return None
    return f"this needs {' and '.join(missing)}: pip install 'ephemeral-redis[{extra}]'"


def complain(problem: str) -> int:
    """Tell a user's mistake in one line on stderr and return the exit code for it."""
    tell(problem)
    return 2


def tell(what: str) -> None:
    """Say something on stderr, in one line: without a password, and without what a terminal would take as a command."""
    print(f"ephemeral: {printable(_SECRETS.sub('***', what))}", file=sys.stderr)  # noqa: T201 - this is where it speaks
