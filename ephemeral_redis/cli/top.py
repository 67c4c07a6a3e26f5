"""``ephemeral top``: how a fleet stands, again and again in a terminal, or once."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
from rich.console import Console, Group
from rich.live import Live

from .frame import frame
from .running import require_reached, run_tool
from .words import json_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ephemeral_redis.watch.picture import FleetPicture

    from .running import Fleet


def top(fleet: Fleet, *, is_once: bool, every: float, as_json: bool) -> int:
    """Show pictures until somebody ends it, or one, and return the exit code."""
    return run_tool(partial(_top, fleet, is_once=is_once, every=every, as_json=as_json))


async def _top(fleet: Fleet, *, is_once: bool, every: float, as_json: bool) -> int:
    watch = fleet.watch()
    async with watch.pictures(every) as pictures:
        first = await anext(pictures)
        require_reached(watch, first)
        if is_once or as_json or not sys.stdout.isatty():
            await _print_each(first, pictures, is_once=is_once, as_json=as_json)
        else:
            await _draw_each(first, pictures)
    return 0


AGE_SECONDS = 1.0
"""How often a terminal is drawn anew though nothing was read: a bus that hangs is known to be away seconds later."""


async def _print_each(
    first: FleetPicture, pictures: AsyncIterator[FleetPicture], *, is_once: bool, as_json: bool
) -> None:
    show = _print_json if as_json else _print_frame
    show(first)
    if is_once:
        return
    async for picture in pictures:
        if not as_json:
            print()  # noqa: T201 - an empty line between two looks
        show(picture)


def _print_json(picture: FleetPicture) -> None:
    print(json_line(picture.as_json()))  # noqa: T201 - said to the user


def _print_frame(picture: FleetPicture) -> None:
    lines = frame(picture, width=shutil.get_terminal_size().columns, height=None)
    if sys.stdout.isatty():
        Console(highlight=False).print(*lines, sep="\n")
        return
    print("\n".join(line.plain.rstrip() for line in lines))  # noqa: T201 - said to the user


async def _draw_each(first: FleetPicture, pictures: AsyncIterator[FleetPicture]) -> None:
    console = Console(highlight=False)
    # A screen of its own, so that what stood in the terminal stands there afterwards; drawn here alone, since rich's
    # own refresh runs in a thread.
    with Live(console=console, screen=True, auto_refresh=False) as live:
        screen = _Screen(console, live, first)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(screen.grow_old)
            async for picture in pictures:
                screen.show(picture)
            tasks.cancel_scope.cancel()


class _Screen:
    """What a terminal shows: the last picture, and its age while no other one comes."""

    def __init__(self, console: Console, live: Live, first: FleetPicture) -> None:
        self._console = console
        self._live = live
        self.show(first)

    def show(self, picture: FleetPicture) -> None:
        """Draw *picture*."""
        self._picture, self._came_at = picture, time.monotonic()
        self._draw(picture)

    async def grow_old(self) -> None:
        """Draw the last picture as it reads now, each second that brings no other."""
        while True:
            age = time.monotonic() - self._came_at
            if age >= AGE_SECONDS:
                self._draw(replace(self._picture, at=self._picture.at + age))
            await anyio.sleep(AGE_SECONDS)

    def _draw(self, picture: FleetPicture) -> None:
        lines = frame(picture, width=self._console.width, height=self._console.height)
        self._live.update(Group(*lines), refresh=True)
