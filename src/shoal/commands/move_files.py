"""The files that this machine keeps for a run beside its queue; they are copied when the run moves.

That is how far its list was read, how far its outputs are written, and its cookies. Pages kept as they
came stay where they are.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from shoal.core.name_format import file_name_of
from shoal.core.run import Run


class _ExportState(msgspec.Struct, frozen=True):
    run: str


def copy_run_files(run: Run, old: Path, new: Path) -> None:
    """Copy what belongs to a run from one state folder to another; what is there already stays."""
    if old.resolve() == new.resolve():
        return
    for place in _run_files(run, old):
        there = new / place.relative_to(old)
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(place, there)


def _run_files(run: Run, folder: Path) -> list[Path]:
    name = file_name_of(run.name)
    found = [*folder.glob(f"inputs/{name}.*"), *folder.glob(f"cookies/{name}*")]
    return found + [place for place in folder.glob("exports/*.json") if _belongs_to(place, run)]


def _belongs_to(place: Path, run: Run) -> bool:
    try:
        return msgspec.json.decode(place.read_bytes(), type=_ExportState).run == run.name
    except (OSError, msgspec.DecodeError):
        return False
