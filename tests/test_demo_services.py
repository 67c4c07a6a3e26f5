"""The services as real processes: they answer, die, come back at their address, and never outlive who started them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import httpx
import pytest

from ephemeral_redis.demo.ledger import Ledger
from ephemeral_redis.demo.processes import ServiceProcess, ServiceStartError
from ephemeral_redis.demo.service import create_app

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real_time

LATENCY = (0.0, 0.001)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Ledger.create(tmp_path / "ledger.db").close()
    return tmp_path / "ledger.db"


async def test_a_repeat_is_answered_and_refused(path: Path) -> None:
    with Ledger(path) as ledger:
        transport = httpx.ASGITransport(app=create_app("primary", ledger, lambda: 0.0))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            first = await client.put("/widgets/w 1")
            second = await client.put("/widgets/w 1")
            health = await client.get("/health")
            missing = await client.post("/widgets/w1")
        assert first.json() == {"widget": "w 1", "service": "primary", "is_repeat": False}
        assert second.json() == {"widget": "w 1", "service": "primary", "is_repeat": True}
        assert health.json() == {"service": "primary"}
        assert missing.status_code == 405
        assert ledger.effects() == {"w 1"}


async def test_a_service_is_killed_and_comes_back_at_the_same_address(path: Path) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=5.0) as client:
        with ServiceProcess("primary", path, latency=LATENCY, seed=1) as service, Ledger(path) as ledger:
            before = time.monotonic()
            service.spawn()
            assert before < await service.wait_ready() < time.monotonic()
            url, first_pid = service.url, service.pid
            assert (await client.put(f"{url}/widgets/w1")).json()["is_repeat"] is False
            service.kill()
            with pytest.raises(httpx.TransportError):
                await client.get(f"{url}/health")
            service.spawn()
            await service.wait_ready()
            assert service.url == url
            assert service.pid != first_pid
            assert (await client.put(f"{url}/widgets/w1")).json()["is_repeat"] is True
            assert [a.is_repeat for a in ledger.attempts()] == [False, True]
            last_pid = service.pid
        for pid in (first_pid, last_pid):
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


async def test_what_was_done_and_never_confirmed_is_refused_elsewhere(path: Path) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=20.0) as client:
        with (
            ServiceProcess("primary", path, latency=(2.0, 2.0), seed=1) as primary,
            ServiceProcess("backup", path, latency=LATENCY, seed=1) as backup,
            Ledger(path) as ledger,
        ):
            for service in (primary, backup):
                service.spawn()
                await service.wait_ready()

            async def kill_before_reply() -> None:
                while not ledger.attempts():
                    await anyio.lowlevel.checkpoint()
                primary.kill()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kill_before_reply)
                with pytest.raises(httpx.TransportError):
                    await client.put(f"{primary.url}/widgets/w1")
            assert (await client.put(f"{backup.url}/widgets/w1")).json()["is_repeat"] is True
            assert [(a.service, a.is_repeat) for a in ledger.attempts()] == [("primary", False), ("backup", True)]


async def test_a_service_that_cannot_start_says_why(tmp_path: Path) -> None:
    with ServiceProcess("primary", tmp_path / "missing" / "ledger.db", latency=LATENCY, seed=1) as service:
        tmp_path.joinpath("missing").mkdir()
        tmp_path.joinpath("missing", "ledger.db").mkdir()  # sqlite cannot open a folder
        service.spawn()
        with pytest.raises(ServiceStartError, match=r"primary service did not start: .*unable to open database file"):
            await service.wait_ready()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes that are not its children: Linux only")
@pytest.mark.parametrize("how", ["killed", "stdin closed"])
def test_a_service_ends_with_whoever_started_it(path: Path, how: str) -> None:
    command = [sys.executable, "-m", "ephemeral_redis.demo.service", "--name", "primary"]
    arguments = [*command, "--ledger", str(path), "--with-parent"]
    starter = f"""
import subprocess, sys
child = subprocess.Popen({arguments!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.readline()
child.stdin.close()
child.wait()
"""
    with subprocess.Popen([sys.executable, "-c", starter], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        service = os.pidfd_open(int(process.stdout.readline()))
        try:
            assert select.select([service], [], [], 0)[0] == []
            if how == "killed":
                process.kill()
            else:
                process.stdin.write(b"\n")
                process.stdin.flush()
            assert select.select([service], [], [], 10.0)[0] == [service]
        finally:
            os.close(service)
            process.kill()
