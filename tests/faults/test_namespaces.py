"""The network as the kernel has it: a wire that is unplugged, and one so narrow that packets are lost on it."""

from __future__ import annotations

import pytest

from .kit.fleet import Fleet
from .kit.namespace import Namespace, why_not
from .kit.proxy import Proxy

pytestmark = [pytest.mark.real_time, pytest.mark.server, pytest.mark.long]

if (reason := why_not()) is not None:
    pytestmark.append(pytest.mark.skip(reason=reason))


@pytest.fixture
def wire():
    with Namespace() as namespace:
        yield namespace


@pytest.fixture
def fleet(server, wire):
    """Three workers, of which the last two are on a host of their own."""
    # The proxy passes all on: it is the server's address on this side of the wire.
    with (
        Proxy(server.url, host=wire.near) as proxy,
        Fleet([server.url, proxy.url, proxy.url], server=server.url, prefixes=[[], wire.prefix, wire.prefix]) as fleet,
    ):
        yield fleet


def judge(fleet, tried, what):
    fleet.settle()
    assert fleet.disagreements() == []
    assert all(book.bus["missed"] == book.bus["dropped"] == 0 for book in fleet.books())
    tried("Network", what, **fleet.figures())


def test_a_wire_that_is_unplugged_parts_a_host_and_its_late_packets_undo_nothing(wire, fleet, tried):
    _, *far = fleet
    fleet.run(raises=200, calls=20)
    fleet.go_on(1)
    wire.unplug()
    fleet.until(lambda: all(member.books().bus["is_degraded"] for member in far), 5)
    with fleet.broken():
        fleet.until(lambda: not any(fleet.are_up()))
    fleet.until(lambda: all(fleet.are_up()))
    far[0].ask("isolate", processor="pri2")
    far[0].ask("reset", processor="pri2")
    wire.plug_in()
    fleet.until(lambda: not any(member.books().bus["is_degraded"] for member in fleet))
    # As long as the kernel takes at most to send again what it has kept of connections that are closed.
    fleet.go_on(5)
    assert all(fleet.are_up("pri2"))
    judge(fleet, tried, "2 of 3 workers of 200/s unplugged (veth down), primary out meanwhile")


def test_packets_that_are_lost_lose_no_signal(wire, fleet, tried):
    fleet.run(raises=300, calls=20)
    fleet.go_on(1)
    wire.narrow("200kbit")
    fleet.go_on(4)
    with fleet.broken():
        fleet.go_on(3)
    lost = wire.widen()
    assert lost > 50
    fleet.until(lambda: all(fleet.are_up()))
    judge(fleet, tried, "over 50 packets lost (200 kbit/s with no queue) within 7 s, 2 of 3 workers of 300/s")
