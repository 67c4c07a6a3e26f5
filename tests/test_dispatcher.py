"""Async handlers: who is called with what, how many at once, and what happens to the rest."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from ephemeral import SignalDispatcher, SignalEvent, SignalSink
from ephemeral.testing import MemoryBus, wait_all_blocked

from .work_kit import by_scope, by_task, cut, cut_everywhere


class Handler:
    """Notes what it is called with; each call waits until the test lets its signal go, if it is told to."""

    def __init__(self, *, held: bool = False) -> None:
        self.started: list[str] = []
        self.ended: list[str] = []
        self.most_active = 0
        self._held = held
        self._gates: dict[str, anyio.Event] = {}

    async def __call__(self, event: SignalEvent) -> None:
        self.started.append(event.signal)
        self.most_active = max(self.most_active, len(self.started) - len(self.ended))
        try:
            if self._held:
                await self._gate(event.signal).wait()
        finally:
            self.ended.append(event.signal)

    def _gate(self, signal: str) -> anyio.Event:
        return self._gates.setdefault(signal, anyio.Event())

    def let_go(self, *signals: str) -> None:
        for signal in signals:
            self._gate(signal).set()

    def open(self) -> None:
        self._held = False
        self.let_go(*self._gates)


def counts(dispatcher: SignalDispatcher) -> tuple[int, int, int, int, int]:
    """Return queued, active, processed, failed, dropped."""
    seen = dispatcher.statistics()
    return seen.queued, seen.active, seen.processed, seen.failed, seen.dropped


async def test_each_matching_handler_is_called_once_with_the_event() -> None:
    sink, calls = SignalSink(), []

    async def first(event: SignalEvent) -> None:
        calls.append(("first", event))

    async def second(event: SignalEvent) -> None:
        calls.append(("second", event))

    async with SignalDispatcher() as dispatcher:
        dispatcher.register("order.*", first)
        dispatcher.register({"order.paid", "refund"}, second)
        dispatcher.attach(sink)
        sink.raise_signal("order.placed", "ann")
        sink.raise_signal("order.paid")
        sink.raise_signal("other")
        await dispatcher.flush()
        placed, paid, _ = sink.sense()
        assert calls == [("first", placed), ("first", paid), ("second", paid)]
        assert counts(dispatcher) == (0, 0, 3, 0, 0)


async def test_raising_does_not_wait() -> None:
    sink, handler = SignalSink(), Handler()
    async with SignalDispatcher() as dispatcher:
        dispatcher.register("*", handler)
        dispatcher.attach(sink)
        sink.raise_signal("a")
        assert handler.started == []
        await wait_all_blocked()
        assert handler.ended == ["a"]


async def test_a_handler_that_raises_is_counted_and_logged_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    sink, handler = SignalSink(), Handler()

    async def fail(event: SignalEvent) -> None:
        raise ValueError("mine")

    async with SignalDispatcher(max_concurrency=1) as dispatcher:
        dispatcher.register("*", fail)
        dispatcher.register("*", handler)
        dispatcher.attach(sink)
        sink.raise_signal("a")
        sink.raise_signal("b")
        await dispatcher.flush()
        assert handler.ended == ["a", "b"]
        assert counts(dispatcher) == (0, 0, 2, 2, 0)
    assert [(record.name, record.levelname) for record in caplog.records] == [("ephemeral", "ERROR")] * 2
    assert "'a'" in caplog.text
    assert "ValueError: mine" in caplog.text


async def test_a_handler_that_raises_before_it_waits_at_all_is_a_failure_too() -> None:
    async with SignalDispatcher() as dispatcher:
        dispatcher.register("*", Strict())
        dispatcher.dispatch(SignalEvent("a"))
        await dispatcher.flush()
        assert counts(dispatcher) == (0, 0, 0, 1, 0)


class Strict:
    async def __call__(self, event: SignalEvent, missing: object) -> None: ...


async def test_a_handler_that_raises_the_error_of_a_cancellation_harms_nobody() -> None:
    handler = Handler()
    cancelled = anyio.get_cancelled_exc_class()

    async def odd(event: SignalEvent) -> None:
        # trio's has no public constructor: one that was really thrown is kept.
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await anyio.lowlevel.checkpoint()
            except cancelled as error:
                kept.append(error)
                raise
        raise kept[0]

    kept: list[BaseException] = []
    async with SignalDispatcher(max_concurrency=1) as dispatcher:
        dispatcher.register("odd", odd)
        dispatcher.register("*", handler)
        for name in ("odd", "after"):
            dispatcher.dispatch(SignalEvent(name))
        await dispatcher.flush()
        assert handler.ended == ["odd", "after"]
        assert counts(dispatcher) == (0, 0, 2, 1, 0)


async def test_no_more_calls_than_allowed_are_under_way() -> None:
    handler = Handler(held=True)
    async with SignalDispatcher(max_concurrency=3) as dispatcher:
        dispatcher.register("*", handler)
        for name in "abcde":
            dispatcher.dispatch(SignalEvent(name))
        await wait_all_blocked()
        assert handler.started == ["a", "b", "c"]
        assert counts(dispatcher) == (2, 3, 0, 0, 0)
        handler.let_go("b")
        await wait_all_blocked()
        assert handler.started == ["a", "b", "c", "d"]
        handler.open()
    assert handler.most_active == 3
    assert sorted(handler.ended) == list("abcde")
    assert counts(dispatcher) == (0, 0, 5, 0, 0)


async def test_the_oldest_that_wait_are_dropped() -> None:
    handler = Handler(held=True)
    async with SignalDispatcher(max_concurrency=1, max_queue=2) as dispatcher:
        dispatcher.register("*", handler)
        dispatcher.dispatch(SignalEvent("runs"))
        await wait_all_blocked()
        for name in "abcd":
            dispatcher.dispatch(SignalEvent(name))
        assert counts(dispatcher) == (2, 1, 0, 0, 2)
        handler.open()
    assert handler.ended == ["runs", "c", "d"]
    assert counts(dispatcher) == (0, 0, 3, 0, 2)


async def test_what_is_raised_before_the_block_waits_for_it() -> None:
    sink, handler = SignalSink(), Handler()
    dispatcher = SignalDispatcher(max_queue=2)
    dispatcher.register("*", handler)
    dispatcher.attach(sink)
    for name in "abc":
        sink.raise_signal(name)
    assert counts(dispatcher) == (2, 0, 0, 0, 1)
    async with dispatcher:
        await wait_all_blocked()
        assert handler.ended == ["b", "c"]


# flush


async def test_flush_waits_for_what_was_accepted_and_not_for_what_came_after() -> None:
    handler, flushed = Handler(held=True), []

    async def flush(name: str) -> None:
        await dispatcher.flush()
        flushed.append(name)

    async with SignalDispatcher(max_concurrency=2) as dispatcher, anyio.create_task_group() as tasks:
        dispatcher.register("*", handler)
        await dispatcher.flush()
        for name in "abc":
            dispatcher.dispatch(SignalEvent(name))
        tasks.start_soon(flush, "abc")
        await wait_all_blocked()
        dispatcher.dispatch(SignalEvent("d"))
        tasks.start_soon(flush, "abcd")
        handler.let_go("b")
        await wait_all_blocked()
        handler.let_go("c")
        await wait_all_blocked()
        assert (flushed, handler.started) == ([], list("abcd"))
        handler.let_go("a")
        await wait_all_blocked()
        assert flushed == ["abc"]
        handler.let_go("d")
        await wait_all_blocked()
        assert flushed == ["abc", "abcd"]
        await dispatcher.flush()


async def test_flush_does_not_wait_for_what_was_dropped() -> None:
    handler = Handler(held=True)
    async with SignalDispatcher(max_concurrency=1, max_queue=1) as dispatcher, anyio.create_task_group() as tasks:
        dispatcher.register("*", handler)
        dispatcher.dispatch(SignalEvent("a"))
        await wait_all_blocked()
        dispatcher.dispatch(SignalEvent("dropped"))
        flushed = anyio.Event()

        async def flush() -> None:
            await dispatcher.flush()
            flushed.set()

        tasks.start_soon(flush)
        await wait_all_blocked()
        dispatcher.dispatch(SignalEvent("b"))
        handler.let_go("a")
        await wait_all_blocked()
        assert handler.started == ["a", "b"]
        assert flushed.is_set()
        handler.open()


async def test_flush_inside_a_handler_is_refused() -> None:
    refused: list[str] = []

    async def flush(event: SignalEvent) -> None:
        with pytest.raises(RuntimeError, match="wait for itself") as caught:
            await dispatcher.flush()
        refused.append(str(caught.value))

    async with SignalDispatcher() as dispatcher:
        dispatcher.register("*", flush)
        dispatcher.dispatch(SignalEvent("a"))
    assert len(refused) == 1


async def test_a_handler_may_flush_another_dispatcher() -> None:
    handler = Handler()
    async with SignalDispatcher() as other, SignalDispatcher() as dispatcher:

        async def pass_on(event: SignalEvent) -> None:
            other.dispatch(event)
            await other.flush()
            assert handler.ended == ["a"]

        other.register("*", handler)
        dispatcher.register("*", pass_on)
        dispatcher.dispatch(SignalEvent("a"))
        await dispatcher.flush()
        assert counts(dispatcher) == (0, 0, 1, 0, 0)


async def test_flush_outside_of_the_block_waits_for_nothing_that_cannot_come() -> None:
    dispatcher = SignalDispatcher()
    dispatcher.register("*", Handler())
    await dispatcher.flush()
    dispatcher.dispatch(SignalEvent("a"))
    with pytest.raises(RuntimeError, match="needs the running block"):
        await dispatcher.flush()
    async with dispatcher:
        pass
    await dispatcher.flush()


@pytest.mark.parametrize(
    ("anyio_backend", "how"),
    [("asyncio", by_scope), ("asyncio", by_task), ("trio", by_scope)],
    indirect=["anyio_backend"],
)
async def test_a_flush_cut_short_leaves_everything_as_it_was(how: Any) -> None:
    async def scenario(at: int) -> bool:
        handler = Handler(held=True)
        async with SignalDispatcher(max_concurrency=1) as dispatcher, anyio.create_task_group() as tasks:
            dispatcher.register("*", handler)
            for name in "ab":
                dispatcher.dispatch(SignalEvent(name))

            async def open_later() -> None:
                await wait_all_blocked()
                handler.open()

            tasks.start_soon(open_later)
            reached = await cut(dispatcher.flush, at, how)
            await dispatcher.flush()
            assert handler.ended == ["a", "b"]
            assert dispatcher._flushes == []
        return reached

    assert await cut_everywhere(scenario) == 2


# Registering


async def test_a_closed_registration_hears_no_more_and_ends_what_waits() -> None:
    handler = Handler()
    async with SignalDispatcher() as dispatcher:
        with dispatcher.register("*", handler):
            dispatcher.dispatch(SignalEvent("a"))
        dispatcher.dispatch(SignalEvent("b"))
        await dispatcher.flush()
        assert handler.ended == ["a"]


async def test_a_closed_attachment_brings_nothing_more() -> None:
    sink, handler = SignalSink(), Handler()
    async with SignalDispatcher() as dispatcher:
        dispatcher.register("*", handler)
        with dispatcher.attach(sink):
            sink.raise_signal("a")
        sink.raise_signal("b")
        await dispatcher.flush()
        assert handler.ended == ["a"]


async def test_a_closed_attachment_keeps_no_sink_alive() -> None:
    async with SignalDispatcher() as dispatcher:
        sink = SignalSink()
        dispatcher.attach(sink).close()
        seen = weakref.ref(sink)
        del sink
        gc.collect()
        assert seen() is None


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_dispatcher_that_has_ended_listens_to_nobody(is_cancelled: bool) -> None:
    sink, late = SignalSink(), SignalSink()
    async with SignalDispatcher() as dispatcher:
        dispatcher.attach(sink)
        if is_cancelled:
            dispatcher.cancel()
            assert sink.statistics().listeners == 0
    with pytest.raises(RuntimeError, match="has ended"):
        dispatcher.attach(late)
    assert (sink.statistics().listeners, late.statistics().listeners) == (0, 0)


@pytest.mark.real_time
async def test_another_thread_may_cancel_while_the_loop_waits_for_what_that_drops() -> None:
    async with SignalDispatcher() as dispatcher:
        dispatcher.register("*", Handler())
        dispatcher._workers.limit = 0  # so that the call waits
        dispatcher.dispatch(SignalEvent("a"))
        async with anyio.create_task_group() as group:
            group.start_soon(dispatcher.flush)
            await wait_all_blocked()
            await anyio.to_thread.run_sync(dispatcher.cancel)
        assert counts(dispatcher) == (0, 0, 0, 0, 1)


@pytest.mark.parametrize("handler", [print, lambda event: None, None, SignalSink().raise_signal])
def test_a_handler_is_async(handler: Any) -> None:
    with pytest.raises(TypeError, match="handler must be async"):
        SignalDispatcher().register("*", handler)


@pytest.mark.parametrize("name", ["max_concurrency", "max_queue"])
@pytest.mark.parametrize("value", [0, -1, 1.5, None, True])
def test_a_bad_bound_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        SignalDispatcher(**{name: value})


# The block


async def test_leaving_the_block_handles_what_was_accepted_and_detaches() -> None:
    sink, handler = SignalSink(), Handler()

    async def raise_more(event: SignalEvent) -> None:
        sink.raise_signal(event.signal)  # it would go on for ever

    async with SignalDispatcher() as dispatcher:
        dispatcher.register("*", handler)
        dispatcher.register("*", raise_more)
        dispatcher.attach(sink)
        sink.raise_signal("a")
    assert handler.ended == ["a"]
    assert sink.statistics().listeners == 0
    sink.raise_signal("b")
    dispatcher.dispatch(SignalEvent("c"))
    await wait_all_blocked()
    assert handler.ended == ["a"]
    assert counts(dispatcher) == (0, 0, 2, 0, 0)


async def test_leaving_by_an_exception_cuts_what_runs_and_drops_what_waits() -> None:
    handler, error = Handler(held=True), ValueError("mine")
    sink = SignalSink()
    with pytest.raises(ValueError, match="mine") as caught:  # noqa: PT012  the block is what is tested
        async with SignalDispatcher(max_concurrency=1) as dispatcher:
            dispatcher.register("*", handler)
            dispatcher.attach(sink)
            for name in "abc":
                sink.raise_signal(name)
            await wait_all_blocked()
            raise error
    assert caught.value is error
    assert handler.ended == ["a"]
    assert counts(dispatcher) == (0, 0, 0, 1, 2)
    assert sink.statistics().listeners == 0


async def test_a_block_cancelled_while_it_waits_for_the_rest_ends() -> None:
    handler = Handler(held=True)
    with anyio.move_on_after(5) as scope:
        async with SignalDispatcher(max_concurrency=1) as dispatcher:
            dispatcher.register("*", handler)
            for name in "ab":
                dispatcher.dispatch(SignalEvent(name))
    assert scope.cancelled_caught
    assert counts(dispatcher) == (0, 0, 0, 1, 1)


@pytest.mark.parametrize("order", [KeyboardInterrupt, SystemExit])
async def test_an_order_to_end_the_program_comes_out_of_the_block_bare(order: type[BaseException]) -> None:
    async def fail(event: SignalEvent) -> None:
        await anyio.sleep(1)
        raise order

    with pytest.raises(order):  # noqa: PT012  as above
        async with SignalDispatcher() as dispatcher:
            dispatcher.register("*", fail)
            dispatcher.dispatch(SignalEvent("a"))
            await anyio.sleep_forever()


async def test_a_dispatcher_lives_in_one_block() -> None:
    dispatcher = SignalDispatcher()
    async with dispatcher:
        with pytest.raises(RuntimeError, match="only once"):
            await dispatcher.__aenter__()


# Contexts, memory, threads, buses

user: ContextVar[str] = ContextVar("user", default="nobody")


async def test_what_one_call_sets_in_its_context_no_other_sees() -> None:
    seen: list[str] = []

    async def handle(event: SignalEvent) -> None:
        seen.append(user.get())
        user.set(event.signal)
        await anyio.lowlevel.checkpoint()
        seen.append(user.get())

    async with SignalDispatcher(max_concurrency=1) as dispatcher:
        dispatcher.register("*", handle)
        for name in "ab":
            dispatcher.dispatch(SignalEvent(name))
    assert seen == ["nobody", "a", "nobody", "b"]


@pytest.mark.parametrize("fails", [False, True])
async def test_nothing_is_kept_of_what_was_handled(fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "ephemeral")  # a log would keep the error

    class Payload: ...

    async def handle(event: SignalEvent) -> None:
        await anyio.lowlevel.checkpoint()
        if fails:
            raise ValueError

    async with SignalDispatcher() as dispatcher:
        dispatcher.register("*", handle)
        payload = Payload()
        kept = weakref.ref(payload)
        dispatcher.dispatch(SignalEvent("a", payload=payload))
        del payload
        await dispatcher.flush()
        await wait_all_blocked()
        gc.collect()
        assert kept() is None


@pytest.mark.real_time
async def test_signals_of_many_threads_are_all_handled_or_counted_as_dropped() -> None:
    sink, heard = SignalSink(), []

    async def handle(event: SignalEvent) -> None:
        heard.append(event.signal)

    def flood(number: int) -> None:
        for count in range(500):
            sink.raise_signal(f"{number}.{count}")

    async with SignalDispatcher(max_queue=50) as dispatcher:
        dispatcher.register("*", handle)
        dispatcher.attach(sink)
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(anyio.to_thread.run_sync, flood, number)
        await dispatcher.flush()
        seen = dispatcher.statistics()
        assert seen.processed == len(heard) == len(set(heard))
        assert seen.processed + seen.dropped == 2000
        assert (seen.queued, seen.active, seen.failed) == (0, 0, 0)
    for number in range(4):
        own = [int(name.partition(".")[2]) for name in heard if name.startswith(f"{number}.")]
        assert own == sorted(own)


@pytest.mark.real_time
async def test_a_signal_of_a_thread_wakes_an_idle_dispatcher() -> None:
    sink, heard = SignalSink(), anyio.Event()

    async def handle(event: SignalEvent) -> None:
        heard.set()

    async with SignalDispatcher() as dispatcher:
        dispatcher.register("*", handle)
        dispatcher.attach(sink)
        await wait_all_blocked()
        thread = threading.Thread(target=sink.raise_signal, args=("a",))
        thread.start()
        await heard.wait()
        await anyio.to_thread.run_sync(thread.join)


async def test_signals_of_other_workers_are_handled_too() -> None:
    handler = Handler()
    async with (
        MemoryBus() as bus,
        SignalSink(backend=bus.backend()) as here,
        SignalSink(backend=bus.backend()) as there,
        SignalDispatcher() as dispatcher,
    ):
        dispatcher.register("*", handler)
        dispatcher.attach(here)
        there.raise_signal("from.there")
        await wait_all_blocked()
        assert handler.ended == ["from.there"]


def test_attaching_something_else_than_a_sink_is_refused() -> None:
    with pytest.raises(TypeError, match=r"sink must be a SignalSink, not 'order\.\*'"):
        SignalDispatcher().attach("order.*")  # type: ignore[arg-type]
