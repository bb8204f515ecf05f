"""shoal move."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import time
from typing import TYPE_CHECKING

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import again_hint, pick
from shoal.cli.runs import run_document
from shoal.cli.show import clean, count, document, line
from shoal.config import Settings
from shoal.core import measure
from shoal.core.run import Run
from shoal.errors import Usage
from shoal.logs import redact
from shoal.queue.base import Queue

if TYPE_CHECKING:
    from shoal.moving import Moved

GRACE = 5.0  # seconds beyond a lease, after which every page under way is back
TOLD_EVERY = 5.0
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
@click.option("--run", "--run-id", "run", metavar="RUN", help="This run; its name or the beginning of it.")
@click.option("--all", "everything", is_flag=True, help="Every run that has not ended.")
@click.option("--wait", metavar="TIME", help="Wait so long for pages under way. [a lease and 5s]")
@click.option("--force", is_flag=True, help="Then leave them behind: they are fetched again at TO.")
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
    """Carry an unfinished run from queue FROM to queue TO: tasks, dead letters, seen-set, records, hosts.

    The run is paused meanwhile, and never worked on in both. The same command goes on after an interruption.
    """
    if run and everything:
        raise Usage("--run names one run, --all means all of them", hint="give one of the two")
    patience = settings.lease + GRACE if wait is None else _seconds(wait)
    work = _Moves(settings, source, target, as_json=as_json, patience=patience, force=force)
    try:
        asyncio.run(work.run(run, everything))
    except KeyboardInterrupt:
        work.progress.clear()
        line("Stopped; nothing is lost. The same command goes on.", sys.stderr)
        if work.current:
            back = f"shoal resume {work.current} --queue {clean(redact(source))}"
            line(f"  Until then the run is paused. To leave it where it was: {back}", sys.stderr)
        return INTERRUPTED
    return 0


def _seconds(text: str) -> float:
    try:
        return float(measure.seconds(zero=True)(text))
    except (ValueError, TypeError):
        raise Usage(f"--wait: {text!r} is not understood", hint='a duration such as "30s" or "5m"') from None


class _Moves:
    def __init__(
        self, settings: Settings, source: str, target: str, *, as_json: bool, patience: float, force: bool
    ) -> None:
        self.progress = Progress(quiet=as_json)
        self.current = ""
        self._source = dataclasses.replace(settings, queue=source)
        self._target = dataclasses.replace(settings, queue=target)
        self._as_json = as_json
        self._patience = patience
        self._force = force

    async def run(self, named: str | None, everything: bool) -> None:
        from shoal.app import open_queue

        file = self._source.state_file
        if file is not None and not file.exists():
            raise Usage(f"there is no state file {file}", hint="FROM is the queue that has the run")
        source = await open_queue(self._source)
        try:
            target = await open_queue(self._target)
            try:
                await self._all(source, target, await _chosen(source, target, named, everything))
            finally:
                await target.close()
        finally:
            await source.close()

    async def _all(self, source: Queue, target: Queue, runs: list[Run]) -> None:
        from shoal.luggage import take_along
        from shoal.moving import Move

        place = str(redact(self._target.queue))
        moved = []
        for run in runs:
            self.current = run.name
            self.progress.begin(run.name)
            move = Move(
                source,
                target,
                place,
                patience=self._patience,
                force=self._force,
                tell=self.progress.tell,
            )
            take_along(run, self._source.state_folder, self._target.state_folder)
            done = await move.run(run)
            self.progress.clear()
            self.current = ""
            moved.append({**run_document(done.run, done.stats), "again": done.again})
            if not self._as_json:
                line(_said(done))
                if done.run.state in ("running", "paused"):
                    line(f"  {again_hint(self._target, done.run)}")
        if self._as_json:
            document({"moved": moved, "to": place})
        elif not runs:
            line("No run here is unfinished: nothing to move.")
        else:
            line(f"  From now on: --queue {clean(place)} (or SHOAL_QUEUE)")


def _said(done: Moved) -> str:
    stats, verb = done.stats, "was moved before" if done.again else "has moved"
    what = f"{count(stats.seen, 'task')}, {count(stats.open)} open, {count(stats.dead)} dead"
    return f"Run {done.run.name} {verb}: {what}, {count(stats.records, 'record')}. It is {done.run.state}."


async def _chosen(source: Queue, target: Queue, named: str | None, everything: bool) -> list[Run]:
    if named:
        return [await pick(source, named)]
    runs = await source.runs(states=("running", "paused"), limit=100_000)
    runs += await _halfway(source, target, {run.name for run in runs})
    if everything or len(runs) <= 1:
        return runs[::-1]
    names = ", ".join(run.name for run in runs[:5])
    raise Usage(f"{len(runs)} runs are unfinished: {names}", hint="--run with one of them, or --all")


async def _halfway(source: Queue, target: Queue, known: set[str]) -> list[Run]:
    """Runs that were cancelled here by a move which was interrupted before they went on elsewhere."""
    from shoal.moving import ARRIVING

    names = {paper.name for paper in await target.papers(ARRIVING)} - known
    return [run for name in sorted(names) for run in await source.runs(name=name) if run.name == name]


class Progress:
    """One line that is redrawn on a terminal; elsewhere a line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._run = ""
        self._shown = 0
        self._told = time.monotonic()

    def begin(self, run: str) -> None:
        self._run = run

    def tell(self, what: str, done: int, total: int) -> None:
        if self._quiet:
            return
        if what.startswith("waiting"):
            words = f"Run {self._run}: {what}: {count(total)}"
        else:
            words = f"Run {self._run}: {what}" + (f" {count(done)} of {count(total)}" if total else "")
        if self._terminal:
            sys.stderr.write("\r" + words.ljust(self._shown))
            sys.stderr.flush()
            self._shown = len(words)
        elif time.monotonic() - self._told > TOLD_EVERY:
            self._told = time.monotonic()
            line(words, sys.stderr)

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            sys.stderr.flush()
            self._shown = 0
