"""``ephemeral worker``: how one worker process begins and ends."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import anyio

from ephemeral_redis import SignalBusError
from ephemeral_redis.demo.child import end_with_parent
from ephemeral_redis.demo.worker import run_worker

from . import complain

if TYPE_CHECKING:
    from ephemeral_redis.demo.worker import WorkerOptions


def work(options: WorkerOptions, *, with_parent: bool) -> int:
    """Run a worker to its end and return the exit code: 0, or 1 if accepted widgets were left.

    Args:
        options: What it is told.
        with_parent: Whether it ends when stdin, a pipe, is closed.
    """
    if with_parent:
        end_with_parent()
    try:
        left = anyio.run(partial(run_worker, options))
    except SignalBusError as error:
        return complain(str(error))
    except OSError as error:
        return complain(f"cannot listen at {options.host}:{options.port}: {error.strerror}")
    if left:
        print(f"ephemeral: {left} accepted widgets were not done in time", file=sys.stderr)  # noqa: T201 - said to the user
    return 1 if left else 0
