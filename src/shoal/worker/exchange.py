"""Exchange: from an address to its answer, through robots.txt and redirects, each request in a slot."""

from __future__ import annotations

import msgspec

from shoal.core.page import Response
from shoal.core.task import Ask, LaneChange
from shoal.core.url import lane_of, resolve
from shoal.errors import FetchFailed, FetchRefused, Retry
from shoal.worker import slot
from shoal.worker.failure import RuledOut
from shoal.worker.manners import asked_again
from shoal.worker.tools import Served
from shoal.worker.visit import Visit

_REDIRECTS = frozenset((301, 302, 303, 307, 308))


async def exchange(visit: Visit, served: Served, url: str, ask: Ask | None, *, own: bool) -> Response:
    """The final answer; the slot for `url` itself is the caller's. own: it is the task's own request."""
    home = url
    trail: list[str] = []
    seen: set[str] = set()
    manners, fetch = served.manners, (served.fetcher or visit.tools.fetcher).fetch
    while True:
        request = manners.request(url, ask, home)
        try:
            response = await (visit.waiting(fetch(request)) if own else fetch(request))
        except FetchFailed as error:
            visit.unanswered(lane_of(url), error.cause)
            raise
        visit.answered(response)
        if own:
            visit.response = response
        new_cookies = manners.heard(response, ask)
        location = response.header("location") if response.status in _REDIRECTS else ""
        if not location:
            return msgspec.structs.replace(response, redirects=tuple(trail)) if trail else response
        seen.add(url)
        if new_cookies:
            seen.clear()  # the same address may answer differently now
        trail.append(url)
        url = _target(url, location, seen)
        if len(trail) > served.max_redirects:
            raise FetchRefused("redirects", f"more than {served.max_redirects} redirects")
        ask = asked_again(ask, response.status)
        await _go_to(visit, served, url, scoped=own and visit.task.parent is not None)


def _target(url: str, location: str, seen: set[str]) -> str:
    target = resolve(url, location)
    if target is None:
        raise FetchRefused("redirects", f"{url} leads to {location[:200]!r}, which cannot be fetched")
    if target in seen:
        raise FetchRefused("redirects", f"{url} leads back to {target}")
    return target


async def _go_to(visit: Visit, served: Served, url: str, *, scoped: bool) -> None:
    """Everything that must be in order before a redirect is followed."""
    lane = lane_of(url)
    if scoped and lane != visit.task.lane and not served.in_scope(lane):
        raise RuledOut("scope", f"it leads to {lane}, which is out of scope")
    await take_slot(visit, served, lane)
    await ask_robots(visit, served, url)


async def take_slot(visit: Visit, served: Served, lane: str) -> None:
    """A slot for one more request than the claim came with."""
    task = visit.task
    if lane != task.lane:
        await slot.take_elsewhere(visit.tools, lane, served.pace(lane))
    elif await slot.wait_for_quiet(visit.tools, lane) or task.spacing:
        await slot.take(visit.tools, lane, task.spacing)


async def ask_robots(visit: Visit, served: Served, url: str) -> None:
    if served.robots is None:
        return
    lane, asked_at = lane_of(url), visit.tools.clock()
    verdict = await served.robots.verdict(url)
    if verdict.wait and verdict.cause:
        if visit.task.probe and lane == visit.task.lane and not verdict.fresh:
            # Nothing was found out: the lane is to be tried when robots.txt may be asked for again.
            visit.learn(LaneChange(lane, hold_for=verdict.wait, reason=verdict.reason))
            raise slot.NotNow(verdict.reason)
        visit.unanswered(lane, verdict.cause)
        raise FetchFailed(verdict.cause, verdict.reason, after=verdict.wait)
    if verdict.wait:
        why = verdict.reason or f"robots.txt of {lane} cannot be read"
        raise Retry("robots_unreachable", why, after=verdict.wait)
    delay = verdict.crawl_delay or 0.0
    if lane == visit.task.lane:
        visit.crawl_delay = delay
    if verdict.news:  # also where there is none now: the file asked for one before
        # Now and not with the outcome: by then the host may have taught us a slower pace.
        change = LaneChange(lane, spacing=delay, reason="crawl-delay" if delay else "")
        await visit.tools.queue.set_lane(change)
    if not verdict.allowed:
        raise RuledOut("robots", f"robots.txt of {lane} does not allow it")
    # robots.txt went out in this request's slot, or the slot passed while another task asked, or the
    # task was claimed before the crawl-delay was known.
    at_home = lane == visit.task.lane
    own = visit.task.spacing if at_home else served.pace(lane).spacing
    spacing = max(own, delay)
    late = visit.tools.clock() - asked_at > spacing * slot.TOLERANCE
    if spacing and (verdict.fresh or late or delay > own):
        if delay > own and not verdict.news:
            await visit.tools.queue.set_lane(LaneChange(lane, spacing=delay, reason="crawl-delay"))
        if at_home:
            await slot.take(visit.tools, lane, spacing)
        else:
            await slot.take_elsewhere(visit.tools, lane, served.pace(lane))
