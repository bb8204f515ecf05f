"""Celery workers killed in mid-batch, their children, their parent, all at once: every page is done, none twice."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import redis
from servers.celery_worker import CeleryWorker, broker, client
from wait import until

from shoal.app import open_queue
from shoal.config.load import load
from shoal.core.run import Run
from shoal.queue.base import Queue

pytestmark = pytest.mark.timeout(1_200)
PAGES = 1_000
# So short that what a killed worker had not acknowledged is handed out again while the test waits.
IMPATIENT = {"CELERY_VISIBILITY_TIMEOUT": "10"}


class CeleryFleet:
    """Two workers on one broker, which is killed piece by piece and started again."""

    def __init__(self, folder: Path, url: str, *flags: str) -> None:
        self.workers = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            self.workers.append(CeleryWorker(folder / name, url, *flags, "-n", f"{name}@test", **IMPATIENT))

    def start(self) -> None:
        for worker in self.workers:
            worker.start()

    def strike(self, worker: CeleryWorker, chance: random.Random) -> None:
        """Kill a child, the parent, or the whole group."""
        what = chance.choice(("child", "child", "parent", "group"))
        if what == "child" and (children := worker.processes()):
            with_children = chance.choice(children)
            if psutil.pid_exists(with_children.pid):
                with_children.kill()
            return
        left = worker.processes()
        if what == "parent":
            worker.kill_parent()
            _, alive = psutil.wait_procs(left, 60)
            assert not alive, "what a killed worker had started outlived it"
        else:
            worker.kill_group()
        worker.start(wait=False)

    def end(self) -> None:
        for worker in self.workers:
            worker.end()


@pytest.fixture
def url() -> Iterator[str]:
    with broker() as url:
        yield url


@pytest.fixture
def site(crawl_of: Callable[..., Any]) -> str:
    return str(crawl_of(5, delay=0.05).url)


class SentPages:
    """Messages of a program that sends again what its broker lost.

    Celery takes a message from Redis and notes that it has it in two steps: who is killed between them has lost it.
    """

    def __init__(self, app: Any, url: str, folder: Path, pages: list[str]) -> None:
        self._app, self._redis, self._folder = app, redis.Redis.from_url(url), folder
        self._pages = dict[str, str]()
        self.results = [self._send(page, str(uuid.uuid4())) for page in pages]

    def _send(self, page: str, name: str) -> Any:
        self._pages[name] = page
        return self._app.send_task("shoal.crawl_url", args=[page], kwargs={"content": "none"}, task_id=name)

    def send_lost(self) -> None:
        """What no worker has received and the broker does not have."""
        logs = [log.read_text() for log in self._folder.glob("*/celery.log")]
        held: list[Any] = [*self._redis.lrange("celery", 0, -1), *self._redis.hvals("unacked")]  # type: ignore[misc]
        for name, page in self._pages.items():
            if not any(name in log for log in logs) and not any(name.encode() in message for message in held):
                self._send(page, name)


async def struck(
    fleet: CeleryFleet, queue: Queue, wanted: int, seed: int, *, after: Callable[[], None] = lambda: None
) -> list[Run]:
    """Strike every two seconds until all pages are done; their runs. after: what is done again and again then."""
    chance, struck_at, strikes = random.Random(seed), time.monotonic(), 0

    async def is_done() -> list[Run] | None:
        nonlocal struck_at, strikes
        runs = await queue.runs(limit=100)
        stats = [await queue.stats(run.id) for run in runs]
        done, is_open = sum(one.done for one in stats), sum(one.open for one in stats)
        if done >= wanted and not is_open:
            return runs
        if strikes < 12 and done > 0 and time.monotonic() - struck_at > 2:
            fleet.strike(fleet.workers[strikes % 2], chance)
            struck_at, strikes = time.monotonic(), strikes + 1
        if strikes == 12 and time.monotonic() - struck_at > 30:
            struck_at = time.monotonic()
            after()
        return None

    runs = await until(is_done, 600, every=0.2)  # Celery looks for what was not acknowledged every 100 seconds
    assert strikes >= 5, "it was over before it was hit"
    return runs


async def check(queue: Queue, runs: list[Run], urls: list[str]) -> None:
    recorded: Counter[str] = Counter()
    for run in runs:
        stats = await queue.stats(run.id)
        assert stats.is_balanced and not stats.open, stats
        after = 0
        while page := await queue.records(run.id, after=after, limit=1000):
            recorded.update(msgspec.json.decode(record.data)["url"] for record in page)
            after = page[-1].seq
    assert recorded == Counter(urls)


def urls_of(site: str) -> list[str]:
    return [f"{site}?page={number}" for number in range(PAGES)]


MODES = pytest.mark.parametrize(
    "flags", [("-c", "3"), ("-P", "solo", "--shoal-workers", "2")], ids=["messages", "bootstep"]
)


@asynccontextmanager
async def struck_fleet(folder: Path, url: str, flags: tuple[str, ...]) -> AsyncIterator[tuple[CeleryFleet, Queue]]:
    fleet, queue = CeleryFleet(folder, url, *flags), await open_queue(load({"queue": url}, env={}))
    try:
        fleet.start()
        yield fleet, queue
    finally:
        fleet.end()
        await queue.close()


@MODES
async def test_pages_of_messages_are_done_and_recorded_once_whatever_is_killed(
    tmp_path: Path, url: str, site: str, flags: tuple[str, ...]
) -> None:
    app, urls = client(url, **IMPATIENT), urls_of(site)
    async with struck_fleet(tmp_path, url, flags) as (fleet, queue):
        sent = SentPages(app, url, tmp_path, urls)
        await check(queue, await struck(fleet, queue, PAGES, 1, after=sent.send_lost), urls)
        await until(lambda: all(result.state == "SUCCESS" for result in sent.results), 300, every=0.5)
        await check(queue, await queue.runs(limit=100), urls)


@MODES
async def test_a_run_is_done_and_recorded_once_whatever_is_killed(
    tmp_path: Path, url: str, site: str, flags: tuple[str, ...]
) -> None:
    app, urls = client(url, **IMPATIENT), urls_of(site)
    async with struck_fleet(tmp_path, url, flags) as (fleet, queue):
        result = app.send_task("shoal.crawl", kwargs={"urls": urls, "content": "none", "delay": 0.02})
        await check(queue, await struck(fleet, queue, PAGES, 2), urls)
        await until(lambda: result.state == "SUCCESS", 200, every=0.5)
        assert result.result["done"] == PAGES
