"""A master, a replica, and three sentinels that watch them, each a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time

import redis

from ephemeral_redis.server import _WITH_WATCHDOG, RedisServer, _free_port, find_program

SERVICE = "main"
DOWN_AFTER = 1.0
"""Seconds without an answer after which a sentinel holds the master for down."""


class Sentinels:
    """Starts all of them, as a context manager.

    Args:
        replicas: How many.
        password: Of the sentinels themselves.
        arguments: Of the servers.
        authority: Whose certificates all have; None: they speak no TLS.

    Attributes:
        servers: The servers, the first master first.
        ports: The sentinels' ports.
    """

    def __init__(self, *, replicas=1, password=None, arguments=(), authority=None):
        # By default a replica that joins waits five seconds for others to join with it.
        arguments = ("--repl-diskless-sync-delay", "0", *arguments)
        self._authority = authority
        # How each server is known to the others: its port, or that for TLS.
        self._known_as = {}
        self.servers = [self._server(arguments) for _ in range(1 + replicas)]
        self.password = password
        self.ports = []
        self._processes = []
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for server in self.servers:
                stack.enter_context(server)
            master, *replicas = self.servers
            for replica in replicas:
                follow(replica, self.port_of(master))
            stack.callback(self._end_sentinels)
            for _ in range(3):
                self._start_sentinel(master)
            self._until(lambda: all(self._knows(number) for number in range(3)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    @property
    def url(self):
        scheme = "redis" if self._authority is None else "rediss"
        return f"{scheme}+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/{SERVICE}"

    @property
    def master(self):
        """Who is master by the sentinels that live; None: they know of none."""
        for number in range(len(self.ports)):
            with contextlib.suppress(redis.RedisError), self._client(number) as client:
                # In words: the oldest redis-py that we know has a method for it that fails.
                _, port = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
                return next(server for server in self.servers if self.port_of(server) == int(port))
        return None

    def fail_over(self):
        """Have the sentinels make the replica the master, though the master is well."""
        with self._client(0) as client:
            client.execute_command("SENTINEL", "FAILOVER", SERVICE)

    def holds_master_for_down(self, number):
        with self._client(number) as client:
            return client.sentinel_masters()[SERVICE]["is_sdown"]

    def freeze_sentinel(self, number):
        self._processes[number].send_signal(19)

    def kill_sentinel(self, number):
        self._processes[number].kill()

    def kill_sentinels(self):
        for process in self._processes:
            process.kill()

    def port_of(self, server):
        """Return the port by which a server is known to the sentinels."""
        return self._known_as.get(server) or int(server.tcp_url.rpartition(":")[2])

    def _server(self, arguments):
        if self._authority is None:
            return RedisServer(tcp=True, arguments=arguments)
        port, tls = self._authority.only_tls()
        server = RedisServer(tcp=True, arguments=[*arguments, *tls])
        self._known_as[server] = port
        return server

    def _start_sentinel(self, master):
        port, tls = _free_port(), []
        if self._authority is not None:
            port, tls = self._authority.only_tls()
        path = master.folder / f"sentinel-{port}.conf"
        path.write_text(
            f"port {0 if tls else port}\n"
            "bind 127.0.0.1\n"
            + "".join(f"{name.removeprefix('--')} {value}\n" for name, value in zip(tls[::2], tls[1::2], strict=True))
            + f"dir {master.folder}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.port_of(master)} 2\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER * 1000:.0f}\n"
            f"sentinel failover-timeout {SERVICE} 3000\n"
            + (f"requirepass {self.password}\nsentinel sentinel-pass {self.password}\n" if self.password else ""),
            encoding="utf-8",
        )
        command = ["/bin/sh", "-c", _WITH_WATCHDOG, "sentinel", find_program(), str(path), "--sentinel"]
        log = (master.folder / f"sentinel-{port}.log").open("wb")
        with log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        self._processes.append(process)
        self.ports.append(port)

    def _end_sentinels(self):
        for process in self._processes:
            process.kill()
            process.stdin.close()
            process.wait()

    def _client(self, number):
        tls = {} if self._authority is None else {"ssl": True, "ssl_ca_certs": self._authority.ca}
        port = self.ports[number]
        return redis.Redis(port=port, password=self.password, socket_timeout=1.0, socket_connect_timeout=1.0, **tls)

    def _knows(self, number):
        """Whether a sentinel knows of the replica and of its fellows: before that it fails over to nobody."""
        with contextlib.suppress(redis.RedisError), self._client(number) as client:
            state = client.sentinel_masters()[SERVICE]
            return state["num-slaves"] == len(self.servers) - 1 and state["num-other-sentinels"] == 2
        return False

    def _until(self, condition, seconds=60.0):
        deadline = time.monotonic() + seconds
        while not condition():
            for process, port in zip(self._processes, self.ports, strict=True):
                log = self.servers[0].folder / f"sentinel-{port}.log"
                assert process.poll() is None, f"a sentinel ended: {log.read_text()[-500:]}"
            assert time.monotonic() < deadline, "the sentinels do not find each other"
            threading.Event().wait(0.05)


def follow(replica, port):
    """Make *replica* a replica of the server at *port*, and wait until it has what that one has."""
    with redis.Redis.from_url(replica.url) as client:
        client.replicaof("127.0.0.1", port)
        deadline = time.monotonic() + 60
        while client.info("replication").get("master_link_status") != "up":
            assert time.monotonic() < deadline, "the replica does not follow"
            threading.Event().wait(0.05)
