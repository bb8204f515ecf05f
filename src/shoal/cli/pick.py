"""Finding the queue and the run a command is about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click

from shoal.cli.show import clean, document, line
from shoal.config import Settings, load
from shoal.control.home import moved_to
from shoal.control.joining import worker_command
from shoal.control.lock import Holder, held
from shoal.control.ownership import Ownership
from shoal.control.runs import alone, find
from shoal.core.lane import Mark
from shoal.core.run import Run
from shoal.core.typed import PREFIX
from shoal.errors import ShoalError, Usage
from shoal.queue.base import Queue, Where

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

RUN_HELP = "RUN is a run's name, its beginning or its end, or a scraper's name; the newest run unless given."


def run_argument(command: F) -> F:
    """An optional RUN, completed by the shell from the runs there are."""
    return click.argument("run", required=False, shell_complete=_completed)(command)


def _completed(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    async def names(queue: Queue) -> list[str]:
        return [run.name for run in await queue.runs(limit=100) if run.name.startswith(begun)]

    try:
        return with_queue(load({"queue": ctx.params.get("queue")}), names)
    except ShoalError:
        return []


class NoRuns(Usage):
    """Nothing was ever run here."""

    def __init__(self) -> None:
        super().__init__(
            "no runs here yet", hint="shoal new books.py, then shoal run books.py -o books.jsonl"
        )


def with_queue(settings: Settings, job: Callable[[Queue], Awaitable[T]]) -> T:
    """Open the queue, do a job with it, close it; raises NoRuns rather than making a state file."""
    return asyncio.run(_opened(settings, job))


async def _opened(settings: Settings, job: Callable[[Queue], Awaitable[T]]) -> T:
    if settings.state_file is not None and not settings.state_file.exists():
        raise NoRuns
    from shoal.app import open_queue

    queue = await open_queue(settings)
    try:
        return await job(queue)
    finally:
        await queue.close()


def listing(
    settings: Settings,
    job: Callable[[Queue], Awaitable[int | None]],
    *,
    named: str | None,
    as_json: bool,
    empty: object,
) -> int:
    """Like with_queue, for commands that only look: where nothing was ever run is no error for them."""
    try:
        return with_queue(settings, job) or 0
    except NoRuns as nothing:
        if named:
            raise missing(named) from nothing
        if as_json:
            document(empty)
        else:
            line("No runs here yet.")
            line(f"  try: {nothing.hint}")
        return 0


async def pick(queue: Queue, named: str | None) -> Run:
    """The run people mean; the newest unless they say."""
    if named:
        run = await find(queue, named)
        if run is None:
            raise missing(named)
        return run
    runs = await queue.runs(limit=1)
    if not runs:
        raise NoRuns
    return runs[0]


def left(settings: Settings, run: Run) -> bool:
    """Whether the process of this machine that drove a run is gone, however it went."""
    shared = run.spec.get("mode") == "distributed"
    return (
        not shared and settings.state_file is not None and Ownership.abandoned(settings.state_folder, run.key)
    )


async def standing(queue: Queue, settings: Settings, run: Run, marks: Sequence[Mark] | None = None) -> str:
    """A run's state for people: one that nobody drives is stopped, one that waits for workers says so."""
    if run.state == "cancelled":
        return "moved" if await moved_to(queue, run) else run.state
    if run.state != "running":
        return run.state
    if left(settings, run):
        return "stopped"
    if settings.state_file is not None and run.spec.get("mode") != "distributed":
        return run.state
    if alone(run):
        return run.state if await holder(queue, run) else "stopped"
    marks = await alive(queue, settings) if marks is None else marks
    return run.state if serving(marks, run) else "waiting"


def again_hint(settings: Settings, run: Run) -> str:
    """The command that goes on with a run."""
    if run.spec.get("mode") == "distributed":
        return f"start a worker: {clean(worker_command(settings, run))}"
    if run.scraper.startswith(PREFIX):
        kind = clean(run.scraper.removeprefix(PREFIX))
        return f"start a worker with a handler for {kind}: shoal worker FILE.py"
    command = clean(run.spec.get("command") or "")
    return f"go on with: {command}" if command else "the command that started it goes on with it"


async def alive(queue: Queue, settings: Settings) -> list[Mark]:
    """Workers that gave a sign of life lately."""
    since = await queue.now() - int(settings.stale_after * 1e6)
    return [mark for mark in await queue.workers() if mark.seen_at > since]


def serving(marks: Sequence[Mark], run: Run) -> list[Mark]:
    """Those among workers that can serve a run."""
    words = {run.name, run.scraper, *(("templates",) if run.spec.get("template") else ())}
    return [mark for mark in marks if not mark.serves or words & set(mark.serves)]


async def living(queue: Queue, settings: Settings, run: Run) -> list[Mark]:
    """Workers of a run that gave a sign of life lately; none for a run whose process is gone."""
    if left(settings, run) or (settings.state_file is None and alone(run) and not await holder(queue, run)):
        return []
    return serving(await alive(queue, settings), run)


async def holder(queue: Queue, run: Run) -> Holder | None:
    """Who drives a run that is driven from one place."""
    return await held(queue, f"run/{run.key}") or await held(queue, f"scraper/{run.scraper}")


def missing(named: str) -> Usage:
    return Usage(f"there is no run {named} here", hint="shoal runs lists them; --queue names another state")


def parse_where(text: str) -> Where:
    """Read `cause=http.5* host=shop.example url=*/page/*`."""
    names = {"cause": "cause", "host": "lane", "lane": "lane", "url": "url"}
    given: dict[str, str] = {}
    for term in text.split():
        name, mark, value = term.partition("=")
        if not mark or not value or name not in names:
            raise Usage(
                f"--where: {term!r} is not understood",
                hint="cause=http.5* host=shop.example url=*/page/*, in any number",
            )
        given[names[name]] = value
    return Where(lane=given.get("lane", ""), cause=given.get("cause", ""), url=given.get("url", ""))
