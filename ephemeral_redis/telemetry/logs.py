"""Signals as log records, and log records as signals; the standard library is all it needs.

No circle closes: what was a log record once becomes none again, what was a signal once becomes none again, in no thread
and through no bus. Nor does what is logged because of such a signal, in a listener or in work that it enqueues.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from typing import Any, Final, Self, cast

from ephemeral import SignalEvent, SignalSink, Subscription, matches_pattern
from ephemeral.abc import Pattern

__all__ = ["SignalHandler", "log_signals"]

_MAX_NAME_BYTES: Final = 512
"""The most that a signal's name may take."""

_FROM_LOG: Final = "ephemeral.log"
"""A key in the payload of a signal that was a log record; other workers know it by this too."""

_FROM_SIGNAL: Final = "signal_origin"
"""An attribute of a log record that was a signal."""

_OWN_LOGGERS: Final = frozenset({"ephemeral", "ephemeral_redis"})
_MAX_MESSAGE: Final = 1000
_MAX_PREFIX_BYTES: Final = 200
_MAX_LEVEL: Final = 50

# Set for what a listener does, and for what it enqueues, which runs in a copy of its context.
_is_raising: ContextVar[bool] = ContextVar("ephemeral_log_record_becomes_signal", default=False)


def log_signals(
    sink: SignalSink,
    pattern: Pattern = "*",
    *,
    logger: logging.Logger | str = "ephemeral.signals",
    level: int = logging.INFO,
    levels: Mapping[str, int] | None = None,
    payloads: bool = False,
    remote: bool = False,
) -> Subscription:
    """Write a log record for each matching signal, in the thread that raises it.

    The message is the signal's name. The record has attributes for structured logs: ``signal``, ``signal_key``,
    ``signal_origin``, ``signal_depth``, ``signal_at`` (epoch seconds), ``operation_id`` and, if asked for,
    ``signal_payload``. A handler that raises harms no raiser; one that is slow holds it up, so put a ``QueueHandler``
    before it.

    Args:
        sink: Whose signals.
        pattern: Which names.
        logger: Where the records go, or its name.
        level: Of the records.
        levels: Patterns, and the level of what matches them; the first that does is taken.
        payloads: Whether the records have the payloads, which may hold what should not be kept.
        remote: Whether signals of other workers are logged here too, beside there.

    Returns:
        A context manager; closing it ends this.

    Raises:
        TypeError: A pattern has the wrong type.
        ValueError: A pattern has an empty part.
    """
    target = logging.getLogger(logger) if isinstance(logger, str) else logger
    ranks = dict(levels or {})
    for one in ranks:
        matches_pattern("checked", one)

    def log(event: SignalEvent) -> None:
        if _was_log_record(event) or not (remote or event.origin == sink.origin):
            return
        rank = next((rank for one, rank in ranks.items() if matches_pattern(event.signal, one)), level)
        if target.isEnabledFor(rank):
            extra = _attributes_of(event)
            if payloads:
                extra["signal_payload"] = event.payload
            target.log(rank, "%s", event.signal, extra=extra)

    return sink.subscribe(log, pattern)


def _was_log_record(event: SignalEvent) -> bool:
    payload: object = event.payload
    return isinstance(payload, dict) and _FROM_LOG in payload


def _attributes_of(event: SignalEvent) -> dict[str, Any]:
    return {
        "signal": event.signal,
        "signal_key": event.key,
        _FROM_SIGNAL: event.origin,
        "signal_depth": event.depth,
        "signal_at": event.timestamp,
        "operation_id": event.operation_id,
    }


