"""What stands on the wire: batches of signals, and rows of the health table.

Everything read here may have been written by anybody who may write the namespace, so it is bounded before it is
unpacked, and every field is checked. What is wrong raises `UndecodableError` and nothing else.
"""

from __future__ import annotations

import math
import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgpack  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  it ships no types

from ephemeral import SignalPropagation
from ephemeral.abc import HealthRecord, Lease, SharedRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ephemeral.abc import SignalRecord

LAYOUT = 1
"""What each key holds, and what all versions may rely on: the heads of rows, ``p`` and ``r`` of control entries. A
namespace of a newer one is refused."""

VERSION = b"1"
"""Of what this writes into the streams of signals. Fields may be added under the same version, for what is not known is
passed over; a change in what a known field means takes a new one."""

HEALTH_VERSION = b"1"
"""The same of rows of the health table and of control entries."""

FULL_BODY_BYTES = 128 * 1024
"""A batch takes no further signal once its body is larger."""

MAX_BODY_BYTES = FULL_BODY_BYTES + 192 * 1024
"""Largest body of an entry: its last signal may bring 64 KiB of key, 64 KiB of payload, its name and what led to it."""

MAX_BATCH_SIGNALS = 256
"""Largest batch: it keeps the server busy for 1.3 ms; and `unpack` in Lua fails near 8 000 slots, two per signal."""

MAX_PAYLOAD_BYTES = 64 * 1024
MAX_PATH_BYTES = 32 * 1024
_MAX_DEPTH = 8
_HEAD = re.compile(rb"(\d{1,18}):\d+:[a-z]:", re.ASCII)
_MAX_AGE_MS = 0xFFFFFFFF
_LAST_INSTANT = 253_000_000_000.0
_pack: Callable[[Any], bytes] = msgpack.packb  # pyright: ignore[reportAssignmentType, reportUnknownMemberType, reportUnknownVariableType]  as above; None only from a stream
_unpackb: Callable[..., Any] = msgpack.unpackb  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  as above
_LIMITS: dict[str, Any] = {
    "raw": False,
    "strict_map_key": True,
    "max_ext_len": 0,
    "max_str_len": MAX_PAYLOAD_BYTES,
    "max_bin_len": MAX_PAYLOAD_BYTES,
    "max_array_len": MAX_PAYLOAD_BYTES,
    "max_map_len": MAX_PAYLOAD_BYTES // 2,
}


class UndecodableError(Exception):
    """Bytes on the bus that are not what this version writes."""


class NewerError(UndecodableError):
    """Bytes on the bus that a newer version of this library wrote."""


class Entry(NamedTuple):
    """One entry of a signal stream.

    Attributes:
        origin: Who sent it, 16 hexadecimal digits.
        position: How many signals it sent into this stream before.
        is_first: Whether it is the sender's first entry in this stream.
        records: Its signals, as raised.
    """

    origin: str
    position: int
    is_first: bool
    records: list[SignalRecord]


Outgoing: TypeAlias = "tuple[SignalRecord, bytes | None]"
"""A signal on its way out, and its payload as packed; a plain tuple, being made for each signal."""


def pack(value: Any) -> bytes:
    """Pack a value."""
    return _pack(value)


def unpack(packed: bytes) -> Any:
    """Return a value, bounded in what it may hold; raises whatever msgpack finds for bytes that are none."""
    return _unpackb(packed, **_LIMITS)


def outgoing(record: SignalRecord) -> Outgoing:
    """Pack the payload of *record*, which is portable."""
    payload = record[4]
    return record, None if payload is None else _pack(payload)


def body_bytes(signal: Outgoing) -> int:
    """Return at least the bytes that *signal* takes in a body."""
    (name, _, key, _, _, propagation, _), payload = signal
    # A character takes at most four bytes; the rest are heads, the place and the operation id.
    size = 40 + 4 * len(name)
    if key is not None:
        size += 4 * len(key)
    if payload is not None:
        size += len(payload)
    if propagation is not None:
        size += sum(3 + 4 * len(step) for step in propagation.path)
    return size


