"""The outbox: bounded, in order, and exact about what it dropped, whoever raises while it is emptied."""

from __future__ import annotations

import threading

import pytest

from ephemeral_redis import _codec
from ephemeral_redis._outbox import Outbox


def record(signal="a", at=100.0, payload=None):
    return (signal, 0, None, at, payload, None, "")


def names(taken):
    return [signal[0][0] for signal in taken.signals]


def test_what_is_added_is_taken_in_order():
    outbox = Outbox(10)
    for name in "abc":
        outbox.append(record(name))
    assert names(outbox.take(0.0)) == ["a", "b", "c"]
    assert len(outbox) == 0
    assert outbox.taken == 3


def test_beyond_the_limit_the_oldest_go_and_are_told_by_stream():
    outbox = Outbox(3)
    for name in ["a", "processing.failed:pri1:x", "b", "c", "d", "e"]:
        outbox.append(record(name))
    taken = outbox.take(0.0)
    assert names(taken) == ["c", "d", "e"]
    assert taken.skipped == (2, 1)
    assert outbox.dropped == 3
    assert outbox.take(0.0).skipped == (0, 0)


def test_what_is_too_old_is_left_out_and_told():
    outbox = Outbox(10)
    for at in (1.0, 5.0, 9.0):
        outbox.append(record(at=at))
    taken = outbox.take(5.0)
    assert [signal[0][3] for signal in taken.signals] == [5.0, 9.0]
    assert (taken.skipped, outbox.stale) == ((1, 0), 1)


def test_a_batch_closes_by_number_and_by_size():
    outbox = Outbox(1000)
    for _ in range(300):
        outbox.append(record())
    assert len(outbox.take(0.0).signals) == _codec.MAX_BATCH_SIGNALS
    assert len(outbox.take(0.0).signals) == 300 - _codec.MAX_BATCH_SIGNALS
    for _ in range(10):
        outbox.append(record(payload=b"x" * 60_000))
    sizes = [len(outbox.take(0.0).signals) for _ in range(4)]
    assert sizes == [3, 3, 3, 1]


def test_a_marker_comes_with_what_was_before_it_and_survives_that_being_dropped():
    outbox = Outbox(2)
    outbox.append(record("a"))
    marker = outbox.mark()
    assert outbox.is_asked
    for name in "bcd":
        outbox.append(record(name))
    taken = outbox.take(0.0)
    assert taken.markers == [marker]
    assert names(taken) == ["c", "d"]
    assert not outbox.is_asked


def test_the_oldest_stamp_is_known_without_taking():
    outbox = Outbox(2)
    assert outbox.oldest() is None
    outbox.append(record(at=7.0))
    assert outbox.oldest() == 7.0


def test_a_raise_that_interrupts_the_taking_in_its_own_thread_does_not_wait_for_itself():
    outbox = Outbox(1)
    with outbox._lock:
        for _ in range(5):
            outbox.append(record())
    outbox.append(record())
    assert len(outbox) == 1
    assert outbox.dropped == 5


@pytest.mark.real_time
def test_threads_that_raise_while_it_is_emptied_lose_nothing_uncounted():
    outbox = Outbox(500)
    each, threads = 5000, 4
    taken, skipped = 0, 0
    workers = [threading.Thread(target=lambda: [outbox.append(record()) for _ in range(each)]) for _ in range(threads)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers) or len(outbox):
        batch = outbox.take(0.0)
        taken += len(batch.signals)
        skipped += batch.skipped[0]
    skipped += outbox.take(0.0).skipped[0]
    assert taken + skipped == each * threads
    assert skipped == outbox.dropped


def test_flushes_are_no_signals_neither_in_the_count_nor_in_the_limit():
    outbox = Outbox(2)
    markers = [outbox.mark() for _ in range(3)]
    assert (len(outbox), outbox.is_empty) == (0, False)
    outbox.append(record("a", at=7.0))
    outbox.append(record("b"))
    assert (len(outbox), outbox.oldest(), outbox.dropped) == (2, 7.0, 0)
    outbox.append(record("c"))
    assert (len(outbox), outbox.dropped) == (2, 1)
    taken = outbox.take(0.0)
    assert (names(taken), set(taken.markers)) == (["b", "c"], set(markers))
    assert (len(outbox), outbox.is_empty) == (0, True)
