"""Pipeline: one task as one pipeline, from its slot to its outcome."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from shoal.core.page import Response
from shoal.core.retry import status_cause
from shoal.core.sitemap import SITEMAP, is_robots
from shoal.core.task import LeasedTask, OutboxEntry, Outcome, RequestOptions
from shoal.core.task_kind import BUILT_IN_PREFIX, is_fetched
from shoal.core.url import lane_of
from shoal.errors import FetchFailed, FetchRefused, GiveUp
from shoal.extract.links import AdmittedLinks
from shoal.extract.page import Page
from shoal.extract.selection import missed_selectors
from shoal.logs import bind_lazy
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.task import slot
from shoal.worker.task.attempt import TaskAttempt, log_fields
from shoal.worker.task.built_in_handlers import PageFunction, page_function
from shoal.worker.task.exchange import exchange
from shoal.worker.task.failure import failure_outcome, is_last_attempt
from shoal.worker.task.follow_up_tasks import outbox_entries, with_keys
from shoal.worker.task.handler_output import HandlerOutput
from shoal.worker.task.handler_runner import HandlerDeadline, run_handler
from shoal.worker.task.page_counters import page_counters
from shoal.worker.task.page_fetch import build_page
from shoal.worker.task.robots_check import check_robots
from shoal.worker.task.sitemap import is_missing, read_sitemap
from shoal.worker.task.typed_task import run_typed_task

_CONDITIONAL_HEADERS = frozenset({"if-none-match", "if-modified-since"})


async def process_task(task: LeasedTask, context: WorkerContext, start_at: float = 0.0) -> Outcome:
    """Try a task once. Never raises for what the task or its handler does."""
    attempt = TaskAttempt(task, context)
    # Not the attempt itself: whatever is started meanwhile keeps this for as long as it lives.
    bind_lazy(partial(log_fields, task, context))
    try:
        run_context = context.known_run_context(task.run) or await context.run_context(task.run)
        attempt.run_context = run_context
        if not is_fetched(task.kind):
            if task.spacing or run_context.jitter or context.lane_holds:
                await wait_for_slot(attempt, run_context, start_at)
            return await run_typed_task(attempt, run_context)
        skip_dead_host(attempt)
        await wait_for_slot(attempt, run_context, start_at)
        if task.kind != SITEMAP or not is_robots(task.url):  # robots.txt itself may always be read
            await check_robots(attempt, run_context, task.url)
        response = await fetch(attempt, run_context)
        error_handler = check_status(attempt, run_context, response)
        if task.kind == SITEMAP:
            found, counted = await read_sitemap(attempt, run_context, response)
            return attempt.success_outcome(HandlerOutput(), found, counters=page_counters(attempt) | counted)
        output = await extract(attempt, run_context, response, error_handler)
        found = admit_links(attempt, run_context, output)
        return attempt.success_outcome(output, found, follow_ups(attempt, output), page_counters(attempt, output))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not context.supervised:
            raise
        return failure_outcome(attempt, error)
    finally:
        attempt.page_fetch_errors = ()  # their frames hold the attempt, which holds the page
        bind_lazy(None)


def skip_dead_host(attempt: TaskAttempt) -> None:
    """No request for a host that has been down for minutes, but for a probe now and then."""
    task, context = attempt.task, attempt.context
    found = context.health.down_reason(task.lane, now=context.clock(), probe=task.probe)
    if found is not None:
        raise GiveUp(found.cause, found.reason)


async def wait_for_slot(attempt: TaskAttempt, run_context: RunContext, start_at: float) -> None:
    """Wait for the slot that came with the claim; whoever missed it takes a new one."""
    task, context = attempt.task, attempt.context
    is_on_time = not task.spacing or await slot.wait_until(context, start_at, task.spacing)
    if run_context.jitter and is_on_time:
        await slot.wait_for_jitter(run_context.jitter, task.spacing, run_context.pace(task.lane).spacing)
    # The host may have asked for quiet after this slot was given out.
    if await slot.wait_for_hold(context, task.lane) or not is_on_time:
        await slot.reserve(context, task.lane, task.spacing)


async def fetch(attempt: TaskAttempt, run_context: RunContext) -> Response:
    """Exchange the task's URL for a response, through redirects that obey the same rules."""
    task = attempt.task
    attempt.response = await exchange(attempt, run_context, task.url, task.request_options, is_task_request=True)
    return attempt.response


