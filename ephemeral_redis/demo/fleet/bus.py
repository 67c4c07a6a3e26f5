"""The server that the fleet shares: one that is there, or one of our own, which can be killed and started again."""

from __future__ import annotations

import secrets
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import redis

from ephemeral_redis.server import RedisServer, open_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Bus:
    """A server and a namespace on it that no other run uses.

    Args:
        url: Where it is.
        server: The server, if it is our own.

    Attributes:
        url: Where it is.
        namespace: This run's.
    """

    def __init__(self, url: str, server: RedisServer | None) -> None:
        self.url = url
        self.namespace = f"demo-{secrets.token_hex(4)}"
        self._server = server

    @property
    def is_own(self) -> bool:
        """Whether it is ours to kill."""
        return self._server is not None

    async def kill(self) -> int:
        """Kill the server (SIGKILL) and return what its process was; its data go with it.

        Raises:
            RuntimeError: It is not ours.
        """
        server = self._required()
        pid = server.pid
        await anyio.to_thread.run_sync(server.kill)
        return pid

    async def restart(self) -> int:
        """Start it again at its address, empty, and return its process.

        Raises:
            RuntimeError: It is not ours.
            ServerStartError: It does not answer within 10 s.
        """
        server = self._required()
        await anyio.to_thread.run_sync(server.restart)
        return server.pid

    def sweep(self) -> None:
        """Remove what this run left on a server that is not ours. Blocks for some milliseconds.

        Raises:
            redis.RedisError: It cannot be reached any more; what was left ends by its time to live, save the few bytes
                of the health table.
        """
        if self.is_own:
            return
        client = redis.Redis.from_url(self.url, socket_timeout=2.0, socket_connect_timeout=2.0)  # pyright: ignore[reportUnknownMemberType]  redis-py types its options loosely
        try:
            for key in client.scan_iter(match=f"{{{self.namespace}}}:*", count=1000):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  as above
                client.unlink(key)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]  as above
        finally:
            client.close()

    def _required(self) -> RedisServer:
        if self._server is None:
            raise RuntimeError("this server is not ours to kill")
        return self._server


@asynccontextmanager
async def open_bus(url: str | None) -> AsyncGenerator[Bus]:
    """Open the bus behind *url*, or a server of our own; leaving ends the one and sweeps the other.

    Args:
        url: A server that is there; None: one is found or embedded.

    Raises:
        SignalBusError: Nothing answers at *url*.
        ServerStartError: No server can be started here.
    """
    with ExitStack() as stack:

        def enter() -> Bus:
            if url is not None:
                return Bus(stack.enter_context(open_server(url)), None)
            server = stack.enter_context(RedisServer())
            return Bus(server.url, server)

        bus = await anyio.to_thread.run_sync(enter)
        try:
            yield bus
        finally:
            # A server that went away keeps nothing for long, and takes no sweeping.
            with anyio.CancelScope(shield=True), suppress(redis.RedisError):
                await anyio.to_thread.run_sync(bus.sweep)
