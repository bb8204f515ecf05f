"""shoal shards: the shards of a queue, and one more."""

from __future__ import annotations

import click
import msgspec

from shoal.cli.command import Command, Group
from shoal.cli.console import clean, count, print_json, print_line, print_table
from shoal.cli.find_run import with_queue
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import log_command
from shoal.commands.shards import ShardStatus, add, require_sharded, shard_statuses
from shoal.config.load import Settings
from shoal.queue.base import Queue


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples="""
    shoal shards --queue shards:redis://a:6379/0,redis://b:6379/0
    shoal shards add redis://c:6379/0        one more, while everything goes on
    """,
)
@as_json
@click_options("look")
@click.pass_context
def shards(ctx: click.Context, settings: Settings, as_json: bool) -> int:
    """Show the shards of a queue; add one more.

    A sharded queue spreads hosts over several servers: --queue shards:URL,URL. The first is its home.
    """
    ctx.obj = settings
    if ctx.invoked_subcommand is not None:
        return 0
    return with_queue(settings, lambda queue: _show(queue, as_json))


@shards.command(cls=Command, examples="shoal shards status --json")
@as_json
@click_options("look")
def status(settings: Settings, as_json: bool) -> int:
    """Show each shard: whether it answers, its hosts, and what waits there. Exit 1: one is away."""
    return with_queue(settings, lambda queue: _show(queue, as_json))


@shards.command("add", cls=Command, examples="shoal shards add redis://c:6379/0 --queue shards:redis://a,redis://b")
@click.argument("url")
@click_options("look")
def add_(settings: Settings, url: str) -> int:
    """Add an empty queue as one more shard, and move the hosts that belong there.

    Everything else goes on. If it is cut short, run it again: it goes on where it was.
    """

    async def job(queue: Queue) -> int:
        require_sharded(queue)
        report = await add(queue, url)
        await log_command(queue, "add a shard", report.shard)
        print_line(
            f"{clean(report.shard)} is a shard now: {count(report.moved)} of {count(report.lanes)} hosts moved"
            f" ({report.share:.0%}), with {count(report.tasks)} tasks."
        )
        return 0

    return with_queue(settings, job)


async def _show(queue: Queue, as_json: bool) -> int:
    found = await shard_statuses(queue)
    if as_json:
        print_json([msgspec.to_builtins(it) for it in found])
    else:
        print_table(
            ("shard", "URL", "state", "hosts", "ready", "leased", "outbox"), [_row(it) for it in found], right="hosts"
        )
    return int(any(it.away for it in found))


def _row(it: ShardStatus) -> tuple[str, ...]:
    if it.away:
        return str(it.number), clean(it.name), f"away: {clean(it.away)}", "", "", "", ""
    state = it.role or "ok"
    return str(it.number), clean(it.name), state, count(it.hosts), count(it.ready), count(it.leased), count(it.outbox)
