"""shoal advice: what to do next, and the figures behind it."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import listing
from shoal.cli.show import document, line, paint, wrapped
from shoal.config import Settings
from shoal.queue.base import Queue
from shoal.view.advice import advice_listing, look_and_advise
from shoal.view.capacity import TARGET
from shoal.view.suggestion import Advice

COLOURS = {"act": "red", "watch": "yellow", "good": "green"}


@click.command(
    cls=Command,
    examples="""
    shoal advice                      more workers, fewer, or what else
    shoal advice --json | jq .desired_workers
    shoal advice --within 3600        with an hour for what can be fetched now
    """,
)
@click.option(
    "--within",
    type=click.FloatRange(1, 86_400),
    default=TARGET,
    show_default=True,
    metavar="SECONDS",
    help="In which time what hosts allow should be fetched.",
)
@as_json
@click_options("look")
def advice(settings: Settings, within: float, as_json: bool) -> int:
    """Say what would help: more workers, fewer, or something else; and why."""

    async def job(queue: Queue) -> None:
        snapshot, said, scale = await look_and_advise(queue, settings, target=within)
        document(advice_listing(snapshot, said, scale)) if as_json else _show(said)

    return listing(settings, job, named=None, as_json=as_json, empty={"advice": [], "desired_workers": 0})


def _show(said: list[Advice]) -> None:
    for one in said:
        line(f"{paint(one.level.ljust(5), COLOURS[one.level])}  {paint(one.title, 'bold')}")
        line(wrapped(f"       {one.why}", indent="       "))
        for step in one.actions:
            line(wrapped(f"       {step.words}", indent="       "))
            if step.command and step.command not in step.words:
                line(f"         {step.command}")
