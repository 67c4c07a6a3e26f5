"""How much may happen in a world that is explored."""

from __future__ import annotations

from dataclasses import dataclass

from ephemeral._health import HealthRules

INTERVAL = 1.0
"""Seconds between probes, and how long a lease lasts."""
MOMENT = 0.25
"""Seconds that pass at least when a server loses its data: more than the milliseconds by which versions grow."""


@dataclass(frozen=True, kw_only=True)
class World:
    """How much may happen.

    Attributes:
        workers: How many there are.
        begins: What worker 0 has done before, each with all that followed from it.
        threshold: Failures that take the processor down.
        quorum: Workers that must have seen them.
        recovery_probes: Good probes that bring it back.
        is_prompt: Whether a worker's loop heeds news the moment they come; else whenever it pleases.
        fails, successes, slow_calls: Calls that fail and succeed at once, and calls that last.
        probes: How often a lease is asked for.
        cancels: How often whoever asks is cancelled.
        seconds: How far time goes; a lease lasts one second, and a probe is due one second after the last.
        isolates, resets: Decisions by hand.
        cuts: Connections that are cut, and answers that are lost.
        losses: Restarts of the server without its data.
        flushes: Data deleted under a server that runs.
        copies: Replicas that are promoted, as the server was at any instant before.
        crashes: Workers that die and are begun anew.
    """

    workers: int = 2
    begins: tuple[str, ...] = ()
    threshold: int = 1
    quorum: int = 1
    recovery_probes: int = 1
    is_prompt: bool = True
    fails: int = 0
    successes: int = 0
    slow_calls: int = 0
    probes: int = 0
    cancels: int = 0
    seconds: int = 0
    isolates: int = 0
    resets: int = 0
    cuts: int = 0
    losses: int = 0
    flushes: int = 0
    copies: int = 0
    crashes: int = 0

    def rules(self) -> HealthRules:
        """Return the rules of the processor."""
        return HealthRules(
            policy="consecutive",
            failure_threshold=self.threshold,
            failure_window=1000.0,
            failure_rate=0.5,
            minimum_calls=1,
            quorum=self.quorum,
            recovery_probes=self.recovery_probes,
            probe_interval=INTERVAL,
            probe_backoff=1.0,
            max_probe_interval=INTERVAL,
            lease_seconds=INTERVAL,
        )


BUDGETS = (
    *("fails", "successes", "slow_calls", "probes", "cancels", "seconds"),
    *("isolates", "resets", "cuts", "losses", "flushes", "copies", "crashes"),
)
