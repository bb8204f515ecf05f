"""shoal run."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence

import click

from shoal.cli.command import GIVEN, Command
from shoal.cli.options import click_options
from shoal.config import Settings
from shoal.errors import Usage


@click.command(
    cls=Command,
    examples="""
    shoal run books.py -o books.jsonl                  crawl, or go on crawling
    shoal run urls.txt -o pages.csv                    a list in, a table out
    shoal run urls.txt -f title=h1::text -o pages.csv  with columns of your own
    shoal run urls.csv --column link -o pages.parquet  the addresses in one column
    shoal run shop.yaml -o shop.xlsx                   with a template
    cat urls | shoal run - -o pages.csv                from a pipe
    shoal run books.py -o books.jsonl --fresh          start over
    shoal run books.py -o books.jsonl --dashboard      and look at it in a browser
    """,
)
@click.argument("target", metavar="TARGET", type=click.Path(allow_dash=True), required=False)
@click.argument("inputs", nargs=-1, metavar="[MORE]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Write records to a file as they come: .csv, .jsonl, .parquet, .xlsx …",
)
@click.option(
    "-f",
    "--field",
    "given_fields",
    multiple=True,
    metavar="NAME=SELECTOR",
    help="A column of the output, for lists and addresses: price:number=.price; may be given several times.",
)
@click.option(
    "--column", metavar="NAME", help="Which column of a list holds the addresses: a name or number."
)
@click.option("--from-raw", metavar="RUN", help="Take the pages that RUN kept instead of fetching them.")
@click.option("--fresh", is_flag=True, help="Start over instead of going on.")
@click_options("run")
def run(
    settings: Settings,
    target: str | None,
    inputs: tuple[str, ...],
    output: str | None,
    given_fields: tuple[str, ...],
    column: str | None,
    from_raw: str | None,
    fresh: bool,
) -> int:
    """Crawl with a scraper, or fetch a list of addresses into a table.

    TARGET is a scraper (FILE.py[:NAME] or a module), a template (.yaml), a list of addresses (.txt, .csv,
    .tsv or .jsonl, also packed as .gz, or .xlsx; - is what comes through a pipe), or an address itself.
    A template may be followed by a list or by addresses to start from, an address by more of them.

    Stop it with Ctrl-C, or let it crash: nothing is lost, and the same command goes on where it
    stopped.

    Exit status: 0 complete, 3 finished with pages that failed, 4 interrupted and ready to go on,
    2 wrong usage, 1 internal.
    """
    if not target:
        raise Usage(
            "say what to run: a scraper (FILE.py), a list (urls.txt) or an address",
            hint="shoal new books.py writes a scraper to start from",
        )
    if output == "":
        raise Usage("-o is given without a name", hint="-o books.jsonl")
    if output == "-":
        raise Usage("records go to a file while it runs", hint="run it without -o, then: shoal export -o -")
    from shoal.sources.kind import check_together

    fields = read_fields(given_fields)
    check_together(target, inputs, fields, column or "")
    from shoal.cli.progress import run_ui
    from shoal.logs import setup
    from shoal.onemachine import run_command

    setup(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    given = click.get_current_context().meta[GIVEN]
    again = shlex.join(["shoal", "run", *(word for word in given if word != "--fresh")])
    ui = run_ui()
    try:
        with beside(settings, ui.message):
            return run_command(
                settings,
                target=target,
                inputs=inputs,
                fields=fields,
                column=column or "",
                from_raw=from_raw or "",
                output=output,
                fresh=fresh,
                ui=ui,
                again=again,
            )
    except KeyboardInterrupt:  # before it began to listen for signals
        ui.message("Stopped before it began; the same command starts it.")
        return 4
    finally:
        ui.close()


@contextlib.contextmanager
def beside(settings: Settings, say: Callable[[str], None]) -> Iterator[None]:
    """A dashboard for as long as the run takes, if one is wanted."""
    if not settings.dashboard:
        yield
        return
    from shoal.web.aside import dashboard

    with dashboard(settings) as url:
        say(f"Dashboard: {url}")
        yield


def read_fields(given: Sequence[str]) -> dict[str, str]:
    """What was given with -f, NAME[:TYPE] -> where it is found; what that may be, templates know."""
    fields: dict[str, str] = {}
    for text in given:
        name, equals, selector = (part.strip() for part in text.partition("="))
        if not equals or not name or not selector:
            raise Usage(
                f"-f {text!r} is not understood: it takes a name, = and a selector", hint="-f title=h1::text"
            )
        if name.partition(":")[0] in (known.partition(":")[0] for known in fields):
            raise Usage(f"-f {name} is given twice", hint="give each column a name of its own")
        fields[name] = selector
    return fields
