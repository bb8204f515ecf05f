"""Host evidence: what a host answered last, and how old the robots.txt is that it is judged by."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.config.load import Settings
from shoal.core.lane import host_of_lane
from shoal.core.run import TASK_BITS, Run
from shoal.core.task import REVIVED, Attempt
from shoal.politeness.robots_cache import RobotsCache
from shoal.politeness.robots_group import product_token
from shoal.queue.base import Queue, TaskFilter
from shoal.view.formatting import ago, clean, format_duration, format_pace

MAX_RUNS = 5  # whose tasks are looked at
# Tasks up to the one that is worked on now: no query may grow with a run, and the nearest were tried last.
WINDOWS, TASKS_PER_WINDOW = (200, 4_000), 200
MAX_ANSWERS = 10


class Answer(msgspec.Struct, frozen=True):
    """One attempt at a page of a host."""

    task: int
    url: str
    run: str
    attempt: Attempt


async def last_answers(queue: Queue, lane: str, runs: Sequence[Run], most: int = MAX_ANSWERS) -> list[Answer]:
    """The newest first, as far as a few questions find them."""
    found: dict[tuple[int, int], Answer] = {}
    for run in runs[:MAX_RUNS]:
        at = await _frontier(queue, lane, run)
        for size in WINDOWS:
            found |= await _answers_before(queue, lane, run, at, size)
            if len(found) >= most:
                break
    return sorted(found.values(), key=lambda answer: -answer.attempt.at)[:most]


async def _frontier(queue: Queue, lane: str, run: Run) -> int:
    """How far a run has come: a task of this host in progress, else the next one, else the last there is."""
    nearest = await queue.list_tasks(run.id, state="leased", where=TaskFilter(lane=lane), limit=1)
    nearest = nearest or await queue.list_tasks(run.id, state="ready", limit=1)
    return nearest[0].id if nearest else (run.id << TASK_BITS) + (await queue.stats(run.id)).seen


async def _answers_before(queue: Queue, lane: str, run: Run, at: int, size: int) -> dict[tuple[int, int], Answer]:
    after = max(run.id << TASK_BITS, at - size)
    tasks = await queue.list_tasks(
        run.id, where=TaskFilter(lane=lane), after=after, upto=at + size // 4, limit=TASKS_PER_WINDOW
    )
    return {
        (task.id, attempt.at): Answer(task.id, task.url, run.name, attempt)
        for task in tasks
        for attempt in task.history
        if attempt.cause != REVIVED
    }


def describe_robots(settings: Settings, lane: str, now: float) -> str:
    """What this machine knows of its robots.txt. now: Unix time."""
    if settings.ignore_robots:
        return "ignored (--ignore-robots)"
    cache, token = RobotsCache(settings.state_folder / "robots"), product_token(settings.user_agent)
    host = host_of_lane(lane)
    known = [one for scheme in ("https", "http") if (one := cache.get(f"{scheme}://{host}", token)) is not None]
    if not known:
        return "not read by workers of this machine"
    latest = max(known, key=lambda one: one.read_at)
    parts = [f"read {ago(round(latest.read_at * 1e6), round(now * 1e6))}"]
    if latest.group is None:
        parts = [f"could not be read: {clean(latest.reason)}"]
    elif latest.group.crawl_delay:
        parts.append(f"asks for {format_pace(latest.group.crawl_delay)}")
    wait = latest.until - now
    parts.append(f"is read again in {format_duration(wait)}" if wait > 0 else "is read again with the next page")
    return ", ".join(parts)
