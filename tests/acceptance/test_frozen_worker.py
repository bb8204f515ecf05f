"""A worker of an earlier edition beside the newest server and queue: it works, or is refused with a clear word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from frozen_worker import FrozenWorker, unpack
from local_fleet import LocalFleet, local_fleet, wait_for_exit
from server_process import running_server
from small_site import Hit, page

from shoal.core.run import Run

KINDS = ("http", "redis", "postgres")
TOKEN = "an-own-token-that-is-long-enough"
QUICK = ("--exit-when-done", "--concurrency", "4", "--batch-size", "4", "--health", "0", "--retry-delay", "0.1s")
REFUSALS = {"http": "speaks another version", "redis": "newer shoal", "postgres": "newer shoal"}
NEWER = 99
SOME_FAILED = 3  # exit status

SCRAPER = """
import shoal

plain = shoal.Scraper("plain", start="{url}")

@plain.page("*")
def page(page):
    yield {{{{"url": page.url}}}}
    yield from page.follow("a")
"""


@pytest.fixture(scope="session")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> FrozenWorker:
    found = unpack(tmp_path_factory.mktemp("frozen"))
    if found is None:
        pytest.skip("no edition is frozen: run tools/freeze-worker")
    return found


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def old(kind: str, frozen: FrozenWorker, tmp_path: Path) -> Iterator[LocalFleet]:
    """A fleet whose commands are those of the frozen edition; its queue and server are the newest."""
    if kind != "http":
        with local_fleet(kind, tmp_path) as fleet:
            yield fleet
        return
    with local_fleet("sqlite", tmp_path) as fleet:
        folder = tmp_path / "server"
        folder.mkdir()
        with running_server(fleet.queue, token=TOKEN, folder=folder) as server:
            fleet.user.environment |= {"SHOAL_QUEUE": server.url, "SHOAL_TOKEN": TOKEN}
            yield fleet


def crawl(fleet: LocalFleet) -> Run:
    """A run with links, a page that needs a second try, and one that is not there."""
    failed = set[str]()

    def at_second_try(hit: Hit) -> object:
        if hit.path in failed:
            return page("well")
        failed.add(hit.path)
        return page("not now", status=503)

    fleet.site.pages |= {
        "/robots.txt": page("", status=404),
        "/list/*": page("", *(f"/p/{number}" for number in range(12))),
        "/p/*": page("x"),
        "/busy": at_second_try,
        "/gone": page("", status=404),
    }
    return fleet.submit(["/list/1", "/list/2", "/busy", "/gone"])


def check_account(fleet: LocalFleet, run: Run) -> None:
    fleet.finished(run)
    stats = fleet.stats(run)
    assert (stats.seen, stats.done, stats.dead, stats.open, stats.retries) == (16, 15, 1, 0, 1)
    assert stats.is_balanced
    pages = [f"/p/{number}" for number in range(12)]
    assert fleet.records(run) == sorted(map(fleet.site.url, [*pages, "/list/1", "/list/2", "/busy"]))
    assert all(len(fleet.site.hits_for(path)) == 1 for path in pages)


def test_a_worker_of_the_frozen_edition_works_through_a_run(old: LocalFleet, kind: str, frozen: FrozenWorker) -> None:
    run, code = crawl(old), old.scraper(text=SCRAPER)
    said = wait_for_exit(old.worker(code, *QUICK, "--name", "old", PYTHONPATH=str(frozen.source)))
    if frozen.is_declared_older(kind):
        assert said.code not in (0, SOME_FAILED)
        assert REFUSALS[kind] in said.err, said.err
        return
    assert said.code == SOME_FAILED, said.err
    # A process that dies of what it is told is replaced, and the run ends all the same.
    assert "worker_died" not in said.err, said.err
    check_account(old, run)
    views = old.ask(lambda queue: queue.list_tasks(run.id, limit=100))
    assert all(view.history[-1].worker.startswith("old-") for view in views if view.history)


def test_workers_of_both_editions_share_a_run(old: LocalFleet, kind: str, frozen: FrozenWorker) -> None:
    if frozen.is_declared_older(kind):
        pytest.skip("this edition says that they do not understand each other")
    run, code = crawl(old), old.scraper(text=SCRAPER)
    workers = [
        old.worker(code, *QUICK, "--name", "old", PYTHONPATH=str(frozen.source)),
        old.worker(code, *QUICK, "--name", "new"),
    ]
    said = [wait_for_exit(worker) for worker in workers]
    assert [done.code for done in said] == [SOME_FAILED] * 2, said
    assert not any("worker_died" in done.err for done in said), said
    check_account(old, run)


def test_the_frozen_code_is_what_runs(frozen: FrozenWorker, tmp_path: Path) -> None:
    with local_fleet("sqlite", tmp_path) as fleet:
        said = fleet.user.shoal("--version", PYTHONPATH=str(frozen.source))
    assert said.out.strip().endswith(f"{frozen.version}+frozen"), said.err


@pytest.mark.parametrize("edition", ["frozen", "newest"])
def test_a_queue_of_a_newer_edition_is_refused_with_a_clear_word(
    old: LocalFleet, kind: str, frozen: FrozenWorker, edition: str
) -> None:
    if kind == "http":
        pytest.skip("a server of a newer protocol: tests/unit/test_wire.py")
    declare_newer(old, kind)
    variables = {"PYTHONPATH": str(frozen.source)} if edition == "frozen" else {}
    said = wait_for_exit(old.worker(old.scraper(), *QUICK, **variables))
    assert said.code not in (0, SOME_FAILED)
    assert "newer shoal" in said.err, said.err
    assert "upgrade this installation" in said.err, said.err


def declare_newer(fleet: LocalFleet, kind: str) -> None:
    if kind == "redis":
        fleet.ask(lambda queue: queue._engine.read("HSET", "meta", "version", NEWER))  # type: ignore[attr-defined]
    else:
        newer = f"INSERT INTO {{s}}.shoal_migrations (version) VALUES ({NEWER})"
        fleet.ask(lambda queue: queue._engine.rows(newer))  # type: ignore[attr-defined]
