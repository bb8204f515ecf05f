"""shoal failures: how often URLs failed, over runs, and how to forget it."""

from __future__ import annotations

import sys

import click

from shoal.cli.command import Command, Group
from shoal.cli.console import clean, count, print_json, print_line
from shoal.cli.find_run import with_queue
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import log_command
from shoal.config.load import Settings
from shoal.core.url import canonical
from shoal.errors import InvalidUrl, UsageError
from shoal.queue.base import Queue
from shoal.sources.url_text import with_scheme
from shoal.view.documents import failures_document
from shoal.view.why import failures_words

_ONE = "https://shop.example/item/7"


@click.group(
    cls=Group,
    examples="""
    shoal failures show https://shop.example/item/7
    shoal failures forget https://shop.example/item/7
    shoal failures forget --all                   fetch everything again
    shoal run urls.txt -o out.csv --skip-failing 3
    """,
)
def failures() -> None:
    """How often URLs failed permanently, in all runs since they last succeeded.

    A run with --skip-failing N leaves URLs out that failed N times. A success forgets
    them, and so does shoal revive.
    """


@failures.command(cls=Command, examples=f"shoal failures show {_ONE}")
@click.argument("urls", nargs=-1, metavar="URL...")
@as_json
@click_options("look")
def show(settings: Settings, urls: tuple[str, ...], as_json: bool) -> None:
    """Show how often each URL failed, and how; - reads them from stdin."""
    given = _urls(urls)

    async def job(queue: Queue) -> None:
        found, now = await queue.failures(given), await queue.now()
        if as_json:
            print_json([{"url": url} | failures_document(it) for url, it in zip(given, found, strict=True)])
            return
        for url, about in zip(given, found, strict=True):
            print_line(
                f"{clean(url)}: {f'failed {clean(failures_words(about, now))}' if about.count else 'no failure'}"
            )

    with_queue(settings, job)


@failures.command(cls=Command, examples=f"shoal failures forget {_ONE}")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--all", "everything", is_flag=True, help="Of all URLs.")
@as_json
@click_options("look")
def forget(settings: Settings, urls: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Forget the failures of URLs, so that no run skips them; - reads them from stdin."""
    if everything == bool(urls):
        raise UsageError("say whose failures to forget", hint=f"shoal failures forget {_ONE}, or --all")
    given = None if everything else _urls(urls)

    async def job(queue: Queue) -> None:
        gone = await queue.forget_failures(given)
        await log_command(queue, "forget failures", "URLs", count=gone)
        if as_json:
            print_json({"forgotten": gone})
        else:
            print_line(f"The failures of {count(gone, 'URL')} are forgotten." if gone else "There were no failures.")

    with_queue(settings, job)


def _urls(words: tuple[str, ...]) -> list[str]:
    lines = sys.stdin.read().splitlines() if words == ("-",) else words
    given = [line.strip() for line in lines if line.strip()]
    if not given:
        raise UsageError("no URL given", hint=f"shoal failures show {_ONE}")
    try:
        return [canonical(with_scheme(line)) for line in given]
    except InvalidUrl as error:
        raise UsageError(f"this is not a URL to fetch: {error}", hint="https://…") from error
