"""shoal drain: ask workers to finish what they have and end, or to pause."""

from __future__ import annotations

import shlex
from typing import Literal

import click

from shoal.cli.command import Command
from shoal.cli.console import count, print_json
from shoal.cli.find_run import with_queue
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import log_command
from shoal.config.load import Settings
from shoal.control.actions import find_workers
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.view.run_state import live_workers

WorkerAction = Literal["drain", "pause", ""]

MESSAGES = {
    "drain": "{who}: asked to drain. It finishes what is in progress, returns the rest and exits.",
    "pause": "{who}: asked to pause. It finishes what is in progress and takes no more.\n"
    "  Resume with: shoal drain {given} --resume",
    "": "{who}: asked to resume.",
}


@click.command(
    cls=Command,
    epilog="WORKER is a name or a prefix of one; the name of a worker means all its processes.",
    examples="""
    shoal drain node04-7f3a            before it is switched off or updated
    shoal drain node04-7f3a --pause    take no more work for now
    shoal drain node04-7f3a --resume
    shoal drain --all                  the whole fleet
    """,
)
@click.argument("worker", required=False)
@click.option("--all", "everybody", is_flag=True, help="Every worker of this queue.")
@click.option("--pause", is_flag=True, help="Only stop taking work, until --resume.")
@click.option("--resume", is_flag=True, help="Resume after --pause.")
@as_json
@click_options("look")
def drain(settings: Settings, worker: str | None, everybody: bool, pause: bool, resume: bool, as_json: bool) -> None:
    """Have WORKER finish its tasks, return the rest to the queue and exit.

    It gets the command with its next heartbeat, within seconds. `shoal workers` shows its state.
    """
    if bool(worker) == everybody:
        raise UsageError("no worker given", hint="shoal workers lists them")
    if pause and resume:
        raise UsageError("--pause and --resume exclude each other", hint="keep one")
    wanted: WorkerAction = "pause" if pause else "" if resume else "drain"

    async def job(queue: Queue) -> None:
        chosen = await live_workers(queue, settings)
        if worker:
            chosen = find_workers(chosen, worker, hint="give more of the name, or --all")
            if not chosen:
                raise UsageError(f"there is no worker {worker}", hint="shoal workers lists them")
        if not chosen:
            raise UsageError("no worker is connected to this queue", hint="shoal worker FILE.py")
        asked = [status.id for status in chosen if await queue.command_worker(status.id, wanted)]
        for id in asked:
            await log_command(queue, wanted or "resume", id)
        if as_json:
            print_json({"asked": wanted or "resume", "workers": asked})
            return
        given = "--all" if everybody else shlex.quote(str(worker))
        who = asked[0] if len(asked) == 1 else count(len(asked), "worker")
        print_hint(MESSAGES[wanted].format(who=who, given=given))
        print_hint("  Check with: shoal workers")

    with_queue(settings, job)
