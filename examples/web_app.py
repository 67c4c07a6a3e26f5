"""A web application that answers at once and works in the background, with named coordinators in its lifespan.

Translations run a few at a time. The commands of one account run in order, accounts take turns, and an account that
sends faster than it is served gets 429 while all others go on. While ``system-overload`` is raised, commands are passed
over instead of run.

Run it: ``python examples/web_app.py``. It serves itself on a free port, calls itself and checks the answers. To keep it
serving: ``uvicorn --factory --app-dir examples web_app:make_app``.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ephemeral import (
    CoordinatorFactory,
    EphemeralKeyedWorkCoordinator,
    EphemeralOptions,
    EphemeralWorkCoordinator,
    Operation,
    SignalSink,
)

Job = dict[str, Any]

COMMANDS_PER_ACCOUNT = 5
RETRY_AFTER_SECONDS = 1


async def translate(job: Job, op: Operation) -> None:
    """Stand in for a translation service that limits how much it is asked."""
    await anyio.sleep(0.02)
    if len(job["text"]) > 1000:
        op.emit("rate-limit")


async def apply(command: Job) -> None:
    """Stand in for a change to an account."""
    await anyio.sleep(0.1)
    if command["action"] == "fail":
        raise ValueError("the command failed")


def make_factory(sink: SignalSink) -> CoordinatorFactory:
    """Say which coordinators there are; each is made when it is first asked for."""
    factory = CoordinatorFactory()
    factory.add_work("translator", translate, EphemeralOptions(max_concurrency=4, signals=sink))
    factory.add_keyed(
        "commands",
        lambda command: command["account"],
        apply,
        EphemeralOptions(
            max_concurrency=8,
            enable_fair_scheduling=True,
            fair_scheduling_threshold=COMMANDS_PER_ACCOUNT,
            cancel_on_signals="system-overload",
            signals=sink,
        ),
    )
    return factory


def make_app(sink: SignalSink | None = None) -> Starlette:
    """Build the application; *sink* hears its signals (None: one of its own)."""
    signals = sink or SignalSink()
    factory = make_factory(signals)

    def translator() -> EphemeralWorkCoordinator[Job]:
        return factory.create_coordinator("translator")

    def commands() -> EphemeralKeyedWorkCoordinator[str, Job]:
        return factory.create_coordinator("commands")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001  Starlette hands it in
        async with signals, factory:
            yield  # left when the server stops: what was accepted is finished first

    async def post_translation(request: Request) -> JSONResponse:
        job = await request.json()
        if not isinstance(job.get("text"), str):
            return JSONResponse({"error": "send {'text': ...}"}, status_code=400)
        operation_id = await translator().enqueue(job)
        # As text: JavaScript would round a 63-bit number.
        return JSONResponse({"status": "pending", "id": str(operation_id)}, status_code=202)

    async def post_command(request: Request) -> JSONResponse:
        command = await request.json()
        if not isinstance(command.get("account"), str) or not isinstance(command.get("action"), str):
            return JSONResponse({"error": "send {'account': ..., 'action': ...}"}, status_code=400)
        if commands().try_enqueue(command):
            return JSONResponse({"status": "pending"}, status_code=202)
        waiting = commands().get_pending_count_for_key(command["account"])
        return JSONResponse(
            {"error": f"{waiting} commands of {command['account']} wait already"},
            status_code=429,
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )

    async def get_status(request: Request) -> JSONResponse:  # noqa: ARG001  Starlette hands it in
        translations, applied = translator().statistics(), commands().statistics()
        return JSONResponse(
            {
                "translator": {
                    "pending": translations.pending_count,
                    "active": translations.active_count,
                    "completed": translations.total_completed,
                    "failed": translations.total_failed,
                    "hasRateLimit": translator().has_signal("rate-limit"),
                },
                "commands": {
                    "pending": applied.pending_count,
                    "active": applied.active_count,
                    "errorCount": applied.total_failed,
                },
            }
        )

    routes = [
        Route("/api/translate", post_translation, methods=["POST"]),
        Route("/api/command", post_command, methods=["POST"]),
        Route("/api/status", get_status),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def main() -> None:
    """Serve on a free port, send more than one account may, and look at the status."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(uvicorn.Config(make_app(), log_level="error", ws="none"))

    async with anyio.create_task_group() as tasks, httpx.AsyncClient(base_url=url) as client:
        tasks.start_soon(server.serve, [listener])
        translation = await client.post("/api/translate", json={"text": "Guten Tag"})
        print(translation.status_code, translation.json()["status"])

        for _ in range(100):  # faster than one is done every tenth of a second
            refused = await client.post("/api/command", json={"account": "eve", "action": "buy"})
            if refused.status_code == 429:
                break
        other = await client.post("/api/command", json={"account": "bob", "action": "buy"})
        print("eve", refused.status_code, f"retry after {refused.headers.get('Retry-After')} s, bob", other.status_code)

        status = (await client.get("/api/status")).json()
        print("status of", ", ".join(status))
        server.should_exit = True

    assert translation.status_code == other.status_code == 202
    assert refused.status_code == 429, "eve sent more than may wait"
    assert refused.headers["Retry-After"] == "1"
    assert set(status["translator"]) == {"pending", "active", "completed", "failed", "hasRateLimit"}
    assert set(status["commands"]) == {"pending", "active", "errorCount"}


if __name__ == "__main__":
    anyio.run(main)
