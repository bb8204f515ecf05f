"""The jobs API: a template and a target, begun, followed and accounted for; states that mean something."""

from __future__ import annotations

from typing import Any

import pytest
from api_fixtures import keep, server_for
from local_fleet import LocalFleet
from server_process import ServerProcess
from small_site import GatedPage, page
from wait import HANG, wait_until

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.web.api.job_stats import job_figures
from shoal.web.api.jobs import status_of

SHOP = """
name: shop
fields: {title: title::text}
follow: a
"""


@pytest.fixture
def shared_fleet(shared_fleet: LocalFleet) -> LocalFleet:
    keep(shared_fleet, "shop", SHOP)
    return shared_fleet


def start(api_server: ServerProcess, code: int = 201, key: str = "", **body: Any) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    answer = api_server.post("/api/scraping/start", {"template_id": "shop"} | body, headers=headers)
    assert answer.status_code == code, answer.text
    return answer.json()


def status(api_server: ServerProcess, job: Any) -> Any:
    return api_server.ask(f"/api/scraping/status/{job['job_id']}")


def test_a_job_of_the_server_itself_is_followed_to_its_end(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    shared_fleet.site.pages = {"/": page("Home", "/one", "/two", "/lost"), "/one": page("1"), "/two": page("2")}
    job = start(
        api_server, name="all of it", target_url=shared_fleet.site.url("/"), here=True, priority=5, max_retries=2
    )
    assert (job["name"], job["template_id"], job["priority"], job["here"]) == ("all of it", "shop", 5, True)
    assert job["status"] in ("pending", "assigned", "running")
    seen: set[tuple[str, str]] = set()

    def is_finished() -> bool:
        found = status(api_server, job)
        seen.add((found["status"], found["state"]))
        return bool(found["state"] == "finished")

    wait_until(is_finished)
    assert ("completed", "running") not in seen
    ended = status(api_server, job)
    assert ended["status"] == "completed"
    assert ended["records"] == 3
    assert ended["progress"] == {
        "total": 4, "done": 3, "failed": 1, "cancelled": 0, "open": 0, "in_progress": 0, "percent": 100.0,
    }  # fmt: skip
    (error,) = ended["errors"]
    assert (error["cause"], error["count"], error["url"]) == ("http.404", 1, shared_fleet.site.url("/lost"))
    assert ended["finished_at"] > ended["started_at"] > ended["created_at"]
    assert (ended["id"], ended["items_scraped"], ended["max_retries"]) == (ended["job_id"], 3, 2)
    assert ended["assigned_worker"]


@pytest.mark.parametrize("fleet", ["sqlite", "redis"], indirect=True)
def test_a_job_waits_for_workers_and_says_so(fleet: LocalFleet) -> None:
    keep(fleet, "shop", SHOP)
    fleet.site.pages = {"/": page("Home")}
    with server_for(fleet) as api_server:
        job = start(api_server, target_urls=[fleet.site.url("/")])
        assert job["status"] == "pending"
        assert job["notes"] == ["No worker that serves it is connected; it waits for one.   shoal worker"]
        fleet.worker()
        wait_until(lambda: status(api_server, job)["status"] == "completed")
        assert status(api_server, job)["notes"] == []


def test_without_a_target_it_begins_where_the_template_says(
    api_server: ServerProcess, shared_fleet: LocalFleet
) -> None:
    keep(shared_fleet, "shop", f"{SHOP}start: {shared_fleet.site.url('/begin')}\n")
    shared_fleet.site.pages = {"/begin": page("Home")}
    job = start(api_server, here=True)
    wait_until(lambda: status(api_server, job)["status"] == "completed")
    assert len(shared_fleet.site.hits_for("/begin")) == 1


def test_a_job_is_assigned_then_running_then_failed_in_its_retries(
    api_server: ServerProcess, shared_fleet: LocalFleet
) -> None:
    busy = GatedPage(page("busy", status=503))
    shared_fleet.site.pages = {"/busy": busy}
    job = start(api_server, target_url=shared_fleet.site.url("/busy"), here=True, retries=1, config={"retry_delay": 2})
    assert busy.asked.acquire(timeout=HANG)
    wait_until(lambda: status(api_server, job)["status"] == "assigned")
    busy.open.set()
    wait_until(lambda: status(api_server, job)["status"] == "retrying")
    wait_until(lambda: status(api_server, job)["status"] == "failed")
    assert status(api_server, job)["errors"][0]["cause"] == "http.503"
    assert status(api_server, job)["retries"] == 1


def test_the_pace_of_a_job_lies_between_both_ends_of_its_delay_range(
    api_server: ServerProcess, shared_fleet: LocalFleet
) -> None:
    shared_fleet.site.pages = {"/*": page("x")}
    urls = [shared_fleet.site.url(f"/{n}") for n in range(6)]
    job = start(api_server, target_urls=urls, here=True, config={"delay_range": [0.1, 0.5]})
    (run,) = shared_fleet.ask(lambda queue: queue.runs(name=job["id"]))
    asked = run.spec["settings"]
    # From one request to the next it is the delay, more or less by the jitter.
    assert (asked["delay"] - asked["jitter"], asked["delay"] + asked["jitter"]) == pytest.approx((0.1, 0.5))
    wait_until(lambda: status(api_server, job)["status"] == "completed")
    times = sorted(hit.at for hit in shared_fleet.site.hits if hit.path != "/robots.txt")
    assert times[-1] - times[0] >= 5 * 0.3 - 0.2 - 0.1


def test_a_job_that_takes_longer_than_its_timeout_has_failed_and_says_why(
    api_server: ServerProcess, shared_fleet: LocalFleet
) -> None:
    shared_fleet.site.pages = {"/busy": page("busy", status=503), "/": page("Home")}
    config = {"timeout": 1, "retry_delay": 3000}
    job = start(api_server, target_url=shared_fleet.site.url("/busy"), here=True, max_retries=5, config=config)
    assert (job["timeout"], job["error"]) == (1.0, None)
    wait_until(lambda: status(api_server, job)["status"] == "failed")
    ended = status(api_server, job)
    assert ended["error"] == "timeout: it took longer than 1 s; 1 of 1 page dropped"
    assert ended["state"] == "cancelled" and ended["finished_at"] > ended["created_at"]
    assert api_server.get(f"/api/v1/runs/{job['id']}").json()["cause"] == "timeout"
    # An hour, unless it says otherwise; 0 is none. Requests have a timeout of their own.
    assert start(api_server, target_url=shared_fleet.site.url("/"))["timeout"] == 3600.0
    assert start(api_server, target_url=shared_fleet.site.url("/"), config={"timeout": 0})["timeout"] is None
    other = start(api_server, target_url=shared_fleet.site.url("/"), config={"request_timeout": 7})
    (run,) = shared_fleet.ask(lambda queue: queue.runs(name=other["id"]))
    assert run.spec["settings"]["timeout"] == 7


def test_jobs_and_workers_in_figures(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    shared_fleet.site.pages = {"/": page("Home")}
    before = api_server.get("/api/scraping/stats").json()
    done = start(api_server, target_url=shared_fleet.site.url("/"), here=True)
    wait_until(lambda: status(api_server, done)["state"] == "finished")
    lost = start(api_server, target_url=shared_fleet.site.url("/lost"), here=True)
    wait_until(lambda: status(api_server, lost)["state"] == "finished")
    start(api_server, target_url=shared_fleet.site.url("/"))  # nobody is there to do it

    def figures() -> Any:
        return api_server.get("/api/scraping/stats").json()

    wait_until(lambda: figures()["total_jobs"] == before["total_jobs"] + 3)
    found = figures()
    assert {name: found[name] - before[name] for name in ("completed_jobs", "failed_jobs", "pending_jobs")} == {
        "completed_jobs": 1, "failed_jobs": 1, "pending_jobs": 1,
    }  # fmt: skip
    assert 0 < found["error_rate"] < 1 and found["mean_job_seconds"] > 0 and found["jobs_per_second"] > 0
    assert found["total_workers"] >= found["active_workers"] >= 1
    assert found["total_jobs"] == sum(found[name] for name in found if name.endswith("_jobs") and name != "total_jobs")
    assert api_server.get("/stats").json()["throughput"].keys() >= {"mean_seconds", "error_rate"}


def test_figures_of_jobs_are_unknown_where_none_has_ended() -> None:
    def job(state: Any, seconds: int, **counts: int) -> tuple[Run, Stats]:
        return Run(1, "r", "shop", "k", state, 0, 0, seconds * 1_000_000), Stats(**counts)

    waiting = job("running", 0, seen=1, ready=1)
    found = job_figures([waiting], 0)
    assert (found["mean_job_seconds"], found["error_rate"], found["jobs_per_second"]) == (None, None, 0.0)
    ended = [
        job("finished", 10, done=1, seen=1),
        job("finished", 20, done=1, seen=1),
        job("finished", 90, dead=1, seen=1),
    ]
    found = job_figures([waiting, *ended, job("cancelled", 5, seen=1, cancelled=1)], 100_000_000)
    assert (found["mean_job_seconds"], found["error_rate"]) == (15.0, 0.5)
    assert (found["total_jobs"], found["completed_jobs"], found["failed_jobs"]) == (5, 2, 2)
    assert found["jobs_per_second"] == round(4 / 3600, 4)


def test_the_same_key_is_the_same_job(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    shared_fleet.site.pages = {"/": page("Home")}
    before = len(shared_fleet.ask(lambda queue: queue.runs()))
    job = start(api_server, target_url=shared_fleet.site.url("/"), key="once")
    assert start(api_server, target_url=shared_fleet.site.url("/"), key="once")["job_id"] == job["job_id"]
    start(api_server, target_url=shared_fleet.site.url("/other"), key="once", code=422)
    assert len(shared_fleet.ask(lambda queue: queue.runs())) == before + 1


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"template_id": "nope"}, "no template nope"),
    ({"template_id": ""}, "template_id"),
    ({"target_url": "http://a.example/", "target_urls": ["http://b.example/"]}, "not both"),
    ({}, "no start URL"),
    ({"target_url": "http://192.168.0.1/"}, "refused: private address"),
    ({"target_url": "nonsense"}, "not a URL"),
    ({"target_url": "http://a.example/", "config": {"delay_range": [2, 1]}}, "from the shorter"),
    ({"target_url": "http://a.example/", "config": {"delay_range": [1, 2], "rate": 1}}, "give one of them"),
    ({"target_url": "http://a.example/", "config": {"delay_range": [1]}}, "delay_range"),
    ({"target_url": "http://a.example/", "config": {"render": "browser"}}, "not installed"),
    ({"target_url": "http://a.example/", "config": {"colour": "red"}}, "config.colour"),
    ({"target_url": "http://a.example/", "retries": -1}, "retries"),
)


