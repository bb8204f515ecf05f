"""shoal scrapers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.show import clean, document, line, table
from shoal.config import Settings
from shoal.errors import Usage
from shoal.extract import registry


@click.command(
    cls=Command,
    examples="""
    shoal scrapers                     here, where `scrapers` says, and installed
    shoal scrapers books.py more/      of these places
    """,
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@as_json
@click_options("look")
def scrapers(settings: Settings, targets: tuple[str, ...], as_json: bool) -> int:
    """List scrapers by name, with their mode, where they are and the version of their code.

    TARGET is a file, a folder, a module or the name of an installed scraper. Exit status 1 if something
    that was named cannot be loaded.
    """
    found: dict[str, registry.Listed] = {}
    problems: list[str] = []
    for target in targets or _usual(settings):
        try:
            survey = registry.look(target, settings.scrapers)
        except Usage as error:
            problems.append(str(error))
            continue
        problems += survey.problems
        for listed in survey.found:
            found.setdefault(listed.target, listed)
    rows = [
        {
            "name": listed.scraper.name,
            "mode": listed.scraper.mode or "any",
            "where": _short(listed.target),
            "version": registry.version_of(listed.scraper),
        }
        for listed in found.values()
    ]
    rows.sort(key=lambda row: row["name"])
    if as_json:
        document({"scrapers": rows, "problems": problems})
    else:
        _show(rows, problems)
    return 1 if problems and targets else 0


def _usual(settings: Settings) -> tuple[str, ...]:
    """Where to look if nobody says: this folder, the places in the settings, and what is installed."""
    return (".", *settings.scrapers, *registry.installed_names())


def _show(rows: list[dict[str, str]], problems: list[str]) -> None:
    if rows:
        heads = ("name", "mode", "version", "where")
        table(heads, [[row[head] for head in heads] for row in rows])
    else:
        line("No scrapers here.")
        line("  try: shoal new books.py")
    for problem in problems:
        line(f"not loaded: {clean(problem)}", sys.stderr)


def _short(target: str) -> str:
    place, colon, name = target.rpartition(":")
    try:
        return f"{Path(place).relative_to(Path.cwd())}{colon}{name}"
    except ValueError:
        return target
