"""Cache lanes: a task whose page is in the cache when it is added waits for no slot of its host.

If the page has gone by the time the task is worked on, its request takes a slot of the host's own lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shoal.core.lane import cache_lane
from shoal.core.task import Task
from shoal.core.task_kind import is_fetched
from shoal.errors import GiveUp
from shoal.worker.context import Cached
from shoal.worker.task.request_builder import RequestBuilder


async def free_cached(tasks: Sequence[Task], request_builder: RequestBuilder, cached: Cached) -> tuple[Task, ...]:
    """The same tasks, those that the cache would answer in the lanes for that."""
    chosen = [
        at
        for at, task in enumerate(tasks)
        if is_fetched(task.kind) and not task.delay and request_builder.cache_age(task.request_options)
    ]
    if not chosen:
        return tuple(tasks)
    try:
        requests = [request_builder.build(tasks[at].url, tasks[at].request_options, tasks[at].url) for at in chosen]
    except GiveUp:  # a secret that is missing here: said of the task itself when it is worked on
        return tuple(tasks)
    free = {at for at, is_cached in zip(chosen, await cached(requests), strict=True) if is_cached}
    return tuple(replace(task, lane=cache_lane(task.lane)) if at in free else task for at, task in enumerate(tasks))
