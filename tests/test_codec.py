"""The wire: what is written is what is read, and nothing that is read can stop a reader."""

from __future__ import annotations

import contextlib
import math

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ephemeral import SignalPropagation
from ephemeral._payloads import check_portable_path
from ephemeral.abc import HealthRecord, Lease, SharedRecord
from ephemeral_redis import _batch, _codec, _keys
from ephemeral_redis._batch import Numbers
from ephemeral_redis._codec import NewerError, UndecodableError

ORIGIN = bytes(range(8))
NAMES = st.sampled_from(
    ["a", "a:b", "a:b:c", "a:c", "b", "ab:c", "rate-limit", "processing.complete:pri1:w1", "processing.failed:pri1:w2"]
)
PAYLOADS = st.none() | st.integers(-5, 5) | st.lists(st.text(max_size=5), max_size=3)


PATHS = st.none() | st.lists(NAMES, min_size=1, max_size=4).map(tuple)


def record(signal, *, at=1000.0, key=None, operation_id=0, payload=None, path=None):
    return (signal, operation_id, key, at, payload, path and SignalPropagation(path), ORIGIN.hex())


def entry_of(lane, ages):
    return {b"v": b"1", b"o": ORIGIN, b"q": b"%d" % lane.position, b"n": b"%d" % lane.size, b"a": ages, b"b": lane.body}


def lay_out(records, numbers=None, *, publish_items=True):
    return _batch.lay_out(
        ORIGIN, [_codec.outgoing(r) for r in records], numbers or Numbers(), publish_items=publish_items
    )


@given(
    st.lists(
        st.tuples(NAMES, st.integers(0, 50), PAYLOADS, st.none() | st.text(max_size=5), PATHS), min_size=1, max_size=40
    )
)
def test_a_batch_is_read_as_it_was_raised(raised):
    now = 1000.0
    records = [record(n, at=now - age / 1000, payload=p, key=k, operation_id=age, path=w) for n, age, p, k, w in raised]
    batch, after = lay_out(records)
    ages = batch.ages(now)
    split = 4 * batch.signals.size
    got = []
    for lane, lane_ages in ((batch.signals, ages[:split]), (batch.items, ages[split:])):
        if lane.size:
            entry = _codec.unpack_entry(b"2000000-7", entry_of(lane, lane_ages), shift=-1000.0)
            assert entry.origin == ORIGIN.hex()
            got.append(entry.records)
    streams = ([r for r in records if not _batch.is_item(r[0])], [r for r in records if _batch.is_item(r[0])])
    assert got == [[(*r[:3], pytest.approx(r[3]), *r[4:]) for r in stream] for stream in streams if stream]
    assert after == (1, len(records), len(streams[0]), len(streams[1]), bool(streams[0]), bool(streams[1]))


@given(st.lists(NAMES, min_size=1, max_size=60), st.booleans())
def test_each_scope_is_exactly_its_range_of_members(names, publish_items):
    batch, _ = lay_out([record(name) for name in names], publish_items=publish_items)
    members = [batch.members[i : i + 14] for i in range(0, len(batch.members), 14)]
    assert sorted(members) == [ORIGIN + place.to_bytes(6, "big") for place in range(len(names))]
    for index, scope in enumerate(batch.scopes):
        first = int.from_bytes(batch.ranges[4 * index : 4 * index + 2], "big")
        last = int.from_bytes(batch.ranges[4 * index + 2 : 4 * index + 4], "big")
        held = {names[int.from_bytes(member[8:], "big")] for member in members[first - 1 : last]}
        assert held == {name for name in names if scope in _keys.counted_scopes(name)}
        assert last - first + 1 == sum(scope in _keys.counted_scopes(name) for name in names)


def test_what_is_dropped_or_only_counted_still_moves_the_numbers():
    numbers = Numbers().skip(2, 3)
    batch, after = lay_out([record("a"), record("processing.failed:pri1:x")], numbers, publish_items=False)
    assert (batch.signals.position, batch.signals.size, batch.items.size) == (2, 1, 0)
    assert after == Numbers(serial=1, sequence=2, signals=3, items=3, has_signals=True)


@pytest.mark.parametrize(
    ("seconds", "packed"), [(0.0, 0), (-5.0, 0), (0.0004, 0), (0.0006, 1), (59.9996, 60000), (1e9, 0xFFFFFFFF)]
)
def test_ages_are_milliseconds_and_never_of_the_future(seconds, packed):
    assert int.from_bytes(_codec.pack_ages([0.0], seconds), "big") == packed


