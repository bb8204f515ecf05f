"""ChangingSite: a site whose pages change between runs, and the runs of one worker over it, on any queue."""

from __future__ import annotations

import hashlib
from typing import Any

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.page import Request, Response
from shoal.core.run import NewRun, Run
from shoal.core.task import LeasedTask, Outcome
from shoal.core.url import lane_of
from shoal.extract.links import LinkFilter
from shoal.extract.scraper import Scraper
from shoal.queue.base import Queue
from shoal.sources.start_task import start_task
from shoal.view.changes import ChangeCounts, all_changes, count_changes
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.page_states import PageStateBuffer
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.task.pipeline import process_task
from shoal.worker.task.recrawl import Recrawl

HOME = "http://site.test/"


class ChangingSite:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.pages: dict[str, str] = {"/": ""}  # bodies by path
        self.redirects: dict[str, str] = {}  # paths to paths
        self.statuses: dict[str, int] = {}
        self.has_etags = True
        self.requests: list[str] = []  # of the last run, with how each was answered: "/a 304"
        self.conditional: list[str] = []  # paths that were asked for only if they have changed
        self.parsed: list[str] = []  # paths that the handler saw in the last run
        self.rules: tuple[object, ...] | None = ("v1",)
        self.personal = False
        self.meta: dict[str, Any] | None = None  # of the start URL
        self.scraper = Scraper("site", HOME)
        self.scraper.page("*")(self.handle)
        self.wall_clock = 1_000_000_000_000_000
        self.runs = 0

    def handle(self, page: Any) -> Any:
        self.parsed.append(page.url.removeprefix(HOME.rstrip("/")))
        for text in page.css("p"):
            yield {"text": text.text}
        yield page.follow(page.links())

    # the web

    async def fetch(self, request: Request) -> Response:
        path = request.url.removeprefix(HOME.rstrip("/"))
        response = self._answer(path, dict(request.headers))
        if "if-none-match" in dict(request.headers):
            self.conditional.append(path)
        self.requests.append(f"{path} {response.status}")
        return Response(request.url, response.status, response.headers, response.body)

    def _answer(self, path: str, headers: dict[str, str]) -> Response:
        if path in self.redirects:
            return Response("", 301, (("location", self.redirects[path]),), b"")
        status = self.statuses.get(path, 200 if path in self.pages else 404)
        body = self.pages.get(path, "").encode()
        etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        shown = (("etag", etag),) if self.has_etags else ()
        if status == 200 and self.has_etags and headers.get("if-none-match") == etag:
            return Response("", 304, shown, b"")
        return Response("", status, (("content-type", "text/html"), *shown), body)

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...

    # runs

    async def start(self, **more: Any) -> Run:
        self.runs += 1
        self.wall_clock += 3_600_000_000
        self.requests.clear()
        self.conditional.clear()
        self.parsed.clear()
        run = await self.queue.start_run(NewRun(scraper="site", key=f"k{self.runs}", name=f"run-{self.runs}", **more))
        task = start_task(HOME, meta=self.meta)
        await self.queue.add(run.id, [task], {task.lane: UNLIMITED_PACE})
        return run

    def worker(self, run: Run) -> WorkerContext:
        buffer = PageStateBuffer(self.queue)
        served = RunContext(
            self.scraper,
            LinkFilter(self.scraper.in_scope, None, lambda lane, url: None),
            None,
            lambda lane: UNLIMITED_PACE,
            name=run.name,
            in_scope=self.scraper.in_scope,
            retries={"http": 0},
            recrawl=Recrawl(self.queue, run, buffer, rules=self.rules, personal=self.personal),
        )

        async def serve(_: int) -> RunContext:
            return served

        return WorkerContext(
            "w", self.queue, self, serve, CrashNote.in_memory(), page_states=buffer, wall_clock=lambda: self.wall_clock
        )

    async def work(self, run: Run, context: WorkerContext | None = None) -> None:
        """Until nothing is left, then the run ends."""
        context = context or self.worker(run)
        while tasks := await self.claim():
            outcomes = [await process_task(task, context) for task in tasks]
            await self.settle(context, outcomes)
        await self.queue.set_run(run.id, "finish")

    async def claim(self) -> tuple[LeasedTask, ...]:
        return (await self.queue.claim("w", 10)).tasks

    async def settle(self, context: WorkerContext, outcomes: list[Outcome]) -> None:
        await context.before_settle()
        paces = {lane_of(task.url): UNLIMITED_PACE for outcome in outcomes for task in outcome.found}
        assert set(await self.queue.settle(outcomes, paces)) == {"ok"}

    async def crawl(self, **more: Any) -> Run:
        run = await self.start(**more)
        await self.work(run)
        return (await self.queue.runs(name=run.name, limit=1))[0]

    async def records(self, run: Run) -> list[bytes]:
        return sorted(record.data for record in await self.queue.records(run.id))

    async def counts(self, run: Run) -> tuple[int, int, int, int | None, int]:
        """unchanged, changed, new, gone, failed."""
        found = await count_changes(self.queue, run)
        assert isinstance(found, ChangeCounts)
        return found.unchanged, found.changed, found.new, found.gone, found.failed

    async def changes(self, run: Run) -> set[str]:
        return {f"{it.change} {it.url.removeprefix(HOME.rstrip('/'))}" async for it in all_changes(self.queue, run)}


def links(*paths: str) -> str:
    return "".join(f'<a href="{path}">{path}</a>' for path in paths)
