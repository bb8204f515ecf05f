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
from shoal.cli.options import click_options
from shoal.config import SETTINGS, Settings
from shoal.errors import ShoalError, Usage

if TYPE_CHECKING:
    from shoal.cli.prompt import Prompt
    from shoal.extract.page import Page

HISTORY = ".shoal_history"
# settings that people may want to change for one page; all others count as well, but are not shown
OFFERED = (
    "allow_private", "auth", "ca_file", "debug", "header", "ignore_robots", "max_body", "proxy", "timeout",
    "user_agent",
)  # fmt: skip


@click.command(
    cls=Command,
    examples="""
    shoal shell https://books.example/               ask and see, line by line
    shoal shell books.example -f 'title=h1::text'    what a column would hold
    shoal shell saved.html -f 'price:number=.price'  on a saved page
    echo '.price::text' | shoal shell books.example  from a script
    """,
)
@click.argument("target", metavar="URL|FILE.html", required=False)
@click.option(
    "-f",
    "--field",
    "given_fields",
    multiple=True,
    metavar="NAME=SELECTOR",
    help="Show what a column of `shoal run -f` would hold; may be given several times.",
)
@click.option("--url", default="", metavar="URL", help="The address of a saved page, for its links.")
@click_options("run")
def shell(settings: Settings, target: str | None, given_fields: tuple[str, ...], url: str) -> int:
    """Try selectors on one page and see what each finds.

    The page is fetched once, by the rules of every crawl: robots.txt and private addresses included.
    On a terminal there is a prompt; help tells what it understands. Elsewhere lines are read from stdin.

    Exit status: 0 answered, 2 something was not understood, 3 the page is an error page, 1 it cannot
    be fetched.
    """
    if not target:
        raise Usage("say which page to look at", hint="shoal shell https://… or shoal shell saved.html")
    from shoal.cli.desk import Desk, saved_page
    from shoal.cli.prompt import Prompt
    from shoal.cli.run import read_fields
    from shoal.extract.template import from_fields
    from shoal.logs import setup

    setup(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    fields = read_fields(given_fields)
    from_fields("shell", fields)  # what is wrong with them is said before anything is fetched
    with asyncio.Runner() as runner:
        desk = Desk(settings)

        def fetch(address: str) -> Page:
            return runner.run(desk.open(address))

        try:
            path = Path(target)
            prompt = Prompt(saved_page(path, url) if path.is_file() else fetch(_address(target)), fetch)
            prompt.about()
            if fields:
                prompt.fields(fields)
                return 0 if prompt.page.status < 400 else 3
            well = _talk(prompt)
        finally:
            runner.run(desk.close())
    return 2 if not well else 0 if prompt.page.status < 400 else 3


def _address(target: str) -> str:
    from shoal.sources.address import is_bare
    from shoal.sources.kind import missing

    if "://" in target or is_bare(target):
        return target
    if Path(target).is_dir():
        raise Usage(f"{target} is a folder", hint="name a page in it: shoal shell saved.html")
    raise missing(Path(target))


def _talk(prompt: Prompt) -> bool:
    """Answer line by line; whether everything was understood, which a person at a terminal knows already."""
    from shoal.cli.prompt import lines_of

    if not sys.stdin.isatty():
        return _answer(prompt, (text.rstrip("\n") for text in sys.stdin))
    with _remembered(prompt.commands):
        _answer(prompt, lines_of(_asked))
    return True


def _asked() -> str:
    try:
        return input("shoal> ")
    except KeyboardInterrupt:
        click.echo()
        return ""


def _answer(prompt: Prompt, lines: Iterable[str]) -> bool:
    from shoal.cli.main import tell

    well = True
    for text in lines:
        if text.strip().lower() in ("quit", "exit"):
            break
        try:
            prompt.obey(text)
        except ShoalError as error:
            well = False
            sys.stdout.flush()
            tell(str(error), getattr(error, "hint", ""))
        except KeyboardInterrupt:
            click.echo("stopped")
    return well


@contextlib.contextmanager
def _remembered(commands: list[str]) -> Iterator[None]:
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
        _param.hidden = _param.name not in OFFERED
