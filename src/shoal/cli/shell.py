"""shoal shell: try selectors on a page."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.command import Command
from shoal.cli.options import click_options, field_option
from shoal.config.load import SETTINGS, Settings
from shoal.errors import ShoalError, UsageError

if TYPE_CHECKING:
    from shoal.cli.repl import Repl
    from shoal.extract.page import Page

HISTORY = ".shoal_history"
# settings that people may want to change for one page; all others count as well, but are not shown
SHOWN_SETTINGS = (
    "allow_private", "auth", "ca_file", "debug", "exit", "exits_file", "header", "ignore_robots", "max_body", "proxy",
    "timeout", "user_agent",
)  # fmt: skip


@click.command(
    cls=Command,
    examples="""
    shoal shell https://books.example/               interactive
    shoal shell books.example -f 'title=h1::text'    what a column would hold
    shoal shell saved.html -f 'price:number=.price'  on a saved page
    echo '.price::text' | shoal shell books.example  from a script
    """,
)
@click.argument("target", metavar="URL|FILE.html", required=False)
@field_option("Show what a column of `shoal run -f` would hold; may be given several times.")
@click.option("--url", default="", metavar="URL", help="The URL of a saved page, for its links.")
@click_options("run")
def shell(settings: Settings, target: str | None, given_fields: tuple[str, ...], url: str) -> int:
    """Try selectors on one page and see what each finds.

    The page is fetched once, by the same rules as a crawl: robots.txt and private addresses included.
    On a terminal there is a prompt; `help` lists its commands. Otherwise lines are read from stdin.

    Exit status: 0 answered, 2 something was not understood, 3 the page is an error page, 1 it cannot
    be fetched.
    """
    if not target:
        raise UsageError("no page given", hint="shoal shell https://… or shoal shell saved.html")
    from shoal.cli.fetch_page import PageFetcher, load_saved_page
    from shoal.cli.repl import Repl
    from shoal.cli.run import read_fields
    from shoal.extract.template import from_fields
    from shoal.logs import setup_logging

    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    fields = read_fields(given_fields)
    from_fields("shell", fields)  # what is wrong with them is said before anything is fetched
    with asyncio.Runner() as runner:
        fetcher = PageFetcher(settings)

        def fetch(url: str) -> Page:
            return runner.run(fetcher.fetch(url))

        try:
            path = Path(target)
            repl = Repl(load_saved_page(path, url) if path.is_file() else fetch(_url_of(target)), fetch)
            repl.show_summary()
            if fields:
                repl.show_fields(fields)
                return 0 if repl.page.status < 400 else 3
            ok = _run_repl(repl)
        finally:
            runner.run(fetcher.close())
    return 2 if not ok else 0 if repl.page.status < 400 else 3


def _url_of(target: str) -> str:
    from shoal.sources.target_kind import file_not_found
    from shoal.sources.url_text import is_schemeless_url

    if "://" in target or is_schemeless_url(target):
        return target
    if Path(target).is_dir():
        raise UsageError(f"{target} is a folder", hint="name a page in it: shoal shell saved.html")
    raise file_not_found(Path(target))


def _run_repl(repl: Repl) -> bool:
    """Answer line by line; whether everything was understood, which a person at a terminal knows already."""
    from shoal.cli.repl import read_lines

    if not sys.stdin.isatty():
        return _execute_lines(repl, (text.rstrip("\n") for text in sys.stdin))
    with _line_editing(repl.commands):
        _execute_lines(repl, read_lines(_read_line))
    return True


def _read_line() -> str:
    try:
        return input("shoal> ")
    except KeyboardInterrupt:
        click.echo()
        return ""


def _execute_lines(repl: Repl, lines: Iterable[str]) -> bool:
    from shoal.cli.main import print_error

    ok = True
    for text in lines:
        if text.strip().lower() in ("quit", "exit"):
            break
        try:
            repl.execute(text)
        except ShoalError as error:
            ok = False
            sys.stdout.flush()
            print_error(str(error), getattr(error, "hint", ""))
        except KeyboardInterrupt:
            click.echo("stopped")
    return ok


@contextlib.contextmanager
def _line_editing(commands: list[str]) -> Iterator[None]:
    """Line editing, completion and the lines of earlier times, where Python has them."""
    try:
        import readline
    except ImportError:
        yield
        return
    place = Path.home() / HISTORY

    def complete(begun: str, at: int) -> str | None:
        fitting = [name for name in commands if name.startswith(begun)]
        return fitting[at] if at < len(fitting) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    with contextlib.suppress(OSError):
        readline.read_history_file(place)
    try:
        yield
    finally:
        readline.set_history_length(1000)
        with contextlib.suppress(OSError):
            readline.write_history_file(place)


for _param in shell.params:
    if isinstance(_param, click.Option) and _param.name in SETTINGS:
        _param.hidden = _param.name not in SHOWN_SETTINGS