def body(*items):
    return msgpack.packb([list(item) for item in items])


GOOD = {b"v": b"1", b"o": ORIGIN, b"q": b"0", b"n": b"1", b"a": bytes(4), b"b": body((0, "a", None, 0, None))}


def test_fields_that_a_later_version_adds_are_passed_over():
    longer = {**GOOD, b"b": body((0, "a", None, 0, None, None, "more")), b"x": b"y"}
    assert _codec.unpack_entry(b"1000-0", longer).records == [("a", 0, None, 1.0, None, None, ORIGIN.hex())]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({}, id="nothing"),
        pytest.param({**GOOD, b"v": b"2"}, id="another version"),
        pytest.param({**GOOD, b"b": b"\xc1"}, id="no msgpack"),
        pytest.param({**GOOD, b"b": b"x" * (_codec.MAX_BODY_BYTES + 1)}, id="too long"),
        pytest.param({**GOOD, b"b": b"\xdd\xff\xff\xff\xff"}, id="an array of four billion"),
        pytest.param({**GOOD, b"b": b"\x91" * 5000}, id="five thousand deep"),
        pytest.param({**GOOD, b"b": msgpack.packb(msgpack.ExtType(1, b"x"))}, id="an extension"),
        pytest.param({**GOOD, b"n": b"-1"}, id="a negative count"),
        pytest.param({**GOOD, b"n": b"999999999"}, id="a huge count"),
        pytest.param({**GOOD, b"q": b"-1"}, id="a negative position"),
        pytest.param({**GOOD, b"q": b"x"}, id="no number"),
        pytest.param({**GOOD, b"o": b"short"}, id="no origin"),
        pytest.param({**GOOD, b"a": b""}, id="no ages"),
        pytest.param({**GOOD, b"b": body((0, "a\x1b[31m", None, 0, None))}, id="an unprintable name"),
        pytest.param({**GOOD, b"b": body((0, "a" * 513, None, 0, None))}, id="a long name"),
        pytest.param({**GOOD, b"b": body((0, "", None, 0, None))}, id="an empty name"),
        pytest.param({**GOOD, b"b": body((0, 7, None, 0, None))}, id="a name that is none"),
        pytest.param({**GOOD, b"b": body((0, "a", 7, 0, None))}, id="a key that is none"),
        pytest.param({**GOOD, b"b": body((0, "a", None, "x", None))}, id="an id that is none"),
        pytest.param({**GOOD, b"b": body((1, "a", None, 0, None))}, id="a place outside"),
        pytest.param({**GOOD, b"b": body((-1, "a", None, 0, None)), b"n": b"1"}, id="a place from behind"),
        pytest.param(
            {**GOOD, b"n": b"2", b"a": bytes(8), b"b": body((0, "a", None, 0, None), (0, "b", None, 0, None))},
            id="a place taken twice",
        ),
        pytest.param({**GOOD, b"b": body((0, "a", None, 0, "x"))}, id="a payload that is not packed"),
        pytest.param({**GOOD, b"b": body((0, "a", None, 0, b"\xc1"))}, id="a payload that cannot be unpacked"),
        pytest.param({**GOOD, b"b": body((0, "a", None, 0, b"\x91" * 9 + b"\x01"))}, id="a payload nine deep"),
        pytest.param({**GOOD, b"b": body((0, "a", None, 0, msgpack.packb({1: 2})))}, id="a map with a number as key"),
        *(
            pytest.param({**GOOD, b"b": body((0, "a", None, 0, None, path))}, id=f"a path of {what}")
            for path, what in [
                ([], "nothing"),
                ("ab", "letters"),
                ({"a": 1}, "keys"),
                ([1], "numbers"),
                (["\x1b"], "escapes"),
                (["a" * 513], "a long name"),
                (["a" * 512] * 65, "too many names"),
                ([""] * 40_000, "too many empty names"),
            ]
        ),
    ],
)
def test_garbage_is_refused_with_one_error(broken):
    with pytest.raises(UndecodableError):
        _codec.unpack_entry(b"1000-0", broken)


def test_the_longest_way_that_may_be_raised_is_read():
    longest = record("a", path=("x" * 512,) * 64)
    check_portable_path("a", longest[5].path)
    batch, _ = lay_out([longest])
    [read] = _codec.unpack_entry(b"1000-0", entry_of(batch.signals, bytes(4))).records
    assert read[5] == longest[5]
    assert _codec.body_bytes(_codec.outgoing(longest)) >= len(batch.signals.body)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), st.binary(max_size=40)))
