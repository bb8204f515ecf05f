"""shoal plan."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli.command import Command
from shoal.cli.console import paint, print_fields, print_json, print_line
from shoal.cli.find_run import RUN_HELP, find_run, with_queue
from shoal.cli.options import as_json, click_options
from shoal.cli.plan_options import given_prices, given_values, plan_options
from shoal.config.load import Settings
from shoal.core.sizing import QUEUES
from shoal.queue.base import Queue


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal plan --urls 1e6 --hosts 1000
    shoal plan --urls 1e9 --hosts 1e6 --rate 1 --within 7d --price 0.10
    shoal plan --run books --urls 1e7 --within 2d     a larger crawl like this one
    shoal plan --urls 1e5 --delay 0 --in-flight 0 --on sqlite --measure
    """,
)
@plan_options
@click.option("--keep-raw", is_flag=True, default=None, help="Saved raw responses count as storage.")
@click.option(
    "--on", "kind", type=click.Choice(list(QUEUES)), help="Kind of queue; default: that of --queue, or redis."
)
@click.option("--run", "run", metavar="RUN", help="Take what is not given from what this run has shown.")
@click.option("--measure", is_flag=True, help="Find out how fast this machine is: a short crawl of the demo site.")
@as_json
@click_options("look")
def plan(settings: Settings, run: str | None, kind: str | None, measure: bool, as_json: bool, **options: Any) -> int:
    """Work out a crawl: time, machines, storage, cost per million pages, and what limits it first.

    What pages cost was measured (docs: Sizing). Nothing is contacted; --run only looks at the queue.
    """
    from shoal.commands.plan import plan_command, seen_in_run
    from shoal.queue.registry import SQLITE
    from shoal.view.plan import describe_plan, plan_document, plan_problems

    given = given_values(options)
    seen: dict[str, Any] = {}
    if run is not None:

        async def job(queue: Queue) -> dict[str, Any]:
            return await seen_in_run(queue, await find_run(queue, run))

        seen = with_queue(settings, job)
        if not settings.queue:
            kind = kind or SQLITE.name
    if kind:
        given["queue"] = kind
    made = plan_command(settings, given, given_prices(options), measure=measure, seen=seen)
    if as_json:
        print_json(plan_document(made))
        return 0
    print_fields(list(describe_plan(made)))
    for words in plan_problems(made):
        print_line(paint(f"Problem: {words}.", "yellow"))
    return 0