def test_what_cannot_be_done_is_refused_with_the_reason(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    before = len(shared_fleet.ask(lambda queue: queue.runs()))
    for body, words in REFUSED:
        answer = api_server.post("/api/scraping/start", {"template_id": "shop"} | body)
        assert answer.status_code == 422, (body, answer.text)
        assert words in answer.json()["detail"], (body, answer.text)
    assert api_server.get("/api/scraping/status/nope").status_code == 404
    assert len(shared_fleet.ask(lambda queue: queue.runs())) == before


def test_targets_that_lead_nowhere_are_told(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    job = start(api_server, target_urls=[shared_fleet.site.url("/"), "http://10.1.1.1/"])
    assert job["notes"][0].startswith("Not all targets can be fetched: 1 of 2; the first, http://10.1.1.1/ is")


STATES: tuple[tuple[str, dict[str, int], bool, str], ...] = (
    ("running", {"seen": 2, "ready": 2}, False, "pending"),
    ("running", {"seen": 2, "ready": 1, "leased": 1}, False, "assigned"),
    ("running", {"seen": 2, "leased": 1, "done": 1}, False, "running"),
    ("running", {"seen": 2, "ready": 1, "done": 1}, False, "running"),
    ("running", {"seen": 2, "ready": 1, "delayed": 1, "retries": 1, "done": 1}, False, "retrying"),
    ("running", {"seen": 2, "ready": 2, "delayed": 1, "retries": 1}, False, "running"),
    ("running", {"seen": 2, "done": 2}, True, "completed"),
    ("paused", {"seen": 2, "ready": 1, "done": 1}, False, "pending"),
    ("finished", {"seen": 2, "done": 1, "dead": 1}, True, "completed"),
    ("finished", {"seen": 2, "dead": 2}, True, "failed"),
    ("finished", {}, True, "failed"),
    ("cancelled", {"seen": 2, "done": 1, "cancelled": 1}, False, "failed"),
)


@pytest.mark.parametrize(("state", "counts", "over", "expected"), STATES)
def test_a_run_in_the_words_of_jobs(state: Any, counts: dict[str, int], over: bool, expected: str) -> None:
    run = Run(1, "r", "shop", "k", state, 0, 0)
    assert status_of(run, Stats(**counts), is_over=over) == expected
