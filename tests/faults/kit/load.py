"""Joined sinks of this process under load, with books: for faults that need no process of their own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import asdict

from .account import NUMBERED, Books, disagreements, figures


class Load:
    """Raises numbered signals into each of *sinks*, in a thread each, for as long as its block lasts.

    Args:
        sinks: Joined, opened from plain threads, nothing raised yet.
        rate: Signals a second into each.
        payload: What each carries.
    """

    def __init__(self, sinks, rate, payload=None):
        self.sinks = sinks
        self._pause = 1 / rate
        self._payload = payload
        self._is_over = threading.Event()
        self._books = [Book(sink, f"sink {number}") for number, sink in enumerate(sinks, 1)]
        self._threads = [threading.Thread(target=self._raise, args=(book,)) for book in self._books]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def go_on(self, seconds):
        """Let so much time pass; raise what a raise raised."""
        assert not self._is_over.wait(seconds)

    def until(self, condition, seconds=15.0):
        """Go on until *condition* holds; fail after *seconds*."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            self.go_on(0.005)

    def settle(self, client, until, *, forgot=False):
        """Wait until all that was raised has arrived or is told to be missing; return what does not agree, and figures.

        Args:
            client: Speaks with the server.
            until: Waits for a condition.
            forgot: Whether the server may have lost what it had acknowledged.
        """
        until(lambda: not any(sink.is_degraded for sink in self.sinks))
        until(lambda: not any(sink.statistics().bus.outbox for sink in self.sinks))
        # One more from each: what never came shows in what comes after it.
        for book in self._books:
            book.raise_one(self._payload)
        for book in self._books:
            until(lambda book=book: book.has_last_of(self._books))
        books = [book.closed() for book in self._books]
        counted = counted_by_origin(client, self.sinks[0].backend._namespace)
        return disagreements(books, counted, forgot=forgot), asdict(figures(books, counted))

    @property
    def slowest(self):
        """Seconds that the slowest raise took."""
        return max(book.slowest for book in self._books)

    def _raise(self, book):
        due_at = time.monotonic()
        while not self._is_over.is_set():
            book.raise_one(self._payload)
            due_at += self._pause
            self._is_over.wait(max(0.0, due_at - time.monotonic()))


class Book:
    """Writes down what one sink raises and hears."""

    def __init__(self, sink, name):
        self._sink = sink
        self._name = name
        self._raised = Counter()
        self._received = {}
        self._runs = {}
        self._gaps = 0
        self._numbers = 0
        self.slowest = 0.0
        sink.subscribe(self._hear)

    def raise_one(self, payload):
        before = time.perf_counter()
        self._sink.raise_signal(NUMBERED, str(self._numbers), payload=payload)
        self.slowest = max(self.slowest, time.perf_counter() - before)
        self._numbers += 1

    def has_last_of(self, books):
        others = [book for book in books if book is not self]
        return all(self._runs.get(other._sink.origin, [[0, -1]])[-1][1] == other._numbers - 1 for other in others)

    def closed(self):
        statistics = self._sink.statistics()
        bus = {name: getattr(statistics.bus, name) for name in statistics.bus.__slots__}
        return Books(
            self._name,
            self._sink.origin,
            dict(self._raised),
            self._numbers,
            received={origin: dict(names) for origin, names in self._received.items()},
            runs=self._runs,
            gaps=self._gaps,
            slowest=self.slowest,
            bus=bus,
            undelivered=statistics.undelivered,
        )

    def _hear(self, event):
        if event.origin == self._sink.origin:
            self._raised[event.signal.partition(":")[0]] += 1
            if event.signal.startswith("bus.gap:"):
                self._gaps += int(event.signal.partition(":")[2])
            return
        self._received.setdefault(event.origin, Counter())[event.signal] += 1
        if event.signal == NUMBERED:
            runs, number = self._runs.setdefault(event.origin, []), int(event.key)
            if runs and runs[-1][1] == number - 1:
                runs[-1][1] = number
            else:
                runs.append([number, number])


def counted_by_origin(client, namespace, *, scope="*"):
    """Return how many signals the server counts of each origin, in *scope*, or in all scopes of one segment."""
    counted = Counter()
    for key in client.scan_iter(f"{{{namespace}}}:z:{scope}"):
        if b":" not in key.partition(b":z:")[2]:
            counted.update(member[:8].hex() for member in client.zrange(key, 0, -1))
    return counted
