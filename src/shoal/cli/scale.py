"""shoal scale auto, set, status and history."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from shoal.cli.command import Command, Group
from shoal.cli.console import ago, clean, count, local_time, paint, print_fields, print_json, print_line, print_table
from shoal.cli.find_run import show_listing
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.errors import UsageError
from shoal.queue.base import Queue

if TYPE_CHECKING:
    from shoal.commands.scale import SetResult

AUTO = "auto"


@click.group(
    cls=Group,
    examples="""
    shoal scale auto books.py --scaler local --max-workers 8
    shoal scale auto --scaler compose --scale-target worker --dry-run
    shoal scale status
    shoal scale set 4
    shoal scale history
    """,
)
def scale() -> None:
    """Start and stop workers as the work needs them, and see why."""


@scale.command(
    cls=Command,
    examples="""
    shoal scale auto books.py --scaler local          processes of this machine
    shoal scale auto books.py --scaler local -- --concurrency 8
    shoal scale auto --scaler swarm --scale-target shoal_worker
    shoal scale auto --scaler local --dry-run --once  what would it do now?
    """,
)
@click.argument("arguments", nargs=-1, metavar="[TARGET]...")
@click.option("--dry-run", is_flag=True, help="Decide and say why, but change nothing.")
@click.option("--once", is_flag=True, help="Evaluate once and exit; 1 if the driver has a problem.")
@click_options("scale")
def auto(settings: Settings, arguments: tuple[str, ...], dry_run: bool, once: bool) -> int:
    """Evaluate the load again and again, and have as many workers as it takes.

    With --scaler local, TARGET and all that follows -- go to `shoal worker`. Any number of scalers may run for one
    queue; one acts, the others stand by. Stop it with Ctrl-C or SIGTERM: workers stay, and
    the next scaler finds them.

    Exit status: 0 stopped, 2 wrong usage, 1 the queue cannot be used.
    """
    from shoal.commands.scale import scale_command
    from shoal.control.scaling.scale_documents import ScaleState
    from shoal.logs import setup_logging

    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    said: object = None

    def tell(words: str, about: object = None) -> None:
        """Not again for as long as it is about the same."""
        nonlocal said
        if (about or words) != said:
            print_line(f"{local_time(time.time_ns() // 1000)}  {words}", sys.stderr)
            sys.stderr.flush()
        said = about or words

    def show(state: ScaleState) -> None:
        decision, problem = state.decision, f"  problem: {clean(state.problem)}" if state.problem else ""
        if decision is None:
            tell(f"no decision{problem}")
        elif decision.wanted == decision.current:
            about = decision.current, state.problem
            tell(f"{count(decision.current, 'worker')}: {clean(decision.reason)}{problem}", about)
        else:
            would = "would go " if dry_run else ""
            tell(f"{would}{decision.current} → {decision.wanted} workers: {clean(decision.reason)}{problem}")

    code = scale_command(
        settings,
        arguments=arguments,
        environment=_environment(),
        dry_run=dry_run,
        once=once,
        on_state=show,
        on_wait=lambda words: tell(f"standing by: {clean(words)}"),
    )
    if settings.scaler == "local" and not dry_run and not once:
        print_hint("Stopped; workers stay. Stop them with: shoal scale set 0 --scaler local", sys.stderr)
    return code


def _environment() -> dict[str, str]:
    """What workers must be told besides: a settings file that was named by a flag."""
    config = click.get_current_context().params.get("config")
    return {"SHOAL_CONFIG": os.path.abspath(config)} if config else {}  # noqa: PTH100 - as the shell means it


@scale.command(
    name="set",
    cls=Command,
    examples="""
    shoal scale set 4                    the scaler that acts keeps 4, until
    shoal scale set auto                 … it may decide again
    shoal scale set 2 --scaler local -- books.py    without a scaler
    """,
)
@click.argument("number", metavar="N|auto")
@click.argument("arguments", nargs=-1, metavar="[TARGET]...")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@as_json
@click_options("scale")
def set_(settings: Settings, number: str, arguments: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Have N workers, or as many as it takes again (auto).

    If a scaler acts, it is told and keeps to it. If none does, the driver here does it once.
    """
    from shoal import app
    from shoal.commands.scale import set_workers

    if number != AUTO and not (number.isascii() and number.isdecimal() and len(number) < 6):
        raise UsageError(f"{number!r} is not a number of workers", hint="shoal scale set 4, or shoal scale set auto")
    wanted = None if number == AUTO else int(number)

    async def work() -> SetResult:
        async with app.opened_queue(settings, hurry=True) as queue:
            return await set_workers(
                queue, settings, wanted, arguments=arguments, environment=_environment(), dry_run=dry_run
            )

    result = asyncio.run(work())
    if as_json:
        print_json({"workers": wanted, "from": result.current, "told_scaler": result.told_scaler, "dry_run": dry_run})
        return 0
    print_line(("Not done: " if dry_run else "") + _set_words(result))
    if result.told_scaler and result.workers is not None:
        print_hint("  Let it decide again with: shoal scale set auto")
    return 0


