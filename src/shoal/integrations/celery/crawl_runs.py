"""Crawl runs: a whole run that one message asks for, known by the id of the message, and how far it is."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from shoal import app as parts
from shoal.config.load import Settings, with_defaults
from shoal.config.run_settings import settings_to_spec
from shoal.core.run import NewRun, Run
from shoal.errors import UsageError
from shoal.extract import registry
from shoal.extract.scraper import Scraper
from shoal.integrations.celery.page_runs import parse_options
from shoal.launch.scraper_set import ScraperSet
from shoal.queue.base import Queue
from shoal.runs.identity import resolve_run
from shoal.runs.spec import new_spec
from shoal.runs.start import StartRequest, in_batches, start
from shoal.web.http.problem import Problem
from shoal.web.submit.batch_options import batch_template
from shoal.web.submit.template_run import TemplateRun, override_settings, settings_in

MAX_URLS = 10_000


class RunProgress(msgspec.Struct, frozen=True):
    """How far a run is, as its AsyncResult tells."""

    run: str
    state: str
    total: int
    pending: int
    processing: int
    done: int
    failed: int
    cancelled: int
    records: int
    retries: int
    is_over: bool

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        found.pop("is_over")
        return found


class CrawlRuns:
    def __init__(self, queue: Queue, settings: Settings, scraper_set: ScraperSet) -> None:
        self._queue = queue
        self._settings = settings
        self._scraper_set = scraper_set

    async def start(
        self, message: str, *, urls: object, scraper: object, run: object, options: dict[str, Any], then: str
    ) -> Run:
        """The run of a message, begun once; or one that is there already, by its name."""
        if sum(map(bool, (urls, scraper, run))) != 1:
            raise UsageError("a crawl is of some URLs, of a scraper, or of a run", hint='urls=["https://…"]')
        if run:
            found = await resolve_run(self._queue, str(run)[:200])
            if found is None:
                raise UsageError(f"there is no run {str(run)[:200]!r}", hint="`shoal runs` lists them")
            return found
        own = with_defaults(self._settings, {"celery_task": then}, "then") if then else self._settings
        if scraper:
            return await self._start_scraper(message, str(scraper), own, options)
        return await self._start_urls(message, _checked_urls(urls), own, options)

    async def _start_urls(self, message: str, urls: tuple[str, ...], own: Settings, options: dict[str, Any]) -> Run:
        asked = parse_options(options)
        try:
            template, ref, content, settings = await batch_template(self._queue, own, asked)
            return await TemplateRun(
                template=template,
                template_ref=ref,
                urls=urls,
                settings=settings,
                priority=asked.priority,
                api={"as": "batch", "content": content, "distributed": True},
                seed=f"celery/{message}",
                needs_list=False,
            ).start(self._queue)
        except Problem as error:
            raise UsageError(str(error.detail), hint=error.hint) from None

    async def _start_scraper(self, message: str, name: str, own: Settings, options: dict[str, Any]) -> Run:
        scraper = self._scraper(name)
        asked = parse_options(options)
        settings = with_defaults(override_settings(own, settings_in(asked), "options"), scraper.settings, name)
        tasks, paces = parts.seed_tasks(scraper, settings)
        spec = new_spec(
            scraper.name,
            mode="distributed",
            settings=settings_to_spec(settings, code=scraper.settings),
            start=scraper.start,
            each=False,
            code=("", registry.version_of(scraper)),
        )
        new = NewRun(scraper.name, f"celery/{message}", spec=spec, priority=asked.priority, once=True)
        return (await start(self._queue, StartRequest(new, tasks=lambda _: in_batches(tasks, paces)))).run

    def _scraper(self, name: str) -> Scraper:
        """Only what this worker has loaded: a message names code, it never brings or finds any."""
        for known, scraper in self._scraper_set.scrapers.items():
            if known.casefold() == name.casefold():
                return scraper
        names = ", ".join(self._scraper_set.scrapers) or "none; SHOAL_SCRAPERS names their files"
        raise UsageError(f"this worker has no scraper {name[:100]!r}", hint=f"it has: {names}")

    async def progress(self, run: Run, after: float = 0.0) -> RunProgress:
        """The account of a run, after some seconds."""
        await asyncio.sleep(after)
        now = next((it for it in await self._queue.runs(name=run.name, limit=1) if it.id == run.id), run)
        stats = await self._queue.stats(run.id)
        return RunProgress(
            run=run.name,
            state=now.state,
            total=stats.seen,
            pending=stats.ready,
            processing=stats.leased,
            done=stats.done,
            failed=stats.failed,
            cancelled=stats.cancelled,
            records=stats.records,
            retries=stats.retries,
            is_over=now.state in ("finished", "cancelled") or (stats.seen > 0 and stats.is_over),
        )


def _checked_urls(urls: object) -> tuple[str, ...]:
    if not isinstance(urls, list | tuple) or not 0 < len(urls) <= MAX_URLS:
        raise UsageError(f"urls is a list of at most {MAX_URLS:,} URLs", hint='urls=["https://shop.example/"]')
    if not all(isinstance(url, str) and len(url) <= 8_192 for url in urls):
        raise UsageError("each URL is a text of at most 8,192 letters", hint='urls=["https://shop.example/"]')
    return tuple(urls)
