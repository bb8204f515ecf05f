"""A queue with an hour of simulated history: running, paused and finished runs, and all kinds of workers.

Everything goes through the queue's own methods, on a shifted clock, so that all counts agree.
`python tests/acceptance/busy_queue.py FOLDER [--live]` fills FOLDER/shoal.db; --live keeps workers running.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path

from shoal.control.actions import LoggedAction, append_action
from shoal.control.history import History
from shoal.core.counters import (
    DURATION_BOUNDS,
    SIZE_BOUNDS,
    Counters,
    LaneCounters,
    bucket_index,
    empty_buckets,
    encode,
    error_class,
)
from shoal.core.lane import INDEFINITELY, Pace, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.schedule import Schedule, ScheduledRun
from shoal.core.task import Attempt, LaneChange, LeasedTask, Outcome, Task
from shoal.core.url import lane_of, request_digest
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue

STEP = 10.0
ROUNDS = 3  # of work in one step
SERVES = ("templates", "products", "reviews", "prices")
TRACE = """Traceback (most recent call last):
  File "shop.py", line 48, in parse
    price = page.json["price"]
KeyError: 'price'"""
HOSTILE_TEXTS = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "left \u202eright\u202c to left",
    "a\x00b\x1b[31mred",
)


class ShiftedClock:
    """The wall clock minus an offset in seconds, which `step` reduces."""

    def __init__(self, offset: float) -> None:
        self._offset = offset

    def __call__(self) -> int:
        return int((time.time() - self._offset) * 1e6)

    def step(self, seconds: float) -> None:
        self._offset = max(0.0, self._offset - seconds)


class SimulatedWorker:
    """A worker whose outcomes are random."""

    def __init__(self, id: str, host: str, now: int, speed: int, dice: random.Random) -> None:
        self.id, self.host, self.speed, self.dice = id, host, speed, dice
        self.started_at = now
        self.figures = Counters(took=empty_buckets(DURATION_BOUNDS), size=empty_buckets(SIZE_BOUNDS))
        self.failed = 0
        self.state = "working"

    def worker_status(self) -> WorkerStatus:
        return WorkerStatus(
            id=self.id, name=self.id.rpartition("-")[0], host=self.host, pid=4000 + self.speed, version="1.0",
            started_at=self.started_at, seen_at=0, state=self.state, activity="fetching",
            done=self.figures.done,
            failed=self.failed, memory=180_000_000 + self.figures.done * 9_000,
            serves=SERVES, code="products=3f9a prices=77c1",
            counters=encode(self.figures),
        )  # fmt: skip

    def outcome(self, task: LeasedTask, now: int) -> Outcome:
        took = self.dice.lognormvariate(-1.2, 0.7)
        cause, status, message = self._fate(task)
        size = 0 if cause else self.dice.randrange(4_000, 90_000)
        attempt = Attempt(now, self.id, cause, message, status, took, size)
        self._count(task, cause, took, size)
        if not cause:
            return Outcome(task.id, task.lease, "done", attempt, records=(self._record(task),))
        passing = cause.startswith(("timeout", "http.5", "http.429")) and task.attempts < 3
        if passing:
            return Outcome(task.id, task.lease, "retry", attempt, after=60.0 * 2**task.attempts, cause=cause)
        evidence = {"traceback": TRACE} if cause == "handler" else {"headers": {"server": "nginx"}}
        return Outcome(task.id, task.lease, "dead", attempt, cause=cause, evidence=evidence)

    def _fate(self, task: LeasedTask) -> tuple[str, int, str]:
        if task.lane == "cdn.example":
            return "http.403", 403, "the server forbids it"
        turn = self.dice.random()
        if turn < 0.03:
            return "http.404", 404, "not found"
        if turn < 0.045:
            return "timeout.read", 0, "no answer within 30 s"
        if turn < 0.06:
            return "http.503", 503, "the server is overloaded"
        if turn < 0.075:
            return "handler", 200, "KeyError: 'price' in shop.py:48"
        return "", 200, ""

    def _count(self, task: LeasedTask, cause: str, took: float, size: int) -> None:
        mine = self.figures
        lane = mine.lanes.setdefault(task.lane, LaneCounters())
        mine.took[bucket_index(DURATION_BOUNDS, took)] += 1
        mine.took_sum += took
        lane.seconds += took
        mine.asks += 1
        mine.ask_seconds += 0.0012
        mine.lag = 0.004
        if cause:
            self.failed += 1
            lane.failed += 1
            mine.failed[error_class(cause)] = mine.failed.get(error_class(cause), 0) + 1
            return
        mine.done += 1
        mine.records += 1
        mine.bytes += size
        mine.size[bucket_index(SIZE_BOUNDS, size)] += 1
        mine.size_sum += size
        lane.done += 1
        lane.bytes += size

    def _record(self, task: LeasedTask) -> bytes:
        number = int(task.url.rpartition("/")[2])
        is_hostile = task.lane in ("reviews.example", "shop04.example") and number <= 12
        made = {
            "url": task.url,
            "title": HOSTILE_TEXTS[number % 4] if is_hostile else f"Item {number}, {task.lane}",
            "price": None if number % 11 == 0 else round(self.dice.uniform(1, 300), 2),
            "sku": f"SKU-{number:06}",
            "stock": number % 7,
            "link": "javascript:document.title='owned'" if is_hostile else f"https://{task.lane}/buy/{number}",
            "description": "A sturdy thing that does what it says. " * (1 + number % 9),
            "tags": ["new", "sale"] if number % 3 else [],
        }
        return json.dumps({key: value for key, value in made.items() if value is not None}).encode()


def tasks(host: str, count: int, first: int = 1) -> list[Task]:
    urls = [f"https://{host}/item/{number}" for number in range(first, first + count)]
    return [Task(url, lane_of(url), request_digest(url)) for url in urls]


async def start(queue: Queue, name: str, scraper: str, **more: object) -> Run:
    spec = {"mode": "distributed", "settings": {"rate": 2, "max_depth": 3}, "scraper": scraper, **more}
    return await queue.start_run(NewRun(scraper, f"show/{name}", name, spec))


async def add_pages(queue: Queue, run: Run, host: str, count: int, spacing: float, at_once: int = 4) -> None:
    found = tasks(host, count)
    for at in range(0, count, 1000):
        await queue.add(run.id, found[at : at + 1000], {host: Pace(spacing, at_once)})


async def work(queue: Queue, worker: SimulatedWorker, clock: ShiftedClock) -> None:
    """One step of a worker: claim tasks, settle them and report its status."""
    await queue.register(worker.worker_status())
    left = worker.speed
    while left > 0:
        claim = await queue.claim(worker.id, min(50, left), serves=SERVES)
        if not claim.tasks:
            break
        left -= len(claim.tasks)
        now = clock()
        await queue.settle([worker.outcome(task, now) for task in claim.tasks])
        clock.step(0.15)
    worker.state = "working" if left < worker.speed else "idle"


async def populate(path: Path, *, minutes: float = 60, scale: float = 1.0, seed: int = 7) -> None:
    """An hour of a small fleet, ending now."""
    clock, dice = ShiftedClock(minutes * 60), random.Random(seed)
    queue = await SqliteQueue.open(str(path), clock=clock)
    history = History(queue)
    try:
        await _add_runs(queue, scale)
        workers = [
            SimulatedWorker(f"node0{n}-7f3a-{m}", f"node0{n}", clock(), 24 + 4 * n, dice)
            for n in (4, 5)
            for m in (1, 2)
        ]
        leaving_worker = SimulatedWorker("node07-19bc-1", "node07", clock(), 30, dice)
        steps = int(minutes * 60 / STEP)
        for step in range(steps):
            until = clock() + int(STEP * 1e6)
            for _ in range(ROUNDS):
                for worker in (*workers, leaving_worker) if step < steps * 0.8 else workers:
                    await work(queue, worker, clock)
                clock.step(STEP / (ROUNDS + 1))
            if step == int(steps * 0.6):
                await _add_user_actions(queue)
            await queue.reap()
            await _finish(queue)
            await history.add_sample()
            clock.step((until - clock()) / 1e6)
        await queue.claim("node04-7f3a-1", 12, serves=SERVES)
        await queue.claim("node05-7f3a-2", 6, serves=SERVES)
        for worker in workers:
            await queue.register(worker.worker_status())
    finally:
        await queue.close()


async def _add_runs(queue: Queue, scale: float) -> None:
    def scaled(count: int) -> int:
        return max(3, int(count * scale))

    done = await start(queue, "reviews-2026-11", "reviews")
    await add_pages(queue, done, "reviews.example", scaled(400), 0.05)
    await add_pages(queue, done, "stars.example", scaled(120), 0.2)
    big = await start(queue, "products-2026-11", "products", output="products.parquet")
    await add_pages(queue, big, "biggest.example", scaled(30_000), 0.25)
    for number in range(24):
        await add_pages(queue, big, f"shop{number + 1:02}.example", scaled(600 - 20 * number), 1.0)
    await add_pages(queue, big, "cdn.example", scaled(500), 0.5)
    paused = await start(queue, "prices-daily", "prices")
    await add_pages(queue, paused, "prices.example", scaled(900), 0.5)
    await queue.set_run(paused.id, "pause")
    nobody = await start(queue, "catalogue-fr", "catalogue")
    await add_pages(queue, nobody, "catalogue.example", scaled(250), 1.0)
    gone = await start(queue, "news-trial", "reviews")
    await add_pages(queue, gone, "news.example", scaled(80), 1.0)
    await queue.set_run(gone.id, "cancel")


async def _finish(queue: Queue) -> None:
    for run in await queue.runs():
        if run.state == "running" and not (await queue.stats(run.id)).open:
            await queue.set_run(run.id, "finish")


async def _add_user_actions(queue: Queue) -> None:
    """What people did meanwhile."""
    from shoal.control.schedules import add

    await queue.set_lane(LaneChange("cdn.example", park_for=INDEFINITELY, reason="403 fifty times in a row"))
    await queue.set_lane(LaneChange("shop03.example", park_for=1800.0, reason="their sale"))
    await queue.set_lane(LaneChange("shop05.example", spacing_override=5.0, limit=1))
    now = await queue.now()
    for what, about, who in (("park", "shop03.example", "mara"), ("pause", "prices-daily", "this machine")):
        await append_action(queue, LoggedAction(now, who, what, about))
    for name, cron in (("nightly", "0 3 * * *"), ("prices", "every 6h")):
        order = ScheduledRun("prices", {"mode": "distributed"})
        await add(queue, Schedule(name, cron, order, 0, 0, "Europe/Berlin"), tasks("prices.example", 40), {})


async def keep_working(path: Path) -> None:
    """Keep its workers working in real time, until killed."""
    clock, dice = ShiftedClock(0), random.Random(11)
    queue = await SqliteQueue.open(str(path))
    workers = [SimulatedWorker(f"node0{n}-7f3a-{m}", f"node0{n}", clock(), 3, dice) for n in (4, 5) for m in (1, 2)]
    while True:
        for worker in workers:
            await work(queue, worker, clock)
        await asyncio.sleep(1.0)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "shoal.db"
    if not path.exists():
        asyncio.run(populate(path))
    if "--live" in sys.argv:
        asyncio.run(keep_working(path))


if __name__ == "__main__":
    main()
