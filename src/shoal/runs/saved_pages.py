"""Saved pages: those that an earlier run over the same list has left, to be read again with other fields."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from shoal import app
from shoal.config.load import Settings
from shoal.core.lane import Pace
from shoal.core.request_header import names_identity
from shoal.core.run import Run
from shoal.errors import ActionRequired, UsageError
from shoal.fetch.raw_pages import NOT_STORED
from shoal.queue.base import Queue, TaskFilter
from shoal.runs.identity import resolve_run
from shoal.runs.request import RunRequest
from shoal.sources.open import Input
from shoal.sources.start_task import start_task

REVIVE_BATCH = 500


class SavedPages(NamedTuple):
    run: str
    pages: int


def list_id(given: Input) -> str:
    """The same for the same list; says nothing of where it is."""
    return hashlib.sha256(given.identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def keeps_pages(settings: Settings, request: RunRequest) -> bool:
    """Whether a run keeps its pages although nobody said so: lists do, unless they are read with a login."""
    if request.input is None or request.template is None or settings.is_set("keep_raw") or settings.changed_only:
        return False  # of pages that have not changed there is nothing to keep
    return not settings.auth and not any(names_identity(line.partition(":")[0]) for line in settings.header)


def find_saved_pages(settings: Settings, runs: Iterable[str]) -> SavedPages | None:
    """What the first of these runs that has left any has left."""
    counts = _saved_counts(settings)
    return next((SavedPages(name, counts[name]) for name in runs if name in counts), None)


async def saved_by(queue: Queue, settings: Settings, named: str) -> SavedPages:
    """What the run that people mean has saved; it is an error if that is nothing."""
    run = await resolve_run(queue, named)
    if run is None:
        raise UsageError(f"there is no run {named}", hint="shoal runs lists them")
    counts = _saved_counts(settings, strict=True)
    if run.name not in counts:
        raise UsageError(f"run {run.name} saved no responses", hint="crawl with --keep-raw first")
    return SavedPages(run.name, counts[run.name])


def _saved_counts(settings: Settings, *, strict: bool = False) -> dict[str, int]:
    """Pages by run; unless this is strict, a store that cannot be read is as good as none."""
    counts: dict[str, int] = {}
    for store in app.open_saved_pages(settings, strict=strict):
        try:
            counts |= {run.name: run.pages for run in store.runs()}
        except ActionRequired:
            if strict:
                raise
        finally:
            store.close()
    return counts


async def revive_not_saved(queue: Queue, run: Run, pace: Callable[[str], Pace]) -> int:
    """Pages that were not among the saved ones back to ready, to be fetched at this pace; says how many."""
    count = after = 0
    where = TaskFilter(cause=NOT_STORED)
    while batch := await queue.list_tasks(run.id, state="dead", where=where, after=after, limit=REVIVE_BATCH):
        await app.give_paces(queue, run, [start_task(view.url) for view in batch], pace)
        count += await queue.revive(run.id, TaskFilter(ids=tuple(view.id for view in batch)))
        after = batch[-1].id
    return count