def _set_words(result: SetResult) -> str:
    if result.workers is None:
        words = f"again within {result.interval:g} s" if result.told_scaler else "when it is started"
        return f"The scaler decides {words}."
    if result.told_scaler:
        return f"The scaler keeps {count(result.workers, 'worker')} within {result.interval:g} s."
    return f"{result.current} → {result.workers} workers."


@scale.command(cls=Command, examples="shoal scale status\nshoal scale status --json | jq .decision.reason")
@as_json
@click_options("look")
def status(settings: Settings, as_json: bool) -> int:
    """Show who scales, what was decided last, and why."""
    from shoal.view.scale import scale_document, scale_status

    async def job(queue: Queue) -> None:
        found = await scale_status(queue)
        if as_json:
            print_json(scale_document(found))
            return
        state = found.state
        if state is None:
            print_line("No scaler has worked for this queue yet.")
            print_hint("  try: shoal scale auto FILE.py --scaler local")
            return
        limits, decision = state.limits, state.decision
        fixed = f"{found.request.fixed}, by {clean(found.request.by)}" if found.request.fixed is not None else "no"
        acts = "yes" if found.is_acting else paint(f"no; its last evaluation was {ago(state.at, found.at)}", "yellow")
        pairs = [
            ("scaler", f"{clean(state.driver)} {clean(state.target)}".strip() + f" on {clean(state.host)}"),
            ("acting", acts),
            ("policy", f"{clean(limits.policy)}, {limits.minimum} to {limits.maximum}, every {limits.interval:g} s"),
            ("set by a person", fixed),
            ("workers", state.replicas.count if state.replicas else "unknown"),
            ("wanted", decision.wanted if decision else "unknown"),
            ("because", clean(decision.reason) if decision else ""),
        ]
        if state.problem:
            pairs.append(("problem", paint(clean(state.problem), "red")))
            pairs.append(("try", clean(state.hint)))
        print_fields([(name, value) for name, value in pairs if value != ""])

    return show_listing(settings, job, named=None, as_json=as_json, empty={"acting": False})


@scale.command(cls=Command, examples="shoal scale history\nshoal scale history --json")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Maximum rows.")
@as_json
@click_options("look")
def history(settings: Settings, limit: int, as_json: bool) -> int:
    """List the last changes and problems, with the reason for each."""
    from shoal.control.scaling.scale_documents import read_history
    from shoal.view.scale import event_document

    async def job(queue: Queue) -> None:
        events = (await read_history(queue))[:limit]
        if as_json:
            print_json([event_document(event) for event in events])
        elif not events:
            print_line("Nothing was changed yet.")
        else:
            rows = [
                (
                    local_time(event.at),
                    f"{event.current} → {event.wanted}",
                    count(event.open),
                    count(event.claimable),
                    clean(event.problem or event.reason),
                )
                for event in events
            ]
            print_table(("at", "workers", "open", "claimable", "why"), rows, right="open claimable")

    return show_listing(settings, job, named=None, as_json=as_json, empty=[])
