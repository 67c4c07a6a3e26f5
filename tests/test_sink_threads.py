"""A sink under threads, signal handlers, finalizers and forks: nothing lost, nobody stuck."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from ephemeral import SignalEvent, SignalSink

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Let threads take turns 500 times as often as usual, in the middle of everything."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def run_all(*jobs: Callable[[], None]) -> None:
    """Run each job in a thread of its own, all at once, and fail if one does."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        start.wait()
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a thread is stuck"
    assert errors == []


def test_no_signal_is_lost_while_others_ask_and_resize() -> None:
    sink = SignalSink(100_000, 3600.0)
    heard: list[str] = []
    sink.subscribe(lambda event: heard.append(event.signal), "t0:*")
    done = threading.Event()

    def raiser(number: int) -> Callable[[], None]:
        def job() -> None:
            for count in range(3000):
                if count % 10:
                    sink.raise_signal(f"t{number}:{count % 7}")
                else:
                    sink.raise_signal(SignalEvent(f"t{number}:{count % 7}", timestamp=sink.now() - count / 100))

        return job

    def asker() -> None:
        chance = random.Random(1)
        while not done.is_set():
            sink.update_window_size(max_capacity=chance.randint(50_000, 100_000))
            counted = sink.count_recent_in_scope("t1")
            assert counted <= sink.count_recent_by_prefix("t1:")
            assert len(sink.sense("t2:3")) <= sink.statistics().raised

    raisers = threading.Thread(target=lambda: (run_all(*(raiser(number) for number in range(4))), done.set()))
    raisers.start()
    try:
        run_all(asker, asker)
    finally:
        done.set()
        raisers.join()
    assert sink.statistics().raised == sink.statistics().live == 12_000
    assert len(heard) == 3000
    for number in range(4):
        assert sink.count_recent_in_scope(f"t{number}") == 3000
        assert [event.signal for event in sink.sense(f"t{number}:*")] == [
            f"t{number}:{count % 7}" for count in range(3000)
        ]


def test_small_windows_that_are_resized_and_cleared_still_balance() -> None:
    sink = SignalSink(10, 3600.0)
    cleared = [0, 0]

    def raiser() -> None:
        for _ in range(5000):
            sink.raise_signal("a")

    def resizer() -> None:
        for count in range(200):
            sink.update_window_size(max_capacity=1 + count % 20)
            assert len(sink) <= 20

    def clearer(number: int) -> Callable[[], None]:
        def job() -> None:
            for _ in range(200):
                cleared[number] += sink.clear_matching(lambda _: True)

        return job

    run_all(raiser, raiser, resizer, clearer(0), clearer(1))
    found = sink.statistics()
    assert found.raised == 10_000
    assert found.cleared == sum(cleared)
    assert found.live <= 20
    assert found.forgotten == found.raised - found.cleared - found.live >= 0


def test_subscribing_and_closing_in_many_threads_leaves_only_the_open_ones() -> None:
    sink = SignalSink()
    kept: list[int] = []

    def job() -> None:
        for _ in range(300):
            sink.subscribe(lambda _: None).close()
            sink.raise_signal("a")
        sink.subscribe(lambda _: kept.append(1))

    run_all(*[job] * 4)
    kept.clear()
    sink.raise_signal("a")
    assert len(kept) == 4
    assert sink.statistics().listeners == 4
    assert len(sink._listeners.current) == 4


def test_listener_errors_of_many_threads_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SignalSink()
    monkeypatch.setattr("ephemeral._listeners._log", lambda *_: None)
    sink.subscribe(lambda _: 1 / 0)

    def job() -> None:
        for _ in range(1000):
            sink.raise_signal("a")

    run_all(*[job] * 4)
    assert sink.statistics().listener_errors == 4000


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
def test_a_signal_handler_may_raise_at_any_instant_and_never_waits_for_its_own_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ephemeral._listeners._log", lambda *_: None)
    sink = SignalSink(50, 3600.0)
    sink.subscribe(lambda event: event.signal == "tick" and sink.count_recent_exact("tick"), "tick")
    ticks = 0

    def handler(*_: object) -> None:
        nonlocal ticks
        ticks += 1
        # Its listener asks, in the middle of anything; where that would wait for itself it is told so.
        sink.raise_signal("tick")

    before = signal.signal(signal.SIGALRM, handler)
    raised = 0
    try:
        while ticks < 300:
            # Once: a handler that is interrupted by itself again and again would get nowhere.
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + raised % 50))
            for _ in range(5):
                sink.raise_signal("work")
                raised += 1
                sink.count_recent_in_scope("work", within=5)
                sink.sense("tick")
                sink.subscribe(lambda _: None).close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sink.statistics().raised == raised + ticks


class RaisesWhenFreed:
    def __init__(self, sink: SignalSink) -> None:
        self.sink = sink

    def __del__(self) -> None:
        self.sink.raise_signal("freed")


