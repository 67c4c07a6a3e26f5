"""A slow, lossy, cut or silent network between workers and their server.

Every test ends with the account: what was raised, received, counted and reported is one story, each edge was told once,
nobody probed beside another, no epoch went back, and all hold the same health.
"""

from __future__ import annotations

import contextlib
import random

import pytest

from ephemeral_redis._scripts import script

from .kit.fleet import Fleet
from .kit.proxy import SERVERS_SIDE, WORKERS_SIDE, Proxy, Weather

pytestmark = [pytest.mark.real_time, pytest.mark.server, pytest.mark.long]

# A raise that waited for the server would take the second that a command may take; a busy machine takes less.
NO_WAIT = 0.9


@contextlib.contextmanager
def fleet_behind_proxy(server, *, count=3, **options):
    with Proxy(server.url) as proxy, Fleet(proxy.url, server=server.url, count=count, **options) as fleet:
        yield proxy, fleet


def judge(fleet, tried, what, **options):
    """Let all arrive, hold the account, and write down the figures."""
    fleet.settle()
    assert fleet.disagreements(**options) == []
    assert max(book.slowest for book in fleet.books()) < NO_WAIT
    tried("Network", what, **fleet.figures())


@pytest.mark.parametrize("seconds", [0.05, 0.2])
def test_a_slow_network_delays_and_loses_nothing(server, tried, seconds):
    with fleet_behind_proxy(server) as (proxy, fleet):
        proxy.weather = Weather(up=seconds, down=seconds, jitter=seconds / 10)
        fleet.run(raises=500, calls=20)
        fleet.go_on(2)
        with fleet.broken():
            fleet.until(lambda: all(not is_up for is_up in fleet.are_up()))
            fleet.go_on(1)
        fleet.until(lambda: all(fleet.are_up()))
        fleet.go_on(1)
        judge(fleet, tried, f"{seconds * 1000:.0f} ms each way, 3 workers of 500/s, primary out once")
        assert all(book.bus["missed"] == book.bus["dropped"] == book.bus["reconnects"] == 0 for book in fleet.books())
        assert len([kind for kind, _ in fleet.rows() if kind == "failures"]) == 1


def test_connections_cut_at_random_lose_and_double_nothing(server, tried):
    chance = random.Random(5)
    with fleet_behind_proxy(server) as (proxy, fleet):
        proxy.weather = Weather(jitter=0.01)
        fleet.run(raises=300, calls=20)
        cuts = 0
        for number in range(100):
            fleet.go_on(0.1)
            cuts += proxy.cut(lambda _: chance.random() < 0.15)
            if number in (30, 60):
                with fleet.broken():
                    fleet.go_on(0.5)
        fleet.until(lambda: all(fleet.are_up()))
        assert cuts > 50
        judge(fleet, tried, "over 50 connections reset at random within 10 s, 3 workers of 300/s, primary out twice")
        assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())


def test_a_network_that_trickles_holds_up_nobody(server, tried):
    with fleet_behind_proxy(server) as (proxy, fleet):
        fleet.run(raises=200, calls=10)
        fleet.go_on(0.5)
        # About a tenth of what 200 signals a second need, each way and connection.
        proxy.weather = Weather(rate=2_000)
        fleet.go_on(4)
        with fleet.broken():
            fleet.go_on(2)
        proxy.clear()
        fleet.until(lambda: all(fleet.are_up()))
        judge(fleet, tried, "2 kB/s for 6 s, 3 workers of 200/s, primary out meanwhile")
        assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())


@pytest.mark.parametrize("side", [WORKERS_SIDE, SERVERS_SIDE], ids=["to-workers", "to-server"])
def test_half_closed_connections_are_replaced(server, tried, side):
    with fleet_behind_proxy(server) as (proxy, fleet):
        fleet.run(raises=200, calls=10)
        for _ in range(8):
            fleet.go_on(0.3)
            proxy.half_close(side)
        fleet.go_on(0.5)
        judge(fleet, tried, f"connections half-closed ({('workers', 'server')[side]} told) 8 times, 3 workers of 200/s")
        assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())


def test_replies_lost_after_the_server_did_what_it_was_told_double_nothing(server, tried):
    with fleet_behind_proxy(server) as (proxy, fleet):
        fleet.run(raises=200, calls=20)
        for number in range(1, 11):
            proxy.lose_replies(5, script("publish").digest.encode())
            fleet.until(lambda number=number: proxy.lost_replies == 5 * number)
            fleet.go_on(0.1)
        with fleet.broken():
            proxy.lose_replies(20)
            fleet.until(lambda: proxy.lost_replies == 70 and not any(fleet.are_up()))
        proxy.lose_replies(10)
        fleet.until(lambda: proxy.lost_replies == 80)
        fleet.until(lambda: all(fleet.are_up()))
        judge(fleet, tried, "80 replies lost after the command was applied, 3 workers of 200/s, primary out once")
        assert sum(book.bus["duplicate"] for book in fleet.books()) >= 50
        assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())


@pytest.mark.parametrize(
    "weather", [Weather(is_silent=True), Weather(is_lost=True)], ids=["delivered-late", "never-delivered"]
)
def test_a_black_hole_is_noticed_and_makes_no_raise_wait(server, tried, weather):
    with fleet_behind_proxy(server) as (proxy, fleet):
        fleet.run(raises=200, calls=20)
        fleet.go_on(1)
        proxy.weather = weather
        # A second without an answer; the rest is for a machine that is busy with other things.
        fleet.until(lambda: all(book.bus["is_degraded"] for book in fleet.books()), 5)
        fleet.go_on(2)
        with fleet.broken():
            # Alone, each trips by what it sees itself.
            fleet.until(lambda: not any(fleet.are_up()))
            fleet.go_on(1)
        fleet.until(lambda: all(fleet.are_up()))
        proxy.clear()
        fleet.until(lambda: not any(book.bus["is_degraded"] for book in fleet.books()))
        fleet.go_on(1)
        what = "late" if weather.is_silent else "never"
        judge(fleet, tried, f"black hole, its bytes delivered {what}, 3 workers of 200/s, primary out meanwhile")
        assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())


@pytest.mark.parametrize("purpose", ["command", "control", "signals"])
def test_one_connection_that_falls_silent_is_given_up_and_replaced(server, tried, purpose):
    with fleet_behind_proxy(server) as (proxy, fleet):
        fleet.run(raises=100, calls=20)
        fleet.go_on(0.5)
        proxy.strand(lambda link: link.purpose == purpose)
        fleet.until(lambda: all(book.bus["reconnects"] for book in fleet.books()), 10)
        with fleet.broken():
            fleet.until(lambda: not any(fleet.are_up()))
        fleet.until(lambda: all(fleet.are_up()))
        proxy.land()
        judge(fleet, tried, f"the connection for {purpose} falls silent, those beside it do not, 3 workers of 100/s")
        assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())


def test_a_worker_that_has_nothing_to_say_notices_a_black_hole_too(server):
    with fleet_behind_proxy(server) as (proxy, fleet):
        fleet.go_on(0.5)
        proxy.weather = Weather(is_silent=True)
        fleet.until(lambda: all(book.bus["is_degraded"] for book in fleet.books()), 10)
        proxy.clear()
        fleet.until(lambda: not any(book.bus["is_degraded"] for book in fleet.books()))
