"""A worker process of the fault runs: the real child and loop, with a recorder around the queue.

`bug` plants a fault on purpose, so that the judge can be seen to notice it.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec

from faults.recorder import History, Recorder
from shoal import Scraper, app
from shoal.config import load
from shoal.control.patience import patiently
from shoal.core.lane import FREE
from shoal.extract.links import LinkGate
from shoal.fetch.http import HttpFetcher
from shoal.queue.base import Extended, Where
from shoal.worker import child
from shoal.worker.note import Note
from shoal.worker.plan import Plan
from shoal.worker.tools import Served, Tools


class Unfenced(Recorder):
    """Settles under whatever lease a task has now, as a queue without fencing would."""

    async def settle(self, outcomes: Any, paces: Any = None) -> Any:
        views = {}
        for outcome in outcomes:
            found = await self._queue.look(outcome.task >> 32, where=Where(ids=(outcome.task,)), limit=1)
            views[outcome.task] = found[0].lease if found and found[0].state == "leased" else outcome.lease
        forged = [msgspec.structs.replace(o, lease=views[o.task]) for o in outcomes]
        verdicts = await self._queue.settle(forged, paces)
        said = [[o.task, o.lease, o.result, v] for o, v in zip(outcomes, verdicts, strict=True)]
        self._history.write("settle", began=asyncio.get_running_loop().time(), outcomes=said)
        return verdicts


class Deaf:
    """A heartbeat that never tells the worker what it has lost, so that it answers late."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def extend(self, *args: Any, **words: Any) -> Extended:
        await self._queue.extend(*args, **words)
        return Extended()


class Forgetful(Recorder):
    """Acknowledges some work without its record."""

    async def settle(self, outcomes: Any, paces: Any = None) -> Any:
        thinned = [msgspec.structs.replace(o, records=()) if o.task % 97 == 0 else o for o in outcomes]
        return await super().settle(thinned, paces)


class Doubling(Recorder):
    """Stores some records twice."""

    async def settle(self, outcomes: Any, paces: Any = None) -> Any:
        more = [
            msgspec.structs.replace(o, records=o.records * 2) if o.task % 97 == 0 else o for o in outcomes
        ]
        return await super().settle(more, paces)


RECORDERS = {"": Recorder, "unfenced": Unfenced, "forgetful": Forgetful, "doubling": Doubling}


async def build(orders: child.Orders, note: Note) -> tuple[Tools, Plan]:
    said = orders.settings
    history = History(Path(said["history"]), orders.worker)
    settings = load({"queue": said["queue"], "synchronous": "normal"}, env={})
    queue: Any = RECORDERS[said.get("bug", "")](
        await patiently(lambda: app.open_queue(settings, small=True)), history
    )
    scraper = Scraper("faults")

    @scraper.task("step")
    async def step(task: Any) -> dict[str, int]:
        lease = leases[task.id]
        history.write("start", task=task.id, lease=lease)
        await asyncio.sleep(said["work"] * random.uniform(0.5, 1.5))
        history.write("end", task=task.id, lease=lease)
        return {"n": task.payload["n"]}

    leases: dict[int, int] = {}
    claim = queue.claim

    async def remembering(*args: Any, **words: Any) -> Any:
        claimed = await claim(*args, **words)
        leases.update({task.id: task.lease for task in claimed.tasks})
        return claimed

    queue.claim = remembering

    async def serve(run: int) -> Served:
        gate = LinkGate(scraper.in_scope, None, lambda lane, url: None)
        return Served(scraper, gate, None, lambda lane: FREE, name="faults", handler_timeout=60.0)

    async def open_queue() -> Any:
        opened = await app.open_queue(settings, small=True)
        return Deaf(opened) if said.get("bug") == "unfenced" else opened

    tools = Tools(orders.worker, queue, HttpFetcher(user_agent="test"), serve, note, open_queue)
    plan = Plan(
        concurrency=said["concurrency"],
        stop_when_empty=False,
        heartbeat=said["lease"] / 3,
        lease=said["lease"],
        patience=said.get("patience", 120.0),
    )
    return tools, plan


if __name__ == "__main__":
    child.main(build)
