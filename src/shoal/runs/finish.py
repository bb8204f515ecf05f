"""Finish: what is written when nobody works on a run any more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shoal.config.load import Settings
from shoal.core.name_format import file_name_of
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.queue.base import DeadLetterGroup, Queue
from shoal.runs.progress import describe_failures
from shoal.runs.spec import list_columns
from shoal.store.export import Exporter
from shoal.store.sidecars import sidecar_paths, write_failed

WrittenFile = tuple[str, int, str]  # name, rows, what is in it


async def write_files(
    queue: Queue, run: Run, exporter: Exporter, settings: Settings, dead: tuple[DeadLetterGroup, ...]
) -> list[WrittenFile]:
    """The output and, beside it, what failed."""
    await exporter.finish()
    failed, _ = sidecar_paths(exporter.path)
    files = [(str(path), rows, ", ".join(columns)) for path, rows, columns in exporter.files]
    stats = await queue.stats(run.id)
    if stats.discarded and not stats.dead:
        return files  # what failed is known to that file alone by now
    columns, safe, bom = list_columns(run), settings.csv_safe, settings.csv_bom
    if count := await write_failed(queue, run, failed, csv_safe=safe, csv_bom=bom, columns=columns):
        files.append((str(failed), count, describe_failures(dead)))
    return files


def refuse_overwriting_input(output: str, words: Iterable[str]) -> None:
    """Refuse an output that would be written over what is read, itself or by a file beside it."""
    written = {Path(output), *sidecar_paths(output)}
    for word in words:
        if Path(word).exists() and Path(word).resolve() in written:
            raise UsageError(f"{word} is the input, and would be overwritten", hint="choose another output (-o)")


def rejected_file(run: Run, output: str, settings: Settings) -> Path:
    """Where the lines of a list go that are not URLs to fetch."""
    if output:
        return sidecar_paths(output)[1]
    return settings.state_folder / "inputs" / f"{file_name_of(run.name)}.rejected.csv"
