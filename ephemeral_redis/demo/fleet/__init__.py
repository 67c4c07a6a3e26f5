"""The demo of a fleet: several worker processes, one health, and everything that can die dies once.

What happens: ``scenario`` and, act by act, ``acts``. The workers and what they wrote: ``crew``. The bus: ``bus``. What
is shown: ``view``. What is concluded: ``evidence`` and ``verdict``. All of it in order: ``run``.
"""
