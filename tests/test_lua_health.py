"""The health scripts give the answers of `HealthTable`, and so of the pure decisions, on random histories."""

from __future__ import annotations

import itertools
from dataclasses import replace

import anyio
import fakeredis
import pytest
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from ephemeral import _health
from ephemeral._health_table import HealthTable
from ephemeral.abc import HealthReport, HealthRules, Swap
from ephemeral_redis import _codec, _keys
from ephemeral_redis._clock import BusClock
from ephemeral_redis._scripts import Calls, Evidence

pytestmark = [pytest.mark.real_time, pytest.mark.server]

ORIGINS = [bytes([n]) * 8 for n in range(3)]
NOTHING = Evidence([], [])
unique = itertools.count()


@pytest.fixture
def anyio_backend():
    return "asyncio", {}  # redis-py's asynchronous client runs on nothing else


def client_of(kind, server):
    return fakeredis.FakeAsyncRedis() if kind == "fake" else redis.asyncio.Redis.from_url(server.url)


@pytest.fixture(params=["real", "fake"])
async def calls(request):
    server = request.getfixturevalue("redis_server") if request.param == "real" else None
    async with client_of(request.param, server) as client:
        yield Calls(client, _keys.Keys(f"health-{next(unique)}"), ORIGINS[0], BusClock())


def rules_of(policy="consecutive", threshold=3, window=10.0, rate=0.5, minimum=4, quorum=1):
    options = _health.HealthOptions(policy=policy, failure_rate=rate, minimum_calls=minimum, quorum=quorum)
    return HealthRules.of(options, failure_threshold=threshold, failure_window=window)


class Fleet:
    """Tells the server and the reference the same, and compares what they say."""

    def __init__(self, calls, rules):
        self.calls = calls
        self.rules = rules
        self.table = HealthTable()
        self.sequence = itertools.count()
        self.told = []

    def row(self):
        return self.table.rows.get("pri1")

    def down_at(self, now, origin):
        known = self.row().record if self.row() else _health.HealthRecord("pri1", epoch=0, since=now, by="")
        # Asked for on a processor that is down too, by a call that started before: the server must not heed it.
        known = replace(known, state="up")
        return _health.trip(known, self.rules, "fleet", failures=0, by=origin.hex(), now=now).after

    async def report(self, origin, *, has_failed, age, stale=False):
        epoch = (self.row().record.epoch if self.row() else 0) - stale
        member = origin + next(self.sequence).to_bytes(6, "big")
        micros = await self.calls.client.time()
        down = self.down_at(micros[0], origin)
        evidence = Evidence([member], [int(age * 1e6)])
        answer = await self.calls._replace(origin=origin).report(
            "pri1",
            epoch,
            self.rules,
            failures=evidence if has_failed else NOTHING,
            successes=NOTHING if has_failed else evidence,
            down=down,
        )
        now = answer.server_time
        said = HealthReport("pri1", epoch, has_failed, self.rules, lambda _: down)
        news = self.table.report(origin.hex(), said, now - age, now)
        assert answer.is_counted or news is None
        assert answer.failures == (news.failures if news else answer.failures)
        assert answer.row == self.row()
        self.told += [news] if news else []
        return news

    async def swap(self, cause, record, expected):
        is_done, now, row = await self.calls.swap(Swap(cause, expected, record))
        news = self.table.swap(ORIGINS[0].hex(), Swap(cause, expected, record), now)
        assert is_done == (news is not None)
        assert row == self.row()
        self.told += [news] if news else []
        return is_done

    async def decide(self, kind):
        """Take a decision on the row as it is, as a worker would."""
        micros = await self.calls.client.time()
        now = micros[0] + micros[1] / 1e6
        row = self.row()
        record = row.record if row else _health.HealthRecord("pri1", epoch=0, since=now, by="")
        change = {"isolate": _health.isolate, "reset": _health.reset}[kind](record, by="x" * 16, now=now)
        if change is not None:
            assert await self.swap(kind, change.after, row.version if row else 0)
        elif kind == "reset":
            assert await self.swap("forgotten", record, row.version if row else 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([*["fail"] * 5, *["succeed"] * 4, *["late"] * 2, "stale", "reset", "isolate"]),
        st.sampled_from(ORIGINS),
        # Never within microseconds of the window's edge, or of each other: the server's clock moves between reports.
        st.sampled_from([0.0, 0.0, 0.5, 1.5, 4.5, 11.5]),
    ),
    min_size=5,
    max_size=25,
)


