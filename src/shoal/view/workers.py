"""Workers as people see them: what they do, and whether they have the same code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from shoal.control.registry import STATES as STATES
from shoal.control.registry import by_state as by_state
from shoal.control.registry import state_of as state_of
from shoal.core.lane import Mark
from shoal.view.words import clean, some


def place(mark: Mark) -> tuple[str, int, str]:
    """How they are listed: node-1, node-2, node-10."""
    number = mark.id.rpartition("-")[2]
    return mark.name, int(number) if number.isdecimal() else 0, mark.id


def versions_of(mark: Mark) -> dict[str, str]:
    """Which version of each scraper it has."""
    return dict(pair.rpartition("=")[::2] for pair in mark.code.split() if "=" in pair)


def mixed_code(marks: Iterable[Mark]) -> list[str]:
    """A sentence for every scraper of which workers have different versions."""
    versions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for mark in marks:
        for name, version in versions_of(mark).items():
            versions[name][version].append(mark.id)
    return [
        f"Workers differ in the code of {clean(name)}: "
        + ", ".join(f"{clean(version)} on {some(ids)}" for version, ids in found.items())
        for name, found in versions.items()
        if len(found) > 1
    ]
