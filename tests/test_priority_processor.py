"""The atom itself: what it accepts and refuses, ids, threads, and what it keeps of an item."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from ephemeral import CoordinatorCompletedError, PriorityProcessorAtom, SignalSink
from ephemeral.testing import run, wait_all_blocked

from .ladder_kit import Service, ladder, statuses


async def process(item: Any) -> Any:
    return item


def make(sink: SignalSink | None = None, priority: Any = 1, **options: Any) -> PriorityProcessorAtom[Any, Any]:
    return PriorityProcessorAtom(priority, options.pop("process", process), sink or SignalSink(), **options)


# Options


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("priority", 0),
        ("priority", True),
        ("priority", "1"),
        ("priority", 1.0),
        ("failure_threshold", 0),
        ("failure_window", 0),
        ("failure_window", -1.0),
        ("failure_window", float("nan")),
        ("probe_interval", 0),
        ("probe_interval", float("inf")),
        ("max_concurrency", 0),
        ("timeout", 0),
        ("max_pending", 0),
        ("max_pending", None),
        ("max_attempts", 0),
        ("drain_timeout", -1.0),
        ("group", ""),
        ("group", "a:b"),
        ("group", "a→b"),
        ("group", "a b"),
        ("group", "a\n"),
        ("group", "g" * 400),
    ],
)
async def test_a_value_out_of_range_names_its_option(option: str, value: Any) -> None:
    sink = SignalSink()
    with pytest.raises(ValueError, match=option):
        make(sink, **{option: value})
    make(sink)  # nothing is left of the refused one: its priority is free


@pytest.mark.parametrize("option", ["process", "probe", "is_failure", "id_selector", "on_failed"])
async def test_what_is_to_be_called_must_be_a_function(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        make(**{option: 5})


@pytest.mark.parametrize("option", ["is_failure", "id_selector", "on_failed"])
async def test_what_is_not_awaited_must_be_plain(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        make(**{option: process})


async def test_a_group_is_a_str() -> None:
    with pytest.raises(TypeError, match="group"):
        make(group=5)


async def test_durations_may_be_timedeltas() -> None:
    seconds: dict[str, Any] = dict.fromkeys(("failure_window", "probe_interval", "timeout"), timedelta(seconds=2))
    async with ladder(Service(takes=5.0), drain_timeout=timedelta(seconds=30), **seconds) as group:
        with pytest.raises(TimeoutError):
            await group.first.call("w")
        assert anyio.current_time() == 2.0
        assert await group.first.drain(timedelta(seconds=1))


async def test_the_same_priority_twice_is_refused() -> None:
    sink = SignalSink()
    first = make(sink)
    with pytest.raises(ValueError, match="priority 1 already"):
        make(sink)
    make(sink, group="eu")
    make(SignalSink())
    assert "pri1" in repr(first)


@pytest.mark.parametrize(
    ("option", "one", "another"),
    [
        ("max_pending", 5, 6),
        ("reroute_failed", True, False),
        ("max_attempts", 2, 3),
        ("on_failed", print, repr),
        ("on_failed", None, print),
        ("drain_timeout", 1.0, None),
    ],
)
async def test_atoms_of_a_group_that_differ_are_refused(option: str, one: Any, another: Any) -> None:
    sink = SignalSink()
    first = make(sink, 1, **{option: one})
    with pytest.raises(ValueError, match=f"{option}=.* contradicts"):
        make(sink, 2, **{option: another})
    make(sink, 2, **{option: one})
    make(sink, 3)
    make(sink, 4, group="eu", **{option: another})
    assert first.pending_count == 0


async def test_a_refused_atom_changes_nothing_of_its_group() -> None:
    sink = SignalSink()
    first = make(sink, 1, max_pending=2)
    with pytest.raises(ValueError, match="contradicts"):
        make(sink, 2, max_attempts=1, reroute_failed=True, max_pending=3)
    make(sink, 2, max_attempts=9)  # was not named by the refused one
    assert first.pending_count == 0


async def test_an_option_left_out_is_the_groups_whoever_names_it() -> None:
    sink = SignalSink()
    first, second = make(sink, 1), make(sink, 2, max_pending=2)
    assert [first.try_enqueue(item) for item in range(3)] == [True, True, False]
    assert second.pending_count == 2
    async with first, second:
        assert await second.drain()
        assert first.total_completed == 2


async def test_a_larger_bound_named_later_lets_producers_in() -> None:
    service = Service()
    async with SignalSink() as sink, make(sink, max_concurrency=1, process=service) as first:
        first.isolate()
        await first.enqueue_many(range(1000))
        assert not first.try_enqueue("too many")
        second = make(sink, 2, max_pending=1001)
        assert second.try_enqueue("one more")
        first.reset_health()
        await first.drain()
        assert len(service.done) == 1001


async def test_slots_default_to_the_processors_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    service = Service(takes=1.0)
    async with SignalSink() as sink, make(sink, process=service) as atom:
        await atom.enqueue_many(range(9))
    assert service.most_active == 3


# Before, and elsewhere


async def test_before_its_block_an_atom_has_no_health() -> None:
    atom = make()
    reads: list[Callable[[], Any]] = [
        atom.get_health,
        atom.isolate,
        atom.reset_health,
        lambda: atom.is_healthy,
        lambda: atom.consecutive_failures,
    ]
    for read in reads:
        with pytest.raises(RuntimeError, match="enter its block"):
            read()
    assert atom.get_ladder() == ()
    assert "not entered" in repr(atom)


async def test_before_any_block_a_call_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="block"):
        await make().call("w")


async def test_items_may_come_before_the_block() -> None:
    atom = make()
    await atom.enqueue("a")
    assert atom.try_enqueue("b")
    assert statuses(atom) == {"pending": 2}
    async with atom:
        pass
    assert statuses(atom) == {"completed": 2}


def test_a_group_lives_on_one_loop() -> None:
    sink = SignalSink()
    first, second = make(sink, 1), make(sink, 2)
    errors: list[BaseException] = []

    async def enter_elsewhere() -> None:
        try:
            async with second:
                pass
        except RuntimeError as error:
            errors.append(error)

    async def host() -> None:
        async with first:
            thread = threading.Thread(target=run, args=(enter_elsewhere,))
            thread.start()
            thread.join()
            assert await first.call("unharmed") == "unharmed"

    run(host)
    [error] = errors
    assert "lives on another event loop" in str(error)


# Ids


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", ValueError),
        ("line\nbreak", ValueError),
        ("x" * 600, ValueError),
        ("é" * 260, ValueError),
        (5, TypeError),
        (None, TypeError),
    ],
)
async def test_an_id_that_fits_no_signal_name_is_refused_at_once(name: Any, error: type[Exception]) -> None:
    async with ladder(Service(), id_selector=lambda item: name) as group:
        for way in (group.first.enqueue, group.first.call, lambda item: group.first.enqueue_many([item])):
            with pytest.raises(error, match="id"):
                await way("w")
        with pytest.raises(error, match="id"):
            group.first.try_enqueue("w")
        assert (group.statuses, group.ears.heard) == ({}, [])


async def test_what_an_id_selector_raises_comes_out() -> None:
    def broken(item: Any) -> str:
        raise LookupError("no id")

    async with ladder(Service(), id_selector=broken) as group:
        for way in (group.first.enqueue, group.first.call):
            with pytest.raises(LookupError, match="no id"):
                await way("w")
        with pytest.raises(LookupError, match="no id"):
            group.first.try_enqueue("w")
        assert group.statuses == {}


async def test_an_id_may_have_segments_of_its_own() -> None:
    async with ladder(Service(), id_selector=lambda item: f"{item[0]}:{item[1]}") as group:
        await group.enqueue(("eu", 7))
        assert group.ears.heard[-1] == "processing.complete:pri1:eu:7"


@pytest.mark.parametrize("last_priority", [2, 10, 999_999])
async def test_an_id_that_is_accepted_fits_the_signals_of_every_rung(last_priority: int) -> None:
    """Whichever rung it runs on, whatever becomes of it there."""
    service, backup = Service(is_down=True), Service(is_down=True)
    given_up: list[Any] = []
    async with (
        SignalSink() as sink,
        make(sink, 1, process=service, reroute_failed=True, max_attempts=2, failure_threshold=99) as first,
        make(sink, last_priority, process=backup, on_failed=lambda item, error: given_up.append(item)),
    ):
        longest = next(length for length in range(520, 0, -1) if accepts(first, "x" * length))
        await wait_all_blocked()
        assert statuses(first) == {"abandoned": 1}
        assert given_up == ["x" * longest]
        assert longest > 400


def accepts(atom: PriorityProcessorAtom[Any, Any], item: str) -> bool:
    try:
        return atom.try_enqueue(item)
    except ValueError:
        return False


@pytest.mark.parametrize("length", [1, 199, 200, 201, 236, 259, 512])
def test_a_group_that_is_accepted_fits_all_signals(length: int) -> None:
    async def fail_over() -> None:
        sink = SignalSink()
        try:
            atom = make(sink, 99_999, group="g" * length)
        except ValueError:
            assert length > 200
            return
        async with atom:
            atom.isolate()
            assert sink.sense("failover.requested*")

    run(fail_over)


# Threads


@pytest.mark.real_time
async def test_other_threads_may_enqueue() -> None:
    service = Service()
    async with ladder(service) as group:
        ids = [await anyio.to_thread.run_sync(group.first.enqueue_threadsafe, item) for item in "abc"]
        assert await group.first.drain(5.0)
        assert service.done == ["a", "b", "c"]
        assert sorted(set(ids)) == ids


@pytest.mark.real_time
async def test_a_thread_waits_for_room_and_is_refused_at_the_end() -> None:
    service = Service()
    outcomes: list[Any] = []

    def enqueue(item: str) -> None:
        try:
            group.first.enqueue_threadsafe(item)
            outcomes.append(item)
        except CoordinatorCompletedError as error:
            outcomes.append(error)

    async with ladder(service, max_pending=1, drain_timeout=0) as group:
        group.first.isolate()
        await group.enqueue("fills the line")
        threads = [threading.Thread(target=enqueue, args=(item,)) for item in ("second", "third")]
        threads[0].start()
        while not group.first._ladder.intake.producers:
            await anyio.lowlevel.checkpoint()
        group.first.reset_health()
        await group.first.drain()
        await anyio.to_thread.run_sync(threads[0].join)
        group.first.isolate()
        await group.enqueue("fills the line again")
        threads[1].start()
    await anyio.to_thread.run_sync(threads[1].join)
    assert outcomes[0] == "second"
    assert isinstance(outcomes[1], CoordinatorCompletedError)
    assert group.first.undelivered == ("fills the line again",)


async def test_the_loops_own_thread_may_not_block_itself() -> None:
    async with ladder(Service()) as group:
        with pytest.raises(RuntimeError, match="await enqueue"):
            group.first.enqueue_threadsafe("w")


async def test_before_its_block_no_thread_can_be_served() -> None:
    with pytest.raises(RuntimeError, match="has not started"):
        make().enqueue_threadsafe("w")


async def test_after_the_end_a_thread_is_refused() -> None:
    async with ladder(Service()) as group:
        pass
    with pytest.raises(CoordinatorCompletedError):
        await anyio.to_thread.run_sync(group.first.enqueue_threadsafe, "w")


@pytest.mark.real_time
async def test_plain_functions_run_in_threads_within_their_slots() -> None:
    lock, running, most, threads = threading.Lock(), 0, 0, set[int]()
    both = threading.Barrier(2)

    def work(item: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            threads.add(threading.get_ident())
        both.wait(10.0)
        with lock:
            running -= 1
        return item * 2

    async with ladder(work, max_concurrency=2) as group, anyio.create_task_group() as tasks:
        tasks.start_soon(group.first.enqueue_many, range(5))
        assert await group.first.call(21) == 42
    assert group.statuses == {"completed": 6}
    assert most == 2
    assert threading.get_ident() not in threads


@pytest.mark.real_time
async def test_a_plain_function_that_hangs_keeps_nobody_from_the_backup() -> None:
    """It counts when its time is over, and takes no worker that others need."""
    release = threading.Event()
    backup = Service()

    def hangs(item: Any) -> None:
        release.wait(20.0)

    try:
        options: dict[str, Any] = {"timeout": 0.01, "failure_threshold": 3, "reroute_failed": True}
        async with ladder(hangs, backup, **options) as group, group.sink.listen("failover.requested*") as edges:
            await group.first.enqueue_many(range(10))
            async for _ in edges:
                break
            assert await group.first.drain(10.0)
            assert sorted(backup.done) == list(range(10))
            release.set()
    finally:
        release.set()


@pytest.mark.real_time
async def test_a_plain_function_that_outlasts_its_time_keeps_its_slot() -> None:
    release = threading.Event()
    lock, running, most = threading.Lock(), 0, 0

    def hangs(item: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        release.wait(20.0)
        with lock:
            running -= 1

    try:
        async with ladder(hangs, Service(), timeout=0.01, failure_threshold=99, max_concurrency=2) as group:
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await group.first.call("hangs")
            await group.enqueue("waits")
            with anyio.move_on_after(0.1):
                await group.first.call("waits too")
            assert most == 2
            release.set()
            assert await group.first.drain(10.0)
            assert most == 2
    finally:
        release.set()


async def test_two_that_run_out_of_time_at_once_are_both_handed_on() -> None:
    """Their own workers wait for the threads: others must be woken for both."""
    begun, release = threading.Semaphore(0), threading.Event()
    backup = Service()
    backup.close_gate()

    def hangs(item: Any) -> None:
        begun.release()
        release.wait(20.0)

    every = {"max_concurrency": 2, "failure_threshold": 9}
    try:
        async with ladder(hangs, backup, every=every, timeout=1.0, reroute_failed=True) as group:
            await group.enqueue("a", "b")
            assert begun.acquire(timeout=20.0)  # on the loop's thread: no virtual time passes meanwhile
            assert begun.acquire(timeout=20.0)
            await group.settle(1.0)
            assert sorted(backup.started) == ["a", "b"]
            backup.open_gate()
            release.set()
    finally:
        release.set()


async def test_a_plain_function_whose_time_is_over_before_it_began_never_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads are late on a busy machine: nobody may wait for one that has nothing to do any more."""
    ran: list[Any] = []
    late: list[Callable[[], Any]] = []

    async def no_thread_is_free(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        late.append(partial(function, *args))
        await anyio.sleep_forever()

    monkeypatch.setattr("anyio.to_thread.run_sync", no_thread_is_free)
    async with ladder(ran.append, timeout=1.0) as group:
        await group.enqueue("w")
        with pytest.raises(TimeoutError, match="no thread was free"):
            await group.first.call("v")
        assert group.statuses == {"failed": 2}
        for begin in late:
            begin()
        assert ran == []
        assert [atom._rung.active for atom in group.atoms] == [0]


# Privacy


class Parcel:
    """Something of the user's that can be watched."""

    def __str__(self) -> str:
        return "parcel"


class Carrier:
    """A processor that holds on to nothing."""

    def __init__(self, *, is_down: bool = False) -> None:
        self.is_down = is_down

    async def __call__(self, item: Parcel) -> None:
        await anyio.lowlevel.checkpoint()
        if self.is_down:
            raise ConnectionError


async def send(atom: PriorityProcessorAtom[Any, Any], way: str) -> weakref.ref[Parcel]:
    parcel = Parcel()
    if way == "call":
        with contextlib.suppress(ConnectionError):
            await atom.call(parcel)
    else:
        await atom.enqueue(parcel)
    return weakref.ref(parcel)


@pytest.mark.parametrize("way", ["enqueue", "call"])
@pytest.mark.parametrize(
    ("first", "backup", "options"),
    [
        (Carrier(), Carrier(), {}),
        (Carrier(is_down=True), Carrier(), {}),
        (Carrier(is_down=True), Carrier(), {"reroute_failed": True}),
        (Carrier(is_down=True), Carrier(is_down=True), {"reroute_failed": True, "max_attempts": 2}),
        (Carrier(is_down=True), Carrier(), {"on_failed": lambda item, error: None}),
    ],
)
async def test_nothing_keeps_an_item_that_has_ended(way: str, first: Any, backup: Any, options: dict[str, Any]) -> None:
    async with ladder(first, backup, **options) as group:
        parcel = await send(group.first, way)
        await group.settle()
        assert parcel() is None


async def test_an_error_that_on_failed_keeps_holds_no_item() -> None:
    kept: list[BaseException] = []
    async with ladder(Carrier(is_down=True), on_failed=lambda item, error: kept.append(error)) as group:
        parcel = await send(group.first, "enqueue")
        await group.settle()
        assert len(kept) == 1
        assert parcel() is None


async def test_a_cancelled_item_is_let_go() -> None:
    service = Service()
    service.close_gate()
    refs: list[weakref.ref[Parcel]] = []

    async def forever(item: Parcel) -> None:
        await anyio.sleep_forever()

    with contextlib.suppress(LookupError):
        async with ladder(forever) as group:
            refs.extend([await send(group.first, "enqueue"), await send(group.first, "enqueue")])
            await group.settle()
            raise LookupError
    assert [ref() for ref in refs] == [None, None]


def test_partials_and_objects_are_seen_as_what_they_are() -> None:
    async def with_prefix(prefix: str, item: str) -> str:
        return prefix + item

    async def check() -> None:
        async with ladder(partial(with_prefix, "<")) as group:
            assert await group.first.call("w") == "<w"

    run(check)
