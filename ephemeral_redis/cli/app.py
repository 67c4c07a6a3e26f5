"""The commands and their options."""

from __future__ import annotations

import sys
from pathlib import Path
from socket import gethostname
from typing import Annotated, cast

import typer

from . import complain, fleet, missing_extra

# Every mistake in options and arguments derives from it; typer itself names only this child of it.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)

app = typer.Typer(
    name="ephemeral",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,  # a traceback is for a bug report: plain and whole
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run() -> int:
    """Run the command that ``sys.argv`` names and return its exit code."""
    try:
        # Not standalone: that makes each mistake a box of several lines, and Ctrl-C a different code in each version.
        return app(sys.argv[1:] or ["--help"], standalone_mode=False) or 0
    except _UsageError as mistake:
        return complain(f"{mistake.format_message()} (--help says more)")
    except typer.Abort:  # how older versions tell a Ctrl-C
        return 130


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and nobody else needs it

        typer.echo(f"ephemeral {version('ephemeral-redis')}")
        raise typer.Exit


@app.callback()
def common(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Bounded background work with priority failover: see it survive an outage."""


@app.command()
def demo(
    *,
    items: Annotated[int, typer.Option(help="How many widgets to send; with --workers at least.")] = 300,
    rate: Annotated[float, typer.Option(help="Widgets a second.")] = 40.0,
    seed: Annotated[int, typer.Option(help="Of the services' latencies.")] = 1,
    workers: Annotated[int | None, typer.Option(help="Worker processes that share one health.")] = None,
    redis: Annotated[
        str | None, typer.Option(help="With --workers: a server to share by, left alive.", metavar="URL")
    ] = None,
    no_live: Annotated[bool, typer.Option("--no-live", help="Plain lines, even in a terminal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout; progress on stderr.")] = False,
) -> int:
    """Watch real work survive a real outage.

    Starts two HTTP services, sends widgets through a ladder over them, kills the first service with SIGKILL a third of
    the way in and starts it again later. The verdict comes from the services' own ledger; exit code 1 if it is bad.

    With `--workers` as many processes do the work and share one health through a server, which is found or embedded
    unless `--redis` names one. The first service is killed twice, one worker while it probes, and the server itself.
    """
    if (problem := missing_extra("demo")) is not None:
        return complain(problem)
    from .demo import run_demo, run_fleet  # noqa: PLC0415 - it imports what the line above has looked for

    try:
        if workers is not None:
            return run_fleet(
                workers=workers, redis=redis, items=items, rate=rate, seed=seed, is_live=not no_live, as_json=as_json
            )
        if redis is not None:
            return complain("--redis is for a fleet: give --workers too")
        return run_demo(items=items, rate=rate, seed=seed, is_live=not no_live, as_json=as_json)
    except ValueError as mistake:
        return complain(str(mistake))


@app.command()
def worker(
    *,
    redis: Annotated[str, typer.Option(envvar="EPHEMERAL_REDIS_URL", help="URL of the bus.", metavar="URL")],
    namespace: Annotated[str, typer.Option(envvar="EPHEMERAL_NAMESPACE", help="Which fleet this worker is of.")],
    primary: Annotated[str, typer.Option(envvar="PRIMARY_URL", help="The service to use.", metavar="URL")],
    backup: Annotated[str, typer.Option(envvar="BACKUP_URL", help="The one to fail over to.", metavar="URL")],
    name: Annotated[str, typer.Option(envvar="EPHEMERAL_WORKER", help="What it calls itself.")] = gethostname(),
    host: Annotated[str, typer.Option(envvar="HOST", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="PORT", help="Where to listen; 0: a free port.", min=0, max=65535)] = 8080,
    stop_timeout: Annotated[
        float, typer.Option(envvar="EPHEMERAL_STOP_TIMEOUT", help="Seconds to finish in on SIGTERM.")
    ] = 20.0,
    journal: Annotated[Path | None, typer.Option(help="Write what it does and sees into this file.")] = None,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
) -> int:
    """Be one worker of a fleet.

    Takes widgets over HTTP (`PUT /widgets/ID`), does them through a ladder of two services whose health all workers of
    the namespace share, and tells how it sees that ladder (`GET /health`). On SIGTERM it finishes what it has accepted;
    exit code 1 if it could not.
    """
    if (problem := missing_extra("demo")) is not None:
        return complain(problem)
    from ephemeral_redis.demo.worker import WorkerOptions  # noqa: PLC0415 - it imports what the line above looked for

    from .worker import work  # noqa: PLC0415 - as above

    try:
        options = WorkerOptions(
            name=name,
            redis_url=redis,
            namespace=namespace,
            primary_url=primary,
            backup_url=backup,
            host=host,
            port=port,
            stop_timeout=stop_timeout,
            journal=journal,
        )
        return work(options, with_parent=with_parent)
    except ValueError as mistake:
        return complain(str(mistake))


@app.command()
def dashboard(
    *,
    redis: Annotated[str, typer.Option(envvar="EPHEMERAL_REDIS_URL", help="URL of the bus.", metavar="URL")],
    namespace: Annotated[str, typer.Option(envvar="EPHEMERAL_NAMESPACE", help="Which fleet to show.")],
    host: Annotated[str, typer.Option(help="Where to listen; there is no password.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Where to listen; 0: a free port.", min=0, max=65535)] = 8090,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name by which browsers may ask for it; may be repeated.", metavar="NAME")
    ] = None,
    opens_browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> int:
    """Show a fleet on a web page, live.

    Ladders, failovers, rates, workers and signals of one namespace. It reads and changes nothing, so that the rights of
    a user who only looks are enough, and shows since when the bus is away while it is.
    """
    if (problem := missing_extra("dashboard")) is not None:
        return complain(problem)
    from .dashboard import serve  # noqa: PLC0415 - it imports what the line above has looked for

    try:
        return serve(
            redis=redis,
            namespace=namespace,
            host=host,
            port=port,
            allow_host=allow_host or [],
            opens_browser=opens_browser,
        )
    except ValueError as mistake:
        return complain(str(mistake))


fleet.add_to(app)
