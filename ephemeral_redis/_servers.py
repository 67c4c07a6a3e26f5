"""Where the server is: at a URL's host, where the sentinels say, or where a cluster keeps the namespace.

It is asked for anew each time the bus is lost, once for all clients of a session, which then talk to that one server.
No client of redis-py's for clusters is needed: a namespace is one slot, which one node has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

import anyio
from redis.asyncio import Redis
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import MovedError, RedisClusterException, RedisError

from ._client import check_url, client_settings, close_clients, redacted_url, url_factory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ._keys import Keys

MakeClient: TypeAlias = "Callable[..., Any]"
"""Makes a redis-py client from its settings."""


class Server(NamedTuple):
    """The server as it was found.

    Attributes:
        make_client: Makes clients of it.
        place: What tells it from others that the same finder finds.
        moved: Ends once it is known to be another one, which connections of their own would not notice.
    """

    make_client: MakeClient
    place: object = None
    moved: Callable[[], Awaitable[None]] = anyio.sleep_forever


FindServer: TypeAlias = "Callable[[], Awaitable[Server]]"
"""Returns the server as it is now; raises what redis-py raises."""

ASK_SECONDS = 0.5
"""How long the answer of a sentinel, or of a node that is asked for the way, may take: where one hangs there is time
for the next."""

ASK_AGAIN_SECONDS = 1.0
"""How often sentinels are asked whether the master still is the one. After a failover by hand, or of a master that was
cut off, the old one takes commands for ten seconds more, and forgets them then."""

_MOST_MOVES = 5
_KINDS = ("sentinel", "cluster")


def always(make_client: MakeClient) -> FindServer:
    """Return a finder for a server that is where it is."""

    async def find() -> Server:
        return Server(make_client)

    return find


def server_finder(url: str, options: dict[str, Any], keys: Keys) -> FindServer:
    """Return what finds the server that *url* speaks of; *options* of the user win over ours.

    Raises:
        TypeError: *url* is no ``str``, or redis-py knows no such option.
        ValueError: *url* cannot be read, or says something that redis-py or the bus cannot use.
    """
    kind = _kind_of(url)
    if kind is None:
        return always(url_factory(url, options))
    places = Places.read(url, kind)
    of_sentinels: dict[str, Any] = options.pop("sentinel_kwargs", {}) if kind == "sentinel" else {}
    # Nobody is connected to: a misspelt option is to be told now.
    places.at(*places.hosts[0], options)
    if kind == "sentinel":
        return _Sentinels(places, options, of_sentinels).find
    return _Nodes(places, options, keys).find


class Places(NamedTuple):
    """What a URL of several hosts says.

    Attributes:
        scheme: That of a server's own URL.
        user: User name and password, with their ``@``, as in the URL.
        hosts: Host and port of each.
        service: What the sentinels call the server; empty for a cluster.
        rest: Database and query of a server's own URL.
    """

    scheme: str
    user: str
    hosts: list[tuple[str, int]]
    service: str
    rest: str

    @classmethod
    def read(cls, url: str, kind: str) -> Places:
        """Read a URL of *kind*.

        Raises:
            ValueError: It cannot be read.
        """
        scheme, _, beyond = url.partition("://")
        beyond, mark, query = beyond.partition("?")
        authority, _, path = beyond.partition("/")
        user, at, hosts = authority.rpartition("@")
        service, _, database = path.partition("/")
        if kind == "sentinel" and not service:
            raise ValueError(
                f"{redacted_url(url)!r} must name the service that the sentinels watch, as in"
                " 'redis+sentinel://host1:26379,host2:26379/main'"
            )
        if kind == "cluster" and path.strip("/0"):
            raise ValueError(f"{redacted_url(url)!r} must name no database: a cluster has only one")
        places = cls(
            scheme.partition("+")[0],
            f"{user}{at}",
            [_address(host, 26379 if kind == "sentinel" else 6379, redacted_url(url)) for host in hosts.split(",")],
            unquote(service) if kind == "sentinel" else "",
            f"/{database}{mark}{query}",
        )
        check_url(places.url(*places.hosts[0]))
        return places

    def url(self, host: str, port: int) -> str:
        """Return the URL of one server."""
        return f"{self.scheme}://{self.user}{f'[{host}]' if ':' in host else host}:{port}{self.rest}"

    def at(self, host: str, port: int, options: dict[str, Any]) -> MakeClient:
        """Return what makes clients of the server there."""
        return url_factory(self.url(host, port), options)


class _Sentinels:
    """Asks sentinels who is master now: all at once, for one that was cut off may know no better.

    Args:
        places: Where they are.
        options: Of the server's clients.
        of_sentinels: Of the sentinels' clients.
    """

    def __init__(self, places: Places, options: dict[str, Any], of_sentinels: dict[str, Any]) -> None:
        self._places = places
        self._options = options
        settings = client_settings("sentinel", timeout=ASK_SECONDS)
        # Old sentinels let nobody name himself.
        settings.pop("client_name", None)
        # Who encrypts the way to the server does so on the way to those who know where it is.
        encryption = {name: value for name, value in options.items() if name.startswith("ssl_")}
        self._of_sentinels: dict[str, Any] = {
            **settings,
            "ssl": places.scheme == "rediss",
            **encryption,
            **of_sentinels,
        }
        try:
            self._make_clients()
        except TypeError as error:
            raise TypeError(f"redis-py cannot use an option of sentinel_kwargs: {error}") from None

    async def find(self) -> Server:
        async with self._clients() as clients:
            address = await self._ask(clients)

        async def moved() -> None:
            async with self._clients() as clients:
                while True:
                    await anyio.sleep(ASK_AGAIN_SECONDS)
                    with contextlib.suppress(RedisError, OSError):
                        if await self._ask(clients) != address:
                            return

        return Server(self._places.at(*address, self._options), address, moved)

    @contextlib.asynccontextmanager
    async def _clients(self) -> AsyncGenerator[list[Any]]:
        # Made anew each time: they belong to one loop, and after a fork or a reopening there is another.
        clients = self._make_clients()
        try:
            yield clients
        finally:
            await close_clients(*clients)

    def _make_clients(self) -> list[Any]:
        make: Any = Redis
        return [make(host=host, port=port, **self._of_sentinels) for host, port in self._places.hosts]

    async def _ask(self, clients: list[Any]) -> tuple[str, int]:
        """Return the master's address by the sentinel that knows of the latest failover."""
        known: list[tuple[int, str, int]] = []
        unknown: list[str] = []

        async def ask(client: Any) -> None:
            try:
                state = (await client.sentinel_masters()).get(self._places.service)
            except (RedisError, OSError) as error:
                unknown.append(str(error))
                return
            if state is None:
                unknown.append("no such service")
            elif not state["is_master"] or state["is_sdown"] or state["is_odown"]:
                unknown.append(f"{state['ip']}:{state['port']} is down")
            else:
                known.append((int(state["config-epoch"]), state["ip"], state["port"]))

        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(ask, client)
        if not known:
            # The same from several of them is said once.
            raise MasterNotFoundError(f"no master for {self._places.service!r}: {', '.join(dict.fromkeys(unknown))}")
        _, host, port = max(known)
        return host, port


