"""Luggage: what this machine keeps for a run beside its queue, taken along when the run moves.

That is how far its list was read, how far its outputs are written, and its cookies. Pages kept as they
came stay where they are.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from shoal.core.run import Run


class _Owner(msgspec.Struct, frozen=True):
    run: str


def take_along(run: Run, old: Path, new: Path) -> None:
    """Copy what belongs to a run from one state folder to another; what is there already stays."""
    if old.resolve() == new.resolve():
        return
    for place in _belongings(run, old):
        there = new / place.relative_to(old)
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(place, there)


def _belongings(run: Run, folder: Path) -> list[Path]:
    found = [*folder.glob(f"inputs/{run.name}.*"), *folder.glob(f"cookies/{run.name}*")]
    return found + [place for place in folder.glob("exports/*.json") if _is_of(place, run)]


def _is_of(place: Path, run: Run) -> bool:
    try:
        return msgspec.json.decode(place.read_bytes(), type=_Owner).run == run.name
    except (OSError, msgspec.DecodeError):
        return False
