"""What a signal may carry to other processes: checked where it is raised, so that it can never fail on the way."""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 8
"""How many containers may lie within each other."""

MAX_PACKED_BYTES = 64 * 1024
"""Largest payload as msgpack packs it."""

MAX_PATH_BYTES = 32 * 1024
"""Longest way of signals that led to one: 64 of the longest names."""

_TYPES = "None, bool, 64-bit int, float, str, bytes, and lists, tuples and string-keyed dicts of these"


def portable_payload(signal: str, payload: object) -> Any:
    """Return *payload* as other processes will get it: a copy, tuples as lists, subclasses as their base type.

    A copy, because the payload leaves later than it is raised and its owner may change it meanwhile. Its size is that
    of its msgpack form, which is counted here and not packed: a bus within one process has no use for the bytes.

    Args:
        signal: The signal that carries it, for the message.
        payload: What the user gave.

    Raises:
        TypeError: Something in it is of another type than None, bool, int, float, str, bytes, list, tuple or dict, or a
            key of a dict is no string.
        ValueError: It is nested more than 8 deep, packs to more than 64 KiB, or holds an int beyond 64 bits (signed) or
            a string that UTF-8 cannot write.
    """
    if payload is None:
        return None
    size = _Size(signal)
    return _copy(payload, size, MAX_DEPTH)


class _Size:
    """Counts packed bytes up to the limit, and words the refusals."""

    __slots__ = ("_left", "signal")

    def __init__(self, signal: str) -> None:
        self.signal = signal
        self._left = MAX_PACKED_BYTES

    def add(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise ValueError(
                f"the payload of {self.signal!r} packs to more than {MAX_PACKED_BYTES} bytes; "
                "send a reference to the data instead of the data"
            )


def _copy(value: object, size: _Size, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        size.add(1)
        return value
    if isinstance(value, str):
        return _text(value, size)
    if isinstance(value, int):
        return _whole(value, size)
    if isinstance(value, float):
        size.add(9)
        return float(value)
    if isinstance(value, bytes):
        size.add(len(value) + _head(len(value), small=-1, byte=True))
        return bytes(value)
    if isinstance(value, list | tuple | dict):
        return _container(value, size, depth)  # pyright: ignore[reportUnknownArgumentType]  what it holds is checked there
    raise TypeError(
        f"the payload of {size.signal!r} holds a value of type {type(value).__name__}; a bus carries {_TYPES}"
    )


def _container(value: list[Any] | tuple[Any, ...] | dict[Any, Any], size: _Size, depth: int) -> Any:
    if depth == 0:
        raise ValueError(f"the payload of {size.signal!r} is nested more than {MAX_DEPTH} deep; flatten it")
    size.add(_head(len(value), small=15, byte=False))
    if not isinstance(value, dict):
        return [_copy(item, size, depth - 1) for item in value]
    copy: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(
                f"the payload of {size.signal!r} has the key {key!r} of type {type(key).__name__}; "
                "keys of dicts are strings on a bus"
            )
        copy[_text(key, size)] = _copy(item, size, depth - 1)
    return copy


def _text(value: str, size: _Size) -> str:
    try:
        length = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"the payload of {size.signal!r} holds {value!r:.80}, which UTF-8 cannot write") from None
    size.add(length + _head(length, small=31, byte=True))
    return str.__str__(value)


def _whole(value: int, size: _Size) -> int:
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"the payload of {size.signal!r} holds an int beyond 64 bits; send it as a string")
    if value < 0:
        size.add(
            1 if value >= -32 else 2 if value >= -128 else 3 if value >= -(1 << 15) else 5 if value >= -(1 << 31) else 9
        )
    else:
        size.add(1 if value < 128 else 2 if value < 256 else 3 if value < 1 << 16 else 5 if value < 1 << 32 else 9)
    return int(value)


def _head(length: int, *, small: int, byte: bool) -> int:
    """Return the bytes that msgpack writes before *length* items: type and length, in the shortest form there is."""
    if length <= small:
        return 1
    if byte and length < 1 << 8:
        return 2
    return 3 if length < 1 << 16 else 5


def check_portable_key(signal: str, key: str) -> None:
    """Raise unless other processes can be told *key*.

    Raises:
        ValueError: It holds what UTF-8 cannot write, or takes more than 64 KiB.
    """
    try:
        size = len(key) if key.isascii() else len(key.encode())
    except UnicodeEncodeError:
        raise ValueError(f"the key of {signal!r} is {key!r:.80}, which UTF-8 cannot write") from None
    if size > MAX_PACKED_BYTES:
        raise ValueError(f"the key of {signal!r} takes {size} bytes, more than {MAX_PACKED_BYTES}; shorten it")


def check_portable_path(signal: str, path: tuple[str, ...]) -> None:
    """Raise unless other processes can be told what led to *signal*.

    Raises:
        ValueError: Its names take more than 32 KiB together.
    """
    size = sum(len(name) if name.isascii() else len(name.encode()) for name in path)
    if size > MAX_PATH_BYTES:
        raise ValueError(
            f"the {len(path)} signals that led to {signal!r} take {size} bytes, more than {MAX_PATH_BYTES}; cut such"
            " chains with a max_depth in SignalConstraints"
        )
