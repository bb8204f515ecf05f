"""Equip: everything a worker needs, built from settings. Apart from app, because only workers pay for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from shoal.app import TEMPLATE, cookie_file, open_queue, pace_rule, raw_shelf, rewrite_rule
from shoal.config import Settings
from shoal.core.page import Request, Response
from shoal.core.shape import Shapes
from shoal.core.url import canonical, lane_of
from shoal.errors import InvalidUrl, Usage
from shoal.extract.budget import Budget
from shoal.extract.links import LinkGate
from shoal.extract.load import load
from shoal.extract.scope import Scope
from shoal.extract.scraper import Scraper
from shoal.fetch.guard import AllowPrivate
from shoal.fetch.http import HttpFetcher
from shoal.fetch.jars import SharedSessions
from shoal.fetch.limits import Limits
from shoal.job import Job
from shoal.manner import manners_of
from shoal.politeness.robots import Robots
from shoal.politeness.shelf import RobotsShelf
from shoal.queue.base import Queue
from shoal.worker.manners import Manners
from shoal.worker.note import Note
from shoal.worker.plan import SPARE
from shoal.worker.tools import Fetcher, Served, Tools

if TYPE_CHECKING:
    from shoal.store.raw import RawShelf

Fetch = Callable[[Request], Awaitable[Response]]


async def scraper_of(job: Job, queue: Queue) -> Scraper:
    """The scraper of a job: its code, or the template that the queue keeps."""
    if job.target:
        return load(job.target)
    return await template_scraper(queue, job.run.scraper, job.template)


async def template_scraper(queue: Queue, name: str, version: int) -> Scraper:
    """The scraper of a template that the queue keeps."""
    from shoal.extract.template import Template, TemplateScraper

    paper = await queue.paper(TEMPLATE, name, version)
    if paper is None:
        raise Usage(
            f"the queue has no template {name} of version {version}",
            hint="give the command again with the template's file",
        )
    try:
        return TemplateScraper(msgspec.json.decode(paper.text, type=Template))
    except (msgspec.DecodeError, ValueError) as error:
        raise Usage(
            f"template {name} of version {version} is not understood here: {error}",
            hint="it may be of a newer shoal: upgrade this one",
        ) from error


@dataclass(frozen=True, slots=True)
class Fetchers:
    """What pages are fetched with, what robots.txt is, and what goes with pages that are kept."""

    pages: Fetcher
    robots: Fetch
    kept: Callable[[str, str], bool] | None = None  # only links to kept pages are followed
    keep: Callable[[], Awaitable[None]] | None = None


def serve(
    job: Job, scraper: Scraper, fetchers: Fetchers, queue: Queue, budget: Budget | None = None
) -> Served:
    settings = job.settings
    pace = pace_rule(settings)
    scope = Scope(
        scraper.start,
        hosts=scraper.hosts,
        reach=settings.scope,
        include=settings.include,
        exclude=settings.exclude,
    )
    cookies = SharedSessions(cookie_file(settings, job.run))
    manners = Manners(bare=True) if job.from_raw else manners_of(settings, scraper, cookies, sent=job.sent)
    robots = _robots(settings, _through(manners.proxy, fetchers.robots), queue)
    links = LinkGate(
        scope.lane,
        settings.max_depth,
        fetchers.kept or robots.peek,
        disallowed="not_kept" if fetchers.kept else "robots",
        rewrite=rewrite_rule(settings),
        allow=scope.allows if scope.has_patterns else None,
        shapes=Shapes(settings.max_per_shape) if settings.max_per_shape else None,
    )
    return Served(
        scraper=scraper,
        links=links,
        robots=None if settings.ignore_robots else robots,
        pace=pace,
        name=job.run.name,
        title=job.run.scraper,
        in_scope=scope.lane,
        manners=manners,
        rewrite=rewrite_rule(settings) or None,
        max_redirects=settings.max_redirects,
        adapt=settings.adapt,
        distinct=not job.each,
        max_same_content=settings.max_same_content,
        handler_timeout=settings.handler_timeout,
        retries=settings.retry_limits,
        retry_delay=settings.retry_delay,
        fetcher=fetchers.pages,
        budget=budget,
    )


def _through(proxy: str, fetch: Fetch) -> Fetch:
    """The way that all requests of the run go, robots.txt included."""
    return (lambda request: fetch(msgspec.structs.replace(request, proxy=proxy))) if proxy else fetch


def _robots(settings: Settings, fetch: Fetch, queue: Queue) -> Robots:
    pace = pace_rule(settings)

    async def slot_for(url: str) -> None:
        """robots.txt itself goes out in its task's slot; where it redirects to, it needs one of its own."""
        try:
            lane = lane_of(canonical(url))
        except InvalidUrl:
            return  # the fetcher says what is wrong with it
        if pace(lane).spacing:
            await asyncio.sleep((await queue.reserve(lane, pace(lane))).wait)

    return Robots(
        fetch,
        user_agent=settings.user_agent,
        ignore=settings.ignore_robots,
        moving=slot_for,
        shelf=RobotsShelf(settings.state_folder / "robots"),
    )


def http_fetcher(settings: Settings) -> HttpFetcher:
    return HttpFetcher(
        user_agent=settings.user_agent,
        allow_private=AllowPrivate.parse(settings.allow_private),
        concurrency=(1 + SPARE) * settings.concurrency,
        limits=Limits(**{name: getattr(settings, name) for name in Limits.__struct_fields__}),
        http2=settings.http2,
        ca_file=settings.ca_file,
    )


async def worker_tools(scraper: Scraper, job: Job, *, queue: Queue, note: Note, supervised: bool) -> Tools:
    settings = job.settings
    fetchers = page_fetchers(job, lambda: http_fetcher(settings), lambda: raw_shelf(settings))
    served = serve(job, scraper, fetchers, queue)

    async def serve_run(_: int) -> Served:
        return served

    return Tools(
        worker=note.worker,
        queue=queue,
        fetcher=fetchers.pages,
        serve=serve_run,
        note=note,
        open_queue=lambda: open_queue(settings, small=True),
        keep=fetchers.keep,
        budget=Budget(settings.parse_timeout),
        supervised=supervised,
    )


def page_fetchers(job: Job, wire: Callable[[], Fetcher], shelves: Callable[[], RawShelf]) -> Fetchers:
    """Fetchers for a run, also for one that keeps pages, or reads those that were kept."""
    settings = job.settings
    if not (job.from_raw or settings.keep_raw or settings.revalidate):
        plain = wire()
        return Fetchers(plain, plain.fetch)
    from shoal.fetch.raw import KeepingFetcher, ReplayFetcher, RevalidatingFetcher

    shelf = shelves()
    if job.from_raw:
        replay = ReplayFetcher(shelf, job.from_raw)
        return Fetchers(replay, replay.fetch, kept=replay.knows)
    plain = wire()
    pages: Fetcher = RevalidatingFetcher(plain, shelf) if settings.revalidate else plain
    if not settings.keep_raw:
        return Fetchers(pages, plain.fetch)
    return Fetchers(KeepingFetcher(pages, shelf, job.run.name), plain.fetch, keep=shelf.sync)
