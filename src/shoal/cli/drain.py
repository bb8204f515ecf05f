"""shoal drain: ask workers to finish what they have and end, or to pause."""

from __future__ import annotations

from typing import Literal

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import with_queue
from shoal.cli.show import count, document, line
from shoal.cli.workers import state_of
from shoal.config import Settings
from shoal.core.lane import Mark
from shoal.errors import Usage
from shoal.queue.base import Queue

Wanted = Literal["drain", "pause", ""]

SAID = {
    "drain": "{who}: asked to drain. What is under way is finished, the rest handed back; then it ends.",
    "pause": "{who}: asked to pause. What is under way is finished; no more is taken.\n"
    "  Go on with: shoal drain {given} --resume",
    "": "{who}: asked to go on.",
}


@click.command(
    cls=Command,
    epilog="WORKER is a name or the beginning of one; that of a whole worker means all its processes.",
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
@click.option("--resume", is_flag=True, help="Go on after --pause.")
@as_json
@click_options("look")
def drain(
    settings: Settings, worker: str | None, everybody: bool, pause: bool, resume: bool, as_json: bool
) -> None:
    """Let WORKER finish what it has, hand back the rest and end.

    It hears of it with its next heartbeat, within seconds. `shoal workers` shows how far it is.
    """
    if bool(worker) == everybody:
        raise Usage("say which worker, or --all", hint="shoal workers lists them")
    if pause and resume:
        raise Usage("--pause and --resume are given both", hint="keep one")
    wanted: Wanted = "pause" if pause else "" if resume else "drain"

    async def job(queue: Queue) -> None:
        now = await queue.now()
        marks = [
            mark for mark in await queue.workers() if state_of(mark, now, settings.stale_after) != "stale"
        ]
        chosen = marks if everybody else choose(marks, worker or "")
        if not chosen:
            raise Usage("nobody works on this queue", hint="shoal worker FILE.py")
        asked = [mark.id for mark in chosen if await queue.ask_worker(mark.id, wanted)]
        if as_json:
            document({"asked": wanted or "resume", "workers": asked})
            return
        given = "--all" if everybody else str(worker)
        who = asked[0] if len(asked) == 1 else count(len(asked), "worker")
        line(SAID[wanted].format(who=who, given=given))
        line("  Look with: shoal workers")

    with_queue(settings, job)


def choose(marks: list[Mark], named: str) -> list[Mark]:
    """The workers a word means: one, or all processes of one machine's worker; never of two."""
    found = [mark for mark in marks if mark.id == named] or [m for m in marks if m.id.startswith(named)]
    names = sorted({mark.name for mark in found})
    if not found:
        raise Usage(f"there is no worker {named}", hint="shoal workers lists them")
    if len(names) > 1 and named not in names:
        raise Usage(
            f"{named} could be any of {', '.join(names[:5])}{' …' if len(names) > 5 else ''}",
            hint="give more of the name, or --all",
        )
    return [mark for mark in found if mark.name == named] or found
