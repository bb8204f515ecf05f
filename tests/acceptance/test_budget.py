"""Budgets with real workers: each cap with four of them, kills, a real proxy and a real browser."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_urls import backend_url
from local_fleet import LocalFleet, local_fleet, stop_process
from rendered_crawl import rendered_site_thread
from servers.forward_proxies import tinyproxy
from shell_user import ShellUser
from small_site import page
from wait import wait_until

from shoal.core.budget import Ledger
from shoal.core.cost import NOTHING, Cost, cost_of
from shoal.core.run import Run
from shoal.queue.budget_ledger import load_ledger

FOLLOWING = """
import shoal

{name} = shoal.Scraper("{name}", start="{url}")

@{name}.page("*")
def page(page):
    yield {{{{"url": page.url}}}}
    yield page.follow()
"""
PAGE = 20_000  # bytes


def write_pages(fleet: LocalFleet, number: int = 400) -> str:
    links = [f"/{n}" for n in range(number)]
    fleet.site.pages |= {"/": page("first", *links), "/*": page("b" * (PAGE // 2)), "/robots.txt": page(status=404)}
    return fleet.scraper("all", FOLLOWING)


def the_run(fleet: LocalFleet) -> Run:
    return fleet.ask(lambda queue: queue.runs())[0]


def ledger_of(fleet: LocalFleet, run: Run) -> Ledger:
    return fleet.ask(lambda queue: load_ledger(queue, run)).ledger


def counted(fleet: LocalFleet, run: Run) -> Cost:
    return cost_of(fleet.ask(lambda queue: queue.run_counters(run.id)))


def wait_until_spent(fleet: LocalFleet, run: Run) -> None:
    wait_until(lambda: fleet.state(run) == "paused", 120)
    wait_until(lambda: not fleet.stats(run).leased, 60)


@pytest.fixture(params=["sqlite", "redis", "postgres", "shards"])
def any_fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalFleet]:
    with local_fleet("redis" if request.param == "shards" else request.param, tmp_path) as fleet:
        if request.param == "shards":
            fleet.queue = f"{fleet.queue},{backend_url('redis', tmp_path)}"
            fleet.user.environment["SHOAL_QUEUE"] = fleet.queue
        yield fleet


def test_four_workers_on_any_queue_stop_before_the_cap_and_go_on_with_a_larger_one(any_fleet: LocalFleet) -> None:
    fleet = any_fleet
    scraper = write_pages(fleet)
    budget, speed = ("--budget", "bytes=1MB"), ("--delay", "0", "--in-flight", "0")
    assert fleet.user.shoal("submit", scraper, *budget, *speed).code == 0
    run = the_run(fleet)
    workers = [fleet.worker(scraper, "--concurrency", "8") for _ in range(4)]
    wait_until_spent(fleet, run)
    used = counted(fleet, run)
    assert 1_000_000 - 3 * PAGE < used.bytes <= 1_000_000
    said = " ".join(fleet.user.shoal("status", run.name).out.split())
    assert "its budget is used up" in said
    assert f"shoal resume {run.name} --budget bytes=2MB goes on" in said
    found = json.loads(fleet.user.shoal("status", run.name, "--json").out)
    assert (found["cause"], found["cost"]["bytes"]) == ("budget.bytes", used.bytes)
    assert found["cost_per_record"]["bytes"] == pytest.approx(used.bytes / fleet.stats(run).records, abs=1)
    assert fleet.user.shoal("resume", run.name, "--budget", "bytes=2MB").code == 0
    wait_until(lambda: counted(fleet, run).bytes > 1_000_000, 60)
    wait_until_spent(fleet, run)
    assert 2_000_000 - 3 * PAGE < counted(fleet, run).bytes <= 2_000_000
    assert fleet.user.shoal("resume", run.name, "--budget", "none").code == 0
    fleet.finished(run)
    stats = fleet.stats(run)
    assert (stats.done, stats.failed, stats.records) == (401, 0, 401)
    wait_until(lambda: ledger_of(fleet, run).set_aside == NOTHING, 60)
    assert [stop_process(worker).code for worker in workers] == [0] * 4


def test_a_killed_worker_costs_the_run_what_it_had_in_progress_and_nothing_twice(redis_fleet: LocalFleet) -> None:
    fleet = redis_fleet
    scraper = write_pages(fleet)
    flags = ("--budget", "bytes=6MB", "--delay", "0", "--in-flight", "0")
    assert fleet.user.shoal("submit", scraper, *flags).code == 0
    run = the_run(fleet)
    workers = [fleet.worker(scraper, "--concurrency", "4", "--lease", "3s", "--heartbeat", "0.5s") for _ in range(4)]
    wait_until(lambda: len(ledger_of(fleet, run).shares) == 4)
    os.kill(workers[0].pid, signal.SIGKILL)
    workers.pop(0).wait()
    wait_until_spent(fleet, run)
    lost, used, done = ledger_of(fleet, run).lost, counted(fleet, run), fleet.stats(run).done
    assert used.bytes + lost.bytes <= 6_000_000
    # Four pages at most, each with its share: twice the most expensive one.
    assert lost.bytes <= 4 * 2 * (PAGE + 10_000)
    assert done * PAGE <= used.bytes <= done * (PAGE + 1_000) + 20_000
    assert [stop_process(worker).code for worker in workers] == [0] * 3


def test_bytes_by_a_real_proxy_are_capped_and_others_are_not(sqlite_fleet: LocalFleet) -> None:
    fleet = sqlite_fleet
    scraper = write_pages(fleet, 60)
    with tinyproxy() as proxy:
        (fleet.user.folder / "shoal.toml").write_text(f'[exits]\ntiny = "{proxy}"\n')
        run = ("run", scraper, "--exit", "tiny", "--delay", "0", "--in-flight", "0", "--workers", "4")
        ended = fleet.user.shoal(*run, "--budget", "proxy=300KB", "--json")
        assert ended.code == 4, ended.err
        document = json.loads(ended.out)
        assert (document["end"], document["cause"]) == ("interrupted", "budget.proxy")
        assert "Paused: its budget is used up" in ended.err
        used = counted(fleet, the_run(fleet))
        assert 300_000 - 3 * PAGE < used.proxy <= 300_000
        assert used.bytes == used.proxy
        again = fleet.user.shoal(*run, "--budget", "proxy=300KB")  # nothing more is fetched
        assert again.code == 4
        assert counted(fleet, the_run(fleet)) == used
        assert fleet.user.shoal(*run, "--budget", "proxy=30MB").code == 0
    assert fleet.stats(the_run(fleet)).done == 61
    direct = fleet.user.shoal("run", scraper, "--fresh", "--delay", "0", "--in-flight", "0", "--budget", "proxy=1KB")
    assert direct.code == 0, direct.err


def test_time_of_the_processor_is_capped(sqlite_fleet: LocalFleet) -> None:
    fleet = sqlite_fleet
    text = FOLLOWING.replace("    yield {{{{", "    sum(range(2_000_000))\n    yield {{{{", 1)
    write_pages(fleet)
    scraper = fleet.scraper("all", text)
    flags = ("--delay", "0", "--in-flight", "0", "--workers", "4", "--concurrency", "2", "--budget", "cpu=4s")
    assert fleet.user.shoal("run", scraper, *flags).code == 4
    used, stats = counted(fleet, the_run(fleet)), fleet.stats(the_run(fleet))
    # Of pages whose time varies as the machine does, the last one may take longer than all before it.
    assert used.cpu <= 4_000_000 + ledger_of(fleet, the_run(fleet)).largest.cpu
    assert stats.done > 4
    assert used.cpu > stats.done * 10_000  # so long such a page takes at least


def test_time_in_a_real_browser_is_counted_and_capped(tmp_path: Path) -> None:
    with rendered_site_thread() as site, ShellUser(tmp_path) as user:
        user.environment |= {"SHOAL_ALLOW_PRIVATE": "1"}
        (tmp_path / "shop.py").write_text(
            "import shoal\n"
            f'shop = shoal.Scraper("shop", start="{site.origin}/page/1", fetch="browser", steps=["wait .item"])\n'
            '@shop.page("/page/*")\n'
            "def page(page):\n"
            '    yield {"items": len(page.css(".item"))}\n'
            '    yield page.follow([f"/page/{n}" for n in range(1, 200)])\n'
        )
        flags = ("--delay", "0", "--in-flight", "0", "--workers", "2", "--browser-pages", "2")
        ended = user.shoal("run", "shop.py", *flags, "--budget", "browser=20s", "--json")
        assert ended.code == 4, ended.err
        assert json.loads(ended.out)["cause"] == "budget.browser"
        status = json.loads(user.shoal("status", "--json").out)
        (used,) = [one for one in status["fetched"] if one["fetcher"] == "browser"]
        # Of pages whose time varies as the machine does, each in progress may take longer than those before it.
        assert 0 < used["browser_seconds"] <= 20 + 4 * status["budget"]["largest"]["browser_seconds"]
        assert status["cost"]["browser_seconds"] == pytest.approx(used["browser_seconds"])
        assert used["responses"] == status["done"] > 1
        assert used["bytes"] > 0
        assert used["cpu_seconds"] > 0.05 * used["responses"]  # the browser's own, not the worker's alone


@pytest.mark.parametrize("flag", ["proxy=3h", "money=1", "bytes=1MB,bytes=2MB"])
def test_a_budget_that_is_none_is_refused_before_the_first_request(sqlite_fleet: LocalFleet, flag: str) -> None:
    said = sqlite_fleet.user.shoal("run", sqlite_fleet.scraper(), "--budget", flag)
    assert said.code == 2
    assert "--budget" in said.err and "try: give" in said.err
    assert not sqlite_fleet.site.hits
