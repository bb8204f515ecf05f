"""shoal pause, resume and cancel."""

from __future__ import annotations

from collections.abc import Callable

import click

from shoal.cli.command import Command
from shoal.cli.confirm import end_confirmation, yes_option
from shoal.cli.console import count, print_json
from shoal.cli.find_run import RUN_HELP, find_run, run_argument, with_queue
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.cli.runs import run_document
from shoal.commands.action_log import log_command
from shoal.config.load import SETTINGS, Settings
from shoal.core.budget import budget_limits
from shoal.queue.base import Queue, RunAction
from shoal.queue.budget_ledger import set_limits
from shoal.runs.undo_cancel import undo_cancel
from shoal.view.end_notice import EndNotice, end_notice

MESSAGES = {
    "pause": "Run {name} is paused: {leased} in progress will finish, {ready} waiting.\n"
    "  Resume with: shoal resume {name}",
    "resume": "Run {name} is running again: {ready} waiting.",
    "cancel": "Run {name} is cancelled: {done} done, {cancelled} dropped. Its records are kept.\n"
    "  Undo within an hour with: shoal cancel --undo {name}",
    "undo": "Run {name} is {state} again: {ready} waiting, {leased} in progress, {done} done.",
}


def _control_run(
    settings: Settings,
    run: str | None,
    as_json: bool,
    action: RunAction,
    confirm: Callable[[EndNotice], None] | None = None,
    max_pages: int | None = None,
    budget: str | None = None,
) -> None:
    async def job(queue: Queue) -> None:
        found = await find_run(queue, run)
        if confirm and (notice := await end_notice(queue, found)):
            confirm(notice)
        if max_pages is not None:
            found = await queue.set_max_pages(found.id, max_pages)
        if budget is not None:
            await set_limits(queue, found, budget_limits(budget))
        changed = await (undo_cancel(queue, found) if action == "undo" else queue.set_run(found.id, action))
        await log_command(queue, action, changed.name)
        stats = await queue.stats(changed.id)
        if as_json:
            print_json(run_document(changed, stats))
            return
        words = MESSAGES[action].format(
            name=changed.name,
            state=changed.state,
            leased=count(stats.leased, "page"),
            ready=count(stats.ready),
            done=count(stats.done),
            cancelled=count(stats.cancelled),
        )
        print_hint(words)

    with_queue(settings, job)


@click.command(cls=Command, epilog=RUN_HELP, examples="shoal pause\nshoal pause k3f")
@run_argument
@as_json
@click_options("look")
def pause(settings: Settings, run: str | None, as_json: bool) -> None:
    """Pause RUN: pages in progress finish, no others start."""
    _control_run(settings, run, as_json, "pause")


@click.command(
    cls=Command, epilog=RUN_HELP, examples="shoal resume\nshoal resume k3f\nshoal resume k3f --max-pages 200"
)
@run_argument
@click.option("--max-pages", type=click.IntRange(0), help="Another page limit; 0 is none.")
@click.option("--budget", metavar="TEXT", help="Another budget, such as proxy=2GB,browser=3h; none is none.")
@as_json
@click_options("look")
def resume(settings: Settings, run: str | None, max_pages: int | None, budget: str | None, as_json: bool) -> None:
    """Resume a paused RUN, or with --max-pages one that its page limit ended."""
    if budget is not None:
        budget = SETTINGS["budget"].read(budget, "--budget")
    _control_run(settings, run, as_json, "resume", max_pages=max_pages, budget=budget)


@click.command(cls=Command, epilog=RUN_HELP, examples="shoal cancel k3f\nshoal cancel books\nshoal cancel --undo k3f")
@run_argument
@click.option("--undo", is_flag=True, help="Take the cancel of RUN back: it goes on as it was.")
@yes_option
@as_json
@click_options("look")
def cancel(settings: Settings, run: str | None, undo: bool, yes: bool, as_json: bool) -> None:
    """Cancel RUN: pending tasks are dropped, records are kept. For an hour that can be undone.

    Without RUN on a queue that others use too, it says which run that is and asks; without a terminal it
    needs --yes.
    """
    confirm = None if run or undo else end_confirmation(settings, yes)
    _control_run(settings, run, as_json, "undo" if undo else "cancel", confirm)
