"""The dashboard as an ASGI application: what it sends, to whom, how much of it, and when it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from ephemeral import PriorityProcessorAtom, SignalSink, testing
from ephemeral.testing import wait_all_blocked
from ephemeral_redis.dashboard import app
from ephemeral_redis.dashboard._frames import ROWS, Backlog, frame, payload_text, picture_frame
from ephemeral_redis.dashboard._history import SECONDS, RateHistory
from ephemeral_redis.dashboard._relay import Relay
from ephemeral_redis.watch.picture import Change, ScopeRate

from .dashboard_kit import NOW, HandSource, event, fleet, group, older, outage, rung, visit, worker

STATIC = Path(__file__).parent.parent / "ephemeral_redis" / "dashboard" / "static"
OURS = [path for path in STATIC.iterdir() if path.is_file()]


def client_of(application, host="localhost"):
    return httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url=f"http://{host}")


# The page's files


@pytest.mark.real_time  # files are read in threads
async def test_the_page_and_all_its_files_come_from_here_and_may_run_nothing_else() -> None:
    async with client_of(app(HandSource())) as client:
        page = await client.get("/")
        assert page.status_code == 200
        named = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
        assert len(named) >= 5
        for name in [*named, *(path.name for path in OURS)]:
            answer = await client.get(f"/{name}")
            assert answer.status_code == 200, name
            assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
            assert answer.headers["x-content-type-options"] == "nosniff"
        again = await client.get("/app.js", headers={"if-none-match": (await client.get("/app.js")).headers["etag"]})
        assert again.status_code == 304
        assert (await client.get("/../_app.py")).status_code == 404
        assert (await client.post("/pictures")).status_code == 405


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_no_file_makes_markup_of_text_or_asks_another_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser", text) == []
    )
    assert re.findall(r"\son\w+=|style=\"|javascript:", text) == []
    addresses = set(re.findall(r"https?://[^\s\"']+", text)) - {"http://www.w3.org/2000/svg"}
    assert addresses == set()
    # Relative, so that it works under any prefix.
    assert re.findall(r"(?:src|href|from|new Stream\()\s*=?\s*[\"'`]/", text) == []


def test_the_charting_library_stands_with_its_licence_and_version() -> None:
    [folder] = (STATIC / "vendor").iterdir()
    name, _, version = folder.name.partition("-")
    assert name == "uplot"
    assert f"(v{version})" in (folder / "uPlot.iife.min.js").read_text(encoding="utf-8")[:100]
    assert "MIT License" in (folder / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.real_time  # files are read in threads
async def test_it_can_be_mounted_under_any_prefix() -> None:
    outer = Starlette(routes=[Mount("/ops/bus", app(HandSource()))])
    async with client_of(outer) as client:
        moved = await client.get("/ops/bus")
        assert (moved.status_code, moved.headers["location"]) == (307, "http://localhost/ops/bus/")
        assert (await client.get("/ops/bus/")).status_code == 200
        assert (await client.get("/ops/bus/app.js")).status_code == 200
    async with visit(outer, "/ops/bus/pictures") as page:
        assert (await page.next("picture"))["namespace"] == "shop"


@pytest.mark.real_time  # as above
@pytest.mark.parametrize(
    ("asked", "is_answered"),
    [
        ("localhost:8090", True),
        ("LOCALHOST", True),
        ("[::1]:80", True),
        ("evil.example", False),
        ("[", False),
        ("", False),
    ],
)
async def test_only_those_who_ask_by_an_allowed_name_are_answered(asked: str, is_answered: bool) -> None:
    guarded = app(HandSource(), allowed_hosts=["localhost", "::1"])
    for path in ("/", "/pictures"):
        async with visit(guarded, path, host=asked) as page:
            await page.answered.wait()
            assert page.status == (200 if is_answered else 421)


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(TypeError, match="SignalSink or a FleetWatch, not str"):
        app("redis://localhost")


# Streams


async def test_a_picture_is_sent_at_once_and_whenever_there_is_a_new_one() -> None:
    source = HandSource()
    async with visit(app(source), "/pictures") as page:
        assert await page.next() == {"at": [], "rates": {}}
        assert (await page.next("picture"))["headline"][0]["level"] == "good"
        assert page.headers["content-type"].startswith("text/event-stream")
        assert page.headers["cache-control"] == "no-store"
        source.show(outage())
        assert (await page.next("picture"))["headline"][0]["level"] == "down"
        assert anyio.current_time() == 0.0


async def test_all_viewers_share_one_reading_which_ends_with_the_last() -> None:
    source = HandSource()
    application = app(source)
    async with visit(application, "/pictures") as stays:
        await stays.next("picture")
        async with visit(application, "/pictures") as leaves:
            await leaves.next("picture")
            assert source.readings == ["pictures"]
        source.show(fleet(namespace="seen by the other"))
        assert (await stays.next("picture"))["namespace"] == "seen by the other"
        assert source.readings == ["pictures"]
    await wait_all_blocked()
    assert not source.is_read("pictures")


async def test_when_the_one_who_reads_leaves_another_reads_on() -> None:
    source = HandSource()
    relay = Relay(source.pictures)
    seen = []
    async with anyio.create_task_group() as tasks:
        first = anyio.CancelScope()

        async def leave_first():
            with first:
                await relay.follow(lambda _: None)

        tasks.start_soon(leave_first)
        await wait_all_blocked()
        tasks.start_soon(relay.follow, lambda picture: seen.append(picture.namespace))
        await wait_all_blocked()
        first.cancel()
        await wait_all_blocked()
        assert source.readings == ["pictures", "pictures"]
        source.show(fleet(namespace="later"))
        await wait_all_blocked()
        assert seen[-1] == "later"
        tasks.cancel_scope.cancel()
    assert not source.is_read("pictures")


async def test_a_slow_browser_gets_what_is_newest_and_holds_up_nobody() -> None:
    source = HandSource()
    application = app(source)
    async with visit(application, "/pictures", room=0) as slow, visit(application, "/pictures") as quick:
        await slow.next("rates")
        await wait_all_blocked()
        for number in range(100):
            source.show(fleet(namespace=f"{number}"))
            await wait_all_blocked()
        seen = [(await quick.next("picture"))["namespace"] for _ in range(101)]
        assert seen == ["shop", *map(str, range(100))]
        # One was under way when it stopped reading; those that came since were never kept for it, but for the last.
        assert [(await slow.next("picture"))["namespace"] for _ in range(2)] == ["shop", "99"]


async def test_a_reload_finds_the_rates_of_the_minutes_before_and_the_last_picture_at_once() -> None:
    source = HandSource(fleet(at=NOW))
    application = app(source)
    async with visit(application, "/pictures") as page:
        await page.next("picture")
        source.show(fleet(at=NOW + 1, scopes=(ScopeRate(scope="order", count=30, within=10.0),)))
        await page.next("picture")
        async with visit(application, "/pictures") as reloaded:
            assert await reloaded.next("rates") == {"at": [NOW, NOW + 1], "rates": {"order": [12.0, 3.0]}}
            assert (await reloaded.next("picture"))["at"] == NOW + 1
    await wait_all_blocked()
    # Nobody looks, so nothing is known any more of how things are: no old picture is handed out as one of now.
    source.picture = fleet(at=NOW + 60)
    async with visit(application, "/pictures") as later:
        assert (await later.next("picture"))["at"] == NOW + 60


async def test_served_by_itself_it_reads_before_anybody_looks() -> None:
    source = HandSource()
    application = app(source)
    async with application.router.lifespan_context(application):
        await wait_all_blocked()
        assert source.readings == ["pictures"]
        async with visit(application, "/pictures") as page:
            assert (await page.next("rates"))["at"] == [NOW]
    assert not source.is_read("pictures")


async def test_signals_are_filtered_by_the_librarys_patterns() -> None:
    source = HandSource()
    application = app(source)
    async with visit(application, "/signals", query="pattern=order.*,%20user") as page:
        await wait_all_blocked()
        source.tell(
            event("order.placed", key="k", payload={"items": 3}), event("orders"), event("user", operation_id=2**62)
        )
        assert (await page.next("signals")) == {
            "rows": [
                [NOW, "order.placed", "k", "a1" * 8, "", "{'items': 3}"],
                [NOW, "user", "", "a1" * 8, str(2**62), ""],
            ],
            "count": 2,
            "lost": 0,
        }


@pytest.mark.parametrize(("query", "count"), [("items=0", 1), ("items=1", 2), ("items=0&pattern=processing.*,o*", 1)])
async def test_what_ladders_raise_for_each_item_may_be_left_out(query: str, count: int) -> None:
    source = HandSource()
    async with visit(app(source), "/signals", query=query) as page:
        await wait_all_blocked()
        source.tell(event("processing.started:pri1:widget-1"), event("order.placed"))
        shown = await page.next("signals")
    assert (shown["rows"][-1][1], shown["count"]) == ("order.placed", count)


@pytest.mark.parametrize("pattern", ["", "a,,b", "%20"])
async def test_a_pattern_that_makes_no_sense_is_refused_in_words(pattern: str) -> None:
    async with visit(app(HandSource()), "/signals", query=f"pattern={pattern}") as page:
        assert "empty part" in await page.next("refused")


async def test_signals_come_as_fast_as_an_eye_follows_and_the_rest_is_counted() -> None:
    source = HandSource()
    async with visit(app(source), "/signals") as page:
        await wait_all_blocked()
        source.tell(event("first"))
        assert (await page.next())["count"] == 1
        for number in range(1000):
            source.tell(event(f"number:{number}"))
        sent = await page.next()
        assert anyio.current_time() == pytest.approx(0.5)
        assert (sent["count"], sent["lost"]) == (1000, 1000 - ROWS)
        assert [row[1] for row in sent["rows"]] == [f"number:{number}" for number in range(1000 - ROWS, 1000)]


async def test_a_silent_stream_says_each_second_that_it_is_there() -> None:
    async with visit(app(HandSource()), "/signals") as page:
        await anyio.sleep(3.5)
        assert page.said().count(":\n\n") == 3


async def test_a_head_request_ends() -> None:
    async with visit(app(HandSource()), "/pictures", method="HEAD") as page:
        await wait_all_blocked()
        assert (page.status, page.is_over) == (200, True)


async def test_a_stream_ends_when_its_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server:
        should_exit = False

        def handle_exit(self, *_):
            """Stand where uvicorn's own handler stands."""

    server = Server()
    monkeypatch.setattr(signal, "getsignal", lambda number: server.handle_exit if number == signal.SIGTERM else None)
    async with visit(app(HandSource()), "/pictures") as page:
        await anyio.sleep(5)
        assert not page.is_over
        server.should_exit = True
        await anyio.sleep(1.1)
        assert page.is_over


