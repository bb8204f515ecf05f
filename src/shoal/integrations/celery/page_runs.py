"""Page runs: the pages that messages ask for one by one, in one run per day and set of options.

A page is known by the id of its message: delivered again, it is the same page, which is recorded once. Another
message for the same URL is another page.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from datetime import date
from typing import Any

import msgspec
from pydantic import ValidationError

from shoal.config.load import Settings, with_defaults
from shoal.config.run_settings import settings_for_template, settings_to_spec
from shoal.core.run import NAME_ALPHABET, NewRun, Run, run_of
from shoal.core.task import Task, digest
from shoal.errors import UsageError
from shoal.extract.template import Template
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.daily_runs import ALL_RUNS, CELERY_PREFIX, DailyRuns
from shoal.runs.spec import new_spec
from shoal.runs.url_policy import UrlPolicy
from shoal.store.results.base import ResultBackend
from shoal.web.http.problem import Problem
from shoal.web.submit.batch_options import BatchOptions, batch_template
from shoal.web.submit.results import JsonObject, UrlResults
from shoal.web.submit.url_lists import StoredUrls, UrlList

FIRST_PAUSE, MAX_PAUSE = 0.02, 0.5  # seconds between two looks at a page
DELAY_WORTH_WAITING = 2.0  # seconds; for a longer retry delay the message goes back to the broker
MAX_URL = 8_192
REFUSED = "refused"
URL_HINT = "give a URL such as https://shop.example/"
PRIVATE_HINT = "SHOAL_ALLOW_PRIVATE=HOST:PORT for the worker, if this is intended"
MAX_CONTENT = 1_000_000  # letters of a page's content in a result
KIND_SECONDS = 300.0  # after which templates are looked up again: they change, and go when nobody uses them
MAX_KINDS = 200  # sets of options that are remembered


class PageWaiting(Exception):
    """The page is not done yet; its message is to come again."""

    def __init__(self, seconds: float, why: str) -> None:
        super().__init__(why)
        self.seconds = seconds


class PageKind(msgspec.Struct, frozen=True):
    """Pages of which the same is wanted."""

    template: Template
    template_ref: tuple[str, int]
    content: str  # the field that has the content
    settings: Settings
    priority: int  # of the pages, which may differ within a run

    @property
    def name(self) -> str:
        parts = [self.template_ref, self.content, settings_to_spec(self.settings)]
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:16]


class PageRuns:
    def __init__(self, queue: Queue, store: ResultBackend | None, settings: Settings) -> None:
        self._queue = queue
        self._store = store
        self._settings = settings
        self._kinds: dict[str, PageKind] = {}  # by name
        self._by_options: dict[bytes, tuple[float, PageKind]] = {}  # with the time until which it is taken for true
        self._daily = DailyRuns(queue, self._new_run)
        self._runs: dict[int, Run] = {}

    async def add(self, message: str, url: str, options: dict[str, Any], then: str) -> tuple[int, UrlResults]:
        """Put a page into the queue, once per message; its number, and who reads its result."""
        kind = await self._kind(options, then)
        policy = UrlPolicy(kind.settings, refused=REFUSED)
        made = policy.make_task(1, _checked_url(url), kind.priority)
        if isinstance(made, str):
            is_private = made.startswith(f"{REFUSED}: ")
            raise UsageError(f"not fetched: {made}", hint=PRIVATE_HINT if is_private else URL_HINT)
        task: Task = msgspec.structs.replace(made, digest=digest(f"celery {message} {made.digest.hex()}"))
        (number,) = await self._daily.add(kind.name, [task], policy.paces([task]), keyed=[True])
        urls = UrlList(StoredUrls((url,)), kind.settings)
        return number, UrlResults(self._queue, self._store, await self._run_of(number), urls, kind.content)

    async def result(self, number: int, reader: UrlResults, url: str, seconds: float) -> JsonObject:
        """What became of a page, waited for; PageWaiting where it takes longer than it is worth a process."""
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
        while True:
            if (found := await reader.of_task(url, number)) is not None:
                return _bounded(found)
            await self._raise_if_delayed(number)
            if time.monotonic() + pause > deadline:
                raise PageWaiting(1.0, "it waits for its host")
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, MAX_PAUSE)

    async def _raise_if_delayed(self, number: int) -> None:
        views = await self._queue.list_tasks(run_of(number), where=TaskFilter(ids=(number,)), limit=1)
        if not views or views[0].state != "delayed":
            return
        seconds = (views[0].due_at - await self._queue.now()) / 1e6
        last = views[0].history[-1] if views[0].history else None
        if seconds > DELAY_WORTH_WAITING:
            raise PageWaiting(seconds, last.cause if last and last.cause else "it is delayed")

    async def _kind(self, options: dict[str, Any], then: str) -> PageKind:
        key = msgspec.json.encode([options, then], order="deterministic")
        until, known = self._by_options.get(key, (0.0, None))
        if known is not None and time.monotonic() < until:
            return known
        asked = parse_options(options)
        own = with_defaults(self._settings, {"celery_task": then}, "then") if then else self._settings
        try:
            template, ref, content, settings = await batch_template(self._queue, own, asked)
        except Problem as error:
            raise UsageError(str(error.detail), hint=error.hint) from None
        settings = settings_for_template(settings, template.settings, f"template {template.name}")
        if len(self._kinds) >= MAX_KINDS:
            self._kinds.clear()
            self._by_options.clear()
        kind = PageKind(template, ref, content, settings, asked.priority)
        self._kinds[kind.name] = kind
        self._by_options[key] = time.monotonic() + KIND_SECONDS, kind
        return kind

    def _new_run(self, name: str, day: date) -> NewRun:
        kind = self._kinds[name]
        suffix = "".join(secrets.choice(NAME_ALPHABET) for _ in range(4))
        spec = new_spec(
            kind.template.name,
            mode="distributed",
            settings=settings_to_spec(kind.settings),
            start=(),
            each=True,
            template=kind.template_ref,
        )
        return NewRun(
            kind.template.name,
            f"{CELERY_PREFIX}{name}/{day.isoformat()}",
            f"{day:%Y%m%d}_celery_{suffix}",
            spec | {"api": {"as": "celery", "content": kind.content}},
        )

    async def _run_of(self, number: int) -> Run:
        if run_of(number) not in self._runs:
            if len(self._runs) >= MAX_KINDS:
                self._runs.clear()
            self._runs |= {run.id: run for run in await self._queue.runs(limit=ALL_RUNS)}
        return self._runs[run_of(number)]


def parse_options(options: dict[str, Any]) -> BatchOptions:
    """The options of a message, which may be anybody's."""
    try:
        return BatchOptions.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "options"
        raise UsageError(f"{place}: {first['msg']}", hint="docs/celery.md lists the options") from None


def _checked_url(url: object) -> str:
    if not isinstance(url, str) or not 0 < len(url) <= MAX_URL:
        raise UsageError(f"a URL is a text of at most {MAX_URL:,} letters", hint='such as "https://shop.example/"')
    return url


def _bounded(result: JsonObject) -> JsonObject:
    """Result backends are no place for long pages: the queue keeps the whole record."""
    content = result.get("content")
    if isinstance(content, str) and len(content) > MAX_CONTENT:
        return result | {"content": content[:MAX_CONTENT], "cut": True}
    return result
