"""Hosts that have the time wrong, are too busy, stop for a while or are many."""

from __future__ import annotations

import faulthandler
import time

import pytest

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend

from .kit.fleet import Fleet

pytestmark = [pytest.mark.real_time, pytest.mark.server, pytest.mark.long]


def judge(fleet, tried, what):
    fleet.settle()
    assert fleet.disagreements() == []
    assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())
    tried("Hosts", what, **fleet.figures())


@pytest.mark.parametrize("hours", [1, -1])
def test_a_worker_whose_clock_is_an_hour_off_changes_nothing_for_anybody(server, tried, hours):
    with Fleet(server.url, server=server.url, count=3, clock_off=hours * 3600) as fleet:
        wrong, *others = fleet
        began_at = time.time()
        fleet.run(raises=100, calls=20)
        fleet.go_on(1)
        with fleet.broken():
            fleet.until(lambda: not any(fleet.are_up()))
            fleet.go_on(0.5)
        fleet.until(lambda: all(fleet.are_up()))
        fleet.go_on(0.5)
        fleet.settle()
        raised = sum(book.numbers for book in fleet.books())
        # All windows hold all signals, those of others dated by their own clock; and all count alike.
        assert [member.ask("books")["live"] for member in fleet] == [raised] * 3
        assert fleet.all("count", scope="n", within=60) == [raised] * 3
        assert fleet.all("count", scope="n", within=0.001) == [0] * 3
        now = time.time()
        assert all(began_at - 1 < member.health()["since"] < now + 1 for member in others)
        assert began_at - 1 < wrong.health()["since"] - hours * 3600 < now + 1
        judge(fleet, tried, f"clock of 1 of 3 workers an hour {'ahead' if hours > 0 else 'behind'}, primary out once")


@pytest.mark.parametrize("hours", [1, -1])
def test_a_worker_whose_clock_is_set_while_it_runs_changes_nothing_for_anybody(server, tried, hours):
    with Fleet(server.url, server=server.url, count=3) as fleet:
        fleet.run(raises=100, calls=20)
        fleet.go_on(1)
        with fleet.broken():
            fleet.until(lambda: not any(fleet.are_up()))
            # While failures are counted, a rung is down and its probes are timed.
            fleet[0].ask("set_clock", off=hours * 3600)
            fleet.go_on(1)
        fleet.until(lambda: all(fleet.are_up()))
        with fleet.broken():
            fleet.until(lambda: not any(fleet.are_up()))
        fleet.until(lambda: all(fleet.are_up()))
        fleet.settle()
        raised = sum(book.numbers for book in fleet.books())
        assert [member.ask("books")["live"] for member in fleet] == [raised] * 3
        assert fleet.all("count", scope="n", within=60) == [raised] * 3
        judge(
            fleet,
            tried,
            f"clock of 1 of 3 workers set an hour {'forward' if hours > 0 else 'back'} while primary is out",
        )


def test_a_clock_of_a_sink_that_is_set_while_it_is_open_dates_what_comes_from_then_on(server, until):
    off = [0.0]

    def clock():
        return time.time() + off[0]

    def backend():
        return RedisSignalBackend.from_url(server.url, namespace="set")

    with SignalSink(backend=backend(), clock=clock, max_age=30) as one, SignalSink(backend=backend()) as two:
        two.raise_signal("before")
        until(lambda: one.detect("before"))
        for count, hours in ((2, 1), (4, -2)):
            off[0] += hours * 3600
            for sink in (one, two):
                sink.raise_signal("after", str(hours))
            # Each hears of the other, dated as of now by its own clock, and counts by the server's.
            until(lambda count=count: len(one.sense("after")) == len(two.sense("after")) == count)
            assert all(abs(one.now() - event.timestamp) < 10 for event in one.sense("after")[-2:])
            assert all(abs(two.now() - event.timestamp) < 10 for event in two.sense("after")[-2:])
        assert one.backend.count("after", 30).result(5) == 4
        assert two.backend.count("after", 30).result(5) == 4


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_a_loop_that_is_blocked_keeps_neither_its_signals_nor_the_fleet_waiting(server, tried, loop):
    with Fleet(server.url, server=server.url, count=3, loop=loop) as fleet:
        blocked, *others = fleet
        fleet.run(raises=200, calls=20)
        fleet.go_on(1)
        blocked.ask("rate", raises=0, calls=20)
        raised = blocked.books().numbers + 500
        blocked.tell("block", seconds=5, raises=500)
        # What it had raised leaves all the same, though its loop has not had a turn since.
        fleet.until(lambda: all(member.books().runs[blocked.origin] == [[0, raised - 1]] for member in others))
        # And health goes on without it.
        with fleet.broken():
            fleet.until(lambda: all(member.health()["state"] != "up" for member in others))
        fleet.until(lambda: all(member.health()["state"] == "up" for member in others))
        (fleet.folder / "rest").touch()
        blocked.wait()
        book = blocked.books()
        assert book.bus["is_degraded"] is False
        assert book.bus["reconnects"] == 0
        fleet.until(lambda: all(fleet.are_up()))
        judge(fleet, tried, f"loop of 1 of 3 workers busy for 5 s at least ({loop}), primary out meanwhile")


def test_a_worker_that_is_stopped_while_it_probes_holds_up_nobody(server, tried):
    with Fleet(server.url, server=server.url, count=3, probe_takes=1.0, ladder={"timeout": 1.5}) as fleet:
        fleet.run(raises=100, calls=20)
        fleet.go_on(0.5)
        with fleet.broken():
            fleet.until(lambda: fleet.row() is not None and fleet.row().record.lease is not None)
            owner = fleet.row().record.lease.owner
            stopped = next(member for member in fleet if member.origin == owner)
            stopped.freeze()
        others = [member for member in fleet if member is not stopped]
        # Its lease ends by time: as long as a probe may take, and 2 s for the verdict to travel.
        fleet.until(lambda: all(member.health()["state"] == "up" for member in others))
        assert len([probe for member in others for probe in member.books().probes]) >= 1
        fleet.go_on(1)
        stopped.resume()
        fleet.until(lambda: all(fleet.are_up()))
        fleet.go_on(1)
        # The verdict of the one that was stopped comes too late, and says nothing any more.
        epochs = {member.health()["epoch"] for member in fleet}
        assert epochs == {fleet.row().record.epoch}
        fleet.settle()
        # Stopped, it could not know that its lease had ended: its probe goes on, and only its verdict is refused.
        late = f"pri1 was probed by {stopped.name} until"
        assert [said for said in fleet.disagreements() if not said.startswith(late)] == []
        tried("Hosts", "1 of 3 workers stopped (SIGSTOP) while it held the lease to probe", **fleet.figures())


def test_thirty_two_workers_agree(server, tried):
    # So many interpreters take minutes to start on a machine that is busy; each wait below has an end of its own.
    faulthandler.cancel_dump_traceback_later()
    with Fleet(server.url, server=server.url, count=32) as fleet:
        fleet.run(raises=5, calls=5)
        fleet.go_on(2)
        for _ in range(2):
            with fleet.broken():
                fleet.until(lambda: not any(fleet.are_up()))
                fleet.go_on(1)
            fleet.until(lambda: all(fleet.are_up()))
        fleet.settle()
        edges = [edge[0] for book in fleet.books() for edge in book.edges]
        assert edges.count("failover.requested:pri1→pri2") == edges.count("failover.restored:pri1") == 2
        judge(fleet, tried, "32 workers of 5/s, primary out twice")
