"""Python arguments: what callers of shoal.get and shoal.run may give, refused in words where it is something else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from shoal.errors import UsageError
from shoal.extract.scraper import Scraper

_TARGETS = 'shoal.get("urls.txt"), shoal.get("https://…") or shoal.get(["https://…", "https://…"])'
_FIELDS = 'shoal.get("urls.txt", {"title": "h1", "price": ".price"})'


def check_scraper(scraper: object) -> None:
    if isinstance(scraper, Scraper):
        return
    if isinstance(scraper, str | os.PathLike):
        hint = f"import it from its file, or use the command line: shoal run {os.fspath(scraper)}"
        raise UsageError(f"shoal.run takes a scraper, not the name of one: {scraper!r:.60}", hint=hint)
    raise UsageError(
        f"shoal.run takes a scraper, not {_described(scraper)}",
        hint='scraper = shoal.Scraper("books", start="https://…"), with handlers, then shoal.run_sync(scraper)',
    )


def check_output(output: object) -> str | None:
    """The file as a text."""
    if output is None or isinstance(output, str):
        return output
    if isinstance(output, os.PathLike):
        return str(os.fspath(output))
    raise UsageError(f"output is a file, not {_described(output)}", hint='output="records.csv"')


def targets(target: object) -> tuple[str, ...]:
    """What to get, as words of a command line."""
    if isinstance(target, str | os.PathLike):
        given: tuple[object, ...] = (target,)
    elif isinstance(target, bytes | bytearray | Mapping) or not isinstance(target, Iterable):
        raise UsageError(f"shoal.get takes URLs or a file with them, not {_described(target)}", hint=_TARGETS)
    else:
        given = tuple(target)
    words: list[str] = []
    for place, one in enumerate(given, 1):
        if not isinstance(one, str | os.PathLike):
            raise UsageError(f"URL {place} of {len(given)} is not a text: {_described(one)}", hint=_TARGETS)
        words.append(str(os.fspath(one)))
    if not words or not words[0]:
        raise UsageError("there is no URL to get", hint=_TARGETS)
    return tuple(words)


def check_fields(fields: object) -> Mapping[str, str]:
    if fields is None:
        return {}
    if not isinstance(fields, Mapping):
        raise UsageError(f"fields are names with selectors, not {_described(fields)}", hint=_FIELDS)
    for name, selector in fields.items():
        if not isinstance(name, str) or not isinstance(selector, str):
            raise UsageError(f"field {name!r:.60} is not a name with a selector: {_described(selector)}", hint=_FIELDS)
    return fields


def check_column(column: object) -> str:
    if isinstance(column, str):
        return column
    raise UsageError(f"column is the name of one, not {_described(column)}", hint='column="Website"')


def _described(value: object) -> str:
    return "None" if value is None else f"{value!r:.60} ({type(value).__name__})"