class SignalHandler(logging.Handler):
    """Raises a signal for each log record: ``log.error:app.db`` for an error of the logger ``app.db``.

        with SignalHandler(sink, "app, app.*").attached():
            ...

    What characters a signal's name may not hold become ``_``, ``:`` becomes ``.``. The payload is a dict: ``logger``,
    ``level``, ``file``, ``line`` and, where there is one, ``exception``, its class. Messages stay out unless asked for,
    for they may hold what should not travel. Records of this library are passed over: a listener that fails on what it
    is told of its own failure would go on for ever. As with every handler an error in here is shown by
    ``logging.raiseExceptions`` and never reaches who logs.

    Args:
        sink: Where.
        pattern: Names of loggers; None: all.
        level: Least level of a record.
        prefix: What names of signals begin with.
        messages: Whether the payload tells the ``message``, up to 1 000 characters of it.

    Raises:
        TypeError: *pattern* has the wrong type.
        ValueError: *pattern* has an empty part, or *prefix* does not fit a signal's name.
    """

    def __init__(
        self,
        sink: SignalSink,
        pattern: Pattern | None = None,
        *,
        level: int = logging.WARNING,
        prefix: str = "log",
        messages: bool = False,
    ) -> None:
        super().__init__(level)
        SignalEvent(prefix)  # checks that it may begin a name
        if len(prefix.encode()) > _MAX_PREFIX_BYTES:
            raise ValueError(f"prefix must take at most {_MAX_PREFIX_BYTES} bytes of UTF-8, not {len(prefix.encode())}")
        if pattern is not None:
            matches_pattern("checked", pattern)
        self._sink = sink
        self._pattern = pattern
        self._prefix = prefix
        self._messages = messages

    def handle(self, record: logging.LogRecord) -> bool:
        """Raise a signal for *record*, unless a filter is against it; without the lock that other handlers hold.

        A listener may wait for a thread that logs; with the lock held, each would wait for the other.
        """
        passed = self.filter(record)
        if passed:
            # From 3.12 on a filter may give another record.
            self.emit(cast("Any", passed) if isinstance(cast("object", passed), logging.LogRecord) else record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        """Raise a signal for *record*, if it is to be one."""
        if _is_raising.get():
            return
        token = _is_raising.set(True)
        try:
            if self._is_wanted(record):
                self._sink.raise_signal(_name_of(record, self._prefix), payload=self._payload_of(record))
        except Exception:  # noqa: BLE001  whoever logs must not fail by it
            self.handleError(record)
        finally:
            _is_raising.reset(token)

    @contextlib.contextmanager
    def attached(self, logger: logging.Logger | str = "") -> Generator[Self]:
        """Have the handler at *logger*, or the one of that name, while the block is open; "": the root's."""
        target = logging.getLogger(logger) if isinstance(logger, str) else logger
        target.addHandler(self)
        try:
            yield self
        finally:
            target.removeHandler(self)

    def _is_wanted(self, record: logging.LogRecord) -> bool:
        if hasattr(record, _FROM_SIGNAL) or record.name.partition(".")[0] in _OWN_LOGGERS:
            return False
        return self._pattern is None or matches_pattern(record.name, self._pattern)

    def _payload_of(self, record: logging.LogRecord) -> dict[str, Any]:
        payload: dict[str, Any] = {
            _FROM_LOG: True,
            "logger": _text(record.name),
            "level": logging.getLevelName(record.levelno),
            "file": _text(record.pathname),
            "line": record.lineno,
        }
        if record.exc_info is not None and record.exc_info[0] is not None:
            payload["exception"] = record.exc_info[0].__qualname__
        if self._messages:
            payload["message"] = _text(record.getMessage()[:_MAX_MESSAGE])
        return payload


def _name_of(record: logging.LogRecord, prefix: str) -> str:
    # By its number: some formatters put colours into the name of the level.
    level = _segment(logging.getLevelName(record.levelno).lower().replace(" ", "_"))[:_MAX_LEVEL]
    head = f"{prefix}.{level}:"
    room = _MAX_NAME_BYTES - len(head.encode())
    return head + _segment(record.name).encode()[:room].decode(errors="ignore")


def _segment(text: str) -> str:
    """Return *text* as one segment of a signal's name."""
    return "".join(letter if letter.isprintable() else "_" for letter in text).replace(":", ".") or "_"


def _text(text: str) -> str:
    """Return *text* as UTF-8 can hold it, whatever bytes of a file system are in it."""
    return text.encode(errors="replace").decode()
