"""shoal seen: seen-sets, and how to forget what is in them."""

from __future__ import annotations

import sys

import click

from shoal import app
from shoal.cli.command import Command, Group
from shoal.cli.console import ago, clean, count, format_duration, print_json, print_line, print_table
from shoal.cli.find_run import show_listing, with_queue
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import log_command
from shoal.config.load import Settings
from shoal.errors import UsageError
from shoal.queue.base import Queue, SeenSet
from shoal.view.documents import seen_set_document
from shoal.view.formatting import size
from shoal.view.seen_sets import digests_of_urls, require_seen_set


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples="""
    shoal run urls.txt -o new.csv --seen prices    skip what earlier runs had
    shoal seen                                     all sets: size and age
    shoal seen forget prices https://shop.example/item/7
    shoal seen clear prices                        fetch everything again
    """,
)
@as_json
@click_options("look")
@click.pass_context
def seen(ctx: click.Context, settings: Settings, as_json: bool) -> int:
    """List seen-sets; forget and clear change them.

    A run with --seen NAME skips URLs that another run with the same NAME has had.
    """
    ctx.obj = settings
    if ctx.invoked_subcommand is not None:
        return 0

    async def job(queue: Queue) -> None:
        found, now = await queue.seen_sets(), await queue.now()
        if as_json:
            print_json([seen_set_document(it) for it in found])
        else:
            _show(found, now)

    return show_listing(settings, job, named=None, as_json=as_json, empty=[])


def _show(found: list[SeenSet], now: int) -> None:
    if not found:
        print_line("No seen-sets yet: a run with --seen NAME makes one.")
        return
    rows = [
        (
            clean(it.name),
            count(it.entries),
            f"about {size(it.bytes)}",
            format_duration(it.seen_for) if it.seen_for else "for ever",
            ago(it.created_at, now),
            ago(it.changed_at, now),
        )
        for it in found
    ]
    print_table(("seen-set", "URLs", "size", "remembers", "created", "last addition"), rows, right="URLs")


@seen.command("forget", cls=Command, examples="shoal seen forget prices https://shop.example/item/7")
@click.argument("name")
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.pass_obj
def forget(settings: Settings, name: str, urls: tuple[str, ...]) -> None:
    """Forget URLs: later runs of the seen-set NAME fetch them again."""
    digests = digests_of_urls(urls, app.rewrite_rule(settings))

    async def job(queue: Queue) -> None:
        await require_seen_set(queue, name)
        gone = await queue.forget_seen(name, digests)
        await log_command(queue, "forget seen URLs", name, count=gone)
        print_line(f"Forgot {count(gone)} of {count(len(urls), 'URL')} in {name}.")

    with_queue(settings, job)


@seen.command("clear", cls=Command, examples="shoal seen clear prices --yes")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def clear(settings: Settings, name: str, yes: bool) -> None:
    """Forget everything in the seen-set NAME: later runs fetch it again."""

    async def job(queue: Queue) -> None:
        found = await require_seen_set(queue, name)
        if not yes:
            _confirm(found)
        gone = await queue.clear_seen(name)
        await log_command(queue, "clear seen-set", name, count=gone)
        print_line(f"Cleared {name}: {count(gone, 'URL')} forgotten.")

    with_queue(settings, job)


def _confirm(found: SeenSet) -> None:
    if not sys.stdin.isatty():
        raise UsageError(
            f"{found.name} holds {count(found.entries, 'URL')}: nobody is there to confirm", hint="add --yes"
        )
    click.confirm(f"Forget all {count(found.entries, 'URL')} in {found.name}?", abort=True, err=True)
