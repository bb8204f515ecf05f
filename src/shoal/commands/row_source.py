"""Row sources: a database or another run as a list, read once into a snapshot that the run then works through."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from shoal.config.load import Settings
from shoal.core.run import Run
from shoal.core.typed_task import TYPE_PREFIX
from shoal.errors import UsageError
from shoal.queue.base import Queue, TaskFilter, TaskView
from shoal.runs.outputs import RunOutputs
from shoal.sources.columns import URL_COLUMN_NAMES
from shoal.sources.snapshot import Snapshot, first_rows, remove_old_snapshots, snapshot_path
from shoal.sources.sql import check_database, database_label, query_rows
from shoal.sources.url_text import is_absolute_url
from shoal.view.dead_letters import ALL, dead_letters, last_message
from shoal.view.formatting import iso_time

PAGE = 1_000  # records read at once

Rows = AsyncIterator[dict[str, Any] | bytes]


async def records_as_list(settings: Settings, queue: Queue, run: Run, column: str, *, fresh: bool) -> Path:
    """The records of a run; which of their fields holds the URLs must be clear, or said by `column`."""
    path = _path(settings, f"{run.name}-records", "records", run.name, str(run.began_at))

    async def rows() -> Rows:
        async with await RunOutputs.open(queue, settings) as outputs:
            after = 0
            while page := await outputs.records.records(run.id, after=after, limit=PAGE):
                for record in page:
                    yield record.data
                after = page[-1].seq

    if not _is_there(path, fresh):
        await _write(path, rows(), f"run {run.name} has no records", f"shoal status {run.name} says why")
    if not column:
        _refuse_several(first_rows(path), run)
    return path


async def failures_as_list(settings: Settings, queue: Queue, run: Run, where: TaskFilter, *, fresh: bool) -> Path:
    """The pages of a run that failed, with why; what stood beside them in its list comes along."""
    parts = (run.name, str(run.began_at), where.lane, where.cause, where.url)
    path = _path(settings, f"{run.name}-failures", "failures", *parts)
    if _is_there(path, fresh):
        return path

    async def rows() -> Rows:
        async for view in dead_letters(queue, run.id, where, ALL):
            if not view.url.startswith(TYPE_PREFIX):
                yield _failure_row(view)

    matching = "" if where == TaskFilter() else " that match"
    await _write(path, rows(), f"run {run.name} has no failed pages{matching}", f"shoal dead {run.name} lists them")
    return path


async def query_as_list(settings: Settings, database: str, query: str, *, fresh: bool) -> Path:
    """The rows of a query."""
    check_database(database, query)
    path = _path(settings, database_label(database), "sql", database, query)
    if not _is_there(path, fresh):
        rows: Any = query_rows(database, query)
        await _write(path, rows, "the query found no row", "change the query, or wait for rows")
    return path


def _path(settings: Settings, label: str, *identity: str) -> Path:
    folder = settings.state_folder / "inputs"
    if settings.retention:
        remove_old_snapshots(folder, settings.retention)
    return snapshot_path(folder, label, identity)


def _is_there(path: Path, fresh: bool) -> bool:
    """Whether an earlier run of the command has read the rows already: it goes on with those."""
    if fresh or not path.exists():
        return False
    os.utime(path)
    return True


async def _write(path: Path, rows: Rows, nothing: str, hint: str) -> None:
    with Snapshot(path) as snapshot:
        async for row in rows:
            snapshot.add(row)
    if not snapshot.rows:
        raise UsageError(nothing, hint=hint)


def _refuse_several(first: list[dict[str, Any]], run: Run) -> None:
    """Records often hold several URLs, their own page's among them: nobody should fetch the wrong ones."""
    names = [
        name
        for name in dict.fromkeys(name for row in first for name in row)
        if any(isinstance(row.get(name), str) and is_absolute_url(row[name]) for row in first)
    ]
    if len(names) == 1 or (not names and any(name.casefold() in URL_COLUMN_NAMES for row in first for name in row)):
        return
    if names:
        raise UsageError(
            f"several fields of run {run.name} hold URLs: {', '.join(names)}", hint=f"choose one: --column {names[-1]}"
        )
    fields = ", ".join(dict.fromkeys(name for row in first for name in row))
    raise UsageError(f"no field of run {run.name} holds URLs; its fields: {fields}", hint="name it: --column FIELD")


def _failure_row(view: TaskView) -> dict[str, Any]:
    row = (view.meta or {}).get("row")
    about = {
        "url": view.url,
        "cause": view.cause,
        "message": last_message(view),
        "host": view.lane,
        "attempts": view.attempts,
        "failed_at": iso_time(view.finished_at),
    }
    return (
        {**about, **{str(name): value for name, value in row.items() if name not in about}}
        if isinstance(row, dict)
        else about
    )
