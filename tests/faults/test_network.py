"""A slow, lossy, cut or silent network between workers and their server."""

from __future__ import annotations

import time

import pytest

from .kit.fleet import Fleet

pytestmark = [pytest.mark.real_time, pytest.mark.server]


def test_workers_on_a_good_network_agree_on_everything(server, tried):
    with Fleet(server.url, server=server.url, count=3) as fleet:
        fleet.run(raises=200, calls=20)
        time.sleep(1)
        with fleet.broken():
            time.sleep(1)
        time.sleep(1)
        fleet.settle()
        assert fleet.disagreements() == []
        tried("Network", "nothing wrong, 3 workers, 200/s each, 3 s", **fleet.figures())
