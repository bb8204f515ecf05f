"""shoal new FILE."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.command import Command
from shoal.cli.console import clean, count, print_line
from shoal.cli.options import click_options
from shoal.cli.shell import SHOWN_SETTINGS
from shoal.config.load import SETTINGS, Settings
from shoal.errors import ActionRequired, InvalidUrl, UsageError

if TYPE_CHECKING:
    from shoal.extract.outline import SiteOutline

DEMO = "http://127.0.0.1:8808/"
MAX_DELAY = 10.0  # seconds of a site's crawl delay that are waited for between two of a few pages
GROUPS_SHOWN = 4

EXAMPLE = '''\
"""{name}: what to visit, and what to keep of it.

    shoal demo                             # in another terminal: a small site to try this on
    shoal run {file} -o {name}.jsonl --allow-private
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
    shoal new books.py                              an example, for the demo
    shoal new news.py --start https://news.example  a scraper for that site
    shoal new news.yaml --start news.example        the same as a template
    """,
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--start", metavar="URL", help="Look at this site, and write a scraper that matches it.")
@click_options("run")
def new(settings: Settings, file: Path, start: str | None) -> None:
    """Write a scraper to FILE: .py is Python, .yaml a template.

    With --start a few pages of the site are fetched, by the same rules as a crawl (robots.txt, pace and private
    addresses included), to find which of its pages are worth a record, and what is on them.
    Without it FILE is a commented example for the demo site.
    """
    if not file.suffix:
        file = file.with_name(f"{file.name}.py")
    if file.suffix not in (".py", ".yaml", ".yml"):
        hint = f"shoal new {file.stem or 'books'}.py"
        raise UsageError(f"{file} is not the name of a Python file or a template", hint=hint)
    if file.exists():
        raise _exists(file)
    name = re.sub(r"[^a-z0-9_-]+", "-", file.stem.lower()).strip("-_")[:64] or "scraper"
    if start is None:
        if file.suffix != ".py":
            raise UsageError("a template is written for a site", hint=f"shoal new {file} --start https://…")
        _write(file, EXAMPLE.format(name=name, file=file.name, variable=_variable(name), start=DEMO))
        print_line(f"Wrote {clean(file)}. Next:")
        print_line("  shoal demo                 a site to try it on, in another terminal")
        print_line(f"  shoal run {shlex.quote(str(file))} -o {name}.jsonl --allow-private")
        return
    outline = _look(settings, name, start)
    private = " --allow-private" if _is_private(outline.template.start[0]) else ""
    run = f"shoal run {shlex.quote(str(file))} -o {name}.csv{private}"
    _write(file, _source(outline, file, name, run, private))
    _show(outline, file, run)


def _look(settings: Settings, name: str, start: str) -> SiteOutline:
    from shoal import app
    from shoal.cli.fetch_page import PageFetcher
    from shoal.commands.new import SiteLook
    from shoal.core.url import canonical, lane_of
    from shoal.logs import setup_logging
    from shoal.sources.url_text import with_scheme

    try:
        url = canonical(with_scheme(start))
    except InvalidUrl as error:
        raise InvalidUrl(f"--start {start}: {error}", hint="a full URL: https://site.example/") from error
    setup_logging(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    pace = app.pace_rule(settings)

    async def look() -> SiteOutline:
        fetcher = PageFetcher(settings)

        async def pause(url: str) -> None:
            delay = min(await fetcher.crawl_delay(url), MAX_DELAY)
            await asyncio.sleep(max(pace(lane_of(url)).spacing, delay))

        def say(url: str) -> None:
            print_line(f"Looking at {clean(url)}", sys.stderr)

        try:
            return await SiteLook(fetcher.fetch, pause, say).outline(name, url)
        finally:
            await fetcher.close()

    return asyncio.run(look())


def _source(outline: SiteOutline, file: Path, name: str, run: str, private: str) -> str:
    from shoal.commands.scraper_source import python_source, yaml_source

    start = outline.template.start[0]
    heading = f"{name}: written after a look at {count(outline.pages, 'page')} of {start}"
    heading += f"\n\n    {run}\n    shoal shell {start}{private}    # try selectors on a page\n"
    if file.suffix == ".py":
        return python_source(outline.template, variable=_variable(name), heading=heading)
    return yaml_source(outline.template, heading=heading)


def _show(outline: SiteOutline, file: Path, run: str) -> None:
    print_line(f"Looked at {count(outline.pages, 'page')} with {count(outline.links, 'link')} to pages of the site.")
    for pattern, links in outline.groups[:GROUPS_SHOWN]:
        print_line(f"  {count(links).rjust(6)} × {clean(pattern)}")
    if not outline.links:
        print_line("  No links to other pages of this host were found: the scraper reads this page alone.")
        print_line("  If a browser shows more, the site is filled in by scripts, which shoal does not run.")
    for kind in outline.template.pages:
        fields = ", ".join(kind.fields) or "no record; its links are followed"
        print_line(f"{kind.kind}: {clean(' '.join(kind.match))}   {clean(fields)}")
    print_line(f"Wrote {clean(file)}. Next:")
    # To a file of its own: the run that follows is another one, and not ended by this limit.
    print_line(f"  {run.replace(' -o ', ' -o look-', 1)} --max-pages 20    a first look")
    print_line(f"  {run}")


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise _exists(file) from None
    except OSError as error:
        raise ActionRequired(f"{file} cannot be written: {error.strerror}", hint="check the folder") from error


def _exists(file: Path) -> UsageError:
    return UsageError(f"{file} exists and is left as it is", hint="choose another name, or remove it first")


def _variable(name: str) -> str:
    import keyword

    variable = re.sub(r"\W", "_", name)
    return f"_{variable}" if variable[0].isdigit() or keyword.iskeyword(variable) or variable == "shoal" else variable


def _is_private(start: str) -> bool:
    """Whether the URL is on this machine or its network, where --allow-private is needed."""
    from shoal.core.url import lane_of
    from shoal.fetch.guard import looks_private

    return looks_private(lane_of(start))


for _param in new.params:
    if isinstance(_param, click.Option) and _param.name in SETTINGS:
        _param.hidden = _param.name not in SHOWN_SETTINGS
