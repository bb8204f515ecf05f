"""Closing: what is written and counted when nobody works on a run any more."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from shoal.config import Settings
from shoal.control.report import failed_words
from shoal.core.run import Run
from shoal.errors import Usage
from shoal.queue.base import DeadGroup, Queue
from shoal.store.beside import names, write_failed
from shoal.store.export import Exporter

File = tuple[str, int, str]  # name, rows, what is in it


async def write_files(
    queue: Queue, run: Run, exporter: Exporter, settings: Settings, dead: tuple[DeadGroup, ...]
) -> list[File]:
    """The output and, beside it, what failed."""
    await exporter.finish()
    failed, _ = names(exporter.path)
    files = [(str(exporter.path), exporter.rows, ", ".join(exporter.columns))]
    if count := await write_failed(queue, run, failed, csv_safe=settings.csv_safe):
        files.append((str(failed), count, failed_words(dead)))
    return files


def refuse_read(output: str, words: Iterable[str]) -> None:
    """Refuse an output that would be written over what is read, itself or by a file beside it."""
    written = {Path(output), *names(output)}
    for word in words:
        if Path(word).exists() and Path(word).resolve() in written:
            raise Usage(
                f"{word} is what is read, and would be written over", hint="another name for the output (-o)"
            )


def rejected_file(run: Run, output: str, settings: Settings) -> Path:
    """Where the lines of a list go that lead to no request."""
    if output:
        return names(output)[1]
    return settings.state_folder / "inputs" / f"{run.name}.rejected.csv"
