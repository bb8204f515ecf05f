"""Visit: what one attempt at a task has come to so far."""

from __future__ import annotations

import logging

import msgspec

from shoal.core.page import Response
from shoal.core.task import Attempt, LaneChange, Leased, Outcome
from shoal.core.url import request_digest
from shoal.worker.handling import Step
from shoal.worker.harvest import Harvest
from shoal.worker.tools import Found, Served, Tools

log = logging.getLogger("shoal.worker")


class Visit:
    __slots__ = ("_began", "_wall", "handling", "lanes", "response", "served", "step", "task", "tools")

    def __init__(self, task: Leased, tools: Tools) -> None:
        self.task = task
        self.tools = tools
        self.served: Served | None = None
        self.step = Step(task, tools)
        self.lanes: tuple[LaneChange, ...] = ()
        self.response: Response | None = None
        self.handling = False  # whether a failure now is one of the user's code
        self._began = tools.clock()
        self._wall = tools.wall()

    def learn(self, change: LaneChange | None) -> None:
        if change is not None:
            self.lanes += (change,)
            if change.hold_for:
                self.tools.holds.add(change.lane, change.hold_for)

    @property
    def address(self) -> str:
        """Where the page really is."""
        return self.response.url if self.response is not None else self.task.url

    def done(self, harvest: Harvest, found: Found) -> Outcome:
        task, response = self.task, self.response
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
            same_as=request_digest(response.url) if response and response.redirects else None,
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

    def moved(self, response: Response, trail: list[str]) -> Response:
        """The final answer of a chain of redirects."""
        if trail:
            response = msgspec.structs.replace(response, redirects=tuple(trail))
        self.response = response
        return response
