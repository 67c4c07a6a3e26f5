"""Ids are positive, 63 bits long, and met only once, whoever makes them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading

import pytest

from ephemeral import _ids, next_id


def test_ids_rise_and_fit_63_bits() -> None:
    ids = [next_id() for _ in range(1000)]
    assert ids == sorted(set(ids))
    assert all(0 < one < 2**63 for one in ids)


@pytest.mark.parametrize("digest", [0, 2**62 - 1, 2**62, 2**64 - 1])
def test_no_start_can_reach_zero_or_overflow(monkeypatch: pytest.MonkeyPatch, digest: int) -> None:
    monkeypatch.setattr(_ids, "_next", _ids._next)  # put back afterwards
    monkeypatch.setattr(_ids, "xxh64_intdigest", lambda _seed: digest)
    _ids._start_anew()
    assert 0 < next_id() <= 2**63 - 2**62


def test_threads_never_share_an_id() -> None:
    found: list[list[int]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def draw(mine: list[int]) -> None:
        start.wait()
        mine.extend(next_id() for _ in range(5000))

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for mine in found for one in mine}) == 8 * 5000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_starts_anew() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, ",".join(str(next_id()) for _ in range(100)).encode())
        os._exit(0)
    os.close(writer)
    mine = {next_id() for _ in range(100)}
    with os.fdopen(reader) as pipe:
        theirs = {int(one) for one in pipe.read().split(",")}
    os.waitpid(child, 0)
    assert len(theirs) == 100
    assert mine & theirs == set()


def test_spawned_processes_share_none_though_nothing_but_chance_sets_them_apart() -> None:
    command = [sys.executable, "-c", "from ephemeral import next_id; print(*(next_id() for _ in range(50)))"]
    # In containers each would even be pid 1.
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    ids = [one for run in runs for one in run.communicate()[0].split()]
    assert len(set(ids)) == 150


def test_a_process_pool_sees_ids_of_its_own() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(next_id) != next_id()