# What is sent


def data_of(sent):
    _, data = sent.decode("ascii").removesuffix("\n\n").split("\n")
    assert "\n" not in data
    return json.loads(data.removeprefix("data: "), parse_constant=pytest.fail)


def test_no_name_can_end_an_event_or_spoil_it() -> None:
    hostile = "a\n\nevent: refused\ndata: \u2028 \ud800 \x00"
    assert data_of(frame("signals", hostile)) == hostile


def test_numbers_that_are_none_become_none() -> None:
    picture = fleet(workers=(worker("api-1", lag=float("nan"), degraded_seconds=float("inf")),))
    [sent] = data_of(picture_frame(picture))["workers"]
    assert (sent["lag"], sent["degraded_seconds"]) == (None, None)


def test_a_large_fleet_is_sent_in_bounds_with_what_is_amiss_first() -> None:
    groups = [group(rung(1, group=f"g{number}"), name=f"g{number}") for number in range(2000)]
    groups.append(group(rung(1, "down", group="z", since=NOW), name="z"))
    workers = [worker(f"w{number}") for number in range(999)] + [worker("lost", missed=1)]
    scopes = tuple(ScopeRate(scope=f"s{number}", count=1, within=10.0) for number in range(1000))
    change = Change(at=NOW, kind="down", processor="p" * 512, epoch=1, by="a" * 16, is_edge=True)
    picture = fleet(*groups, workers=tuple(workers), scopes=scopes, scopes_known=5000, changes=(change,) * 5000)
    sent = picture_frame(picture)
    shown = data_of(sent)
    assert shown["groups"][0]["group"] == "z"
    assert shown["workers"][0]["name"] == "lost"
    assert (shown["groups_known"], shown["workers_known"], shown["scopes_known"]) == (2001, 1000, 5000)
    assert len(sent) < 250_000


