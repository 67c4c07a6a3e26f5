from __future__ import annotations

import threading

import anyio
import pytest

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, Operation, PriorityProcessorAtom, SignalEvent
from ephemeral.testing import MemoryBus, RecordingSink


def test_it_keeps_what_the_window_forgets() -> None:
    now = 0.0
    sink = RecordingSink(max_capacity=2, max_age=10, clock=lambda: now)
    for number in range(5):
        sink.raise_signal(f"signal.{number}", key=str(number))
    now = 100.0
    sink.clear()
    assert len(sink) == 0
    assert sink.names == [f"signal.{number}" for number in range(5)]
    assert [event.key for event in sink.recorded] == list("01234")


def test_it_returns_what_matched_for_closer_looks() -> None:
    sink = RecordingSink()
    sink.raise_signal("order.placed", payload={"items": 3})
    sink.raise_signal("order.paid")
    sink.raise_signal("order.placed", payload={"items": 1})
    assert [event.payload for event in sink.assert_raised("*.placed", times=2)] == [{"items": 3}, {"items": 1}]
    assert [event.signal for event in sink.assert_raised({"order.paid", "cart.*"})] == ["order.paid"]
    assert sink.assert_raised("cart.*", times=0) == []
    sink.assert_not_raised("cart.*")


@pytest.mark.parametrize(
    ("pattern", "times", "message"),
    [
        ("cart.*", None, "'cart.*' was raised never, not at least once; raised were: 'order.placed' x2, 'order.paid'"),
        ("*.placed", 1, "'*.placed' was raised 2 times, not once; raised were: 'order.placed' x2, 'order.paid'"),
        ("*.paid", 0, "'*.paid' was raised once, not 0 times; raised were: 'order.placed' x2, 'order.paid'"),
    ],
)
def test_what_is_missing_is_told_with_what_was_there(pattern: str, times: int | None, message: str) -> None:
    sink = RecordingSink()
    for name in ("order.placed", "order.paid", "order.placed"):
        sink.raise_signal(name)
    with pytest.raises(AssertionError) as caught:
        sink.assert_raised(pattern, times=times)
    assert str(caught.value) == message


def test_a_message_is_short_however_much_was_raised() -> None:
    sink = RecordingSink()
    with pytest.raises(AssertionError, match="nothing was raised at all"):
        sink.assert_raised("*")
    for number in range(25):
        sink.raise_signal(f"signal.{number}")
    with pytest.raises(AssertionError, match=r"'signal\.19' and 5 other names$"):
        sink.assert_raised("order.*")
    with pytest.raises(AssertionError, match=r"'\*' was raised 25 times, not 0 times"):
        sink.assert_not_raised("*")


def test_a_question_that_makes_no_sense_is_no_failed_assertion() -> None:
    sink = RecordingSink()
    with pytest.raises(ValueError, match="times must be at least 0, not -1"):
        sink.assert_raised("*", times=-1)
    with pytest.raises(ValueError, match="pattern"):
        sink.assert_raised("a,,b")


def test_it_begins_anew_and_keeps_the_window() -> None:
    sink = RecordingSink()
    sink.raise_signal("arranged")
    sink.forget()
    sink.raise_signal("acted")
    assert sink.names == ["acted"]
    assert sink.detect("arranged")


async def test_it_serves_coordinators_and_ladders() -> None:
    async def body(item: str, op: Operation) -> None:
        op.emit(f"sent:{item}")

    async def process(item: str) -> None:
        raise ConnectionError(item)

    async with (
        RecordingSink() as sink,
        EphemeralWorkCoordinator(body, EphemeralOptions(signals=sink)) as work,
        PriorityProcessorAtom(1, process, sink, failure_threshold=1) as atom,
    ):
        await work.enqueue("mail")
        await atom.enqueue("widget")
        await atom.drain()
    sink.assert_raised("sent:mail", times=1)
    sink.assert_raised("failover.requested:*", times=1)


async def test_it_keeps_what_a_bus_brings() -> None:
    async with (
        MemoryBus() as bus,
        RecordingSink(backend=bus.backend()) as here,
        RecordingSink(backend=bus.backend()) as there,
    ):
        there.raise_signal("order.placed")
        await anyio.sleep(1)
    [event] = here.assert_raised("order.placed", times=1)
    assert event.origin == there.origin


def test_it_is_told_from_any_thread_and_before_other_listeners() -> None:
    def listen(event: SignalEvent) -> None:
        heard.append(sink.names.count(event.signal))

    heard: list[int] = []
    sink = RecordingSink()
    sink.subscribe(listen)
    threads = [threading.Thread(target=sink.raise_signal, args=(f"signal.{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sink.names) == [f"signal.{number}" for number in range(8)]
    assert heard == [1] * 8
