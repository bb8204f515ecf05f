"""AutoHarness: the pipeline of pages with fetch="auto", a browser whose pages a test sets, and shared documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from pipeline_harness import PipelineHarness, html

from shoal.core.browser_step import BrowserStep
from shoal.core.fetch_choice import ShapeState
from shoal.core.fetch_knowledge import Knowledge, read_knowledge
from shoal.core.lane import WorkerStatus
from shoal.core.page import Response
from shoal.core.task import LeasedTask, Outcome
from shoal.extract.page import Page
from shoal.fetch.base import VisitNotWanted, VisitRequest
from shoal.queue.values import Document
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.task.pipeline import process_task

HOST = "a.test"
FULL, SHELL = "<ul><li>1<li>2<li>3</ul><a href=/item/9>9</a>", "<ul></ul><script>render()</script>"


class OpenPage:
    """A page in the browser, for handlers that read it, and take steps that load more from its own host."""

    console_errors: Sequence[str] = ()

    def __init__(self, response: Response, subrequests: int = 0) -> None:
        self.response = response
        self.subrequests = subrequests

    async def perform(self, steps: Sequence[BrowserStep]) -> Response:
        self.subrequests += len(steps)
        return self.response

    async def close(self) -> None: ...


class AutoHarness(PipelineHarness):
    def __init__(self, *, has_browser: bool = True) -> None:
        super().__init__()
        self.has_browser = has_browser
        self.fetching = "auto"
        self.rendered: dict[str, Any] = {}  # what the browser shows, or raises
        self.subrequests = 0  # of each of its pages
        self.documents: dict[str, Document] = {}
        self.statuses: list[WorkerStatus] = []
        self.options: dict[str, Any] = {}  # of the run
        self.on_wait: Callable[[], None] = lambda: None  # what happens while a page waits for the browser
        self.handler(items)
        self._context: WorkerContext | None = None
        self._next = 100

    # the queue
    async def document(self, kind: str, name: str, version: int = 0) -> Document | None:
        return self.documents.get(name)

    async def compare_and_swap(self, kind: str, name: str, text: str | None, expected: int) -> Document | None:
        known = self.documents.get(name)
        if expected != (known.version if known else 0):
            return None
        self.documents[name] = Document(kind, name, expected + 1, text or "", 0)
        return self.documents[name]

    async def workers(self) -> list[WorkerStatus]:
        return self.statuses

    def now_at(self) -> int:
        return int(self.now * 1e6)

    # the browser
    async def visit(self, request: VisitRequest) -> OpenPage:
        self.on_wait()
        if not request.is_wanted():
            raise VisitNotWanted
        await request.navigate(request.url)
        self.calls.append(f"browser {request.url}")
        shown = self.rendered[request.url]
        if isinstance(shown, BaseException):
            raise shown
        return OpenPage(msgspec.structs.replace(shown, url=request.url), self.subrequests)

    def tools(self) -> WorkerContext:
        if self._context is None:
            queue = _Queue(self)
            self._context = super().tools()
            self._context.queue = queue  # type: ignore[assignment]
            self._context.__post_init__()
            build = self._context.build_run_context

            async def serve(run: int) -> RunContext:
                browser: Any = self if self.has_browser else None
                return replace(await build(run), browser=browser, fetch=self.fetching, title="s", **self.options)

            self._context.build_run_context = serve
        return self._context

    def page(self, number: int, http: Any = FULL, browser: Any = FULL) -> str:
        """A page of the site, as both ways show it."""
        url = f"http://{HOST}/item/{number}"
        self.answers[url] = html(http) if isinstance(http, str) else http
        self.rendered[url] = html(browser) if isinstance(browser, str) else browser
        return url

    async def take(self, url: str, **task: Any) -> Outcome:
        self.calls.clear()
        self._next += 1
        leased = LeasedTask(id=self._next, lease=9, run=1, lane=HOST, url=url, **{"spacing": 1.0, **task})
        return await process_task(leased, self.tools(), 0.0)

    async def take_several(self, first: int, number: int, http: Any = FULL, browser: Any = FULL) -> list[Outcome]:
        return [await self.take(self.page(n, http, browser)) for n in range(first, first + number)]

    @property
    def knowledge(self) -> Knowledge:
        document = self.documents.get(HOST)
        return read_knowledge(document.text) if document else {}

    @property
    def state(self) -> ShapeState:
        return self.knowledge.get(("s", "/item/*"), ShapeState())


class _Queue:
    """What of the harness is the queue: its clock is in microseconds, that of the worker in seconds."""

    def __init__(self, harness: AutoHarness) -> None:
        self._harness = harness

    def __getattr__(self, name: str) -> Any:
        return getattr(self._harness, name)

    async def now(self) -> int:
        return self._harness.now_at()


def items(page: Page) -> Any:
    for item in page.css("li"):
        yield {"item": item.text}
    yield page.follow("a")


def worker_status(*capabilities: str, serves: tuple[str, ...] = (), seen_at: int = 100_000_000) -> WorkerStatus:
    return WorkerStatus("b", "b", "h", 1, "0", 0, seen_at, serves=serves, capabilities=capabilities)


def records(outcome: Outcome) -> list[str]:
    return [msgspec.json.decode(record)["item"] for record in outcome.records]
