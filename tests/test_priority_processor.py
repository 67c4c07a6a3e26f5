"""The atom itself: what it accepts and refuses, ids, threads, and what it keeps of an item."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from ephemeral import PriorityProcessorAtom, SignalSink
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


# What a processor is


def test_partials_and_objects_are_seen_as_what_they_are() -> None:
    async def with_prefix(prefix: str, item: str) -> str:
        return prefix + item

    async def check() -> None:
        async with ladder(partial(with_prefix, "<")) as group:
            assert await group.first.call("w") == "<w"

    run(check)
