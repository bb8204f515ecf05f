"""shoal hosts: pace, requests and backlog of hosts, and how to change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shoal.cli.command import Command, Group
from shoal.cli.console import clean, count, print_json, print_line, print_table
from shoal.cli.find_run import find_run, show_listing, with_queue
from shoal.cli.host_blocks import blocks
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import log_command
from shoal.config.load import Settings
from shoal.config.setting import read_value
from shoal.control import host_actions
from shoal.control.host_actions import HostSelection
from shoal.core import units
from shoal.core.lane import LaneState
from shoal.core.task import LaneChange
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.view.documents import host_document
from shoal.view.formatting import format_in_flight, format_pace
from shoal.view.hosts import hold_reason, pace_set_by, rank_hosts, require_host

F = TypeVar("F", bound=Callable[..., Any])
TIMEOUT = 3600.0  # seconds; whoever waits at a terminal may stop it at any moment
SHOWN = 5
ACTION_TEXTS = {"park": "parked", "release": "released", "pace": "changed", "forget": "cleared of what was learnt"}
CONDITIONS = ("parked", "held", "overridden")
CONDITION_HELP = "parked, held (parked included) or overridden (with limits set by a person)."


def host_filter_options(command: F) -> F:
    """HOST, or a filter that means many; the command takes `host` and `which`."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only show how many hosts match."),
        click.option("--all", "everything", is_flag=True, help="All hosts."),
        click.option("--only", type=click.Choice(CONDITIONS), help=f"Those that are {CONDITION_HELP}"),
        click.option("--like", default="", metavar="TEXT", help="All hosts with this in their name."),
        click.argument("host", required=False),
    ):
        command = option(command)
    return command


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples="""
    shoal hosts                              most waiting pages first
    shoal hosts --run k3f --json             of one run, as JSON
    shoal hosts set shop.example --rate 1/s  for all runs and workers
    shoal hosts park shop.example --for 1h --reason "their sale"
    shoal hosts release --only held          all that are held back now
    shoal hosts blocks shop.example          captcha and login pages it gives
    """,
)
@click.option("--like", default="", metavar="TEXT", help="Only hosts with this in their name.")
@click.option("--only", type=click.Choice(CONDITIONS), help=f"Only those that are {CONDITION_HELP}")
@click.option("--run", "--run-id", "run", metavar="RUN", help="Only the hosts of one run, and its own backlog.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum rows.")
@as_json
@click_options("look")
@click.pass_context
def hosts(
    ctx: click.Context, settings: Settings, like: str, only: Any, run: str | None, limit: int, as_json: bool
) -> int:
    """List hosts with their rate limits, requests and backlog; set, park and release change them.

    Changes apply to all workers and runs, at once.
    """
    ctx.obj = settings
    if ctx.invoked_subcommand is not None:
        return 0

    async def job(queue: Queue) -> None:
        chosen = await find_run(queue, run) if run else None
        now = await queue.now()
        of = chosen.id if chosen else None
        if like or only:
            found = await queue.lanes(run=of, like=like.lower(), only=only or "", limit=limit + 1)
        else:
            found = await rank_hosts(queue, now, run=of, limit=limit + 1)
        shown = found[:limit]
        if as_json:
            print_json([host_document(lane, now) for lane in shown])
        else:
            _show(shown, now, more=len(found) > limit, none="No host matches." if like or only else "")

    return show_listing(settings, job, named=run, as_json=as_json, empty=[])


def _show(lanes: list[LaneState], now: int, *, more: bool, none: str) -> None:
    if not lanes:
        print_line(none or "No hosts yet.")
        return
    rows = [
        (
            lane.name,
            count(lane.ready),
            format_in_flight(lane),
            format_pace(lane.spacing),
            pace_set_by(lane),
            hold_reason(lane, now),
        )
        for lane in lanes
    ]
    print_table(("host", "waiting", "in progress", "rate limit", "set by", "now"), rows, right="waiting")
    if more:
        print_line("more hosts not shown (--limit)")


@hosts.command(
    "set",
    cls=Command,
    examples="""
    shoal hosts set shop.example --delay 2s
    shoal hosts set shop.example --rate 30/m --in-flight 1
    shoal hosts set shop.example --reset
    shoal hosts set --only overridden --reset --dry-run
    """,
)
@host_filter_options
@click.option("--delay", "spacing", metavar="TIME", help="Time between two requests; 0 is no limit.")
@click.option("--rate", "per_second", metavar="RATE", help="Requests per second, or 30/m.")
@click.option("--in-flight", "at_once", metavar="N", help="Requests in flight at once; 0 is no limit.")
@click.option("--reset", is_flag=True, help="Remove the override: runs decide again.")
@as_json
@click_options("look")
def set_(
    settings: Settings,
    spacing: str | None,
    per_second: str | None,
    at_once: str | None,
    reset: bool,
    as_json: bool,
    **which: Any,
) -> None:
    """Set the rate limit of HOST, or of all that match, for all runs and workers, overriding their own."""
    if reset and (spacing or per_second or at_once):
        raise UsageError("--reset cannot be combined with other limits", hint="leave the others out")
    if spacing is not None and per_second is not None:
        raise UsageError("--delay and --rate conflict", hint="keep one: --rate 2 is --delay 0.5")
    if not reset and spacing is None and per_second is None and at_once is None:
        raise UsageError("nothing to set", hint="--delay 2s, --rate 30/m, --in-flight 1 or --reset")
    rule, limit = (-1.0, -1) if reset else (None, None)
    if spacing is not None:
        rule = read_value(units.seconds(zero=True), spacing, "--delay", "a time such as 2s, or 0")
    if per_second is not None:
        rule = 1.0 / read_value(units.rate, per_second, "--rate", "a number above 0, or a rate such as 30/m")
    if at_once is not None:
        limit = read_value(units.integer(0), at_once, "--in-flight", "a whole number; 0 is no limit")
    _change(settings, host_actions.pace_change(rule, limit), as_json, **which)


