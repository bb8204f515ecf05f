"""BalancedWorker: a worker with a port, as a load balancer knows it."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

import msgspec

from shoal.client.worker_connection import WorkerConnection, WorkerUnreachable
from shoal.core.balancing import LoadReport
from shoal.core.typed_task import Task, daily_scraper_name
from shoal.web.push.request import PushAnswer, PushRequest, WorkerReport

log = logging.getLogger("shoal.balancer")

Submit = Callable[["BalancedWorker", Task | str, str, int], Awaitable[int]]


class BalancedWorker:
    """`submit` pushes to it; the rest is what it last said of itself."""

    def __init__(self, name: str, connection: WorkerConnection, submit: Submit, *, found: bool = False) -> None:
        self.name = name
        self.is_healthy = False
        self.is_found = found  # in the queue's registry, not registered by hand
        self.report: WorkerReport | None = None
        self.error = ""
        self._connection = connection
        self._submit = submit  # to this worker first
        self._asked_at = float("-inf")
        self._on_their_way = 0

    def __repr__(self) -> str:
        return f"<worker {self.name} at {self.url}, {'healthy' if self.is_healthy else 'not answering'}>"

    @property
    def url(self) -> str:
        return self._connection.url

    @property
    def load(self) -> LoadReport:
        """What it last said, and what is on its way to it."""
        load = self.report.load if self.report is not None else LoadReport()
        return msgspec.structs.replace(load, in_flight=load.in_flight + self._on_their_way)

    @property
    def is_new(self) -> bool:
        """Whether nobody has asked it anything yet."""
        return self._asked_at == float("-inf")

    @property
    def age(self) -> float:
        """Seconds since it last said how busy it is."""
        return time.monotonic() - self._asked_at

    def serves(self, request: PushRequest) -> bool:
        """Whether it has the code and the capabilities for a typed task; of pages it says so itself."""
        if self.report is None or request.task is None:
            return True
        needs = request.task.get("needs") or ()
        needed = {needs} if isinstance(needs, str) else set(needs)
        has_code = daily_scraper_name(str(request.task.get("type"))) in self.report.serves
        return has_code and needed <= set(self.report.capabilities)

    async def submit(self, task: Task | str, *, run: str = "", priority: int = 0) -> int:
        """Push a task to this worker, or the URL of a page of a run; returns its id.

        Where this worker cannot take it, another one does, or it waits in the queue for any.
        """
        return await self._submit(self, task, run, priority)

    async def check(self) -> bool:
        """Ask it how it is; one that does not answer gets nothing until it does."""
        try:
            self._update(await self._connection.load())
        except WorkerUnreachable as error:
            self._fail(error)
        return self.is_healthy

    async def push(self, request: PushRequest) -> PushAnswer:
        self._on_their_way += 1
        try:
            answer = await self._connection.push(request)
        except WorkerUnreachable as error:
            self._fail(error)
            raise
        finally:
            self._on_their_way -= 1
        if self.report is not None and answer.load != LoadReport():
            self._update(msgspec.structs.replace(self.report, load=answer.load))
        return answer

    def _update(self, report: WorkerReport) -> None:
        self.report, self.is_healthy, self.error = report, True, ""
        self._asked_at = time.monotonic()

    def _fail(self, error: Exception) -> None:
        if self.is_healthy or not self.error:
            log.warning("worker_unhealthy", extra={"worker": self.name, "error": str(error)})
        self.is_healthy, self.error = False, str(error)
        self._asked_at = time.monotonic()
