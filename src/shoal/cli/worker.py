"""shoal worker."""

from __future__ import annotations

import sys

import click

from shoal.cli.command import Command
from shoal.cli.options import click_options
from shoal.config.load import Settings
from shoal.errors import UsageError


@click.command(
    cls=Command,
    examples="""
    shoal worker books.py                     every run of it, now and later
    shoal worker books.py --run-id 20260215   only that run
    shoal worker scrapers/ --scraper books    one scraper of a folder
    shoal worker --exit-when-done             runs with templates, until done
    """,
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--run-id", "--run", "run", metavar="RUN", help="Work only on this run; a prefix of its name is enough.")
@click.option(
    "--scraper", "only", multiple=True, metavar="NAME", help="Serve only this one; may be given several times."
)
@click.option("--exit-when-done", is_flag=True, help="Exit when all runs it serves have finished.")
@click.option("--relay", is_flag=True, help="Be a relay between RabbitMQ and its ledger, too (--queue amqp://…).")
@click_options("run")
def worker(
    settings: Settings,
    targets: tuple[str, ...],
    run: str | None,
    only: tuple[str, ...],
    exit_when_done: bool,
    relay: bool,
) -> int:
    """Start a worker: it serves every run it has the code for, until stopped.

    TARGET is what has the code: a file, a folder, a module or the name of a scraper. Every run of those
    scrapers is worked on, including runs that start later. Runs with a template need no code: every worker
    works on those, unless --scraper or a template is named. Any number of workers may share one queue, on any number
    of machines.

    Stop it with Ctrl-C or SIGTERM: tasks in progress are finished or returned, nothing is lost.

    Exit status: 0 stopped, drained or done; with --exit-when-done 3 if pages failed; 2 wrong usage;
    1 the queue cannot be used.
    """
    if run == "":
        raise UsageError("--run-id has no name", hint="shoal runs lists the runs")
    from shoal.cli.worker_display import worker_ui
    from shoal.commands.worker import worker_command
    from shoal.logs import setup_logging

    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    ui = worker_ui(sys.stderr)
    try:
        return worker_command(
            settings, targets=targets, run=run or "", scrapers=only, exit_when_done=exit_when_done, relay=relay, ui=ui
        )
    except KeyboardInterrupt:  # before it began to listen for signals
        ui.message("Stopped before it started.")
        return 0
    finally:
        ui.close()
