"""shoal route URL."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.console import paint, print_fields, print_json, print_line, print_table
from shoal.cli.find_run import find_run, with_queue
from shoal.cli.options import as_json, click_options
from shoal.commands.route import (
    RoutedUrl,
    is_file_target,
    route_url,
    settings_of_file,
    settings_of_route_file,
    settings_of_run,
)
from shoal.config.load import Settings
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.sources.url_text import is_schemeless_url
from shoal.view.formatting import clean, format_duration, format_pace
from shoal.view.why import normalize_url


@click.command(
    cls=Command,
    examples="""
    shoal route https://shop.example/urgent/7 --routes routes.txt
    shoal route https://shop.example/urgent/7 shop.py
    shoal route https://shop.example/urgent/7 k3f --json     as a run has it
    """,
)
@click.argument("url")
@click.argument("target", required=False)
@click.option("--routes", "files", multiple=True, metavar="FILE", help="A file of rules, in place of any others.")
@as_json
@click_options("look", without=("routes",))
def route(settings: Settings, url: str, target: str | None, files: tuple[str, ...], as_json: bool) -> int:
    """Show which rule wins for URL, and what its task would get.

    TARGET is a scraper's file, a template, or a run; without it, the routes of this folder's settings count.
    """
    if files and target:
        raise UsageError(f"--routes is in place of those of {target}", hint="leave one of them out")
    if "://" not in url and not is_schemeless_url(url):
        raise UsageError(f"{url!r} is not a URL", hint="write it in full: https://shop.example/item/7")
    url = normalize_url(url)
    if files:
        answer = route_url(settings_of_route_file(settings, files), url, ", ".join(files))
    elif target is None:
        answer = route_url(settings, url, settings.sources.get("routes", "this folder's settings"))
    elif is_file_target(target):
        answer = route_url(settings_of_file(settings, target), url, target)
    else:
        answer = with_queue(settings, lambda queue: _route_of_run(queue, settings, url, target))
    print_json(answer.document()) if as_json else _show(answer)
    return 0


async def _route_of_run(queue: Queue, settings: Settings, url: str, name: str) -> RoutedUrl:
    run = await find_run(queue, name)
    return route_url(await settings_of_run(queue, settings, run), url, f"run {run.name}")


def _show(answer: RoutedUrl) -> None:
    task, options, winner = answer.task, answer.task.request_options, answer.winner
    print_line(paint(clean(task.url), "bold"))
    rule = f"{winner.number}: {winner.route}" if winner else "none matches; everything is as usual"
    pace = f"at most {format_pace(answer.pace.spacing)}" if answer.pace.spacing else "no limit"
    print_fields(
        [
            ("rule", clean(rule)),
            ("from", clean(answer.source)),
            ("priority", task.priority),
            ("ttl", format_duration(task.ttl) if task.ttl else "none"),
            ("ack", task.ack),
            ("needs", ", ".join(task.needs) or "any worker"),
            *([("session", options.rule_session)] if options and options.rule_session else []),
            *([("cache", format_duration(options.cache))] if options and options.cache else []),
            *([("on block", options.on_block)] if options and options.on_block else []),
            ("pace", f"{pace}, {answer.pace.max_in_flight or 'any number'} at once, for {task.lane}"),
        ]
    )
    print_line()
    print_table(("rule", "pattern", ""), [(str(it.number), clean(it.route.match), it.verdict) for it in answer.trials])
