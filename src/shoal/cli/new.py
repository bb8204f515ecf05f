"""shoal new FILE."""

from __future__ import annotations

import re
from pathlib import Path

import click

from shoal.cli.command import Command
from shoal.cli.console import print_line
from shoal.errors import ActionRequired, InvalidUrl, UsageError

DEMO = "http://127.0.0.1:8808/"

TEMPLATE = '''\
"""{name}: what to visit, and what to keep of it.

    shoal demo                             # in another terminal: a small site to try this on
    shoal run {file} -o {name}.jsonl{private}
"""

import shoal

{variable} = shoal.Scraper(
    "{name}",
    start="{start}",  # one URL or a list; only hosts named here are visited
    # hosts=["*.example.com"],  # more hosts that may be visited
    # delay=1,                  # any setting of `shoal run --help`; flags win over what stands here
)


# The first pattern that matches a page's path decides which handler gets it; * matches anything.
# Pages without a handler are searched for links to pages that have one.
@{variable}.page("/catalogue/*_*")
def book(page):
    # Whatever is yielded as a dict is a record: a line of {name}.jsonl.
    yield {{
        "title": page.css("h1::text").get(),
        "price": page.css(".price::text").get(),
        "url": page.url,
    }}


@{variable}.page("/catalogue/*")
def listing(page):
    # Links are followed once, however many pages have them.
    yield from page.follow(".product a, .next a")
'''


@click.command(
    cls=Command,
    examples="""
    shoal new books.py
    shoal new news.py --start https://news.example/
    """,
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--start", metavar="URL", default=DEMO, help="Start URL; default: the demo site.")
def new(file: Path, start: str) -> None:
    """Write a commented scraper to FILE."""
    if file.suffix != ".py":
        raise UsageError(f"{file} is not the name of a Python file", hint=f"shoal new {file.stem or 'books'}.py")
    name = re.sub(r"[^a-z0-9_-]+", "-", file.stem.lower()).strip("-_") or "scraper"
    variable = re.sub(r"\W", "_", name)
    variable = f"_{variable}" if variable[0].isdigit() else variable
    private = " --allow-private" if _private(start) else ""
    text = TEMPLATE.format(
        name=name,
        file=file.name,
        variable=variable,
        start=start.replace("\\", "%5C").replace('"', "%22"),
        private=private,
    )
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(
            f"{file} exists and is left as it is", hint="choose another name, or remove it first"
        ) from None
    except OSError as error:
        raise ActionRequired(f"{file} cannot be written: {error.strerror}", hint="check the folder") from error
    print_line(f"Wrote {file}. Next:")
    if start == DEMO:
        print_line("  shoal demo                 a site to try it on, in another terminal")
    else:
        private += " --max-pages 20"
    print_line(f"  shoal run {file} -o {name}.jsonl{private}")


def _private(start: str) -> bool:
    """Whether the URL is on this machine or its network, where --allow-private is needed."""
    from shoal.core.url import canonical, lane_of
    from shoal.fetch.guard import looks_private

    try:
        return looks_private(lane_of(canonical(start)))
    except InvalidUrl as error:
        raise InvalidUrl(f"--start {start}: {error}", hint="a full URL: https://site.example/") from error
