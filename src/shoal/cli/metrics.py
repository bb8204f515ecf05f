"""shoal metrics: figures for Prometheus as they are now, the dashboard for Grafana, the alert rules."""

from __future__ import annotations

from importlib.resources import files

import click

from shoal.cli.command import Command
from shoal.cli.options import click_options
from shoal.cli.pick import with_queue
from shoal.config import Settings
from shoal.queue.base import Queue

KEPT = {"grafana": "grafana.json", "alerts": "alerts.yml"}


@click.command(
    cls=Command,
    examples="""
    shoal metrics                             what shoal serve says at /metrics
    shoal metrics grafana > shoal.json        a dashboard to import into Grafana
    shoal metrics alerts > shoal-alerts.yml   rules for Prometheus
    """,
)
@click.argument("what", required=False, type=click.Choice(list(KEPT)), metavar="[grafana|alerts]")
@click_options("look")
def metrics(settings: Settings, what: str | None) -> int:
    """Print figures of this queue as Prometheus reads them, or what goes with them.

    Workers have figures of their own, at the port that --health names.
    """
    if what is not None:
        click.echo(kept(what), nl=False)
        return 0

    async def job(queue: Queue) -> str:
        from shoal.control.history import History
        from shoal.view.metrics import fleet_metrics
        from shoal.view.snapshot import look

        return fleet_metrics(await look(queue, settings), ledger=await History(queue).ledger())

    click.echo(with_queue(settings, job), nl=False)
    return 0


def kept(what: str) -> str:
    """A file that comes with the package."""
    return (files("shoal") / "data" / KEPT[what]).read_text(encoding="utf-8")
