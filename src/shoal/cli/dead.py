"""shoal dead and shoal revive."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli.command import Command
from shoal.cli.console import ago, count, print_json, print_line, print_table
from shoal.cli.find_run import RUN_HELP, find_run, parse_filter, run_argument, show_listing, with_queue
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import log_command
from shoal.config.load import Settings
from shoal.control.actions import filter_details, revive_dead_letters
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.queue.base import DeadLetterGroup, Queue, TaskView
from shoal.view.dead_letters import dead_letter_groups, dead_letters, runs_with_dead_letters
from shoal.view.documents import dead_group_document, dead_letter_document
from shoal.view.run_state import live_workers_for_run, resume_hint


@click.command(
    cls=Command,
    epilog="RUN is a run's name, a prefix or suffix of it, or a scraper's name; default: all runs.",
    examples="""
    shoal dead                                 of all runs, by host and cause
    shoal dead books --list                    one line per page
    shoal dead --list --where 'cause=http.5*'  only some
    shoal dead --failures 3                    those that keep failing, over runs
    """,
)
@run_argument
@click.option("--list", "single", is_flag=True, help="List every page instead of groups.")
@click.option("--where", metavar="TERMS", default="", help="Only cause=… host=… url=… (* matches anything).")
@click.option(
    "--failures", type=click.IntRange(1), metavar="N", help="Only pages that failed N times or more, in all runs."
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum rows.")
@as_json
@click_options("look")
def dead(
    settings: Settings, run: str | None, single: bool, where: str, failures: int | None, limit: int, as_json: bool
) -> int:
    """Show permanent failures of RUN, or of all runs, by host and cause."""
    wanted = parse_filter(where)

    async def job(queue: Queue) -> None:
        chosen = [await find_run(queue, run)] if run else await runs_with_dead_letters(queue)
        now = await queue.now()
        if single:
            views = [
                (it, view)
                for it in chosen
                async for view in dead_letters(queue, it.id, wanted, limit, failures=failures or 0)
            ][:limit]
            documents = [_named(it, dead_letter_document(view)) for it, view in views]
            print_json(documents) if as_json else _show_letters(views, now, named=run is None)
        else:
            groups = [
                (it, group)
                for it in chosen
                for group in await dead_letter_groups(queue, it.id, wanted, limit, failures=failures or 0)
            ]
            documents = [_named(it, dead_group_document(group)) for it, group in groups[:limit]]
            print_json(documents) if as_json else _show_groups(groups[:limit], now, named=run is None)
        if not as_json:
            await _show_removed(queue, chosen)
            await _show_next(queue, chosen)

    return show_listing(settings, job, named=run, as_json=as_json, empty=[])


def _named(run: Run, document: dict[str, Any]) -> dict[str, Any]:
    return {"run": run.name, **document}


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
    """Requeue dead letters of RUN, with fresh attempts."""
    if everything == bool(where.strip()):
        raise UsageError("no dead letters chosen", hint="--all, or --where 'cause=http.5* host=shop.example'")
    wanted = parse_filter(where)

    async def job(queue: Queue) -> None:
        chosen = await find_run(queue, run)
        revived = await revive_dead_letters(queue, chosen.id, wanted)
        await log_command(queue, "revive", chosen.name, count=revived, **filter_details(wanted))
        if as_json:
            print_json({"run": chosen.name, "revived": revived})
            return
        print_line(f"{count(revived, 'dead letter')} of run {chosen.name} requeued.")
        if revived and not await live_workers_for_run(queue, settings, chosen):
            print_hint(f"  {resume_hint(settings, chosen)}")

    with_queue(settings, job)


def _show_groups(groups: list[tuple[Run, DeadLetterGroup]], now: int, *, named: bool) -> None:
    """named: with the run of each."""
    if not groups:
        print_line("No dead letters.")
        return
    rows = [
        (count(group.count), *([run.name] if named else []), group.lane, group.cause, ago(group.last_at, now))
        for run, group in groups
    ]
    below = [
        [*([group.message] if group.message not in ("", group.cause) else []), group.sample] for _, group in groups
    ]
    titles = ("pages", *(["run"] if named else []), "host", "cause", "last")
    print_table(titles, rows, right="pages", below=below)


def _show_letters(views: list[tuple[Run, TaskView]], now: int, *, named: bool) -> None:
    if not views:
        print_line("No dead letters.")
        return
    rows = [
        (*([run.name] if named else []), view.cause, count(view.attempts), ago(view.finished_at, now), view.url)
        for run, view in views
    ]
    print_table((*(["run"] if named else []), "cause", "tries", "last", "url"), rows, right="tries")


async def _show_removed(queue: Queue, chosen: list[Run]) -> None:
    removed = sum(stats.discarded for stats in await queue.stats_of([run.id for run in chosen]))
    if removed == 1:
        print_line("1 dead letter was removed when its retention was over; it cannot be requeued.")
    elif removed:
        print_line(
            f"{count(removed, 'dead letter')} were removed when their retention was over; they cannot be requeued."
        )


async def _show_next(queue: Queue, chosen: list[Run]) -> None:
    """What can be done about them; of several runs the newest is the example."""
    if not chosen or not (await queue.stats(chosen[0].id)).dead:
        return
    name = chosen[0].name
    print_line()
    print_hint(f"Next: shoal why URL --run {name}    every attempt at one of them")
    if chosen[0].can_revive:
        print_hint(f"      shoal revive {name} --all         requeue them")
