"""Checks after a restore: output files that know more than the queue, which was set back to its backup."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from shoal.config.load import Settings
from shoal.queue.base import Finding, Queue
from shoal.runs.restored import RestoreRecord, restore_record
from shoal.store.output_state import SavedState
from shoal.view.formatting import clean, count, local_time, relative_path

MAX_FILES = 1000
MAX_BYTES = 1_000_000  # of what is known of one file


async def restore_findings(queue: Queue, settings: Settings) -> AsyncIterator[Finding]:
    record = await restore_record(queue)
    if record is not None:
        when, taken = local_time(record.restored_at), local_time(record.taken_at)
        yield Finding("restored", "note", f"this queue was restored on {when} to what it was on {taken}")
    for saved in saved_states(settings.state_folder):
        finding = await _compare(queue, saved, record)
        if finding is not None:
            yield finding


async def _compare(queue: Queue, saved: SavedState, record: RestoreRecord | None) -> Finding | None:
    """What is wrong with one file. Where nobody said that the queue was restored, more rows than records tell it."""
    name, is_former = clean(relative_path(saved.path)), record is not None and saved.restored != record.id
    runs = [run for run in await queue.runs(name=saved.run) if run.name == saved.run]
    if not runs or runs[0].began_at != saved.started:
        if not is_former:
            return None  # of a run that was removed
        words = f"{name} holds records of run {clean(saved.run)}, which the restored queue does not know"
        return Finding("restored", "warning", words, "keep the file: what is in it cannot be exported again")
    stats = await queue.stats(runs[0].id)
    rows, have = count(saved.checkpoint.rows, "row"), count(stats.records, "record")
    if is_former:
        words = f"{name} was written before the queue was restored: {rows}, {have} in the queue"
        fix = f"resume the run, or shoal export {saved.run} -o {name}: it is written anew, and what it was is kept"
        return Finding("restored", "warning", words, fix)
    if saved.checkpoint.rows > stats.records:
        words = f"{name} has {rows}, and the queue {have} of run {saved.run}: the queue was set back by other means"
        fix = f"keep a copy of the file, then shoal export {saved.run} -o {name} --fresh"
        return Finding("restored", "warning", words, fix)
    return None


def saved_states(folder: Path) -> Iterator[SavedState]:
    """What is known of the output files that were written with this state folder, and are still there."""
    for file in sorted((folder / "exports").glob("*.json"))[:MAX_FILES]:
        try:
            with file.open("rb") as source:
                saved = msgspec.json.decode(source.read(MAX_BYTES), type=SavedState)
        except (OSError, msgspec.DecodeError):
            continue
        if Path(saved.path).exists():
            yield saved
