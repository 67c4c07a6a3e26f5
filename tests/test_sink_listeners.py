"""Who is told, in which order, and that nobody is harmed by a listener."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ephemeral import SignalEvent, SignalSink
from ephemeral._listeners import _under_way


@pytest.fixture
def sink() -> SignalSink:
    return SignalSink()


def test_listeners_are_called_in_order_after_the_event_is_stored(sink: SignalSink) -> None:
    calls: list[tuple[str, str, bool]] = []
    for name in ("first", "second", "third"):
        sink.subscribe(lambda event, name=name: calls.append((name, event.signal, sink.detect(event.signal))))
    sink.raise_signal("a")
    assert calls == [("first", "a", True), ("second", "a", True), ("third", "a", True)]


def test_listeners_share_one_event_with_all_it_carries(sink: SignalSink) -> None:
    seen: list[SignalEvent] = []
    sink.subscribe(seen.append)
    sink.subscribe(seen.append)
    payload = object()
    sink.raise_signal("a", "k", operation_id=3, payload=payload)
    sink.raise_signal(SignalEvent("b", timestamp=5.0, origin="there"))
    first, again, second, _ = seen
    assert first is again
    assert isinstance(first, SignalEvent)
    assert isinstance(second, SignalEvent)
    assert first == sink.sense("a")[0]
    assert (first.key, first.operation_id, first.payload, first.origin) == ("k", 3, payload, sink._origin)
    assert (second.timestamp, second.origin) == (5.0, "there")


def test_a_pattern_chooses(sink: SignalSink) -> None:
    seen: list[str] = []
    sink.subscribe(lambda event: seen.append(event.signal), "a:*, c")
    sink.subscribe(lambda event: seen.append(event.signal.upper()), {"c"})
    for name in ("a:1", "b", "c", "A:2"):
        sink.raise_signal(name)
    assert seen == ["a:1", "c", "C"]


def test_a_subscription_ends_once_and_for_all(sink: SignalSink) -> None:
    seen: list[str] = []
    with sink.subscribe(lambda event: seen.append(event.signal)) as subscription:
        sink.raise_signal("inside")
        assert sink.statistics().listeners == 1
    sink.raise_signal("outside")
    subscription.close()
    subscription.close()
    assert seen == ["inside"]
    assert sink.statistics().listeners == 0


def test_the_same_listener_may_subscribe_twice_and_each_ends_alone(sink: SignalSink) -> None:
    seen: list[SignalEvent] = []
    first, second = sink.subscribe(seen.append), sink.subscribe(seen.append)
    first.close()
    sink.raise_signal("a")
    assert len(seen) == 1
    second.close()
    sink.raise_signal("a")
    assert len(seen) == 1


def test_changes_during_a_raise_take_effect_from_the_next(sink: SignalSink) -> None:
    calls: list[str] = []

    def first(event: SignalEvent) -> None:
        calls.append("first")
        second_subscription.close()
        if event.signal == "one":
            sink.subscribe(lambda _: calls.append("third"))

    sink.subscribe(first)
    second_subscription = sink.subscribe(lambda _: calls.append("second"))
    sink.raise_signal("one")
    assert calls == ["first", "second"]
    sink.raise_signal("two")
    assert calls == ["first", "second", "first", "third"]


class Unusual(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError("boom"), Unusual("boom"), GeneratorExit(), RecursionError()])
def test_an_error_harms_neither_raiser_nor_other_listeners(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    told: list[tuple[str, BaseException]] = []
    seen: list[str] = []
    sink = SignalSink(on_listener_error=lambda event, error: told.append((event.signal, error)))

    def broken(_: SignalEvent) -> None:
        raise error

    sink.subscribe(broken)
    sink.subscribe(lambda event: seen.append(event.signal))
    with caplog.at_level(logging.ERROR, "ephemeral"):
        sink.raise_signal("a")
        sink.raise_signal("b")
    assert seen == ["a", "b"]
    assert told == [("a", error), ("b", error)]
    assert sink.statistics().listener_errors == 2
    assert len(caplog.records) == 2
    assert "broken" in caplog.records[0].getMessage()
    assert "'a'" in caplog.records[0].getMessage()
    assert "raise error" in caplog.text  # its traceback


def test_an_error_handler_that_raises_is_logged_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def worse(_: SignalEvent, error: BaseException) -> None:
        raise Unusual from error

    sink = SignalSink(on_listener_error=worse)
    sink.subscribe(lambda _: 1 / 0)
    seen: list[str] = []
    sink.subscribe(lambda event: seen.append(event.signal))
    sink.raise_signal("a")
    assert seen == ["a"]
    first, second = caplog.records
    assert first.getMessage().startswith("listener ")
    assert second.getMessage().startswith("on_listener_error ")
    assert "worse" in second.getMessage()


def test_a_log_that_cannot_be_written_harms_nobody(sink: SignalSink, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no space left")

    logger = logging.getLogger("ephemeral")
    monkeypatch.setattr(logger, "handlers", [Full()])
    sink.subscribe(lambda _: 1 / 0)
    sink.raise_signal("a")
    assert sink.statistics().listener_errors == 1


class NoRepr:
    def __call__(self, event: SignalEvent) -> None:
        raise ValueError

    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_a_listener_that_cannot_even_be_shown_harms_nobody(sink: SignalSink) -> None:
    sink.subscribe(NoRepr())
    seen: list[str] = []
    sink.subscribe(lambda event: seen.append(event.signal))
    sink.raise_signal("a")
    assert seen == ["a"]
    assert sink.statistics().listener_errors == 1


@pytest.mark.parametrize("request_to_end", [KeyboardInterrupt, SystemExit])
def test_a_request_to_end_the_program_comes_out_and_leaves_no_trace(
    sink: SignalSink, request_to_end: type[BaseException]
) -> None:
    def ending(_: SignalEvent) -> None:
        raise request_to_end

    with sink.subscribe(ending), pytest.raises(request_to_end):
        sink.raise_signal("a")
    assert sink.detect("a")
    assert sink.statistics().listener_errors == 0
    assert _under_way == []


async def async_listener(event: SignalEvent) -> None: ...
async def async_generator(event: SignalEvent) -> AsyncIterator[None]:
    yield


class AsyncCall:
    async def __call__(self, event: SignalEvent) -> None: ...
    async def method(self, event: SignalEvent) -> None: ...


@pytest.mark.parametrize(
    "listener",
    [
        async_listener,
        async_generator,
        functools.partial(async_listener),
        functools.partial(functools.partial(async_listener)),
        AsyncCall(),
        AsyncCall().method,
        functools.partial(AsyncCall()),
    ],
)
def test_an_async_listener_is_refused_with_the_way_to_do_it(sink: SignalSink, listener: Any) -> None:
    with pytest.raises(TypeError, match=r"async with sink\.listen"):
        sink.subscribe(listener)
    assert sink.statistics().listeners == 0


@pytest.mark.parametrize("listener", [None, "a", 5])
def test_a_listener_must_be_callable(sink: SignalSink, listener: Any) -> None:
    with pytest.raises(TypeError, match="must be callable"):
        sink.subscribe(listener)


@pytest.mark.parametrize(("pattern", "error"), [("", ValueError), ([], ValueError), (5, TypeError)])
def test_a_bad_pattern_subscribes_nobody(sink: SignalSink, pattern: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        sink.subscribe(print, pattern)
    assert sink.statistics().listeners == 0


# Nesting


@pytest.mark.parametrize("sinks", [1, 3])
def test_nesting_is_cut_at_64_counted_and_logged_once(caplog: pytest.LogCaptureFixture, sinks: int) -> None:
    now = [1000.0]
    ring = [SignalSink(clock=lambda: now[0]) for _ in range(sinks)]
    calls = [0]

    def again(_: SignalEvent) -> None:
        calls[0] += 1
        ring[calls[0] % sinks].raise_signal("loop")

    for sink in ring:
        sink.subscribe(again)
    for burst in (1, 2):
        calls[0] = 0
        caplog.clear()
        ring[0].raise_signal("loop")
        assert calls == [64]
        assert sum(sink.statistics().raised for sink in ring) == 65 * burst
        assert sum(sink.statistics().deliveries_cut for sink in ring) == burst
        assert sum(sink.statistics().listener_errors for sink in ring) == 0
        assert [record.getMessage() for record in caplog.records] == [
            (
                "signal 'loop' was raised 64 listeners deep: it is stored, its listeners are not called; a listener"
                " raises what it listens to"
            )
        ]
        now[0] += 1.0
    assert _under_way == []


def test_a_burst_that_is_cut_often_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    sink = SignalSink(clock=lambda: 1000.0)
    depth = [0]

    def again(_: SignalEvent) -> None:
        depth[0] += 1
        # At the bottom only, lest the number of raises doubles at each level.
        for _ in range(10 if depth[0] == 64 else 1):
            sink.raise_signal("loop")
        depth[0] -= 1

    sink.subscribe(again)
    sink.raise_signal("loop")
    assert sink.statistics().deliveries_cut == 10
    assert len(caplog.records) == 1


@pytest.mark.real_time
def test_threads_that_raise_at_once_do_not_nest_in_each_other(sink: SignalSink) -> None:
    inside = threading.Barrier(100)
    calls: list[str] = []

    def hold(event: SignalEvent) -> None:
        if event.signal == "outer":
            inside.wait(20)
            sink.raise_signal("inner")  # with 100 deliveries under way, two of them here
        else:
            calls.append(event.signal)

    sink.subscribe(hold)
    threads = [threading.Thread(target=sink.raise_signal, args=("outer",)) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 100
    assert sink.statistics().deliveries_cut == 0
    assert _under_way == []


def test_listeners_may_ask_and_clear_and_resize(sink: SignalSink) -> None:
    answers: list[int] = []

    def ask(event: SignalEvent) -> None:
        if event.signal == "a":
            answers.append(sink.count_recent_exact("a", within=60))
            answers.append(sink.clear_pattern("a"))
            sink.update_window_size(max_capacity=5)

    sink.subscribe(ask)
    sink.raise_signal("a")
    assert answers == [1, 1]
    assert [event.signal for event in sink.sense()] == ["sink.cleared.pattern"]
