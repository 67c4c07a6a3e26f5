"""``ephemeral dashboard``: how it begins, whom it answers, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend
from ephemeral_redis.cli.dashboard import allowed_hosts, is_loopback

COMMAND = [sys.executable, "-m", "ephemeral_redis.cli", "dashboard", "--namespace", "shop"]
NOWHERE = "redis://:hunter2@127.0.0.1:1"


@contextmanager
def dashboard(url, *options):
    """Run it on a free port; yield its process and what it says first."""
    command = [*COMMAND, "--redis", url, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


@contextmanager
def pictures(address):
    """Yield what returns the next picture."""
    with urllib.request.urlopen(f"{address}pictures", timeout=20) as answer:

        def following():
            while answer.readline() != b"event: picture\n":
                pass
            return json.loads(answer.readline().removeprefix(b"data: "))

        yield following


def refused(*options):
    ran = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    [line] = ran.stderr.splitlines()
    return line


def test_a_mistake_is_told_in_one_line() -> None:
    assert "redis" in refused("--redis", "http://:hunter2@localhost")
    assert "hunter2" not in refused("--redis", "http://:hunter2@localhost")
    assert "namespace" in refused("--redis", NOWHERE, "--namespace", "two words")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot listen on 127.0.0.1 port {port}" in refused("--redis", NOWHERE, "--port", port)


def test_it_serves_without_a_bus_and_says_so_without_its_password() -> None:
    with dashboard(NOWHERE) as (process, said), pictures(said.split()[0]) as following:
        assert "hunter2" not in said
        sent = json.dumps(following())
        assert json.loads(sent)["problem"]
        assert "hunter2" not in sent
        process.send_signal(signal.SIGINT)
        # It ends though a page is open, in the time of a second or two and not when that page is closed.
        assert process.wait(timeout=20) == 130
        assert process.stderr.read() == ""


def test_who_may_look_is_said_where_others_can_reach_it() -> None:
    with dashboard(NOWHERE, "--host", "0.0.0.0") as (process, _):
        assert "it knows no users" in process.stderr.readline()
        process.terminate()
        assert process.wait(timeout=20) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("host", "is_own"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("web", False)],
)
def test_on_loopback_it_answers_by_its_own_names_alone(host: str, is_own: bool) -> None:
    assert is_loopback(host) == is_own
    names = allowed_hosts(host, [])
    assert (names is not None) == is_own
    assert names is None or {host, "localhost", "127.0.0.1", "::1"} == set(names)
    assert "ops.example" in allowed_hosts(host, ["ops.example"])


@pytest.mark.server
def test_the_rights_of_an_onlooker_are_enough(redis_server) -> None:
    docs = (Path(__file__).parent.parent / "docs" / "bus.md").read_text(encoding="utf-8")
    [rights] = re.findall(r"^ACL SETUSER onlooker .+$", docs, re.MULTILINE)
    client = redis.Redis.from_url(redis_server.url)
    client.execute_command(*rights.split())
    backend = RedisSignalBackend.from_url(redis_server.url, namespace="shop", name="api-1", require=True)
    with (
        SignalSink(backend=backend) as sink,
        dashboard(f"{redis_server.url}?username=onlooker&password=secret") as (_, said),
        pictures(said.split()[0]) as following,
    ):
        sink.raise_signal("order.placed:eu")
        while not (picture := following())["workers"] or not picture["scopes"]:
            assert picture["problem"] is None
        assert picture["workers"][0]["name"] == "api-1"
        assert picture["scopes"][0]["scope"] == "order.placed"
        with urllib.request.urlopen(f"{said.split()[0]}signals?pattern=order.*", timeout=20) as tail:
            assert tail.readline() == b"retry: 1000\n"
            sink.raise_signal("order.paid")
            while (line := tail.readline()) != b"event: signals\n":
                if line == b":\n":  # nothing came for a second: it was raised before the reading began
                    sink.raise_signal("order.paid")
            assert json.loads(tail.readline().removeprefix(b"data: "))["rows"][0][1] == "order.paid"
    client.execute_command("ACL", "DELUSER", "onlooker")
