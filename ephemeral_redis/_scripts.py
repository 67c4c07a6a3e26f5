"""The Lua scripts: where they are kept, and how each is called.

What a script does, and what its KEYS, ARGV and reply are, stands at its head in ``lua/``. Every call may be repeated
after an answer was lost: none counts or changes anything twice. And none that writes is carried out after its caller
has given it up: what a network delivers late would be dated wrong, or undo what was decided since.
"""

from __future__ import annotations

import hashlib
import time
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from . import _codec
from ._client import CALL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ephemeral.abc import HealthRecord, HealthRules, SharedRecord, Swap

    from ._batch import Batch
    from ._clock import BusClock
    from ._keys import Keys


class Script:
    """One script, called by its hash and sent in full where the server does not know it.

    Args:
        name: Its file in ``lua/``, without the suffix.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = resources.files("ephemeral_redis").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
        # The server's name for it, no protection of anything.
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    async def __call__(self, client: Any, keys: Sequence[bytes], arguments: Sequence[Any]) -> Any:
        """Run it; raises what redis-py raises, and is a cancellation point."""
        try:
            return await client.evalsha(self.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            # After a restart, a failover or SCRIPT FLUSH. EVAL, not SCRIPT LOAD: one trip, to the right node.
            return await client.eval(self.text, len(keys), *keys, *arguments)


@cache
def script(name: str) -> Script:
    """Return the script of that name, read once."""
    return Script(name)


class Answer(NamedTuple):
    """What the server says to a report.

    Attributes:
        is_counted: Whether it counted; not if the processor is down, or its epoch is another one.
        failures: How many are counted now, or took the processor down.
        server_time: The server's clock, epoch seconds.
        row: The processor's row, as it now is.
    """

    is_counted: bool
    failures: int
    server_time: float
    row: SharedRecord | None

    @property
    def is_up(self) -> bool:
        """Whether work may go to the processor still."""
        return self.row is None or self.row.record.is_up


class Snapshot(NamedTuple):
    """The health table at one instant.

    Attributes:
        control_id: Id of the last control entry before it.
        server_time: The server's clock, epoch seconds.
        rows: Processor to its row, still packed.
    """

    control_id: bytes
    server_time: float
    rows: dict[str, bytes]


class Bounds(NamedTuple):
    """What the bus keeps.

    Attributes:
        retention: Seconds.
        capacity: Signals in each stream and each scope.
    """

    retention: float
    capacity: int


class Evidence(NamedTuple):
    """How calls ended, each with a member of its own and its age.

    Attributes:
        members: 14 bytes each.
        ages: Microseconds each.
    """

    members: Sequence[bytes]
    ages: Sequence[int]

    def packed(self) -> tuple[bytes, bytes]:
        """Return both as the script takes them."""
        return b"".join(self.members), b"".join([max(age, 0).to_bytes(8, "big") for age in self.ages])

    def later(self, seconds: float) -> Evidence:
        """Return the same as it is *seconds* later."""
        return Evidence(self.members, [age + int(seconds * 1e6) for age in self.ages])


class Calls(NamedTuple):
    """The calls of one sender. Each raises what redis-py raises, and is a cancellation point.

    Attributes:
        client: A redis-py client.
        keys: The namespace.
        origin: The sender, 8 bytes.
        clock: The server's time, as far as it is known; learns from refusals.
        patience: Seconds after which the client gives a call up.
    """

    client: Any
    keys: Keys
    origin: bytes
    clock: BusClock
    patience: float = CALL_SECONDS

    async def publish(
        self, batch: Batch, bounds: Bounds, *, now: float, shallow: Sequence[str] = (), deep: Sequence[str] = ()
    ) -> tuple[bool, float]:
        """Send a batch; return whether it was applied now, not before, and the server's time.

        Args:
            batch: What to send.
            bounds: What the bus keeps.
            now: The clock of the batch's stamps.
            shallow: Scopes of one segment to keep known.
            deep: Scopes of two segments to keep known.
        """
        keys = self.keys
        key_list = [keys.last_batch(self.origin), keys.marks, keys.signals, keys.items, keys.shallow, keys.deep]
        key_list += [keys.scope(scope) for scope in batch.scopes]

        def arguments(waited: float) -> list[Any]:
            return [
                *(batch.serial, int(bounds.retention * 1000), bounds.capacity, _codec.VERSION, self.origin),
                *(batch.members, batch.ages(now + waited), batch.ranges),
                *(*batch.signals, *batch.items),
                *(len(shallow), *shallow, *deep),
            ]

        is_new, server_us = await self._timely("publish", key_list, arguments)
        return bool(is_new), int(server_us) / 1e6

    async def report(
        self,
        processor: str,
        epoch: int,
        rules: HealthRules,
        *,
        failures: Evidence,
        successes: Evidence,
        down: HealthRecord,
    ) -> Answer:
        """Report how calls of one processor ended that started in one epoch.

        Args:
            processor: Who was called.
            epoch: That of the row when the calls started; 0: there was no row.
            rules: The caller's rules, by which the server judges.
            failures: Those that failed.
            successes: Those that ended well.
            down: What to put into the table if that is too much.
        """

        def arguments(waited: float) -> list[Any]:
            return [
                *(processor, self.origin, epoch),
                *(*failures.later(waited).packed(), *successes.later(waited).packed()),
                *(rules.policy, int(rules.failure_window * 1e6), rules.failure_threshold),
                *(repr(rules.failure_rate), rules.minimum_calls, rules.quorum),
                *(down.epoch, _codec.pack_record(down)),
            ]

        verdict, count, server_us, row = await self._timely("report", self._health(processor), arguments)
        return Answer(verdict != 0, count, int(server_us) / 1e6, _codec.known_row(processor, row))

    async def swap(self, swap: Swap) -> tuple[bool, float, SharedRecord | None]:
        """Offer a decision; return whether it was taken, the server's time, and the row as it now is."""
        record = swap.record
        arguments = [
            *(record.processor, self.origin, swap.expected, swap.cause),
            *(record.epoch, "u" if record.is_up else "d", record.failures, _codec.pack_record(record)),
            swap.version,
        ]
        is_done, server_us, row = await self._timely("swap", self._health(record.processor), lambda _: arguments)
        return bool(is_done), int(server_us) / 1e6, _codec.known_row(record.processor, row)

    async def enrol(self, record: bytes, *, lifetime: float, limit: int) -> None:
        """Have the roster hold *record* for *lifetime* seconds, among at most *limit*; empty: take it out."""
        keys = [self.keys.roster, self.keys.record(self.origin)]
        await script("roster")(self.client, keys, [self.origin, record, int(lifetime * 1000), limit])

    async def snapshot(self) -> Snapshot:
        """Return the health table and the place from which to follow it."""
        keys = self.keys
        control_id, server_us, *rows = await script("snapshot")(self.client, [keys.health, keys.control], [])
        table = {_codec.text(name): value for name, value in zip(rows[::2], rows[1::2], strict=True)}
        return Snapshot(control_id, int(server_us) / 1e6, table)

    async def _timely(
        self, name: str, keys: Sequence[bytes], arguments: Callable[[float], Sequence[Any]]
    ) -> Sequence[Any]:
        """Run a script, unless it is late; who still waits then knew the server's time wrong, and runs it again.

        Args:
            name: Which one.
            keys: Its keys.
            arguments: Returns its arguments, given how many seconds this has taken already.
        """
        began_at = time.monotonic()
        while True:
            asked_at = time.monotonic()
            latest = f"{(self.clock.now() + self.patience) * 1e6:.0f}"
            try:
                reply: Sequence[Any] = await script(name)(self.client, keys, [*arguments(asked_at - began_at), latest])
            except ResponseError as error:
                word, _, server_us = str(error).partition(" ")
                if word != "LATE":
                    raise
                self.clock.learn(int(server_us) / 1e6, asked_at=asked_at, answered_at=time.monotonic())
            else:
                return reply

    def _health(self, processor: str) -> list[bytes]:
        keys = self.keys
        return [keys.health, keys.control, keys.failures(processor), keys.successes(processor)]
