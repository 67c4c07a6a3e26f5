"""The demo: real widgets through a ladder over two real HTTP services, one of which is killed midway.

What happens when: ``scenario``. The services: ``service``, each run in a process of its own by ``processes``. What they
did: ``ledger``. The ladder and its HTTP client: ``traffic``. What happened: ``timeline``. What is shown: ``view``. What
is concluded: ``verdict``. All of it in order: ``run``.

Several processes that share one health: ``fleet``. One of them: ``worker``, which writes a ``journal`` through its
``witness``. What hands widgets to them: ``load``.
"""
