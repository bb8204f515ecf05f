"""shoal raw list, show and remove."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from shoal.cli.command import Command, Group
from shoal.cli.options import as_json, click_options
from shoal.cli.show import ago, clean, count, document, line, size, stamp, table
from shoal.config import Settings
from shoal.core.url import canonical, request_digest
from shoal.errors import Usage

if TYPE_CHECKING:
    from shoal.store.raw import RawShelf

KEEP = "shoal run … --keep-raw keeps pages"


@click.group(
    cls=Group,
    examples="""
    shoal raw list
    shoal raw show https://shop.example/book/1 > page.html
    shoal raw remove k3f
    """,
)
def raw() -> None:
    """Pages kept as they came."""


@raw.command(
    "list",
    cls=Command,
    examples="""
    shoal raw list
    """,
)
@as_json
@click_options("look")
def list_(settings: Settings, as_json: bool) -> int:
    """List the runs whose pages are kept here, and the space they take."""
    if not _file_exists(settings):
        if as_json:
            document({"runs": [], "disk": 0})
        else:
            line(f"No pages are kept here. {KEEP}.")
        return 0
    with _shelf(settings) as shelf:
        runs, whole = shelf.runs(), shelf.size()
    if as_json:
        listed = [
            {
                "run": run.name,
                "pages": run.pages,
                "bytes": run.bytes,
                "first_at": stamp(run.first_at),
                "last_at": stamp(run.last_at),
            }
            for run in runs
        ]
        document({"runs": listed, "bytes": whole.bytes, "different": whole.different, "disk": whole.disk})
        return 0
    now = time.time_ns() // 1000
    rows = [(run.name, count(run.pages), size(run.bytes), ago(run.last_at, now)) for run in runs]
    if rows:
        table(("run", "pages", "as they came", "last"), rows, right="pages")
    line(f"{count(whole.answers, 'page')}, {size(whole.bytes)} as they came, {size(whole.disk)} on disk.")
    return 0


@raw.command(
    cls=Command,
    examples="""
    shoal raw show http://127.0.0.1:8808/catalogue/ > page.html
    shoal raw show http://127.0.0.1:8808/catalogue/ --headers
    """,
)
@click.argument("url")
@click.option("--run", metavar="RUN", help="As this run kept it; the newest unless given.")
@click.option("--headers", is_flag=True, help="Status and headers instead of the page.")
@click_options("look")
def show(settings: Settings, url: str, run: str | None, headers: bool) -> int:
    """Write a kept page to standard output, byte by byte."""
    digest = request_digest(canonical(url))
    with _shelf(settings) as shelf:
        if run:
            response = shelf.get(_named(shelf, run), digest)
        else:
            newest = shelf.latest(digest)
            response = newest.response if newest else None
    if response is None:
        raise Usage(f"no answer of {clean(url)} is kept here", hint="shoal raw list says what is")
    if not headers:
        sys.stdout.buffer.write(response.body)
        sys.stdout.buffer.flush()
        return 0
    line(f"{response.status} {clean(response.url)}")
    for name, value in response.headers:
        line(f"{clean(name)}: {clean(value)}")
    return 0


@raw.command(
    cls=Command,
    examples="""
    shoal raw remove k3f
    """,
)
@click.argument("run")
@click_options("look")
def remove(settings: Settings, run: str) -> int:
    """Remove the pages a run kept, and give their space back."""
    with _shelf(settings) as shelf:
        before = shelf.size().disk
        removed = asyncio.run(shelf.remove(_named(shelf, run)))
        given_back = max(0, before - shelf.size().disk)
    line(f"Removed {count(removed, 'page')}; {size(given_back)} given back.")
    return 0


def _named(shelf: RawShelf, run: str) -> str:
    kept = [known.name for known in shelf.runs()]
    word = run.lower()
    meant = [name for name in kept if name.lower().startswith(word) or name.lower().endswith(f"_{word}")]
    if run in kept or len(meant) == 1:
        return run if run in kept else meant[0]
    raise Usage(f"no pages of run {clean(run)} are kept here", hint="shoal raw list says whose are")


def _file_exists(settings: Settings) -> bool:
    from shoal.store.raw_file import NAME

    return (settings.state_folder / "raw" / NAME).exists()


@contextmanager
def _shelf(settings: Settings) -> Iterator[RawShelf]:
    """The shelf of this state; where none was ever filled, none is made."""
    if not _file_exists(settings):
        raise Usage("no pages are kept here", hint=KEEP)
    from shoal.store.raw import RawShelf

    shelf = RawShelf(settings.state_folder / "raw")
    try:
        yield shelf
    finally:
        shelf.close()
