"""shoal cluster check and start."""

from __future__ import annotations

import sys

import click

from shoal.cli.command import Command, Group
from shoal.cli.console import clean, count, print_fields, print_json, print_line
from shoal.cli.options import as_json, click_options
from shoal.config.cluster_file import ClusterConfig, cluster_settings, load_config
from shoal.config.load import Settings
from shoal.config.queue_token import server_token
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
    """Check a cluster file and show what it resolves to; nothing is started.

    FILE defaults to SHOAL_CLUSTER.
    """
    found = load_config(file)
    whole = cluster_settings(found, settings)
    names = _scraper_names(found, whole)
    if as_json:
        print_json(_document(found, whole, names))
        return 0
    where = whole.state_file or redact(whole.queue)
    machines = f" on {count(found.machines, 'machine')}" if found.machines else ""
    pairs: list[tuple[str, object]] = [
        ("coordinator", f"{found.host}:{found.port}{_token_hint(found, whole)}"),
        ("queue", clean(where)),
        ("workers", f"{count(found.count)}{machines}" if found.count else "as many as are started"),
        ("per machine", count(found.per_machine) if found.per_machine else "one per core"),
        ("storage", clean(redact(whole.store)) if whole.store else "with the queue"),
        ("scrapers", clean(", ".join(names)) or "none: only runs with templates are served"),
    ]
    if whole.retries is not None:
        pairs.append(("retries", count(whole.retries)))
    if whole.retry_delay is not None:
        pairs.append(("retry delay", f"{whole.retry_delay:g} s, doubled each time"))
    pairs += [(f"  {name}", clean(redact(str(value)))) for name, value in redact(found.settings).items()]
    print_line(f"{found.source or 'The environment'} is valid.")
    print_fields(pairs)
    return 0


def _token_hint(found: ClusterConfig, settings: Settings) -> str:
    """Others can reach it: a coordinator that asks nobody for a token does not start."""
    from shoal.web.auth.authenticate import is_local

    if is_local(found.host) or server_token(settings):
        return ""
    where = f" --queue '{clean(redact(settings.queue))}'" if settings.queue else ""
    return f"; others can reach it, so it needs a token: shoal token add NAME --scope admin{where}"


def _scraper_names(found: ClusterConfig, settings: Settings) -> tuple[str, ...]:
    """Names of the scrapers that a worker would serve; says what is wrong with their code."""
    if not found.scrapers:
        return ()
    from shoal.launch.job import FleetJob
    from shoal.launch.scraper_set import ScraperSet

    return ScraperSet.load(FleetJob(settings, "check", found.scrapers)).scraper_names


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
    help="Which role to run.",
)
@click_options("run")
def start(settings: Settings, file: str | None, role: str) -> int:
    """Run one role of the cluster until stopped.

    FILE defaults to SHOAL_CLUSTER. A worker works on runs of the scrapers in the file, as
    shoal worker does. A coordinator gives back what dead workers held, finishes runs, fires schedules,
    carries records to the store, and is a server: it has the dashboard, the API, /health, /ready and
    /metrics. Workers do all but the last: none is needed, and any number may run.

    Flags and the environment win over the file.
    """
    found = load_config(file)
    from shoal.cli.worker_display import worker_ui
    from shoal.commands.cluster import start_cluster
    from shoal.logs import setup_logging

    whole = cluster_settings(found, settings)
    setup_logging(format=whole.log_format, level=whole.log_level, file=whole.log_file)
    ui = worker_ui(sys.stderr)
    try:
        return int(start_cluster(found, role, settings=settings, ui=ui))
    except KeyboardInterrupt:  # before it began to listen for signals
        ui.message("Stopped before it started.")
        return 0
    finally:
        ui.close()
