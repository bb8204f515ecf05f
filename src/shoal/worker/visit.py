"""Visit: what one attempt at a task has come to so far."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TypeVar

from shoal.core.page import Response
from shoal.core.task import Attempt, LaneChange, Leased, Outcome
from shoal.core.url import lane_of, request_digest
from shoal.politeness.answers import lesson, retry_after
from shoal.politeness.pace import learned
from shoal.worker.handling import Allowance, Step
from shoal.worker.harvest import Harvest
from shoal.worker.tools import Found, Served, Tools

log = logging.getLogger("shoal.worker")
T = TypeVar("T")
PROMPT = 0.25  # seconds
SAMPLED = 8  # of so many prompt answers one is looked at


class Visit:
    __slots__ = (
        "_began", "_wall", "allowance", "crawl_delay", "handling", "hindrances", "lanes",
        "response", "served", "step", "task", "tools", "turn",
    )  # fmt: skip

    def __init__(self, task: Leased, tools: Tools) -> None:
        self.task = task
        self.tools = tools
        self.served: Served | None = None
        self.step = Step(task, tools)
        self.lanes: tuple[LaneChange, ...] = ()
        self.response: Response | None = None
        self.allowance = Allowance(tools.clock, 0.0)
        self.crawl_delay = 0.0  # of the task's own lane
        self.hindrances: tuple[BaseException, ...] = ()  # what kept us from requests of the handler's own
        self.turn: asyncio.Lock | None = None  # of those requests, where the host limits them
        self.handling = False  # whether a failure now is one of the user's code
        self._began = tools.clock()
        self._wall = tools.wall()

    def learn(self, change: LaneChange | None) -> None:
        if change is not None:
            self.lanes += (change,)
            if change.hold_for:
                self.tools.holds.add(change.lane, change.hold_for)

    async def waiting(self, work: Awaitable[T]) -> T:
        """Wait for something that is not our own work: after a while another page gets the place."""
        waits = self.tools.waiting
        waits[self] = self.tools.clock()
        try:
            return await work
        finally:
            del waits[self]

    def unanswered(self, lane: str, cause: str) -> None:
        """A request to a host got no answer: it may be down."""
        self.learn(
            self.tools.health.failed(
                lane, task=self.task.id, cause=cause, now=self.tools.clock(), probe=self._probe(lane)
            )
        )

    def answered(self, response: Response) -> None:
        """Any answer is a sign of life, and tells how fast the host wants to be asked."""
        tools, lane, status = self.tools, lane_of(response.url), response.status
        now = tools.clock()
        # Before anything else is learned from it: a release also ends holds.
        self.learn(tools.health.answered(lane, status=status, now=now, probe=self._probe(lane)))
        served = self.served
        if served is None or not served.adapt or lane != self.task.lane:
            return
        spacing = self.task.spacing
        if not spacing and status == 200 and response.seconds < PROMPT:
            # Nobody asked for a pace and it answers at once: a look now and then shows what is usual.
            tools.prompt += 1
            if tools.prompt % SAMPLED:
                return
        told = tools.pace.saw(
            lane,
            seconds=response.seconds,
            status=status,
            spacing=spacing,
            now=now,
            floor=self.crawl_delay,
            asked=served.pace(lane).spacing,
        )
        if told is not None:
            self.learn(learned(lane, told, spacing=spacing, status=status, floor=self.crawl_delay))

    def refused(self, response: Response) -> float | None:
        """Let a bad answer teach its lane; says how many seconds it asks us to wait, if it does."""
        tools, lane, now = self.tools, lane_of(response.url), self.tools.wall() / 1e6
        row = tools.refusals.count(lane, response.status)
        self.learn(lesson(lane, response.status, response.headers, now=now, in_a_row=row))
        return retry_after(response.header("retry-after"), now)

    def _probe(self, lane: str) -> int | None:
        return self.task.probe if lane == self.task.lane else None

    @property
    def address(self) -> str:
        """Where the page really is."""
        return self.response.url if self.response is not None else self.task.url

    def done(self, harvest: Harvest, found: Found) -> Outcome:
        task, response, served = self.task, self.response, self.served
        if log.isEnabledFor(logging.DEBUG):
            found_here = {"records": len(harvest.records), "found": len(found.tasks)}
            log.debug("page_done", extra=ids_of(task, self.tools) | {"url": task.url} | found_here)
        return Outcome(
            task=task.id,
            lease=task.lease,
            result="done",
            attempt=self.attempt(),
            records=tuple(harvest.records),
            found=tuple(found.tasks),
            skipped=tuple(found.skipped),
            lanes=self.lanes,
            same_as=_moved_to(response, served) if response and served and task.ask is None else None,
        )

    def attempt(self, cause: str = "", message: str = "") -> Attempt:
        response = self.response
        return Attempt(
            at=self._wall,
            worker=self.tools.worker,
            cause=cause,
            message=message,
            status=response.status if response else 0,
            seconds=round(self.tools.clock() - self._began, 6),
            size=len(response.body) if response else 0,
        )


def ids_of(task: Leased, tools: Tools) -> dict[str, object]:
    """What everything that is logged during an attempt is about."""
    served = tools.served_now(task.run)
    name = served.name if served is not None else ""
    return {"run": name or task.run, "task": task.id, "worker": tools.worker}


def _moved_to(response: Response, served: Served) -> bytes | None:
    """Where the page was found, if that is elsewhere than its address says and worth knowing."""
    if not response.redirects or not served.distinct:
        return None
    return request_digest(served.rewrite(response.url) if served.rewrite else response.url)
