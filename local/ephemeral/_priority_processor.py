"""The public face of a ladder: one processor of a group, tried in its place."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from types import TracebackType
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack, cast, overload

from ._bodies import as_coroutine_function, require_plain
from ._checks import optional_seconds, whole_number
from ._group import UNSET, Unset
from ._health import HealthOptions, HealthRules
from ._ladder import ladder_of
from ._ladder_status import GroupStatistics, ProcessorHealth
from ._rungs import Rung
from ._signals import MAX_NAME_BYTES
from ._sink import SignalSink

T = TypeVar("T")
R = TypeVar("R")

# The longest signal names: an item may meet any rung of its group, and all of them must fit.
_LONGEST_PREFIX = "processing.undelivered"
_MAX_PRIORITY = 999_999
_MAX_GROUP_BYTES = 200


class ProcessorOptions(TypedDict, Generic[T], total=False):
    """The keyword arguments of an atom, for type checkers; `PriorityProcessorAtom` tells what each does."""

    group: str
    failure_threshold: int
    failure_window: float | timedelta
    probe_interval: float | timedelta
    probe: Callable[[], object] | None
    max_concurrency: int | None
    timeout: float | timedelta | None
    is_failure: Callable[[BaseException], bool] | None
    id_selector: Callable[[T], str]
    health: HealthOptions
    max_pending: int
    reroute_failed: bool
    max_attempts: int
    on_failed: Callable[[T, BaseException], object] | None
    drain_timeout: float | timedelta | None
    item_signals: bool


class PriorityProcessorAtom(Generic[T, R]):
    r"""One processor of a ladder: work goes to the healthy one with the lowest number, and fails over from it.

    ::

        async with SignalSink() as sink, \
                PriorityProcessorAtom(1, send, sink, failure_threshold=3) as primary, \
                PriorityProcessorAtom(2, send_by_backup, sink) as backup:
            await primary.enqueue(order)         # in the background, by whoever is healthy
            receipt = await primary.call(order)  # here and now, with the result

    Atoms of one *group* on one sink are one ladder with one line of waiting items: it does not matter through which of
    them an item comes. The first block that is left closes the group: accepted work ends within *drain_timeout*.
    Everything belongs to the thread of one event loop, but for `enqueue_threadsafe`.

    Args:
        priority: Its place, 1 to 999 999, used once in a group; 1 is tried first.
        process: ``async def process(item)``; a plain function runs in worker threads. Returning ``False`` or raising is
            a failure, anything else is success.
        signals: The sink its signals go to.
        group: Which ladder it is part of: printable, without ``:``, ``→`` or spaces, at most 200 bytes of UTF-8.
        failure_threshold: Failures that take it out, see `HealthOptions`; at least 1.
        failure_window: Seconds in which they count.
        probe_interval: Seconds between two probes while it is out.
        probe: ``async def probe()``, or a plain function: asks whether it is well again; ``False`` or raising says no,
            unless *is_failure* denies the error.
            None: a real item is tried instead, as a canary. It may take *timeout* and 2 s, or else a minute; then it
            has failed. A plain function that goes on all the same keeps its thread; once more than *max_concurrency* of
            them do, no further probe begins here until one returns.
        max_concurrency: How many items it processes at once. None: the number of CPUs.
        timeout: Seconds a call may take; then it is cancelled and has failed. None: for ever. A plain function cannot
            be cancelled: it has failed all the same, keeps its slot until it returns, and counts again each time
            *timeout* passes while no slot is left.
        is_failure: ``is_failure(error) -> bool``: False says that the item failed, not the processor; such an item is
            given up, for another rung would answer no better.
        id_selector: Names an item in signals.
        health: What else decides about its health.
        max_pending: How many items may wait in the group, at least 1; default 1000.
        reroute_failed: Whether an item that a processor failed runs again on the next healthy rung; default False.
        max_attempts: Runs an item may have before it is abandoned, at least 1; default 10.
        on_failed: ``on_failed(item, error)`` is told of each item that is given up; a plain function.
        drain_timeout: Seconds leaving the block waits for accepted work; default 30. None: for ever.
        item_signals: Whether each item raises its ``processing.*`` signals; default True. Without them *id_selector* is
            not called, and a trivial call costs half as much.

    The last six belong to the group: an atom that leaves one out takes the group's.

    Raises:
        ValueError: A value is out of range, the priority is taken, or an option of the group contradicts another's.
        TypeError: A callback is no function, or is async where it is not awaited.
    """

    # Two kinds of function, so that a checker knows R of each; what holds for both is in the third.
    @overload
    def __init__(
        self,
        priority: int,
        process: Callable[[T], Awaitable[R]],
        signals: SignalSink,
        **options: Unpack[ProcessorOptions[T]],
    ) -> None: ...
    @overload
    def __init__(
        self,
        priority: int,
        process: Callable[[T], R],
        signals: SignalSink,
        **options: Unpack[ProcessorOptions[T]],
    ) -> None: ...
    def __init__(
        self,
        priority: int,
        process: Callable[[T], Any],
        signals: SignalSink,
        *,
        group: str = "default",
        failure_threshold: int = 3,
        failure_window: float | timedelta = 10.0,
        probe_interval: float | timedelta = 5.0,
        probe: Callable[[], Any] | None = None,
        max_concurrency: int | None = None,
        timeout: float | timedelta | None = None,
        is_failure: Callable[[BaseException], bool] | None = None,
        id_selector: Callable[[T], str] = str,
        health: HealthOptions = HealthOptions(),  # noqa: B008  frozen
        max_pending: int | Unset = UNSET,
        reroute_failed: bool | Unset = UNSET,
        max_attempts: int | Unset = UNSET,
        on_failed: Callable[[T, BaseException], object] | Unset | None = UNSET,
        drain_timeout: float | timedelta | Unset | None = UNSET,
        item_signals: bool | Unset = UNSET,
    ) -> None:
        if whole_number("priority", priority) > _MAX_PRIORITY:
            raise ValueError(f"priority must be at most {_MAX_PRIORITY}, not {priority}")
        _check_group(group)
        for name, value, kind in (("signals", signals, SignalSink), ("health", health, HealthOptions)):
            if not isinstance(cast("object", value), kind):
                raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")
        if not callable(process):
            raise TypeError(f"process must be a function of one item, not {process!r}")
        if probe is not None and not callable(probe):
            raise TypeError(f"probe must be a function without arguments, not {probe!r}")
        require_plain("id_selector", id_selector)
        require_plain("is_failure", is_failure)
        limit = optional_seconds("timeout", timeout)
        rules = HealthRules.of(
            health,
            failure_threshold=failure_threshold,
            failure_window=failure_window,
            probe_interval=probe_interval,
            timeout=limit,
        )
        self._sink = signals
        self._select_id = id_selector
        self._longest_id = MAX_NAME_BYTES - len(f"{_LONGEST_PREFIX}:{_rung_name(group, _MAX_PRIORITY)}:".encode())
        self._rung = Rung(
            priority=priority,
            name=_rung_name(group, priority),
            run=as_coroutine_function(process, limit),
            slots=whole_number("max_concurrency", os.cpu_count() or 1 if max_concurrency is None else max_concurrency),
            rules=rules,
            # A probe that outlasts its lease is of no use to anybody.
            probe=None if probe is None else as_coroutine_function(probe, rules.lease_seconds),
            is_failure=is_failure,
            slow_after=optional_seconds("slow_after", health.slow_after),
        )  # fmt: skip
        self._ladder = ladder_of(signals, group)
        self._ladder.claim(
            self,
            priority,
            max_pending=max_pending,
            reroute_failed=reroute_failed,
            max_attempts=max_attempts,
            on_failed=on_failed,
            drain_timeout=drain_timeout,
            item_signals=item_signals,
        )
        self._seat: AbstractAsyncContextManager[None] | None = None

    def __repr__(self) -> str:
        state = self._state().state if self._seat is not None else "not entered"
        return f"<PriorityProcessorAtom {self._rung.name} {state}: {self._ladder.describe()}>"

    async def __aenter__(self) -> Self:
        if self._seat is not None:
            raise RuntimeError(f"{self._rung.name} has been entered before; make a new atom for a new block")
        seat = self._ladder.seat(self._rung)
        await seat.__aenter__()
        self._seat = seat
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._seat is not None
        return await self._seat.__aexit__(kind, error, trace)

    # Work

    async def enqueue(self, item: T) -> int:
        """Accept *item* into the group's line and return its operation id; waits only while the line is full.

        A cancellation point only while it waits; a cancelled call leaves no trace.

        Raises:
            CoordinatorCompletedError: The group has closed, or closes while this waits.
            TypeError: ``id_selector`` gave no ``str``.
            ValueError: Its id does not fit a signal name. Whatever else ``id_selector`` raises comes out as it is.
        """
        return await self._ladder.intake.enqueue(self._named(item))

    def try_enqueue(self, item: T) -> bool:
        """Accept *item* if there is room now; False if there is none, or if the group has closed. Never waits."""
        return self._ladder.intake.try_enqueue(self._named(item)) is not None

    async def enqueue_many(self, items: Iterable[T]) -> int:
        """Accept *items* in order, as `enqueue` does each, and return how many there were."""
        return await self._ladder.intake.enqueue_many(map(self._named, items))

    def enqueue_threadsafe(self, item: T) -> int:
        """Accept *item* from a thread other than the loop's; blocks that thread until it is accepted.

        Raises:
            RuntimeError: Called on the loop's own thread, or before a block of the group was entered.
            CoordinatorCompletedError: The group has closed, or closes while this waits.
        """
        self._require_started("enqueue_threadsafe()")
        return self._ladder.intake.enqueue_threadsafe(self._named(item), self._ladder.workers.loop)

    async def call(self, item: T) -> R:
        """Process *item* now, in the caller's task, on the highest healthy rung, and return the result.

        Waits for a slot in turn with the line. With ``reroute_failed`` the next healthy rung is tried after a failure.
        A cancellation point while it waits, and where the processor has one; a cancelled call says nothing about the
        processor.

        Raises:
            RuntimeError: No block of the group has been entered.
            NoHealthyProcessorError: No rung is healthy, or the last one goes down while this waits.
            CoordinatorCompletedError: The group has closed, or is cut off while this waits.
            ProcessingFailedError: The processor returned ``False``.

        What else the processor raised last comes out as it is.
        """
        if self._seat is None:
            self._require_started("call()")
        ladder = self._ladder
        result: R = await ladder.call(item, self._name_of(item) if ladder.options.item_signals else "")
        return result

    async def drain(self, timeout: float | timedelta | None = None) -> bool:
        """Wait for an instant in which nothing of the group waits or runs; it refuses nothing and may be repeated.

        Not for what the group itself runs, which would wait for its own end: refused in a processor of an item, not
        noticed in one that runs for a `call`, nor in tasks that a processor starts.

        Args:
            timeout: Seconds to wait; None: until then.

        Returns:
            Whether that instant came in time.

        Raises:
            RuntimeError: Called by a processor of the group.
        """
        return await self._ladder.drain(optional_seconds("timeout", timeout, zero=True))

    def _require_started(self, method: str) -> None:
        if not self._ladder.workers.is_open and not self._ladder.intake.is_closed:
            raise RuntimeError(f"{self._ladder.name} has not started: {method} needs its running loop; enter a block")

    def _named(self, item: T) -> tuple[T, str]:
        return item, self._name_of(item) if self._ladder.options.item_signals else ""

    def _name_of(self, item: T) -> str:
        name: object = self._select_id(item)
        # No character takes more than four bytes, so hardly an id needs to be encoded to be measured.
        if type(name) is str and name.isprintable() and 0 < len(name) * 4 <= self._longest_id:
            return name
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  a selector of the user
            raise TypeError(f"id_selector must return a str, not {name!r} for item {item!r}")
        if not name or not name.isprintable() or len(name.encode()) > self._longest_id:
            shown = repr(name if len(name) <= 60 else f"{name[:60]}…")
            raise ValueError(
                f"item id {shown} must be printable, not empty and at most {self._longest_id} bytes of UTF-8: signals"
                " name the item by it; have id_selector return such a one"
            )
        return name

    # Health

    @property
    def is_healthy(self) -> bool:
        """Whether work may go to this rung."""
        return self._entered().is_up

    @property
    def consecutive_failures(self) -> int:
        """How many failures count against this rung now."""
        return self._state().failures

    def get_health(self) -> ProcessorHealth:
        """Return the health of this rung, as this process knows it; no I/O."""
        return self._state()

    def get_ladder(self) -> tuple[ProcessorHealth, ...]:
        """Return the health of all rungs of the group whose blocks were entered, in order of priority."""
        return tuple(self._health_of(rung) for rung in self._ladder.route.rungs)

    def reset_health(self) -> None:
        """Restore this rung by hand, for the whole fleet.

        On a healthy one its failures are forgotten, those of calls that are under way included, and nothing is raised.
        """
        self._ladder.health.reset(self._entered().name, self._ladder.workers.now())

    def isolate(self) -> None:
        """Take this rung out by hand, for the whole fleet: it gets no work and is never probed until `reset_health`."""
        self._ladder.health.isolate(self._entered().name, self._ladder.workers.now())

    def _entered(self) -> Rung:
        if self._seat is None:
            raise RuntimeError(f"{self._rung.name} has no health yet; enter its block: async with atom: ...")
        return self._rung

    def _state(self) -> ProcessorHealth:
        return self._health_of(self._entered())

    def _health_of(self, rung: Rung) -> ProcessorHealth:
        now = self._ladder.workers.now()
        record, failures = self._ladder.route.health_of(rung, now)
        to_wall = self._sink.now() - now

        def at(loop_time: float) -> datetime:
            return datetime.fromtimestamp(loop_time + to_wall, UTC)

        return ProcessorHealth(
            processor=rung.name,
            priority=rung.priority,
            state=record.state_at(now),
            since=at(record.since),
            failures=failures,
            last_probe=None if record.last_probe_at is None else at(record.last_probe_at),
            epoch=record.epoch,
            by=record.by,
            is_local=record.is_local,
        )

    # Counters of the group

    @property
    def undelivered(self) -> tuple[T, ...]:
        """The items that were not done when ``drain_timeout`` was over, in order of arrival; empty before."""
        return tuple(payload for _, payload in sorted(self._ladder.undelivered, key=itemgetter(0)))

    @property
    def pending_count(self) -> int:
        """Items and calls of the group that wait."""
        return self._ladder.pending

    @property
    def active_count(self) -> int:
        """Items and calls of the group that run."""
        return self._ladder.active

    @property
    def total_enqueued(self) -> int:
        """Accepted by the group so far: derived from the other counters, so that they cannot disagree."""
        return self.statistics().total_enqueued

    @property
    def total_completed(self) -> int:
        """Processed well."""
        return self._ladder.total_completed

    @property
    def total_failed(self) -> int:
        """Given up after a failure, and calls that ended with an error."""
        return self._ladder.total_failed

    @property
    def total_cancelled(self) -> int:
        """Cancelled: calls by their callers, everything when a block was left by an exception."""
        return self._ladder.total_cancelled

    @property
    def total_abandoned(self) -> int:
        """Given up after ``max_attempts`` runs."""
        return self._ladder.total_abandoned

    @property
    def total_undelivered(self) -> int:
        """Left over when ``drain_timeout`` was over."""
        return len(self._ladder.undelivered)

    def statistics(self) -> GroupStatistics:
        """Return all counters of the group, of one instant."""
        return self._ladder.statistics()


def _check_group(group: object) -> None:
    if not isinstance(group, str):
        raise TypeError(f"group must be a str, not {group!r}")
    if not group or not group.isprintable() or any(letter in group for letter in ":→ "):
        raise ValueError(f"group must be printable, without ':', '→' or spaces, and not empty, not {group!r}")
    if len(group.encode()) > _MAX_GROUP_BYTES:
        raise ValueError(
            f"group must take at most {_MAX_GROUP_BYTES} bytes of UTF-8, for signals name it, not {group!r}"
        )


def _rung_name(group: str, priority: int) -> str:
    return f"pri{priority}" if group == "default" else f"{group}.pri{priority}"
