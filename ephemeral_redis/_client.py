"""How clients are made: the settings that keep a slow or dead server from ever holding up a worker."""

from __future__ import annotations

import contextlib
import inspect
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import anyio
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

if TYPE_CHECKING:
    from collections.abc import Callable

CALL_SECONDS = 1.0
"""How long one command may take before its connection counts as dead."""

BLOCK_SECONDS = 2.0
"""How long a reader's XREAD waits for news before it asks again."""

READER_SECONDS = 4.0
"""A reader's socket timeout. It must exceed BLOCK_SECONDS, else each quiet wait ends as a time-out; and it must not be
None, which waits for ever on a frozen server."""

_FOREVER_SECONDS = 86400.0
CLOSE_SECONDS = 1.0
"""How long a client may take to close."""

_SCHEMES = ("redis://", "rediss://", "unix://")
_QUERY_SECRETS = re.compile(r"(?<=[?&])(username|password)=[^&]*")
# To the last @: a password may hold a slash that nobody has encoded. And from the start, where no scheme was written.
_USER_SECRETS = re.compile(r"\A([\w+]+://)?.*@", re.DOTALL)


def redacted_url(url: str) -> str:
    """Return *url* without the user name and password, for logs, errors and reprs."""
    return _USER_SECRETS.sub(r"\1***@", _QUERY_SECRETS.sub(r"\1=***", url))


def check_url(url: object) -> None:
    """Raise unless *url* says where a server is, without showing what may be a password.

    Raises:
        TypeError: It is no ``str``.
        ValueError: Its scheme, host, port or database cannot be read.
    """
    if not isinstance(url, str):
        raise TypeError(f"url must be a str such as 'redis://localhost:6379/0', not {type(url).__name__}")
    shown = redacted_url(url)
    if not url.startswith(_SCHEMES):
        raise ValueError(
            f"url must begin with redis://, rediss:// or unix://, as in 'redis://localhost:6379/0', not {shown!r}"
        )
    try:
        # Asking for the port reads it, and refuses what is none.
        _, parts = urlsplit(url).port, urlsplit(url)
    except ValueError:
        # Not its own words, which may quote a piece of the password.
        raise ValueError(
            f"host or port of {shown!r} cannot be read: a port is a number from 0 to 65535,"
            " and a password has its :/?#[]@ percent-encoded"
        ) from None
    database = unquote(parts.path).replace("/", "")
    if parts.scheme != "unix" and database and not database.isdecimal():
        # redis-py would take database 0, and this worker would be alone there.
        raise ValueError(f"the database of {shown!r} must be a number, as in 'redis://localhost:6379/0'")


def url_factory(url: str, options: dict[str, Any]) -> Callable[..., Any]:
    """Return a factory of clients of the server behind *url*; *options* of the user win over ours.

    Raises:
        TypeError: *url* is no ``str``, or redis-py knows no such option.
        ValueError: *url* cannot be read, or says something that redis-py or the bus cannot use.
    """
    check_url(url)

    def make(**settings: Any) -> Any:
        return Redis.from_url(url, **{**settings, **options})  # pyright: ignore[reportUnknownMemberType]  redis-py types its options loosely

    _try_out(make, redacted_url(url), options)
    return make


def _try_out(make: Callable[..., Any], shown: str, options: dict[str, Any]) -> None:
    """Make a client and a connection, unconnected: else a misspelt option looks like a server that is away."""
    try:
        pool = make(**client_settings("command")).connection_pool
        pool.make_connection()
    except (TypeError, ValueError, RedisError) as error:
        is_option = isinstance(error, TypeError) and any(repr(name) in str(error) for name in options)
        raise (TypeError if is_option else ValueError)(
            f"redis-py cannot use {'an option' if is_option else shown}: {error}; check the spelling, against"
            " RedisSignalBackend.from_url and redis-py's client; options of TLS need rediss://"
        ) from None
    if pool.connection_kwargs.get("decode_responses"):
        raise ValueError("decode_responses must be left out: the bus reads bytes")


def patience_of(client: Any) -> float:
    """Return after how many seconds *client* gives a call up: the user's word on that may be another than ours."""
    settings: dict[str, Any] = getattr(getattr(client, "connection_pool", None), "connection_kwargs", {})
    seconds = settings.get("socket_timeout", CALL_SECONDS)
    return _FOREVER_SECONDS if seconds is None else float(seconds)


async def close_clients(*clients: Any) -> None:
    """Close them side by side, each for at most a second: one that does not get rid of its peer holds up no other."""

    async def close(client: Any) -> None:
        # What goes wrong, a time-out too, is of no matter any more, and must not hide why they are closed.
        with anyio.move_on_after(CLOSE_SECONDS), contextlib.suppress(Exception):
            await client.aclose()

    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(close, client)


def client_settings(purpose: str, *, timeout: float = CALL_SECONDS) -> dict[str, Any]:
    """Return the settings for one client, less those that the installed redis-py does not know.

    Args:
        purpose: What the connection is for; the server's CLIENT LIST shows it.
        timeout: Seconds a reply may take.
    """
    known = inspect.signature(AbstractConnection).parameters  # pyright: ignore[reportUnknownMemberType]  redis-py types its options loosely
    wanted: dict[str, Any] = {
        "client_name": f"ephemeral-{purpose}",
        "socket_connect_timeout": CALL_SECONDS,
        "socket_timeout": timeout,
        "health_check_interval": 0,
        # Its own retries would sleep for seconds inside a call; ours are in the loops that know what to do meanwhile.
        "retry": Retry(NoBackoff(), 0),
        # One reply shape for both protocols, where the version can.
        "legacy_responses": False,
    }
    wanted["maint_notifications_config"] = _no_maintenance_notifications()
    return {name: value for name, value in wanted.items() if name in known}


def _no_maintenance_notifications() -> Any:
    # On, they log failures on ordinary servers and keep the pool from replacing closed connections.
    try:
        from redis.maint_notifications import MaintNotificationsConfig  # noqa: PLC0415  redis >= 7 has it
    except ImportError:
        return None
    return MaintNotificationsConfig(enabled=False)
