"""shoal submit."""

from __future__ import annotations

import shlex
import sys
import time

import click

from shoal.cli.command import COMMAND_ARGS, Command
from shoal.cli.confirm import end_confirmation, yes_option
from shoal.cli.console import StatusLine, count, print_line
from shoal.cli.options import as_json, click_options, columns_option, field_option, sitemap_as_target, sitemap_option
from shoal.cli.row_source import RowSource, row_source_options
from shoal.cli.run import read_fields
from shoal.cli.submit_result import print_submitted
from shoal.commands.submit import submit_command
from shoal.config.load import Settings
from shoal.errors import UsageError

LINE_INTERVAL = 5.0
INTERRUPTED = 4


@click.command(
    cls=Command,
    examples="""
    shoal submit books.py                        its start URLs
    shoal submit books.py --urls-file urls.txt   URLs for its handlers
    shoal submit urls.txt -f title=h1::text      a list, without code
    shoal submit shop.yaml --priority 10 --json  a template, result as JSON
    """,
)
@click.argument("target", metavar="TARGET", type=click.Path(allow_dash=True), required=False)
@click.argument("inputs", nargs=-1, metavar="[MORE]...")
@click.option("--urls-file", metavar="FILE", help="A list of URLs to start from; - is stdin.")
@field_option("A field of each record, for lists and URLs; may be given several times.")
@click.option("--column", metavar="NAME", help="Which column of a list holds the URLs.")
@columns_option
@row_source_options
@sitemap_option
@click.option("--fresh", is_flag=True, help="Start over instead of resuming.")
@click.option(
    "--weight",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Share of the workers relative to other runs.",
)
@click.option(
    "--priority", type=int, default=0, show_default=True, help="Runs of higher priority come first on hosts they share."
)
@yes_option
@as_json
@click_options("run")
def submit(
    settings: Settings,
    target: str | None,
    inputs: tuple[str, ...],
    urls_file: str | None,
    given_fields: tuple[str, ...],
    column: str | None,
    with_columns: bool,
    rows: RowSource,
    sitemaps: tuple[str, ...],
    fresh: bool,
    weight: int,
    priority: int,
    yes: bool,
    as_json: bool,
) -> int:
    """Put a run into the queue for workers anywhere, and show how to start one.

    TARGET is a scraper (FILE.py[:NAME], a module or a name), a template (.yaml), a list or a URL, as
    with shoal run; a scraper or a template may be followed by a list or by URLs to start from.

    Stop it with Ctrl-C, or let it crash: run it again to resume where it stopped. If --fresh would end a run on a
    queue that others use too, you are asked first; without a terminal it needs --yes.

    Exit status: 0 everything is in the queue, 4 interrupted, 2 wrong usage, 1 internal.
    """
    if urls_file and inputs:
        raise UsageError("give the URLs once", hint=f"--urls-file {urls_file}, or {' '.join(inputs)}")
    inputs = (urls_file,) if urls_file else inputs
    target, inputs = rows.given(settings, target, inputs, column, fresh=fresh)
    target, sitemaps = sitemap_as_target(target, sitemaps)
    if not target:
        raise UsageError(
            "nothing to submit: give a scraper (FILE.py), a list (urls.txt) or a URL",
            hint="shoal submit books.py --urls-file urls.txt",
        )
    from shoal.logs import setup_logging

    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    given = click.get_current_context().meta[COMMAND_ARGS]
    progress = SubmitProgress()
    try:
        made = submit_command(
            settings,
            target=target,
            inputs=inputs,
            fields=read_fields(given_fields),
            column=column or "",
            with_columns=with_columns,
            sitemaps=sitemaps,
            fresh=fresh,
            weight=weight,
            priority=priority,
            command=shlex.join(["shoal", "submit", *(word for word in given if word != "--fresh")]),
            on_progress=progress.show,
            confirm=end_confirmation(settings, yes),
        )
    except KeyboardInterrupt:
        progress.clear()
        print_line("Stopped. Nothing is lost; run it again to resume.", sys.stderr)
        return INTERRUPTED
    finally:
        progress.clear()
    print_submitted(made, settings, as_json=as_json)
    return INTERRUPTED if made.status == "interrupted" else 0


class SubmitProgress(StatusLine):
    """How far a long list was read: one line on a terminal, one now and then elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self._next = time.monotonic() + (1.0 if self.on_terminal else LINE_INTERVAL)

    def show(self, read: int, added: int, waits_for: str) -> None:
        if time.monotonic() < self._next:
            return
        text = f"{count(read, 'line')} read, {count(added)} added"
        text = f"{text}; waiting: {waits_for}" if waits_for else text
        if self.on_terminal:
            self._next = time.monotonic() + 0.1
            self.draw(text)
        else:
            self._next = time.monotonic() + LINE_INTERVAL
            print_line(text, sys.stderr)
