"""Finding the queue and the run a command is about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from shoal.cli.show import document, line
from shoal.config import Settings, load
from shoal.control.runs import find
from shoal.core.run import Run
from shoal.errors import ShoalError, Usage
from shoal.queue.base import Queue, Where
from shoal.view.standing import again_hint as again_hint
from shoal.view.standing import standing as standing

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
