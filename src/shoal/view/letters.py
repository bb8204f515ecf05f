"""Dead letters: what failed for good, by itself and by cause."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import msgspec

from shoal.queue.base import DeadGroup, Queue, TaskView, Where

PAGE = 1000
ALL = 1_000_000


async def dead_letters(queue: Queue, run: int, where: Where, limit: int) -> AsyncIterator[TaskView]:
    after = 0
    while limit > 0:
        page = await queue.look(run, state="dead", where=where, after=after, limit=min(PAGE, limit))
        for view in page:
            yield view
        if not page:
            return
        limit -= len(page)
        after = page[-1].id


async def groups(
    queue: Queue, run: int, where: Where = Where(), limit: int = 100, *, most: int = ALL
) -> list[DeadGroup]:
    """By host and cause, the most first; with a filter, of the first `most` letters that match it."""
    if where == Where():
        return await queue.dead_groups(run, limit=limit)
    made: dict[tuple[str, str], DeadGroup] = {}
    async for view in dead_letters(queue, run, where, most):
        key = view.lane, view.cause
        at = view.finished_at
        group = made.get(key) or DeadGroup(view.lane, view.cause, 0, view.url, message_of(view), at, at)
        made[key] = msgspec.structs.replace(
            group, count=group.count + 1, first_at=min(group.first_at, at), last_at=max(group.last_at, at)
        )
    return sorted(made.values(), key=lambda group: -group.count)[:limit]


def by_cause(groups: Iterable[DeadGroup]) -> dict[str, int]:
    causes: dict[str, int] = {}
    for group in groups:
        causes[group.cause] = causes.get(group.cause, 0) + group.count
    return causes


def message_of(view: TaskView) -> str:
    return next((attempt.message for attempt in reversed(view.history) if attempt.message), "")
