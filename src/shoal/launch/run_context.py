"""Run context: everything that work on one run needs, built from its settings and its scraper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from shoal.app import cookie_file, pace_rule, rewrite_rule, route_rules
from shoal.config.load import Settings
from shoal.core import units
from shoal.core.budget import budget_limits
from shoal.core.request_header import names_identity
from shoal.core.sitemap import is_date, parse_date
from shoal.core.url import canonical, lane_of
from shoal.core.url_shape import ShapeCounter
from shoal.errors import InvalidUrl
from shoal.extract import registry
from shoal.extract.links import LinkFilter
from shoal.extract.parse_budget import ParseBudget
from shoal.extract.scope import CrawlScope
from shoal.extract.scraper import Scraper
from shoal.fetch.shared_cookies import SharedCookieJars
from shoal.launch.fetchers import Fetch, RunFetchers
from shoal.launch.job import RunJob
from shoal.launch.request_options import request_builder_for
from shoal.politeness.robots import Robots
from shoal.politeness.robots_cache import RobotsCache
from shoal.queue.base import Queue
from shoal.version import __version__
from shoal.worker.context import RunContext
from shoal.worker.page_states import PageStateBuffer
from shoal.worker.sessions import SharedSessions
from shoal.worker.task.recrawl import Recrawl
from shoal.worker.task.request_builder import RequestBuilder
from shoal.worker.task.run_budget import RunBudget


def build_run_context(
    job: RunJob,
    scraper: Scraper,
    fetchers: RunFetchers,
    queue: Queue,
    page_states: PageStateBuffer,
    budget: ParseBudget | None = None,
    sessions: SharedSessions | None = None,
) -> RunContext:
    settings = job.settings
    pace = pace_rule(settings)
    scope = CrawlScope(
        scraper.start, hosts=scraper.hosts, reach=settings.scope, include=settings.include, exclude=settings.exclude
    )
    cookies = SharedCookieJars(cookie_file(settings, job.run))
    request_builder = (
        RequestBuilder(is_offline=True)
        if job.from_raw or job.folder
        else request_builder_for(
            settings, scraper, cookies, start=job.start, sent=job.sent, connections=job.run.name, identities=sessions
        )
    )
    robots = _robots(settings, _via_proxy(request_builder.proxy, fetchers.robots), queue)
    links = LinkFilter(
        scope.allows_lane,
        settings.max_depth,
        fetchers.kept or robots.peek,
        disallowed="not_kept" if fetchers.kept else "robots",
        rewrite=rewrite_rule(settings),
        allow=scope.allows if scope.has_patterns else None,
        shapes=ShapeCounter(settings.max_per_shape) if settings.max_per_shape else None,
        routes=route_rules(settings, scraper),
    )
    is_saved = bool(job.from_raw or job.folder)
    return RunContext(
        scraper=scraper,
        links=links,
        robots=None if settings.ignore_robots else robots,
        pace=pace,
        jitter=settings.jitter,
        name=job.run.name,
        title=job.run.scraper,
        in_scope=scope.allows_lane,
        request_builder=request_builder,
        rewrite=rewrite_rule(settings) or None,
        max_redirects=settings.max_redirects,
        adaptive=settings.adapt,
        distinct=not job.keep_duplicates,
        skip_failing=settings.skip_failing,
        max_same_content=settings.max_same_content,
        unique=settings.unique,
        celery_task=settings.celery_task,
        handler_timeout=settings.handler_timeout,
        retries=settings.retry_limits,
        retry_delay=settings.retry_delay,
        sitemap_since=sitemap_since(settings.sitemap_since),
        fetcher=fetchers.pages,
        cached=fetchers.cached,
        browser=fetchers.browser,
        record_rendered=fetchers.record_rendered,
        fetch=settings.fetch,
        steps=settings.steps,
        renders=not is_saved,
        counts_subrequests=settings.count_subrequests,
        budget=budget,
        exit=settings.exit,
        exits_have_own_pace=settings.exit_pace == "exit",
        on_block=settings.on_block,
        sessions=None if job.from_raw or job.folder else sessions,
        secrets=settings.secrets,
        run_budget=None
        if is_saved
        else RunBudget(queue, job.run, budget_limits(settings.budget), settings.concurrency),
        recrawl=_recrawl(job, scraper, queue, page_states) if settings.changed_only and not job.from_raw else None,
    )


def _recrawl(job: RunJob, scraper: Scraper, queue: Queue, page_states: PageStateBuffer) -> Recrawl:
    settings, version = job.settings, registry.version_of(scraper)
    # What decides which page a server sends, and what is taken from it. Links are judged anew in any case.
    rules = (__version__, version, settings.user_agent, settings.header, settings.auth, settings.unique)
    return Recrawl(
        queue,
        job.run,
        page_states,
        rules=rules if version else None,
        personal=bool(settings.auth) or any(names_identity(line.partition(":")[0]) for line in settings.header),
        # Whoever saves pages wants them whole: their own fetcher asks for what has changed.
        sends_validators=not (settings.keep_raw or settings.revalidate or job.keep_bounded),
    )


def sitemap_since(text: str) -> Callable[[float], float]:
    """From when on entries of a sitemap that is read now are taken."""
    if not text:
        return lambda now: 0.0
    if is_date(text):
        date = parse_date(text) or 0.0
        return lambda now: date
    seconds = units.seconds()(text)
    return lambda now: now - seconds


def _via_proxy(proxy: str, fetch: Fetch) -> Fetch:
    """The way that all requests of the run go, robots.txt included."""
    if not proxy:
        return fetch
    return lambda request: fetch(request if request.exit else msgspec.structs.replace(request, proxy=proxy))


def _robots(settings: Settings, fetch: Fetch, queue: Queue) -> Robots:
    pace = pace_rule(settings)

    async def wait_for_slot(url: str) -> None:
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
        before_redirect=wait_for_slot,
        cache=RobotsCache(settings.state_folder / "robots"),
    )
