"""Coordinators react to what others raise as to what is raised here."""

from __future__ import annotations

from ephemeral import EphemeralOptions, EphemeralWorkCoordinator


async def test_work_is_held_while_another_sink_says_so(bus, until):
    done = []

    async def body(item):
        done.append(item)

    async with bus.sinks(2) as (here, there):
        options = EphemeralOptions(
            signals=here,
            defer_on_signals="rate-limit",
            resume_on_signals="rate-limit.over",
            max_defer_attempts=1000,
            defer_check_interval=1.0,
        )
        async with EphemeralWorkCoordinator(body, options) as coordinator:
            there.raise_signal("rate-limit")
            await until(lambda: here.detect("rate-limit"))
            await coordinator.enqueue("a")
            there.raise_signal("marker")
            await until(lambda: here.detect("marker"))
            assert done == []
            there.raise_signal("rate-limit.over")
            await until(lambda: done == ["a"])
