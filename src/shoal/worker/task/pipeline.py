"""Pipeline: one task as one pipeline, from its slot to its outcome."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from shoal.core.capability import BROWSER
from shoal.core.celery_task import after_page, celery_entries
from shoal.core.fetch_choice import AUTO, HTTP
from shoal.core.page import Response
from shoal.core.retry import status_cause
from shoal.core.sitemap import SITEMAP, is_robots
from shoal.core.task import GARBLED, LeasedTask, OutboxEntry, Outcome, RequestOptions
from shoal.core.task_kind import BUILT_IN_PREFIX, is_fetched
from shoal.core.url import lane_of
from shoal.errors import BrowserNeeded, FetchFailed, FetchRefused, GiveUp
from shoal.extract.links import AdmittedLinks
from shoal.extract.page import Page
from shoal.extract.selection import missed_selectors
from shoal.fetch.base import Turn, VisitNotWanted
from shoal.logs import bind_lazy
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.task import slot
from shoal.worker.task.attempt import TaskAttempt, log_fields
from shoal.worker.task.auto_needs import need_browsers
from shoal.worker.task.auto_visit import AutoVisit, Single, fetch_of, visit_in_browser
from shoal.worker.task.block_check import after_block, check_page, is_unreadable, skip_blocked_way
from shoal.worker.task.browser_visit import live_tools, visit_page
from shoal.worker.task.built_in_handlers import PageFunction, page_function
from shoal.worker.task.exchange import exchange, take_slot, take_turn
from shoal.worker.task.failure import failure_outcome, is_last_attempt
from shoal.worker.task.follow_up_tasks import outbox_entries, with_keys
from shoal.worker.task.hand_on import HandedOn, hand_on
from shoal.worker.task.handler_output import HandlerOutput
from shoal.worker.task.handler_runner import HandlerDeadline, run_handler
from shoal.worker.task.page_blocked import PageBlocked
from shoal.worker.task.page_budget import begin_within_budget
from shoal.worker.task.page_counters import page_counters
from shoal.worker.task.page_fetch import build_page
from shoal.worker.task.queue_look_up import ask_queue
from shoal.worker.task.recrawl import restored
from shoal.worker.task.robots_check import check_robots
from shoal.worker.task.session_gate import check_session, enter_session, note_session_failure
from shoal.worker.task.sitemap import is_missing, read_sitemap, reading_place
from shoal.worker.task.typed_task import run_typed_task

_CONDITIONAL_HEADERS = frozenset({"if-none-match", "if-modified-since"})


async def process_task(
    task: LeasedTask, context: WorkerContext, start_at: float = 0.0, *, may_leave: bool = False
) -> Outcome:
    """Try a task once. Never raises for what the task or its handler does.

    may_leave: raise NewSlotNeeded where it would only wait, before anything has been asked for.
    """
    attempt = TaskAttempt(task, context)
    attempt.may_leave = may_leave
    # Not the attempt itself: whatever is started meanwhile keeps this for as long as it lives.
    bind_lazy(partial(log_fields, task, context))
    try:
        if task.garbled:
            raise GiveUp(GARBLED, task.garbled)
        run_context = context.known_run_context(task.run) or await context.run_context(task.run)
        attempt.run_context = run_context
        if run_context.run_budget is not None and is_fetched(task.kind):
            await begin_within_budget(attempt, run_context)
        if not is_fetched(task.kind):
            if task.spacing or run_context.jitter or context.lane_holds:
                await wait_for_slot(attempt, run_context, start_at)
            return await run_typed_task(attempt, run_context)
        if task.kind == SITEMAP:
            run_context = await enter_session(attempt, run_context)
            async with reading_place(attempt):
                turn = partial(wait_for_turn, attempt, run_context, start_at)
                response = await fetch(attempt, run_context, turn, HTTP)
                check_status(attempt, run_context, response)
                found, counted = await read_sitemap(attempt, run_context, response)
            return attempt.success_outcome(HandlerOutput(), found, counters=page_counters(attempt) | counted)
        run_context = await enter_session(attempt, run_context)
        if run_context.recrawl is not None:
            attempt.former = await run_context.recrawl.recall(task)
        output = take_unchanged(attempt, run_context, None)
        if output is None:
            output = await visit(attempt, run_context, start_at)
        found = admit_links(attempt, run_context, output)
        found = await need_browsers(attempt, run_context, await ask_queue(attempt, run_context, found))
        counters = page_counters(attempt, output) | attempt.block_counters | remember(attempt, run_context, output)
        return attempt.success_outcome(output, found, follow_ups(attempt, output), counters)
    except HandedOn as handed:
        return hand_on(attempt, handed)
    except slot.NewSlotNeeded:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not context.supervised:
            raise
        await note_session_failure(attempt, error)
        outcome = failure_outcome(attempt, error)
        if attempt.former is not None and attempt.run_context is not None and attempt.run_context.recrawl is not None:
            attempt.run_context.recrawl.remember_failed(task, attempt.former, outcome)
        return outcome
    finally:
        if attempt.live is not None:
            await attempt.live.close()
        attempt.page_fetch_errors = ()  # their frames hold the attempt, which holds the page
        bind_lazy(None)


async def wait_for_turn(attempt: TaskAttempt, run_context: RunContext, start_at: float) -> None:
    """Wait until the page may be asked for: its host is up, its slot has come, and robots.txt allows it."""
    skip_dead_host(attempt)
    if attempt.lane == attempt.task.lane:
        await wait_for_slot(attempt, run_context, start_at)
    else:  # it was in the cache when it was added, and is not any more
        await take_slot(attempt, run_context, attempt.lane)
    if attempt.task.kind != SITEMAP or not is_robots(attempt.task.url):  # robots.txt itself may always be read
        await check_robots(attempt, run_context, attempt.task.url)
    attempt.may_leave = False


def skip_dead_host(attempt: TaskAttempt) -> None:
    """No request for a host that has been down for minutes, but for a probe now and then."""
    task, context = attempt.task, attempt.context
    found = context.health.down_reason(attempt.lane, now=context.clock(), probe=task.probe)
    if found is not None:
        raise GiveUp(found.cause, found.reason)


async def wait_for_slot(attempt: TaskAttempt, run_context: RunContext, start_at: float) -> None:
    """Wait for the slot that came with the claim; whoever missed it takes a new one."""
    task, context = attempt.task, attempt.context
    is_on_time = not task.spacing or await slot.wait_until(context, start_at, task.spacing)
    if run_context.jitter and is_on_time:
        await slot.wait_for_jitter(run_context.jitter, task.spacing, run_context.pace(task.lane).spacing)
    # The host may have asked for quiet after this slot was given out.
    if attempt.may_leave and (not is_on_time or context.lane_holds.remaining(task.lane)):
        raise slot.NewSlotNeeded(task.spacing)
    if await slot.wait_for_hold(context, task.lane) or not is_on_time:
        await slot.reserve(context, task.lane, task.spacing)


async def visit(attempt: TaskAttempt, run_context: RunContext, start_at: float) -> HandlerOutput:
    """Fetch the page, with what it is to be fetched with, and see what it gives."""
    by = fetch_of(attempt, run_context)
    attempt.is_auto = by == AUTO
    by = await skip_blocked_way(attempt, run_context, by) or by
    first = partial(wait_for_turn, attempt, run_context, start_at)
    again = partial(take_turn, attempt, run_context, attempt.task.url)

    async def visit_by(by: Single) -> HandlerOutput:
        """The first request has the slot of its claim, what else is asked for takes one of its own."""
        nonlocal first
        turn, first = first, again
        try:
            return await visit_once(attempt, run_context, turn, by)
        except VisitNotWanted:
            first = turn
            raise

    try:
        return await (AutoVisit(attempt, run_context, visit_by).take() if by == AUTO else visit_by(by))
    except BrowserNeeded:
        return await visit_in_browser(attempt, run_context, visit_by)
    except PageBlocked as blocked:
        return await after_block(attempt, run_context, blocked, visit_by)


async def visit_once(attempt: TaskAttempt, run_context: RunContext, turn: Turn, by: Single) -> HandlerOutput:
    """Fetch the page in one way and let its handler read it."""
    response = await fetch(attempt, run_context, turn, by)
    await check_session(attempt, run_context, response)
    if (output := take_unchanged(attempt, run_context, response)) is not None:
        attempt.context.refusals.reset(attempt.lane_of(response.url))
        return output
    error_handler = check_status(attempt, run_context, response)
    try:
        output = await extract(attempt, run_context, response, error_handler)
    except Exception as error:
        if error_handler is None and is_unreadable(attempt, error):
            await check_page(attempt, run_context, response, None)
        raise
    if error_handler is None:
        await check_page(attempt, run_context, response, output)
    return output


def take_unchanged(attempt: TaskAttempt, run_context: RunContext, response: Response | None) -> HandlerOutput | None:
    """What the page gave in the run before, if it is the same still; no response: if that is known without asking."""
    recrawl, former = run_context.recrawl, attempt.former
    if recrawl is None or former is None or not recrawl.is_unchanged(attempt.task, former, response):
        return None
    attempt.is_unchanged = True
    output = restored(former)
    if run_context.unique:
        output.make_unique(run_context.unique)
    return output


def remember(attempt: TaskAttempt, run_context: RunContext, output: HandlerOutput) -> dict[str, int]:
    """Save what the next run needs to know of the page; says what to count."""
    recrawl, task, former, response = run_context.recrawl, attempt.task, attempt.former, attempt.response
    if recrawl is None:
        return {}
    if attempt.is_unchanged and former is not None:
        return recrawl.remember_unchanged(task, former, attempt.started_at, response)
    if response is None:
        return {}
    reusable = not (attempt.has_fetched_more or output.tasks or output.celery_tasks)
    return recrawl.remember(task, former, attempt.started_at, response, output, reusable=reusable)


async def fetch(attempt: TaskAttempt, run_context: RunContext, turn: Turn, by: Single) -> Response:
    """Exchange the task's URL for a response when it is its turn, through redirects that obey the same rules.

    What is in the cache need not wait.
    """
    task = attempt.task
    if by == BROWSER:
        attempt.response = await visit_page(attempt, run_context, turn)
        return attempt.response
    attempt.response = await exchange(attempt, run_context, task.url, task.request_options, turn, is_task_request=True)
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
        page = build_page(attempt, run_context, response, live_tools(attempt, run_context))
        func = error_handler or page_function(attempt.task.kind, run_context.scraper, page)
        if func is None:
            follow_matching(page, run_context, output)
            return output
    attempt.is_in_handler = True
    attempt.deadline = HandlerDeadline(attempt.context.clock, run_context.handler_timeout)
    try:
        await run_handler(func, page, attempt.step, output, attempt.deadline)
    except Exception:
        if not page.is_browser_needed:  # else whatever it made of that
            raise
    if page.is_browser_needed:
        raise BrowserNeeded(page.url)
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
            # Not by a later run either that finds the page unchanged.
            output.follows = [follow for follow in output.follows if follow.again]
            return AdmittedLinks(kept, (("trap", attempt.final_url),) if kept != found.tasks else ())
        return replace(found, skipped=found.skipped + output.skipped) if output.skipped else found


def follow_ups(attempt: TaskAttempt, output: HandlerOutput) -> tuple[OutboxEntry, ...]:
    """Tasks that the page's handler asked for, and the one that its run sends after each page."""
    run_context = attempt.run_context
    if not output.tasks and not output.celery_tasks and not (run_context and run_context.celery_task):
        return ()
    celery_tasks, run, task = list(output.celery_tasks), run_context.name if run_context else "", attempt.task.id
    if run_context and run_context.celery_task:
        celery_tasks.append(after_page(run_context.celery_task, run, attempt.final_url, task, output.records))
    return outbox_entries(with_keys(task, output.tasks), celery_entries(run, task, celery_tasks))


def _is_repeated_content(attempt: TaskAttempt, run_context: RunContext) -> bool:
    response = attempt.response
    if response is None:
        return False
    before = run_context.contents.times_seen(lane_of(response.url), response.body)
    return before >= run_context.max_same_content
