"""Extra: requests that a handler makes while it works on a page, under the same rules as the page itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shoal.core.page import Response
from shoal.core.retry import status_cause
from shoal.core.task import Ask
from shoal.core.url import canonical, lane_of
from shoal.errors import FetchFailed, FetchRefused
from shoal.extract.page import Page
from shoal.politeness.answers import SLOW_DOWN
from shoal.worker.exchange import ask_robots, exchange, take_slot
from shoal.worker.failure import RuledOut
from shoal.worker.handling import not_theirs
from shoal.worker.tools import Served
from shoal.worker.visit import Visit


def extra_fetch(visit: Visit, served: Served) -> Callable[[str, Ask | None], Awaitable[Page]]:
    """What `page.fetch` does: any answer is given back, except one that asks us to slow down."""

    async def fetch(url: str, ask: Ask | None) -> Page:
        # Waiting for a slot is not the handler's time, and what is started meanwhile not its code.
        with visit.allowance.paused(), not_theirs():
            try:
                return await _in_turn(visit, served, canonical(url), ask)
            except BaseException as error:
                # If the handler lets it through, it is not the handler's failure.
                visit.hindrances += (error,)
                raise

    return fetch


async def _in_turn(visit: Visit, served: Served, url: str, ask: Ask | None) -> Page:
    """The task has one place among the requests under way: several at once take turns in it."""
    if not served.pace(lane_of(url)).max_in_flight:
        return await _fetch(visit, served, url, ask)
    if visit.turn is None:
        visit.turn = asyncio.Lock()
    async with visit.turn:
        return await _fetch(visit, served, url, ask)


async def _fetch(visit: Visit, served: Served, url: str, ask: Ask | None) -> Page:
    try:
        await take_slot(visit, served, lane_of(url))
        await ask_robots(visit, served, url)
        response = await exchange(visit, served, url, ask, own=False)
        budget = served.budget or visit.tools.budget
        if budget is not None:
            await budget.check(response)
    except RuledOut as error:
        raise FetchRefused(error.reason, str(error)) from error
    if response.status in SLOW_DOWN:
        cause, _ = status_cause(response.status)
        raise FetchFailed(cause, f"{url} answered {response.status}", after=visit.refused(response))
    visit.tools.refusals.good(lane_of(response.url))
    return page_of(visit, served, response)


def page_of(visit: Visit, served: Served, response: Response) -> Page:
    """An answer as the handler of a task sees it."""
    task = visit.task
    return Page(
        response,
        meta=task.meta,
        depth=task.depth,
        run=served.name,
        task=task.id,
        fetch=extra_fetch(visit, served),
    )
