"""A cluster of nodes, each a process of its own, whose slots can be moved while it is in use."""

from __future__ import annotations

import contextlib
import threading
import time

import redis
from redis.crc import key_slot

from ephemeral_redis.server import RedisServer, _free_port

SLOTS = 16384
NODE_TIMEOUT = 1.0
"""Seconds without an answer after which the others hold a node for down."""


class Cluster:
    """Starts all nodes and joins them, as a context manager.

    Args:
        masters: How many nodes share the slots.
        spares: How many more there are, without slots.
        arguments: Further settings of each.
        authority: Whose certificates they have; None: they speak no TLS.

    Attributes:
        nodes: The servers, masters first.
    """

    def __init__(self, masters, *, spares=0, arguments=(), authority=None):
        self._masters = masters
        self._tls_ports = []
        self._bus_ports = [_free_port() for _ in range(masters + spares)]
        self.nodes = [self._node(port, arguments, authority) for port in self._bus_ports]
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            self._join()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    @property
    def url(self):
        """All nodes, as a user writes them."""
        if self._tls_ports:
            return f"rediss+cluster://{','.join(f'127.0.0.1:{port}' for port in self._tls_ports)}"
        return f"redis+cluster://{','.join(node.tcp_url.removeprefix('redis://') for node in self.nodes)}"

    def owner(self, namespace):
        """Return the living node that has the namespace."""
        for node in self.nodes:
            with contextlib.suppress(redis.RedisError), client_of(node) as client:
                client.exists(f"{{{namespace}}}:m")
                return node
        return None

    def move(self, namespace, source, target, *, between=lambda: None):
        """Move the slot of *namespace* from one node to another, key by key; *between* is called before each."""
        slot = key_slot(f"{{{namespace}}}".encode())
        port = int(target.tcp_url.rpartition(":")[2])
        with client_of(source) as here, client_of(target) as there:
            here_id, there_id = (client.execute_command("CLUSTER MYID").decode() for client in (here, there))
            there.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", here_id)
            here.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", there_id)
            # In two words: as one, redis-py takes the names of keys for text.
            while keys := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
                between()
                assert here.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *keys) == b"OK"
            for client in (there, here):
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", there_id)

    def _node(self, bus_port, arguments, authority):
        tls = []
        if authority is not None:
            port, tls = authority.only_tls()
            self._tls_ports.append(port)
            tls += ["--tls-cluster", "yes"]
        return RedisServer(
            tcp=True,
            arguments=(
                *("--cluster-enabled", "yes"),
                *("--cluster-node-timeout", f"{NODE_TIMEOUT * 1000:.0f}"),
                *("--cluster-port", str(bus_port)),
                *("--cluster-replica-validity-factor", "0"),
                *("--repl-diskless-sync-delay", "0"),
                *tls,
                *arguments,
            ),
        )

    def _join(self):
        share = -(-SLOTS // self._masters)
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            with client_of(node) as client:
                if number < self._masters:
                    last = min((number + 1) * share, SLOTS) - 1
                    client.execute_command("CLUSTER ADDSLOTSRANGE", number * share, last)
                if node is not first:
                    port = self._tls_ports[0] if self._tls_ports else first.tcp_url.rpartition(":")[2]
                    client.execute_command("CLUSTER MEET", "127.0.0.1", port, self._bus_ports[0])
        self._until(lambda: all(_is_well(node, len(self.nodes)) for node in self.nodes))

    def replicate(self, spare, master):
        """Make a spare node the replica of another one, and wait until it has what that one has."""
        with client_of(master) as client:
            identity = client.execute_command("CLUSTER MYID").decode()
        with client_of(spare) as client:
            client.execute_command("CLUSTER REPLICATE", identity)
            self._until(lambda: client.info("replication").get("master_link_status") == "up")

    @staticmethod
    def _until(condition, seconds=60.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the nodes do not find each other"
            threading.Event().wait(0.05)


def client_of(node):
    """Return a client of one node, that follows nobody elsewhere."""
    return redis.Redis.from_url(node.url, socket_timeout=5.0)


def has_slots(node):
    """Whether a node is a master."""
    with client_of(node) as client:
        return client.info("replication")["role"] == "master"


def _is_well(node, count):
    with client_of(node) as client:
        # In two words: as one, redis-py makes of it what its version likes.
        lines = client.execute_command("CLUSTER", "INFO").decode().splitlines()
    info = dict(line.split(":") for line in lines if line)
    return info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == count
