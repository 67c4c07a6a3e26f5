"""What a user of the server may do: asked by commands that change nothing, whatever the answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoPermissionError

if TYPE_CHECKING:
    from ephemeral_redis._keys import Keys

SAMPLES = 11
"""Round trips that are timed."""

WRITING = frozenset(
    (
        "SET",
        "DEL",
        "PEXPIRE",
        "HSET",
        "HSETNX",
        "HINCRBY",
        "ZADD",
        "ZREMRANGEBYSCORE",
        "ZREMRANGEBYRANK",
        "XADD",
        "XTRIM",
    )
)
"""Those of a worker's commands that change something; who may use none of them is meant to look only."""


def harmless(keys: Keys) -> list[tuple[Any, ...]]:
    """Return every command that a worker and its scripts use, each in a form that changes nothing.

    Rights are checked before a command looks at what it is given. Here it finds no such key, a condition that does not
    hold, or a mistake in its arguments. The one key is used by nothing else.
    """
    key, number = keys.unused, b"not a number"
    return [
        ("EVAL", "return 0", 0),
        ("EVALSHA", "0" * 40, 0),
        ("TIME",),
        ("GET", key),
        ("SET", key, b"", "XX"),
        ("DEL", key),
        ("PEXPIRE", key, 1),
        ("HGET", key, b"f"),
        ("HSET", key, b"f", b"v", b"half a pair"),
        ("HSETNX", keys.marks, b"layout", b""),
        ("HGETALL", key),
        ("HINCRBY", key, b"f", number),
        ("ZADD", key, "XX", 0, b"m"),
        ("ZCARD", key),
        ("ZCOUNT", key, 0, 0),
        ("ZSCORE", key, b"m"),
        ("ZRANGE", key, 0, 0),
        ("ZREMRANGEBYSCORE", key, 0, 0),
        ("ZREMRANGEBYRANK", key, 0, 0),
        ("XADD", key, "NOMKSTREAM", "*", b"f", b"v"),
        ("XTRIM", key, "MAXLEN", 1),
        ("XREAD", "STREAMS", key, "0"),
        ("XRANGE", key, "-", "+"),
        ("XREVRANGE", key, "+", "-"),
    ]


async def lacking_rights(client: Any, keys: Keys) -> tuple[bool, tuple[str, ...]]:
    """Return whether this user may write at all, and which of a worker's commands it may not use.

    Raises what redis-py raises.
    """
    questions = harmless(keys)
    if not await client.hget(keys.marks, b"layout"):
        # HSETNX would set it: nobody has used the namespace, and this must not be who does.
        questions = [question for question in questions if question[0] != "HSETNX"]
    pipeline = client.pipeline(transaction=False)
    for question in questions:
        pipeline.execute_command(*question)
    answers = await pipeline.execute(raise_on_error=False)
    lacking = tuple(
        question[0]
        for question, answer in zip(questions, answers, strict=True)
        if isinstance(answer, NoPermissionError)
    )
    return not WRITING.issubset({*lacking, "HSETNX"}), lacking


async def round_trips(client: Any) -> list[float]:
    """Return how long some questions take from here, seconds; raises what redis-py raises."""
    took: list[float] = []
    for _ in range(SAMPLES):
        asked_at = time.monotonic()
        await client.time()
        took.append(time.monotonic() - asked_at)
    return took