def pack_body(placed: Sequence[tuple[int, Outgoing]]) -> bytes:
    """Pack signals, each with its place in the order they were raised; they lie in the sender's grouping."""
    return _pack(
        [
            # What led to it is a field of its own, which most signals are spared.
            (place, name, key, operation_id, payload)
            if propagation is None
            else (place, name, key, operation_id, payload, propagation.path)
            for place, ((name, operation_id, key, _, _, propagation, _), payload) in placed
        ]
    )


def pack_ages(stamps: Sequence[float], now: float) -> bytes:
    """Pack the ages of *stamps* as milliseconds, 4 bytes each; what lies ahead is now."""
    ages = [int((now - stamp) * 1000 + 0.5) for stamp in stamps]
    if min(ages) < 0 or max(ages) > _MAX_AGE_MS:
        ages = [min(max(age, 0), _MAX_AGE_MS) for age in ages]
    return struct.pack(f">{len(ages)}I", *ages)


def unpack_entry(entry_id: bytes, fields: Mapping[bytes, bytes], shift: float = 0.0) -> Entry:
    """Return what an entry holds, in the order in which it was raised.

    Args:
        entry_id: Its id, which tells the server's time in ms.
        fields: Its fields.
        shift: Seconds from the server's clock to the reader's, for the stamps.

    Raises:
        UndecodableError: Its version is another one, it breaks a limit, or is no entry of ours at all.
    """
    try:
        return _unpack_entry(entry_id, fields, shift)
    except UndecodableError:
        raise
    except Exception as error:  # noqa: BLE001  hostile bytes find every error there is
        raise UndecodableError(f"{type(error).__name__}: {error}") from None


def _unpack_entry(entry_id: bytes, fields: Mapping[bytes, bytes], shift: float) -> Entry:
    check_version(fields[b"v"], VERSION)
    body, ages, origin_bytes = fields[b"b"], fields[b"a"], fields[b"o"]
    count, position = int(fields[b"n"]), int(fields[b"q"])
    if len(body) > MAX_BODY_BYTES or len(origin_bytes) != 8 or not 0 < count <= MAX_BATCH_SIGNALS or position < 0:
        raise UndecodableError("beyond the limits")
    items: list[Any] = _unpackb(body, **_LIMITS)
    if len(ages) != 4 * count or len(items) != count:
        raise UndecodableError("count, ages and signals differ")
    sent_at = int(entry_id.partition(b"-")[0]) / 1000 + shift
    origin = origin_bytes.hex()
    records: list[SignalRecord | None] = [None] * count
    for index, (place, signal, key, operation_id, payload, *more) in enumerate(items):
        age = int.from_bytes(ages[4 * index : 4 * index + 4], "big") / 1000
        _check(place, signal, key, operation_id)
        value = None if payload is None else unpack_payload(payload)
        propagation = _propagation(more[0]) if more else None
        records[place] = (signal, operation_id, key, sent_at - age, value, propagation, origin)
    if None in records:
        raise UndecodableError("a place is taken twice")
    return Entry(origin, position, fields.get(b"f") == b"1", records)  # type: ignore[arg-type]  # none is None


def unpack_payload(packed: Any) -> Any:
    """Return a payload.

    Raises:
        UndecodableError: It breaks a limit.
    """
    if not isinstance(packed, bytes) or len(packed) > MAX_PAYLOAD_BYTES:
        raise UndecodableError("payload beyond the limits")
    try:
        payload = _unpackb(packed, **_LIMITS)
    except Exception as error:  # noqa: BLE001  as above
        raise UndecodableError(f"payload: {type(error).__name__}") from None
    if _is_deeper(payload, _MAX_DEPTH):
        raise UndecodableError("payload nested too deep")
    return payload


def pack_record(record: HealthRecord) -> bytes:
    """Pack a record with the version it is written in.

    A row is this behind a head that scripts can read, all in text up to the record: the row's own version, its epoch,
    ``u`` or ``d``, its failures, and the version it is written in, each followed by a colon.
    """
    lease = record.lease and [record.lease.owner, record.lease.fence, record.lease.until]
    probe_at = None if math.isinf(record.probe_at) else record.probe_at
    packed = _pack(
        [
            record.since,
            record.by,
            record.state,
            record.failed_probes,
            record.good_probes,
            probe_at,
            lease,
            record.fence,
            record.last_probe_at,
        ]
    )
    return HEALTH_VERSION + b":" + packed


