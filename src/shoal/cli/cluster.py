"""shoal cluster check and start."""

from __future__ import annotations

import sys

import click

from shoal.cli.command import Command, Group
from shoal.cli.options import as_json, click_options
from shoal.cli.show import clean, count, document, fields, line
from shoal.clusterfile import ClusterConfig, cluster_settings, load_config
from shoal.config import Settings
from shoal.logs import redact


@click.group(
    cls=Group,
    examples="""
    shoal cluster check cluster.yaml
    shoal cluster start cluster.yaml --role coordinator
    shoal cluster start cluster.yaml --role worker
    """,
)
def cluster() -> None:
    """Start the roles that a cluster file describes.

    A cluster file is YAML or TOML: coordinator (host, port), redis or queue (url, name, max_retries,
    retry_delay), workers (count, per_machine), storage (type, url), scrapers, settings.
    """


@cluster.command(cls=Command, examples="shoal cluster check cluster.yaml")
@click.argument("file", metavar="[FILE]", required=False)
@as_json
@click_options("look")
def check(settings: Settings, file: str | None, as_json: bool) -> int:
    """Read a cluster file, and say what it comes to; nothing is started.

    FILE is what SHOAL_CLUSTER names unless given.
    """
    found = load_config(file)
    whole = cluster_settings(found, settings)
    names = _loaded(found, whole)
    if as_json:
        document(_document(found, whole, names))
        return 0
    where = whole.state_file or redact(whole.queue)
    machines = f" on {count(found.machines, 'machine')}" if found.machines else ""
    pairs: list[tuple[str, object]] = [
        ("coordinator", f"{found.host}:{found.port}{_asking(found, whole)}"),
        ("queue", clean(where)),
        ("workers", f"{count(found.count)}{machines}" if found.count else "as many as are started"),
        ("per machine", count(found.per_machine) if found.per_machine else "one per core"),
        ("storage", clean(redact(whole.store)) if whole.store else "with the queue"),
        ("scrapers", clean(", ".join(names)) or "none: runs with templates are served"),
    ]
    if whole.retries is not None:
        pairs.append(("retries", count(whole.retries)))
    if whole.retry_delay is not None:
        pairs.append(("retry delay", f"{whole.retry_delay:g} s, doubled each time"))
    pairs += [(f"  {name}", clean(redact(str(value)))) for name, value in redact(found.settings).items()]
    line(f"{found.source or 'The environment'} is in order.")
    fields(pairs)
    return 0


def _asking(found: ClusterConfig, settings: Settings) -> str:
    """Others can reach it: a coordinator that asks nobody for a token does not start."""
    from shoal.web.gate import is_local

    if is_local(found.host) or settings.token:
        return ""
    where = f" --queue '{clean(redact(settings.queue))}'" if settings.queue else ""
    return f"; others can reach it, so it needs a token: shoal token add NAME --scope admin{where}"


def _loaded(found: ClusterConfig, settings: Settings) -> tuple[str, ...]:
    """Names of the scrapers that a worker would serve; says what is wrong with their code."""
    if not found.scrapers:
        return ()
    from shoal.job import Duty
    from shoal.repertoire import Repertoire

    return Repertoire.load(Duty(settings, "check", found.scrapers)).titles


def _document(found: ClusterConfig, whole: Settings, names: tuple[str, ...]) -> dict[str, object]:
    return {
        "coordinator": {"host": found.host, "port": found.port},
        "queue": redact(whole.queue) or str(whole.state_file),
        "workers": {"count": found.count, "per_machine": found.per_machine, "machines": found.machines},
        "storage": redact(whole.store) or None,
        "max_retries": whole.retries,
        "retry_delay": whole.retry_delay,
        "scrapers": list(names),
        "settings": redact(found.settings),
    }


@cluster.command(
    cls=Command,
    examples="""
    shoal cluster start cluster.yaml --role coordinator
    shoal cluster start cluster.yaml --role worker --workers 4
    """,
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option(
    "--role",
    type=click.Choice(["coordinator", "worker"]),
    default="worker",
    show_default=True,
    help="What to be.",
)
@click_options("run")
def start(settings: Settings, file: str | None, role: str) -> int:
    """Be a part of the cluster, until told to stop.

    FILE is what SHOAL_CLUSTER names unless given. A worker works on runs of the scrapers in the file, as
    shoal worker does. A coordinator gives back what dead workers held, finishes runs, fires schedules,
    carries records to the store, and serves the control room: the dashboard, the API, /health, /ready and
    /metrics. Workers do all but the last: none is needed, and any number may run.

    Flags and the environment win over the file.
    """
    found = load_config(file)
    from shoal.cli.shift import shift_ui
    from shoal.cluster import start_cluster
    from shoal.logs import setup

    whole = cluster_settings(found, settings)
    setup(format=whole.log_format, level=whole.log_level, file=whole.log_file)
    ui = shift_ui(sys.stderr)
    try:
        return start_cluster(found, role, settings=settings, ui=ui)
    except KeyboardInterrupt:  # before it began to listen for signals
        ui.message("Stopped before it began.")
        return 0
    finally:
        ui.close()
