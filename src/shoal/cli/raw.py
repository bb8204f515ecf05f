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
from shoal.cli.console import ago, clean, count, iso_time, print_json, print_line, print_table, size
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.core.url import canonical, request_digest
from shoal.errors import UsageError

if TYPE_CHECKING:
    from shoal.store.raw.page_store import RawPageStore

KEEP = "shoal run … --keep-raw saves them"


@click.group(
    cls=Group,
    examples="""
    shoal raw list
    shoal raw show https://shop.example/book/1 > page.html
    shoal raw remove k3f
    """,
)
def raw() -> None:
    """Saved raw responses."""


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
    """List runs with saved responses and the space they take."""
    if not _file_exists(settings):
        if as_json:
            print_json({"runs": [], "disk": 0})
        else:
            print_line(f"No responses are saved here. {KEEP}.")
        return 0
    with _open_store(settings) as store:
        runs, whole = store.runs(), store.size()
    if as_json:
        listed = [
            {
                "run": run.name,
                "pages": run.pages,
                "bytes": run.bytes,
                "first_at": iso_time(run.first_at),
                "last_at": iso_time(run.last_at),
            }
            for run in runs
        ]
        print_json({"runs": listed, "bytes": whole.bytes, "different": whole.different, "disk": whole.disk})
        return 0
    now = time.time_ns() // 1000
    rows = [(run.name, count(run.pages), size(run.bytes), ago(run.last_at, now)) for run in runs]
    if rows:
        print_table(("run", "pages", "received", "last"), rows, right="pages")
    print_line(f"{count(whole.answers, 'page')}, {size(whole.bytes)} received, {size(whole.disk)} on disk.")
    return 0


@raw.command(
    cls=Command,
    examples="""
    shoal raw show http://127.0.0.1:8808/catalogue/ > page.html
    shoal raw show http://127.0.0.1:8808/catalogue/ --headers
    """,
)
@click.argument("url")
@click.option("--run", metavar="RUN", help="The run that saved it; default: the newest.")
@click.option("--headers", is_flag=True, help="Status and headers instead of the page.")
@click_options("look")
def show(settings: Settings, url: str, run: str | None, headers: bool) -> int:
    """Write a saved response to stdout, byte for byte."""
    digest = request_digest(canonical(url))
    with _open_store(settings) as store:
        if run:
            response = store.get(_find_kept_run(store, run), digest)
        else:
            newest = store.latest(digest)
            response = newest.response if newest else None
    if response is None:
        raise UsageError(f"no response of {clean(url)} is saved here", hint="shoal raw list shows what is")
    if not headers:
        sys.stdout.buffer.write(response.body)
        sys.stdout.buffer.flush()
        return 0
    print_line(f"{response.status} {clean(response.url)}")
    for name, value in response.headers:
        print_line(f"{clean(name)}: {clean(value)}")
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
    """Remove the responses a run saved, and free their space."""
    with _open_store(settings) as store:
        before = store.size().disk
        removed = asyncio.run(store.remove(_find_kept_run(store, run)))
        given_back = max(0, before - store.size().disk)
    print_line(f"Removed {count(removed, 'page')}; {size(given_back)} freed.")
    return 0


def _find_kept_run(store: RawPageStore, run: str) -> str:
    kept = [known.name for known in store.runs()]
    word = run.lower()
    meant = [name for name in kept if name.lower().startswith(word) or name.lower().endswith(f"_{word}")]
    if run in kept or len(meant) == 1:
        return run if run in kept else meant[0]
    raise UsageError(f"no responses of run {clean(run)} are saved here", hint="shoal raw list shows them")


def _file_exists(settings: Settings) -> bool:
    from shoal.store.raw.file import FILE_NAME

    return (settings.state_folder / "raw" / FILE_NAME).exists()


@contextmanager
def _open_store(settings: Settings) -> Iterator[RawPageStore]:
    """The raw pages of this state; where none were ever stored, no file is made."""
    if not _file_exists(settings):
        raise UsageError("no responses are saved here", hint=KEEP)
    from shoal.store.raw.page_store import RawPageStore

    store = RawPageStore(settings.state_folder / "raw")
    try:
        yield store
    finally:
        store.close()