def unpack_row(processor: str, value: bytes) -> SharedRecord | None:
    """Return a row of the health table; None where there is none.

    Raises:
        NewerError: A newer version of this library wrote it.
        UndecodableError: It is no row of ours.
    """
    if not value:
        return None
    try:
        version, epoch, _, failures, written_in, packed = value.split(b":", 5)
        check_version(written_in, HEALTH_VERSION)
        since, by, state, failed, good, probe_at, lease, fence, last, *_ = _unpackb(packed, **_LIMITS)
        if state not in {"up", "down", "isolated"}:
            raise UndecodableError("state")  # noqa: TRY301  one handler words them all
        record = HealthRecord(
            processor,
            epoch=int(epoch),
            since=_instant(since),
            by=str(by),
            state=state,
            failures=int(failures),
            failed_probes=int(failed),
            good_probes=int(good),
            probe_at=math.inf if probe_at is None else _finite(probe_at),
            lease=lease and Lease(processor, str(lease[0]), int(lease[1]), _finite(lease[2])),
            fence=int(fence),
            last_probe_at=None if last is None else _instant(last),
        )
        return SharedRecord(int(version), record)
    except NewerError:
        raise
    except Exception as error:  # noqa: BLE001  as above
        raise UndecodableError(f"row of {processor!r}: {type(error).__name__}: {error}") from None


def known_row(processor: str, value: bytes) -> SharedRecord | None:
    """Return a row of the health table, an unreadable one if its head is all that can be read; None without even that.

    A head that cannot be read is none for the scripts either: the next decision replaces it.
    """
    try:
        return unpack_row(processor, value)
    except UndecodableError:
        head = _HEAD.match(value)
        return SharedRecord.unreadable(processor, int(head[1])) if head else None


def check_version(found: bytes, known: bytes) -> None:
    """Raise unless what is written in version *found* can be read by who knows version *known*.

    Raises:
        NewerError: It is a newer one.
        UndecodableError: It is none that ever was.
    """
    if found == known:
        return
    if found.isdigit() and len(found) < 10 and int(found) > int(known):
        raise NewerError(f"version {int(found)}, and this one knows {int(known)}")
    raise UndecodableError(f"version {found[:16]!r}")


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise UndecodableError("a time that is none")
    return number


def _instant(value: Any) -> float:
    # People are shown it as a date, and there are none beyond the year 9999.
    if not 0 <= (number := _finite(value)) < _LAST_INSTANT:
        raise UndecodableError("a time beyond all dates")
    return number


def _check(place: Any, signal: Any, key: Any, operation_id: Any) -> None:
    if place < 0:  # Python would count it from behind
        raise UndecodableError("place")
    _check_name(signal)
    if not (key is None or isinstance(key, str)) or not isinstance(operation_id, int):
        raise UndecodableError("key or operation id")


def _check_name(name: Any) -> None:
    # The names are shown by tools and matched by patterns: the rules of `raise_signal` hold for them too.
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name.encode()) <= 512:
        raise UndecodableError("name")


def _propagation(path: Any) -> SignalPropagation | None:
    if path is None:
        return None
    names: tuple[Any, ...] = tuple(path)
    if not isinstance(path, list) or len(names) > MAX_PATH_BYTES or sum(map(len, names)) > MAX_PATH_BYTES:
        raise UndecodableError("path")
    for name in names:
        _check_name(name)
    return SignalPropagation(names)


def _is_deeper(value: Any, depth: int) -> bool:
    if isinstance(value, list):
        return depth == 0 or any(_is_deeper(item, depth - 1) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  whatever was unpacked
    if isinstance(value, dict):
        return depth == 0 or any(_is_deeper(item, depth - 1) for item in value.values())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  as above
    return False


def text(raw: bytes) -> str:
    """Return a name as read from the bus; bytes that are no UTF-8 stay visible as escapes."""
    return raw.decode(errors="backslashreplace")
