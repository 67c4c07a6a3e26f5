"""What type checkers must see in the public names. Checked by mypy and pyright, never run."""

from __future__ import annotations

from typing import Any, assert_type

from ephemeral import NoHealthyProcessorError, testing


async def add(left: int, right: int) -> int:
    return left + right


def check_testing() -> None:
    assert_type(testing.run(add, 1, 2), int)
    assert_type(testing.run(add, 1, 2, backend="trio"), int)
    assert_type(testing.virtual_time("asyncio"), tuple[str, dict[str, Any]])
    testing.run(add, 1, "2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the wrong argument is seen
    testing.virtual_time("curio")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no such loop


def check_errors(error: NoHealthyProcessorError) -> None:
    assert_type(error.group, str)
    assert_type(error.retry_at, float | None)
