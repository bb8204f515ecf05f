"""Visits with fetch="auto": a page by HTTP, by a browser, or by both to see whether HTTP is enough.

known of its shape        what is done
nothing                   both, one page of the shape at a time
HTTP is enough            HTTP; both now and then, and if it gives far less than usual
it needs a browser        browser; both now and then
no browser in the fleet   HTTP

Exactly one result is recorded: the browser's, where HTTP lacks something. Nothing is learned unless both succeeded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from shoal.core.capability import BROWSER
from shoal.core.fetch_choice import AUTO, HTTP, Compared, Label, PageSize, PageTaken, Way, choose, is_suspicious, label
from shoal.core.fetch_knowledge import reader_name
from shoal.core.lane import host_of_lane
from shoal.core.page import Response
from shoal.core.page_yield import PageYield, covers, difference, filled_share, page_yield
from shoal.core.task_kind import handler_of, is_aside
from shoal.core.url import Resolver
from shoal.errors import BrowserNeeded, FetchFailed, FetchRefused, GiveUp, Retry
from shoal.fetch.base import VisitNotWanted, always_wanted
from shoal.worker.context import RunContext
from shoal.worker.fetch_learning import ShapeFound
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.hand_on import HandedOn
from shoal.worker.task.handler_output import HandlerOutput, encode_json
from shoal.worker.task.page_blocked import PageBlocked

Single = Literal["http", "browser"]
VisitBy = Callable[[Single], Awaitable[HandlerOutput]]

ASKED_FOR = "its handler asked for one"


def fetch_of(attempt: TaskAttempt, run_context: RunContext) -> Literal["http", "browser", "auto"]:
    """With what a task's page is fetched: as it says itself, or its handler, or its run."""
    task, options = attempt.task, attempt.task.request_options
    if is_aside(task.kind) or not run_context.renders:
        return HTTP
    own = options.fetch if options is not None else ""
    found = own or run_context.scraper.fetch_of(task.url, task.kind) or run_context.fetch
    if found == BROWSER:
        return BROWSER
    is_get = options is None or (options.method == "GET" and options.body is None)
    return AUTO if found == AUTO and is_get else HTTP


async def visit_in_browser(attempt: TaskAttempt, run_context: RunContext, visit_by: VisitBy) -> HandlerOutput:
    """Go on with a page whose handler cannot read it as HTTP gave it."""
    if not run_context.renders:
        raise GiveUp(BROWSER, f"{ASKED_FOR}, and a saved page cannot be read in one")
    attempt.start_over()
    if run_context.browser is None:
        raise HandedOn(ASKED_FOR, BROWSER)
    attempt.fetched_by = f"{BROWSER}: {ASKED_FOR}"
    return await visit_by(BROWSER)