def test_a_backlog_keeps_the_newest_and_counts_what_it_had_no_room_for() -> None:
    backlog = Backlog(lambda name: name != "unwanted")
    assert not backlog.add([event("unwanted")])
    assert backlog.add([event(f"s{number}") for number in range(ROWS + 3)])
    sent = data_of(backlog.take())
    assert (len(sent["rows"]), sent["count"], sent["lost"]) == (ROWS, ROWS + 3, 3)
    assert sent["rows"][-1][1] == f"s{ROWS + 2}"
    assert data_of(backlog.take()) == {"rows": [], "count": 0, "lost": 0}


def test_a_payload_is_shown_shortened_and_runs_no_code_of_its_own() -> None:
    class Secret:
        def __repr__(self):
            pytest.fail("asked")

    class Sly(dict):
        __repr__ = Secret.__repr__

    assert payload_text({"items": 3, "paid": True, "note": None}) == "{'items': 3, 'note': None, 'paid': True}"
    assert payload_text([Secret(), Sly()]) == "[<Secret>, <Sly>]"
    assert len(payload_text({str(number): "x" * 10_000 for number in range(10_000)})) <= 301
    assert payload_text(10**10_000) == "<int>"
    nested = current = []
    for _ in range(100):
        current.append([])
        current = current[0]
    assert len(payload_text(nested)) < 40


