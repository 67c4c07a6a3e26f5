"""Signals as log records and back, and no circle between them."""

from __future__ import annotations

import copy
import logging
import logging.handlers
import pickle
import queue
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemeral import EphemeralWorkCoordinator, SignalDispatcher, SignalEvent, SignalSink
from ephemeral.testing import MemoryBus
from ephemeral_redis.telemetry.logs import SignalHandler, log_signals

LOG = logging.getLogger("telemetry.signals")
APP = logging.getLogger("telemetry.app")


class Keeper(logging.Handler):
    """Keeps every record."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def kept() -> Iterator[Keeper]:
    """What is logged under ``telemetry``."""
    keeper = Keeper()
    root = logging.getLogger("telemetry")
    root.addHandler(keeper)
    root.setLevel(logging.DEBUG)
    yield keeper
    root.removeHandler(keeper)
    root.setLevel(logging.NOTSET)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[logging.LogRecord]:
    """Records that a handler could not handle."""
    failed: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.Handler, "handleError", lambda handler, record: failed.append(record))
    return failed


def names(sink: SignalSink) -> list[str]:
    return [event.signal for event in sink.sense()]


# Signals to records


def test_a_signal_becomes_a_record_with_its_fields(kept: Keeper) -> None:
    sink = SignalSink(clock=lambda: 1000.0)
    with log_signals(sink, "order.*", logger=LOG) as subscription:
        sink.raise_signal("order.placed:100%", "customer-7", operation_id=5, payload={"card": "4111"})
        sink.raise_signal("cart.emptied")
        subscription.close()
        sink.raise_signal("order.paid")
    [record] = kept.records
    assert (record.getMessage(), record.levelno, record.name) == ("order.placed:100%", logging.INFO, LOG.name)
    extra = {name: value for name, value in vars(record).items() if name.startswith(("signal", "operation"))}
    assert extra == {
        "signal": "order.placed:100%",
        "signal_key": "customer-7",
        "signal_origin": sink.origin,
        "signal_depth": 1,
        "signal_at": 1000.0,
        "operation_id": 5,
    }
    assert "4111" not in str(vars(record))


def test_payloads_are_logged_where_they_are_asked_for(kept: Keeper) -> None:
    sink = SignalSink()
    with log_signals(sink, logger=LOG.name, payloads=True):
        sink.raise_signal("order.placed", payload={"items": 3})
    assert vars(kept.records[0])["signal_payload"] == {"items": 3}


def test_the_first_pattern_that_matches_gives_the_level(kept: Keeper) -> None:
    sink = SignalSink()
    levels = {"failover.*, *.lost": logging.WARNING, "*.lost": logging.ERROR, "*.noise": logging.DEBUG - 1}
    with log_signals(sink, logger=LOG, levels=levels):
        for name in ("failover.requested:pri1→pri2", "order.lost", "order.placed", "order.noise"):
            sink.raise_signal(name)
    assert [record.levelno for record in kept.records] == [logging.WARNING, logging.WARNING, logging.INFO]


@pytest.mark.parametrize("pattern", ["", "a,,b"])
def test_a_pattern_that_is_none_is_refused_at_once(pattern: str) -> None:
    sink = SignalSink()
    with pytest.raises(ValueError, match="pattern"):
        log_signals(sink, pattern)
    with pytest.raises(ValueError, match="pattern"):
        log_signals(sink, levels={pattern: logging.ERROR})
    with pytest.raises(ValueError, match="pattern"):
        SignalHandler(sink, pattern)
    assert sink.statistics().listeners == 0


def test_a_log_that_raises_harms_no_raiser() -> None:
    class Failing(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise OSError("disk full")

    failing = Failing()
    sink = SignalSink()
    LOG.addHandler(failing)
    try:
        with log_signals(sink, logger=LOG, level=logging.CRITICAL):
            sink.raise_signal("order.placed")
    finally:
        LOG.removeHandler(failing)
    assert names(sink) == ["order.placed"]
    assert sink.statistics().listener_errors == 1


async def test_signals_of_others_are_logged_where_that_is_asked_for(kept: Keeper) -> None:
    async with (
        MemoryBus() as bus,
        SignalSink(backend=bus.backend()) as here,
        SignalSink(backend=bus.backend()) as there,
    ):
        with log_signals(here, logger=LOG), log_signals(here, logger=LOG, level=logging.ERROR, remote=True):
            there.raise_signal("order.placed")
            await here.wait_for("*")
            here.raise_signal("order.paid")
    assert [(record.getMessage(), record.levelname) for record in kept.records] == [
        ("order.placed", "ERROR"),
        ("order.paid", "INFO"),
        ("order.paid", "ERROR"),
    ]


# Records to signals


def test_a_record_becomes_a_signal(kept: Keeper) -> None:
    sink = SignalSink()
    with SignalHandler(sink).attached("telemetry"):
        APP.info("too low")
        APP.warning("card %s refused", "4111")
        try:
            raise KeyError("secret")
        except KeyError:
            APP.exception("failed")
    APP.error("nobody listens")
    warned, failed = sink.sense()
    assert (warned.signal, failed.signal) == ("log.warning:telemetry.app", "log.error:telemetry.app")
    assert (warned.payload["logger"], warned.payload["level"]) == ("telemetry.app", "WARNING")
    assert warned.payload["file"] == __file__
    assert warned.payload["line"] + 4 == failed.payload["line"]
    assert failed.payload["exception"] == "KeyError"
    assert not any(secret in str(event.payload) for event in (warned, failed) for secret in ("4111", "secret"))
    assert len(kept.records) == 4  # other handlers have them all the same


def test_messages_travel_where_they_are_asked_for(kept: Keeper) -> None:
    sink = SignalSink()
    with SignalHandler(sink, "telemetry.app", level=logging.INFO, prefix="worker", messages=True).attached():
        LOG.error("of another logger")
        APP.info("%s", "x" * 2000)
    [event] = sink.sense()
    assert event.signal == "worker.info:telemetry.app"
    assert event.payload["message"] == "x" * 1000


def test_filters_of_the_handler_decide_too(kept: Keeper) -> None:
    sink = SignalSink()
    handler = SignalHandler(sink)
    handler.addFilter(lambda record: "noise" not in record.getMessage())
    with handler.attached("telemetry"):
        APP.error("noise")
        APP.error("news")
    assert names(sink) == ["log.error:telemetry.app"]


def record_of(**fields: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "app", "levelno": logging.ERROR, "msg": "m", **fields})


@given(
    name=st.text(max_size=600),
    level=st.integers(0, 60),
    prefix=st.sampled_from(["log", "a:b", "ä" * 100]),
    path=st.text(),
    message=st.text(),
)
def test_whatever_a_record_holds_its_signal_is_safe(
    name: str, level: int, prefix: str, path: str, message: str
) -> None:
    sink = SignalSink()
    handler = SignalHandler(sink, level=0, prefix=prefix, messages=True)
    assert handler.handle(record_of(name=name, levelno=level, pathname=path, msg=message))
    [event] = sink.sense()
    assert event.signal.startswith(f"{prefix}.")
    assert event.signal.count(":") == prefix.count(":") + 1
    assert str(event.payload).encode()


async def test_what_a_bus_would_refuse_in_a_record_travels_as_text() -> None:
    odd = b"\xff".decode(errors="surrogateescape")
    async with MemoryBus() as bus, SignalSink(backend=bus.backend()) as sink:
        assert SignalHandler(sink, messages=True).handle(record_of(name=f"app{odd}", pathname=odd, msg=odd))
        [event] = sink.sense()
    assert event.signal == "log.error:app_"
    assert (event.payload["logger"], event.payload["file"], event.payload["message"]) == ("app?", "?", "?")


@pytest.mark.parametrize("letter", ["x", "ä", "漢", "🔥"])
def test_the_name_of_a_logger_is_cut_where_a_signal_ends(letter: str) -> None:
    sink = SignalSink()
    SignalHandler(sink).handle(record_of(name=f"app.{letter * 600}"))
    [event] = sink.sense()
    assert event.signal.startswith(f"log.error:app.{letter * 100}")
    assert 512 - len(letter.encode()) < len(event.signal.encode()) <= 512


def test_colours_in_the_name_of_a_level_do_not_reach_the_signal() -> None:
    sink = SignalSink()
    SignalHandler(sink).handle(record_of(levelname="\x1b[31mERROR\x1b[0m"))
    SignalHandler(sink).handle(record_of(levelno=35))
    assert names(sink) == ["log.error:app", "log.level_35:app"]


def test_a_prefix_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="prefix must take at most 200 bytes of UTF-8, not 201"):
        SignalHandler(SignalSink(), prefix="x" * 201)
    with pytest.raises(ValueError, match="unprintable"):
        SignalHandler(SignalSink(), prefix="a\nb")


@pytest.mark.parametrize("fields", [{"msg": "%d", "args": ("x",)}, {"exc_info": True}, {"name": None}], ids=str)
def test_a_record_that_cannot_be_told_is_shown_and_harms_nobody(
    fields: dict[str, Any], shown: list[logging.LogRecord]
) -> None:
    sink = SignalSink()
    record = record_of(**fields)
    SignalHandler(sink, messages=True).handle(record)
    assert shown == [record]
    assert names(sink) == []


def test_a_handler_that_is_detached_twice_is_no_mistake(kept: Keeper) -> None:
    sink = SignalSink()
    handler = SignalHandler(sink)
    with handler.attached(APP):
        APP.removeHandler(handler)
    handler.close()
    handler.close()
    APP.error("nobody listens")
    assert names(sink) == []


def test_a_listener_may_wait_for_a_thread_that_logs(kept: Keeper) -> None:
    """With the lock that handlers hold each would wait for the other."""
    sink = SignalSink()

    def log_elsewhere(event: SignalEvent) -> None:
        if event.payload["line"] and threading.current_thread() is threading.main_thread():
            thread = threading.Thread(target=APP.error, args=("from the thread",))
            thread.start()
            thread.join(10)
            ended.append(not thread.is_alive())

    ended: list[bool] = []
    sink.subscribe(log_elsewhere)
    with SignalHandler(sink).attached("telemetry"):
        APP.error("from here")
    assert ended == [True]
    assert names(sink) == ["log.error:telemetry.app"] * 2


# No circles


def test_both_bridges_on_one_sink_and_one_logger_end(kept: Keeper) -> None:
    sink = SignalSink()
    with log_signals(sink, logger=LOG, level=logging.ERROR), SignalHandler(sink).attached(""):
        sink.raise_signal("order.lost")
        APP.error("failed")
    assert names(sink) == ["order.lost", "log.error:telemetry.app"]
    assert kept.messages == ["order.lost", "failed"]


def test_two_sinks_bridged_both_ways_end(kept: Keeper) -> None:
    one, two = SignalSink(), SignalSink()
    with (
        log_signals(one, logger=LOG, level=logging.ERROR),
        log_signals(two, logger=LOG, level=logging.ERROR),
        SignalHandler(one).attached(""),
        SignalHandler(two).attached(""),
    ):
        one.raise_signal("order.lost")
        APP.error("failed")
    assert names(one) == ["order.lost", "log.error:telemetry.app"]
    assert names(two) == ["log.error:telemetry.app"]
    assert kept.messages == ["order.lost", "failed"]


async def test_workers_bridged_both_ways_end_through_the_bus(kept: Keeper) -> None:
    async with (
        MemoryBus() as bus,
        SignalSink(backend=bus.backend()) as one,
        SignalSink(backend=bus.backend()) as two,
    ):
        with (
            log_signals(one, logger=LOG, level=logging.ERROR, remote=True),
            log_signals(two, logger=LOG, level=logging.ERROR, remote=True),
            SignalHandler(one).attached(""),
        ):
            one.raise_signal("order.lost")
            APP.error("failed")
            await anyio.sleep(10)
    assert names(one) == names(two) == ["order.lost", "log.error:telemetry.app"]
    assert sorted(kept.messages) == ["failed", "order.lost", "order.lost"]


def test_a_record_remembers_that_it_was_a_signal_through_queues_and_pickles(kept: Keeper) -> None:
    sink = SignalSink()
    with log_signals(sink, logger=LOG, level=logging.ERROR, payloads=True):
        sink.raise_signal("order.lost", payload={"a": 1})
    [record] = kept.records
    records: queue.SimpleQueue[Any] = queue.SimpleQueue()
    logging.handlers.QueueHandler(records).handle(copy.copy(record))
    for again in (records.get(), pickle.loads(pickle.dumps(record)), logging.makeLogRecord(vars(record))):
        SignalHandler(sink).handle(again)
    assert names(sink) == ["order.lost"]


def test_a_thread_between_the_bridges_closes_no_circle(kept: Keeper) -> None:
    sink = SignalSink()
    records: queue.SimpleQueue[Any] = queue.SimpleQueue()
    listener = logging.handlers.QueueListener(records, SignalHandler(sink))
    through_queue = logging.handlers.QueueHandler(records)
    root = logging.getLogger("telemetry")
    root.addHandler(through_queue)
    try:
        with log_signals(sink, logger=LOG, level=logging.ERROR):
            listener.start()
            sink.raise_signal("order.lost")
            APP.error("failed")
            listener.stop()  # once all records are handled
    finally:
        root.removeHandler(through_queue)
    assert names(sink) == ["order.lost", "log.error:telemetry.app"]


def test_a_listener_that_logs_what_it_is_told_ends(kept: Keeper) -> None:
    sink = SignalSink()
    sink.subscribe(lambda event: APP.error("heard %s", event.signal))
    with SignalHandler(sink).attached(""):
        APP.error("failed")
        sink.raise_signal("order.lost")
    heard_again = "heard log.error:telemetry.app"
    # What a listener logs of another signal becomes one; what it logs of that in turn does not.
    assert kept.messages == ["failed", heard_again, "heard order.lost", heard_again]
    assert names(sink) == ["log.error:telemetry.app", "order.lost", "log.error:telemetry.app"]


async def test_work_that_a_log_signal_causes_closes_no_circle(kept: Keeper) -> None:
    async def body(item: str) -> None:
        APP.error("%s went wrong", item)

    async with SignalSink() as sink, EphemeralWorkCoordinator(body) as work:
        sink.subscribe(lambda event: work.try_enqueue(event.signal), "log.*")
        with SignalHandler(sink).attached(""):
            APP.error("failed")
            await anyio.sleep(10)
            await work.enqueue("other work")
            await anyio.sleep(10)
    assert work.total_completed == 3
    assert names(sink) == ["log.error:telemetry.app"] * 2


def test_what_the_library_logs_of_a_failing_listener_becomes_no_signal(kept: Keeper) -> None:
    def fail(event: SignalEvent) -> None:
        raise ValueError(event.signal)

    sink = SignalSink()
    sink.subscribe(fail)
    with SignalHandler(sink).attached(""):
        APP.error("failed")
    assert names(sink) == ["log.error:telemetry.app"]
    assert sink.statistics().listener_errors == 1


async def test_a_failing_async_handler_of_log_signals_ends_too(kept: Keeper) -> None:
    async def fail(event: SignalEvent) -> None:
        raise ValueError(event.signal)

    async with SignalSink() as sink, SignalDispatcher() as dispatcher:
        dispatcher.register("*", fail)
        dispatcher.attach(sink)
        with SignalHandler(sink).attached(""):
            APP.error("failed")
            await dispatcher.flush()
    assert names(sink) == ["log.error:telemetry.app"]
    assert dispatcher.statistics().failed == 1