class AutoVisit:
    """One page of a run with fetch="auto"."""

    def __init__(self, attempt: TaskAttempt, run_context: RunContext, visit_by: VisitBy) -> None:
        self._attempt = attempt
        self._run_context = run_context
        self._visit_by = visit_by
        self._learning = attempt.context.fetch_learning
        self._host = host_of_lane(attempt.lane)
        self._reader = reader_name(run_context.reader, handler_of(attempt.task.kind))
        self._found: ShapeFound

    async def take(self) -> HandlerOutput:
        await self._look_up()
        if label(self._found.state):
            return await self._take(choose(self._found.state))
        if not await self._can_compare():
            return await self._take_without_browser()
        alone = self._learning.alone(self._host, self._found.key)
        if alone is None:
            return await self._take("compare")
        async with alone:
            await self._look_up()
            if not label(self._found.state):
                return await self._take("compare")
        return await self._take(choose(self._found.state))

    async def _look_up(self) -> None:
        self._found = await self._learning.find(self._host, self._reader, self._attempt.task.url)

    @property
    def _shape(self) -> str:
        return self._found.key[1]

    @property
    def _label(self) -> Label:
        return label(self._found.state)

    async def _can_compare(self) -> bool:
        """Whether this worker has a browser; without one, raises what hands the page on to a worker that has."""
        if self._run_context.browser is not None:
            return True
        if await self._attempt.has_browser_worker():
            raise HandedOn(f"nothing is known yet of pages like {self._shape}")
        return False

    async def _take(self, way: Way) -> HandlerOutput:
        if self._run_context.browser is None:
            if self._label == BROWSER and await self._attempt.has_browser_worker():
                raise HandedOn(f"pages like {self._shape} need one")
            return await self._take_without_browser() if self._label == BROWSER else await self._take_by_http()
        if way == BROWSER:
            return await self._take_by_browser()
        if way == HTTP:
            return await self._take_by_http()
        return await self._compare()

    async def _take_without_browser(self) -> HandlerOutput:
        self._attempt.fetched_by = f"{HTTP}: no worker has a browser"
        self._attempt.auto_count = "no_browser"
        return await self._visit_by(HTTP)

    async def _take_by_browser(self) -> HandlerOutput:
        self._attempt.fetched_by = f"{BROWSER}: pages like {self._shape} need it"
        self._attempt.auto_count = BROWSER
        self._attempt.wants_browser = self._still_needs_browser
        try:
            output = await self._visit_by(BROWSER)
        except VisitNotWanted:
            self._attempt.wants_browser = always_wanted  # a comparison is called off by nothing
            await self._look_up()
            return await self._take(choose(self._found.state))
        finally:
            self._attempt.wants_browser = always_wanted
        if self._is_lesson():
            await self._add(PageTaken(BROWSER, _size(output)))
        return output

    def _still_needs_browser(self) -> bool:
        """Many pages may wait for a browser while two comparisons turn a verdict."""
        return label(self._learning.peek(self._host, self._reader, self._attempt.task.url)) == BROWSER

    async def _take_by_http(self) -> HandlerOutput:
        attempt, state = self._attempt, self._found.state
        attempt.fetched_by = f"{HTTP}: pages like {self._shape} are complete without a browser"
        attempt.auto_count = HTTP
        try:
            output = await self._visit_by(HTTP)
        except Exception as error:  # a handler may raise anything on a page that is not as it was
            if not self._is_of_handler(error) or not await self._attempt.has_browser_worker():
                raise
            return await self._after_odd_page(None, f"its handler failed on the page by HTTP ({type(error).__name__})")
        if attempt.is_unchanged or not self._is_lesson():
            return output
        size = _size(output)
        is_odd = is_suspicious(state, size)
        if is_odd and not state.quiet and await self._attempt.has_browser_worker():
            return await self._after_odd_page(output, "it gave far less than such pages usually do")
        await self._add(PageTaken(HTTP, size, is_let_through=is_odd))
        return output

    async def _after_odd_page(self, output: HandlerOutput | None, reason: str) -> HandlerOutput:
        """A page that HTTP was enough for, and now it may not be."""
        if self._run_context.browser is None:
            raise HandedOn(reason)
        return await self._compare_with(output, self._attempt.response, reason, is_odd=True)

    async def _compare(self) -> HandlerOutput:
        attempt = self._attempt
        self._learning.begin_comparison(self._host, self._found.key)
        # As the page is now: "not modified" would be compared with what an earlier run had.
        former, attempt.former = attempt.former, None
        try:
            output = await self._try_http()
        finally:
            attempt.former = former
        if output is not None and not self._is_good() and self._label != BROWSER:
            return output  # of an error handler: a browser would be told the same
        return await self._compare_with(output, attempt.response if output is not None else None, "")

    async def _try_http(self) -> HandlerOutput | None:
        """What HTTP gives; None where it gives nothing that can be compared, and the browser may still do."""
        try:
            return await self._visit_by(HTTP)
        except (FetchFailed, FetchRefused):
            if self._label != BROWSER or self._attempt.is_in_handler:
                raise
        except Exception as error:  # as above
            if not self._is_of_handler(error):
                raise
        return None

    async def _compare_with(
        self, output: HandlerOutput | None, response: Response | None, reason: str, *, is_odd: bool = False
    ) -> HandlerOutput:
        """Fetch the page by the browser, too; what HTTP gave is kept where that is not less."""
        attempt = self._attempt
        by_http = None if output is None or not self._is_lesson() else self._yield_of(output)
        attempt.start_over()
        attempt.auto_count = "compared"
        try:
            rendered = await self._visit_by(BROWSER)
        except Exception as error:  # as above
            is_failed = isinstance(error, FetchFailed | FetchRefused | PageBlocked) or self._is_of_handler(error)
            # Where HTTP is known to be enough, or gave records, a browser that fails takes nothing away.
            if not is_failed or output is None or response is None or (self._label != HTTP and not output.records):
                raise
            attempt.take_back(response, f"{HTTP}: the browser failed ({getattr(error, 'cause', type(error).__name__)})")
            return output
        if by_http is None or output is None or not self._is_lesson():
            attempt.fetched_by = f"{BROWSER}: {reason or 'HTTP gave nothing to compare with'}"
            return rendered
        by_browser = self._yield_of(rendered)
        is_enough = covers(by_http, by_browser)
        attempt.fetched_by = f"both ways: HTTP {'has all' if is_enough else 'lacks ' + difference(by_http, by_browser)}"
        kept = output if is_enough else rendered
        await self._add(Compared(is_enough, _size(kept), attempt.context.wall_clock(), was_suspicious=is_odd))
        if is_enough and response is not None:
            attempt.take_back(response, attempt.fetched_by)
        return kept

    def _is_of_handler(self, error: Exception) -> bool:
        """Whether the user's code failed on the page: not for what it fetched itself, and not by its own decision."""
        return self._attempt.is_in_handler and not isinstance(error, Retry | GiveUp | MemoryError | BrowserNeeded)

    def _is_lesson(self) -> bool:
        """Whether the last response teaches something: it is a good one, and new."""
        response = self._attempt.response
        return self._is_good() and response is not None and response.cache != "hit"

    def _is_good(self) -> bool:
        response = self._attempt.response
        return response is not None and 200 <= response.status < 300

    async def _add(self, lesson: PageTaken | Compared) -> None:
        await self._learning.add(self._host, self._found.key, lesson)

    def _yield_of(self, output: HandlerOutput) -> PageYield:
        """Records, tasks and links as they can be compared."""
        rewrite = self._run_context.rewrite
        urls = (
            url
            for follow in output.follows
            for url in map(Resolver(follow.base).resolve, follow.hrefs)
            if url is not None
        )
        tasks = [encode_json(msgspec.to_builtins(task)) for task in (*output.tasks, *output.celery_tasks)]
        return page_yield([*output.records, *tasks], map(rewrite, urls) if rewrite else urls)


def _size(output: HandlerOutput) -> PageSize:
    links = sum(len(follow.hrefs) for follow in output.follows)
    return PageSize(len(output.records), links, filled_share(output.records))
