"""shoal hosts blocks: what a host gives in place of its pages."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.console import clean, count, print_json, print_line, print_table
from shoal.cli.find_run import with_queue
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import log_command
from shoal.config.load import Settings
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.queue.host_blocks import find_evidence, mark_content
from shoal.view.blocks import HostBlocksView, block_document, host_blocks, page_name, page_number
from shoal.view.formatting import ago


@click.command(
    cls=Command,
    examples="""
    shoal hosts blocks shop.example
    shoal hosts blocks shop.example --show 3fa91c02     the page as it came
    shoal hosts blocks shop.example --accept 3fa91c02   it is none: its records count
    """,
)
@click.argument("host")
@click.option("--show", metavar="PAGE", help="Print the source of one.")
@click.option("--accept", metavar="PAGE", help="Say that one is no block: such pages count from now on.")
@as_json
@click_options("look")
def blocks(settings: Settings, host: str, show: str | None, accept: str | None, as_json: bool) -> None:
    """List the captcha, consent and login pages that HOST gives with status 200."""
    if show and accept:
        raise UsageError("--show and --accept conflict", hint="give one of them")
    above = click.get_current_context().find_object(Settings)
    if above is not None and above.sources.get("queue", "").startswith("--"):
        settings = above  # shoal hosts --queue … blocks …

    async def job(queue: Queue) -> None:
        found = await host_blocks(queue, host)
        if show or accept:
            number = _number(found, show or accept or "", host)
            await (_show(queue, host, number) if show else _accept(queue, host, number))
        elif as_json:
            print_json(block_document(found))
        else:
            await _list(queue, found, host)

    with_queue(settings, job)


def _number(found: HostBlocksView | None, name: str, host: str) -> int:
    number = page_number(name)
    if found is None or name not in {one.id for one in found.pages}:
        raise UsageError(f"{host} has no block page {name}", hint=f"shoal hosts blocks {host} lists them")
    return number


async def _show(queue: Queue, host: str, number: int) -> None:
    evidence = await find_evidence(queue, host, number)
    if evidence is None:
        raise UsageError(f"block page {page_name(number)} was not kept", hint="they are kept for a week")
    print_line(f"{clean(evidence.url)} → {clean(evidence.final_url)}, by {evidence.fetcher} {clean(evidence.exit)}")
    for line in evidence.text.splitlines():
        print_line(clean(line))


async def _accept(queue: Queue, host: str, number: int) -> None:
    await mark_content(queue, host, number)
    await log_command(queue, "accept block page", host, page=page_name(number))
    print_line(f"{page_name(number)} is no block: such pages of {clean(host)} count from now on.")


async def _list(queue: Queue, found: HostBlocksView | None, host: str) -> None:
    if found is None:
        print_line(f"No block pages of {clean(host)} are known.")
        return
    now = await queue.now()
    rows = [
        (one.id, one.verdict, count(one.urls), count(one.pages), count(one.leaked), ago(one.last_at, now), one.example)
        for one in found.pages
    ]
    heads = ("page", "taken for", "urls", "kept out", "taken before", "last", "example")
    below = [[one.signs] if one.signs else [] for one in found.pages]
    print_table(heads, rows, right="urls kept out taken before", below=below)
    if found.words:
        print_line(found.words)
