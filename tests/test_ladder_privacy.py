"""What a ladder keeps of an item that has ended: nothing. References die at once, without the garbage collector."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import anyio
import pytest

from ephemeral import PriorityProcessorAtom

from .ladder_kit import Service, ladder


class Parcel:
    """Something of the user's that can be watched."""

    def __str__(self) -> str:
        return "parcel"


class Carrier:
    """A processor that holds on to nothing."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.is_down = is_down

    async def __call__(self, item: Parcel) -> None:
        await anyio.lowlevel.checkpoint()
        if self.is_down:
            raise ConnectionError


async def send(atom: PriorityProcessorAtom[Any, Any], way: str) -> weakref.ref[Parcel]:
    parcel = Parcel()
    if way == "call":
        with contextlib.suppress(ConnectionError):
            await atom.call(parcel)
    else:
        await atom.enqueue(parcel)
    return weakref.ref(parcel)


@pytest.mark.parametrize("way", ["enqueue", "call"])
@pytest.mark.parametrize(
    ("first", "backup", "options"),
    [
        (Carrier(), Carrier(), {}),
        (Carrier(is_down=True), Carrier(), {}),
        (Carrier(is_down=True), Carrier(), {"reroute_failed": True}),
        (Carrier(is_down=True), Carrier(is_down=True), {"reroute_failed": True, "max_attempts": 2}),
        (Carrier(is_down=True), Carrier(), {"on_failed": lambda item, error: None}),
    ],
)
async def test_nothing_keeps_an_item_that_has_ended(way: str, first: Any, backup: Any, options: dict[str, Any]) -> None:
    async with ladder(first, backup, **options) as group:
        parcel = await send(group.first, way)
        await group.settle()
        assert parcel() is None


async def test_an_error_that_on_failed_keeps_holds_no_item() -> None:
    kept: list[BaseException] = []
    async with ladder(Carrier(is_down=True), on_failed=lambda item, error: kept.append(error)) as group:
        parcel = await send(group.first, "enqueue")
        await group.settle()
        assert len(kept) == 1
        assert parcel() is None


async def test_a_cancelled_item_is_let_go() -> None:
    service = Service()
    service.close_gate()
    refs: list[weakref.ref[Parcel]] = []

    async def forever(item: Parcel) -> None:
        await anyio.sleep_forever()

    with contextlib.suppress(LookupError):
        async with ladder(forever) as group:
            refs.extend([await send(group.first, "enqueue"), await send(group.first, "enqueue")])
            await group.settle()
            raise LookupError
    assert [ref() for ref in refs] == [None, None]
