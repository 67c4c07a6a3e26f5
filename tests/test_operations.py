"""What a body may do with its operation, what is asked of operations' signals, and what is kept of an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ephemeral import Operation, SignalEvent, SignalSink, current_operation
from ephemeral._operations import MAX_SIGNALS_KEPT, drop_tracebacks, trace_text

from .work_kit import Work, settle, working


async def run(body: Callable[[Any, Operation], Any], **options: Any) -> Work:
    """Run one item to its end."""
    async with working(body, **options) as work:
        await work.enqueue("item")
    return work


@pytest.mark.parametrize("has_sink", [False, True])
async def test_signals_go_to_the_operation_the_sink_and_the_listener(has_sink: bool) -> None:
    async def body(item: str, op: Operation) -> None:
        for signal in ("step.one", "step.two", "done"):
            op.emit(signal)
        ids.append(op.id)
        assert op.has_signal("step.one")
        assert not op.has_signal("step")
        assert op.key is None

    ids: list[int] = []
    heard: list[SignalEvent] = []
    sink = SignalSink()
    work = await run(body, signals=sink if has_sink else None, on_signal=heard.append)
    (seen,) = work.get_snapshot()
    assert seen.signals == ("step.one", "step.two", "done")
    assert seen.has_signal("done")
    assert not seen.has_signal("don")
    assert [event.signal for event in heard] == list(seen.signals)
    assert {event.operation_id for event in heard} == set(ids)
    in_sink = [(event.signal, event.operation_id) for event in sink.sense()]
    assert in_sink == ([(event.signal, ids[0]) for event in heard] if has_sink else [])


async def test_a_listener_finds_the_signal_on_its_operation_and_may_take_it_back() -> None:
    async def body(item: str, op: Operation) -> None:
        op.emit("kept")
        op.emit("taken back")
        found.append(op.has_signal("taken back"))

    def look(event: SignalEvent) -> None:
        found.append(current_operation().has_signal(event.signal))

    def take_back(event: SignalEvent) -> None:
        found.append(current_operation().retract(event.signal))

    found: list[bool] = []
    sink = SignalSink()
    sink.subscribe(look)
    sink.subscribe(take_back, "taken back")
    work = await run(body, signals=sink)
    assert found == [True, True, True, False]
    assert [seen.signals for seen in work.get_snapshot()] == [("kept",)]
    assert [event.signal for event in sink.sense()] == ["kept"]


async def test_a_signal_that_the_sink_refuses_is_not_kept() -> None:
    class Refusing(SignalSink):
        def raise_signal(self, *event: Any) -> None:
            raise ValueError("too large for the bus")

    async def body(item: str, op: Operation) -> None:
        with pytest.raises(ValueError, match="too large"):
            op.emit("a")

    work = await run(body, signals=Refusing())
    assert [(seen.signals, seen.is_faulted) for seen in work.get_snapshot()] == [((), False)]


@pytest.mark.parametrize("has_sink", [False, True])
async def test_retracting_takes_a_signal_back_from_operation_and_sink(has_sink: bool) -> None:
    async def body(item: str, op: Operation) -> None:
        for signal in ("a.1", "a.2", "b", "b"):
            op.emit(signal)
        assert op.retract("b")
        assert not op.retract("b")
        assert not op.retract("never")
        assert op.retract_matching("a.*, c") == 2
        assert op.retract_matching("a.*") == 0
        op.emit("kept")

    sink = SignalSink()
    sink.raise_signal("b")
    sink.raise_signal("b", operation_id=1)
    work = await run(body, signals=sink if has_sink else None)
    assert work.get_snapshot()[0].signals == ("kept",)
    left = [event.signal for event in sink.sense()]
    assert left == (["b", "b", "kept"] if has_sink else ["b", "b"])


@pytest.mark.parametrize(
    ("signal", "error"), [("", ValueError), ("a\n", ValueError), ("x" * 513, ValueError), (7, TypeError)]
)
async def test_a_bad_name_is_refused_where_it_is_emitted(signal: Any, error: type[Exception]) -> None:
    async def body(item: str, op: Operation) -> None:
        with pytest.raises(error):
            op.emit(signal)
        refused.append(signal)

    refused: list[Any] = []
    work = await run(body)
    assert refused == [signal]
    assert work.get_snapshot()[0].signals == ()


async def test_state_is_the_bodys_own_and_outlives_it() -> None:
    async def body(item: str, op: Operation) -> None:
        assert op.state == {}
        op.state["rows"] = 3
        operations.append(op)

    operations: list[Operation] = []
    await run(body)
    assert operations[0].state == {"rows": 3}


async def test_an_operation_that_emits_for_ever_keeps_the_newest() -> None:
    async def body(item: str, op: Operation) -> None:
        for number in range(MAX_SIGNALS_KEPT + 5):
            op.emit(f"n.{number}")

    work = await run(body)
    signals = work.get_snapshot()[0].signals
    assert (len(signals), signals[0], signals[-1]) == (MAX_SIGNALS_KEPT, "n.5", f"n.{MAX_SIGNALS_KEPT + 4}")


async def test_a_listener_that_raises_harms_no_body() -> None:
    async def body(item: str, op: Operation) -> None:
        op.emit("heard")

    def listener(event: SignalEvent) -> None:
        raise RuntimeError

    work = await run(body, on_signal=listener)
    assert (work.total_completed, work.statistics().callback_errors) == (1, 1)
    assert work.has_signal("heard")


@pytest.mark.real_time
async def test_signals_from_many_threads_are_all_kept() -> None:
    def body(item: int, op: Operation) -> None:
        def emit(thread: int) -> None:
            for number in range(100):
                op.emit(f"t{thread}.{number}")
                op.retract(f"t{thread}.{number - 1}") if number % 2 else None

        threads = [threading.Thread(target=emit, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    work = await run(body, signals=SignalSink())
    assert (work.total_completed, work.count_signals()) == (1, 4 * 50)


# Questions to the signals of all operations


async def test_questions_to_the_signals_of_operations() -> None:
    async def body(item: str, op: Operation) -> None:
        op.emit(f"started.{item}")
        await anyio.sleep(10)
        op.emit("done")

    async with working(body, max_concurrency=2) as work:
        await work.enqueue_many("ab")
        await settle(work)
        await anyio.sleep(10)
        await settle(work)
        names = [event.signal for event in work.get_signals()]
        assert names == ["started.a", "done", "started.b", "done"]
        assert work.get_signals(lambda event: event.signal.endswith("b")) == work.get_signals_by_name("started.b")
        assert [event.signal for event in work.get_signals_by_pattern("start*, nothing")] == ["started.a", "started.b"]
        assert work.get_signals_by_key("nobody") == []
        first, last = (event.timestamp for event in work.get_signals()[:2])
        assert last - first == pytest.approx(10)
        assert [event.signal for event in work.get_signals_since(last)] == ["done", "done"]
        assert len(work.get_signals_since(datetime.fromtimestamp(first + 1, UTC))) == 2
        assert len(work.get_signals_since(first)) == 4
        assert len(work.get_signals_by_time_range(first, last)) == 4
        assert len(work.get_signals_by_time_range(first, last - 1)) == 2
        assert work.get_signals_by_time_range(last + 1, last + 2) == []
        assert work.has_signal("done")
        assert not work.has_signal("don")
        assert work.has_signal_matching("d?ne")
        assert not work.has_signal_matching("d?")
        assert (work.count_signals(), work.count_signals("done"), work.count_signals("x")) == (4, 2, 0)
        assert (work.count_signals_matching("*"), work.count_signals_matching("started.*")) == (4, 2)
        for bad in (datetime(2026, 1, 1), "now", float("nan")):
            with pytest.raises(ValueError, match="since"):
                work.get_signals_since(bad)  # type: ignore[arg-type]
        for start, end, name in [("now", 1, "start"), (1, datetime(2026, 1, 1), "end")]:
            with pytest.raises(ValueError, match=name):
                work.get_signals_by_time_range(start, end)  # type: ignore[arg-type]


async def test_signals_are_forgotten_with_their_operation() -> None:
    async def body(item: str, op: Operation) -> None:
        op.emit(f"of.{item}")

    async with working(body, max_concurrency=1, max_tracked_operations=1, signals=SignalSink()) as work:
        await work.enqueue_many("ab")
        await settle(work)
        assert [event.signal for event in work.get_signals()] == ["of.b"]


async def test_stamps_of_operations_and_sink_agree() -> None:
    async def body(item: str, op: Operation) -> None:
        await anyio.sleep(5)
        op.emit("late")

    before = datetime.now(UTC)
    work = await run(body)
    (event,) = work.get_signals()
    (seen,) = work.get_snapshot()
    assert seen.completed is not None
    assert abs(event.at - seen.completed) <= timedelta(microseconds=1)
    assert event.timestamp >= before.timestamp() + 5


# Errors


def failed(raise_it: Callable[[], object]) -> BaseException:
    try:
        raise_it()
    except BaseException as error:
        return error
    raise AssertionError


def divide(item: object) -> float:
    return 1 / 0


def divide_in_vain() -> None:
    try:
        divide("secret item")
    except ZeroDivisionError as error:
        raise ValueError("secret argument") from error


def test_a_trace_has_files_lines_and_functions_and_no_values() -> None:
    error = failed(divide_in_vain)
    text = trace_text(error)
    line = divide_in_vain.__code__.co_firstlineno + 4
    assert f'File "{__file__}", line {line}, in divide_in_vain' in text
    assert text.endswith("ValueError")
    assert "secret" not in text


def test_a_trace_tells_of_the_cause_whose_traceback_is_dropped_too() -> None:
    text = trace_text(failed(divide_in_vain))
    assert f'File "{__file__}", line {divide.__code__.co_firstlineno + 1}, in divide' in text
    assert "ZeroDivisionError" in text


def test_tracebacks_are_dropped_from_causes_contexts_members_and_rings() -> None:
    first, second, third = failed(divide_in_vain), failed(divide_in_vain), failed(lambda: divide(1))
    first.__context__ = second
    assert second.__cause__ is not None
    second.__cause__.__cause__ = first
    group = ExceptionGroup("g", [first, ExceptionGroup("inner", [third])])  # type: ignore[list-item]
    every = [group, first, second, second.__cause__, third, group.exceptions[1], first.__cause__]
    drop_tracebacks(group)
    assert [error.__traceback__ for error in every if error is not None] == [None] * len(every)


def test_an_attribute_error_lets_go_of_the_object_it_asked() -> None:
    class Thing:
        pass

    error = failed(lambda: Thing().nonsense)  # type: ignore[attr-defined]
    assert isinstance(error, AttributeError)
    assert isinstance(error.obj, Thing)
    drop_tracebacks(error)
    assert error.obj is None
    assert "nonsense" in str(error)
