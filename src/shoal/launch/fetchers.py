"""Fetchers from settings: of a run, shared between runs that ask alike, and of webhooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.config.load import SETTINGS, Settings
from shoal.core.page import Request, Response
from shoal.fetch.base import Browser, Fetcher
from shoal.fetch.exits.exit_set import ExitSet
from shoal.fetch.exits.fetcher import ExitFetcher
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.http import HttpFetcher
from shoal.fetch.limits import FetchLimits
from shoal.launch.job import RunJob
from shoal.launch.raw_stores import RawStores
from shoal.launch.response_cache import ResponseCache
from shoal.version import __version__
from shoal.worker.context import Cached, RecordRendered

Fetch = Callable[[Request], Awaitable[Response]]

# What makes fetchers differ.
_FETCHER_SETTINGS = tuple(name for name, setting in SETTINGS.items() if setting.connection)


def http_fetcher(settings: Settings, exits: ExitSet | None = None) -> Fetcher:
    """exits: those of this process, where it has several fetchers."""
    plain = HttpFetcher(
        user_agent=settings.user_agent,
        allow_private=PrivateNetworkPolicy.parse(settings.allow_private),
        concurrency=settings.concurrency,
        limits=FetchLimits(**{name: getattr(settings, name) for name in FetchLimits.__struct_fields__}),
        http2=settings.http2,
        ca_file=settings.ca_file,
    )
    if not settings.exits:
        return plain
    return ExitFetcher(plain, exits or ExitSet(settings.exits.values()), owns_exits=exits is None)


def webhook_fetcher(settings: Settings, timeout: float) -> Fetcher:
    """Guarded against private addresses like any other."""
    return HttpFetcher(
        user_agent=f"shoal/{__version__} (webhook)",
        allow_private=PrivateNetworkPolicy.parse(settings.allow_private),
        concurrency=20,
        limits=FetchLimits(connect_timeout=5.0, first_byte_timeout=timeout, max_body=1_000_000),
        http2=False,
        ca_file=settings.ca_file,
    )


class FetcherPool:
    """Fetchers shared by runs with the same network settings; stalls and `close` reach all of them."""

    def __init__(self, settings: Settings, exits: ExitSet) -> None:
        self._exits = exits
        self._own_key = _fetcher_key(settings)
        self._fetchers: dict[tuple[Any, ...], Fetcher] = {self._own_key: http_fetcher(settings, exits)}
        self._keys_by_run: dict[int, tuple[Any, ...]] = {}

    def for_run(self, run: int, settings: Settings) -> Fetcher:
        key = _fetcher_key(settings)
        if key not in self._fetchers:
            self._fetchers[key] = http_fetcher(settings, self._exits)
        self._keys_by_run[run] = key
        return self._fetchers[key]

    def release(self, run: int) -> Fetcher | None:
        """The run has ended; its fetcher if nobody else uses it."""
        key = self._keys_by_run.pop(run, self._own_key)
        if key == self._own_key or key in self._keys_by_run.values():
            return None
        return self._fetchers.pop(key, None)

    async def fetch(self, request: Request) -> Response:
        return await self._fetchers[self._own_key].fetch(request)

    def note_stall(self, seconds: float) -> None:
        for fetcher in self._fetchers.values():
            fetcher.note_stall(seconds)

    async def close(self) -> None:
        for fetcher in self._fetchers.values():
            await fetcher.close()


def _fetcher_key(settings: Settings) -> tuple[Any, ...]:
    return tuple(getattr(settings, name) for name in _FETCHER_SETTINGS)


@dataclass(frozen=True, slots=True)
class RunFetchers:
    """What pages are fetched with, what robots.txt is, and what goes with pages that are kept."""

    pages: Fetcher
    robots: Fetch
    kept: Callable[[str, str], bool] | None = None  # only links to kept pages are followed
    keep: Callable[[], Awaitable[None]] | None = None
    record_rendered: RecordRendered | None = None  # likewise, for pages by a browser
    cached: Cached | None = None
    browser: Browser | None = None


def _revalidates(settings: Settings) -> bool:
    """Whether pages that are saved here are fetched only if they have changed: where changes are looked for, too."""
    return settings.revalidate or (settings.keep_raw and settings.changed_only)


def run_fetchers(
    job: RunJob, make_fetcher: Callable[[], Fetcher], stores: RawStores, cache: ResponseCache
) -> RunFetchers:
    """Fetchers for a run, also for one that keeps pages, or reads those that were kept."""
    settings = job.settings
    if job.folder:
        from shoal.fetch.folder import FolderFetcher

        files = FolderFetcher(Path(job.folder), settings.max_body)
        return RunFetchers(files, files.fetch, kept=files.knows)
    if not (job.from_raw or settings.keep_raw or settings.revalidate or job.keep_bounded):
        plain = make_fetcher()
        caching = cache.around(plain, settings)
        return RunFetchers(caching, plain.fetch, cached=caching.would_answer)
    from shoal.fetch.raw_pages import RecordingFetcher, ReplayFetcher, RevalidatingFetcher

    if job.from_raw:
        replay = ReplayFetcher(stores.saved_by(job.from_raw), job.from_raw)
        fetchers = RunFetchers(replay, replay.fetch, kept=None if job.fetches_rest else replay.knows)
    else:
        plain = make_fetcher()
        caching = cache.around(RevalidatingFetcher(plain, stores.raw()) if _revalidates(settings) else plain, settings)
        fetchers = RunFetchers(caching, plain.fetch, cached=caching.would_answer)
    if settings.keep_raw:
        raw_store = stores.raw()
        recording = RecordingFetcher(fetchers.pages, raw_store, job.run.name)
        return replace(fetchers, pages=recording, keep=raw_store.sync, record_rendered=recording.record_rendered)
    if job.keep_bounded:
        bounded = stores.bounded()
        recording = RecordingFetcher(fetchers.pages, bounded, job.run.name, anonymous_only=True)
        return replace(fetchers, pages=recording, keep=bounded.sync, record_rendered=recording.record_rendered)
    return fetchers
