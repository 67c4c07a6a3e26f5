"""How a tool for a fleet runs: what it is given, and how each of its ends becomes an exit code."""

from __future__ import annotations

import io
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend, SignalBusError
from ephemeral_redis.watch import BusWatch

from . import complain, tell
from .interrupt import Interrupted, run_interruptible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ephemeral_redis.watch.picture import FleetPicture


class ToolError(Exception):
    """What keeps a tool from its work, in a sentence for whoever called it."""


class Fleet(NamedTuple):
    """Which fleet a tool is for.

    Attributes:
        url: Of its bus.
        namespace: Its name there.
    """

    url: str
    namespace: str

    def watch(self) -> BusWatch:
        """Return what shows it.

        Raises:
            ToolError: URL or namespace cannot be read.
        """
        try:
            return BusWatch.from_url(self.url, namespace=self.namespace)
        except ValueError as mistake:
            raise ToolError(str(mistake)) from None

    def sink(self) -> SignalSink:
        """Return a sink that raises into it, hears nothing, is in no roster, and opens only if the bus is there.

        Raises:
            ToolError: URL or namespace cannot be read.
        """
        try:
            backend = RedisSignalBackend.from_url(
                self.url, namespace=self.namespace, mirror=None, require=True, is_listed=False
            )
        except ValueError as mistake:
            raise ToolError(str(mistake)) from None
        return SignalSink(backend=backend)


def run_tool(work: Callable[[], Awaitable[int]]) -> int:
    """Run a tool to its end, and return the exit code.

    2: the bus cannot be reached, or a value is wrong, said in one line. 128 + n: ended by signal n, 141 where nobody
    reads any more what it prints.
    """
    # What the library logs of a bus that is away, a tool says itself; a mistake in a program is logged as everywhere.
    logging.getLogger("ephemeral").setLevel(logging.ERROR)
    stream = cast("Any", sys.stdout)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(line_buffering=True)  # into a pipe too: whoever reads it reads it now
    try:
        return run_interruptible(work)
    except Interrupted as ended:
        return 128 + ended.number
    except BrokenPipeError:
        # Whoever read has gone, as `head` does. Nothing is left to be said, at the interpreter's end neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except (SignalBusError, ToolError) as error:
        return complain(str(error))


def require_reached(watch: BusWatch, picture: FleetPicture) -> None:
    """Check that the first picture shows something.

    Raises:
        ToolError: The bus cannot be read.
    """
    if picture.problem is not None:
        raise unusable(watch, picture.problem)


def unusable(watch: BusWatch, problem: str | None) -> ToolError:
    """Return what to raise where nothing can be read."""
    return ToolError(f"no usable bus at {watch.address}: {problem}; check --redis, the server and the user's rights")


def tell_problem(problem: str | None) -> None:
    """Say on stderr that the bus went away, or is back."""
    tell("the bus is read again" if problem is None else f"the bus cannot be read: {problem}; waiting for it")
