"""The same numbers everywhere: in every document, in the store and in its history, also while workers die."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from local_fleet import LocalFleet
from shell_user import BOOKS_SCRAPER, ShellUser
from small_site import page
from wait import HANG

from shoal.app import open_queue
from shoal.config.load import load
from shoal.control.history import History
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.view.documents import fleet_document, run_document, status_document
from shoal.view.snapshot import take_snapshot
from shoal.view.status import gather_status

PAGES = 300
COUNTS = ("seen", "ready", "delayed", "leased", "done", "dead", "cancelled", "records", "retries", "bytes")
GROWING = ("done", "dead", "records", "retries", "bytes")


@pytest.mark.parametrize("fleet", ["sqlite", "postgres"], indirect=True)
def test_numbers_are_those_of_the_store_during_a_run_with_kills_and_at_its_end(fleet: LocalFleet) -> None:
    settings = load({"queue": fleet.queue}, env={})
    answered = threading.Semaphore(0)  # so that it is not over before it was looked at
    fleet.site.pages["/*"] = lambda hit: answered.acquire(timeout=HANG) and page("x")
    fleet.site.pages["/bad/*"] = page("no", status=404)
    run = fleet.submit([f"/{n}" for n in range(PAGES - 9)] + [f"/bad/{n}" for n in range(9)])

    async def between(queue: Queue) -> tuple[Stats, list[dict[str, Any]], Stats]:
        """What documents say, and the store's account before and after they were made."""
        before = await queue.stats(run.id)
        snapshot = await take_snapshot(queue, settings)
        status = await gather_status(queue, settings, await fresh(queue), rate=0.0)
        after = await queue.stats(run.id)
        documents = [status_document(status)]
        documents += [one for one in fleet_document(snapshot)["runs"] if one["name"] == run.name]
        return before, documents, after

    async def fresh(queue: Queue) -> Run:
        return (await queue.runs(name=run.name))[0]

    fleet.scraper()
    args = ("plain.py", "--lease", "2", "--heartbeat", "0.3", "--concurrency", "2")
    workers = [fleet.worker(*args) for _ in "ab"]
    looks = 0
    killed = False
    while (found := fleet.ask(between))[2].open:
        before, documents, after = found
        assert len(documents) == 2
        for document in documents:
            for name in GROWING:
                assert getattr(before, name) <= document[name] <= getattr(after, name), name
            assert document["balanced"] and document["seen"] == PAGES
        looks += 1
        for _ in range(10):
            answered.release()
        if not killed and after.done > 20:
            os.killpg(workers[0].pid, signal.SIGKILL)
            workers.append(fleet.worker(*args))
            killed = True
    assert killed and looks > 3
    fleet.finished(run)

    async def at_rest(queue: Queue) -> tuple[Stats, Stats, list[dict[str, Any]], int]:
        stats, counted = await queue.stats(run.id), await queue.recount(run.id)
        _, documents, _ = await between(queue)
        history = History(queue, stale_after=settings.stale_after)
        until_now = await history.add_sample(final=True)
        assert until_now
        series = await history.read(600)
        documents.append(run_document(await fresh(queue), (await queue.stats_of([run.id]))[0]))
        return stats, counted, documents, sum(one.done for one in series.samples)

    stats, counted, documents, sampled = fleet.ask(at_rest)
    assert stats.done == PAGES - 9 and stats.dead == 9 and stats.is_balanced
    columns = [name for name in COUNTS if name not in ("retries", "bytes")]
    assert [getattr(stats, name) for name in columns] == [getattr(counted, name) for name in columns]
    for document in documents:
        assert {name: document[name] for name in COUNTS} == {name: getattr(stats, name) for name in COUNTS}
    (listed,) = fleet.user.ask("runs")
    assert {name: listed[name] for name in COUNTS} == {name: getattr(stats, name) for name in COUNTS}
    assert sampled == stats.done, "every page is in the history once"
    assert [worker.poll() for worker in workers[1:]] == [None, None]


def test_a_run_on_one_machine_leaves_all_its_pages_in_the_history(tmp_path: Path) -> None:
    with ShellUser(tmp_path) as user:
        user.write(BOOKS_SCRAPER)
        done = user.shoal("run", "books.py", "--allow-private", "--workers", "2", "--delay", "0")
        assert done.code == 0, done.err
        (listed,) = user.ask("runs")

        async def read() -> tuple[int, int]:
            queue = await open_queue(load({"queue": f"sqlite:///{tmp_path}/.shoal/shoal.db"}, env={}))
            try:
                samples = (await History(queue).read(600)).samples
            finally:
                await queue.close()
            return sum(one.done for one in samples), sum(one.records for one in samples)

        pages, records = asyncio.run(read())
    assert (pages, records) == (listed["done"], listed["records"]) and pages > 20
