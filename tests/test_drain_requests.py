"""Requests to drain: the signals they are, and how far they go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ephemeral import SignalSink
from ephemeral.testing import MemoryBus, wait_all_blocked

Request = Callable[..., None]
REQUESTS: list[tuple[str, tuple[Any, ...], str, str | None]] = [
    ("request_drain_all", (), "coordinator.drain.all", None),
    ("request_drain", ("mail",), "coordinator.drain.id", "mail"),
    ("request_drain_pattern", ("mail.*, web",), "coordinator.drain.pattern", "mail.*, web"),
    ("request_drain_pattern", ({"web", "mail.*"},), "coordinator.drain.pattern", "mail.*, web"),
]
each_request = pytest.mark.parametrize(("name", "arguments", "signal", "key"), REQUESTS)


@each_request
@pytest.mark.parametrize("fleet", [False, True])
def test_a_request_is_a_signal_that_is_stored_and_heard(
    name: str, arguments: tuple[Any, ...], signal: str, key: str | None, fleet: bool
) -> None:
    sink, heard = SignalSink(), []
    sink.subscribe(heard.append)
    getattr(sink, name)(*arguments, fleet=fleet)
    assert sink.sense() == heard
    [event] = heard
    assert (event.signal, event.key, event.operation_id, event.payload) == (signal, key, 0, None)
    assert event.origin == sink.origin
    assert event.timestamp == pytest.approx(sink.now(), abs=5)


@each_request
async def test_a_request_leaves_the_process_only_for_the_fleet(
    name: str, arguments: tuple[Any, ...], signal: str, key: str | None
) -> None:
    async with (
        MemoryBus() as bus,
        SignalSink(backend=bus.backend()) as here,
        SignalSink(backend=bus.backend()) as there,
    ):
        getattr(here, name)(*arguments)
        here.raise_signal("after")
        await wait_all_blocked()
        assert [event.signal for event in here.sense()] == [signal, "after"]
        assert [event.signal for event in there.sense()] == ["after"]
        assert await here.shared_count(signal) == 0

        getattr(here, name)(*arguments, fleet=True)
        await wait_all_blocked()
        assert [(event.signal, event.key) for event in there.sense()] == [("after", None), (signal, key)]
        assert await here.shared_count(signal) == 1


def test_a_listener_may_ask_in_the_middle_of_a_request() -> None:
    sink, seen = SignalSink(), []
    sink.subscribe(lambda event: seen.append(sink.detect("coordinator.drain.all")))
    sink.request_drain_all()
    assert seen == [True]


def test_a_window_that_only_requests_fill_keeps_its_bound() -> None:
    sink = SignalSink(max_capacity=5)
    for _ in range(5000):
        sink.request_drain_all()
    assert len(sink) == 5
    assert sink.statistics().raised == 5000


@pytest.mark.parametrize(
    ("name", "argument", "error"),
    [
        ("request_drain", "", ValueError),
        ("request_drain", "a\n", ValueError),
        ("request_drain", None, TypeError),
        ("request_drain_pattern", "a,,b", ValueError),
        ("request_drain_pattern", (), ValueError),
        ("request_drain_pattern", 3, TypeError),
        ("request_drain_pattern", None, TypeError),
    ],
)
@pytest.mark.parametrize("fleet", [False, True])
def test_what_names_no_coordinator_is_refused(name: str, argument: Any, error: type[Exception], fleet: bool) -> None:
    sink = SignalSink()
    with pytest.raises(error, match="pattern" if name.endswith("pattern") else "coordinator_id"):
        getattr(sink, name)(argument, fleet=fleet)
    assert len(sink) == 0
