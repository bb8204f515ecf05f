"""The batch API: every address accounted for, by the server itself and by a fleet, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from control_room import ControlRoom, room
from flotilla import Fleet, fleet_of
from small_site import Hit, Said, moved, page, small_site
from user import until

from shoal.app import TEMPLATE
from shoal.config import Settings, load
from shoal.control.runs import being_seeded
from shoal.control.tidying import SHELVES, Tidying
from shoal.core.run import NewRun
from shoal.extract.links import start_tasks
from shoal.extract.template.content import page_template
from shoal.queue.base import Queue
from shoal.web import addresses, crew
from shoal.web.commission import Commission
from shoal.work import read_template

QUICK = {"lease": "4s", "heartbeat": "1s", "workers": 1}


@pytest.fixture(params=("sqlite", "redis"))
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Fleet]:
    """On a server, for what several processes do."""
    with fleet_of("redis", tmp_path) as made:
        yield made


def control(fleet: Fleet, **settings: Any) -> Any:
    return room(
        fleet.queue,
        folder=fleet.user.folder,
        **({"allow_private": "127.0.0.1"} | QUICK | settings),
    )


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, ControlRoom]]:
    """One control room over a file, for what does not depend on the queue and kills nobody."""
    with fleet_of("sqlite", tmp_path_factory.mktemp("room")) as fleet, control(fleet) as office:
        yield fleet, office


@pytest.fixture
def home(there: tuple[Fleet, ControlRoom]) -> Iterator[Fleet]:
    """With a site that nobody has asked before: a host's pace is remembered."""
    with small_site() as there[0].site:
        yield there[0]


@pytest.fixture
def office(there: tuple[Fleet, ControlRoom]) -> ControlRoom:
    return there[1]


class Held:
    """A page that answers when it is let go."""

    def __init__(self, text: str = "late") -> None:
        self.asked = threading.Event()
        self.go = threading.Event()
        self._text = text

    def __call__(self, hit: Hit) -> Said:
        self.asked.set()
        self.go.wait(20)
        return page(self._text)


def batch(office: ControlRoom, *urls: str, code: int = 200, key: str = "", **more: Any) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    answer = office.post("/api/crawl/batch", {"urls": list(urls), "timeout": 20} | more, headers=headers)
    assert answer.status_code == code, answer.text
    return answer.json()


def column(document: Any, name: str) -> list[Any]:
    return [result[name] for result in document["results"]]


def children(office: ControlRoom) -> list[int]:
    listed = Path(f"/proc/{office.process.pid}/task/{office.process.pid}/children").read_text()
    return [int(number) for number in listed.split()]


# each address


def test_every_address_is_accounted_for_in_the_order_given(fleet: Fleet) -> None:
    site = fleet.site
    site.pages = {"/a": page("Alpha"), "/b": page("Beta"), "/gone": page("old", status=410)}
    urls = [site.url("/b"), site.url("/a"), site.url("/gone"), site.url("/b"), "http://10.0.0.1/x", "hello"]
    with control(fleet) as office:
        said = batch(office, *urls)
        assert column(said, "url") == urls
        assert column(said, "status") == ["success", "success", "failed", "success", "failed", "failed"]
        assert column(said, "content") == ["Beta", "Alpha", None, "Beta", None, None]
        assert column(said, "http_status") == [200, 200, 410, 200, None, None]
        assert column(said, "error")[:2] == [None, None]
        assert column(said, "error")[2].startswith("http.410: ")
        assert column(said, "error")[4] == "refused: private address: 10.0.0.1:80 is a private address"
        assert column(said, "error")[5] == "not fetched: not a web address"
        assert all(column(said, "worker_id")[:4])
        assert said["stats"] == {"total": 6, "success": 3, "failed": 3, "pending": 0, "workers_used": 1}
        assert said["distributed"] is False
        assert office.ask(f"/api/crawl/batch/{said['session_id']}") == said
        assert len(site.asked("/b")) == 1


def test_a_batch_is_a_run_like_any_other(small: Fleet) -> None:
    small.site.pages = {"/a": page("Alpha")}
    with control(small) as office:
        said = batch(office, small.site.url("/a"))
        until(lambda: small.user.ask("status", said["session_id"])["state"] == "finished")
        small.user.shoal("export", said["session_id"], "-o", "out.jsonl")
        assert [row["title"] for row in small.user.lines("out.jsonl")] == ["Alpha"]


