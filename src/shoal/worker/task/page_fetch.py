"""page.fetch: requests that a handler makes on its own, under the same rules as the page itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from shoal.core.page import Response
from shoal.core.retry import status_cause
from shoal.core.task import RequestOptions
from shoal.core.url import canonical, host_of
from shoal.errors import FetchFailed, FetchRefused
from shoal.extract.page import LivePageTools, Page
from shoal.politeness.response_hints import THROTTLE_STATUSES
from shoal.worker.context import RunContext
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.exchange import exchange, take_turn
from shoal.worker.task.failure import ExcludedByRule
from shoal.worker.task.handler_runner import outside_handler


def make_page_fetch(
    attempt: TaskAttempt, run_context: RunContext
) -> Callable[[str, RequestOptions | None], Awaitable[Page]]:
    """What `page.fetch` does: any answer is given back, except one that asks us to slow down."""

    async def fetch(url: str, request_options: RequestOptions | None) -> Page:
        attempt.has_fetched_more = True
        # Waiting for a slot is not the handler's time, and what is started meanwhile not its code.
        with attempt.deadline.paused(), outside_handler():
            try:
                return await _fetch_in_turn(attempt, run_context, canonical(url), request_options)
            except BaseException as error:
                # If the handler lets it through, it is not the handler's failure.
                attempt.page_fetch_errors += (error,)
                raise

    return fetch


async def _fetch_in_turn(
    attempt: TaskAttempt, run_context: RunContext, url: str, request_options: RequestOptions | None
) -> Page:
    """The task may have one request in flight: several at once take turns."""
    if not run_context.pace(attempt.lane_of(url)).max_in_flight:
        return await _fetch(attempt, run_context, url, request_options)
    if attempt.page_fetch_lock is None:
        attempt.page_fetch_lock = asyncio.Lock()
    async with attempt.page_fetch_lock:
        return await _fetch(attempt, run_context, url, request_options)


async def _fetch(
    attempt: TaskAttempt, run_context: RunContext, url: str, request_options: RequestOptions | None
) -> Page:
    try:
        turn = partial(take_turn, attempt, run_context, url)
        response = await exchange(attempt, run_context, url, request_options, turn, is_task_request=False)
        budget = run_context.budget or attempt.context.budget
        if budget is not None:
            await budget.check(response)
    except ExcludedByRule as error:
        raise FetchRefused(error.reason, str(error)) from error
    if response.status in THROTTLE_STATUSES:
        cause, _ = status_cause(response.status)
        raise FetchFailed(cause, f"{url} answered {response.status}", after=attempt.record_refusal(response))
    attempt.context.refusals.reset(attempt.lane_of(response.url))
    return build_page(attempt, run_context, response)


def build_page(
    attempt: TaskAttempt, run_context: RunContext, response: Response, live: LivePageTools | None = None
) -> Page:
    """An answer as the handler of a task sees it; live: it is open in a browser."""
    task = attempt.task
    return Page(
        response,
        meta=task.meta,
        depth=task.depth,
        run=run_context.name,
        task=task.id,
        fetch=make_page_fetch(attempt, run_context),
        live=live,
        new_circuit=partial(_new_circuit, attempt, run_context),
    )


async def _new_circuit(attempt: TaskAttempt, run_context: RunContext) -> None:
    task, exit, new_circuit = attempt.task, attempt.exit_of(run_context), attempt.context.new_circuit
    if exit and new_circuit is not None:
        request = run_context.request_builder.build(task.url, task.request_options, task.url, exit=exit)
        with attempt.deadline.paused(), outside_handler():
            await new_circuit(exit, request.session, host_of(request.url))
