"""The commands that look at a fleet and those that act on it, with their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from .running import Fleet

Redis: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="EPHEMERAL_REDIS_URL",
        help="URL of the bus; its password stays out of `ps` in the variable.",
        metavar="URL",
        show_envvar=True,
    ),
]
Namespace: TypeAlias = Annotated[str, typer.Option(envvar="EPHEMERAL_NAMESPACE", help="Which fleet.", metavar="NAME")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
Timeout: TypeAlias = Annotated[float, typer.Option(help="Seconds to wait for the server's word.", min=0.1, max=600)]


def _fleet(redis: str, namespace: str) -> Fleet:
    from .running import Fleet  # noqa: PLC0415 - it imports redis, which --help needs not

    return Fleet(redis, namespace)


def tail(
    pattern: Annotated[
        str, typer.Argument(help="Which names: `*` any run, `?` one character, commas between several.")
    ] = "*",
    *,
    redis: Redis,
    namespace: Namespace,
    items: Annotated[
        bool, typer.Option("--items/--no-items", help="With `processing.*`, which ladders raise for each item.")
    ] = True,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="End after so many.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> int:
    """Print the signals of a fleet as they are raised.

    Goes on while the bus is away, and says so. Signals that were missed show as `bus.gap:<how many>`.
    """
    from .tail import tail as run  # noqa: PLC0415 - as above

    return run(_fleet(redis, namespace), pattern, with_items=items, limit=limit, as_json=as_json)


def top(
    *,
    redis: Redis,
    namespace: Namespace,
    once: Annotated[bool, typer.Option("--once", help="Print how things stand now, and end.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.2, max=3600)] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a look.")] = False,
) -> int:
    """Show how a fleet stands.

    What is wrong, in words; each ladder with who is down, since when, who noticed, who probes and what waits; the last
    changes, workers, rates by scope, and the server. Once the bus is away: what was seen last, and how old that is.
    """
    from .top import top as run  # noqa: PLC0415 - as above

    return run(_fleet(redis, namespace), is_once=once, every=every, as_json=as_json)


def doctor(*, redis: Redis, namespace: Namespace, as_json: Json = False) -> int:
    """Say what is misconfigured or unwell, what it means, and the fix.

    Exit code 1 if anything needs action. Run it with a worker's URL to check a worker's rights too.
    """
    from .doctor import doctor as run  # noqa: PLC0415 - as above

    return run(_fleet(redis, namespace), as_json=as_json)


def signal(
    name: Annotated[str, typer.Argument(help="The signal, as `order.placed:eu`.")],
    *,
    redis: Redis,
    namespace: Namespace,
    key: Annotated[str | None, typer.Option(help="What it is about.")] = None,
    payload: Annotated[str | None, typer.Option(help="What it carries.", metavar="JSON")] = None,
    timeout: Timeout = 5.0,
) -> int:
    """Raise a signal for all workers, and wait until the server has it."""
    from .raising import raise_signal  # noqa: PLC0415 - as above

    return raise_signal(_fleet(redis, namespace), name, key=key, payload=payload, timeout=timeout)


def drain(
    coordinator_id: Annotated[str | None, typer.Argument(metavar="ID", help="Coordinators with this id.")] = None,
    *,
    redis: Redis,
    namespace: Namespace,
    every: Annotated[bool, typer.Option("--all", help="Every coordinator.")] = False,
    pattern: Annotated[str | None, typer.Option(help="Coordinators whose id matches.")] = None,
    timeout: Timeout = 5.0,
) -> int:
    """Ask coordinators in all workers to take no more work and finish what they have.

    Name an ID, or give `--all` or `--pattern`. It cannot be taken back.
    """
    from .raising import request_drain  # noqa: PLC0415 - as above

    return request_drain(_fleet(redis, namespace), coordinator_id, pattern=pattern, is_for_all=every, timeout=timeout)


def isolate(
    processor: Annotated[str, typer.Argument(help="As signals name it: `pri1`, or `group.pri1`.")],
    *,
    redis: Redis,
    namespace: Namespace,
    as_json: Json = False,
) -> int:
    """Take a processor out by hand, for the whole fleet: no work and no probes until `reset`."""
    from .hand import isolate as run  # noqa: PLC0415 - as above

    return run(_fleet(redis, namespace), processor, as_json=as_json)


def reset(
    processor: Annotated[str, typer.Argument(help="As signals name it: `pri1`, or `group.pri1`.")],
    *,
    redis: Redis,
    namespace: Namespace,
    as_json: Json = False,
) -> int:
    """Bring a processor back by hand, for the whole fleet; of a healthy one only failures are forgotten."""
    from .hand import reset as run  # noqa: PLC0415 - as above

    return run(_fleet(redis, namespace), processor, as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Give *app* these commands."""
    for command in (tail, top, doctor, signal, drain, isolate, reset):
        app.command()(command)
