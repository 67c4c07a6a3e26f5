"""Coordinators that react to what other workers raise, over every bus."""

from __future__ import annotations

import time

import anyio

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator, SignalConstraints


def reacting(sink, body, **options):
    options = {"defer_on_signals": "rate-limit", "resume_on_signals": "rate-ok", "cancel_on_signals": "stop"} | options
    return EphemeralWorkCoordinator(body, EphemeralOptions(signals=sink, **options))


async def test_work_is_held_and_released_by_another_worker(bus, until):
    ran = []

    async def body(item):
        ran.append(item)

    # Long enough for any machine: only a resume lets the item run.
    long = {"max_defer_attempts": 1000, "defer_check_interval": 1.0}
    async with bus.sinks(2, max_age=600) as (here, there), reacting(here, body, **long) as work:
        there.raise_signal("rate-limit")
        await until(lambda: here.detect("rate-limit"))
        await work.enqueue("held")
        there.raise_signal("something-else")
        await until(lambda: here.detect("something-else"))
        assert (ran, work.pending_count) == ([], 1)
        there.raise_signal(later(there, "rate-ok"))
        await until(lambda: ran == ["held"])


def later(sink, name):
    """Wait until a stamp on the bus, which counts milliseconds, tells this signal from those before."""
    last = sink.sense()[-1].timestamp
    while sink.now() < last + 0.005:
        time.sleep(0.001)
    return name


async def test_a_hold_by_another_worker_ends_by_itself(bus, until):
    ran = []

    async def body(item):
        ran.append(item)

    short = {"max_defer_attempts": 4, "defer_check_interval": 0.1}
    clock = {"clock": anyio.current_time} if bus.kind == "memory" else {}  # the one that is measured by
    async with bus.sinks(2, **clock) as (here, there), reacting(here, body, **short) as work:
        raised_at = anyio.current_time()
        there.raise_signal("rate-limit")
        await until(lambda: here.detect("rate-limit"))
        await work.enqueue("held")
        await until(lambda: ran == ["held"])
        assert anyio.current_time() - raised_at >= 0.395  # the stamp counts milliseconds


async def test_work_is_skipped_while_another_worker_says_so(bus, until):
    ran = []

    async def body(item):
        ran.append(item)

    async with bus.sinks(2) as (here, there), reacting(here, body) as work:
        there.raise_signal("stop")
        await until(lambda: here.detect("stop"))
        await work.enqueue("skipped")
        await until(lambda: work.total_skipped == 1)
        here.clear_pattern("stop")
        await work.enqueue("runs")
        await until(lambda: ran == ["runs"])


async def test_a_request_reaches_the_coordinators_it_names_in_the_whole_fleet(bus, until):
    async def body(item): ...

    async with (
        bus.sinks(2) as (here, there),
        reacting(here, body, coordinator_id="mail.eu") as mail,
        reacting(here, body, coordinator_id="web") as web,
        reacting(there, body, coordinator_id="mail.us") as other,
    ):
        there.request_drain_all()
        assert other.is_completed
        # By age on the bus, whose stamps count milliseconds, the request must not seem older than the coordinators.
        there.request_drain_pattern(later(there, "mail.*"), fleet=True)
        await until(lambda: mail.is_drained)
        assert not web.is_completed
        there.request_drain("web", fleet=True)
        await until(lambda: web.is_drained)


async def test_workers_that_answer_each_other_over_the_bus_end_by_themselves(bus, until):
    answers = {"ping": "pong", "pong": "ping"}

    async def answer(event, op):
        op.emit_caused(answers[event.signal], event)

    def answering(sink):
        return reacting(sink, answer, signal_constraints=SignalConstraints.DEFAULT)

    async with bus.sinks(2) as (here, there), answering(here) as pinger, answering(there) as ponger:
        here.subscribe(pinger.try_enqueue, "pong")
        there.subscribe(ponger.try_enqueue, "ping")
        here.raise_signal("ping")
        await until(lambda: pinger.total_completed == 1)
        for sink in (here, there):
            assert [event.signal for event in sink.sense()] == ["ping", "pong"]
        assert pinger.get_signals() == []