def test_no_bytes_at_all_raise_anything_else(changed):
    with contextlib.suppress(UndecodableError):
        _codec.unpack_entry(b"1000-0", {**GOOD, **changed})


@given(st.binary(max_size=60))
def test_no_bytes_as_a_row_raise_anything_else(value):
    with contextlib.suppress(UndecodableError):
        _codec.unpack_row("pri1", value)


@pytest.mark.parametrize(
    "written",
    [
        HealthRecord("pri1", epoch=7, since=1.5, by="a" * 16),
        HealthRecord("pri1", epoch=7, since=1.5, by="b", state="isolated", fence=9, last_probe_at=3.25),
        HealthRecord(
            "pri1",
            epoch=8,
            since=2.0,
            by="c",
            state="down",
            failures=3,
            failed_probes=2,
            good_probes=1,
            probe_at=4.5,
            lease=Lease("pri1", "d", 12, 6.5),
            fence=12,
            last_probe_at=4.0,
        ),
    ],
)
def test_a_row_is_read_as_it_was_written(written):
    head = f"41:{written.epoch}:{'u' if written.is_up else 'd'}:{written.failures}:".encode()
    row = _codec.unpack_row("pri1", head + _codec.pack_record(written))
    assert row == SharedRecord(41, written)
    assert math.isinf(row.record.probe_at) == math.isinf(written.probe_at)


@pytest.mark.parametrize(
    "wrong",
    [
        {"since": math.nan},
        {"since": 1e300},
        {"since": -1.0},
        {"probe_at": math.nan},
        {"last_probe_at": math.inf},
        {"lease": Lease("pri1", "d", 12, math.nan)},
    ],
)
def test_a_row_with_a_time_that_is_none_cannot_be_read(wrong):
    record = HealthRecord("pri1", **{"epoch": 7, "since": 1.5, "by": "a", "state": "down"} | wrong)
    row = _codec.known_row("pri1", b"41:7:d:3:" + _codec.pack_record(record))
    assert not row.is_readable


def test_no_row_is_none():
    assert _codec.unpack_row("pri1", b"") is None
    assert _codec.known_row("pri1", b"") is None


@pytest.mark.parametrize(
    ("found", "raised"),
    [(b"1", None), (b"2", NewerError), (b"999999999", NewerError), (b"0", UndecodableError), (b"", UndecodableError)]
    + [(other, UndecodableError) for other in (b"x", b"-2", b"1.5", b" 2", "²".encode(), b"9" * 10, b"9" * 5000)],
)
def test_a_newer_version_is_told_from_garbage(found, raised):
    with contextlib.nullcontext() if raised is None else pytest.raises(UndecodableError) as caught:
        _codec.check_version(found, b"1")
    assert raised is None or type(caught.value) is raised


@pytest.mark.parametrize(
    ("value", "version"),
    [
        (b"41:7:d:3:2:of the next version", 41),
        (b"41:7:d:3:1:\xc1", 41),
        (b"41:7:d:", 41),
        (b"x1:7:d:3:1:", None),
        (b"9" * 19 + b":7:d:3:1:", None),
        (b"garbage", None),
    ],
)
def test_of_a_row_that_cannot_be_read_its_head_is_known_or_nothing(value, version):
    with pytest.raises(UndecodableError):
        _codec.unpack_row("pri1", value)
    row = _codec.known_row("pri1", value)
    assert (row and (row.version, row.is_readable)) == (version and (version, False))


@pytest.mark.parametrize(
    ("name", "scopes"),
    [
        ("a", ("a", None)),
        ("a:b", ("a", "a:b")),
        ("a:b:c:d", ("a", "a:b")),
        ("a:", ("a", "a:")),
        ("processing.failed:pri1:widget-42", ("processing.failed", "processing.failed:pri1")),
    ],
)
def test_a_name_counts_in_its_first_two_scopes(name, scopes):
    assert _keys.counted_scopes(name) == scopes


@pytest.mark.parametrize("namespace", ["", "a b", "{a}", "a\n", "x" * 129])
def test_a_namespace_that_could_meet_another_is_refused(namespace):
    with pytest.raises(ValueError, match="namespace must"):
        _keys.Keys(namespace)


def test_a_namespace_is_a_str():
    with pytest.raises(TypeError, match="not bytes"):
        _keys.Keys(b"shop")
