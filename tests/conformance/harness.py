"""QueueHarness: a backend, a fake clock and short helpers, so that a test reads like its promise."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock

from conformance.model import ModelQueue
from shoal.core.lane import UNLIMITED_PACE, LaneState, Pace
from shoal.core.run import NewRun
from shoal.core.stats import Stats
from shoal.core.task import Admission, Attempt, Claim, LeasedTask, Outcome, Task, Verdict, digest
from shoal.queue.base import Queue

LANE = "a.test"


Opener = Callable[[Path, FakeClock], Awaitable[Queue]]


def model_opener(kind: type[ModelQueue] = ModelQueue) -> Opener:
    stores: dict[Path, ModelQueue] = {}

    async def open_model(folder: Path, clock: FakeClock) -> Queue:
        if folder in stores:
            stores[folder].reopened()
        return stores.setdefault(folder, kind(clock))

    return open_model


async def open_sqlite(folder: Path, clock: FakeClock) -> Queue:
    from shoal.queue.sqlite import SqliteQueue

    return await SqliteQueue.open(str(folder / "queue.db"), clock=clock)


def need(library: str) -> None:
    """Like a missing server, a missing client skips on a laptop and fails where CI is set."""
    try:
        importlib.import_module(library)
    except ImportError:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{library} is not installed: pip install {library}")


async def open_redis(folder: Path, clock: FakeClock) -> Queue:
    from servers import redis

    need("hiredis")
    from shoal.queue.redis import RedisQueue

    namespace = hashlib.sha256(str(folder).encode()).hexdigest()[:24]
    return await RedisQueue.open(redis.url(namespace), clock=clock)


async def open_postgres(folder: Path, clock: FakeClock) -> Queue:
    from servers import postgres

    need("asyncpg")
    from shoal.queue.postgres import PostgresQueue

    namespace = "t" + digest(str(folder)).hex()
    return await PostgresQueue.open(postgres.shared().url(namespace, connections=2), clock=clock)


async def open_http(folder: Path, clock: FakeClock) -> Queue:
    from conformance import http_backend

    return await http_backend.open_http(folder, clock)


async def open_rabbitmq(folder: Path, clock: FakeClock) -> Queue:
    from conformance import rabbitmq_backend

    return await rabbitmq_backend.open_rabbitmq(folder, clock)


async def open_shards(folder: Path, clock: FakeClock) -> Queue:
    from conformance import shards_backend

    return await shards_backend.open_shards(folder, clock, open_sqlite)


async def open_redis_shards(folder: Path, clock: FakeClock) -> Queue:
    from conformance import shards_backend

    return await shards_backend.open_shards(folder, clock, open_redis)


def backends() -> dict[str, Opener]:
    """Every backend by name. A new backend adds one line here and is done when the suite passes."""
    return {
        "model": model_opener(),
        "sqlite": open_sqlite,
        "redis": open_redis,
        "postgres": open_postgres,
        "http": open_http,
        "rabbitmq": open_rabbitmq,
        "shards": open_shards,
        "shards-redis": open_redis_shards,
    }


def page(url: str, lane: str = LANE, **more: Any) -> Task:
    return Task(url=url, lane=lane, digest=digest(url), **more)


def pages(count: int, prefix: str = "p", lane: str = LANE, **more: Any) -> list[Task]:
    return [page(f"{prefix}{number}", lane, **more) for number in range(count)]


def outcome(leased: LeasedTask, result: Any = "done", **more: Any) -> Outcome:
    return Outcome(task=leased.id, lease=leased.lease, result=result, **more)


def failed(cause: str, **more: Any) -> dict[str, Any]:
    """The words of a failure: its cause, and the attempt that says so."""
    attempt = Attempt(at=1, worker="w", cause=cause, message=f"it was {cause}", **more)
    return {"cause": cause, "attempt": attempt}


def urls(claim: Claim) -> list[str]:
    return [task.url for task in claim.tasks]


class QueueHarness:
    queue: Queue

    def __init__(self, opener: Opener, folder: Path) -> None:
        self.opener = opener
        self.folder = folder
        self.clock = FakeClock()
        self.handles: list[Queue] = []
        self.runs_started = 0

    async def open(self) -> Queue:
        """One more handle on the same store, as another process would have it."""
        self.handles.append(await self.opener(self.folder, self.clock))
        return self.handles[-1]

    async def reopen(self) -> Queue:
        await self.close()
        self.queue = await self.open()
        return self.queue

    async def close(self) -> None:
        while self.handles:
            await self.handles.pop().close()

    async def advance(self, seconds: float) -> None:
        if not self.queue.promises.steps_clock:
            pytest.skip("this backend's clock cannot be stepped")
        self.clock.step(seconds)

    def need_one_order(self) -> None:
        """For what is promised over all lanes: some backends keep it only within a part of them."""
        if self.queue.promises.apart:
            pytest.skip(self.queue.promises.apart)

    # short words

    async def run(self, key: str = "crawl", **more: Any) -> int:
        self.runs_started += 1
        more = {"scraper": "books", "name": f"run-{self.runs_started}", **more}
        return (await self.queue.start_run(NewRun(key=key, **more))).id

    async def add(
        self, run: int, tasks: Sequence[Task] | str, pace: Pace | None = UNLIMITED_PACE, **more: Any
    ) -> list[Admission]:
        """Add tasks, or pages named in one string; lanes are free of limits unless a pace is given."""
        if isinstance(tasks, str):
            tasks = [page(url, **more) for url in tasks.split()]
        return await self.queue.add(run, tasks, {task.lane: pace for task in tasks} if pace else None)

    async def claim(self, limit: int = 100, worker: str = "w1", **more: Any) -> Claim:
        return await self.queue.claim(worker, limit, **more)

    async def one(self, worker: str = "w1", **more: Any) -> LeasedTask:
        claim = await self.claim(1, worker, **more)
        assert len(claim.tasks) == 1, "a task was expected"
        return claim.tasks[0]

    async def settle(self, leased: LeasedTask, result: Any = "done", **more: Any) -> Verdict:
        return (await self.queue.settle([outcome(leased, result, **more)]))[0]

    async def settle_all(self, claim: Claim, result: Any = "done", **more: Any) -> list[Verdict]:
        return await self.queue.settle([outcome(leased, result, **more) for leased in claim.tasks])

    async def stats(self, run: int) -> Stats:
        stats = await self.queue.stats(run)
        assert stats.is_balanced, stats
        return stats

    async def state_of(self, run: int, url: str) -> str:
        view = await self.queue.find(run, digest(url))
        assert view is not None, f"{url} is not known"
        return view.state

    async def lane(self, name: str = LANE) -> LaneState:
        return next(lane for lane in await self.queue.lanes() if lane.name == name)

    async def slots(self, claim: Claim) -> list[int]:
        """When the tasks of a claim may start, by the store's clock, in order."""
        now = await self.queue.now()
        return sorted(now + round(task.start_in * 1_000_000) for task in claim.tasks)

    async def lose(self, worker: str = "w1", executing: Sequence[int] = ()) -> None:
        """A worker dies while it executes the given tasks."""
        await self.queue.reap({worker: executing})
