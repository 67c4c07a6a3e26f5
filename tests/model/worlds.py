"""How much may happen in the worlds that are explored. Within each, everything may, in every order."""

from __future__ import annotations

from .world import World

DOWN = ("fail", "tick")
"""Worker 0 has taken the processor down, and a probe is due."""

QUICK = {
    "a trip": World(fails=2, threshold=2, successes=1),
    "a call that lasts": World(fails=1, slow_calls=1, resets=1),
    "probing": World(begins=DOWN, probes=2, seconds=1),
    "probing, whoever asks is cancelled": World(begins=DOWN, probes=2, cancels=1),
    "a prober dies": World(begins=DOWN, probes=1, crashes=1, seconds=1),
    "two good probes in a row": World(begins=DOWN, probes=2, recovery_probes=2),
    "a quorum, and connections cut": World(fails=3, threshold=2, quorum=2, cuts=1),
    "decisions by hand against a trip": World(fails=1, isolates=1, resets=1),
    "decisions by hand, and connections cut": World(isolates=1, resets=1, cuts=1),
    "probing, and the bus away": World(begins=DOWN, probes=1, cuts=1, seconds=1),
    "probing, and the data lost": World(begins=DOWN, probes=1, losses=1),
    "probing, and the data deleted": World(begins=DOWN, probes=1, flushes=1, seconds=1),
    "isolated, and the data lost": World(begins=("isolate",), resets=1, losses=1),
    "a replica promoted": World(begins=("fail",), resets=1, copies=1),
    "three workers": World(workers=3, fails=1, resets=1),
    "three workers that probe": World(workers=3, begins=DOWN, probes=1),
    "loops that are busy": World(is_prompt=False, fails=1, resets=1),
}
LONG = {
    "calls that last": World(fails=2, threshold=2, successes=1, slow_calls=1),
    "decisions by hand in any number": World(isolates=2, resets=2),
    "decisions by hand, in any number, and connections cut": World(isolates=2, resets=1, cuts=1),
    "decisions by hand, and the data lost": World(isolates=1, resets=1, losses=1),
    "decisions by hand, and a replica promoted": World(isolates=1, resets=1, copies=1),
    "decisions by hand while probed": World(begins=DOWN, probes=1, isolates=1, resets=1),
    "a trip, a reset, and the data lost": World(fails=1, resets=1, losses=1),
    "a trip, a reset, and connections cut": World(fails=2, threshold=2, resets=1, cuts=1),
    "two good probes in a row, and time": World(begins=DOWN, probes=2, seconds=2, recovery_probes=2),
    "probing, and a replica promoted": World(begins=DOWN, probes=1, copies=1),
    "probing in turns": World(begins=DOWN, probes=2, seconds=2, cancels=1),
    "probing in turns, and the bus away": World(begins=DOWN, probes=2, seconds=1, cuts=1),
    "probing in turns, and the data lost": World(begins=DOWN, probes=2, losses=1),
    "three workers that probe in turns": World(workers=3, begins=DOWN, probes=2, seconds=1),
    "three workers, and decisions by hand": World(workers=3, fails=1, isolates=1, resets=1),
    "three workers, and the data deleted": World(workers=3, fails=1, flushes=1),
    "a quorum of three": World(workers=3, fails=4, threshold=2, quorum=3),
    "loops that are busy, and decisions by hand": World(is_prompt=False, fails=1, isolates=1, resets=1),
    "loops that are busy, and probing": World(is_prompt=False, begins=DOWN, probes=2, seconds=1),
    "loops that are busy, and the bus away": World(is_prompt=False, begins=DOWN, probes=1, cuts=1),
}

_WORDS = {
    "fails": "failure",
    "successes": "success",
    "slow_calls": "call that lasts",
    "probes": "lease asked for",
    "cancels": "asking cancelled",
    "seconds": "second",
    "isolates": "isolate",
    "resets": "reset",
    "cuts": "cut",
    "losses": "loss of data",
    "flushes": "flush",
    "copies": "replica promoted",
    "crashes": "crash",
}


def told(world: World) -> str:
    """Return what may happen in *world*, in words."""
    fixed = [f"{world.workers} workers"]
    fixed += [f"threshold {world.threshold}"] if world.threshold > 1 else []
    fixed += [f"quorum {world.quorum}"] if world.quorum > 1 else []
    fixed += [f"{world.recovery_probes} good probes"] if world.recovery_probes > 1 else []
    fixed += [] if world.is_prompt else ["busy loops"]
    fixed += ["down" if world.begins == DOWN else f"after {', '.join(world.begins)}"] if world.begins else []
    counted = [(getattr(world, name), word) for name, word in _WORDS.items()]
    return f"{', '.join(fixed)}: " + ", ".join(f"{count} x {word}" for count, word in counted if count)
