"""shoal exits: the exits of this machine and of the fleet, and a test of their proxies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
import msgspec

from shoal.cli.command import Command, Group
from shoal.cli.console import clean, count, print_json, print_line, print_table, size
from shoal.cli.find_run import NoRuns, with_queue
from shoal.cli.options import as_json, click_options
from shoal.config.load import SETTINGS, Settings, did_you_mean
from shoal.core.lane import WorkerStatus
from shoal.core.url import canonical
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.sources.url_text import with_scheme
from shoal.view.exits import ExitView, exit_views

if TYPE_CHECKING:
    from shoal.commands.exits import ProxyTrial

SHOWN_SETTINGS = {"allow_private", "ca_file", "debug", "exits_file", "timeout", "user_agent"}  # that a test depends on
_TOR_WORKS = ("Tor does not work.", "Tor works.")
NONE = 'No exits here: name proxies in [exits] of shoal.toml, such as office = "http://proxy.example:3128".'


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples="""
    shoal exits                                       with what was sent by each
    shoal exits test residential --url https://shop.example/
    shoal run books.py --exit residential
    """,
)
@as_json
@click_options("look")
@click.pass_context
def exits(ctx: click.Context, settings: Settings, as_json: bool) -> None:
    """List the exits that requests can leave by: of this machine, and of workers that are alive."""
    if ctx.invoked_subcommand is not None:
        return
    views = exit_views(settings, _workers(settings))
    if as_json:
        print_json([msgspec.structs.asdict(one) for one in views])
    elif not views:
        print_line(NONE)
    else:
        _show(views)


def _workers(settings: Settings) -> list[WorkerStatus]:
    async def job(queue: Queue) -> list[WorkerStatus]:
        return await queue.workers()

    try:
        return with_queue(settings, job)
    except NoRuns:
        return []


def _tor_words(one: ExitView) -> str:
    words = [f"{count(one.tors)} ready, {count(one.circuits, 'circuit')}"] if one.tors else []
    if one.bootstrap:
        words.append(f"bootstrapping: {clean(one.bootstrap)}")
    return "; ".join(words) or "not started"


def _show(views: list[ExitView]) -> None:
    rows = [
        (
            clean(one.name),
            "tor" if one.tor else count(one.proxies) if one.proxies else "direct",
            count(one.cooling),
            count(one.workers),
            count(one.requests),
            count(one.failures),
            size(one.bytes),
            clean(one.last_error) if one.here or one.last_error else "not of this machine",
        )
        for one in views
    ]
    head = ("exit", "proxies", "cooling", "workers", "requests", "failed", "traffic", "last error")
    print_table(head, rows, right="proxies cooling workers requests failed traffic")
    for one in views:
        if one.tor:
            print_line(f"{clean(one.name)}, tor of each worker process: {_tor_words(one)}")


def _circuit_words(trial: ProxyTrial) -> str:
    by = f"; circuit {' - '.join(map(clean, trial.circuit))}" if trial.circuit else ""
    return f"; bootstrapped in {trial.bootstrap_seconds:.1f} s{by}" if trial.bootstrap_seconds else ""


@exits.command(
    cls=Command,
    examples="""
    shoal exits test residential --url https://shop.example/
    """,
)
@click.argument("exit_name", metavar="NAME")
@click.option("--url", required=True, metavar="URL", help="What to ask for through each proxy.")
@as_json
@click_options("run", without=set(SETTINGS) - SHOWN_SETTINGS)
def test(settings: Settings, exit_name: str, url: str, as_json: bool) -> int:
    """Send one request through each proxy of exit NAME, or by a tor that is started for it.

    The exit status is 1 if one of them does not work.
    """
    from shoal.commands.exits import try_proxies, try_tor

    exit = settings.exits.get(exit_name)
    if exit is None:
        hint = did_you_mean(exit_name, settings.exits) if settings.exits else NONE
        raise UsageError(f"there is no exit called {exit_name} on this machine", hint=hint)
    target = canonical(with_scheme(url))
    found: list[ProxyTrial] = []

    async def job() -> None:
        trials = try_tor(settings, exit, target) if exit.tor else try_proxies(settings, exit, target)
        async for trial in trials:
            found.append(trial)
            if not as_json:
                words = f"works, {trial.seconds:.2f} s, status {trial.status}" if trial.works else trial.error
                print_line(f"{clean(trial.proxy)}  {clean(words)}{_circuit_words(trial)}")

    asyncio.run(job())
    if as_json:
        print_json([msgspec.structs.asdict(one) for one in found])
    else:
        working = sum(one.works for one in found)
        print_line(f"{count(working)} of {count(len(found))} proxies work." if not exit.tor else _TOR_WORKS[working])
    return 0 if all(one.works for one in found) else 1
