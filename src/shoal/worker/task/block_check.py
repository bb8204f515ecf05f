"""Block check: whether a page with status 200 is the one that was asked for, and what is done if it is not.

good      its handler's records and links count
odd       it goes back to the queue at no cost, and is asked for a second time before anything is decided
block     nothing of it counts; by rule a browser or another exit asks for it, or its host is left alone for a while

Where the rule is to notice them, pages count as they are, nothing is asked for again, and block pages are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal
from urllib.parse import urlsplit

from shoal.core.block_page import BlockPage
from shoal.core.block_rule import BY_BROWSER, NOTICE, OFF, PARK, exit_of_rule
from shoal.core.capability import BROWSER
from shoal.core.fetch_choice import HTTP
from shoal.core.fetch_knowledge import reader_name
from shoal.core.host_blocks import SIGN_WORDS, Judgement, Way
from shoal.core.lane import DIRECT, INDEFINITELY, host_of_lane
from shoal.core.page import Response
from shoal.core.page_print import PageLook, look_at, text_hash, title_hash
from shoal.core.page_yield import filled_share
from shoal.core.run_counters import BLOCK_HANDED_ON, count_block, count_noticed
from shoal.core.task import LaneChange
from shoal.core.task_kind import handler_of, is_aside
from shoal.core.usual_page import ASKS, LED_AWAY, PageSeen
from shoal.errors import GiveUp
from shoal.extract.media import media_kind
from shoal.queue.host_blocks import BlockEvidence, packed
from shoal.worker.context import RunContext
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.hand_on import HandedOn
from shoal.worker.task.handler_output import HandlerOutput
from shoal.worker.task.handler_runner import outside_handler
from shoal.worker.task.page_blocked import PageBlocked

log = logging.getLogger("shoal.worker")

Single = Literal["http", "browser"]
VisitBy = Callable[[Single], Awaitable[HandlerOutput]]

PARK_AFTER = 5  # block pages in a row
FIRST_PARK, MAX_PARK = 60.0, 900.0  # seconds, doubled each time
MAX_PARKS = 6  # in a row; who gives block pages still will go on: each page is asked for once, and then dead
LAST_PARK = 0.1  # so that it goes on being shown as parked
LOOK_EVERY = 16  # of so many pages of a way that is blocked one is asked for, to see whether it still is
MAX_MEASURED = 10  # records of a page whose fields are looked at
_NO_LOOK = PageLook(frozenset(), 0, 0)
# What templates end with where a page has not what they ask for.
_UNREADABLE = frozenset({"missing_field", "bad_field", "decode"})


def rule_of(attempt: TaskAttempt, run_context: RunContext) -> str:
    """What is done about blocks of a task's page; "off" where none are looked for."""
    options = attempt.task.request_options
    if is_aside(attempt.task.kind) or not run_context.renders:
        return OFF
    if options is not None and (options.method != "GET" or options.body is not None):
        return OFF
    return (options.on_block if options is not None else "") or run_context.on_block


def way_of(attempt: TaskAttempt, run_context: RunContext) -> Way:
    """By what a page was fetched: URLs of proxies are not told, they may have passwords in them."""
    options = attempt.task.request_options
    exit = attempt.exit_of(run_context)
    if not exit:
        has_proxy = run_context.request_builder.proxy or (options is not None and options.proxy)
        exit = "proxy" if has_proxy else DIRECT
    return (HTTP if attempt.live is None else BROWSER), exit


def is_unreadable(attempt: TaskAttempt, error: Exception) -> bool:
    """Whether a handler failed in a way in which it fails on pages that are others than it thinks."""
    if not attempt.is_in_handler or any(error is one for one in attempt.page_fetch_errors):
        return False
    if isinstance(error, GiveUp):
        return error.cause in _UNREADABLE
    return isinstance(error, LookupError | AttributeError | TypeError | ValueError | ArithmeticError | AssertionError)


