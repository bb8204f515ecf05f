"""Finding the queue and the run a command is about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from shoal.cli.console import print_json, print_line
from shoal.config.load import Settings, load
from shoal.core.run import Run
from shoal.errors import ShoalError, UsageError
from shoal.queue.base import Queue, TaskFilter
from shoal.runs.identity import resolve_run
from shoal.view.run_state import display_state as display_state
from shoal.view.run_state import resume_hint as resume_hint

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

RUN_HELP = "RUN is a run's name, a prefix or suffix of it, or a scraper's name; default: the newest run."


def run_argument(command: F) -> F:
    """An optional RUN, completed by the shell from the runs there are."""
    return click.argument("run", required=False, shell_complete=_complete_run)(command)


def _complete_run(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    async def names(queue: Queue) -> list[str]:
        return [run.name for run in await queue.runs(limit=100) if run.name.startswith(begun)]

    try:
        return with_queue(load({"queue": ctx.params.get("queue")}), names)
    except ShoalError:
        return []


class NoRuns(UsageError):
    """Nothing was ever run here."""

    def __init__(self) -> None:
        super().__init__("no runs here yet", hint="shoal new books.py, then shoal run books.py -o books.jsonl")


def with_queue(settings: Settings, job: Callable[[Queue], Awaitable[T]]) -> T:
    """Open the queue, do a job with it, close it; raises NoRuns rather than making a state file."""
    return asyncio.run(_with_open_queue(settings, job))


async def _with_open_queue(settings: Settings, job: Callable[[Queue], Awaitable[T]]) -> T:
    if settings.state_file is not None and not settings.state_file.exists():
        raise NoRuns
    from shoal.app import opened_queue

    async with opened_queue(settings, hurry=True) as queue:
        return await job(queue)


def show_listing(
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
            raise run_not_found(named) from nothing
        if as_json:
            print_json(empty)
        else:
            print_line("No runs here yet.")
            print_line(f"  try: {nothing.hint}")
        return 0


async def find_run(queue: Queue, named: str | None) -> Run:
    """The run people mean; the newest unless they say."""
    if named:
        run = await resolve_run(queue, named)
        if run is None:
            raise run_not_found(named)
        return run
    runs = await queue.runs(limit=1)
    if not runs:
        raise NoRuns
    return runs[0]


def run_not_found(named: str) -> UsageError:
    return UsageError(f"there is no run {named} here", hint="shoal runs lists them; they may be in another queue")


def parse_filter(text: str) -> TaskFilter:
    """Read `cause=http.5* host=shop.example url=*/page/*`."""
    names = {"cause": "cause", "host": "lane", "lane": "lane", "url": "url"}
    given: dict[str, str] = {}
    for term in text.split():
        name, mark, value = term.partition("=")
        if not mark or not value or name not in names:
            raise UsageError(
                f"--where: {term!r} is not understood",
                hint="cause=http.5* host=shop.example url=*/page/*, in any number",
            )
        given[names[name]] = value
    return TaskFilter(lane=given.get("lane", ""), cause=given.get("cause", ""), url=given.get("url", ""))
