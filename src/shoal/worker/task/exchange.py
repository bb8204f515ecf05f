"""Exchange: from a URL to its response, through robots.txt and redirects, each request in a slot."""

from __future__ import annotations

import msgspec

from shoal.core.lane import host_of_lane
from shoal.core.page import Response
from shoal.core.task import RequestOptions
from shoal.core.url import resolve
from shoal.errors import FetchFailed, FetchRefused
from shoal.worker.context import RunContext
from shoal.worker.task import slot
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.failure import ExcludedByRule
from shoal.worker.task.request_builder import options_after_redirect
from shoal.worker.task.robots_check import check_robots

_REDIRECTS = frozenset((301, 302, 303, 307, 308))


async def exchange(
    attempt: TaskAttempt,
    run_context: RunContext,
    url: str,
    request_options: RequestOptions | None,
    *,
    is_task_request: bool,
) -> Response:
    """The final response; the slot for `url` itself is the caller's. is_task_request: not by page.fetch."""
    requested_url = url
    redirects: list[str] = []
    seen: set[str] = set()
    request_builder, fetch = (run_context.request_builder, (run_context.fetcher or attempt.context.fetcher).fetch)
    while True:
        request = request_builder.build(url, request_options, requested_url, by_code=not is_task_request)
        if is_task_request and attempt.former is not None and run_context.recrawl is not None:
            request = run_context.recrawl.with_validators(request, attempt.former)
        try:
            response = await fetch(request)
        except FetchFailed as error:
            attempt.record_no_response(attempt.lane_of(url), error.cause)
            raise
        attempt.record_response(response)
        if is_task_request:
            attempt.response = response
        new_cookies = request_builder.store_cookies(response, request_options)
        location = response.header("location") if response.status in _REDIRECTS else ""
        if not location:
            return msgspec.structs.replace(response, redirects=tuple(redirects)) if redirects else response
        seen.add(url)
        if new_cookies:
            seen.clear()  # the same URL may answer differently now
        redirects.append(url)
        url = _redirect_target(url, location, seen)
        if len(redirects) > run_context.max_redirects:
            raise FetchRefused("redirects", f"more than {run_context.max_redirects} redirects")
        request_options = options_after_redirect(request_options, response.status)
        await _prepare_redirect(
            attempt, run_context, url, check_scope=is_task_request and attempt.task.parent is not None
        )


def _redirect_target(url: str, location: str, seen: set[str]) -> str:
    target = resolve(url, location)
    if target is None:
        raise FetchRefused("redirects", f"{url} redirects to {location[:200]!r}, which cannot be fetched")
    if target in seen:
        raise FetchRefused("redirects", f"{url} redirects back to {target}")
    return target


async def _prepare_redirect(attempt: TaskAttempt, run_context: RunContext, url: str, *, check_scope: bool) -> None:
    """Everything that must be in order before a redirect is followed."""
    lane = attempt.lane_of(url)
    if check_scope and lane != attempt.task.lane and not run_context.in_scope(host_of_lane(lane)):
        raise ExcludedByRule("scope", f"it redirects to {host_of_lane(lane)}, which is out of scope")
    await take_slot(attempt, run_context, lane)
    await check_robots(attempt, run_context, url)


async def take_slot(attempt: TaskAttempt, run_context: RunContext, lane: str) -> None:
    """A slot for one more request than the claim came with."""
    task = attempt.task
    if lane != task.lane:
        await slot.reserve_other_lane(attempt.context, lane, run_context.pace(lane))
    elif await slot.wait_for_hold(attempt.context, lane) or task.spacing:
        await slot.reserve(attempt.context, lane, task.spacing)
