"""What a member of the fleet makes for a run: nothing that the run's own words could turn against it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.config.load import load
from shoal.core.run import NewRun, Run
from shoal.errors import UsageError
from shoal.extract.scraper import Scraper
from shoal.extract.template.model import Template
from shoal.launch.fetchers import FetcherPool
from shoal.launch.job import FleetJob
from shoal.launch.scraper_set import ScraperSet
from shoal.launch.worker_context import FleetContextFactory
from shoal.queue import document_kinds as kinds
from shoal.queue.sqlite import SqliteQueue
from shoal.worker.context import RunNotServed, WorkerContext
from shoal.worker.pool.crash_note import CrashNote


@pytest.fixture
async def tools(queue: SqliteQueue, tmp_path: Path, factory: FleetContextFactory) -> AsyncIterator[WorkerContext]:
    made = factory.worker_context(CrashNote.in_memory("w"))
    yield made
    await made.close()


@pytest.fixture
def factory(queue: SqliteQueue, tmp_path: Path) -> FleetContextFactory:
    fleet_job = FleetJob(load({"queue": str(tmp_path / "q.db")}, env={}), "w")
    scraper = Scraper("books", "http://h/")
    return FleetContextFactory(fleet_job, Everything(fleet_job, {"books": scraper}, {}), queue)


class Everything(ScraperSet):
    anything = True


async def templated(queue: SqliteQueue, text: str, **new: Any) -> Run:
    await queue.save_document(kinds.TEMPLATE, "t", text)
    given: dict[str, Any] = {"name": "r1", "spec": {kinds.TEMPLATE: "t", "template_version": 1}}
    return await queue.start_run(NewRun("t", "k", **given | new))


def template(**settings: Any) -> str:
    return msgspec.json.encode(Template(name="t", start=("http://h/",), pages=(), settings=settings)).decode()


async def test_template_of_a_run_cannot_open_the_private_network_of_a_worker(
    queue: SqliteQueue, tools: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: list[str] = []
    real = FetcherPool.for_run

    def of(pool: FetcherPool, run: int, settings: Any) -> Any:
        allowed.append(settings.allow_private)
        return real(pool, run, settings)

    monkeypatch.setattr(FetcherPool, "for_run", of)
    run = await templated(queue, template(allow_private="1", user_agent="evil", queue="/elsewhere/x.db"))
    await tools.run_context(run.id)
    assert allowed == [""]


async def test_scraper_that_may_reach_private_hosts_shares_no_connections_with_others(
    queue: SqliteQueue, tools: WorkerContext, factory: FleetContextFactory
) -> None:
    factory._scraper_set.scrapers["books"].settings["allow_private"] = "127.0.0.1:8000"
    run = await queue.start_run(NewRun("books", "k", name="r1"))
    assert (await tools.run_context(run.id)).fetcher is not factory._fetcher_pool._fetchers[
        factory._fetcher_pool._own_key
    ]


@pytest.mark.parametrize("name", ["../../evil", "/evil", ".evil", "a/b", "a\n"])
async def test_run_whose_name_leads_to_other_files_is_refused(
    queue: SqliteQueue, tools: WorkerContext, name: str
) -> None:
    run = await templated(queue, template(), name=name)
    with pytest.raises(RunNotServed, match="name"):
        await tools.run_context(run.id)


async def test_template_of_a_newer_version_is_left_to_others(queue: SqliteQueue, tools: WorkerContext) -> None:
    run = await templated(queue, '{"name": "t", "pages": "of another kind"}')
    with pytest.raises(RunNotServed, match="not understood here"):
        await tools.run_context(run.id)


async def test_run_that_this_machine_has_no_room_for_is_left_to_others(
    queue: SqliteQueue, tools: WorkerContext, factory: FleetContextFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "raw")

    monkeypatch.setattr("shoal.launch.raw_stores.open_raw_store", full)
    run = await templated(queue, template(keep_raw=True))
    with pytest.raises(RunNotServed, match="No space left"):
        await tools.run_context(run.id)


async def test_nothing_is_kept_of_a_run_that_has_ended(
    queue: SqliteQueue, tools: WorkerContext, factory: FleetContextFactory
) -> None:
    run = await templated(queue, template(user_agent="mine"))
    await tools.run_context(run.id)
    assert len(factory._fetcher_pool._fetchers) == 2
    await queue.set_run(run.id, "cancel")
    await factory._run_list.refresh()
    with pytest.raises(RunNotServed, match="has ended"):  # a task of it that was still at hand
        await tools.run_context(run.id)
    assert not factory._contexts and len(factory._fetcher_pool._fetchers) == 1


async def test_template_that_is_not_there_is_said_so(queue: SqliteQueue) -> None:
    from shoal.launch.worker_context import load_template_scraper

    with pytest.raises(UsageError, match="no template"):
        await load_template_scraper(queue, "t", 1)
