"""``ephemeral signal`` and ``ephemeral drain``: what is raised for a fleet from outside of it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from ephemeral_redis._printable import printable

from .running import ToolError, run_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from ephemeral import SignalSink

    from .running import Fleet


def raise_signal(fleet: Fleet, name: str, *, key: str | None, payload: str | None, timeout: float) -> int:
    """Raise one signal, wait until the server has it, and return the exit code."""

    def act(sink: SignalSink) -> str:
        sink.raise_signal(name, key, payload=_payload(payload))
        return f"raised {name}" + ("" if key is None else f" with key {key}")

    return run_tool(partial(_act, fleet, act, timeout))


def request_drain(
    fleet: Fleet, coordinator_id: str | None, *, pattern: str | None, is_for_all: bool, timeout: float
) -> int:
    """Ask coordinators to drain, wait until the server has that, and return the exit code."""

    def act(sink: SignalSink) -> str:
        if (coordinator_id is not None) + (pattern is not None) + is_for_all != 1:
            raise ToolError("say which coordinators: an ID, or --pattern, or --all")
        if coordinator_id is not None:
            sink.request_drain(coordinator_id, fleet=True)
            return f"asked coordinators {coordinator_id} of all workers to drain"
        if pattern is not None:
            sink.request_drain_pattern(pattern, fleet=True)
            return f"asked coordinators whose id matches {pattern} to drain, in all workers"
        sink.request_drain_all(fleet=True)
        return "asked all coordinators of all workers to drain"

    return run_tool(partial(_act, fleet, act, timeout))


async def _act(fleet: Fleet, act: Callable[[SignalSink], str], timeout: float) -> int:
    # What is wrong is said before a server is asked: in a sink that goes nowhere.
    sink = fleet.sink()
    try:
        act(sink)
    except (TypeError, ValueError) as mistake:
        raise ToolError(str(mistake)) from None
    sink = fleet.sink()
    async with sink:
        done = act(sink)
        if not await sink.flush(timeout):
            raise ToolError(
                f"the server has not acknowledged it within {timeout:g} s; whether the fleet hears of it is not known"
            )
        if sink.statistics().bus.dropped:
            raise ToolError("the server refused it; `ephemeral doctor` says more")
    print(printable(f"{done}: the server has it"))  # noqa: T201 - said to the user
    return 0


def _payload(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise ToolError(f"--payload must be JSON, as '{{\"items\": 3}}' or '\"text\"': {error}") from None