def test_a_long_key_is_cut() -> None:
    backlog = Backlog(lambda _: True)
    backlog.add([event("s", key="k" * 100_000)])
    assert len(data_of(backlog.take())["rows"][0][2]) == 301


def test_the_history_of_rates_is_bounded_and_passes_over_what_says_nothing_new() -> None:
    history = RateHistory()
    for second in range(SECONDS + 50):
        history.add(fleet(at=NOW + second))
        history.add(fleet(at=NOW + second + 0.2))
        history.add(older(fleet(at=NOW + second), 0.95))
    kept = history.as_json()
    assert len(kept["at"]) == SECONDS
    assert kept["at"][-1] == NOW + SECONDS + 49
    assert kept["rates"] == {"order": [12.0] * SECONDS}


def test_no_address_of_the_bus_is_sent() -> None:
    assert not re.search(rb"redis://|@", picture_frame(outage()))


# With a sink


async def test_it_shows_one_process_without_a_bus() -> None:
    async def refuse(item):
        raise ConnectionError

    async def take(item):
        return item

    async with (
        SignalSink() as sink,
        PriorityProcessorAtom(1, refuse, sink, failure_threshold=1, reroute_failed=True) as primary,
        PriorityProcessorAtom(2, take, sink),
    ):
        application = app(sink)
        async with visit(application, "/pictures") as page, visit(application, "/signals") as tail:
            assert (await page.next("picture"))["headline"][0]["level"] == "good"
            await wait_all_blocked()
            began = anyio.current_time()
            await primary.call("order-1")
            while (picture := await page.next("picture"))["headline"][0]["level"] != "down":
                pass
            assert anyio.current_time() - began < 1.0
            assert picture["groups"][0]["route"] == "pri2"
            assert picture["changes"][0]["kind"] == "down"
            rows = []
            while not any(row[1] == "failover.requested:pri1→pri2" for row in rows):
                rows += (await tail.next("signals"))["rows"]
            assert any(row[1] == "processing.failed:pri1:order-1" for row in rows)


async def test_it_shows_a_sink_on_a_memory_bus() -> None:
    async with (
        testing.MemoryBus() as bus,
        SignalSink(backend=bus.backend()) as sink,
        visit(app(sink), "/pictures") as page,
    ):
        assert (await page.next("picture"))["workers"][0]["origin"] == sink.origin


def test_one_process_needs_no_redis_for_it(tmp_path: Path) -> None:
    code = (
        "import sys, ephemeral, ephemeral_redis.dashboard; ephemeral_redis.dashboard.app(ephemeral.SignalSink());"
        "print(sorted({'redis', 'hiredis', 'msgpack', 'typer', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def test_who_lacks_the_extra_is_told_its_name(tmp_path: Path) -> None:
    code = "import sys; sys.modules['starlette'] = None; import ephemeral_redis.dashboard"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "pip install 'ephemeral-redis[dashboard]'" in ran.stderr.splitlines()[-1]


def test_the_picture_at_the_top_of_a_page_is_the_headline_of_the_picture_below_it() -> None:
    assert data_of(picture_frame(replace(outage(), namespace="x")))["headline"][0]["parts"][0] == {"name": "pri1"}
