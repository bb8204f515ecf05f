"""shoal run."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from shoal.cli.command import COMMAND_ARGS, Command
from shoal.cli.confirm import end_confirmation, yes_option
from shoal.cli.options import click_options, columns_option, field_option, sitemap_as_target, sitemap_option
from shoal.cli.row_source import RowSource, row_source_options
from shoal.config.load import Settings
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.extract.scraper import Mode


@click.command(
    cls=Command,
    examples="""
    shoal run books.py -o books.jsonl                  crawl, or resume
    shoal run urls.txt -o pages.csv                    a list in, a table out
    shoal run urls.txt -f title=h1::text -o pages.csv  with your own columns
    shoal run urls.csv --column link -o pages.parquet  the URLs in one column
    shoal run https://example.com --sitemap -o site.csv      what sitemaps list
    shoal run shop.yaml -o shop.xlsx                   with a template
    cat urls | shoal run - -o pages.csv                from a pipe
    shoal run ./saved/ -f title=h1 -o pages.csv        a folder of saved pages
    shoal run --from-run k3f --column link -o new.csv  another run's records
    shoal run --from-sql shop.db --query 'select url from items' -o items.csv
    shoal run books.py -o books.jsonl --fresh          start over
    shoal run books.py -o books.jsonl --dashboard      and watch it in a browser
    """,
)
@click.argument("target", metavar="TARGET", type=click.Path(allow_dash=True), required=False)
@click.argument("inputs", nargs=-1, metavar="[MORE]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Write records to a file during the run: .csv, .jsonl, .parquet, .xlsx …",
)
@field_option("A column of the output, for lists and URLs: price:number=.price; may be given several times.")
@click.option("--column", metavar="NAME", help="Which column of a list holds the URLs: a name or number.")
@columns_option
@row_source_options
@sitemap_option
@click.option("--from-raw", metavar="RUN", help="Use the responses that RUN saved instead of fetching.")
@click.option("--reread", is_flag=True, help="Read the pages again that an earlier run over this list saved.")
@click.option("--urls-file", metavar="FILE", help="A list of URLs to start from; - is stdin.")
@click.option(
    "--mode",
    type=click.Choice(("single", "distributed")),
    help="Run it here, or leave it to workers; default: as the scraper says.",
)
@click.option("--resume", is_flag=True, help="Resume an unfinished run; this is the default.")
@click.option("--fresh", is_flag=True, help="Start over instead of resuming.")
@yes_option
@click.option("--json", "as_json", is_flag=True, help="At the end, the summary as one JSON document on stdout.")
@click_options("run")
def run(
    settings: Settings,
    target: str | None,
    inputs: tuple[str, ...],
    output: str | None,
    given_fields: tuple[str, ...],
    column: str | None,
    with_columns: bool,
    rows: RowSource,
    sitemaps: tuple[str, ...],
    from_raw: str | None,
    reread: bool,
    urls_file: str | None,
    mode: Mode | None,
    resume: bool,
    fresh: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Crawl with a scraper, or fetch a list of URLs into a table.

    TARGET is a scraper (FILE.py[:NAME] or a module), a template (.yaml), a list of URLs (.txt, .csv,
    .tsv or .jsonl, also packed as .gz, or .xlsx; - is stdin), a folder of saved pages (.html), or a URL itself.
    A template may be followed by a list, a folder or URLs to start from, a URL by more of them.

    A scraper with mode="distributed" is put into the queue for workers, as with shoal submit; with -o this
    machine works on it as well, and writes the file.

    Stop it with Ctrl-C, or let it crash: nothing is lost, and run it again to resume where it
    stopped.

    Exit status: 0 complete, 3 finished with pages that failed or without the records that were wanted,
    4 interrupted, can be resumed, 2 wrong usage, 1 internal.
    """
    if urls_file and inputs:
        raise UsageError("give the URLs once", hint=f"--urls-file {urls_file}, or {' '.join(inputs)}")
    inputs = (urls_file,) if urls_file else inputs
    if resume and fresh:
        raise UsageError("--resume and --fresh exclude each other", hint="leave one out; --resume is the default")
    target, inputs = rows.given(settings, target, inputs, column, fresh=fresh)
    target, sitemaps = sitemap_as_target(target, sitemaps)
    if not target:
        raise UsageError(
            "nothing to run: give a scraper (FILE.py), a list (urls.txt) or a URL",
            hint="shoal new books.py writes a scraper to start from",
        )
    if output == "":
        raise UsageError("-o has no file name", hint="-o books.jsonl")
    if output == "-":
        raise UsageError("records cannot go to stdout during a run", hint="run it without -o, then: shoal export -o -")
    from shoal.sources.target_kind import validate_target

    fields = read_fields(given_fields)
    validate_target(target, inputs, fields, column or "")
    from shoal.cli.progress import run_ui
    from shoal.cli.run_document import JsonSummary
    from shoal.cli.submit_result import print_submitted
    from shoal.commands.run import run_command
    from shoal.logs import setup_logging

    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    given = click.get_current_context().meta[COMMAND_ARGS]
    again = shlex.join(["shoal", "run", *(word for word in given if word not in ("--fresh", "--reread"))])
    shown = run_ui(live=settings.workers != 0)  # what a debugger prints must not be drawn over
    ui = JsonSummary(shown) if as_json else shown
    try:
        with with_dashboard(settings, ui.message):
            return run_command(
                settings,
                target=target,
                inputs=inputs,
                fields=fields,
                column=column or "",
                with_columns=with_columns,
                sitemaps=sitemaps,
                from_raw=from_raw or "",
                reread=reread,
                output=output,
                fresh=fresh,
                ui=ui,
                again=again,
                mode=mode or "",
                on_queued=lambda made: print_submitted(made, settings, as_json=as_json),
                confirm=end_confirmation(settings, yes),
            )
    except KeyboardInterrupt:  # before it began to listen for signals
        ui.message("Stopped before it started; run it again to start.")
        return 4
    finally:
        ui.close()


@contextlib.contextmanager
def with_dashboard(settings: Settings, say: Callable[[str], None]) -> Iterator[None]:
    """A dashboard for as long as the run takes, if one is wanted."""
    if not settings.dashboard:
        yield
        return
    from shoal.web.embedded import dashboard

    with dashboard(settings) as url:
        say(f"Dashboard: {url}")
        yield


def read_fields(given: Sequence[str]) -> dict[str, str]:
    """What was given with -f, NAME[:TYPE] -> where it is found; what that may be, templates know."""
    fields: dict[str, str] = {}
    for text in given:
        name, equals, selector = (part.strip() for part in text.partition("="))
        if not equals or not name or not selector:
            raise UsageError(f"-f {text!r} is not understood: use NAME=SELECTOR", hint="-f title=h1::text")
        if name.partition(":")[0] in (known.partition(":")[0] for known in fields):
            raise UsageError(f"-f {name} is given twice", hint="give each column its own name")
        fields[name] = selector
    return fields
