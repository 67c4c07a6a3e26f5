"""The commands that look at a fleet and act on it, on a real server: what they print, to whom, and how they end."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
import redis

from ephemeral import SignalSink
from ephemeral_redis import RedisSignalBackend, cli
from ephemeral_redis._keys import Keys

from .watch_kit import until, working

pytestmark = [pytest.mark.real_time, pytest.mark.server]
unique = itertools.count()
HOSTILE = "\x1b[31mred\x1b]0;title\x07\u202e"


@pytest.fixture
def namespace():
    return f"tools-{os.getpid()}-{next(unique)}"


@pytest.fixture
def url(redis_server):
    return redis_server.url


@pytest.fixture(autouse=True)
def _keep_the_logger():
    logger = logging.getLogger("ephemeral")
    level = logger.level
    yield
    logger.setLevel(level)


class Ran:
    """What a command said, and its exit code."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def tool(monkeypatch, capsys, url, namespace):
    """Run a command in this process, on this test's namespace."""
    monkeypatch.setenv("EPHEMERAL_REDIS_URL", url)
    monkeypatch.setenv("EPHEMERAL_NAMESPACE", namespace)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ephemeral", *arguments])
        capsys.readouterr()
        code = cli.main()
        return Ran(code, *capsys.readouterr())

    return run


def process(url, namespace, *arguments, **options):
    environment = {**os.environ, "EPHEMERAL_REDIS_URL": url, "EPHEMERAL_NAMESPACE": namespace, "COLUMNS": "80"}
    command = [sys.executable, "-m", "ephemeral_redis.cli", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(command, env=environment, **pipes)


@contextlib.contextmanager
def sink_of(url, namespace, **options):
    with SignalSink(backend=RedisSignalBackend.from_url(url, namespace=namespace, require=True, **options)) as sink:
        yield sink


def is_listed(tool, workers=1):
    """Whether the ladder of so many workers is told of, with both of its rungs."""
    groups = tool("top", "--once", "--json").json["groups"]
    return groups and len(groups[0]["rungs"]) == 2 and groups[0]["workers"] == workers


LOOKING = [("tail",), ("top", "--once"), ("doctor",)]
ACTING = [("signal", "a"), ("drain", "--all"), ("isolate", "pri1"), ("reset", "pri1")]


# Mistakes, said in one line


@pytest.mark.parametrize("command", LOOKING + ACTING, ids=lambda command: command[0])
def test_a_bus_that_cannot_be_reached_is_one_line_without_the_password(tool, command) -> None:
    ran = tool(*command, "--redis", "redis://user:geheim@127.0.0.1:1/0")
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(r"ephemeral: no usable bus at redis://\*\*\*@127\.0\.0\.1:1/0: [^\n]+\n", ran.err)
    assert "geheim" not in ran.err


@pytest.mark.parametrize("command", LOOKING + ACTING, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--namespace", "a b"], "namespace must be printable"),
        (["--redis", "redi://user:geheim@host"], "url must begin with"),
        (["--redis", "redis://user:geheim@host:port"], "cannot be read"),
        (["redis://user:geheim@host", "left over", "and more"], "unexpected extra argument"),
    ],
)
def test_a_wrong_value_is_one_line_without_the_password(tool, command, arguments, said) -> None:
    ran = tool(*command, *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err
    assert "geheim" not in ran.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["signal", ""], "signal name must not be empty"),
        (["signal", HOSTILE], "unprintable"),
        (["signal", "x" * 513], "more than 512"),
        (["signal", "a", "--payload", "{bad"], "--payload must be JSON"),
        (["signal", "a", "--payload", "1" * 30], "64"),
        (["drain"], "say which coordinators"),
        (["drain", "one", "--all"], "say which coordinators"),
        (["drain", "--pattern", "a,,b"], "empty"),
        (["drain", ""], "coordinator_id"),
        (["tail", "a,"], "empty"),
        (["tail", "--limit", "0"], "--limit"),
        (["top", "--every", "0"], "--every"),
        (["isolate"], "processor"),
    ],
)
def test_a_wrong_argument_is_one_line(tool, command, said) -> None:
    ran = tool(*command)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err.lower() or said in ran.err
    assert ran.err.removesuffix("\n").isprintable()


