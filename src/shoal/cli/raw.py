"""shoal raw list, show and remove."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
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
    with _open_stores(settings) as stores:
        runs = sorted((run for store in stores for run in store.runs()), key=lambda run: run.first_at)
        sizes = [store.size() for store in stores]
    if not sizes:
        if as_json:
            print_json({"runs": [], "disk": 0})
        else:
            print_line(f"No responses are saved here. {KEEP}.")
        return 0
    disk, received = sum(one.disk for one in sizes), sum(one.bytes for one in sizes)
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
        different = sum(one.different for one in sizes)
        print_json({"runs": listed, "bytes": received, "different": different, "disk": disk})
        return 0
    now = time.time_ns() // 1000
    rows = [(run.name, count(run.pages), size(run.bytes), ago(run.last_at, now)) for run in runs]
    if rows:
        print_table(("run", "pages", "received", "last"), rows, right="pages")
    answers = sum(one.answers for one in sizes)
    print_line(f"{count(answers, 'page')}, {size(received)} received, {size(disk)} on disk.")
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
    with _open_stores(settings, needed=True) as stores:
        if run:
            store, name = _find_kept_run(stores, run)
            response = store.get(name, digest)
        else:
            found = [page for store in stores if (page := store.latest(digest))]
            response = max(found, key=lambda page: page.kept_at).response if found else None
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
    with _open_stores(settings, needed=True) as stores:
        store, name = _find_kept_run(stores, run)
        before = store.size().disk
        removed = asyncio.run(store.remove(name))
        given_back = max(0, before - store.size().disk)
    print_line(f"Removed {count(removed, 'page')}; {size(given_back)} freed.")
    return 0


def _find_kept_run(stores: Sequence[RawPageStore], run: str) -> tuple[RawPageStore, str]:
    kept = {known.name: store for store in stores for known in store.runs()}
    word = run.lower()
    meant = [name for name in kept if name.lower().startswith(word) or name.lower().endswith(f"_{word}")]
    if run in kept or len(meant) == 1:
        name = run if run in kept else meant[0]
        return kept[name], name
    raise UsageError(f"no responses of run {clean(run)} are saved here", hint="shoal raw list shows them")


@contextmanager
def _open_stores(settings: Settings, *, needed: bool = False) -> Iterator[list[RawPageStore]]:
    """The raw pages of this state; where none were ever stored, no file is made."""
    from shoal.app import open_saved_pages

    stores = open_saved_pages(settings, strict=True)
    if needed and not stores:
        raise UsageError("no responses are saved here", hint=KEEP)
    try:
        yield stores
    finally:
        for store in stores:
            store.close()