async def check_page(
    attempt: TaskAttempt, run_context: RunContext, response: Response, output: HandlerOutput | None
) -> None:
    """Raises PageBlocked if this is not the page that was asked for. output: None where its handler failed on it."""
    rule = rule_of(attempt, run_context)
    if rule == OFF or not 200 <= response.status < 300 or response.cache == "hit":
        return
    if attempt.is_auto and attempt.live is None and await _will_compare(attempt, run_context):
        return  # what lacks something by HTTP may be there in a browser: then that is judged
    context, task = attempt.context, attempt.task
    host, way = host_of_lane(attempt.lane), way_of(attempt, run_context)
    if rule == NOTICE and not context.blocks.is_watched(host):
        return
    reader = reader_name(run_context.reader, handler_of(task.kind))

    def look() -> PageLook:
        kind = media_kind(response.header("content-type"), response.body)
        return _NO_LOOK if kind == "binary" else look_at(response.body)

    seen = _seen(task.url, response, output)
    now = context.wall_clock() // 1_000_000
    with outside_handler():
        judge = context.blocks.notice if rule == NOTICE else context.blocks.judge
        found = await judge(host, reader, task.url, seen, way, look, now)
        if rule == NOTICE:
            await _notice(attempt, response, found, host, way)
            return
        if found.verdict == "good" or (found.verdict == "odd" and task.ack == "auto"):
            return
        await _forget_cached(attempt, run_context)
        if found.verdict == "block" and found.page is not None:
            await _keep(attempt, response, host, way, found.page)
    attempt.is_in_handler = False  # not its handler is to blame
    attempt.block_counters |= count_block(*way, is_odd=found.verdict == "odd")
    raise _blocked(attempt, found, context.blocks.streak(host, way), rule)


async def _notice(attempt: TaskAttempt, response: Response, found: Judgement, host: str, way: Way) -> None:
    """Count a block page that counts as it is. That pages give nothing is told of the whole run already."""
    page = found.page
    if found.verdict == "block" and page is not None and (page.is_compared or page.signs & (ASKS | LED_AWAY)):
        attempt.block_counters |= count_noticed(*way)
        if await _keep(attempt, response, host, way, page):
            log.warning("block_page_counts", extra={"host": host, "page": f"{page.id:08x}", "why": _words(page.signs)})


async def _keep(attempt: TaskAttempt, response: Response, host: str, way: Way, page: BlockPage) -> bool:
    """As evidence; False if it is kept already."""
    now = attempt.context.wall_clock()
    return await attempt.context.blocks.keep_evidence(host, page.id, lambda: _evidence(attempt, response, way, now))


async def _will_compare(attempt: TaskAttempt, run_context: RunContext) -> bool:
    """Whether fetch=auto has a browser look at a page that is odd."""
    return run_context.browser is not None or await attempt.has_browser_worker()


async def after_block(
    attempt: TaskAttempt, run_context: RunContext, blocked: PageBlocked, visit_by: VisitBy
) -> HandlerOutput:
    """What the rule says; what it cannot do is done later."""
    rule = rule_of(attempt, run_context)
    if not blocked.is_odd:
        await _hand_on(attempt, run_context, rule, "a block page")
        if rule == BY_BROWSER and attempt.live is None and run_context.browser is not None:
            attempt.start_over()
            attempt.fetched_by = f"{BROWSER}: HTTP was given a block page"
            return await visit_by(BROWSER)
    raise blocked


async def skip_blocked_way(attempt: TaskAttempt, run_context: RunContext, by: str) -> Single | None:
    """Where all that came last were blocks, pages go by the rule's way at once, but for one now and then."""
    rule = rule_of(attempt, run_context)
    if by == BROWSER or not (rule == BY_BROWSER or exit_of_rule(rule)):
        return None
    streak = attempt.context.blocks.streak(host_of_lane(attempt.lane), way_of(attempt, run_context))
    if streak < PARK_AFTER or attempt.task.id % LOOK_EVERY == 0:
        return None
    await _hand_on(attempt, run_context, rule, f"{streak} block pages in a row")
    if rule == BY_BROWSER and run_context.browser is not None:
        attempt.fetched_by = f"{BROWSER}: HTTP was given {streak} block pages in a row"
        return "browser"
    return None


