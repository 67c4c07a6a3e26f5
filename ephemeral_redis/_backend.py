"""`RedisSignalBackend`: what users name when they want their sinks to share a bus."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ephemeral import matches_pattern
from ephemeral.abc import ITEM_SIGNALS, SignalBackend, seconds, whole_number

from ._client import redacted_url
from ._clock import BusClock
from ._keys import Keys
from ._life import Life
from ._outbox import Outbox
from ._roster import MAX_NAME_BYTES
from ._scripts import Bounds
from ._servers import always, server_finder
from ._settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from typing import Self

    from ephemeral.abc import HealthReport, HealthWatcher, Pattern, SignalReceiver, SignalRecord, Swap

    from ._statistics import BusStatistics
    from .watch.bus import BusWatch

_log = logging.getLogger("ephemeral")

_ABANDONED: list[Life] = []
"""Lives of the parent, in a fork: never collected, since closing their sockets would reach into the parent's loop."""


class RedisSignalBackend(SignalBackend):
    """Joins this sink to all that name the same server and namespace: their signals, counts and the health of ladders.

        async with SignalSink(backend=RedisSignalBackend.from_url("redis://localhost", namespace="shop")) as sink: ...

    Nothing that a worker does waits for the server. While it is away signals wait in the outbox, ladders go on by what
    this process sees, and ``sink.is_degraded`` is True; once it is back all is sent with its true age, and the shared
    health holds again. One backend belongs to one sink.

    Args:
        client_factory: Makes a ``redis.asyncio`` client from the keyword settings it is given, for what no URL says;
            `from_url` needs none. Called in the bus's thread, three times whenever the bus was lost.
        namespace: What keeps applications on one server apart: printable, at most 128 bytes, no spaces or braces.
        retention: Seconds that the bus keeps signals, above 0.
        capacity: Signals that it keeps in each stream and each scope, at least 1000.
        publish: Which signals leave this process. What ladders raise for each item is counted whatever this says.
        mirror: Which signals of others enter this window, and so reach its listeners; None: none.
        publish_items: Whether what ladders raise for each item can be seen by others, beyond being counted.
        mirror_items: Whether that of others enters this window.
        max_outbox: Signals that may wait to be sent, at least 1; beyond that the oldest are dropped and counted.
        require: Whether opening the sink fails with `SignalBusError` while the server is away.
        name: What this worker calls itself for those who watch the fleet: printable, at most 128 bytes. None: what
            ``EPHEMERAL_WORKER`` says in the environment, else its host's name and its process's number.
        is_listed: Whether it tells of itself, each other second, for those who watch the fleet; nothing else rests
            on it, and a script that only raises a signal now and then may leave it.

    Raises:
        TypeError: *client_factory* cannot be called, *namespace* or *name* is no ``str``, or a pattern of the wrong
            type.
        ValueError: A value is out of its range.
    """

    def __init__(
        self,
        client_factory: Callable[..., Any],
        *,
        namespace: str,
        retention: float | timedelta = 60.0,
        capacity: int = 100_000,
        publish: Pattern = "*",
        mirror: Pattern | None = "*",
        publish_items: bool = True,
        mirror_items: bool = False,
        max_outbox: int = 10_000,
        require: bool = False,
        name: str | None = None,
        is_listed: bool = True,
    ) -> None:
        if not callable(client_factory):
            raise TypeError(
                f"client_factory must be callable, not {type(client_factory).__name__};"
                " for a URL there is RedisSignalBackend.from_url"
            )
        for pattern in (publish, mirror):
            if pattern is not None:
                matches_pattern("", pattern)
        self._settings = Settings(
            find_server=always(client_factory),
            address="the client's server",
            keys=Keys(namespace),
            bounds=Bounds(seconds("retention", retention), whole_number("capacity", capacity, least=1000)),
            publish=publish,
            mirror=mirror,
            publish_items=publish_items,
            mirror_items=mirror_items,
            max_outbox=whole_number("max_outbox", max_outbox, least=1),
            require=require,
            name=_checked_name(os.environ.get("EPHEMERAL_WORKER") or None if name is None else name),
            is_listed=is_listed,
        )
        self._namespace = namespace
        self._publishes_all = publish == "*"
        self._clock = BusClock()
        self._receiver: SignalReceiver | None = None
        self._starting = threading.Lock()
        self._is_watched_closed = False
        self._life = self._new_life()
        _backends.add(self)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        namespace: str,
        retention: float | timedelta = 60.0,
        capacity: int = 100_000,
        publish: Pattern = "*",
        mirror: Pattern | None = "*",
        publish_items: bool = True,
        mirror_items: bool = False,
        max_outbox: int = 10_000,
        require: bool = False,
        name: str | None = None,
        is_listed: bool = True,
        **redis_py_options: Any,
    ) -> Self:
        """Return a backend for the server behind *url*.

        ``redis://``, ``rediss://`` (TLS) and ``unix://`` are redis-py's. ``redis+sentinel://host,host,host/service``
        asks sentinels for the master, ``redis+cluster://host,host,host`` any of these nodes for the one that has the
        namespace, each time anew when the bus was lost; both exist as ``rediss+…`` too. User and password are the
        server's.

        Args:
            url: Where the server is.
            namespace: As for the class.
            retention: As for the class.
            capacity: As for the class.
            publish: As for the class.
            mirror: As for the class.
            publish_items: As for the class.
            mirror_items: As for the class.
            max_outbox: As for the class.
            require: As for the class.
            name: As for the class.
            is_listed: As for the class.
            **redis_py_options: Settings of redis-py's client, which win over ours; ``ssl_ca_certs`` and the like. For
                sentinels also ``sentinel_kwargs``, settings of the clients that ask them, such as their password.

        Raises:
            TypeError: As for the class, *url* is no ``str``, or neither we nor redis-py know an option.
            ValueError: As for the class, or *url* cannot be read.
        """
        finder = server_finder(url, redis_py_options, Keys(namespace))
        backend = cls(
            _unfound,
            namespace=namespace,
            retention=retention,
            capacity=capacity,
            publish=publish,
            mirror=mirror,
            publish_items=publish_items,
            mirror_items=mirror_items,
            max_outbox=max_outbox,
            require=require,
            name=name,
            is_listed=is_listed,
        )
        backend._settings = backend._settings._replace(find_server=finder, address=redacted_url(url))
        backend._life = backend._new_life()
        return backend

    def __repr__(self) -> str:
        state = "away" if self.is_degraded else "reached"
        return f"<RedisSignalBackend {self._namespace!r} at {self._settings.address}: {state}>"

    @property
    def origin(self) -> str:
        """Who this sink is on the bus: 16 hexadecimal digits, new after a fork."""
        return self._life.origin

    @property
    def is_degraded(self) -> bool:
        """Whether the server cannot be reached now; True before the sink is opened."""
        return self._life.is_degraded

    def statistics(self) -> BusStatistics:
        """Return the counters, since the sink was opened or the process forked."""
        return self._life.statistics()

    def bus_time(self) -> float:
        """Return the server's clock as far as it is known: UTC epoch seconds."""
        return self._clock.now()

    def open(self, receiver: SignalReceiver) -> Future[None]:
        """Start the thread; see `SignalBackend.open`.

        Raises:
            RuntimeError: It is open already.
        """
        if self._receiver is not None:
            raise RuntimeError("this backend is open already: one backend belongs to one sink")
        self._receiver = receiver
        if self._life.is_started:
            # Closed before: a new life, which sends what has been raised meanwhile.
            self._life = self._new_life(self._life.outbox)
        return self._life.start(receiver)

    def close(self, timeout: float) -> Future[int]:
        """Send what is left for at most *timeout* seconds, and end the thread; see `SignalBackend.close`."""
        life, self._receiver = self._life, None
        if not life.is_started:
            left: Future[int] = Future()
            left.set_result(len(life.outbox))
            return left
        return life.stop(timeout)

    def publish(self, record: SignalRecord) -> None:
        """Queue one signal, if it is to leave this process."""
        life = self._life
        if not self._publishes_all and not self._is_wanted(record[0]):
            return
        life.outbox.append(record)
        if life.sender.is_idle:
            self._running().wake()

    def flush(self) -> Future[None]:
        """Return a future that ends once the server has all that was published before."""
        return self._running().flush()

    def count(self, scope: str, within: float) -> Future[int]:
        """Count the signals of all sinks in *scope* of the last *within* seconds, those just published included."""
        return self._running().count(scope, within)

    def watch(self, watcher: HealthWatcher) -> None:
        """Tell *watcher* of health; see `SignalBackend.watch`. While the sink is not open it is alone; said once."""
        if self._receiver is None and not self._is_watched_closed:
            self._is_watched_closed = True
            _log.warning(
                "a ladder works alone, for its sink is not open: enter the block of the sink before the atom's"
            )
        self._running().watch(watcher)

    def unwatch(self, watcher: HealthWatcher) -> None:
        """Tell *watcher* nothing more."""
        self._running().unwatch(watcher)

    def report(self, report: HealthReport) -> None:
        """Have the health table count how a call ended."""
        self._running().report(report)

    def swap(self, swap: Swap) -> Future[bool]:
        """Offer a decision to the health table; see `SignalBackend.swap`."""
        return self._running().swap(swap)

    def watch_fleet(self) -> BusWatch:
        """Return what shows the fleet that this worker is of, by connections of its own; the sink need not be open."""
        from .watch.bus import BusWatch  # noqa: PLC0415  no worker that is not looked at pays for it

        settings = self._settings
        return BusWatch(settings.find_server, settings.keys, namespace=self._namespace, address=settings.address)

    def _is_wanted(self, signal: str) -> bool:
        return signal.startswith(ITEM_SIGNALS) or matches_pattern(signal, self._settings.publish)

    def _new_life(self, outbox: Outbox | None = None) -> Life:
        outbox = Outbox(self._settings.max_outbox) if outbox is None else outbox
        return Life(self._settings, secrets.token_hex(8), self._clock, outbox)

    def _running(self) -> Life:
        """Return the life there is; in a fork of a process that had it open, started by the first who needs it."""
        life = self._life
        if not life.is_started and self._receiver is not None:
            with self._starting:
                if not life.is_started:
                    life.start(self._receiver)
        return life

    def _fork(self) -> None:
        """Be another sink in a child process: under the parent's origin the server would refuse all as duplicates."""
        _ABANDONED.append(self._life)
        self._starting = threading.Lock()
        self._clock = BusClock()
        self._life = self._new_life()
        if self._receiver is not None:
            self._receiver.renew_origin(self._life.origin)

    @staticmethod
    def _fork_all() -> None:
        for backend in list(_backends):
            backend._fork()  # noqa: SLF001  its own class


def _unfound(**_: object) -> None:
    """Stand in for the client factory until `from_url` has put in its own."""


def _checked_name(name: object) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    if not name or not name.isprintable() or len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"name must be printable, not empty and at most {MAX_NAME_BYTES} bytes, not {name!r:.140}")
    return name


_backends: weakref.WeakSet[RedisSignalBackend] = weakref.WeakSet()

if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=RedisSignalBackend._fork_all)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  as above
