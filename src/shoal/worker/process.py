"""Process: one task as one pipeline, from its slot to its outcome."""

from __future__ import annotations

from functools import partial

from shoal.core.page import Response
from shoal.core.retry import status_cause
from shoal.core.task import Ask, Leased, Outcome
from shoal.core.url import lane_of
from shoal.errors import FetchFailed, FetchRefused, GiveUp
from shoal.logs import about
from shoal.worker import slot
from shoal.worker.exchange import ask_robots, exchange
from shoal.worker.extra import page_of
from shoal.worker.failure import failed
from shoal.worker.handling import Allowance, handle
from shoal.worker.harvest import Harvest
from shoal.worker.tools import Found, NoLinks, Served, Tools
from shoal.worker.typed import perform
from shoal.worker.visit import Visit, ids_of

_CONDITIONS = frozenset({"if-none-match", "if-modified-since"})


async def process(task: Leased, tools: Tools, start_at: float = 0.0) -> Outcome:
    """Try a task once. Never raises for what the task or its handler does."""
    visit = Visit(task, tools)
    # Not the visit itself: whatever is started meanwhile keeps this for as long as it lives.
    about(partial(ids_of, task, tools))
    try:
        served = visit.served = await tools.served(task.run)
        if task.kind != "page":
            await keep_slot(visit, start_at)
            return await perform(visit, served)
        give_up_on_the_dead(visit)
        await keep_slot(visit, start_at)
        await ask_robots(visit, served, task.url)
        response = await fetch(visit, served)
        judge(visit, response)
        harvest = await extract(visit, served, response)
        found = admit(visit, served, harvest)
        return visit.done(harvest, found)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not tools.supervised:
            raise
        return failed(visit, error)
    finally:
        visit.hindrances = ()  # their frames hold the visit, and the visit holds the page
        about(None)


def give_up_on_the_dead(visit: Visit) -> None:
    """No request for a host that has been down for minutes, but for a probe now and then."""
    task, tools = visit.task, visit.tools
    found = tools.health.hopeless(task.lane, now=tools.clock(), probe=task.probe)
    if found is not None:
        raise GiveUp(found.cause, found.reason)


async def keep_slot(visit: Visit, start_at: float) -> None:
    """Wait for the slot that came with the claim; whoever missed it takes a new one."""
    task, tools = visit.task, visit.tools
    in_time = not task.spacing or await slot.wait_until(tools, start_at, task.spacing)
    # The host may have asked for quiet after this slot was given out.
    if await slot.wait_for_quiet(tools, task.lane) or not in_time:
        await slot.take(tools, task.lane, task.spacing)


async def fetch(visit: Visit, served: Served) -> Response:
    """Exchange the task's address for an answer, through redirects that obey the same rules."""
    task = visit.task
    visit.response = await exchange(visit, served, task.url, task.ask, own=True)
    return visit.response


def judge(visit: Visit, response: Response) -> None:
    """Go on only with a good answer; let a bad one teach its lane."""
    status = response.status
    if 200 <= status < 300 or (status == 304 and _is_conditional(visit.task.ask)):
        visit.tools.refusals.good(lane_of(response.url))
        return
    asked = visit.refused(response)
    cause, retryable = status_cause(status)
    if retryable:
        raise FetchFailed(cause, f"the server answered {status}", after=asked)
    raise FetchRefused(cause, f"the server answered {status}")


def _is_conditional(ask: Ask | None) -> bool:
    """Whether "not modified" is one of the answers that were asked for."""
    return ask is not None and any(name.lower() in _CONDITIONS for name, _ in ask.headers)


async def extract(visit: Visit, served: Served, response: Response) -> Harvest:
    """Let the scraper's code take from the page what it wants."""
    harvest, budget = Harvest(), served.budget or visit.tools.budget
    if budget is not None and len(response.body) > budget.free:
        await visit.waiting(budget.check(response))
    with visit.step:
        page = page_of(visit, served, response)
        handler = served.scraper.handler_for(page.url)
        if handler is None:
            harvest.follow(served.scraper.default_follow(page))
            return harvest
    visit.handling = True
    visit.allowance = Allowance(visit.tools.clock, served.handler_timeout)
    await handle(handler.func, page, visit.step, harvest, visit.allowance)
    visit.handling = False
    return harvest


def admit(visit: Visit, served: Served, harvest: Harvest) -> Found:
    """Which of the links are worth a task."""
    task, follows = visit.task, harvest.follows
    with visit.step:
        found = served.links.admit(follows, depth=task.depth, parent=task.id, origin_url=visit.address)
        if found.tasks and served.max_same_content and _repeats(visit, served):
            # A trap that gives the same page under ever new addresses.
            return NoLinks(skipped=(("trap", visit.address),))
        return found


def _repeats(visit: Visit, served: Served) -> bool:
    response = visit.response
    if response is None:
        return False
    before = served.contents.seen(lane_of(response.url), response.body)
    return before >= served.max_same_content
