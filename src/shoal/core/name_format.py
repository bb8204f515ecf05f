"""Name formats: how the ids of runs and workers are made up, such as "{date}_{time}_{suffix}"."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from string import Formatter

from shoal.core import units
from shoal.errors import UsageError

RUN_ID_FORMAT = "{date}_{time}_{suffix}"
WORKER_ID_FORMAT = "{name}-{suffix}"
RUN_ID_PARTS = ("date", "time", "suffix", "scraper")
WORKER_ID_PARTS = ("name", "host", "pid", "suffix")
_is_plain = re.compile(r"[A-Za-z0-9_.-]*").fullmatch
_unsafe_chars = re.compile(r"[^A-Za-z0-9_.-]+")
_is_file_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}").fullmatch
_starts_well = re.compile(r"[A-Za-z0-9]").match
MAX_PART = 48


def name_format(known: Collection[str], *needed: Collection[str]) -> Callable[[object], str]:
    """A parser of formats with these parts; one of `needed` must be there whole, or ids would meet."""

    def parse(value: object) -> str:
        text = units.text(value)
        parts = parts_of(text)
        literals = [literal for literal, _, _, _ in Formatter().parse(text)]
        if not parts <= set(known) or not all(_is_plain(literal) for literal in literals) or len(text) > MAX_PART:
            raise ValueError(value)
        if not any(set(one) <= parts for one in needed):
            raise ValueError(value)
        return text

    return parse


def parts_of(format: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(format) if name is not None}


def fill_name(format: str, **parts: object) -> str:
    """The name, with nothing in it that a path, a URL or a shell would take for something else."""
    safe = {name: _unsafe_chars.sub("-", str(value)).strip("-")[:MAX_PART] for name, value in parts.items()}
    name = format.format(**{part: safe.get(part, "") for part in parts_of(format)})
    return name if _starts_well(name) else f"r{name}"


def file_name_of(run: str) -> str:
    """The name of a run for a path; whoever writes to the queue may have called it anything."""
    if not _is_file_name(run):
        raise UsageError(f"run {run!r:.200} has a name that no file can have", hint="start it again")
    return run
