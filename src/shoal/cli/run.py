"""shoal run."""

from __future__ import annotations

import shlex

import click

from shoal.cli.command import GIVEN, Command
from shoal.cli.options import click_options
from shoal.config import Settings
from shoal.errors import Usage


@click.command(
    cls=Command,
    examples="""
    shoal run books.py -o books.jsonl               crawl, or go on crawling
    shoal run books.py -o books.csv --max-pages 50  a first look, as a table
    shoal run books.py:books --rate 2               2 pages/s and host
    shoal run books.py -o books.jsonl --fresh       start over
    """,
)
@click.argument("target", metavar="FILE.py[:NAME]", type=click.Path(), required=False)
@click.argument("inputs", nargs=-1, metavar="")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Write records to a .jsonl or .csv file as they come.",
)
@click.option("--fresh", is_flag=True, help="Start over instead of going on.")
@click_options("run")
def run(
    settings: Settings, target: str | None, inputs: tuple[str, ...], output: str | None, fresh: bool
) -> int:
    """Crawl with the scraper in FILE.py.

    Stop it with Ctrl-C, or let it crash: nothing is lost, and the same command goes on where it
    stopped.

    Exit status: 0 complete, 3 finished with pages that failed, 4 interrupted and ready to go on,
    2 wrong usage, 1 internal.
    """
    if not target:
        raise Usage(
            "say which scraper to run: shoal run FILE.py", hint="shoal new books.py writes one to start from"
        )
    if output == "":
        raise Usage("-o is given without a name", hint="-o books.jsonl")
    if output == "-":
        raise Usage("records go to a file while it runs", hint="run it without -o, then: shoal export -o -")
    from shoal.cli.progress import run_ui
    from shoal.logs import setup
    from shoal.onemachine import run_command

    setup(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    given = click.get_current_context().meta[GIVEN]
    again = shlex.join(["shoal", "run", *(word for word in given if word != "--fresh")])
    ui = run_ui()
    try:
        return run_command(
            settings, target=target, inputs=inputs, output=output, fresh=fresh, ui=ui, again=again
        )
    except KeyboardInterrupt:  # before it began to listen for signals
        ui.message("Stopped before it began; the same command starts it.")
        return 4
    finally:
        ui.close()
