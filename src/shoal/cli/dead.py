"""shoal dead and shoal revive."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import RUN_HELP, listing, parse_where, pick, run_argument, with_queue
from shoal.cli.show import ago, count, document, line, table
from shoal.config import Settings
from shoal.control.acting import revive_all
from shoal.errors import Usage
from shoal.queue.base import DeadGroup, Queue, TaskView
from shoal.view.documents import group_document, letter_document
from shoal.view.letters import dead_letters, groups
from shoal.view.standing import again_hint, living


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal dead                                 by host and cause, newest run
    shoal dead books --list                    one line per page
    shoal dead --list --where 'cause=http.5*'  only some
    """,
)
@run_argument
@click.option("--list", "single", is_flag=True, help="Every page by itself instead of groups.")
@click.option("--where", metavar="TERMS", default="", help="Only cause=… host=… url=… (* matches anything).")
@click.option(
    "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many lines."
)
@as_json
@click_options("look")
def dead(settings: Settings, run: str | None, single: bool, where: str, limit: int, as_json: bool) -> int:
    """Show what failed for good in RUN, by host and cause."""
    wanted = parse_where(where)

    async def job(queue: Queue) -> None:
        chosen = await pick(queue, run)
        now = await queue.now()
        if single:
            views = [view async for view in dead_letters(queue, chosen.id, wanted, limit)]
            document([letter_document(view) for view in views]) if as_json else _show_letters(views, now)
        else:
            found = await groups(queue, chosen.id, wanted, limit)
            document([group_document(group) for group in found]) if as_json else _show_groups(found, now)
        if not as_json:
            _show_next(chosen.name, (await queue.stats(chosen.id)).dead)

    return listing(settings, job, named=run, as_json=as_json, empty=[])


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal revive --all                           all of the newest run
    shoal revive k3f --where 'cause=http.5* host=shop.example'
    """,
)
@run_argument
@click.option("--where", metavar="TERMS", default="", help="Only cause=… host=… url=… (* matches anything).")
@click.option("--all", "everything", is_flag=True, help="All dead letters of the run.")
@as_json
@click_options("look")
def revive(settings: Settings, run: str | None, where: str, everything: bool, as_json: bool) -> None:
    """Put dead letters of RUN back to work, with fresh attempts."""
    if everything == bool(where.strip()):
        raise Usage("say which dead letters", hint="--all, or --where 'cause=http.5* host=shop.example'")
    wanted = parse_where(where)

    async def job(queue: Queue) -> None:
        chosen = await pick(queue, run)
        revived = await revive_all(queue, chosen.id, wanted)
        if as_json:
            document({"run": chosen.name, "revived": revived})
            return
        line(f"{count(revived, 'dead letter')} of run {chosen.name} put back to work.")
        if revived and not await living(queue, settings, chosen):
            line(f"  {again_hint(settings, chosen)}")

    with_queue(settings, job)


def _show_groups(groups: list[DeadGroup], now: int) -> None:
    if not groups:
        line("No dead letters.")
        return
    rows = [(count(group.count), group.lane, group.cause, ago(group.last_at, now)) for group in groups]
    below = [
        [*([group.message] if group.message not in ("", group.cause) else []), group.sample]
        for group in groups
    ]
    table(("pages", "host", "cause", "last"), rows, right="pages", below=below)


def _show_letters(views: list[TaskView], now: int) -> None:
    if not views:
        line("No dead letters.")
        return
    rows = [(view.cause, count(view.attempts), ago(view.finished_at, now), view.url) for view in views]
    table(("cause", "tries", "last", "address"), rows, right="tries")


def _show_next(name: str, dead: int) -> None:
    if dead:
        line()
        line(f"Next: shoal why ADDRESS --run {name}    every attempt at one of them")
        line(f"      shoal revive {name} --all         put them back to work")
