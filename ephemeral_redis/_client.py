"""How clients are made: the settings that keep a slow or dead server from ever holding up a worker."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

if TYPE_CHECKING:
    from collections.abc import Callable

CALL_SECONDS = 1.0
"""How long one command may take before its connection counts as dead."""

BLOCK_SECONDS = 2.0
"""How long a reader's XREAD waits for news before it asks again."""

READER_SECONDS = 4.0
"""A reader's socket timeout. It must exceed BLOCK_SECONDS, else each quiet wait ends as a time-out; and it must not be
None, which waits for ever on a frozen server."""

_CREDENTIALS = re.compile(r"//[^/@]*@|(?<=[?&])(username|password)=[^&]*")


def redacted_url(url: str) -> str:
    """Return *url* without the user name and password, for logs, errors and reprs."""
    return _CREDENTIALS.sub(lambda found: "//***@" if found[0].startswith("//") else f"{found[1]}=***", url)


def url_factory(url: str, options: dict[str, Any]) -> Callable[..., Any]:
    """Return a factory of clients of the server behind *url*; *options* of the user win over ours."""

    def make(**settings: Any) -> Any:
        return Redis.from_url(url, **{**settings, **options})  # pyright: ignore[reportUnknownMemberType]  redis-py types its options loosely

    return make


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
