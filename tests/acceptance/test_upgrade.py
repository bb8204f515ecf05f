"""Upgrade without stopping: servers and workers of an earlier edition and of this one on one queue, in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from frozen_worker import FrozenWorker
from local_fleet import LocalFleet, local_fleet, stop_process, wait_for_exit
from server_process import ServerProcess, running_server
from small_site import GatedPage
from test_frozen_worker import NEWER, QUICK, SCRAPER, SOME_FAILED, TOKEN, check_account, crawl, frozen
from wait import HANG, wait_until

from shoal import app
from shoal.config.load import load
from shoal.queue.base import Queue
from shoal.queue.redis.server import LAYOUT

__all__ = ["frozen"]

EDITIONS = ("frozen", "newest")


def variables(edition: str, frozen: FrozenWorker) -> dict[str, str]:
    return {"PYTHONPATH": str(frozen.source)} if edition == "frozen" else {}


@pytest.fixture(params=["redis", "postgres"])
def fleet(request: pytest.FixtureRequest, frozen: FrozenWorker, tmp_path: Path) -> Iterator[LocalFleet]:
    if frozen.is_declared_older(request.param):
        pytest.skip("this edition says that they do not understand each other")
    with local_fleet(request.param, tmp_path) as made:
        yield made


def server_version(server: ServerProcess) -> str:
    return str(server.ask("/openapi.json")["info"]["version"])


def test_servers_and_workers_of_both_editions_share_a_queue(fleet: LocalFleet, frozen: FrozenWorker) -> None:
    """As in the midst of an upgrade, whichever goes first."""
    folders = [fleet.user.folder / edition for edition in EDITIONS]
    for folder in folders:
        folder.mkdir()
    run, code = crawl(fleet), fleet.scraper(text=SCRAPER)
    old, new = (variables(edition, frozen) for edition in EDITIONS)
    with (
        running_server(fleet.queue, token=TOKEN, folder=folders[0], environment=old) as older,
        running_server(fleet.queue, token=TOKEN, folder=folders[1], environment=new) as newer,
    ):
        assert server_version(older).endswith("+frozen") and not server_version(newer).endswith("+frozen")
        workers = [fleet.worker(code, *QUICK, "--name", edition, **variables(edition, frozen)) for edition in EDITIONS]
        said = [wait_for_exit(worker) for worker in workers]
        assert [done.code for done in said] == [SOME_FAILED] * 2, said
        for server in (older, newer):
            shown = wait_until(lambda server=server: _run_of(server, run.name))
            assert (shown["done"], shown["dead"], shown["open"]) == (15, 1, 0)
    check_account(fleet, run)


def _run_of(server: ServerProcess, name: str) -> dict[str, object] | None:
    shown: dict[str, object] = server.ask(f"/api/v1/runs/{name}")
    return shown if shown["state"] == "finished" else None


def test_newest_worker_works_through_a_run_of_an_older_server(frozen: FrozenWorker, tmp_path: Path) -> None:
    """Workers before servers: what a server does not know yet is not asked of it, or done without."""
    if frozen.is_declared_older("http"):
        pytest.skip("this edition says that they do not understand each other")
    with local_fleet("redis", tmp_path) as fleet:
        run, code = crawl(fleet), fleet.scraper(text=SCRAPER)
        folder = tmp_path / "server"
        folder.mkdir()
        old = variables("frozen", frozen)
        with running_server(fleet.queue, token=TOKEN, folder=folder, environment=old) as server:
            assert server_version(server).endswith("+frozen")
            done = fleet.work(code, *QUICK, SHOAL_QUEUE=server.url, SHOAL_TOKEN=TOKEN)
            assert done.code == SOME_FAILED, done.err
        check_account(fleet, run)


async def set_version(queue: Queue, kind: str, version: int | None) -> None:
    """As a newer edition would, or back to what this one knows."""
    engine = queue._engine  # type: ignore[attr-defined]
    if kind == "redis":
        await engine.read("HSET", "meta", "version", LAYOUT if version is None else version)
    elif version is None:
        await engine.rows(f"DELETE FROM {{s}}.shoal_migrations WHERE version = {NEWER}")
    else:
        await engine.rows(f"INSERT INTO {{s}}.shoal_migrations (version) VALUES ({version})")


@pytest.mark.parametrize("kind", ["redis", "postgres"])
async def test_workers_in_the_midst_of_a_run_lose_nothing_when_its_queue_is_migrated(kind: str, tmp_path: Path) -> None:
    """Redis refuses their next claim, and they say what to do; with PostgreSQL those that run go on."""
    with local_fleet(kind, tmp_path) as fleet:
        gate = GatedPage()
        fleet.site.pages["/p/*"] = gate
        run = await asyncio.to_thread(fleet.submit, [f"/p/{number}" for number in range(20)])
        queue = await app.open_queue(load({"queue": fleet.queue}, env={}))
        worker = fleet.worker(fleet.scraper(), "--concurrency", "2", "--batch-size", "2", "--health", "0")
        assert await asyncio.to_thread(gate.asked.acquire, timeout=HANG)
        await set_version(queue, kind, NEWER)
        gate.open.set()
        if kind == "redis":
            said = await asyncio.to_thread(wait_for_exit, worker)
            assert said.code not in (0, SOME_FAILED) and "newer shoal" in said.err, said.err
            assert "upgrade this installation" in said.err
        else:
            while (await queue.stats(run.id)).done < 20:
                await asyncio.sleep(0.02)
            assert (await asyncio.to_thread(stop_process, worker)).code == 0
        stats = await queue.stats(run.id)
        assert stats.is_balanced and (stats.seen, stats.dead) == (20, 0)
        await set_version(queue, kind, None)
        done = await asyncio.to_thread(fleet.work, fleet.scraper(), *QUICK)
        assert done.code == 0, done.err
        stats = await queue.stats(run.id)
        assert (stats.done, stats.records, stats.open) == (20, 20, 0)
        await queue.close()