WANTED: tuple[tuple[dict[str, Any], Any, dict[str, Any] | None], ...] = (
    ({}, "Alpha", {"title": "Alpha"}),
    ({"content": "html"}, "<title>Alpha</title><p>Alpha</p>", {"title": "Alpha"}),
    ({"content": "none"}, None, {"title": "Alpha"}),
    ({"fields": {"said": "p::text"}}, None, {"said": "Alpha"}),
    ({"fields": {"said": "p::text"}, "content": "text"}, "Alpha", {"said": "Alpha"}),
    ({"fields": {"content[]": "p::text"}, "content": "text"}, None, {"content": ["Alpha"]}),
)


def test_what_is_taken_of_a_page_is_as_asked(office: ControlRoom, home: Fleet) -> None:
    home.site.pages = {"/a": page("Alpha")}
    for options, content, record in WANTED:
        (result,) = batch(office, home.site.url("/a"), options=options)["results"]
        assert result["content"] == content, options
        assert record is not None and result["record"].items() >= record.items(), options
        assert ("content" in result["record"]) == ("content" in (record or {}))
        assert "text" not in result["record"]


def test_a_template_that_the_queue_keeps_gives_all_records_of_a_page(
    office: ControlRoom, home: Fleet
) -> None:
    home.site.pages = {"/list": page("", "/x", "/y", "/z")}
    (home.user.folder / "links.yaml").write_text("name: links\neach: a\nfields: {to: '.'}\n")
    keep(home, "links", "links.yaml")
    (result,) = batch(office, home.site.url("/list"), options={"template": "links"})["results"]
    assert [result["record"], *result["more"]] == [{"to": "/x"}, {"to": "/y"}, {"to": "/z"}]
    said = batch(office, home.site.url("/list"), options={"template": "links", "content": "html"}, code=422)
    assert "several records" in said["detail"]


def test_templates_that_batches_brought_are_not_listed_among_those_of_people(
    office: ControlRoom, home: Fleet
) -> None:
    home.site.pages = {"/a": page("Alpha")}
    (home.user.folder / "heads.yaml").write_text("name: heads\nfields: {head: h1}\n")
    keep(home, "heads", "heads.yaml")
    keep(home, "batch-of-mine", "heads.yaml")
    for options in ({"fields": {"head": "h1"}}, {"template": "heads", "content": "text"}):
        said = batch(office, home.site.url("/a"), options=options)
        assert column(said, "status") == ["success"]
        brought = office.ask(f"/api/scraping/status/{said['session_id']}")["template_id"]
        assert brought.startswith("batch-") and office.get(f"/api/v1/templates/{brought}").status_code == 200
        listed = [one["name"] for one in office.ask("/api/v1/templates")["items"]]
        assert {"heads", "batch-of-mine"} <= set(listed) and brought not in listed
        assert brought not in office.get("/submit", headers={"Accept": "text/html"}).text


def test_a_redirect_to_a_private_address_is_refused(office: ControlRoom, home: Fleet) -> None:
    home.site.pages = {"/out": moved("http://10.0.0.1/secret")}
    (result,) = batch(office, home.site.url("/out"))["results"]
    assert result["status"] == "failed"
    assert result["error"].startswith("refused: private address: 10.0.0.1:80 is a private address")


def test_results_are_found_when_records_went_to_a_store(small: Fleet) -> None:
    small.site.pages = {"/a": page("Alpha")}
    with control(small, store=f"sqlite:///{small.user.folder}/results.db") as office:
        said = batch(office, small.site.url("/a"))
        (run,) = small.ask(lambda queue: queue.runs())
        until(lambda: small.stats(run).trimmed == 1)
        assert column(office.ask(f"/api/crawl/batch/{said['session_id']}"), "content") == ["Alpha"]


def test_headers_priority_and_retries_travel_with_the_run(office: ControlRoom, home: Fleet) -> None:
    home.site.pages = {"/a": page("Alpha"), "/busy": page("busy", status=503)}
    options = {"headers": {"X-Team": "blue"}, "retries": 1, "retry_delay": 0.05, "priority": 9}
    said = batch(office, home.site.url("/a"), home.site.url("/busy"), options=options)
    assert column(said, "status") == ["success", "failed"]
    assert len(home.site.asked("/busy")) == 2
    assert home.site.asked("/a")[0].headers["x-team"] == "blue"