async def _hand_on(attempt: TaskAttempt, run_context: RunContext, rule: str, reason: str) -> None:
    """Raises HandedOn where the rule's way is not one that this task can take here."""
    exit, counters = exit_of_rule(rule), {BLOCK_HANDED_ON: 1} | attempt.block_counters
    if exit and exit != (attempt.exit_of(run_context) or DIRECT):
        raise HandedOn(reason, fetch="", exit=exit, counters=counters)
    is_for_browser = rule == BY_BROWSER and attempt.live is None and run_context.browser is None
    if is_for_browser and await attempt.has_browser_worker():
        raise HandedOn(reason, BROWSER, counters=counters)


def _seen(url: str, response: Response, output: HandlerOutput | None) -> PageSeen:
    body = response.body
    page, landed = text_hash(url), 0 if response.url == url else _landed(url, response.url)
    if output is None:
        return PageSeen(page, len(body), title_hash(body), landed, 0, 0, 0.0, is_failed=True)
    return PageSeen(
        page,
        len(body),
        title_hash(body),
        landed,
        len(output.records) + len(output.tasks) + len(output.celery_tasks),
        output.links or sum(len(follow.hrefs) for follow in output.follows),
        filled_share(output.records[:MAX_MEASURED]) if output.records else 1.0,
    )


def _landed(url: str, final: str) -> int:
    """Where redirects led to, if that is another page: not another spelling of the same."""
    asked, given = urlsplit(url), urlsplit(final)
    one, other = (part.path.rstrip("/").lower() for part in (asked, given))
    hosts = [part.netloc.lower().removeprefix("www.") for part in (asked, given)]
    return 0 if one == other and hosts[0] == hosts[1] else text_hash(f"{hosts[1]}{other}")


def _blocked(attempt: TaskAttempt, found: Judgement, streak: int, rule: str) -> PageBlocked:
    words = _words(found.signs)
    if found.verdict == "odd":
        return PageBlocked(f"it {words}: it is asked for again before anything of it counts", is_odd=True)
    page = found.page or BlockPage(0, 0, 0, (), 0, 0, 0)
    urls = len(page.sightings)
    message = f"a block page, which {urls} URLs gave: it {words} (evidence: {page.id:08x})"
    if page.is_for_good:
        message += "; its URLs give it always, while others are fine: do they need a login?"
    blocked = PageBlocked(message, is_final=page.is_for_good)
    if rule == PARK:
        _park(attempt, INDEFINITELY, message)
    elif attempt.task.probe > MAX_PARKS:
        blocked.is_final = True
        _park(attempt, LAST_PARK, f"{attempt.task.probe} looks in a row found block pages")
    elif streak >= PARK_AFTER and not page.is_for_good:
        base = attempt.run_context.retry_delay if attempt.run_context is not None else None
        seconds = (FIRST_PARK if base is None else base) * 2.0 ** min(attempt.task.probe, 10)
        _park(attempt, min(seconds, MAX_PARK), f"{streak} block pages in a row")
    return blocked


def _park(attempt: TaskAttempt, seconds: float, reason: str) -> None:
    """A block is no sign of life, whatever its status: it does not release its lane."""
    attempt.lane_changes = tuple(change for change in attempt.lane_changes if change.park_for != 0.0)
    attempt.add_lane_change(LaneChange(attempt.lane, park_for=seconds, reason=reason[:200]))


def _words(signs: int) -> str:
    words: Sequence[str] = [word for sign, word in SIGN_WORDS if signs & sign] or ["is one of them"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _evidence(attempt: TaskAttempt, response: Response, way: Way, now: int) -> BlockEvidence:
    return BlockEvidence(
        attempt.task.url[:2_000],
        response.url[:2_000],
        response.status,
        response.header("content-type")[:200],
        now,
        *way,
        packed(response.body),
    )


async def _forget_cached(attempt: TaskAttempt, run_context: RunContext) -> None:
    """What is asked for again is not to be answered by the cache."""
    forget = getattr(run_context.fetcher or attempt.context.fetcher, "forget", None)
    if forget is not None and attempt.request is not None and attempt.response is not None and attempt.response.cache:
        await forget(attempt.request)
