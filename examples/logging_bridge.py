"""Signals in the log that is there already, and errors of any library as signals that steer the work.

Run it: ``python examples/logging_bridge.py``. A database driver logs that it lost its connection; that record becomes a
signal, the signal holds the work back, and all of it stands in one structured log. Only the standard library is needed.
"""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import anyio

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, SignalSink
from ephemeral_redis.telemetry.logs import SignalHandler, log_signals

DRIVER = logging.getLogger("shop.db")


class JsonLines(logging.Formatter):
    """Writes a record as a line of JSON, with the fields that a signal gives it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {"level": record.levelname, "logger": record.name, "message": record.getMessage()}
        return json.dumps(
            line | {name: value for name, value in vars(record).items() if name in {"signal", "signal_key"}}
        )


async def main() -> None:
    """Lose the database for a moment, while there is work."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    saved: list[str] = []

    async def save(order: str) -> None:
        saved.append(order)

    async with SignalSink() as sink:
        options = EphemeralOptions(
            signals=sink, defer_on_signals="log.error:shop.db", resume_on_signals="db.back", defer_check_interval=60
        )
        with (
            log_signals(sink, "db.*, order.*", levels={"order.lost": logging.ERROR}),
            SignalHandler(sink, "shop.*", level=logging.ERROR).attached(),
        ):
            async with EphemeralWorkCoordinator(save, options) as work:
                DRIVER.error("lost the connection to %s", "10.0.0.7")
                await work.enqueue("order-1")
                await anyio.sleep(0.05)
                held = list(saved)
                sink.raise_signal("order.lost", key="order-0")
                sink.raise_signal("db.back")

    records = [json.loads(line) for line in log.getvalue().splitlines()]
    print(log.getvalue(), end="")
    print(f"held back: {held}, saved in the end: {saved}")
    assert (held, saved) == ([], ["order-1"])
    assert [record["message"] for record in records] == ["lost the connection to 10.0.0.7", "order.lost", "db.back"]
    assert records[1] == {
        "level": "ERROR",
        "logger": "ephemeral.signals",
        "message": "order.lost",
        "signal": "order.lost",
        "signal_key": "order-0",
    }
    assert [event.signal for event in sink.sense()] == ["log.error:shop.db", "order.lost", "db.back"]


if __name__ == "__main__":
    anyio.run(main)
