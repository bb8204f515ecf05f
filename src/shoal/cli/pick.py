"""Finding the queue and the run a command is about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from shoal.cli.show import clean, document, line
from shoal.config import Settings, load
from shoal.control.ownership import Ownership
from shoal.core.lane import Mark
from shoal.core.run import Run
from shoal.errors import ShoalError, Usage
from shoal.queue.base import Queue, Where

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

ALIVE = 60_000_000  # microseconds after which a worker that said nothing is not counted

RUN_HELP = "RUN is a run's name, the beginning of one, or a scraper's name; the newest run unless given."


def run_argument(command: F) -> F:
    """An optional RUN, completed by the shell from the runs there are."""
    return click.argument("run", required=False, shell_complete=_completed)(command)


def _completed(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    async def names(queue: Queue) -> list[str]:
        return [run.name for run in await queue.runs(limit=100) if run.name.startswith(begun.upper())]

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
    """The run people mean: by name, by the beginning of a name, by scraper; or the newest."""
    if not named:
        runs = await queue.runs(limit=1)
        if not runs:
            raise NoRuns
        return runs[0]
    for name in dict.fromkeys((named, named.upper(), named.lower())):
        found = await queue.runs(name=name, limit=20)
        exact = [run for run in found if run.name == name]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found:
            names = ", ".join(run.name for run in found)
            raise Usage(f"{named} could be any of {names}", hint="give more of the name")
    by_scraper = [run for run in await queue.runs(limit=10_000) if run.scraper == named]
    if by_scraper:
        return by_scraper[0]
    raise missing(named)


def left(settings: Settings, run: Run) -> bool:
    """Whether the process of this machine that drove a run is gone, however it went."""
    return settings.state_file is not None and Ownership.abandoned(settings.state_folder, run.key)


def state_words(settings: Settings, run: Run) -> str:
    """A run's state for people: one that nobody drives is stopped, though it is to go on."""
    return "stopped" if run.state == "running" and left(settings, run) else run.state


def again_hint(run: Run) -> str:
    """The command that goes on with a run."""
    command = clean(run.spec.get("command") or "")
    return f"go on with: {command}" if command else "the command that started it goes on with it"


async def living(queue: Queue, settings: Settings, run: Run) -> list[Mark]:
    """Workers that gave a sign of life lately; none for a run whose process is gone."""
    if left(settings, run):
        return []
    now = await queue.now()
    return [mark for mark in await queue.workers() if mark.seen_at > now - ALIVE]


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
