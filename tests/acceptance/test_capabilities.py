"""Tasks that need a capability wait for a worker that has it, and everybody says so until one comes."""

from __future__ import annotations

import json

import pytest
from local_fleet import LocalFleet, stop_process
from small_site import page
from wait import wait_until

NEEDY = """
import shoal

{name} = shoal.Scraper("{name}", start="{url}")

@{name}.page("/start")
def start(page):
    yield page.follow(["/js/1", "/js/2"], needs="browser")
    yield page.follow(["/plain"])

@{name}.page("*")
def page(page):
    yield {{{{"url": page.url}}}}
"""


@pytest.mark.parametrize("fleet", ["redis", "postgres"], indirect=True)
def test_links_that_need_a_browser_wait_for_a_worker_that_has_one(fleet: LocalFleet) -> None:
    fleet.site.pages |= {"/*": page("x"), "/js/*": page("x")}
    code = fleet.scraper("needy", NEEDY)
    run = fleet.submit(["/start"], scraper="needy")
    without = fleet.worker(code, "--heartbeat", "0.3s", "--name", "plain")
    wait_until(lambda: fleet.stats(run).done == 2)
    assert fleet.stats(run).needs == {"browser": 2}
    missing = "2 tasks need browser, and no worker has it: start one with --has browser"
    assert missing in fleet.user.shoal("status", run.name).out.replace("\n", " ").replace("  ", " ")
    advice = fleet.user.ask("advice")["advice"]
    assert missing in [one["why"] for one in advice if one["kind"] == "capability_missing"]
    why = fleet.user.shoal("why", fleet.site.url("/js/1"), "--json")
    assert "no worker has it: start one with --has browser" in json.loads(why.out)["reason"]
    having = fleet.worker(code, "--heartbeat", "0.3s", "--name", "able", "--has", "browser", "--has", "exit:de")
    fleet.finished(run)
    assert fleet.records(run) == sorted(fleet.site.url(path) for path in ("/js/1", "/js/2", "/plain"))
    statuses = {status.name: status.capabilities for status in fleet.workers()}
    assert {name.partition("-")[0]: has for name, has in statuses.items()} == {
        "plain": (),
        "able": ("browser", "exit:de"),
    }
    assert "browser, exit:de" in fleet.user.shoal("workers", COLUMNS="300").out
    views = fleet.ask(lambda queue: queue.list_tasks(run.id))
    authors = {view.url: view.history[-1].worker.partition("-")[0] for view in views if view.history}
    assert {authors[fleet.site.url(path)] for path in ("/js/1", "/js/2")} == {"able"}
    assert stop_process(without).code == 0
    assert stop_process(having).code == 0


def test_a_capability_that_is_no_name_is_refused(sqlite_fleet: LocalFleet) -> None:
    said = sqlite_fleet.work(sqlite_fleet.scraper(), "--has", "A Browser!")
    assert said.code == 2
    assert "is not the name of a capability" in said.err and "exit:de" in said.err


def test_a_run_with_workers_of_its_own_does_what_they_have(sqlite_fleet: LocalFleet) -> None:
    fleet = sqlite_fleet
    fleet.site.pages |= {"/*": page("x"), "/js/*": page("x")}
    code = fleet.scraper("needy", NEEDY.replace('start="{url}"', 'start="{url}start"'))
    done = fleet.user.shoal("run", code, "--has", "browser", "--delay", "0", "-o", "out.jsonl")
    assert done.code == 0, done
    urls = [json.loads(line)["url"] for line in (fleet.user.folder / "out.jsonl").read_text().splitlines()]
    assert sorted(urls) == sorted(fleet.site.url(path) for path in ("/js/1", "/js/2", "/plain"))