def test_a_finalizer_that_runs_while_the_window_is_trimmed_may_raise() -> None:
    sink = SignalSink(10, 3600.0)
    for _ in range(200):
        # Freed when the window lets go of it: inside the sink's own section.
        sink.raise_signal("holds", payload=RaisesWhenFreed(sink))
        len(sink)
    sink.clear_matching(lambda event: event.signal == "holds")
    gc.collect()
    found = sink.statistics()
    assert found.raised == 200 + 200
    assert sink._turn._is_taken is False


def test_asking_where_only_waiting_for_oneself_is_left_is_an_error_and_not_a_deadlock() -> None:
    sink = SignalSink()
    with sink._turn:
        sink.raise_signal("a")
        for ask in (len, SignalSink.sense, SignalSink.statistics, SignalSink.clear):
            with pytest.raises(RuntimeError, match="could only wait for itself"):
                ask(sink)  # type: ignore[operator]
    assert len(sink) == 1


def test_a_raise_never_waits_for_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ephemeral._sink._MIN_PENDING", 3)
    sink = SignalSink(3)
    raised = threading.Event()

    def raiser() -> None:
        for _ in range(10):
            sink.raise_signal("a")
        raised.set()

    with sink._turn:
        thread = threading.Thread(target=raiser, daemon=True)
        thread.start()
        assert raised.wait(10)
    thread.join()
    assert sink.statistics().raised == 10
    assert len(sink) == 3


def test_a_repeated_count_waits_for_nobody() -> None:
    sink = SignalSink()
    sink.raise_signal("a")
    assert sink.count_recent_exact("a") == 1
    answers: list[int] = []
    with sink._turn:
        run_all(lambda: answers.append(sink.count_recent_exact("a", within=60)))
    assert answers == [1]


def test_counts_never_go_back_while_others_raise() -> None:
    sink = SignalSink(100_000)
    counted: list[list[int]] = [[], []]
    is_over = threading.Event()

    def ask(answers: list[int]) -> None:
        while not is_over.is_set():
            answers.append(sink.count_recent_in_scope("a"))

    def raise_all() -> None:
        for number in range(4000):
            sink.raise_signal(f"a:{number}")
            if number % 7 == 0:
                assert sink.count_recent_in_scope("a") > number
        is_over.set()

    run_all(raise_all, *(lambda answers=answers: ask(answers) for answers in counted))
    assert all(answers == sorted(answers) for answers in counted)
    assert sink.count_recent_in_scope("a") == 4000


def test_what_arrives_while_arrivals_are_taken_is_left_for_the_next_query() -> None:
    sink = SignalSink()

    class Busy(list[tuple[object, ...]]):
        def __getitem__(self, key: object) -> object:
            taken = super().__getitem__(key)  # type: ignore[index]
            self.append(("late", 0, None, sink.now(), None, None, ""))
            return taken

    sink._pending = Busy()  # type: ignore[assignment]
    sink.raise_signal("a")
    assert [event.signal for event in sink.sense()] == ["a"]
    assert [event.signal for event in sink.sense()] == ["a", "late"]
    assert sink.statistics().raised == 3


def test_a_raise_in_the_middle_of_a_query_by_its_own_thread_leaves_the_window_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ephemeral._sink._MIN_PENDING", 3)
    sink = SignalSink(3)
    with sink._turn:
        for _ in range(10):
            sink.raise_signal("a")
        assert len(sink._pending) == 10
        assert len(sink._window) == 0
    assert len(sink) == 3


def test_a_finalizer_that_closes_a_subscription_amid_another_change_is_not_overruled() -> None:
    sink = SignalSink()
    heard: list[str] = []
    closed = sink.subscribe(lambda event: heard.append(event.signal))

    class Interrupted(dict[int, object]):
        def values(self) -> object:  # type: ignore[override]
            seen = list(super().values())
            closed.close()
            return seen

    sink._listeners._table = Interrupted(sink._listeners._table)  # type: ignore[assignment]
    sink.subscribe(lambda event: heard.append(event.signal.upper()))
    sink.raise_signal("a")
    assert heard == ["A"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_gets_a_working_sink_of_its_own_whatever_other_threads_did() -> None:
    sink = SignalSink(1000, 3600.0)
    sink.raise_signal("before")
    origin = sink._origin
    done = threading.Event()

    def asker() -> None:
        while not done.is_set():
            sink.sense()
            sink.subscribe(lambda _: None).close()

    threads = [threading.Thread(target=asker, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    answers = []
    try:
        for _ in range(20):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(10)  # ends a child that is stuck
                sink.raise_signal("after")
                with sink.subscribe(lambda _: None):
                    new = sink.sense("after")[0].origin
                os.write(writer, f"{len(sink)} {new}".encode())
                os._exit(0)
            os.close(writer)
            with os.fdopen(reader) as pipe:
                answers.append(pipe.read().split())
            assert os.waitpid(child, 0)[1] == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert [count for count, _ in answers] == ["2"] * 20
    origins = {new for _, new in answers}
    assert len(origins) == 20
    assert origin not in origins
    assert sink._origin == origin
    sink.raise_signal("parent")
    assert len(sink) == 2