@hosts.command(
    cls=Command,
    examples="""
    shoal hosts park shop.example                 until it is released
    shoal hosts park shop.example --for 1h --reason "their sale"
    shoal hosts park --like .shop.example --dry-run
    """,
)
@host_filter_options
@click.option("--for", "time", metavar="TIME", help="How long; default: until released.")
@click.option("--reason", default="parked by hand", show_default=True, help="The reason, shown to others.")
@as_json
@click_options("look")
def park(settings: Settings, time: str | None, reason: str, as_json: bool, **which: Any) -> None:
    """Send no requests to HOST, or to all that match, for a while; their pages wait."""
    seconds = None if time is None else read_value(units.seconds(), time, "--for", "a time such as 30m or 1h")
    _change(settings, host_actions.park_change(seconds, reason), as_json, **which)


@hosts.command(
    cls=Command,
    examples="""
    shoal hosts release shop.example
    shoal hosts release --only parked
    """,
)
@host_filter_options
@as_json
@click_options("look")
def release(settings: Settings, as_json: bool, **which: Any) -> None:
    """Resume requests to HOST, or to all that match, that were parked or slowed down."""
    _change(settings, host_actions.release_change(), as_json, **which)


@hosts.command(
    cls=Command,
    examples="""
    shoal hosts forget shop.example               its answers decide anew
    shoal hosts forget --only held --dry-run
    """,
)
@host_filter_options
@as_json
@click_options("look")
def forget(settings: Settings, as_json: bool, **which: Any) -> None:
    """Forget what was learnt of HOST, or of all that match: slower paces, holds, and parks for failures.

    What people set or parked until released stays. Workers learn anew from the next answers.
    """
    _change(settings, host_actions.forget_change(), as_json, **which)


hosts.add_command(blocks)


def _change(
    settings: Settings,
    change: LaneChange,
    as_json: bool,
    host: str | None,
    like: str,
    only: Any,
    everything: bool,
    dry_run: bool,
) -> None:
    above = click.get_current_context().find_object(Settings)
    if above is not None and above.sources.get("queue", "").startswith("--"):
        settings = above  # shoal hosts --queue … set …
    if bool(host) + bool(like or only) + everything != 1:
        raise UsageError("no hosts selected", hint="give one of: HOST; --like and --only, for all that match; --all")

    async def job(queue: Queue) -> None:
        if host and not dry_run:
            await _change_one(queue, host, change, as_json)
        else:
            names = ((await require_host(queue, host)).name,) if host else ()
            await _change_many(queue, HostSelection(like, only or "", names), change, as_json, dry_run)

    with_queue(settings, job)


async def _change_one(queue: Queue, host: str, change: LaneChange, as_json: bool) -> None:
    found = await require_host(queue, host)
    name = found.name
    await queue.set_lane(host_actions.change_for(change, found, await queue.now()))
    await log_command(queue, host_actions.action_name(change), name, **host_actions.change_details(change))
    (lane,) = await queue.lanes(names=(name,), limit=1)
    at = await queue.now()
    if as_json:
        print_json(host_document(lane, at))
        return
    pace = format_pace(lane.spacing) if lane.spacing else "no rate limit"
    most = f"{lane.max_in_flight} at once" if lane.max_in_flight else "any number at once"
    now = hold_reason(lane, at)
    print_line(f"{clean(name)}: {pace}, {most}{f'; {clean(now)}' if now else ''}.")


async def _change_many(queue: Queue, which: HostSelection, change: LaneChange, as_json: bool, dry_run: bool) -> None:
    if dry_run:
        found = await host_actions.count_hosts(queue, which, change, seconds=TIMEOUT)
    else:
        found = await host_actions.change_hosts(queue, None, which, change, seconds=TIMEOUT)
        word, about = host_actions.action_name(change), host_actions.describe_filter(which)
        await log_command(queue, word, about, count=found.count, **host_actions.change_details(change))
    if as_json:
        print_json({"names": found.names, "count": found.count, "dry_run": dry_run})
        return
    word = host_actions.action_name(change)
    what = f"would be {ACTION_TEXTS[word]}" if dry_run else ACTION_TEXTS[word]
    names = f": {clean(', '.join(found.names[:SHOWN]))}" if found.names else ""
    more = f" and {count(found.count - SHOWN)} more" if found.count > SHOWN else ""
    print_line(f"{count(found.count, 'host')} {what}{names}{more}.")