def test_what_must_be_named_is_named_with_its_variable(tool, monkeypatch) -> None:
    monkeypatch.delenv("EPHEMERAL_REDIS_URL")
    ran = tool("top")
    assert ran.code == 2
    assert "EPHEMERAL_REDIS_URL" in ran.err


# signal and drain


def test_a_signal_is_raised_counted_and_acknowledged(tool, url, namespace) -> None:
    with sink_of(url, namespace) as sink:
        heard = []
        sink.subscribe(heard.append, "order.*")
        ran = tool("signal", "order.placed:eu", "--key", "c-7", "--payload", '{"items": [1, null, "é"]}')
        assert (ran.code, ran.out, ran.err) == (0, "raised order.placed:eu with key c-7: the server has it\n", "")
        (event,) = until(lambda: heard)
        assert (event.signal, event.key, event.payload) == ("order.placed:eu", "c-7", {"items": [1, None, "é"]})
        assert sink.backend.count("order.placed:eu", 60).result(5) == 1


def test_a_signal_that_is_not_acknowledged_in_time_is_no_success(tool, monkeypatch) -> None:
    async def late(sink, timeout):
        return False

    monkeypatch.setattr(SignalSink, "flush", late)
    ran = tool("signal", "a", "--timeout", "0.5")
    assert (ran.code, ran.out) == (2, "")
    assert "not acknowledged it within 0.5 s" in ran.err


def test_a_tool_is_no_worker(tool, url, namespace) -> None:
    tool("signal", "a")
    with redis.Redis.from_url(url) as client:
        assert client.exists(Keys(namespace).roster) == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["orders"], ("coordinator.drain.id", "orders")),
        (["--all"], ("coordinator.drain.all", None)),
        (["--pattern", "order-*, mail"], ("coordinator.drain.pattern", "order-*, mail")),
    ],
)
def test_coordinators_are_asked_to_drain(tool, url, namespace, arguments, expected) -> None:
    with sink_of(url, namespace) as sink:
        heard = []
        sink.subscribe(heard.append, "coordinator.drain.*")
        ran = tool("drain", *arguments)
        assert ran.code == 0
        assert ran.out.endswith(": the server has it\n")
        (event,) = until(lambda: heard)
        assert (event.signal, event.key) == expected


# isolate and reset


def test_a_processor_is_isolated_and_reset_by_hand_for_all_and_told_once(tool, url, namespace) -> None:
    with (
        working(url, namespace, "api-1") as one,
        working(url, namespace, "api-2") as two,
        sink_of(url, namespace) as ear,
    ):
        heard = []
        ear.subscribe(lambda event: heard.append((event.signal, event.payload)), "failover.*")
        until(lambda: is_listed(tool, workers=2))
        ran = tool("isolate", "pri1", "--json")
        done = ran.json
        assert (ran.code, done["changed"], done["before"]["state"], done["after"]["state"]) == (
            0,
            True,
            "up",
            "isolated",
        )
        for worker in (one, two):
            until(lambda worker=worker: worker.call(worker.primary.get_health).state == "isolated")
            assert worker.call(worker.primary.get_health).epoch == done["after"]["epoch"]
        until(lambda: heard)
        assert heard == [("failover.requested:pri1→pri2", {"route": "pri2", "local": False})]

        again = tool("isolate", "pri1")
        assert (again.code, "isolated already" in again.out) == (0, True)
        shown = tool("top", "--once").out
        assert "ISOLATED pri1" in shown
        assert "@" in re.search(r"ISOLATED pri1 .* by (\S+)", shown)[1]

        ran = tool("reset", "pri1")
        assert ran.code == 0
        assert "pri1 is up; it was isolated since" in ran.out
        for worker in (one, two):
            until(lambda worker=worker: worker.call(worker.primary.get_health).state == "up")
        until(lambda: len(heard) > 1)
        assert heard[1:] == [("failover.restored:pri1", {"route": "pri1", "local": False})]


