"""shoal hosts: pace, requests and backlog of hosts, and how to change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from shoal.cli.command import Command, Group
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import listing, pick, with_queue
from shoal.cli.show import clean, count, document, lasting, line, table
from shoal.config import Settings
from shoal.control import hosting
from shoal.control.hosting import Which
from shoal.core import measure
from shoal.core.lane import LaneState
from shoal.core.task import LaneChange
from shoal.errors import Usage
from shoal.queue.base import Queue
from shoal.view.documents import host_document
from shoal.view.hosts import host_named, pace_words, ranked, set_by, why_held
from shoal.view.words import under_way

F = TypeVar("F", bound=Callable[..., Any])
PATIENCE = 3600.0  # seconds; whoever waits at a terminal may stop it at any moment
SHOWN = 5
DONE = {"park": "parked", "release": "released", "pace": "paced"}
ONLY = ("parked", "held", "ruled")
ONLY_HELP = "parked; held back, too; or ruled: with a pace that a person set."


def which_hosts(command: F) -> F:
    """HOST, or a filter that means many; the command takes `host` and `which`."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only say how many hosts match."),
        click.option("--all", "everything", is_flag=True, help="Every host there is."),
        click.option("--only", type=click.Choice(ONLY), help=f"Those that are {ONLY_HELP}"),
        click.option("--like", default="", metavar="TEXT", help="All hosts with this in their name."),
        click.argument("host", required=False),
    ):
        command = option(command)
    return command


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples="""
    shoal hosts                              those with the most waiting first
    shoal hosts --run k3f --json             of one run, as JSON
    shoal hosts set shop.example --rate 1/s  for all runs and workers
    shoal hosts park shop.example --for 1h --reason "their sale"
    shoal hosts release --only held          all that get no requests now
    """,
)
@click.option("--like", default="", metavar="TEXT", help="Only hosts with this in their name.")
@click.option("--only", type=click.Choice(ONLY), help=f"Only those that are {ONLY_HELP}")
@click.option(
    "--run", "--run-id", "run", metavar="RUN", help="Only the hosts of one run, and its own backlog."
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@as_json
@click_options("look")
@click.pass_context
def hosts(
    ctx: click.Context,
    settings: Settings,
    like: str,
    only: Any,
    run: str | None,
    limit: int,
    as_json: bool,
) -> int:
    """List hosts with their pace, requests and backlog; set, park and release change them.

    What is set holds for all workers and runs, at once.
    """
    ctx.obj = settings
    if ctx.invoked_subcommand is not None:
        return 0

    async def job(queue: Queue) -> None:
        chosen = await pick(queue, run) if run else None
        now = await queue.now()
        of = chosen.id if chosen else None
        if like or only:
            found = await queue.lanes(run=of, like=like.lower(), only=only or "", limit=limit + 1)
        else:
            found = await ranked(queue, now, run=of, limit=limit + 1)
        shown = found[:limit]
        if as_json:
            document([host_document(lane, now) for lane in shown])
        else:
            _show(shown, now, more=len(found) > limit, none="No host matches." if like or only else "")

    return listing(settings, job, named=run, as_json=as_json, empty=[])


def _show(lanes: list[LaneState], now: int, *, more: bool, none: str) -> None:
    if not lanes:
        line(none or "No hosts yet.")
        return
    rows = [
        (
            lane.name,
            count(lane.ready),
            under_way(lane),
            pace_words(lane),
            set_by(lane),
            why_held(lane, now),
        )
        for lane in lanes
    ]
    table(("host", "waiting", "under way", "pace", "set by", "now"), rows, right="waiting")
    if more:
        line("and more hosts (--limit)")


@hosts.command(
    "set",
    cls=Command,
    examples="""
    shoal hosts set shop.example --delay 2s
    shoal hosts set shop.example --rate 30/m --in-flight 1
    shoal hosts set shop.example --reset
    shoal hosts set --only ruled --reset --dry-run
    """,
)
@which_hosts
@click.option("--delay", "spacing", metavar="TIME", help="Time between two requests; 0 is no limit.")
@click.option("--rate", "per_second", metavar="RATE", help="Requests per second, or 30/m.")
@click.option("--in-flight", "at_once", metavar="N", help="Requests under way at once; 0 is no limit.")
@click.option("--reset", is_flag=True, help="Take back what was set: runs decide again.")
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
    """Set the pace of HOST, or of all that match, for all runs and workers, in place of what they ask for."""
    if reset and (spacing or per_second or at_once):
        raise Usage("--reset takes back what was set, and stands alone", hint="leave the others away")
    if spacing is not None and per_second is not None:
        raise Usage("--delay and --rate say the same thing twice", hint="keep one: --rate 2 is --delay 0.5")
    if not reset and spacing is None and per_second is None and at_once is None:
        raise Usage("say what to set", hint="--delay 2s, --rate 30/m, --in-flight 1 or --reset")
    rule, limit = (-1.0, -1) if reset else (None, None)
    if spacing is not None:
        rule = _read(measure.seconds(zero=True), spacing, "--delay", "a time such as 2s, or 0")
    if per_second is not None:
        rule = 1.0 / _read(measure.rate, per_second, "--rate", "a number above 0, or a rate such as 30/m")
    if at_once is not None:
        limit = _read(measure.whole(0), at_once, "--in-flight", "a whole number; 0 is no limit")
    _change(settings, hosting.pacing(rule, limit), as_json, **which)


@hosts.command(
    cls=Command,
    examples="""
    shoal hosts park shop.example                 until it is released
    shoal hosts park shop.example --for 1h --reason "their sale"
    shoal hosts park --like .shop.example --dry-run
    """,
)
@which_hosts
@click.option("--for", "time", metavar="TIME", help="How long; until it is released unless given.")
@click.option("--reason", default="parked by hand", show_default=True, help="Why, for others to read.")
@as_json
@click_options("look")
def park(settings: Settings, time: str | None, reason: str, as_json: bool, **which: Any) -> None:
    """Send no request to HOST, or to all that match, for a while; their pages wait."""
    seconds = None if time is None else _read(measure.seconds(), time, "--for", "a time such as 30m or 1h")
    _change(settings, hosting.parking(seconds, reason), as_json, **which)


@hosts.command(
    cls=Command,
    examples="""
    shoal hosts release shop.example
    shoal hosts release --only parked
    """,
)
@which_hosts
@as_json
@click_options("look")
def release(settings: Settings, as_json: bool, **which: Any) -> None:
    """Let requests go again to HOST, or to all that match, that were parked or slowed down."""
    _change(settings, hosting.releasing(), as_json, **which)


def _read(parse: Callable[[object], Any], given: str, flag: str, accepts: str) -> Any:
    try:
        return parse(given)
    except (ValueError, TypeError):
        raise Usage(f"{flag}: {given!r} is not understood", hint=f"give {accepts}") from None


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
        raise Usage("say which hosts", hint="give one of: HOST; --like and --only, for all that match; --all")

    async def job(queue: Queue) -> None:
        if host and not dry_run:
            await _change_one(queue, host, change, as_json)
        else:
            names = ((await host_named(queue, host)).name,) if host else ()
            await _change_many(queue, Which(like, only or "", names), change, as_json, dry_run)

    with_queue(settings, job)


async def _change_one(queue: Queue, host: str, change: LaneChange, as_json: bool) -> None:
    name = (await host_named(queue, host)).name
    await queue.set_lane(msgspec.structs.replace(change, lane=name))
    (lane,) = await queue.lanes(names=(name,), limit=1)
    at = await queue.now()
    if as_json:
        document(host_document(lane, at))
        return
    pace = f"one request every {lasting(lane.spacing)}" if lane.spacing else "no pace"
    most = f"{lane.max_in_flight} at once" if lane.max_in_flight else "any number at once"
    now = why_held(lane, at)
    line(f"{clean(name)}: {pace}, {most}{f'; {clean(now)}' if now else ''}.")


async def _change_many(queue: Queue, which: Which, change: LaneChange, as_json: bool, dry_run: bool) -> None:
    if dry_run:
        found = await hosting.count(queue, which, change, seconds=PATIENCE)
    else:
        found = await hosting.change_hosts(queue, "", which, change, seconds=PATIENCE)
    if as_json:
        document({"names": found.names, "count": found.count, "dry_run": dry_run})
        return
    word = hosting.word_of(change)
    what = f"would be {DONE[word]}" if dry_run else DONE[word]
    names = f": {clean(', '.join(found.names[:SHOWN]))}" if found.names else ""
    more = f" and {count(found.count - SHOWN)} more" if found.count > SHOWN else ""
    line(f"{count(found.count, 'host')} {what}{names}{more}.")
