"""Two providers of exchange rates, tried in order: the caller gets a rate as long as one of them answers.

Nothing is queued: `call` runs in the caller's task, on the first healthy provider, and tries the next one after a
failure. A provider that keeps failing is left alone until it is well again.

Run it: ``python examples/ordered_fallback.py``
"""

from __future__ import annotations

import logging
import sys
from typing import TypeAlias

import anyio

from ephemeral import NoHealthyProcessorError, PriorityProcessorAtom, SignalSink

RATES = {"EURUSD": 1.09, "GBPUSD": 1.27}


Rates: TypeAlias = PriorityProcessorAtom[str, tuple[str, float]]


class Provider:
    """A remote service that can be switched off.

    Attributes:
        asked: How often it was called.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        self.asked = 0

    async def quote(self, pair: str) -> tuple[str, float]:
        """Return who answers, and the rate of *pair*.

        Raises:
            ConnectionError: It is switched off.
            KeyError: It knows no such pair.
        """
        self.asked += 1
        await anyio.sleep(0.01)
        if not self.is_up:
            raise ConnectionError(f"{self.name} does not answer")
        return self.name, RATES[pair]


def is_failure(error: BaseException) -> bool:
    """An unknown pair is the caller's mistake: it says nothing against the provider."""
    return not isinstance(error, KeyError)


async def ask(rates: Rates, pair: str) -> tuple[str, float] | Exception:
    """Return the answer, or the error that came instead of it."""
    try:
        return await rates.call(pair)
    except (ConnectionError, KeyError, NoHealthyProcessorError) as error:
        return error


async def main() -> None:
    """Break one provider, then both, then repair them."""
    first, second = Provider("first"), Provider("second")
    async with (
        SignalSink() as sink,
        Rates(
            1,
            first.quote,
            sink,
            group="rates",
            failure_threshold=2,
            probe_interval=1.0,
            is_failure=is_failure,
            reroute_failed=True,
        ) as rates,
        Rates(2, second.quote, sink, group="rates", failure_threshold=2, probe_interval=1.0, is_failure=is_failure),
    ):
        sink.subscribe(lambda event: print(f"    {event.signal}"), "failover.*, probe.*")

        print("both are up")
        assert await ask(rates, "EURUSD") == ("first", 1.09)

        print("the first is down: each call that fails there is answered by the second")
        first.is_up = False
        assert await ask(rates, "EURUSD") == ("second", 1.09)
        assert await ask(rates, "GBPUSD") == ("second", 1.27)

        print("it failed twice, so it is not asked any more")
        asked = first.asked
        assert await ask(rates, "GBPUSD") == ("second", 1.27)
        assert first.asked == asked

        print("the second is down too: the last error comes out, then nobody is asked at all")
        second.is_up = False
        for expected in (ConnectionError, ConnectionError, NoHealthyProcessorError):
            answer = await ask(rates, "EURUSD")
            assert isinstance(answer, expected)
            print(f"    {type(answer).__name__}: {answer}")

        print("both are well again: once a probe is due, the next call is that probe")
        first.is_up = second.is_up = True
        await anyio.sleep(1.1)
        assert await ask(rates, "EURUSD") == ("first", 1.09)  # tried on the first
        assert await ask(rates, "EURUSD") == ("second", 1.09)  # tried on the second
        assert await ask(rates, "EURUSD") == ("first", 1.09)

        print("an unknown pair fails for its caller and for nobody else")
        assert isinstance(await ask(rates, "EURXXX"), KeyError)
        assert rates.is_healthy
        assert rates.consecutive_failures == 0
    print("done")


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="logged: %(message)s")
    anyio.run(main)
