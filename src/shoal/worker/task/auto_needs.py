"""Found links with fetch="auto" whose pages are known to need a browser go straight to workers that have one."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.core.capability import BROWSER, capability_names
from shoal.core.fetch_choice import AUTO, label
from shoal.core.fetch_knowledge import reader_name
from shoal.core.lane import host_of_lane
from shoal.core.task import Task
from shoal.core.task_kind import handler_of, is_fetched
from shoal.extract.links import AdmittedLinks
from shoal.worker.context import RunContext
from shoal.worker.task.attempt import TaskAttempt


async def need_browsers(attempt: TaskAttempt, run_context: RunContext, found: AdmittedLinks) -> AdmittedLinks:
    """The same links; handing on each of those pages later would make two tasks of it."""
    chosen = [task for task in found.tasks if _is_for_browser(attempt, run_context, task)]
    if not chosen or not await attempt.has_browser_worker():
        return found
    changed = {id(task): replace(task, needs=capability_names({*task.needs, BROWSER})) for task in chosen}
    return replace(found, tasks=tuple(changed.get(id(task), task) for task in found.tasks))


def _is_for_browser(attempt: TaskAttempt, run_context: RunContext, task: Task) -> bool:
    own = task.request_options.fetch if task.request_options is not None else ""
    if not own and run_context.fetch != AUTO and not run_context.scraper.declares_fetch:
        return False
    if (own or run_context.scraper.fetch_of(task.url, task.kind) or run_context.fetch) != AUTO:
        return False
    if not is_fetched(task.kind) or BROWSER in task.needs or not run_context.renders:
        return False
    reader = reader_name(run_context.reader, handler_of(task.kind))
    return label(attempt.context.fetch_learning.peek(host_of_lane(task.lane), reader, task.url)) == BROWSER
