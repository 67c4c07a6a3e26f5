"""Coordinators by name, with one life for all: what an application starts once and asks for anywhere."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable
from dataclasses import replace
from typing import Any, TypeVar

import anyio

from ._blocks import OneBlock
from ._coordinator import Body, CoordinatorBase
from ._errors import UnknownCoordinatorError
from ._keyed import EphemeralKeyedWorkCoordinator
from ._options import EphemeralOptions, options_or_default
from ._results import EphemeralResultCoordinator
from ._work import EphemeralWorkCoordinator
from ._workers import Worker, Workers

T = TypeVar("T")


class _Hosted:
    """A coordinator that was made, and how far its block has come."""

    __slots__ = ("coordinator", "ended", "entered", "leave")

    def __init__(self, coordinator: CoordinatorBase[Any, Any]) -> None:
        self.coordinator = coordinator
        self.entered = anyio.Event()
        self.leave = anyio.Event()
        self.ended = anyio.Event()


class CoordinatorFactory(OneBlock):
    """Makes coordinators by name when they are first asked for, and starts and drains them together.

    ::

        factory = CoordinatorFactory()
        factory.add_result("translations", translate)
        factory.add_keyed("commands", lambda command: command.account, apply)

        async with factory:
            translations = factory.create_coordinator("translations")
            print(await translations.submit("Guten Tag"))

    Entering the block starts what was made before; what is made inside starts by itself. Leaving it normally completes
    and drains one coordinator after the other, in the order they were made: one whose bodies enqueue into another is
    to be asked for first. Leaving it by an exception cancels all, and that exception comes out as it is.

    Belongs to the thread of the loop that runs its block.
    """

    def __init__(self) -> None:
        self._makers: dict[str, Callable[[], CoordinatorBase[Any, Any]]] = {}
        self._made: dict[str, _Hosted] = {}
        self._to_start: deque[_Hosted] = deque()
        self._hosts = Workers(self._host, limit=sys.maxsize)
        self._has_ended = False

    def __repr__(self) -> str:
        made = ", ".join(map(repr, self._made)) or "none"
        return f"<{type(self).__name__} of {len(self._makers)} coordinators, made so far: {made}>"

    # Names

    def add_work(self, name: str, body: Body[Any], options: EphemeralOptions | None = None) -> None:
        """Say how to make the `EphemeralWorkCoordinator` *name*.

        Args:
            name: What it will be asked for by; also its ``coordinator_id``, if *options* name none.
            body: As for the class.
            options: As for the class.

        Raises:
            ValueError: *name* is empty, no ``str``, or was added before.
            TypeError: *body* cannot be called.
        """
        options = self._check(name, options, body=body)
        self._makers[name] = lambda: EphemeralWorkCoordinator[Any](body, options)

    def add_keyed(
        self,
        name: str,
        key_selector: Callable[[T], Hashable],
        body: Body[T],
        options: EphemeralOptions | None = None,
    ) -> None:
        """Say how to make the `EphemeralKeyedWorkCoordinator` *name*; otherwise as `add_work`."""
        options = self._check(name, options, key_selector=key_selector, body=body)
        self._makers[name] = lambda: EphemeralKeyedWorkCoordinator[Hashable, T](key_selector, body, options)

    def add_result(self, name: str, body: Body[Any], options: EphemeralOptions | None = None) -> None:
        """Say how to make the `EphemeralResultCoordinator` *name*; otherwise as `add_work`."""
        options = self._check(name, options, body=body)
        self._makers[name] = lambda: EphemeralResultCoordinator[Any, Any](body, options)

    def _check(self, name: object, options: EphemeralOptions | None, **functions: object) -> EphemeralOptions:
        if not isinstance(name, str) or not name:
            raise ValueError(f"name must be a str that is not empty, not {name!r}")
        if name in self._makers:
            raise ValueError(f"a coordinator {name!r} has been added before; give this one another name")
        for parameter, function in functions.items():
            if not callable(function):
                raise TypeError(f"{parameter} must be a function of one item, not {function!r}")
        options = options_or_default(options)
        return options if options.coordinator_id is not None else replace(options, coordinator_id=name)

    def create_coordinator(self, name: str) -> Any:
        """Return the coordinator *name*: always the same one, made when it is first asked for.

        Its kind is the one it was added as; annotate what you assign it to. Made inside the block it starts within a
        turn of the loop, and takes items at once. The factory enters its block: entering it by hand is a
        ``RuntimeError``.

        Raises:
            UnknownCoordinatorError: No coordinator of this name was added; the message lists those that were.
            RuntimeError: It was never made, and the factory's block has been left.
        """
        hosted = self._made.get(name)
        if hosted is None:
            if name not in self._makers:
                raise UnknownCoordinatorError(name, tuple(sorted(self._makers)))
            if self._has_ended:
                raise RuntimeError(f"the coordinator {name!r} could never run: the factory's block has been left")
            hosted = self._made[name] = _Hosted(self._makers[name]())
            hosted.coordinator._is_to_start = lambda: self._hosts.is_open  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  it starts what it makes
            self._to_start.append(hosted)
            self._hosts.wake()
        return hosted.coordinator

    # Life

    def _refusal(self) -> str:
        return "this factory has been started before; make a new one for a new block"

    @contextlib.asynccontextmanager
    async def _live(self) -> AsyncGenerator[None]:
        try:
            async with self._hosts:
                try:
                    if self._to_start:
                        self._hosts.wake()
                    for hosted in tuple(self._made.values()):
                        await hosted.entered.wait()
                    yield
                    await self._drain_all()
                finally:
                    # At once: from here on the hosts end, and nobody would start what is asked for.
                    self._has_ended = True
        finally:
            for hosted in self._to_start:
                hosted.coordinator.cancel()

    async def _drain_all(self) -> None:
        drained = 0
        while drained < len(self._made):  # a body may ask for one that was not made before
            hosted = list(self._made.values())[drained]
            hosted.leave.set()
            await hosted.ended.wait()
            drained += 1

    async def _host(self, worker: Worker) -> None:  # noqa: ARG002  nothing interrupts a host: its block ends it
        while True:
            if not self._to_start:
                await self._hosts.park()
                continue
            hosted = self._to_start.popleft()
            if self._to_start:
                self._hosts.wake()
            try:
                async with hosted.coordinator:
                    hosted.entered.set()
                    await hosted.leave.wait()
            except RuntimeError as error:  # its user was first to enter it
                self._hosts.end_with(error)
            hosted.ended.set()
