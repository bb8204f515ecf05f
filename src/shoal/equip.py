"""Equip: everything a worker needs, built from settings. Apart from app, because only workers pay for it."""

from __future__ import annotations

import asyncio

from shoal.app import open_queue, pace_rule
from shoal.config import Settings
from shoal.core.url import canonical, lane_of
from shoal.errors import InvalidUrl
from shoal.extract.links import LinkGate
from shoal.extract.scraper import Scraper
from shoal.fetch.guard import AllowPrivate
from shoal.fetch.http import HttpFetcher
from shoal.politeness.robots import Robots
from shoal.queue.base import Queue
from shoal.worker.note import Note
from shoal.worker.tools import Served, Tools


def serve(scraper: Scraper, settings: Settings, fetcher: HttpFetcher, queue: Queue, run: str) -> Served:
    pace = pace_rule(settings)

    async def slot_for(url: str) -> None:
        """robots.txt itself goes out in its task's slot; where it redirects to, it needs one of its own."""
        try:
            lane = lane_of(canonical(url))
        except InvalidUrl:
            return  # the fetcher says what is wrong with it
        if pace(lane).spacing:
            await asyncio.sleep((await queue.reserve(lane, pace(lane))).wait)

    robots = Robots(
        fetcher.fetch, user_agent=settings.user_agent, ignore=settings.ignore_robots, moving=slot_for
    )
    links = LinkGate(scraper.in_scope, settings.max_depth, robots.peek)
    return Served(
        scraper=scraper,
        links=links,
        robots=robots,
        pace=pace,
        name=run,
        timeout=settings.timeout,
        handler_timeout=settings.handler_timeout,
        retries=settings.retry_limits,
    )


async def worker_tools(
    scraper: Scraper, settings: Settings, *, run: str, queue: Queue, note: Note, supervised: bool
) -> Tools:
    fetcher = HttpFetcher(
        user_agent=settings.user_agent,
        allow_private=AllowPrivate.parse(settings.allow_private),
        concurrency=settings.concurrency,
        max_body=settings.max_body,
    )
    served = serve(scraper, settings, fetcher, queue, run)

    async def serve_run(_: int) -> Served:
        return served

    return Tools(
        worker=note.worker,
        queue=queue,
        fetcher=fetcher,
        serve=serve_run,
        note=note,
        open_queue=lambda: open_queue(settings, small=True),
        supervised=supervised,
    )
