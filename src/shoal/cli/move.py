"""shoal move."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import time
from typing import TYPE_CHECKING

import click

from shoal.cli.command import Command
from shoal.cli.console import StatusLine, clean, count, print_json, print_line
from shoal.cli.find_run import find_run, resume_hint
from shoal.cli.options import as_json, click_options
from shoal.cli.runs import run_document
from shoal.config.load import Settings
from shoal.core import units
from shoal.core.queue_url import queue_url
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.logs import redact
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

if TYPE_CHECKING:
    from shoal.commands.move import MoveResult

GRACE = 5.0  # seconds beyond a lease, after which every page in progress is back
LINE_INTERVAL = 5.0
INTERRUPTED = 4


@click.command(
    cls=Command,
    examples="""
    shoal move sqlite:///.shoal/shoal.db redis://queue.internal/0
    shoal move old.db postgresql://db.internal/shoal --run 20261115_120000
    shoal move redis://queue.internal/0 postgresql://db.internal/shoal --all
    """,
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--run", "--run-id", "run", metavar="RUN", help="This run; its name or a prefix of it.")
@click.option("--all", "everything", is_flag=True, help="All unfinished runs.")
@click.option("--wait", metavar="TIME", help="How long to wait for pages in progress. [a lease and 5s]")
@click.option("--force", is_flag=True, help="Then leave them behind; they are fetched again at TO.")
@as_json
@click_options("look")
def move(
    settings: Settings,
    source: str,
    target: str,
    run: str | None,
    everything: bool,
    wait: str | None,
    force: bool,
    as_json: bool,
) -> int:
    """Move an unfinished run from queue FROM to queue TO: tasks, dead letters, seen-set, records, hosts.

    The run is paused meanwhile, and never worked on in both. Run it again to resume after an interruption.
    """
    if run and everything:
        raise UsageError("--run names one run, --all means all of them", hint="give one of the two")
    lease_timeout = settings.lease + GRACE if wait is None else _seconds(wait)
    work = _MoveCommand(settings, source, target, as_json=as_json, lease_timeout=lease_timeout, force=force)
    try:
        asyncio.run(work.run(run, everything))
    except KeyboardInterrupt:
        work.progress.clear()
        print_line("Stopped; nothing is lost. Run it again to resume.", sys.stderr)
        if work.current:
            back = f"shoal resume {work.current} --queue {clean(redact(source))}"
            print_line(f"  Until then the run is paused. To leave it where it was: {back}", sys.stderr)
        return INTERRUPTED
    return 0


def _seconds(text: str) -> float:
    try:
        return float(units.seconds(zero=True)(text))
    except (ValueError, TypeError):
        raise UsageError(f"--wait: {text!r} is not understood", hint='a duration such as "30s" or "5m"') from None


class _MoveCommand:
    def __init__(
        self, settings: Settings, source: str, target: str, *, as_json: bool, lease_timeout: float, force: bool
    ) -> None:
        self.progress = MoveProgress(quiet=as_json)
        self.current = ""
        self._source = dataclasses.replace(settings, queue=queue_url(source))
        self._target = dataclasses.replace(settings, queue=queue_url(target))
        self._as_json = as_json
        self._lease_timeout = lease_timeout
        self._force = force

    async def run(self, named: str | None, everything: bool) -> None:
        from shoal.app import opened_queue

        file = self._source.state_file
        if file is not None and not file.exists():
            raise UsageError(f"there is no state file {file}", hint="FROM is the queue that has the run")
        async with opened_queue(self._source) as source, opened_queue(self._target) as target:
            await self._move_all(source, target, await _runs_to_move(source, target, named, everything))

    async def _move_all(self, source: Queue, target: Queue, runs: list[Run]) -> None:
        from shoal.commands.move import RunMove
        from shoal.commands.move_files import copy_run_files

        place = str(redact(self._target.queue))
        moved = []
        for run in runs:
            self.current = run.name
            self.progress.begin(run.name)
            move = RunMove(
                source,
                target,
                place,
                lease_timeout=self._lease_timeout,
                force=self._force,
                on_progress=self.progress.show,
            )
            copy_run_files(run, self._source.state_folder, self._target.state_folder)
            done = await move.run(run)
            self.progress.clear()
            self.current = ""
            moved.append({**run_document(done.run, done.stats), "again": done.already_moved})
            if not self._as_json:
                print_line(_describe(done))
                if done.run.state in ("running", "paused"):
                    print_line(f"  {resume_hint(self._target, done.run)}")
        if self._as_json:
            print_json({"moved": moved, "to": place})
        elif not runs:
            print_line("No run here is unfinished; nothing to move.")
        else:
            print_line(f"  From now on: --queue {clean(place)} (or SHOAL_QUEUE)")


def _describe(done: MoveResult) -> str:
    stats, verb = done.stats, "was moved before" if done.already_moved else "has moved"
    what = f"{count(stats.seen, 'task')}, {count(stats.open)} open, {count(stats.dead)} dead"
    return f"Run {done.run.name} {verb}: {what}, {count(stats.records, 'record')}. It is {done.run.state}."


async def _runs_to_move(source: Queue, target: Queue, named: str | None, everything: bool) -> list[Run]:
    if named:
        return [await find_run(source, named)]
    runs = await source.runs(states=("running", "paused"), limit=100_000)
    runs += await _interrupted_moves(source, target, {run.name for run in runs})
    if everything or len(runs) <= 1:
        return runs[::-1]
    names = ", ".join(run.name for run in runs[:5])
    raise UsageError(f"{len(runs)} runs are unfinished: {names}", hint="--run with one of them, or --all")


async def _interrupted_moves(source: Queue, target: Queue, known: set[str]) -> list[Run]:
    """Runs that were cancelled here by a move which was interrupted before they went on elsewhere."""

    names = {document.name for document in await target.documents(kinds.ARRIVING)} - known
    return [run for name in sorted(names) for run in await source.runs(name=name) if run.name == name]


class MoveProgress(StatusLine):
    """One line that is redrawn on a terminal; elsewhere a line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__()
        self._quiet = quiet
        self._run = ""
        self._last_line = time.monotonic()

    def begin(self, run: str) -> None:
        self._run = run

    def show(self, what: str, done: int, total: int) -> None:
        if self._quiet:
            return
        if what.startswith("waiting"):
            words = f"Run {self._run}: {what}: {count(total)}"
        else:
            words = f"Run {self._run}: {what}" + (f" {count(done)} of {count(total)}" if total else "")
        if self.on_terminal:
            self.draw(words)
        elif time.monotonic() - self._last_line > LINE_INTERVAL:
            self._last_line = time.monotonic()
            print_line(words, sys.stderr)
