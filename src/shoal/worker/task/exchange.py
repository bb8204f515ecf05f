"""Exchange: from a URL to its response, through robots.txt and redirects, each request in a slot."""

from __future__ import annotations

from functools import partial

import msgspec

from shoal.core.lane import host_of_lane
from shoal.core.page import Response
from shoal.core.task import RequestOptions
from shoal.core.url import resolve
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.base import Turn, fetch_in_turn
from shoal.worker.context import RunContext
from shoal.worker.task import slot
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.failure import ExcludedByRule
from shoal.worker.task.page_budget import extend_budget
from shoal.worker.task.request_builder import options_after_redirect
from shoal.worker.task.robots_check import check_robots, refuse_disallowed

_REDIRECTS = frozenset((301, 302, 303, 307, 308))


class RequestTurn:
    """What a request waits for before it is sent, once; whoever has the response already does not ask for it."""

    __slots__ = ("_wait", "is_over")

    def __init__(self, wait: Turn) -> None:
        self._wait = wait
        self.is_over = False

    async def __call__(self) -> None:
        await self._wait()
        self.is_over = True


async def exchange(
    attempt: TaskAttempt,
    run_context: RunContext,
    url: str,
    request_options: RequestOptions | None,
    turn: Turn,
    *,
    is_task_request: bool,
) -> Response:
    """The final response. turn: the slot of `url` itself, and what else it waits for; a hit of the cache needs none.

    is_task_request: not by page.fetch.
    """
    requested_url = url
    redirects: list[str] = []
    exit = attempt.exit_of(run_context)
    if not is_task_request:
        await extend_budget(attempt, run_context)
    seen: set[str] = set()
    request_builder, fetcher = run_context.request_builder, run_context.fetcher or attempt.context.fetcher
    while True:
        waiting = RequestTurn(turn)
        if not request_builder.cache_age(request_options):
            await waiting()  # before it is built: cookies may come meanwhile
        request = request_builder.build(url, request_options, requested_url, by_code=not is_task_request, exit=exit)
        if is_task_request and attempt.former is not None and run_context.recrawl is not None:
            request = run_context.recrawl.with_validators(request, attempt.former)
        try:
            response = await (fetcher.fetch(request) if waiting.is_over else fetch_in_turn(fetcher, request, waiting))
        except FetchRefused as error:
            attempt.usage.add_failure(fetcher_name(attempt, run_context), error)
            raise
        except FetchFailed as error:
            attempt.usage.add_failure(fetcher_name(attempt, run_context), error)
            if error.cause == "exit":
                attempt.record_exit_failure(attempt.lane_of(url), error)
            elif waiting.is_over:  # else no request was sent
                attempt.record_no_response(attempt.lane_of(url), error.cause)
            raise
        if response.cache == "hit":
            refuse_disallowed(attempt, run_context, url)
        else:
            attempt.usage.add_response(fetcher_name(attempt, run_context), response)
            attempt.record_response(response)
        if is_task_request:
            attempt.request, attempt.response = request, response
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
        if is_task_request and attempt.task.parent is not None:
            check_scope(attempt, run_context, url)
        turn = partial(take_turn, attempt, run_context, url)


def fetcher_name(attempt: TaskAttempt, run_context: RunContext) -> str:
    """As its requests are counted by."""
    return getattr(run_context.fetcher or attempt.context.fetcher, "name", "http")


def _redirect_target(url: str, location: str, seen: set[str]) -> str:
    target = resolve(url, location)
    if target is None:
        raise FetchRefused("redirects", f"{url} redirects to {location[:200]!r}, which cannot be fetched")
    if target in seen:
        raise FetchRefused("redirects", f"{url} redirects back to {target}")
    return target


def check_scope(attempt: TaskAttempt, run_context: RunContext, url: str) -> None:
    """A redirect of a page that was found leads to where links may lead."""
    lane = attempt.lane_of(url)
    if lane != attempt.lane and not run_context.in_scope(host_of_lane(lane)):
        raise ExcludedByRule("scope", f"it redirects to {host_of_lane(lane)}, which is out of scope")


async def take_turn(attempt: TaskAttempt, run_context: RunContext, url: str) -> None:
    """Everything that must be in order before one more request than the claim came with is sent."""
    await take_slot(attempt, run_context, attempt.lane_of(url))
    await check_robots(attempt, run_context, url)


async def take_slot(attempt: TaskAttempt, run_context: RunContext, lane: str) -> None:
    """A slot for a request that the claim did not come with one for."""
    task = attempt.task
    if lane != task.lane:
        await slot.reserve_other_lane(attempt.context, lane, run_context.pace(lane))
    elif await slot.wait_for_hold(attempt.context, lane) or task.spacing:
        await slot.reserve(attempt.context, lane, task.spacing)