def check_status(attempt: TaskAttempt, run_context: RunContext, response: Response) -> PageFunction | None:
    """Go on with a good answer, or with a final bad one that has a handler; let a bad one teach its lane."""
    status = response.status
    if 200 <= status < 300 or (status == 304 and _is_conditional(attempt.task.request_options)):
        attempt.context.refusals.reset(attempt.lane_of(response.url))
        return None
    if is_missing(attempt, response):
        return None
    retry_after = attempt.record_refusal(response)
    cause, retryable = status_cause(status)
    if not attempt.task.kind.startswith(BUILT_IN_PREFIX):
        error_handler = run_context.scraper.error_handler_for(status)
        if error_handler is not None and is_last_attempt(attempt, cause, retry_after):
            return error_handler
    if retryable:
        raise FetchFailed(cause, f"the server answered {status}", after=retry_after)
    raise FetchRefused(cause, f"the server answered {status}")


def _is_conditional(request_options: RequestOptions | None) -> bool:
    """Whether "not modified" is one of the answers that were asked for."""
    return request_options is not None and any(
        name.lower() in _CONDITIONAL_HEADERS for name, _ in request_options.headers
    )


async def extract(
    attempt: TaskAttempt, run_context: RunContext, response: Response, error_handler: PageFunction | None = None
) -> HandlerOutput:
    """Let the scraper's code, or a built-in handler, take from the page what it wants."""
    output, budget = HandlerOutput(), run_context.budget or attempt.context.budget
    if budget is not None and len(response.body) > budget.unchecked_size:
        await budget.check(response)
    with attempt.step:
        page = build_page(attempt, run_context, response)
        func = error_handler or page_function(attempt.task.kind, run_context.scraper, page)
        if func is None:
            follow_matching(page, run_context, output)
            return output
    attempt.is_in_handler = True
    attempt.deadline = HandlerDeadline(attempt.context.clock, run_context.handler_timeout)
    await run_handler(func, page, attempt.step, output, attempt.deadline)
    for follow in output.follows:
        if follow.handler:
            run_context.scraper.named_handler(follow.handler)  # says what is wrong while it is the handler's failure
    if run_context.unique:
        output.make_unique(run_context.unique)
    attempt.is_in_handler = False
    output.missed = missed_selectors(page)
    return output


def follow_matching(page: Page, run_context: RunContext, output: HandlerOutput) -> None:
    """Of a page without a handler: the links to pages that have one, and which have none."""
    scraper, urls = run_context.scraper, page.links()
    output.add_follows(scraper.default_follow(page))
    output.links = len(urls)
    unhandled = (url for url in urls if not scraper.matches(url))
    output.skipped = run_context.links.note_unhandled(unhandled, origin_url=page.url)


def admit_links(attempt: TaskAttempt, run_context: RunContext, output: HandlerOutput) -> AdmittedLinks:
    """Which of the links are worth a task."""
    task, follows = attempt.task, output.follows
    with attempt.step:
        again = task.request_options.again if task.request_options is not None else 0
        found = run_context.links.admit(
            follows, depth=task.depth, parent=task.id, origin_url=attempt.final_url, again=again
        )
        if found.tasks and run_context.max_same_content and _is_repeated_content(attempt, run_context):
            # A trap that gives the same page under ever new URLs; what is asked for again may well be the same.
            kept = tuple(it for it in found.tasks if it.request_options is not None and it.request_options.again)
            return AdmittedLinks(kept, (("trap", attempt.final_url),) if kept != found.tasks else ())
        return replace(found, skipped=found.skipped + output.skipped) if output.skipped else found


def follow_ups(attempt: TaskAttempt, output: HandlerOutput) -> tuple[OutboxEntry, ...]:
    """Typed tasks that the page's handler asked for."""
    return outbox_entries(with_keys(attempt.task.id, output.tasks)) if output.tasks else ()


def _is_repeated_content(attempt: TaskAttempt, run_context: RunContext) -> bool:
    response = attempt.response
    if response is None:
        return False
    before = run_context.contents.times_seen(lane_of(response.url), response.body)
    return before >= run_context.max_same_content
