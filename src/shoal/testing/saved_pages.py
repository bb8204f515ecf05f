"""SavedPages: responses in a folder beside the tests, replayed instead of the web."""

from __future__ import annotations

import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from shoal.commands.result import run_blocking
from shoal.commands.run_in_process import run
from shoal.core.page import Response
from shoal.core.task import RequestOptions, Task
from shoal.core.url import canonical
from shoal.errors import UsageError
from shoal.extract.links import LinkFilter
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper
from shoal.sources.start_task import start_task
from shoal.testing.handle import Handled, handle_page

MAX_PAGES = 1_000
_not_in_names = re.compile(r"[^a-z0-9]+")


class SavedHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a response beside its body; no other headers: they may hold sessions."""

    url: str  # after redirects
    status: int = 200
    content_type: str = ""


@dataclass(slots=True)
class Crawled:
    """What a crawl over saved pages came to."""

    records: list[dict[str, Any]] = field(default_factory=list)
    visited: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # followed, but not saved
    failed: dict[str, BaseException] = field(default_factory=dict)  # what the handler of a page raised, by URL


class SavedPages:
    """Pages of a folder, by URL. save: what is missing is fetched once, as politely as ever, and saved."""

    def __init__(self, folder: Path | str, *, save: bool = False, **settings: Any) -> None:
        self.folder = Path(folder)
        self._save = save
        self._settings = settings

    def page(self, url: str, *, meta: dict[str, Any] | None = None) -> Page:
        """A saved page; its page.fetch reads saved pages, too."""
        url = canonical(url)
        response = self._load(url)
        if response is None and self._save:
            run_blocking(lambda: self._fetch_and_save(url))
            response = self._load(url)
        if response is None:
            raise UsageError(
                f"{url} is not saved in {self.folder}", hint="run `pytest --save-pages` once to fetch and save it"
            )
        return Page(response, meta=meta, fetch=self._fetch)

    def has(self, url: str) -> bool:
        return self._head_file(canonical(url)).exists()

    def handle(
        self, scraper: Scraper, url: str, *, to: str | Callable[..., Any] = "", meta: dict[str, Any] | None = None
    ) -> Handled:
        """What a scraper, or the handler that `to` names, makes of a saved page."""
        page = self.page(url, meta=meta)
        return run_blocking(lambda: handle_page(scraper, page, to=to))

    def crawl(self, scraper: Scraper, *, max_pages: int = MAX_PAGES) -> Crawled:
        """Follow a scraper's links from its start over the saved pages, in one thread and in order."""
        return run_blocking(lambda: self._crawl(scraper, max_pages))

    async def _crawl(self, scraper: Scraper, max_pages: int) -> Crawled:
        crawled, links = Crawled(), LinkFilter(scraper.in_scope, None, lambda lane, url: None)
        waiting = deque(start_task(url) for url in scraper.start)
        links.mark_committed(waiting)
        while waiting and len(crawled.visited) < max_pages:
            task = waiting.popleft()
            if not self._save and not self.has(task.url):
                crawled.missing.append(task.url)
                continue
            waiting.extend(await self._visit(scraper, task, crawled, links))
        return crawled

    async def _visit(self, scraper: Scraper, task: Task, crawled: Crawled, links: LinkFilter) -> tuple[Task, ...]:
        page = self.page(task.url, meta=task.meta)
        crawled.visited.append(task.url)
        try:
            handled = await handle_page(scraper, page, task.kind)
        except Exception as error:  # noqa: BLE001 - for the test to look at
            crawled.failed[task.url] = error
            return ()
        crawled.records += handled.records
        found = links.admit(
            handled.follows,
            depth=task.depth,
            parent=len(crawled.visited),
            origin_url=page.url,
            again=task.request_options.again if task.request_options else 0,
        )
        links.mark_committed(found.tasks)
        return found.tasks

    async def _fetch(self, url: str, request_options: RequestOptions | None) -> Page:
        if request_options is not None:
            raise UsageError(f"only plain pages are saved, not {request_options.method} {url}", hint="test it apart")
        return self.page(url)

    async def _fetch_and_save(self, url: str) -> None:
        recorder = Scraper("save-pages", start=url)

        @recorder.page("*")
        @recorder.error("3xx", "4xx", "5xx")
        def keep(page: Page) -> Iterator[Any]:
            self._store(url, page.response)
            yield from ()

        with tempfile.TemporaryDirectory() as folder:
            state: dict[str, Any] = {"queue": f"{folder}/save.db", "retries": 0}
            result = await run(recorder, progress=False, **state | self._settings)
            for failed in result.failed:
                raise UsageError(f"{url} cannot be saved: {failed['message']}", hint="fetch it later, or check the URL")

    def _store(self, url: str, response: Response) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        head, body = self._head_file(url), self._body_file(url)
        body.write_bytes(response.body)
        saved = SavedHead(response.url, response.status, response.header("content-type"))
        head.write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=1) + b"\n")

    def _load(self, url: str) -> Response | None:
        try:
            head = msgspec.json.decode(self._head_file(url).read_bytes(), type=SavedHead)
            body = self._body_file(url).read_bytes()
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{self._head_file(url)} cannot be read: {error}", hint="remove it, and save it"
            ) from error
        headers = (("content-type", head.content_type),) if head.content_type else ()
        return Response(head.url, head.status, headers, body)

    def _head_file(self, url: str) -> Path:
        return self.folder / f"{_file_name(url)}.json"

    def _body_file(self, url: str) -> Path:
        return self.folder / f"{_file_name(url)}.body"


def _file_name(url: str) -> str:
    """A name that people recognise, and that no other URL has."""
    words = _not_in_names.sub("-", url.partition("://")[2].lower()).strip("-")[:60]
    return f"{words}-{sha256(url.encode()).hexdigest()[:10]}"
