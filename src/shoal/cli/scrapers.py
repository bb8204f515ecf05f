"""shoal scrapers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shoal.cli.command import Command
from shoal.cli.console import clean, print_json, print_line, print_table
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.errors import UsageError
from shoal.extract import registry


@click.command(
    cls=Command,
    examples="""
    shoal scrapers                     in this folder, configured and installed
    shoal scrapers books.py more/      of these places
    """,
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@as_json
@click_options("look")
def scrapers(settings: Settings, targets: tuple[str, ...], as_json: bool) -> int:
    """List scrapers with their mode, location and code version.

    TARGET is a file, a folder, a module or the name of an installed scraper. Exit status 1 if something
    that was named cannot be loaded.
    """
    found: dict[str, registry.LocatedScraper] = {}
    problems: list[str] = []
    for target in targets or _default_targets(settings):
        try:
            scan_result = registry.scan(target, settings.scrapers)
        except UsageError as error:
            problems.append(str(error))
            continue
        problems += scan_result.problems
        for listed in scan_result.found:
            found.setdefault(listed.target, listed)
    rows = [
        {
            "name": listed.scraper.name,
            "mode": listed.scraper.mode or "any",
            "where": _relative_target(listed.target),
            "version": registry.version_of(listed.scraper),
        }
        for listed in found.values()
    ]
    rows.sort(key=lambda row: row["name"])
    if as_json:
        print_json({"scrapers": rows, "problems": problems})
    else:
        _show(rows, problems)
    return 1 if problems and targets else 0


def _default_targets(settings: Settings) -> tuple[str, ...]:
    """Where to look if nobody says: this folder, the places in the settings, and what is installed."""
    return (".", *settings.scrapers, *registry.installed_names())


def _show(rows: list[dict[str, str]], problems: list[str]) -> None:
    if rows:
        heads = ("name", "mode", "version", "where")
        print_table(heads, [[row[head] for head in heads] for row in rows])
    else:
        print_line("No scrapers here.")
        print_line("  try: shoal new books.py")
    for problem in problems:
        print_line(f"not loaded: {clean(problem)}", sys.stderr)


def _relative_target(target: str) -> str:
    place, colon, name = target.rpartition(":")
    try:
        return f"{Path(place).relative_to(Path.cwd())}{colon}{name}"
    except ValueError:
        return target
