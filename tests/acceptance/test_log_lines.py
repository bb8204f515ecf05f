"""Logs of a real run: JSON lines that say which run, task and worker they are about, and no secrets."""

from __future__ import annotations

import json
from typing import Any

from local_fleet import LocalFleet
from small_site import page
from wait import HANG, wait_until

from shoal.core.typed_task import Task
from shoal.queue.base import Queue
from shoal.queue.daily_runs import DailyRuns

TALKATIVE = """
import asyncio, logging
import shoal

plain = shoal.Scraper("plain", start="{url}")
log = logging.getLogger("plain")

@plain.page("*")
async def page(page):
    await asyncio.sleep(0.01)
    log.warning("looked_at", extra={{{{"address": page.url}}}})
    if page.url.endswith("/bad"):
        raise KeyError("price")
    yield {{{{"url": page.url}}}}

@plain.task("sum")
def add(task):
    log.warning("added")
    return 1
"""


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_about_a_task_names_run_task_and_worker(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages |= {"/p/*": page("x"), "/bad": page("x"), "/gone": (404, {}, b"")}
    run = sqlite_fleet.submit([*(f"/p/{n}?token=t0ken-of-a-user" for n in range(8)), "/bad", "/gone"])
    file = sqlite_fleet.user.folder / "worker.log"
    done = sqlite_fleet.work(
        sqlite_fleet.scraper("plain", TALKATIVE), "--exit-when-done", "--name", "node", "--concurrency", "4",
        "--log-format", "json", "--log-level", "debug", "--log-file", str(file), "--retries", "0",
    )  # fmt: skip
    assert done.code == 3, done
    said = lines(file.read_text())
    views = {view.id: view.url for view in sqlite_fleet.ask(lambda queue: queue.list_tasks(run.id, limit=100))}
    seen = [line for line in said if line["event"] == "looked_at"]
    assert len(seen) == 9
    for line in seen:  # several pages were under way at once, each in one process
        assert views[line["task"]] == line["address"].replace("[hidden]", "t0ken-of-a-user")
    about = [line for line in said if line["event"] in ("looked_at", "page_done", "page_dead", "page_retry")]
    assert {line["run"] for line in about} == {run.name}
    assert {line["task"] for line in about} == set(views)
    assert all(line["worker"].startswith("node-") for line in about)
    causes = {line["cause"] for line in about if line["event"] == "page_dead"}
    assert causes == {"handler.KeyError", "http.404"}
    assert "t0ken-of" not in file.read_text()
    assert all({"at", "level", "event"} <= line.keys() for line in said)


def test_code_in_threads_speaks_for_its_task_too(sqlite_fleet: LocalFleet) -> None:
    file = sqlite_fleet.user.folder / "worker.log"
    code = sqlite_fleet.scraper("plain", TALKATIVE)

    async def job(queue: Queue) -> int:
        (found,) = await DailyRuns(queue).add("sum", [Task(type="sum").to_queue_task("k")], {}, keyed=[True])
        return found

    number = sqlite_fleet.ask(job)
    worker = sqlite_fleet.worker(code, "--name", "node", "--log-format", "json", "--log-file", str(file))
    wait_until(lambda: file.exists() and "added" in file.read_text())
    (line,) = [line for line in lines(file.read_text()) if line["event"] == "added"]
    assert line["task"] == number
    assert line["worker"].startswith("node-") and line["run"]
    worker.terminate()
    worker.communicate(timeout=HANG)