def test_isolating_the_last_rung_says_that_work_waits(tool, url, namespace) -> None:
    with working(url, namespace, "api-1") as one, sink_of(url, namespace) as ear:
        until(lambda: is_listed(tool))
        heard = []
        ear.subscribe(lambda event: heard.append((event.signal, event.key)), "failover.*")
        assert "work goes to pri1" in tool("isolate", "pri2").out
        until(lambda: one.call(one.primary.get_ladder)[1].state == "isolated")
        ran = tool("isolate", "pri1")
        assert "no rung is left, so work waits" in ran.out
        until(lambda: ("failover.exhausted", "default") in heard)
        assert "NO RUNG IS HEALTHY" in tool("top", "--once").out


def test_resetting_a_healthy_processor_forgets_its_failures(tool, url, namespace) -> None:
    with working(url, namespace, "api-1", failure_threshold=10) as one:
        until(lambda: is_listed(tool))
        one.fail()
        until(lambda: one.call(one.primary.get_health).failures == 3)
        ran = tool("reset", "pri1")
        assert (ran.code, "what was counted against it is forgotten" in ran.out) == (0, True)
        until(lambda: one.call(one.primary.get_health).failures == 0)


@pytest.mark.parametrize("command", ["isolate", "reset"])
def test_an_unknown_processor_is_refused_with_those_there_are(tool, url, namespace, command) -> None:
    with working(url, namespace, "api-1"):
        until(lambda: is_listed(tool))
        ran = tool(command, "pri9")
        assert (ran.code, ran.out) == (2, "")
        assert "known: pri1, pri2" in ran.err
    with redis.Redis.from_url(url) as client:
        assert client.exists(Keys(namespace).health) == 0


def test_without_workers_an_unknown_processor_says_so(tool) -> None:
    assert "is the namespace spelt right" in tool("isolate", "pri1").err


# top and doctor


def test_top_shows_a_fleet_and_its_json_is_the_picture(tool, url, namespace) -> None:
    with working(url, namespace, "api-1") as one:
        until(lambda: is_listed(tool))
        one.fail()
        picture = until(
            lambda: (found := tool("top", "--once", "--json").json)["groups"][0]["completed"] == 3 and found
        )
        assert [rung["state"] for rung in picture["groups"][0]["rungs"]] == ["down", "up"]
        shown = tool("top", "--once").out
        for text in (namespace, "pri1 is down since", "noticed by api-1", "→ pri2", "3 done", "CHANGES", "WORKERS 1"):
            assert text in shown
        assert max(map(len, shown.splitlines())) <= 80
        assert "\x1b" not in shown


def test_doctor_is_content_with_a_well_fleet(tool, url, namespace) -> None:
    with working(url, namespace, "api-1"):
        until(lambda: is_listed(tool))
        ran = tool("doctor")
        assert (ran.code, ran.out, ran.err) == (
            0,
            "Nothing needs action. Looked at: workers 1, ladders 1, rungs 2, scopes 0.\n",
            "",
        )
        assert tool("doctor", "--json").json["is_well"] is True


def test_doctor_names_workers_whose_thresholds_differ(tool, url, namespace) -> None:
    with working(url, namespace, "api-1"), working(url, namespace, "api-2", failure_threshold=7):
        ran = until(lambda: (told := tool("doctor", "--json")).out.count('"subject"') == 2 and told)
        assert ran.code == 1
        (first, second) = ran.json["findings"]
        assert (first["subject"], second["subject"]) == ("pri1", "pri2")
        assert "failure_threshold=3 in api-1; failure_threshold=7 in api-2" in first["found"]


def test_doctor_changes_nothing(tool, url, namespace) -> None:
    with redis.Redis.from_url(url) as client:
        tool("doctor")
        assert client.keys(f"{{{namespace}}}*") == []
        with sink_of(url, namespace):
            pass
        before = {key: client.dump(key) for key in client.keys(f"{{{namespace}}}*")}
        tool("doctor")
        assert {key: client.dump(key) for key in client.keys(f"{{{namespace}}}*")} == before


# tail


def raising(url, namespace, *signals):
    """Raise *signals* again and again, in a thread, until the block is left."""

    @contextlib.contextmanager
    def block():
        is_over = threading.Event()

        def run():
            with sink_of(url, namespace, name="raiser") as sink:
                while not is_over.wait(0.02):
                    for arguments in signals:
                        sink.raise_signal(arguments[0], *arguments[1:2], payload=dict(arguments[2:]) or None)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    return block()