def keep(fleet: Fleet, name: str, file: str) -> None:
    """Put a template into the queue."""
    text = msgspec.json.encode(read_template(fleet.user.folder / file)).decode()
    fleet.ask(lambda queue: queue.keep_paper(TEMPLATE, name, text))


# what cannot be


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"urls": []}, "urls"),
    ({"urls": "http://a.example/"}, "urls"),
    ({"urls": ["http://a.example/"] * 10_001}, "urls"),
    ({"urls": ["http://a.example/\0"]}, "urls"),
    ({"timeout": 0}, "timeout"),
    ({"timeout": 3601}, "timeout"),
    ({"timeout": "NaN"}, "timeout"),
    ({"wait": 5}, "wait"),
    ({"options": {"depth": 5}}, "options.depth"),
    ({"options": {"template": "nope"}}, "no template nope"),
    ({"options": {"template": "a", "fields": {"a": "b"}}}, "not both"),
    ({"options": {"fields": {"a": "p:::["}}}, "a"),
    ({"options": {"rate": 1, "delay": 1}}, "say the same thing twice"),
    ({"options": {"render": "browser"}}, "not installed"),
    ({"options": {"headers": {"Authorization": "Bearer abcdefghijkl"}}}, "secret"),
    ({"options": {"headers": {"A\nB": "c"}}}, "options.headers"),
    ({"options": {"priority": 2**63}}, "options.priority"),
)


