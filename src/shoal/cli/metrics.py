"""shoal metrics: figures for Prometheus as they are now, the dashboard for Grafana, the alert rules."""

from __future__ import annotations

from importlib.resources import files

import click

from shoal.cli.command import Command
from shoal.cli.find_run import with_queue
from shoal.cli.options import click_options
from shoal.config.load import Settings
from shoal.errors import UsageError
from shoal.queue.base import Queue

RUNBOOK = "docs/runbook.md"
BUNDLED_FILES = {"grafana": "grafana.json", "alerts": "alerts.yml"}


@click.command(
    cls=Command,
    examples="""
    shoal metrics                             what shoal serve shows at /metrics
    shoal metrics grafana > shoal.json        a dashboard to import into Grafana
    shoal metrics alerts > shoal-alerts.yml   rules for Prometheus
    shoal metrics alerts --docs-url URL       with links to a runbook of yours
    """,
)
@click.argument("what", required=False, type=click.Choice(list(BUNDLED_FILES)), metavar="[grafana|alerts]")
@click.option("--docs-url", metavar="URL", help="With alerts: where you serve these docs, for links to the runbook.")
@click_options("look")
def metrics(settings: Settings, what: str | None, docs_url: str | None) -> int:
    """Print this queue's metrics in Prometheus format, or a dashboard or alert rules for them.

    Workers have metrics of their own, at the port set with --health.
    """
    if docs_url is not None and what != "alerts":
        raise UsageError("--docs-url is for the alert rules", hint="shoal metrics alerts --docs-url URL")
    if what is not None:
        click.echo(with_runbook(bundled_file(what), docs_url), nl=False)
        return 0

    async def job(queue: Queue) -> str:
        from shoal.control.history import History
        from shoal.view.metrics import fleet_metrics
        from shoal.view.snapshot import take_snapshot

        return fleet_metrics(await take_snapshot(queue, settings), lifetime=await History(queue).lifetime_counters())

    click.echo(with_queue(settings, job), nl=False)
    return 0


def with_runbook(rules: str, docs_url: str | None) -> str:
    """Rules whose links lead to the runbook at a site of one's own."""
    if docs_url is None:
        return rules
    if not docs_url.startswith(("http://", "https://")) or not docs_url.isprintable() or set(docs_url) & set("\"' {}"):
        raise UsageError(f"--docs-url: {docs_url!r} is not a URL", hint="such as https://docs.internal/shoal")
    return rules.replace(f"{RUNBOOK}#", f"{docs_url.rstrip('/')}/runbook/#")


def bundled_file(what: str) -> str:
    """A file that comes with the package."""
    return (files("shoal") / "monitoring" / BUNDLED_FILES[what]).read_text(encoding="utf-8")
