"""Cached starts: start URLs whose pages are in the cache wait for no slot of their hosts.

A hint, from the settings of the run alone: where its scraper asks differently, its pages wait like any others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from shoal.config.load import Settings
from shoal.config.run_settings import SETTINGS_KEY, settings_for_run
from shoal.core.cache_rules import cache_key, is_fresh, is_shareable_request
from shoal.core.lane import DIRECT, cache_lane, session_of_lane
from shoal.core.page import Request
from shoal.core.request_header import parse_header_line
from shoal.core.run import Run
from shoal.core.task import Task, is_plain
from shoal.core.task_kind import is_fetched
from shoal.errors import ShoalError
from shoal.queue.base import MAX_CACHE_KEYS, Cache

FreeCached = Callable[[Sequence[Task]], Awaitable[list[Task]]]


def free_cached_starts(queue: Cache, settings: Settings) -> FreeCached:
    """Tasks as they are added: those that the cache would answer in lanes without a pace."""
    headers = tuple(parse_header_line(line) for line in settings.header)
    asked = settings.cache_age
    is_off = not asked or settings.proxy or settings.auth or not is_shareable_request(Request("", headers=headers))

    async def free(tasks: Sequence[Task]) -> list[Task]:
        chosen = {
            cache_key(Request(task.url, headers=headers, exit=_exit(task)), settings.user_agent): at
            for at, task in enumerate(tasks)
            if not is_off
            and is_fetched(task.kind)
            and is_plain(task.request_options)
            and not session_of_lane(task.lane)
            and not task.delay
        }
        freed, keys = list(tasks), list(chosen)
        try:
            for first in range(0, len(keys), MAX_CACHE_KEYS):
                for entry in await queue.cache_get(keys[first : first + MAX_CACHE_KEYS], bodies=False):
                    if entry is not None and is_fresh(entry.age, entry.fresh_for, asked):
                        task = freed[chosen[entry.key]]
                        freed[chosen[entry.key]] = replace(task, lane=cache_lane(task.lane))
        except ShoalError:  # a cache can be done without
            return list(tasks)
        return freed

    return free


def _exit(task: Task) -> str:
    exit = task.request_options.exit if task.request_options is not None else ""
    return "" if exit == DIRECT else exit


def free_cached_of(queue: Cache, run: Run) -> FreeCached | None:
    """The same by what a run was started with; None: it has no cache."""
    given = run.spec.get(SETTINGS_KEY)
    if not isinstance(given, dict) or not given.get("cache") or given.get("proxy"):
        return None
    return free_cached_starts(queue, settings_for_run(Settings(), run))
