"""A worker of the version of this library that comes after this one: it reads all, and writes rows in a way of its own.

It does by hand what signals ask of it, and says so on its standard output.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import anyio
import msgpack

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral.abc import HealthRecord, Lease, SharedRecord
from ephemeral_redis import RedisSignalBackend, _codec

unpack_row_of_old = _codec.unpack_row


def check_version(found, known):
    if not found.isdigit() or int(found) > int(known):
        raise _codec.UndecodableError(found)


def pack_record(record):
    lease = record.lease and {"owner": record.lease.owner, "fence": record.lease.fence, "until": record.lease.until}
    fields = {name: getattr(record, name) for name in ("since", "by", "state", "fence", "last_probe_at")}
    probe_at = None if math.isinf(record.probe_at) else record.probe_at
    return b"2:" + msgpack.packb(fields | {"lease": lease, "probe_at": probe_at, "reason": "of the newer version"})


def unpack_row(processor, value):
    if not value or value.split(b":", 5)[4] != b"2":
        return unpack_row_of_old(processor, value)
    version, epoch, _, failures, _, packed = value.split(b":", 5)
    fields = msgpack.unpackb(packed)
    fields.pop("reason")
    lease, probe_at = fields.pop("lease"), fields.pop("probe_at")
    record = HealthRecord(processor, epoch=int(epoch), failures=int(failures), **fields)
    lease = lease and Lease(processor, **lease)
    return SharedRecord(int(version), replace(record, lease=lease, probe_at=math.inf if probe_at is None else probe_at))


_codec.check_version, _codec.pack_record, _codec.unpack_row = check_version, pack_record, unpack_row
_codec.HEALTH_VERSION = _codec.VERSION = b"2"


async def works(item):
    pass


async def main(url, namespace):
    async with (
        SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace)) as sink,
        sink.listen("newer.*") as events,
        PriorityProcessorAtom(1, works, sink) as primary,
        PriorityProcessorAtom(2, works, sink),
    ):
        print("ready", flush=True)
        async for event in events:
            if event.signal == "newer.isolate":
                primary.isolate()
            elif event.signal == "newer.reset":
                primary.reset_health()
            # Told in this version's way: nobody of the old one can read it.
            sink.raise_signal("done")
            await sink.flush(5)
            print("done", primary.get_health().state, flush=True)


anyio.run(main, *sys.argv[1:])