class _Nodes:
    """Asks nodes of a cluster for the one that has the namespace.

    Args:
        places: Where some of them are.
        options: Of the clients.
        keys: The namespace.
    """

    def __init__(self, places: Places, options: dict[str, Any], keys: Keys) -> None:
        self._places = places
        self._options = options
        self._keys = keys

    async def find(self) -> Server:
        *others, last = self._places.hosts
        for host, port in others:
            try:
                return await self._owner(host, port)
            except (RedisError, OSError):
                continue  # it is away, or knows no better: the next one may
        return await self._owner(*last)

    async def _owner(self, host: str, port: int) -> Server:
        """Follow the way that the node shows."""
        for _ in range(_MOST_MOVES):
            make = self._places.at(host, port, self._options)
            client = make(**client_settings("way", timeout=ASK_SECONDS))
            try:
                # Anything that is asked of a key of the namespace: who does not have it says who does.
                await client.hget(self._keys.marks, b"layout")
            except MovedError as error:
                moved: Any = error
                # No host: the one that says so.
                host, port = moved.host or host, moved.port
            else:
                return Server(make, (host, port))
            finally:
                await close_clients(client)
        raise RedisClusterException(f"the nodes of the cluster send each other {self._keys.marks!r}")


def _kind_of(url: object) -> str | None:
    """Return what is behind a URL of several hosts; None: it is none, and so redis-py's or nobody's."""
    scheme, plus, kind = url.partition("://")[0].partition("+") if isinstance(url, str) else ("", "", "")
    if not plus or scheme not in ("redis", "rediss"):
        return None
    if kind not in _KINDS:
        raise ValueError(f"url must begin with redis+sentinel:// or redis+cluster://, not {redacted_url(str(url))!r}")
    return kind


def _address(host: str, default: int, shown: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError:
        name, port = None, None
    if name is None:
        raise ValueError(f"hosts of {shown!r} cannot be read: they are written host:port, with commas between them")
    return name, port or default
