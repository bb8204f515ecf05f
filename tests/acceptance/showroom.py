"""Showroom: a queue with an hour behind it: runs that go on, wait and have ended, and workers of all kinds.

Everything goes through the queue's own verbs, on a clock that is moved, so that all numbers agree.
`python tests/acceptance/showroom.py FOLDER [--live]` fills FOLDER/shoal.db; --live lets it go on.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path

from shoal.control.acting import Action, keep
from shoal.control.history import History
from shoal.core.figures import SECONDS, SIZES, Figures, LaneFigures, buckets, encode, error_class, place
from shoal.core.lane import FOR_GOOD, Mark, Pace
from shoal.core.run import NewRun, Run
from shoal.core.schedule import Order, Schedule
from shoal.core.task import Attempt, LaneChange, Leased, Outcome, Task
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
NASTY = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "left \u202eright\u202c to left",
    "a\x00b\x1b[31mred",
)


class Clock:
    """Runs ahead of `behind` seconds ago, and is moved."""

    def __init__(self, behind: float) -> None:
        self._behind = behind

    def __call__(self) -> int:
        return int((time.time() - self._behind) * 1e6)

    def step(self, seconds: float) -> None:
        self._behind = max(0.0, self._behind - seconds)


class Hand:
    """A worker process that does what the dice say."""

    def __init__(self, id: str, host: str, now: int, speed: int, dice: random.Random) -> None:
        self.id, self.host, self.speed, self.dice = id, host, speed, dice
        self.started_at = now
        self.figures = Figures(took=buckets(SECONDS), size=buckets(SIZES))
        self.failed = 0
        self.state = "working"

    def mark(self) -> Mark:
        return Mark(
            id=self.id, name=self.id.rpartition("-")[0], host=self.host, pid=4000 + self.speed, version="1.0",
            started_at=self.started_at, seen_at=0, state=self.state, doing="fetching", done=self.figures.done,
            failed=self.failed, memory=180_000_000 + self.figures.done * 9_000,
            serves=SERVES, code="products=3f9a prices=77c1",
            figures=encode(self.figures),
        )  # fmt: skip

    def outcome(self, task: Leased, now: int) -> Outcome:
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

    def _fate(self, task: Leased) -> tuple[str, int, str]:
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

    def _count(self, task: Leased, cause: str, took: float, size: int) -> None:
        mine = self.figures
        lane = mine.lanes.setdefault(task.lane, LaneFigures())
        mine.took[place(SECONDS, took)] += 1
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
        mine.size[place(SIZES, size)] += 1
        mine.size_sum += size
        lane.done += 1
        lane.bytes += size

    def _record(self, task: Leased) -> bytes:
        number = int(task.url.rpartition("/")[2])
        nasty = task.lane in ("reviews.example", "shop04.example") and number <= 4
        made = {
            "url": task.url,
            "title": NASTY[number % 4] if nasty else f"Item {number}, {task.lane}",
            "price": None if number % 11 == 0 else round(self.dice.uniform(1, 300), 2),
            "sku": f"SKU-{number:06}",
            "stock": number % 7,
            "link": "javascript:document.title='owned'" if nasty else f"https://{task.lane}/buy/{number}",
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


async def sow(queue: Queue, run: Run, host: str, count: int, spacing: float, at_once: int = 4) -> None:
    found = tasks(host, count)
    for at in range(0, count, 1000):
        await queue.add(run.id, found[at : at + 1000], {host: Pace(spacing, at_once)})


async def work(queue: Queue, hand: Hand, clock: Clock) -> None:
    """One step of a worker: take what there is, do it, report."""
    await queue.register(hand.mark())
    left = hand.speed
    while left > 0:
        claim = await queue.claim(hand.id, min(50, left), serves=SERVES)
        if not claim.tasks:
            break
        left -= len(claim.tasks)
        now = clock()
        await queue.settle([hand.outcome(task, now) for task in claim.tasks])
        clock.step(0.15)
    hand.state = "working" if left < hand.speed else "idle"


async def furnish(path: Path, *, minutes: float = 60, scale: float = 1.0, seed: int = 7) -> None:
    """An hour of a small fleet, ending now."""
    clock, dice = Clock(minutes * 60), random.Random(seed)
    queue = await SqliteQueue.open(str(path), clock=clock)
    history = History(queue)
    try:
        await _stock(queue, scale)
        hands = [
            Hand(f"node0{n}-7f3a-{m}", f"node0{n}", clock(), 24 + 4 * n, dice) for n in (4, 5) for m in (1, 2)
        ]
        leaver = Hand("node07-19bc-1", "node07", clock(), 30, dice)
        steps = int(minutes * 60 / STEP)
        for step in range(steps):
            until = clock() + int(STEP * 1e6)
            for _ in range(ROUNDS):
                for hand in (*hands, leaver) if step < steps * 0.8 else hands:
                    await work(queue, hand, clock)
                clock.step(STEP / (ROUNDS + 1))
            if step == int(steps * 0.6):
                await _people(queue)
            await queue.reap()
            await _finish(queue)
            await history.note()
            clock.step((until - clock()) / 1e6)
        await queue.claim("node04-7f3a-1", 12, serves=SERVES)
        await queue.claim("node05-7f3a-2", 6, serves=SERVES)
        for hand in hands:
            await queue.register(hand.mark())
    finally:
        await queue.close()


async def _stock(queue: Queue, scale: float) -> None:
    def so_many(count: int) -> int:
        return max(3, int(count * scale))

    done = await start(queue, "reviews-2026-11", "reviews")
    await sow(queue, done, "reviews.example", so_many(400), 0.05)
    await sow(queue, done, "stars.example", so_many(120), 0.2)
    big = await start(queue, "products-2026-11", "products", output="products.parquet")
    await sow(queue, big, "biggest.example", so_many(30_000), 0.25)
    for number in range(24):
        await sow(queue, big, f"shop{number + 1:02}.example", so_many(600 - 20 * number), 1.0)
    await sow(queue, big, "cdn.example", so_many(500), 0.5)
    paused = await start(queue, "prices-daily", "prices")
    await sow(queue, paused, "prices.example", so_many(900), 0.5)
    await queue.set_run(paused.id, "pause")
    nobody = await start(queue, "catalogue-fr", "catalogue")
    await sow(queue, nobody, "catalogue.example", so_many(250), 1.0)
    gone = await start(queue, "news-trial", "reviews")
    await sow(queue, gone, "news.example", so_many(80), 1.0)
    await queue.set_run(gone.id, "cancel")


async def _finish(queue: Queue) -> None:
    for run in await queue.runs():
        if run.state == "running" and not (await queue.stats(run.id)).open:
            await queue.set_run(run.id, "finish")


async def _people(queue: Queue) -> None:
    """What people did meanwhile."""
    from shoal.control.timetable import add

    await queue.set_lane(LaneChange("cdn.example", park_for=FOR_GOOD, reason="403 fifty times in a row"))
    await queue.set_lane(LaneChange("shop03.example", park_for=1800.0, reason="their sale"))
    await queue.set_lane(LaneChange("shop05.example", rule=5.0, limit=1))
    now = await queue.now()
    for what, about, who in (("park", "shop03.example", "mara"), ("pause", "prices-daily", "this machine")):
        await keep(queue, Action(now, who, what, about))
    for name, cron in (("nightly", "0 3 * * *"), ("prices", "every 6h")):
        order = Order("prices", {"mode": "distributed"})
        await add(queue, Schedule(name, cron, order, 0, 0, "Europe/Berlin"), tasks("prices.example", 40), {})


async def go_on(path: Path) -> None:
    """Let its workers work, in the time of the wall."""
    clock, dice = Clock(0), random.Random(11)
    queue = await SqliteQueue.open(str(path))
    hands = [Hand(f"node0{n}-7f3a-{m}", f"node0{n}", clock(), 3, dice) for n in (4, 5) for m in (1, 2)]
    while True:
        for hand in hands:
            await work(queue, hand, clock)
        await asyncio.sleep(1.0)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "shoal.db"
    if not path.exists():
        asyncio.run(furnish(path))
    if "--live" in sys.argv:
        asyncio.run(go_on(path))


if __name__ == "__main__":
    main()
