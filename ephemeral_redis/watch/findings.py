"""What ``ephemeral doctor`` finds: facts in, findings out. Each says what is so, what it means, and the fix."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ephemeral_redis._roster import Told

    from .picture import FleetPicture, GroupPicture, RungPicture, WorkerPicture

Severity = Literal["critical", "warning", "note"]

LEAST_VERSION = (6, 2)
"""The first server with ``XTRIM MINID``, as the bus needs it."""

SLOW_SECONDS = 0.02
VERY_SLOW_SECONDS = 0.1
"""Round trips from here, median: each edge of health and each batch of signals takes one."""

FULL_SHARE = 0.75
VERY_FULL_SHARE = 0.9
"""Of the memory that the server may use."""

LONG_SECONDS = 600.0
"""For how long a rung may be down before that is more than an outage."""

FORGOTTEN_SECONDS = 3600.0
"""After how long a rung that a hand took out may have been forgotten."""

SILENT_SECONDS = 5.0
"""A worker tells of itself every 2 s."""

BACKLOG = 1000
"""Signals waiting in one worker, from which on it does not keep up; ten batches are no more than a burst."""

LAG_SECONDS = 1.0
RECONNECTS = 5
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        severity: ``"critical"``: work or health suffers now; ``"warning"``: it will, or did; ``"note"``: good to know.
        subject: What it is about.
        found: What is so, with its values.
        means: What follows from that.
        fix: What to do.
    """

    severity: Severity
    subject: str
    found: str
    means: str
    fix: str

    @property
    def needs_action(self) -> bool:
        """Whether somebody should do something about it."""
        return self.severity != "note"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was looked at.

    Attributes:
        picture: The fleet.
        told: What the workers tell, with their rules.
        latencies: Round trips from here to the server, seconds; at least one.
        denied: Commands for looking that this user may not use.
        may_write: Whether this user may write anything, and so is meant for a worker.
        lacking: Commands that a worker needs and this user may not use.
        is_used: Whether anybody has ever used the namespace.
    """

    picture: FleetPicture
    told: Sequence[Told]
    latencies: Sequence[float]
    denied: Sequence[str] = ()
    may_write: bool = False
    lacking: Sequence[str] = ()
    is_used: bool = True


def find(facts: Facts) -> list[Finding]:
    """Return all that is not as it should be, the worst first."""
    found = [
        *_server(facts),
        *_rights(facts),
        *_ladders(facts.picture),
        *_rules(facts.told),
        *_versions(facts.picture.workers),
        *(finding for worker in facts.picture.workers for finding in _worker(worker, facts.picture.read_at)),
        *_reading(facts),
    ]
    order = ("critical", "warning", "note")
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _server(facts: Facts) -> Iterator[Finding]:
    server = facts.picture.server
    if server is None:
        return
    own = "give the bus a server, or at least a memory limit, of its own"
    numbers = tuple(int(part) for part in server.version.split(".")[:2] if part.isdigit())
    if len(numbers) == len(LEAST_VERSION) and numbers < LEAST_VERSION:
        yield Finding(
            "critical", "server version", f"the server is {server.kind} {server.version}",
            "the bus needs 6.2: workers refuse it and go on alone", "upgrade the server",
        )  # fmt: skip
    if server.policy is not None and server.policy != "noeviction":
        is_limited = bool(server.max_memory)
        yield Finding(
            "warning" if is_limited else "note", "eviction policy", f"maxmemory-policy is {server.policy}",
            "once memory is full the server throws away keys, and with them counted failures and health"
            if is_limited
            else "it has no effect while maxmemory is 0; with a limit, counted failures and health may be thrown away",
            f"CONFIG SET maxmemory-policy noeviction, and in the server's configuration; {own}",
        )  # fmt: skip
    if server.max_memory and server.used_memory is not None:
        share = server.used_memory / server.max_memory
        if share >= FULL_SHARE:
            yield Finding(
                "critical" if share >= VERY_FULL_SHARE else "warning", "memory",
                f"{share:.0%} of {server.max_memory:,} bytes are used",
                "a full server takes no more: signals wait in the workers, ladders go on alone",
                f"raise maxmemory, or keep less: a smaller retention or capacity; {own}",
            )  # fmt: skip
    median = sorted(facts.latencies)[len(facts.latencies) // 2]
    if median >= SLOW_SECONDS:
        yield Finding(
            "critical" if median >= VERY_SLOW_SECONDS else "warning", "latency",
            f"a round trip from here takes {median * 1000:.0f} ms (median of {len(facts.latencies)})",
            "a failure reaches the other workers at least as much later, and after 1 s a call counts as lost",
            "look for slow commands (SLOWLOG GET), swapping and a busy network; keep the server near its workers",
        )  # fmt: skip


def _rights(facts: Facts) -> Iterator[Finding]:
    if facts.denied:
        yield Finding(
            "note", "rights to look", f"this user may not use {_listed(facts.denied)}",
            "what these would show is missing above: INFO has memory and eviction policy",
            "ACL SETUSER as docs/bus.md says for an onlooker",
        )  # fmt: skip
    if facts.may_write and facts.lacking:
        yield Finding(
            "critical", "rights of a worker", f"this user may not use {_listed(facts.lacking)}",
            "a worker under this user cannot do all of its work on the bus, and goes on alone",
            "ACL SETUSER as docs/bus.md says for a worker; as an onlooker it has rights that it does not need",
        )  # fmt: skip
    if not facts.may_write:
        yield Finding(
            "note", "rights of a worker", "this user may only look, so a worker's rights were not checked",
            "nothing, if your workers use another user", "run doctor with a worker's URL too",
        )  # fmt: skip


def _ladders(picture: FleetPicture) -> Iterator[Finding]:
    names = {worker.origin: worker.name for worker in picture.workers}
    for group in picture.groups:
        # Without workers only those rungs are known that have been down.
        if group.workers and group.rungs and group.route is None:
            yield Finding(
                "critical", f"ladder {group.group}", f"none of its {len(group.rungs)} rungs is up",
                f"no work is done: {group.pending:,} items wait, bounded by max_pending",
                "bring a service back, or `ephemeral reset` what was isolated; add a rung that cannot fail with them",
            )  # fmt: skip
        for rung in group.rungs:
            yield from _rung(rung, group, names, picture.read_at)


def _rung(rung: RungPicture, group: GroupPicture, names: dict[str, str], now: float) -> Iterator[Finding]:
    since = now if rung.since is None else rung.since
    lasted, by = now - since, names.get(rung.by or "", rung.by or "nobody known")
    if rung.state == "isolated":
        yield Finding(
            "warning" if lasted >= FORGOTTEN_SECONDS else "note", rung.processor,
            f"isolated by {by}, for {_lasted(lasted)} now",
            f"no work and no probes: it stays out until somebody resets it; its work goes to {group.route or 'nobody'}",
            f"`ephemeral reset {rung.processor}` once it may work again",
        )  # fmt: skip
    elif rung.state != "up":
        yield Finding(
            "warning" if lasted >= LONG_SECONDS else "note", rung.processor,
            f"{rung.state} for {_lasted(lasted)} now, noticed by {by}; failed probes in a row: {rung.failed_probes}",
            f"its work goes to {group.route or 'nobody'}",
            "see what its service answers to a probe; if it is gone for good, take the rung out of the program",
        )  # fmt: skip
    elif rung.down_alone:
        yield Finding(
            "warning", rung.processor,
            f"held down by {_listed([names.get(origin, origin) for origin in rung.down_alone])} alone",
            "these workers see failures that the others do not: their network or host is more likely to blame",
            "look at these workers; a quorum of 1 would let them condemn the service for all",
        )  # fmt: skip


def _rules(told: Sequence[Told]) -> Iterator[Finding]:
    """Compare the rules by which workers judge one processor."""
    values: dict[str, dict[str, dict[object, list[str]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for one in told:
        for rung in (rung for ladder in one.ladders for rung in ladder.rungs):
            for field in fields(rung.rules):
                values[rung.processor][field.name][getattr(rung.rules, field.name)].append(one.worker.name)
    for processor, by_field in sorted(values.items()):
        differing = [
            f"{name}={value} in {_listed(sorted(set(who)))}"
            for name, by_value in by_field.items()
            if len(by_value) > 1
            for value, who in sorted(by_value.items(), key=lambda item: str(item[0]))
        ]
        if differing:
            yield Finding(
                "warning", processor, f"workers judge it by different rules: {'; '.join(differing)}",
                "each caller's own rules decide, so who happens to call decides when it goes down and comes back",
                "deploy one configuration everywhere; while a deployment runs this is as it should be",
            )  # fmt: skip


def _versions(workers: Sequence[WorkerPicture]) -> Iterator[Finding]:
    by_version: dict[str, list[str]] = defaultdict(list)
    for worker in workers:
        by_version[worker.version].append(worker.name)
    if len(by_version) > 1:
        said = "; ".join(f"{version} in {_listed(sorted(who))}" for version, who in sorted(by_version.items()))
        yield Finding(
            "warning", "library versions", f"workers run different ones: {said}",
            "they understand one another as far as their versions allow, and differ in the rest",
            "finish the deployment; while it runs this is as it should be",
        )  # fmt: skip


def _worker(worker: WorkerPicture, now: float) -> Iterator[Finding]:
    name = worker.name
    silent = now - worker.told
    if silent > SILENT_SECONDS:
        yield Finding(
            "warning", name, f"has not told of itself for {silent:.0f} s, as it should every 2 s",
            "it died, is frozen or cannot reach the bus; after 10 s it is no longer listed",
            "look at the process",
        )  # fmt: skip
    if worker.is_degraded or worker.reconnects >= RECONNECTS:
        yield Finding(
            "warning", name,
            f"was without the bus for {worker.degraded_seconds:.1f} s in all, and reached it again"
            f" {worker.reconnects} times",
            "meanwhile it went on alone: by what it saw itself, its signals late",
            "look at its log, its network and the server's log",
        )  # fmt: skip
    if worker.dropped:
        yield Finding(
            "warning", name, f"dropped {worker.dropped:,} signals",
            "too many waited in its outbox, they were older than the bus keeps, or the server refused them:"
            " the others never see them and count them as missed",
            "raise less, or publish a narrower pattern; a larger max_outbox helps against outages only",
        )  # fmt: skip
    if worker.outbox >= BACKLOG:
        yield Finding(
            "warning", name, f"{worker.outbox:,} signals wait in its outbox",
            "it raises faster than it sends; once max_outbox is reached the oldest are dropped",
            "raise less, publish a narrower pattern, or look at the latency and the process's load",
        )  # fmt: skip
    if worker.missed:
        yield Finding(
            "warning", name, f"missed {worker.missed:,} signals of others",
            "the bus had trimmed or lost them before it read them, or their senders dropped them;"
            " it told of them as bus.gap",
            "look for workers that drop; else raise retention or capacity, or mirror a narrower pattern",
        )  # fmt: skip
    if worker.lag > LAG_SECONDS:
        yield Finding(
            "warning", name, f"received the last signal of others {worker.lag:.1f} s after it was raised",
            "what it reacts to by signals comes as late", "mirror a narrower pattern, or look at the process's load",
        )  # fmt: skip
    if worker.undecodable:
        yield Finding(
            "warning", name, f"could not read {worker.undecodable:,} entries of the bus",
            "something else writes into the namespace, or its version is too old",
            "look for who writes there; the ACL keeps others out",
        )  # fmt: skip
    if worker.undelivered or worker.listener_errors:
        yield Finding(
            "warning", name,
            f"{worker.undelivered:,} signals of others reached no listener,"
            f" and listeners raised {worker.listener_errors:,} times",
            "its loop is too far behind to call them, or they fail: reactions to signals are not what they should be",
            "look at its log; keep listeners short, and blocking calls out of the loop",
        )  # fmt: skip
    if worker.reports_dropped:
        yield Finding(
            "warning", name, f"never told the health table how {worker.reports_dropped:,} calls ended",
            "more than 10,000 waited while the bus was away; most were out of their window by then",
            "nothing, unless it goes on",
        )  # fmt: skip


def _reading(facts: Facts) -> Iterator[Finding]:
    picture = facts.picture
    if picture.unreadable:
        yield Finding(
            "warning", "namespace", f"{picture.unreadable:,} records, rows or entries cannot be read from here",
            "another version of the library wrote them, or something else writes into the namespace",
            "run this command in the newest version; look for who writes there",
        )  # fmt: skip
    if not picture.workers:
        yield Finding(
            "warning", "workers", "none tells of itself",
            "none runs" if facts.is_used else "none runs, and none ever did in this namespace",
            f"check the spelling of the namespace {picture.namespace!r}, and that workers use this server",
        )  # fmt: skip


def _lasted(seconds: float) -> str:
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def as_json(finding: Finding) -> dict[str, object]:
    """Return a finding as values that JSON knows."""
    return {**asdict(finding), "needs_action": finding.needs_action}
