"""What the queue knows of links before they become tasks: which failed too often, and which pages are in the cache."""

from __future__ import annotations

from msgspec.structs import replace

from shoal.core.failing import FAILING
from shoal.extract.links import AdmittedLinks
from shoal.queue.failing import failing_tasks
from shoal.worker.context import RunContext
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.cache_lane import free_cached


async def ask_queue(attempt: TaskAttempt, run_context: RunContext, found: AdmittedLinks) -> AdmittedLinks:
    """Without URLs that failed too often before; pages in the cache wait for no slot of their hosts."""
    if run_context.skip_failing and found.tasks:
        found = await _skip_failing(attempt, run_context, found)
    if run_context.cached is None or not found.tasks:
        return found
    return replace(found, tasks=await free_cached(found.tasks, run_context.request_builder, run_context.cached))


async def _skip_failing(attempt: TaskAttempt, run_context: RunContext, found: AdmittedLinks) -> AdmittedLinks:
    failing = await failing_tasks(attempt.context.queue, found.tasks, run_context.skip_failing)
    kept = tuple(task for task in found.tasks if task.digest not in failing)
    left_out = tuple((FAILING, task.url) for task in found.tasks if task.digest in failing)
    return AdmittedLinks(kept, found.skipped + left_out)
