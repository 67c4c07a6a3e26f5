"""Everything at once, in an order that chance draws: whatever happened, in the end all is one story.

``CHAOS_SEEDS="4 5 6"`` draws other orders.
"""

from __future__ import annotations

import contextlib
import os
import random

import pytest

from .kit.fleet import Fleet
from .kit.proxy import SERVERS_SIDE, WORKERS_SIDE, Proxy, Weather

pytestmark = [pytest.mark.real_time, pytest.mark.server, pytest.mark.long]

SEEDS = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "1 2 3").split()]
WEATHERS = [
    Weather(),
    Weather(up=0.05, down=0.1, jitter=0.02),
    Weather(rate=20_000),
    Weather(is_silent=True),
    Weather(is_lost=True),
    Weather(is_refusing=True),
]


class Chaos:
    """Does one bad thing after another to a fleet of which each worker has a network of its own."""

    def __init__(self, chance, fleet, proxies):
        self.chance = chance
        self.fleet = fleet
        self.proxies = proxies
        self.done = []
        self._broken = {}

    def strike(self):
        name = self.chance.choice(["weather", "cut", "half_close", "lose", "strand", "service", "service", "hand"])
        index = self.chance.randrange(len(self.proxies))
        self.done.append(f"{name} {index}: {getattr(self, name)(self.proxies[index], self.fleet[index])}")

    def weather(self, proxy, member):
        proxy.clear()
        proxy.weather = self.chance.choice(WEATHERS)
        return proxy.weather

    def cut(self, proxy, member):
        return proxy.cut()

    def half_close(self, proxy, member):
        return proxy.half_close(self.chance.choice([SERVERS_SIDE, WORKERS_SIDE]))

    def lose(self, proxy, member):
        return proxy.lose_replies(self.chance.randint(1, 5))

    def strand(self, proxy, member):
        if any(link.is_stranded for link in proxy.links):
            return proxy.land()
        return proxy.strand()

    def service(self, proxy, member):
        processor = self.chance.choice(["pri1", "pri1", "pri2"])
        if processor in self._broken:
            self._broken.pop(processor).close()
            return f"{processor} mended"
        self._broken[processor] = stack = contextlib.ExitStack()
        stack.enter_context(self.fleet.broken(processor))
        return f"{processor} broken"

    def hand(self, proxy, member):
        order = self.chance.choice(["isolate", "reset"])
        member.ask(order, processor="pri1")
        return order

    def mend(self):
        for proxy in self.proxies:
            proxy.land()
            proxy.clear()
        for stack in self._broken.values():
            stack.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_in_whatever_order_all_is_one_story_in_the_end(server, tried, seed):
    chance = random.Random(seed)
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(server.url)) for _ in range(4)]
        fleet = stack.enter_context(Fleet([proxy.url for proxy in proxies], server=server.url))
        chaos = Chaos(chance, fleet, proxies)
        fleet.run(raises=100, calls=20)
        for _ in range(60):
            fleet.go_on(chance.uniform(0.0, 0.7))
            chaos.strike()
        chaos.mend()
        story = "\n".join(chaos.done)
        fleet.until(lambda: not any(book.bus["is_degraded"] for book in fleet.books()), why=lambda: story)
        # Only a hand takes an isolation back; of two the later to reach the fleet wins, so none may be on its way.
        fleet.go_on(1.0)
        fleet[0].ask("reset", processor="pri1")
        fleet.until(lambda: all(fleet.are_up() + fleet.are_up("pri2")), why=lambda: story)
        fleet.settle()
        assert fleet.disagreements() == [], story
        assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())
        tried("Network", "60 faults of all kinds drawn by chance, 4 workers of 100/s", **fleet.figures())
