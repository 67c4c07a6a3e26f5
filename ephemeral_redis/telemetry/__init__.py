"""What a process tells the monitoring that is there already: metrics, traces, log records.

Each module needs its own extra and nothing of the others: ``prometheus`` and ``otel`` those of their names, ``logs``
the standard library alone. What is measured is said once, by `Watched`, for both kinds of metrics.
"""

from ._watched import Watched as Watched

__all__ = ["Watched"]