def test_what_cannot_be_done_is_refused_with_the_reason(office: ControlRoom, home: Fleet) -> None:
    before = len(home.ask(lambda queue: queue.runs()))
    for change, words in REFUSED:
        answer = office.post("/api/crawl/batch", {"urls": ["http://a.example/"]} | change)
        assert answer.status_code == 422, (change, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert words in answer.json()["detail"], (change, answer.text)
        assert "abcdefghijkl" not in answer.text
    for path in ("nope", "%00", "x" * 200):
        assert office.get(f"/api/crawl/batch/{path}").status_code in (404, 422)
        assert office.delete(f"/api/crawl/batch/{path}").status_code in (404, 422)
    assert len(home.ask(lambda queue: queue.runs())) == before


# time


def test_at_the_timeout_the_rest_goes_on_under_its_session(office: ControlRoom, home: Fleet) -> None:
    late = Held()
    home.site.pages = {"/a": page("Alpha"), "/late": late}
    said = batch(office, home.site.url("/a"), home.site.url("/late"), timeout=1.5)
    assert column(said, "status") == ["success", "pending"]
    assert said["stats"]["pending"] == 1
    late.go.set()
    until(lambda: office.ask(f"/api/crawl/batch/{said['session_id']}")["stats"]["success"] == 2)


def test_work_goes_on_when_the_caller_hangs_up(office: ControlRoom, home: Fleet) -> None:
    late = Held()
    home.site.pages = {"/late": late}
    with pytest.raises(httpx.ReadTimeout):
        office.post("/api/crawl/batch", {"urls": [home.site.url("/late")], "timeout": 30}, timeout=0.5)
    assert late.asked.wait(10)
    late.go.set()
    run = home.ask(lambda queue: queue.runs())[0]
    home.finished(run)
    assert office.ask(f"/api/crawl/batch/{run.name}")["stats"]["success"] == 1


def test_a_batch_can_be_given_up(office: ControlRoom, home: Fleet) -> None:
    late = Held()
    home.site.pages = {"/late": late}
    said = batch(office, home.site.url("/late"), home.site.url("/b"), options={"delay": 60}, timeout=1)
    try:
        ended = office.delete(f"/api/crawl/batch/{said['session_id']}").json()
        assert ended == {"session_id": said["session_id"], "state": "cancelled"}
        assert office.delete(f"/api/crawl/batch/{said['session_id']}").json() == ended
        assert office.ask(f"/api/crawl/batch/{said['session_id']}")["stats"]["pending"] == 0
    finally:
        late.go.set()


def test_a_server_that_is_stopped_answers_with_what_there_is(small: Fleet) -> None:
    late = Held()
    small.site.pages = {"/late": late}
    with control(small) as office:
        answers: list[Any] = []
        calling = threading.Thread(target=lambda: answers.append(batch(office, small.site.url("/late"))))
        calling.start()
        assert late.asked.wait(15)
        os.kill(office.process.pid, signal.SIGTERM)
        calling.join(15)
        late.go.set()
        assert answers and answers[0]["stats"]["pending"] == 1
        assert office.process.wait(15) == 0


# again


def test_a_repeated_key_begins_nothing_and_answers_the_same(small: Fleet) -> None:
    small.site.pages = {"/a": page("Alpha")}
    with control(small) as office:
        first = batch(office, small.site.url("/a"), key="k1")
        assert batch(office, small.site.url("/a"), key="k1") == first
        assert batch(office, small.site.url("/a"), key="k2")["session_id"] != first["session_id"]
        assert batch(office, small.site.url("/b"), key="k1", code=422)["type"].endswith("key-reused")
        assert len(small.ask(lambda queue: queue.runs())) == 2


# deaths


def test_a_killed_process_of_the_server_loses_nothing(small: Fleet) -> None:
    late = Held()
    small.site.pages = {"/late": late, "/p/*": page("quick")}
    with control(small) as office:
        answers: list[Any] = []
        urls = [small.site.url("/late"), *(small.site.url(f"/p/{n}") for n in range(20))]
        calling = threading.Thread(target=lambda: answers.append(batch(office, *urls)))
        calling.start()
        assert late.asked.wait(15)
        os.kill(children(office)[0], signal.SIGKILL)
        late.go.set()
        calling.join(25)
        assert answers[0]["stats"] | {"workers_used": 0} == {
            "total": 21, "success": 21, "failed": 0, "pending": 0, "workers_used": 0,
        }  # fmt: skip


def test_another_server_goes_on_when_one_is_killed(shared: Fleet) -> None:
    late = Held()
    shared.site.pages = {"/late": late, "/a": page("Alpha")}
    with control(shared) as office:
        said = batch(office, shared.site.url("/late"), shared.site.url("/a"), timeout=1)
        assert late.asked.wait(10)
        os.kill(office.process.pid, signal.SIGKILL)
        office.process.wait(10)
        late.go.set()
    with control(shared) as office:
        path = f"/api/crawl/batch/{said['session_id']}"
        until(lambda: office.ask(path)["stats"]["success"] == 2, 20)


def asked(fleet: Fleet, settings: Settings, seed: str = "") -> Commission:
    """A batch of three pages, as the API would put it into the queue."""
    template, content = page_template("batch", {}, "text")
    return Commission(
        template=template,
        paper=(f"batch-{template.version}", 1),
        urls=tuple(fleet.site.url(f"/{n}") for n in range(3)),
        settings=settings,
        api={"as": "batch", "content": content, "distributed": True},
        seed=seed,
    )


def test_a_batch_whose_server_died_while_it_was_filled_is_filled_by_the_next(
    small: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load({"queue": small.queue, "allow_private": small.site.lane}, env={})
    monkeypatch.setattr(crew, "HALF_DONE", 0.1)

    class Died(Exception): ...

    async def die(*_: object) -> int:
        raise Died

    async def begun(queue: Queue) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(addresses.Addresses, "sow", die)
            with pytest.raises(Died):
                await asked(small, settings).begin(queue)
        (run,) = await queue.runs()
        assert (await queue.stats(run.id)).seen == 0
        stop, another = asyncio.Event(), crew.Crew(queue, settings)
        looking = asyncio.create_task(another.run(stop))
        async with asyncio.timeout(10):
            while await being_seeded(queue, run):
                await asyncio.sleep(0.05)
                another.wake()
        stop.set()
        await looking
        assert (await queue.stats(run.id)).seen == 3

    small.ask(begun)


def test_a_batch_that_is_begun_again_by_the_same_seed_is_the_same_run(small: Fleet) -> None:
    settings = load({"queue": small.queue, "allow_private": small.site.lane}, env={})

    async def begun(queue: Queue) -> None:
        first = await asked(small, settings, "seed").begin(queue)
        await queue.set_run(first.id, "pause")
        again = await asked(small, settings, "seed").begin(queue)
        assert (again.id, again.state) == (first.id, "paused")
        await queue.set_run(first.id, "cancel")
        assert (await asked(small, settings, "seed").begin(queue)).id == first.id
        assert (await asked(small, settings, "other").begin(queue)).id != first.id
        assert (await queue.stats(first.id)).seen == 3

    small.ask(begun)


def test_the_addresses_of_a_removed_run_go_with_it(small: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load({"queue": small.queue, "allow_private": small.site.lane}, env={})
    monkeypatch.setattr(addresses, "ORPHANED", 0.0)

    async def removed(queue: Queue) -> None:
        gone, stays = [await asked(small, settings).begin(queue) for _ in range(2)]
        await queue.set_run(gone.id, "cancel")
        await queue.purge(run=gone.id)
        tidying = Tidying(addresses.shelves(queue))
        assert sum([await tidying.turn() for _ in range(SHELVES)]) == 1
        assert await addresses.addresses_of(queue, settings, gone) is None
        assert await addresses.addresses_of(queue, settings, stays) is not None

    small.ask(removed)


# the fleet


def test_workers_of_the_fleet_do_what_is_distributed_and_leave_the_rest(shared: Fleet) -> None:
    late = Held()
    shared.site.pages = {"/a": page("Alpha"), "/here": late}
    kind = "Redis" if "redis" in shared.queue else "SQLite"
    with control(shared) as office:
        path = "/api/crawl/distributed/status"
        none = {"distributed_available": False, "message": "no workers are connected: shoal worker"}
        assert office.ask(path) == none
        waiting = batch(office, shared.site.url("/a"), distributed=True, timeout=0.2)
        assert waiting["stats"]["pending"] == 1
        assert "No workers are connected" in waiting["notes"][0]
        worker = shared.worker(SHOAL_NAME="fleet")
        there = {"distributed_available": True, "message": f"{kind} connected"}
        until(lambda: office.ask(path) == there)
        until(lambda: office.ask(f"/api/crawl/batch/{waiting['session_id']}")["stats"]["success"] == 1)
        assert batch(office, shared.site.url("/a"), distributed=True)["results"][0]["worker_id"].startswith(
            "fleet-"
        )
        late.go.set()
        (mine,) = batch(office, shared.site.url("/here"))["results"]
        assert mine["status"] == "success" and not mine["worker_id"].startswith("fleet-")
        worker.terminate()
        until(lambda: office.ask(path) == none)


def test_a_queue_that_is_away_is_not_available(tmp_path: Path) -> None:
    from servers.redis import RedisServer

    server = RedisServer()
    server.start()
    try:
        with room(server.url("batch"), folder=tmp_path, **QUICK) as office:
            server.kill()
            until(
                lambda: (
                    office.ask("/api/crawl/distributed/status")
                    == {"distributed_available": False, "message": "Redis not available"}
                ),
                10,
            )
    finally:
        server.stop()


# its processes


def test_processes_come_with_the_first_run_and_go_when_there_was_nothing_to_do_for_a_while(
    small: Fleet,
) -> None:
    settings = load({"queue": small.queue, "workers": "1"}, env={})

    async def lived(queue: Queue) -> None:
        stop, own = asyncio.Event(), crew.Crew(queue, settings, idle=0.1)
        living = asyncio.create_task(own.run(stop))
        await asyncio.sleep(0.1)
        assert not own.working
        run = await local_run(queue, "first")
        await woken(own, lambda: own.working)
        await queue.set_run(run, "cancel")
        await woken(own, lambda: not own.working)
        stop.set()
        await living

    small.ask(lived)


def test_processes_that_a_person_drained_come_back_with_the_next_run_only(
    small: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load({"queue": small.queue, "workers": "1", "lease": "2s", "heartbeat": "0.3s"}, env={})
    monkeypatch.setattr(crew, "LOOK_EVERY", 0.1)

    async def lived(queue: Queue) -> None:
        stop, own = asyncio.Event(), crew.Crew(queue, settings)
        await local_run(queue, "first")
        living = asyncio.create_task(own.run(stop))
        async with asyncio.timeout(15):
            while not (marks := await queue.workers()):
                await asyncio.sleep(0.05)
            assert marks[0].serves == ("here",)
            await queue.ask_worker(marks[0].id, "drain")
            while own.working:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        assert not own.working
        await local_run(queue, "second")
        await woken(own, lambda: own.working)
        stop.set()
        await living

    small.ask(lived)


async def local_run(queue: Queue, name: str) -> int:
    """A run for a control room that stays open: there is no template for it, so nothing is asked for."""
    run = await queue.start_run(NewRun("x", name, name, {"mode": "here"}))
    await queue.add(run.id, start_tasks(["http://a.example/"])[0])
    return run.id


async def woken(own: crew.Crew, what: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not what():
            own.wake()
            await asyncio.sleep(0.05)
