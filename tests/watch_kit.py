"""A small fleet on a real server, run from a thread of its own, for those who look at it and act on it."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import anyio
import anyio.from_thread

from ephemeral import PriorityProcessorAtom, SignalSink
from ephemeral_redis import RedisSignalBackend


class Worker:
    """One worker with a ladder of two rungs; `is_failing` says whether the first fails.

    Attributes:
        sink: Its sink.
        primary: Its first atom.
    """

    def __init__(self, url: str, namespace: str, name: str, **options: Any) -> None:
        self._made_with = (url, namespace, name, options)
        self.is_failing = True
        self.sink: Any = None
        self.primary: Any = None
        self._portal: Any = None

    async def _first(self, item: str) -> None:
        if self.is_failing:
            raise ConnectionError(item)

    async def _second(self, item: str) -> None:
        pass

    @contextlib.asynccontextmanager
    async def _life(self):
        url, namespace, name, options = self._made_with
        backend = RedisSignalBackend.from_url(url, namespace=namespace, name=name, require=True)
        ladder = {"reroute_failed": True, "probe_interval": 60.0, **options}
        async with (
            SignalSink(backend=backend) as sink,
            PriorityProcessorAtom(1, self._first, sink, **ladder) as self.primary,
            PriorityProcessorAtom(2, self._second, sink, **ladder),
        ):
            self.sink = sink
            yield self

    def fail(self) -> None:
        """Send as much work as takes the first rung down."""
        self.call(self.primary.enqueue_many, ["a", "b", "c"])

    def call(self, function: Any, *arguments: Any) -> Any:
        """Call an async or plain function on the worker's loop."""

        async def called() -> Any:
            answer = function(*arguments)
            return await answer if hasattr(answer, "__await__") else answer

        return self._portal.call(called)


@contextlib.contextmanager
def working(url: str, namespace: str, name: str, **options: Any):
    """Yield a worker that lives on a loop in a thread of its own."""
    worker = Worker(url, namespace, name, **options)
    with (
        anyio.from_thread.start_blocking_portal() as worker._portal,
        worker._portal.wrap_async_context_manager(worker._life()),
    ):
        yield worker


def until(condition: Any, seconds: float = 20.0) -> Any:
    """Wait until *condition* holds, and return what it says; fails after *seconds*."""
    deadline = threading.Event()
    timer = threading.Timer(seconds, deadline.set)
    timer.start()
    try:
        while not (answer := condition()):
            assert not deadline.wait(0.005), "it never came true"
        return answer
    finally:
        timer.cancel()


async def first_of(watch: Any, condition: Any = lambda _: True, seconds: float = 20.0) -> Any:
    """Return the first picture that satisfies *condition*."""
    with anyio.fail_after(seconds):
        async with watch.pictures() as pictures:
            async for picture in pictures:
                if condition(picture):
                    return picture
    raise AssertionError("pictures ended")


__all__ = ["Worker", "first_of", "until", "working"]
