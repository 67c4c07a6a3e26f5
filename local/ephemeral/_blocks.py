"""What can be opened once: an ``async with`` block that is written as one generator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self


class OneBlock(ABC):
    """An object with one block in its life."""

    _life: AbstractAsyncContextManager[None] | None = None

    @abstractmethod
    def _live(self) -> AbstractAsyncContextManager[None]:
        """Return the block: an ``asynccontextmanager``, so that what happens around it is told in one place."""

    @abstractmethod
    def _refusal(self) -> str:
        """Return what whoever enters a second time is told."""

    async def __aenter__(self) -> Self:
        if self._life is not None:
            raise RuntimeError(self._refusal())
        self._life = self._live()
        await self._life.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._life is not None
        return await self._life.__aexit__(kind, error, trace)
