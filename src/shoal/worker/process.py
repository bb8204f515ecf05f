"""Process: one task as one pipeline, from its slot to its outcome."""

from __future__ import annotations

import asyncio

from shoal.core.page import Request, Response
from shoal.core.retry import status_cause
from shoal.core.task import LaneChange, Leased, Outcome
from shoal.core.url import lane_of, resolve
from shoal.errors import FetchFailed, FetchRefused, Retry
from shoal.extract.page import Page
from shoal.politeness.answers import lesson, retry_after
from shoal.worker import slot
from shoal.worker.failure import RuledOut, failed
from shoal.worker.handling import handle
from shoal.worker.harvest import Harvest
from shoal.worker.tools import Found, Served, Tools
from shoal.worker.visit import Visit

MAX_REDIRECTS = 10
_REDIRECTS = frozenset((301, 302, 303, 307, 308))


async def process(task: Leased, tools: Tools, start_at: float = 0.0) -> Outcome:
    """Try a task once. Never raises for what the task or its handler does."""
    visit = Visit(task, tools)
    try:
        served = visit.served = await tools.served(task.run)
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


async def keep_slot(visit: Visit, start_at: float) -> None:
    """Wait for the slot that came with the claim; whoever missed it takes a new one."""
    task, tools = visit.task, visit.tools
    in_time = not task.spacing or await slot.wait_until(tools, start_at, task.spacing)
    held = tools.holds.seconds(task.lane)
    if held:
        # The host asked for quiet after this slot was given out.
        if held > slot.PATIENCE:
            raise slot.NotNow(f"{task.lane} is held for {held:.0f} s")
        await asyncio.sleep(held)
    if held or not in_time:
        await slot.take(tools, task.lane, task.spacing)


async def ask_robots(visit: Visit, served: Served, url: str) -> None:
    if served.robots is None:
        return
    lane, asked_at = lane_of(url), visit.tools.clock()
    verdict = await served.robots.verdict(url)
    if verdict.wait and verdict.cause:
        raise FetchFailed(verdict.cause, verdict.reason, after=verdict.wait)
    if verdict.wait:
        raise Retry("robots_unreachable", f"robots.txt of {lane} cannot be read", after=verdict.wait)
    delay = verdict.crawl_delay or 0.0
    if verdict.fresh:  # also where there is none: the file may have asked for one before
        visit.learn(LaneChange(lane, spacing=delay, reason="crawl-delay" if delay else ""))
    if not verdict.allowed:
        raise RuledOut("robots", f"robots.txt of {lane} does not allow it")
    # robots.txt went out in this request's slot, or the slot passed while another task asked, or the
    # task was claimed before the crawl-delay was known.
    own = visit.task.spacing if lane == visit.task.lane else 0.0
    spacing = max(own, delay)
    late = visit.tools.clock() - asked_at > spacing * slot.TOLERANCE
    if spacing and (verdict.fresh or late or delay > own):
        if verdict.fresh and delay:
            await visit.tools.queue.set_lane(visit.lanes[-1])
        await slot.take(visit.tools, lane, spacing)


async def fetch(visit: Visit, served: Served) -> Response:
    """Exchange the request for an answer, through redirects that obey the same rules."""
    tools, url = visit.tools, visit.task.url
    trail: list[str] = []
    while True:
        visit.response = response = await tools.fetcher.fetch(Request(url, timeout=served.timeout))
        location = response.header("location") if response.status in _REDIRECTS else ""
        if not location:
            return visit.moved(response, trail)
        trail.append(url)
        url = _target(url, location, trail)
        await _go_to(visit, served, url)


def _target(url: str, location: str, trail: list[str]) -> str:
    target = resolve(url, location)
    if target is None:
        raise FetchRefused("redirects", f"{url} leads to {location[:200]!r}, which cannot be fetched")
    if target in trail:
        raise FetchRefused("redirects", f"{url} leads back to {target}")
    if len(trail) > MAX_REDIRECTS:
        raise FetchRefused("redirects", f"more than {MAX_REDIRECTS} redirects")
    return target


async def _go_to(visit: Visit, served: Served, url: str) -> None:
    """Everything that must be in order before a redirect is followed."""
    task, lane = visit.task, lane_of(url)
    if lane == task.lane:
        if task.spacing:
            await slot.take(visit.tools, lane, task.spacing)
    else:
        if task.parent is not None and not served.scraper.in_scope(lane):
            raise RuledOut("scope", f"it leads to {lane}, which is out of scope")
        await slot.take_elsewhere(visit.tools, lane, served.pace(lane))
    await ask_robots(visit, served, url)


def judge(visit: Visit, response: Response) -> None:
    """Go on only with a good answer; let a bad one teach its lane."""
    status, tools = response.status, visit.tools
    if 200 <= status < 300:
        tools.refusals.good(lane_of(response.url))
        return
    lane, now = lane_of(response.url), tools.wall() / 1e6
    visit.learn(lesson(lane, status, response.headers, now=now, in_a_row=tools.refusals.count(lane, status)))
    cause, retryable = status_cause(status)
    if retryable:
        asked = retry_after(response.header("retry-after"), now)
        raise FetchFailed(cause, f"the server answered {status}", after=asked)
    raise FetchRefused(cause, f"the server answered {status}")


async def extract(visit: Visit, served: Served, response: Response) -> Harvest:
    """Let the scraper's code take from the page what it wants."""
    task, harvest = visit.task, Harvest()
    with visit.step:
        page = Page(response, meta=task.meta, depth=task.depth, run=served.name, task=task.id)
        handler = served.scraper.handler_for(page.url)
        if handler is None:
            harvest.follow(served.scraper.default_follow(page))
            return harvest
    visit.handling = True
    await handle(handler.func, page, visit.step, harvest, served.handler_timeout)
    visit.handling = False
    return harvest


def admit(visit: Visit, served: Served, harvest: Harvest) -> Found:
    """Which of the links are worth a task."""
    task = visit.task
    with visit.step:
        return served.links.admit(harvest.follows, depth=task.depth, parent=task.id, origin_url=visit.address)
