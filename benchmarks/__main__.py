"""All benchmarks in one run: ``python benchmarks [--quick]``."""

import ladder
import measuring
import signals
import work


def measure(quick: bool) -> list[measuring.Row]:
    """Run them one after the other."""
    return [row for part in (signals, work, ladder) for row in part.measure(quick)]


if __name__ == "__main__":
    measuring.main(__doc__, measure)
