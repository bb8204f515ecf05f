"""A page within the budget of its run: what it may cost is set aside before its first request."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.capability import BROWSER
from shoal.core.fetch_choice import AUTO
from shoal.worker.context import RunContext
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.auto_visit import fetch_of


async def begin_within_budget(attempt: TaskAttempt, run_context: RunContext) -> None:
    """Raises TaskPostponed where too little is left for the page."""
    budget, task = run_context.run_budget, attempt.task
    if budget is not None:
        await budget.begin((task.id, task.lease), _kinds(attempt, run_context) if budget.is_limited else ())


async def extend_budget(attempt: TaskAttempt, run_context: RunContext) -> None:
    """For one more request of the page. Raises TaskPostponed likewise."""
    budget, task = run_context.run_budget, attempt.task
    if budget is not None and budget.is_limited:
        await budget.extend((task.id, task.lease), attempt.usage.cost, _kinds(attempt, run_context))


def _kinds(attempt: TaskAttempt, run_context: RunContext) -> Sequence[str]:
    """What the page may cost."""
    kinds, options = ["bytes", "cpu"], attempt.task.request_options
    is_by_proxy = bool(run_context.request_builder.proxy or (options is not None and options.proxy))
    if is_by_proxy or attempt.exit_of(run_context):
        kinds.append("proxy")
    if run_context.browser is not None and fetch_of(attempt, run_context) in (BROWSER, AUTO):
        kinds.append("browser")
    return kinds
