"""Dead letters: what failed for good, by itself and by cause."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from shoal.core.run import Run
from shoal.queue.base import DeadLetterGroup, Queue, TaskFilter, TaskView

PAGE_SIZE = 1000
ALL = 1_000_000
MAX_RUNS, RUNS_AT_ONCE = 10_000, 200


async def runs_with_dead_letters(queue: Queue) -> list[Run]:
    """The newest first, of the newest MAX_RUNS; a run that was never removed keeps its dead letters."""
    found: list[Run] = []
    before = looked = 0
    while looked < MAX_RUNS:
        runs = await queue.runs(before=before, limit=RUNS_AT_ONCE)
        counts = await queue.stats_of([run.id for run in runs])
        found += [run for run, stats in zip(runs, counts, strict=True) if stats.dead]
        looked += len(runs)
        if len(runs) < RUNS_AT_ONCE:
            break
        before = runs[-1].id
    return found


async def dead_letters(
    queue: Queue, run: int, where: TaskFilter, limit: int, *, failures: int = 0
) -> AsyncIterator[TaskView]:
    """failures: only those whose URL failed at least so often, in all runs."""
    after = 0
    while limit > 0:
        size = PAGE_SIZE if failures else min(PAGE_SIZE, limit)
        page = await queue.list_tasks(run, state="dead", where=where, after=after, limit=size)
        for view in (await failing_letters(queue, page, failures))[:limit] if failures else page:
            yield view
            limit -= 1
        if not page:
            return
        after = page[-1].id


async def failing_letters(queue: Queue, letters: Sequence[TaskView], failures: int) -> list[TaskView]:
    """Those of them whose URL failed at least so often, in all runs."""
    counts = await queue.failures([view.url for view in letters])
    return [view for view, about in zip(letters, counts, strict=True) if about.count >= failures]


async def dead_letter_groups(
    queue: Queue, run: int, where: TaskFilter = TaskFilter(), limit: int = 100, *, most: int = ALL, failures: int = 0
) -> list[DeadLetterGroup]:
    """By host and cause, the most first; with a filter, of the first `most` letters that match it."""
    if where == TaskFilter() and not failures:
        return await queue.dead_groups(run, limit=limit)
    made: dict[tuple[str, str], DeadLetterGroup] = {}
    async for view in dead_letters(queue, run, where, most, failures=failures):
        key = view.lane, view.cause
        at = view.finished_at
        group = made.get(key) or DeadLetterGroup(view.lane, view.cause, 0, view.url, last_message(view), at, at)
        made[key] = msgspec.structs.replace(
            group, count=group.count + 1, first_at=min(group.first_at, at), last_at=max(group.last_at, at)
        )
    return sorted(made.values(), key=lambda group: -group.count)[:limit]


def count_by_cause(groups: Iterable[DeadLetterGroup]) -> dict[str, int]:
    causes: dict[str, int] = {}
    for group in groups:
        causes[group.cause] = causes.get(group.cause, 0) + group.count
    return causes


def last_message(view: TaskView) -> str:
    return next((attempt.message for attempt in reversed(view.history) if attempt.message), "")
