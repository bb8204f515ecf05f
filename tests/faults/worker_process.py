"""A worker process of the fault runs: the real child and loop, with a recorder around the queue.

`bug` plants a fault on purpose, so that tests can show that the checker notices it.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec

from faults.recorder import History, Recorder
from shoal import Scraper, app
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.task import Task, digest
from shoal.extract.links import LinkFilter
from shoal.fetch.http import HttpFetcher
from shoal.queue.base import ExtendResult, TaskFilter
from shoal.queue.reconnect import reconnecting
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool import child
from shoal.worker.pool.crash_note import CrashNote


class Unfenced(Recorder):
    """Settles under whatever lease a task has now, as a queue without fencing would."""

    async def settle(self, outcomes: Any, paces: Any = None) -> Any:
        views = {}
        for outcome in outcomes:
            found = await self._queue.list_tasks(outcome.task >> 32, where=TaskFilter(ids=(outcome.task,)), limit=1)
            views[outcome.task] = found[0].lease if found and found[0].state == "leased" else outcome.lease
        forged = [msgspec.structs.replace(o, lease=views[o.task]) for o in outcomes]
        verdicts = await self._queue.settle(forged, paces)
        options = [[o.task, o.lease, o.result, v] for o, v in zip(outcomes, verdicts, strict=True)]
        self._history.write("settle", began=asyncio.get_running_loop().time(), outcomes=options)
        return verdicts


class DeafHeartbeat:
    """A heartbeat that never tells the worker what it has lost, so that it answers late."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def extend(self, *args: Any, **words: Any) -> ExtendResult:
        await self._queue.extend(*args, **words)
        return ExtendResult()


class DropsRecords(Recorder):
    """Acknowledges some work without its record."""

    async def settle(self, outcomes: Any, paces: Any = None) -> Any:
        without_records = [msgspec.structs.replace(o, records=()) if o.task % 97 == 0 else o for o in outcomes]
        return await super().settle(without_records, paces)


class DuplicatesRecords(Recorder):
    """Stores some records twice."""

    async def settle(self, outcomes: Any, paces: Any = None) -> Any:
        more = [msgspec.structs.replace(o, records=o.records * 2) if o.task % 97 == 0 else o for o in outcomes]
        return await super().settle(more, paces)


class FindsLinks(Recorder):
    """Every third task finds one more, until there are so many: on another host, and so often on another shard."""

    links = lanes = 0

    def __init__(self, queue: Any, history: History) -> None:
        super().__init__(queue, history)
        self.numbers: dict[int, int] = {}

    async def claim(self, worker: str, limit: int, **words: Any) -> Any:
        claim = await super().claim(worker, limit, **words)
        self.numbers.update({task.id: task.meta["payload"]["n"] for task in claim.tasks})
        return claim

    async def settle(self, outcomes: Any, paces: Any = None) -> Any:
        return await super().settle([self._with_link(outcome) for outcome in outcomes], paces)

    def _with_link(self, outcome: Any) -> Any:
        n = self.numbers.get(outcome.task, LINKED)
        if outcome.result != "done" or n % LINK_EVERY or n >= self.links * LINK_EVERY:
            return outcome
        found = Task(
            url=f"task:step/linked-{n}", lane=f"lane{(n * 7 + 3) % self.lanes}", digest=digest(f"linked {n}"),
            kind="step", meta={"payload": {"n": n + LINKED}},
        )  # fmt: skip
        return msgspec.structs.replace(outcome, found=(found,))


LINKED = 1_000_000  # the numbers of tasks that were found begin here
LINK_EVERY = 3
RECORDERS = {
    "links": FindsLinks,
    "": Recorder,
    "unfenced": Unfenced,
    "forgetful": DropsRecords,
    "doubling": DuplicatesRecords,
}


async def build(config: child.ChildConfig, note: CrashNote) -> tuple[WorkerContext, WorkerPlan]:
    options = config.settings
    history = History(Path(options["history"]), config.worker)
    settings = load({"queue": options["queue"], "synchronous": "normal"}, env={})
    FindsLinks.links, FindsLinks.lanes = options.get("links", 0), options.get("lanes", 1)
    queue: Any = RECORDERS["links" if FindsLinks.links else options.get("bug", "")](
        await reconnecting(lambda: app.open_queue(settings, small=True)), history
    )
    scraper = Scraper("faults")

    @scraper.task("step")
    async def step(task: Any) -> dict[str, int]:
        lease = leases[task.id]
        history.write("start", task=task.id, lease=lease)
        await asyncio.sleep(options["work"] * random.uniform(0.5, 1.5))
        history.write("end", task=task.id, lease=lease)
        return {"n": task.payload["n"]}

    leases: dict[int, int] = {}
    claim = queue.claim

    async def remember_leases(*args: Any, **words: Any) -> Any:
        claimed = await claim(*args, **words)
        leases.update({task.id: task.lease for task in claimed.tasks})
        return claimed

    queue.claim = remember_leases

    async def serve(run: int) -> RunContext:
        gate = LinkFilter(scraper.in_scope, None, lambda lane, url: None)
        return RunContext(scraper, gate, None, lambda lane: UNLIMITED_PACE, name="faults", handler_timeout=60.0)

    async def open_queue() -> Any:
        opened = await app.open_queue(settings, small=True)
        return DeafHeartbeat(opened) if options.get("bug") == "unfenced" else opened

    tools = WorkerContext(config.worker, queue, HttpFetcher(user_agent="test"), serve, note, open_queue)
    plan = WorkerPlan(
        concurrency=options["concurrency"],
        stop_when_empty=False,
        heartbeat=options["lease"] / 3,
        lease=options["lease"],
        outage_timeout=options.get("outage_timeout", 120.0),
    )
    return tools, plan


if __name__ == "__main__":
    child.main(build)