def test_tail_prints_what_matches_a_line_each(tool, url, namespace) -> None:
    with raising(url, namespace, ("order.placed:eu", "c-7", ("items", 3)), ("noise",), ("processing.started:pri1:a",)):
        ran = tool("tail", "order.*", "--limit", "3")
        assert (ran.code, ran.err) == (0, "")
        lines = ran.out.splitlines()
        assert len(lines) == 3
        assert all(re.fullmatch(r'\S+  order\.placed:eu  key=c-7  \{"items":3\}  \S+', line) for line in lines)
        ran = tool("tail", "--no-items", "--limit", "4", "--json")
        assert {json.loads(line)["signal"] for line in ran.out.splitlines()} == {"order.placed:eu", "noise"}
        ran = tool("tail", "processing.*", "--limit", "1", "--json")
        assert ran.json["signal"] == "processing.started:pri1:a"


def test_nothing_that_is_raised_or_named_drives_the_terminal(tool, url, namespace) -> None:
    with raising(url, namespace, ("nice", HOSTILE, (HOSTILE, HOSTILE))):
        for arguments in (["--json"], []):
            out = tool("tail", "--limit", "1", *arguments).out.removesuffix("\n")
            assert out.isprintable()
            assert "red" in out
    # Names that no version of ours writes, from whoever may write the namespace.
    keys = Keys(namespace)
    with redis.Redis.from_url(url) as client, sink_of(url, namespace):
        for key in (keys.shallow, keys.deep):
            client.zadd(key, {HOSTILE.encode(): 1, b"\xff\xfe": 2})
        client.zadd(keys.scope(HOSTILE), {b"x" * 14: client.time()[0] * 1_000_000})
        client.hset(keys.health, HOSTILE + ".pri1", b"1:1:u:0:garbage")
        for command in (["top", "--once"], ["doctor"], ["isolate", HOSTILE], ["top", "--once", "--json"]):
            ran = tool(*command)
            assert all(line.isprintable() for line in (ran.out + ran.err).splitlines())


# As processes: pipes, signals, completion


def read_line(running):
    line = []
    reader = threading.Thread(target=lambda: line.append(running.stdout.readline()), daemon=True)
    reader.start()
    reader.join(30)
    assert line, "nothing came"
    return line[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_tail_into_a_pipe_gives_each_line_at_once_and_ends_by_a_signal_without_a_word(url, namespace, number) -> None:
    with raising(url, namespace, ("a",)), process(url, namespace, "tail", "--json") as running:
        assert json.loads(read_line(running))["signal"] == "a"
        running.send_signal(number)
        _, err = running.communicate(timeout=30)
        assert (running.returncode, err) == (128 + number, "")


def test_a_reader_that_has_enough_ends_it_in_silence(url, namespace) -> None:
    with raising(url, namespace, ("a",)), process(url, namespace, "tail") as running:
        read_line(running)
        running.stdout.close()
        err = running.stderr.read()
        assert (running.wait(30), err) == (141, "")


def test_tail_names_a_worker_that_has_started_after_it(url, namespace) -> None:
    with raising(url, namespace, ("a",)), process(url, namespace, "tail") as running:
        read_line(running)
        with sink_of(url, namespace, name="latecomer") as sink:
            while "  latecomer" not in read_line(running):
                sink.raise_signal("b")
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)


def test_top_into_a_pipe_prints_one_look_after_the_other(url, namespace) -> None:
    with sink_of(url, namespace, name="api-1"), process(url, namespace, "top", "--every", "0.2") as running:
        seen = [read_line(running) for _ in range(12)]
        assert sum(line.startswith("ephemeral top") for line in seen) >= 2
        assert not any("\x1b" in line for line in seen)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
        assert (running.returncode, err) == (130, "")


def test_shell_completion_knows_the_commands() -> None:
    environment = {
        **os.environ,
        "_EPHEMERAL_COMPLETE": "complete_bash",
        "COMP_WORDS": "ephemeral is",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv[0] = 'ephemeral'; from ephemeral_redis.cli import main; sys.exit(main())"
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "isolate" in ran.stdout.split()
