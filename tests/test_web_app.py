"""The web example, through its ASGI interface; `test_examples` runs it once over a real socket."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx

from ephemeral import SignalSink

PATH = Path(__file__).parent.parent / "examples" / "web_app.py"


def load_example() -> Any:
    spec = importlib.util.spec_from_file_location("web_app", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def client_of(sink: SignalSink) -> AsyncGenerator[httpx.AsyncClient]:
    app = load_example().make_app(sink)
    # httpx sends no lifespan events: the application is entered as a server would.
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        yield client


async def command(client: httpx.AsyncClient, account: str, action: str = "buy") -> httpx.Response:
    return await client.post("/api/command", json={"account": account, "action": action})


async def status_of(client: httpx.AsyncClient) -> Any:
    return (await client.get("/api/status")).json()


async def test_a_translation_is_pending_and_then_counted() -> None:
    async with client_of(SignalSink()) as client:
        answer = await client.post("/api/translate", json={"text": "Guten Tag"})
        assert (answer.status_code, answer.json()["status"]) == (202, "pending")
        assert answer.json()["id"].isdigit()
        await anyio.sleep(1)
        assert (await status_of(client))["translator"] == {
            "pending": 0,
            "active": 0,
            "completed": 1,
            "failed": 0,
            "hasRateLimit": False,
        }
        await client.post("/api/translate", json={"text": "x" * 2000})
        await anyio.sleep(1)
        assert (await status_of(client))["translator"]["hasRateLimit"]


async def test_a_full_account_is_told_to_wait_and_another_is_not() -> None:
    async with client_of(SignalSink()) as client:
        # One runs and five wait; the first may not have started when the sixth comes.
        codes = [(await command(client, "eve")).status_code for _ in range(9)]
        assert codes == sorted(codes)
        assert codes.count(202) in {5, 6}
        refused = await command(client, "eve")
        assert refused.status_code == 429
        assert refused.headers["Retry-After"] == "1"
        assert "eve" in refused.json()["error"]
        assert (await command(client, "bob")).status_code == 202
        await anyio.sleep(1)
        assert (await command(client, "eve", "fail")).status_code == 202
        await anyio.sleep(1)
        assert (await status_of(client))["commands"] == {"pending": 0, "active": 0, "errorCount": 1}


async def test_commands_are_passed_over_while_the_system_is_overloaded() -> None:
    sink = SignalSink()
    async with client_of(sink) as client:
        sink.raise_signal("system-overload")
        assert (await command(client, "eve", "fail")).status_code == 202
        await anyio.sleep(1)
        assert (await status_of(client))["commands"] == {"pending": 0, "active": 0, "errorCount": 0}
        sink.clear_pattern("system-overload")
        await command(client, "eve", "fail")
        await anyio.sleep(1)
        assert (await status_of(client))["commands"]["errorCount"] == 1


async def test_what_makes_no_sense_is_refused() -> None:
    async with client_of(SignalSink()) as client:
        assert (await client.post("/api/translate", json={})).status_code == 400
        assert (await client.post("/api/command", json={"account": "eve"})).status_code == 400