@pytest.mark.parametrize("kind", ["real", "fake"])
@settings(max_examples=60)
@given(
    steps=STEPS,
    policy=st.sampled_from(["consecutive", "windowed", "rate"]),
    threshold=st.integers(1, 4),
    rate=st.sampled_from([0.07, 0.5, 1.0]),
    quorum=st.integers(1, 3),
)
def test_scripts_and_reference_agree_on_any_history(redis_server, kind, steps, policy, threshold, rate, quorum):
    async def history():
        async with client_of(kind, redis_server) as client:
            calls = Calls(client, _keys.Keys(f"health-{next(unique)}"), ORIGINS[0], BusClock())
            fleet = Fleet(calls, rules_of(policy, threshold=threshold, rate=rate, quorum=quorum))
            for step, origin, age in steps:
                if step in {"reset", "isolate"}:
                    await fleet.decide(step)
                else:
                    late_by = 3.0 if step == "late" else 0.0
                    await fleet.report(origin, has_failed=step != "succeed", age=age + late_by, stale=step == "stale")
            entries = [fields for _, fields in await client.xrange(calls.keys.control)]
            assert [(e[b"k"].decode(), e[b"o"].hex(), e.get(b"r", b"")[:14]) for e in entries] == [
                (news.kind, news.origin, f"{news.row.version}:".encode() if news.row else b"") for news in fleet.told
            ]
            snapshot = await calls.snapshot()
            rows = {name: _codec.unpack_row(name, value) for name, value in snapshot.rows.items()}
            assert rows == fleet.table.rows

    anyio.run(history)


async def test_the_failure_that_is_one_too_many_takes_it_down_once(calls):
    fleet = Fleet(calls, rules_of(threshold=3))
    news = [await fleet.report(origin, has_failed=True, age=0) for origin in [*ORIGINS, ORIGINS[0]]]
    assert [n and n.kind for n in news] == ["counted", "counted", "failures", None]
    assert fleet.row().record.failures == 3
    entries = [fields for _, fields in await calls.client.xrange(calls.keys.control)]
    assert [(e[b"k"], e[b"o"]) for e in entries] == [
        (b"counted", ORIGINS[0]),
        (b"counted", ORIGINS[1]),
        (b"failures", ORIGINS[2]),
    ]
    assert _codec.unpack_row("pri1", entries[2][b"r"]) == fleet.row()


async def test_a_success_that_ended_first_clears_nothing_however_late_it_is_told(calls):
    fleet = Fleet(calls, rules_of(threshold=3))
    for age in (3.0, 2.0):
        await fleet.report(ORIGINS[0], has_failed=True, age=age)
    assert await fleet.report(ORIGINS[1], has_failed=False, age=5.0) is None
    assert (await fleet.report(ORIGINS[0], has_failed=True, age=0)).kind == "failures"


async def test_a_failure_that_ended_before_the_last_success_does_not_count(calls):
    fleet = Fleet(calls, rules_of(threshold=2))
    await fleet.report(ORIGINS[0], has_failed=False, age=1.0)
    assert (await fleet.report(ORIGINS[0], has_failed=True, age=2.0)).failures == 0
    assert (await fleet.report(ORIGINS[0], has_failed=True, age=0.5)).failures == 1
    assert (await fleet.report(ORIGINS[0], has_failed=True, age=0)).kind == "failures"


async def test_one_sick_worker_is_no_quorum(calls):
    fleet = Fleet(calls, rules_of(threshold=3, quorum=2))
    for _ in range(5):
        assert (await fleet.report(ORIGINS[0], has_failed=True, age=0)).kind == "counted"
    assert (await fleet.report(ORIGINS[1], has_failed=True, age=0)).kind == "failures"


async def test_many_reports_in_one_call_are_judged_together(calls):
    rules = rules_of(threshold=3)
    members = [ORIGINS[0] + n.to_bytes(6, "big") for n in range(4)]
    down = Fleet(calls, rules).down_at(100.0, ORIGINS[0])
    answer = await calls.report(
        "pri1",
        0,
        rules,
        failures=Evidence(members[:3], [0, 1000, 5_000_000]),
        successes=Evidence(members[3:], [3_000_000]),
        down=down,
    )
    assert (answer.failures, answer.row) == (2, None)  # the third ended before the success


async def test_a_report_that_is_told_twice_counts_once(calls):
    fleet = Fleet(calls, rules_of("windowed", threshold=3))
    evidence = Evidence([ORIGINS[0] + bytes(6)], [0])
    down = fleet.down_at(100.0, ORIGINS[0])
    for _ in range(3):
        answer = await calls.report("pri1", 0, fleet.rules, failures=evidence, successes=NOTHING, down=down)
    assert (answer.failures, answer.row) == (1, None)


async def test_of_two_decisions_on_one_row_the_table_takes_the_first(calls):
    record = _health.HealthRecord("pri1", epoch=5, since=1.0, by="a")
    assert (await calls.swap(Swap("isolate", 0, replace(record, state="isolated"))))[0]
    is_done, _, row = await calls.swap(Swap("isolate", 0, record))
    assert not is_done
    assert row.record.state == "isolated"
    # A version is at least the server's ms: it grows on after the data were lost.
    micros = await calls.client.time()
    assert row.version == pytest.approx(micros[0] * 1000, abs=60_000)


async def test_a_snapshot_tells_from_where_to_follow(calls):
    assert (await calls.snapshot()).control_id == b"0-0"
    await calls.swap(Swap("isolate", 0, _health.HealthRecord("größe.pri1", epoch=5, since=1.0, by="a")))
    snapshot = await calls.snapshot()
    assert list(snapshot.rows) == ["größe.pri1"]
    assert [entry_id for entry_id, _ in await calls.client.xrange(calls.keys.control)] == [snapshot.control_id]
