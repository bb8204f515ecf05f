"""Scrapers by name: the registry says where they run, from Python and from the command line."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_fleet import LocalFleet, local_fleet, wait_for_exit
from small_site import GatedPage, page
from wait import HANG, until

import shoal
from shoal.commands.orchestrator import RunStats
from shoal.errors import UsageError

COUNTRY = """
import shoal

{name} = shoal.Scraper("{name}", mode="MODE")

@{name}.page("*")
def price(page):
    yield {{{{"url": page.url}}}}
"""


@pytest.fixture(params=["sqlite", "postgres"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalFleet]:
    with local_fleet(request.param, tmp_path) as made:
        with_countries(made, monkeypatch)
        yield made


@pytest.fixture
def sqlite_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalFleet]:
    with local_fleet("sqlite", tmp_path) as made:
        with_countries(made, monkeypatch)
        yield made


def with_countries(fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fleet.user.folder
    (folder / "countries").mkdir()
    for name, mode in (("India", "distributed"), ("Russia", "single"), ("Malaysia", "")):
        fleet.scraper(f"countries/{name}", COUNTRY.replace("{name}", name).replace("MODE", mode))
    (folder / "shoal.toml").write_text('scrapers = ["countries/"]\ndelay = 0\n')
    fleet.site.pages["/p/*"] = page("x")
    monkeypatch.chdir(folder)
    for name, value in fleet.user.environment.items():
        if name.startswith("SHOAL_"):
            monkeypatch.setenv(name, value)


def pages(fleet: LocalFleet, count: int = 4) -> list[str]:
    return [fleet.site.url(f"/p/{number}") for number in range(count)]


async def test_distributed_scraper_is_queued_and_served_by_the_worker_of_its_command(fleet: LocalFleet) -> None:
    async with shoal.Orchestrator(run_id_format="{date}_{time}") as orchestrator:
        assert orchestrator.scrapers() == {"India": "distributed", "Malaysia": "", "Russia": "single"}
        run = await orchestrator.start("india", urls=pages(fleet))
        assert (run.status, run.scraper, run.mode, run.enqueued) == ("submitted", "India", "distributed", 4)
        assert re.fullmatch(r"\d{8}_\d{6}", run["run_id"])
        assert f"--run-id {run.run_id} --batch-size 50" in run.worker_command
        assert f"enqueued        4\nworker_command  {run.worker_command}" in str(run)
        assert await orchestrator.stats(run.run_id) == RunStats(4, 0, 0, 0, 4)
        again = await orchestrator.start("INDIA", urls=pages(fleet))
        assert (again.status, again.run_id) == ("continued", run.run_id)
        with pytest.raises(TimeoutError):
            await orchestrator.wait(run.run_id, timeout=0.1)

        worker = fleet.user.start(*shlex.split(run.worker_command)[1:], "--exit-when-done")
        seen: list[RunStats] = []
        stats = await orchestrator.wait(run.run_id, timeout=HANG, on_progress=seen.append, every=0.01)
        assert stats == seen[-1] == RunStats(0, 0, 4, 0, 0, "finished")
        assert stats["remaining"] == 0 and stats["completed"] == 4
        done = await asyncio.to_thread(wait_for_exit, worker)
        assert done.code == 0, done.err
        assert (await orchestrator.start("India", urls=pages(fleet))).status == "finished"


async def test_single_scraper_runs_here_and_resumes_where_it_was_stopped(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/3"] = gate = GatedPage(page("x"))
    async with shoal.Orchestrator() as orchestrator:
        run = await orchestrator.start("russia", urls=pages(fleet))
        assert (run.status, run.mode, run.worker_command) == ("running", "single", "")
        if not await asyncio.to_thread(gate.asked.acquire, timeout=HANG):
            (found,) = await orchestrator.queue.runs(name=run.run_id, limit=1)
            tasks = await orchestrator.queue.list_tasks(found.id)
            with contextlib.suppress(TimeoutError):
                await orchestrator.wait(run.run_id, timeout=1.0)  # raises what ended it
            pytest.fail(f"never asked for: {found}, {tasks}")

        async def three_are_done() -> bool:
            return (await orchestrator.stats(run.run_id)).completed == 3

        await until(three_are_done)
        gate.open.set()
    fleet.site.pages["/p/3"] = page("x")
    async with shoal.Orchestrator() as orchestrator:
        again = await orchestrator.start("Russia", urls=pages(fleet))
        assert again.run_id == run.run_id
        assert await orchestrator.wait(again.run_id, timeout=HANG) == RunStats(0, 0, 4, 0, 0, "finished")


async def test_what_cannot_be_started_is_said_and_leaves_nothing(sqlite_fleet: LocalFleet) -> None:
    orchestrator = shoal.Orchestrator()
    with pytest.raises(UsageError, match="not open"):
        await orchestrator.start("india")
    async with orchestrator:
        with pytest.raises(UsageError, match="there is no scraper called brazil"):
            await orchestrator.start("brazil")
        with pytest.raises(UsageError, match="has no start URL"):
            await orchestrator.start("russia")
        with pytest.raises(UsageError, match="give the URLs once"):
            await orchestrator.start("india", urls=["http://a.example/"], urls_file="urls.txt")
        with pytest.raises(UsageError, match="there is no run 2026"):
            await orchestrator.stats("2026")
        assert not await orchestrator.queue.runs()


def test_run_of_a_distributed_scraper_queues_it_and_prints_the_command(fleet: LocalFleet) -> None:
    user = fleet.user
    (user.folder / "urls.txt").write_text("\n".join(pages(fleet)))
    done = user.shoal("run", "India", "--urls-file", "urls.txt", SHOAL_RUN_ID_FORMAT="{date}_{time}")
    assert done.code == 0, done.err
    told = dict(re.findall(r"^  (status|run_id|enqueued) +(\S+)$", done.out, re.MULTILINE))
    assert told | {"run_id": ""} == {"status": "submitted", "run_id": "", "enqueued": "4"}
    assert re.fullmatch(r"\d{8}_\d{6}", told["run_id"])
    assert f"--run-id {told['run_id']} --batch-size 50" in done.out
    again = user.shoal("run", "india", "--urls-file", "urls.txt", "--resume")
    assert told["run_id"] in again.out and "continues" in again.out
    words = ("--scraper", "INDIA", "--run-id", told["run_id"], "--batch-size", "50", "--exit-when-done")
    work = user.shoal("worker", *words, "--worker-id-format", "worker_{host}_{pid}")
    assert work.code == 0 and "4 done, 0 failed" in work.err, work.err
    assert re.search(r"worker worker_\S+_\d+ ·", work.err)


def test_mode_of_the_command_comes_before_that_of_the_scraper(sqlite_fleet: LocalFleet) -> None:
    user = sqlite_fleet.user
    (user.folder / "urls.txt").write_text("\n".join(pages(sqlite_fleet)))
    here = user.shoal("run", "india", "urls.txt", "--mode", "single")
    assert here.code == 0 and "4" in here.out + here.err and "in the queue" not in here.out, here.err
    queued = user.shoal("run", "malaysia", "urls.txt", "--mode", "distributed")
    assert queued.code == 0 and "is in the queue" in queued.out, queued.err
    refused = user.shoal("run", "russia", "urls.txt", "--mode", "distributed")
    assert refused.code == 2 and "has the mode single" in refused.err
    both = user.shoal("run", "russia", "urls.txt", "--resume", "--fresh")
    assert both.code == 2 and "exclude each other" in both.err
    twice = user.shoal("run", "russia", "urls.txt", "--urls-file", "urls.txt")
    assert twice.code == 2 and "give the URLs once" in twice.err


def test_runs_of_one_second_have_different_ids_whatever_their_form(sqlite_fleet: LocalFleet) -> None:
    async def start(number: int) -> Any:
        async with shoal.Orchestrator(run_id_format="fixed-{time}") as orchestrator:
            return (await orchestrator.start("india", urls=[f"http://h{number}.example/"])).run_id

    async def start_all() -> list[Any]:
        return [await start(number) for number in range(5)]

    found = asyncio.run(start_all())
    assert len(set(found)) == 5 and all(re.fullmatch(r"fixed-\d{6}(_\d)?", name) for name in found)
