"""What workers wrote down, and whether it adds up: raised, received, counted and reported must be one story."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

ITEMS = "processing."
HERE_ONLY = ("bus.gap", "sink.cleared")
NUMBERED = "n"


@dataclass
class Books:
    """What one worker wrote down.

    Attributes:
        name: What it is called.
        origin: Who it is on the bus.
        raised: Its own signals by name, items and all, as its listeners heard them.
        numbers: How many numbered signals it raised: 0, 1, 2 …, counted where they are raised.
        received: Signals of others by origin and name.
        runs: Numbers received by origin, in the order they came, as runs [first, last]: one run if none is missing,
            doubled or out of order.
        gaps: The sum of all ``bus.gap:<n>`` that its listeners heard.
        slowest: Seconds that its slowest raise took.
        edges: Changes of health that it told: [signal, processor's epoch, whether for itself alone].
        health: What it holds its processors for, as dicts of `ProcessorHealth`.
        probes: Its probes: [processor, begin, end, whether for itself alone], by the clock that all processes share;
            end None: it never came.
        calls: How its calls ended, by outcome.
        bus: ``statistics().bus`` as a dict; None if it was killed.
        undelivered: Signals that its listeners were not called for; see ``sink.statistics()``.
    """

    name: str
    origin: str
    raised: dict[str, int]
    numbers: int
    received: dict[str, dict[str, int]] = field(default_factory=dict)
    runs: dict[str, list[list[int]]] = field(default_factory=dict)
    gaps: int = 0
    slowest: float = 0.0
    edges: list = field(default_factory=list)
    health: list[dict] = field(default_factory=list)
    probes: list = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    bus: dict | None = None
    undelivered: int = 0

    @property
    def travelling(self):
        """How many of its signals were to reach the others."""
        return sum(count for name, count in self.raised.items() if not name.startswith((ITEMS, *HERE_ONLY)))

    @property
    def leaving(self):
        """How many of its signals were to reach the server."""
        return sum(count for name, count in self.raised.items() if not name.startswith(HERE_ONLY))

    @property
    def lost(self):
        """How many of them it says that it did not send."""
        return self.bus["dropped"] + self.bus["stale"]


@dataclass(frozen=True)
class Figures:
    """What `tried` takes: the four figures that must agree, over all workers.

    Attributes:
        raised: Signals raised for the others.
        received: Of these, those that each other worker got, summed over all that should have got them.
        expected: What that sum is when nothing is lost.
        counted: Signals on the server.
        reported: Signals that workers say were never received, summed over the receivers.
    """

    raised: int
    received: int
    expected: int
    counted: int
    reported: int


def figures(books, counted):
    """Return the four figures of the workers that lived."""
    pairs = [(one, other) for one in books for other in books if one is not other and other.bus is not None]
    return Figures(
        raised=sum(one.travelling for one in books),
        received=sum(_received(one, other) for one, other in pairs),
        expected=sum(one.travelling for one, _ in pairs),
        counted=sum(counted.values()),
        reported=sum(book.bus["missed"] for book in books if book.bus is not None),
    )


def disagreements(books, counted, *, forgot=False):
    """Return what does not agree, a sentence each; nothing if all is one story.

    Args:
        books: Those of all workers. All were joined before the first signal was raised, and the last ones have
            arrived.
        counted: Members on the server by origin: signals it counts in all scopes of one segment.
        forgot: Whether the server may have lost what it had acknowledged.
    """
    said = []
    alive = [book for book in books if book.bus is not None]
    for book in alive:
        said += _of_one(book)
        said += _sent(book, counted.get(book.origin, 0), forgot=forgot)
    for receiver in alive:
        senders = [book for book in books if book is not receiver]
        said += [line for sender in senders for line in _order(sender, receiver)]
        if all(sender.bus is not None for sender in senders):
            said += _missed(senders, receiver, forgot=forgot)
    return said


def _of_one(book):
    if book.raised.get(NUMBERED, 0) != book.numbers:
        yield f"{book.name} raised {book.numbers} numbers, and its listeners heard {book.raised.get(NUMBERED, 0)}"
    if book.gaps != book.bus["missed"]:
        yield f"{book.name} was told of gaps of {book.gaps}, and reports {book.bus['missed']} missed"


def _sent(book, counted, *, forgot):
    bus = book.bus
    if book.leaving != bus["sent"] + book.lost + bus["outbox"]:
        yield (
            f"{book.name} raised {book.leaving}, and reports {bus['sent']} sent, {bus['dropped']} dropped,"
            f" {bus['stale']} stale, {bus['outbox']} waiting"
        )
    if counted > bus["sent"] or (counted < bus["sent"] and not forgot):
        yield f"{book.name} reports {bus['sent']} sent, and the server counts {counted}"


def _received(sender, receiver):
    return sum(receiver.received.get(sender.origin, {}).values())


def _order(sender, receiver):
    runs = receiver.runs.get(sender.origin, [])
    if any(first <= last for (_, last), (first, _) in pairwise(runs)):
        yield f"{receiver.name} received numbers of {sender.name} twice or out of order: {runs}"
    if runs and runs[-1][1] >= sender.numbers:
        yield f"{receiver.name} received {runs[-1][1]} of {sender.name}, who raised {sender.numbers}"
    for name, count in receiver.received.get(sender.origin, {}).items():
        if count > sender.raised.get(name, 0):
            yield f"{receiver.name} received {count} {name} of {sender.name}, who raised {sender.raised.get(name, 0)}"


def _missed(senders, receiver, *, forgot):
    raised = sum(sender.travelling for sender in senders)
    received = sum(_received(sender, receiver) for sender in senders)
    missed = receiver.bus["missed"]
    if raised != received + missed + receiver.undelivered:
        yield (
            f"{receiver.name} received {received} of {raised} and reports {missed} missed,"
            f" {receiver.undelivered} undelivered"
        )
    # Exact only where no sender dropped what goes into the other stream.
    lost = sum(sender.lost for sender in senders)
    if not forgot and missed > lost:
        yield f"{receiver.name} reports {missed} missed, and the others dropped {lost}"


def one_edge_each(books):
    """Return what is wrong with the edges that were told for the fleet: two for one epoch of a processor."""
    told = Counter((signal, epoch) for book in books for signal, epoch, is_alone in book.edges if not is_alone)
    return [f"{signal} was told {count} times in epoch {epoch}" for (signal, epoch), count in told.items() if count > 1]


def one_prober(books):
    """Return probes of one processor that overlap, those aside of workers who probed for themselves alone."""
    probes = sorted(
        (processor, begin, end or float("inf"), book.name)
        for book in books
        for processor, begin, end, is_alone in book.probes
        if not is_alone
    )
    return [
        f"{processor} was probed by {one} until {end:.3f} and by {other} from {begin:.3f}"
        for (processor, _, end, one), (again, begin, _, other) in pairwise(probes)
        if processor == again and begin < end
    ]


def one_health(books):
    """Return processors of which workers hold different things to be true."""
    held = {}
    for book in books:
        for health in book.health:
            held.setdefault(health["processor"], {}).setdefault((health["state"], health["epoch"]), []).append(
                book.name
            )
    return [f"{processor} is held for {states}" for processor, states in held.items() if len(states) > 1]
