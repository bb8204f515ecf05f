"""PipelineHarness: what the pipeline of one task needs, as plain values that a test can set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shoal.core.lane import Pace, Slot
from shoal.core.page import Request, Response
from shoal.core.task import LaneChange, LeasedTask, Outcome
from shoal.core.url import lane_of
from shoal.extract.links import LinkFilter
from shoal.extract.scraper import Scraper
from shoal.politeness.robots import RobotsVerdict
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.task.pipeline import process_task

HOME = "http://a.test/"


class PipelineHarness:
    """Queue, fetcher and robots of one task, as plain values that a test can set."""

    def __init__(self) -> None:
        self.now = 100.0
        self.answers: dict[str, Any] = {}
        self.verdicts: dict[str, RobotsVerdict] = {}
        self.slots: list[Slot] = []
        self.calls: list[str] = []  # requests and reservations, in order
        self.changes: list[LaneChange] = []
        self.stalls: list[float] = []
        self.scraper = Scraper("s", HOME)
        self.limit = 5.0

    # the queue
    async def reserve(self, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
        self.calls.append(f"slot {lane}")
        return self.slots.pop(0) if self.slots else Slot(0.0)

    async def set_lane(self, change: LaneChange) -> None:
        self.changes.append(change)

    # the fetcher
    async def fetch(self, request: Request) -> Response:
        self.calls.append(request.url)
        answer = self.answers[request.url]
        if isinstance(answer, BaseException):
            raise answer
        return msgspec.structs.replace(answer, url=request.url)

    def note_stall(self, seconds: float) -> None:
        self.stalls.append(seconds)

    async def close(self) -> None: ...

    # robots
    async def verdict(self, url: str, exit: str = "") -> RobotsVerdict:
        return self.verdicts.get(lane_of(url), RobotsVerdict(True))

    def handler(self, func: Callable[..., Any]) -> None:
        self.scraper.page("*")(func)

    def tools(self) -> WorkerContext:
        links = LinkFilter(self.scraper.in_scope, None, lambda lane, url: None)
        served = RunContext(
            self.scraper, links, self, lambda lane: Pace(), in_scope=self.scraper.in_scope, handler_timeout=self.limit
        )
        queue: Any = self

        async def serve(run: int) -> RunContext:
            return served

        return WorkerContext("w", queue, self, serve, CrashNote.in_memory(), clock=lambda: self.now, jitter=lambda: 0.5)

    async def run(self, url: str = HOME, start_at: float = 100.0, lane: str = "", **task: Any) -> Outcome:
        leased = LeasedTask(id=7, lease=9, run=1, lane=lane or lane_of(url), url=url, **task)
        return await process_task(leased, self.tools(), start_at)


def html(body: str = "<p>hi</p>", status: int = 200, **headers: str) -> Response:
    names = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response("", status, (("content-type", "text/html"), *names), body.encode())
