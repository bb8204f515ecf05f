"""Visit: what one attempt at a task has come to so far."""

from __future__ import annotations

import logging

from shoal.core.page import Response
from shoal.core.task import Attempt, LaneChange, Leased, Outcome
from shoal.core.url import lane_of, request_digest
from shoal.politeness.pace import learned
from shoal.worker.handling import Allowance, Step
from shoal.worker.harvest import Harvest
from shoal.worker.tools import Found, Served, Tools

log = logging.getLogger("shoal.worker")


class Visit:
    __slots__ = (
        "_began", "_wall", "allowance", "crawl_delay", "handling", "hindrance", "lanes",
        "response", "served", "step", "task", "tools",
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
        self.hindrance: BaseException | None = None  # what kept us from a request of the handler's own
        self.handling = False  # whether a failure now is one of the user's code
        self._began = tools.clock()
        self._wall = tools.wall()

    def learn(self, change: LaneChange | None) -> None:
        if change is not None:
            self.lanes += (change,)
            if change.hold_for:
                self.tools.holds.add(change.lane, change.hold_for)

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

    def _probe(self, lane: str) -> int | None:
        return self.task.probe if lane == self.task.lane else None

    @property
    def address(self) -> str:
        """Where the page really is."""
        return self.response.url if self.response is not None else self.task.url

    def done(self, harvest: Harvest, found: Found) -> Outcome:
        task, response, served = self.task, self.response, self.served
        if log.isEnabledFor(logging.DEBUG):
            said = {"run": task.run, "task": task.id, "worker": self.tools.worker, "url": task.url}
            log.debug("page_done", extra=said | {"records": len(harvest.records), "found": len(found.tasks)})
        return Outcome(
            task=task.id,
            lease=task.lease,
            result="done",
            attempt=self.attempt(),
            records=tuple(harvest.records),
            found=tuple(found.tasks),
            skipped=tuple(found.skipped),
            lanes=self.lanes,
            same_as=request_digest(response.url) if response and self._moved(response, served) else None,
        )

    def _moved(self, response: Response | None, served: Served | None) -> bool:
        """Whether the page was found elsewhere than its address says, where that is worth knowing."""
        return bool(response and response.redirects and served and served.distinct and self.task.ask is None)

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
