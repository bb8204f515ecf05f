"""shoal worker."""

from __future__ import annotations

import sys

import click

from shoal.cli.command import Command
from shoal.cli.options import click_options
from shoal.config import Settings
from shoal.errors import Usage


@click.command(
    cls=Command,
    examples="""
    shoal worker books.py                     every run of it, now and later
    shoal worker books.py --run-id 20260215   only that run
    shoal worker scrapers/ --scraper books    one scraper of a folder
    shoal worker --exit-when-done             runs with templates, till the end
    """,
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option(
    "--run-id",
    "--run",
    "run",
    metavar="RUN",
    help="Work only on this run; a beginning of its name is enough.",
)
@click.option(
    "--scraper",
    "only",
    multiple=True,
    metavar="NAME",
    help="Serve only this one; may be given several times.",
)
@click.option("--exit-when-done", is_flag=True, help="End when nothing that it serves is unfinished.")
@click_options("run")
def worker(
    settings: Settings,
    targets: tuple[str, ...],
    run: str | None,
    only: tuple[str, ...],
    exit_when_done: bool,
) -> int:
    """Work on what is in the queue, here, for as long as wanted.

    TARGET is what has the code: a file, a folder, a module or the name of a scraper. Every run of those
    scrapers is worked on, also runs that begin later. Runs with a template need no code: without TARGET
    those are worked on. As many workers as wanted may share one queue, on any number of machines.

    Stop it with Ctrl-C or SIGTERM: what is under way is finished or handed back, nothing is lost.

    Exit status: 0 stopped, drained or done; with --exit-when-done 3 if pages failed; 2 wrong usage;
    1 the queue cannot be used.
    """
    if run == "":
        raise Usage("--run-id is given without a name", hint="shoal runs lists the runs")
    from shoal.cli.shift import shift_ui
    from shoal.fleetworker import worker_command
    from shoal.logs import setup

    setup(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    ui = shift_ui(sys.stderr)
    try:
        return worker_command(
            settings, targets=targets, run=run or "", scrapers=only, exit_when_done=exit_when_done, ui=ui
        )
    except KeyboardInterrupt:  # before it began to listen for signals
        ui.message("Stopped before it began.")
        return 0
    finally:
        ui.close()
