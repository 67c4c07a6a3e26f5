"""What must hold in the modelled fleet: in every step, and wherever nothing is under way any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ephemeral import _health

from .parts import P

if TYPE_CHECKING:
    from .explore import Action
    from .fleet import Fleet, FleetState
    from .worker import Worker


def faults_of_step(fleet: Fleet, before: FleetState, action: Action, after: FleetState) -> Iterator[str]:
    """Yield what must never happen in one step, and has."""
    for index in range(len(fleet.workers)):
        was, now = fleet.value(before.workers[index]), fleet.value(after.workers[index])
        if was is now or was.life != now.life or was.entry is None:
            continue
        if now.entry.row.record.epoch < was.entry.row.record.epoch:
            yield f"worker {index} sees the epoch go back"
        if was.mirror[1] is not None and now.mirror[1].record.epoch < was.mirror[1].record.epoch:
            yield f"the mirror of worker {index} sees the epoch go back"
    was, now = fleet.value(before.server)[1], fleet.value(after.server)[1]
    if was is not None and now is not None and was is not now and action.name != "promote":
        yield from _faults_of_table(fleet, was.record, now.record)
    row = fleet.server.row
    if row is not None:
        leases = [lease for worker in fleet.workers for lease in worker.leases]
        if sum(_health._is_held(row.record, lease) for lease in leases) > 1:
            yield "two probers with a lease that the table takes"


def _faults_of_table(fleet: Fleet, was: Any, now: Any) -> Iterator[str]:
    if now.epoch < was.epoch:
        yield "the epoch of the table goes back"
    news = fleet.server.log[-1].news
    if was.state == "isolated" and now.state != "isolated" and news.kind not in {"reset", "healed"}:
        yield f"isolated by hand, and undone by {news.kind}"
    is_given = now.lease is not None and now.lease != was.lease and news.kind != "healed"
    if is_given and was.lease is not None and was.lease.until > fleet.server.now:
        yield "a lease is given out while another one runs"


def faults_at_rest(fleet: Fleet) -> Iterator[str]:
    """Yield what must not be where nothing is due any more, and is."""
    row, past = fleet.server.row, fleet.past
    known = max(worker.entry.row.record.epoch for worker in fleet.workers)
    if row is not None and row.record.epoch < known:
        yield "the table knows less than a worker, and nobody puts it back"
    for index, worker in enumerate(fleet.workers):
        yield from _disagreement(fleet, index, worker)
    told = [worker.told for worker in fleet.workers]
    # A worker that is alone tells what it finds; and what a server forgets may happen again.
    if past.edges != sum(told) and not (past.was_alone or past.has_forgotten):
        yield f"{past.edges} edges, and {told} told"
    state = "up" if row is None else row.record.state
    # A row that was deleted under a server that runs is back once anybody asks for something.
    is_deleted = row is None and _has_flushed(fleet)
    wish = past.by_hand[0] if past.by_hand and not is_deleted else None
    if wish == "isolate" and state != "isolated":
        yield "isolated by hand, and is not"
    if wish == "reset" and state != "up":
        yield "reset by hand, and is not up, though nothing has failed since"
    if past.good >= 0 and state != "up":
        yield "a good verdict under a valid lease, and is not up"
    trouble = fleet.what_cannot_go_on()
    if trouble is not None:
        yield trouble


def _has_flushed(fleet: Fleet) -> bool:
    return fleet.left["flushes"] < fleet.world.flushes


def _disagreement(fleet: Fleet, index: int, worker: Worker) -> Iterator[str]:
    entry, row = worker.entry, fleet.server.row
    if row is not None and (entry.row != row or worker.mirror.rows.get(P) != row):
        yield f"worker {index} does not know the table's row"
    if row is None and entry.row.version and not _has_flushed(fleet):
        yield f"the table has lost the row that worker {index} knows"
    if entry.own is not None and fleet.world.quorum == 1:
        yield f"worker {index} holds to a row of its own"
    if entry.own is None and entry.shown != entry.row.record:
        yield f"worker {index} shows what does not hold"
    if entry.promised is not None or entry.undecided is not None or worker.mirror._asked:
        yield f"worker {index} waits for what will not come"


def troubles_to_come(fleet: Fleet) -> Iterator[str]:
    """Let the processor be reset, fail and get well once more; yield what of it does not work any more."""
    if _all_are(fleet, "isolated"):
        fleet.workers[0].store.reset(P, fleet.server.now)
        fleet.settle()
        if not _all_are(fleet, "up"):
            yield "isolated, and cannot be reset"
    if _all_are(fleet, "up"):
        fleet.server.now += 1  # what fails at the instant of a success came before it
        for number in range(max(fleet.world.threshold, fleet.world.quorum)):
            worker = fleet.workers[number % fleet.world.quorum]
            worker.store.failed(P, worker.entry.shown.epoch, fleet.server.now)
            fleet.settle()
        if not _all_are(fleet, "down"):
            yield "up, and failures do not take it down"
    if not _all_are(fleet, "down"):
        return  # one sick worker, which is none of the fleet's business
    for number in range(fleet.world.recovery_probes):
        if _all_are(fleet, "up"):
            break
        prober = fleet.workers[-1 - number % len(fleet.workers)]
        if not _is_given_the_lease(fleet, prober):
            yield "down, and cannot be probed"
            return
        prober.store.finish(prober.leases.pop(), fleet.server.now, is_good=True)
        fleet.settle()
    if not _all_are(fleet, "up"):
        yield "down, and a good probe does not bring it back"


def _is_given_the_lease(fleet: Fleet, prober: Worker) -> bool:
    prober.leases = []
    for _ in range(2):  # a server that has lost its data without a word is told so by the first
        fleet.server.now = max(fleet.server.now, prober.entry.shown.probe_due_at)
        prober.acquire()
        fleet.settle()
        if prober.leases:
            return True
    return False


def _all_are(fleet: Fleet, state: str) -> bool:
    return all(worker.entry.shown.state == state for worker in fleet.workers)
