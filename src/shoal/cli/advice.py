"""shoal advice: what to do next, and the figures behind it."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.console import paint, print_json, print_line, wrap
from shoal.cli.find_run import show_listing
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.core.scaling import TARGET
from shoal.queue.base import Queue
from shoal.view.advice import recommend_for_queue, recommendations_document
from shoal.view.recommendation import Recommendation

COLOURS = {"act": "red", "watch": "yellow", "good": "green"}


@click.command(
    cls=Command,
    examples="""
    shoal advice                      more workers, fewer, or what else
    shoal advice --json | jq .desired_workers
    shoal advice --within 3600        with an hour to fetch what hosts allow
    """,
)
@click.option(
    "--within",
    type=click.FloatRange(1, 86_400),
    default=TARGET,
    show_default=True,
    metavar="SECONDS",
    help="Target time to fetch what hosts allow.",
)
@as_json
@click_options("look")
def advice(settings: Settings, within: float, as_json: bool) -> int:
    """Recommend what to do next: more workers, fewer, or something else; and why."""

    async def job(queue: Queue) -> None:
        snapshot, recommendations, scale = await recommend_for_queue(queue, settings, target=within)
        print_json(recommendations_document(snapshot, recommendations, scale)) if as_json else _show(recommendations)

    return show_listing(settings, job, named=None, as_json=as_json, empty={"advice": [], "desired_workers": 0})


def _show(recommendations: list[Recommendation]) -> None:
    for one in recommendations:
        print_line(f"{paint(one.level.ljust(5), COLOURS[one.level])}  {paint(one.title, 'bold')}")
        print_line(wrap(f"       {one.why}", indent="       "))
        for step in one.actions:
            print_hint(f"       {step.words}")
            if step.command and step.command not in step.words:
                print_hint(f"         {step.command}")
