"""What ``top`` shows: the most important first, within any width and height."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from ephemeral_redis.cli import top
from ephemeral_redis.cli.frame import MOST_ROWS, frame
from ephemeral_redis.watch.changes import MAX_STEPS
from ephemeral_redis.watch.picture import Change, ScopeRate, ServerPicture

from .dashboard_kit import NOW, WHO, fleet, group, older, outage, rung, worker


def lines(picture, *, width=80, height=None):
    return [line.plain.rstrip() for line in frame(picture, width=width, height=height)]


def text(picture, **size):
    return "\n".join(lines(picture, **size))


def busy():
    """A picture with far more of everything than a screen holds."""
    groups = [group(rung(1, group=f"g{n}"), rung(2, group=f"g{n}"), name=f"g{n}") for n in range(30)]
    return fleet(
        *groups,
        outage().groups[0],
        workers=tuple(worker(f"worker-{n}", origin=f"{n:016x}") for n in range(200)),
        scopes=tuple(ScopeRate(scope=f"scope-{n}", count=1000 - n, within=10.0) for n in range(500)),
        scopes_known=700,
        changes=tuple(
            Change(at=NOW - n, kind="down", processor=f"g{n}.pri1", epoch=n, by=WHO["api-1"], is_edge=True)
            for n in range(300)
        ),
    )


def test_who_looks_at_three_in_the_morning_sees_what_is_down_since_when_by_whom_who_probes_and_what_waits() -> None:
    shown = text(outage())
    top = " ".join(" ".join(lines(outage())[:4]).split())
    assert "pri1 is down since" in top
    assert "noticed by api-2" in top
    assert "4 min 11 s" in top
    assert "340 wait" in top
    assert "DOWN     pri1" in shown
    assert "probe in 4.0 s" in shown
    assert "LADDER default  → pri2  340 waiting, 12 running  10,203 done, 3 failed" in shown


def test_a_rung_that_is_probed_names_who_probes_and_until_when() -> None:
    probed = rung(
        1,
        "probing",
        since=NOW - 30,
        epoch=5,
        by=WHO["api-1"],
        prober=WHO["api-3"],
        probe_until=NOW + 2,
        next_probe=NOW + 2,
    )
    assert "api-3 probes, 2.0 s left" in text(fleet(group(probed, rung(2))))


def test_probes_in_vain_fill_one_row_between_edges() -> None:
    def change(ago, kind, is_edge):
        return Change(at=NOW - ago, kind=kind, processor="pri1", epoch=1, by=WHO["api-1"], is_edge=is_edge)

    steps = [change(ago, kind, False) for ago in range(1, 6) for kind in ("probe failed", "probing")]
    shown = lines(fleet(changes=(change(0, "restored", True), *steps, change(9, "down", True))))
    start = shown.index("CHANGES")
    assert [row.split("pri1")[1].split("by")[0].strip() for row in shown[start + 1 : start + 4]] == [
        "restored",
        "probe failed, 5 times",
        "down",
    ]


def test_a_run_of_probes_of_which_only_the_latest_are_remembered_is_said_to_have_been_longer() -> None:
    steps = tuple(
        Change(at=NOW - ago, kind=kind, processor="pri1", epoch=1, by=WHO["api-1"], is_edge=False)
        for ago in range(MAX_STEPS // 2)
        for kind in ("probe failed", "probing")
    )
    assert f"probe failed, {MAX_STEPS // 2}+ times" in text(fleet(changes=steps))
    assert f"probe failed, {MAX_STEPS // 2 - 1} times" in text(fleet(changes=steps[2:]))


def test_an_outage_of_the_bus_says_so_and_how_old_the_view_is() -> None:
    first, *_ = lines(older(outage(), 12))
    assert "BUS AWAY, seen 12 s ago" in first
    assert "ConnectionError: refused" in text(older(outage(), 12))


def test_a_view_that_is_merely_old_says_so() -> None:
    assert "seen 4.0 s ago" in lines(fleet(read_at=NOW - 4))[0]


class Canvas:
    """Takes what is drawn, until *wanted* is in it."""

    def __init__(self, wanted):
        self.wanted, self.is_seen = wanted, anyio.Event()

    def update(self, drawn, *, refresh):
        assert refresh
        if any(self.wanted in line.plain for line in drawn.renderables):
            self.is_seen.set()


@pytest.mark.real_time
async def test_a_terminal_says_how_old_its_picture_is_though_nothing_more_comes(monkeypatch) -> None:
    monkeypatch.setattr(top, "AGE_SECONDS", 0.01)
    canvas = Canvas("seen 3.")
    screen = top._Screen(Console(width=80, height=24), canvas, fleet(read_at=NOW - 2.9))
    assert not canvas.is_seen.is_set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(screen.grow_old)
        await canvas.is_seen.wait()
        tasks.cancel_scope.cancel()


def test_what_is_put_back_after_a_loss_does_not_read_as_up() -> None:
    healed = Change(at=NOW, kind="healed", processor="pri1", epoch=1, by=WHO["api-1"], is_edge=True)
    assert "put back after a loss" in text(fleet(changes=(healed,)))


def test_an_empty_namespace_asks_whether_it_is_spelt_right() -> None:
    shown = " ".join(line.strip() for line in lines(fleet(groups=(), workers=())))
    assert "is the namespace spelt right, are workers running?" in shown


def test_a_ladder_that_no_worker_has_any_more_is_no_alarm_for_rungs_that_nobody_knows_of() -> None:
    down = rung(1, "down", since=NOW - 9, epoch=5, by="gone")
    assert "LADDER default  no worker has it now" in text(fleet(group(down, workers=0), workers=()))
    assert "LADDER default  NO RUNG IS HEALTHY" in text(fleet(group(down, workers=1)))


def test_workers_in_trouble_come_first() -> None:
    workers = (worker("a-well"), worker("b-silent", told=NOW - 7), worker("c-alone", is_degraded=True))
    shown = lines(fleet(workers=workers), width=120)
    start = next(place for place, line in enumerate(shown) if line.startswith("WORKERS"))
    assert [line.split()[0] for line in shown[start + 1 : start + 4]] == ["b-silent", "c-alone", "a-well"]
    assert "silent 7.0 s" in shown[start + 1]
    assert "alone" in shown[start + 2]


def test_memory_is_shown_with_its_limit() -> None:
    server = ServerPicture(kind="valkey", version="9.1", latency=0.0031, used_memory=12_000_000, max_memory=100_000_000)
    assert "valkey 9.1, 3.1 ms, 12 MB of 100 MB" in lines(fleet(server=server))[0]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (132, 50), (20, 5), (80, 1)])
def test_it_fits_the_terminal(width, height) -> None:
    for picture in (busy(), outage(), fleet(), older(outage(), 5)):
        shown = frame(picture, width=width, height=height)
        assert len(shown) <= height
        assert all(cell_len(line.plain) <= width for line in shown)


def test_with_little_room_trouble_is_shown_and_what_is_left_out_is_counted() -> None:
    shown = text(busy(), height=24)
    assert "pri1 is down since" in shown
    assert "DOWN     pri1" in shown
    assert "more ladders; --once shows all" in shown
    assert "of 300 shown" in shown
    assert "of 200 shown" in shown
    assert "of 500 shown" in text(busy(), height=50)


def test_without_a_height_sections_are_bounded_all_the_same() -> None:
    shown = lines(busy())
    assert f", {MOST_ROWS} of 200 shown" in "\n".join(shown)
    assert sum("● up" in line for line in shown) == 62


names = st.text(min_size=1, max_size=600)


@given(names, names, names)
def test_hostile_names_stay_text_of_one_line(namespace, called, scope) -> None:
    bad = rung(1, "down", group=called, since=NOW, epoch=1, by=called)
    picture = fleet(
        group(bad, name=called),
        namespace=namespace,
        problem=called,
        workers=(worker(called),),
        scopes=(ScopeRate(scope=scope, count=1, within=10.0),),
        changes=(Change(at=NOW, kind=called, processor=scope, epoch=1, by=called, is_edge=True),),
        server=ServerPicture(kind=called, version=scope, latency=0.1),
    )
    for line in frame(picture, width=80, height=None):
        assert line.plain.isprintable()
        assert cell_len(line.plain) <= 80
