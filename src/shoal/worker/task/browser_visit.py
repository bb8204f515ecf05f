"""Visits by a browser: a task's page as it is open there, from its turn until its handler has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from shoal.core.browser_step import BrowserStep, read_steps
from shoal.core.capability import BROWSER
from shoal.core.page import Request, Response
from shoal.core.task import LaneChange
from shoal.errors import FetchFailed, FetchRefused, GiveUp, Retry, UsageError
from shoal.extract.memory_limit import measure_again
from shoal.extract.page import LivePageTools, Page
from shoal.fetch.base import LivePage, Turn, VisitRequest
from shoal.queue.captures import Capture, save_capture
from shoal.worker.context import CaptureBudget, RunContext
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.exchange import check_scope, take_turn
from shoal.worker.task.handler_runner import outside_handler
from shoal.worker.task.page_fetch import build_page
from shoal.worker.task.request_builder import options_after_redirect, session_of
from shoal.worker.task.slot import NewSlotNeeded

SEE_OTHER = 303
T = TypeVar("T")


async def visit_page(attempt: TaskAttempt, run_context: RunContext, turn: Turn) -> Response:
    """Open the task's page; it stays open until the attempt is over."""
    task, options, builder = attempt.task, attempt.task.request_options, run_context.request_builder
    if run_context.browser is None:
        raise Retry(BROWSER, "this page is fetched by a browser, and this worker has none")
    if attempt.may_leave and attempt.context.lane_holds.remaining(task.lane):
        raise NewSlotNeeded(task.spacing)
    # From here on it waits for a slot with its tab open: to open one takes longer than a slot lasts, so that whoever
    # gave up both for another slot would never come to an end.
    attempt.may_leave = False
    navigations, exit = 0, attempt.exit_of(run_context)
    first: Request | None = None

    async def navigate(url: str) -> Request:
        """Robots and pace hold for whatever the page itself is replaced by, too."""
        nonlocal navigations, first
        navigations += 1
        if navigations == 1:
            await turn()
            first = builder.build(url, options, task.url, exit=exit)
            return first
        if navigations > run_context.max_redirects + 1:
            raise FetchRefused("redirects", f"more than {run_context.max_redirects} redirects")
        if task.parent is not None:
            check_scope(attempt, run_context, url)
        await take_turn(attempt, run_context, url)
        return builder.build(url, options_after_redirect(options, SEE_OTHER), task.url, exit=exit)

    own_steps = options.steps if options is not None else ()
    steps = own_steps or run_context.scraper.fetching_of(task.url, task.kind).steps or run_context.steps
    identity = builder.identity(task.url, options)
    owner = (run_context.name, session_of(options)) if identity is None else (identity.key,)
    request = VisitRequest(
        task.url,
        navigate,
        _checked_steps(steps),
        session="\0".join((*owner, exit, options.proxy if options else "")),
        cookies=builder.session_cookies(task.url, options),
        storage=identity.storage if identity is not None else {},
        counts_subrequests=run_context.counts_subrequests and bool(task.spacing),
        is_wanted=attempt.wants_browser,
        usage=attempt.usage.begin_visit(),
    )
    try:
        live = await run_context.browser.visit(request)
    except FetchFailed as error:
        if error.cause == "exit":
            attempt.record_exit_failure(attempt.lane_of(task.url), error)
        elif navigations and error.cause != BROWSER:
            attempt.record_no_response(attempt.lane_of(task.url), error.cause)
        raise
    measure_again()  # to start a browser takes libraries and threads
    attempt.live = live
    attempt.usage.add_rendered(live.response)
    attempt.record_response(live.response)
    if run_context.record_rendered is not None and first is not None:
        await run_context.record_rendered(first, live.response)
    hold_for_subrequests(attempt, 0)
    return live.response


def hold_for_subrequests(attempt: TaskAttempt, before: int) -> None:
    """Let what the open page has loaded from its own host count against the host's pace.

    before: as many were known already. The longest hold of an attempt is the one that counts.
    """
    count = attempt.live.subrequests if attempt.live is not None else 0
    if count > before:
        wait = count * attempt.task.spacing
        attempt.add_lane_change(LaneChange(attempt.lane, hold_for=wait, reason="what its pages load"))


def _checked_steps(lines: Sequence[str]) -> tuple[BrowserStep, ...]:
    """Steps that came with a task or a run: whoever can write to the queue is a stranger."""
    try:
        return read_steps(lines)
    except UsageError as error:
        raise GiveUp("bad_request", str(error)) from error


def live_tools(attempt: TaskAttempt, run_context: RunContext) -> LivePageTools | None:
    """For the handler of a page that is open in a browser, or was when it was saved."""
    if attempt.live is None:
        is_saved = not run_context.renders and attempt.response is not None and attempt.response.was_rendered
        return SavedPageOfHandler() if is_saved else None
    tools = LivePageOfHandler(
        attempt.live, attempt, lambda response: build_page(attempt, run_context, response, tools), run_context.captures
    )
    return tools


class LivePageOfHandler:
    """What a handler can ask of its page: the time is its own, what goes wrong is the page's failure."""

    def __init__(
        self, live: LivePage, attempt: TaskAttempt, page_of: Callable[[Response], Page], budget: CaptureBudget
    ) -> None:
        self._live = live
        self._attempt = attempt
        self._page_of = page_of
        self._budget = budget
        self._captures = 0

    @property
    def console_errors(self) -> Sequence[str]:
        return self._live.console_errors

    async def perform(self, steps: Sequence[Any]) -> Page:
        checked = read_steps(steps)
        return self._page_of(await self._ask(partial(self._live.perform, checked)))

    async def responses(self, pattern: str) -> list[Page]:
        return [self._page_of(answer) for answer in await self._ask(partial(self._live.responses, pattern))]

    async def screenshot(self, *, full_page: bool) -> bytes:
        image = await self._ask(partial(self._live.screenshot, full_page=full_page))
        await self._keep(Capture("image/png", image))
        return image

    async def pdf(self) -> bytes:
        file = await self._ask(self._live.pdf)
        await self._keep(Capture("application/pdf", file))
        return file

    async def _keep(self, capture: Capture) -> None:
        """The first ones of a run, for its task pages."""
        if self._budget.left <= 0:
            return
        attempt = self._attempt
        with attempt.deadline.paused(), outside_handler():
            if await save_capture(attempt.context.queue, attempt.task.id, self._captures, capture):
                self._captures += 1
                self._budget.left -= 1

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        self._attempt.has_fetched_more = True  # what is yielded depends on more than the page as it came
        before = self._live.subrequests
        with self._attempt.deadline.paused(), outside_handler():
            try:
                return await call()
            except BaseException as error:
                self._attempt.page_fetch_errors += (error,)
                raise
            finally:
                hold_for_subrequests(self._attempt, before)


class SavedPageOfHandler:
    """A page that was saved as a browser gave it: nothing more can be asked of it."""

    @property
    def console_errors(self) -> Sequence[str]:
        raise _not_open()

    async def perform(self, steps: Sequence[Any]) -> Page:
        raise _not_open()

    async def responses(self, pattern: str) -> list[Page]:
        raise _not_open()

    async def screenshot(self, *, full_page: bool) -> bytes:
        raise _not_open()

    async def pdf(self) -> bytes:
        raise _not_open()


def _not_open() -> UsageError:
    return UsageError(
        "this page was saved as it was read, and is not open in a browser any more",
        hint="fetch it again for further steps, captures and what its scripts loaded",
    )
