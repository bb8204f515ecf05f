"""The jobs API: a template and a target, begun, followed and accounted for; states that mean something."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from control_room import ControlRoom, room
from flotilla import Fleet, fleet_of
from small_site import Hit, Said, page, small_site
from user import until

from shoal.app import TEMPLATE
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.web.api.jobs import status_of
from shoal.work import read_template

SHOP = """
name: shop
fields: {title: title::text}
follow: a
"""


@pytest.fixture(params=("sqlite", "redis"))
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(request.param, tmp_path) as made:
        keep(made, SHOP)
        yield made


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, ControlRoom]]:
    """One control room over a file, for what does not depend on the queue and kills nobody."""
    with fleet_of("sqlite", tmp_path_factory.mktemp("room")) as fleet, control(fleet) as office:
        yield fleet, office


@pytest.fixture
def home(there: tuple[Fleet, ControlRoom]) -> Iterator[Fleet]:
    """With a site that nobody has asked before: a host's pace is remembered."""
    with small_site() as there[0].site:
        keep(there[0], SHOP)
        yield there[0]


@pytest.fixture
def office(there: tuple[Fleet, ControlRoom]) -> ControlRoom:
    return there[1]


def control(fleet: Fleet) -> Any:
    return room(fleet.queue, folder=fleet.user.folder, allow_private="127.0.0.1", workers=1)


def keep(fleet: Fleet, text: str, name: str = "shop") -> None:
    place = fleet.user.folder / f"{name}.yaml"
    place.write_text(text)
    packed = msgspec.json.encode(read_template(place)).decode()
    fleet.ask(lambda queue: queue.keep_paper(TEMPLATE, name, packed))


def start(office: ControlRoom, code: int = 201, key: str = "", **body: Any) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    answer = office.post("/api/scraping/start", {"template_id": "shop"} | body, headers=headers)
    assert answer.status_code == code, answer.text
    return answer.json()


def status(office: ControlRoom, job: Any) -> Any:
    return office.ask(f"/api/scraping/status/{job['job_id']}")


def test_a_job_of_the_server_itself_is_followed_to_its_end(office: ControlRoom, home: Fleet) -> None:
    home.site.pages = {"/": page("Home", "/one", "/two", "/lost"), "/one": page("1"), "/two": page("2")}
    job = start(office, name="all of it", target_url=home.site.url("/"), here=True, priority=5)
    assert (job["name"], job["template_id"], job["priority"], job["here"]) == ("all of it", "shop", 5, True)
    assert job["status"] in ("pending", "assigned", "running")
    until(lambda: status(office, job)["state"] == "finished")
    ended = status(office, job)
    assert ended["status"] == "completed"
    assert ended["records"] == 3
    assert ended["progress"] == {
        "total": 4, "done": 3, "failed": 1, "cancelled": 0, "open": 0, "under_way": 0, "percent": 100.0,
    }  # fmt: skip
    (error,) = ended["errors"]
    assert (error["cause"], error["count"], error["url"]) == ("http.404", 1, home.site.url("/lost"))
    assert ended["finished_at"] > ended["created_at"]


def test_a_job_waits_for_workers_and_says_so(fleet: Fleet) -> None:
    fleet.site.pages = {"/": page("Home")}
    with control(fleet) as office:
        job = start(office, target_urls=[fleet.site.url("/")])
        assert job["status"] == "pending"
        assert job["notes"] == ["No worker that serves it is connected: it waits for one.   shoal worker"]
        fleet.worker()
        until(lambda: status(office, job)["status"] == "completed")
        assert status(office, job)["notes"] == []


def test_without_a_target_it_begins_where_the_template_says(office: ControlRoom, home: Fleet) -> None:
    keep(home, f"{SHOP}start: {home.site.url('/begin')}\n")
    home.site.pages = {"/begin": page("Home")}
    job = start(office, here=True)
    until(lambda: status(office, job)["status"] == "completed")
    assert len(home.site.asked("/begin")) == 1


def test_a_job_is_assigned_then_running_then_failed_in_its_retries(office: ControlRoom, home: Fleet) -> None:
    asked, go = threading.Event(), threading.Event()

    def busy(hit: Hit) -> Said:
        asked.set()
        go.wait(20)
        return page("busy", status=503)

    home.site.pages = {"/busy": busy}
    job = start(office, target_url=home.site.url("/busy"), here=True, retries=1, config={"retry_delay": 2})
    assert asked.wait(15)
    until(lambda: status(office, job)["status"] == "assigned")
    go.set()
    until(lambda: status(office, job)["status"] == "retrying")
    until(lambda: status(office, job)["status"] == "failed")
    assert status(office, job)["errors"][0]["cause"] == "http.503"
    assert status(office, job)["retries"] == 1


def test_the_slower_end_of_a_delay_range_is_kept(office: ControlRoom, home: Fleet) -> None:
    home.site.pages = {"/*": page("x")}
    urls = [home.site.url(f"/{n}") for n in range(4)]
    job = start(office, target_urls=urls, here=True, config={"delay_range": [0.1, 0.4]})
    until(lambda: status(office, job)["status"] == "completed")
    times = sorted(hit.at for hit in home.site.hits if hit.path != "/robots.txt")
    assert times[-1] - times[0] >= 3 * 0.4 - 0.1


def test_the_same_key_is_the_same_job(office: ControlRoom, home: Fleet) -> None:
    home.site.pages = {"/": page("Home")}
    before = len(home.ask(lambda queue: queue.runs()))
    job = start(office, target_url=home.site.url("/"), key="once")
    assert start(office, target_url=home.site.url("/"), key="once")["job_id"] == job["job_id"]
    start(office, target_url=home.site.url("/other"), key="once", code=422)
    assert len(home.ask(lambda queue: queue.runs())) == before + 1


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"template_id": "nope"}, "no template nope"),
    ({"template_id": ""}, "template_id"),
    ({"target_url": "http://a.example/", "target_urls": ["http://b.example/"]}, "not both"),
    ({}, "no start address"),
    ({"target_url": "http://192.168.0.1/"}, "refused: private address"),
    ({"target_url": "nonsense"}, "not a web address"),
    ({"target_url": "http://a.example/", "config": {"delay_range": [2, 1]}}, "from the shorter"),
    ({"target_url": "http://a.example/", "config": {"delay_range": [1, 2], "rate": 1}}, "give one of them"),
    ({"target_url": "http://a.example/", "config": {"delay_range": [1]}}, "delay_range"),
    ({"target_url": "http://a.example/", "config": {"render": "browser"}}, "not installed"),
    ({"target_url": "http://a.example/", "config": {"colour": "red"}}, "config.colour"),
    ({"target_url": "http://a.example/", "retries": -1}, "retries"),
)


def test_what_cannot_be_done_is_refused_with_the_reason(office: ControlRoom, home: Fleet) -> None:
    before = len(home.ask(lambda queue: queue.runs()))
    for body, words in REFUSED:
        answer = office.post("/api/scraping/start", {"template_id": "shop"} | body)
        assert answer.status_code == 422, (body, answer.text)
        assert words in answer.json()["detail"], (body, answer.text)
    assert office.get("/api/scraping/status/nope").status_code == 404
    assert len(home.ask(lambda queue: queue.runs())) == before


def test_targets_that_lead_nowhere_are_told(office: ControlRoom, home: Fleet) -> None:
    job = start(office, target_urls=[home.site.url("/"), "http://10.1.1.1/"])
    assert job["notes"][0].startswith(
        "Not all targets can be fetched: 1 of 2; the first, http://10.1.1.1/ is"
    )


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
    assert status_of(run, Stats(**counts), over=over) == expected
