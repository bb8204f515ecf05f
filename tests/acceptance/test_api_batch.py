"""The batch API: every URL is accounted for, by the server itself and by a fleet, whatever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_fixtures import QUICK, keep, server_for
from local_fleet import LocalFleet
from server_process import ServerProcess, running_server
from servers.redis import own_server
from small_site import GatedPage, moved, page
from wait import HANG, until, wait_until

from shoal.config.load import Settings, load
from shoal.control.document_gc import SHARDS, DocumentGc
from shoal.core.run import NewRun
from shoal.extract.template.content import page_template
from shoal.queue.base import Queue
from shoal.runs.identity import is_seeding
from shoal.sources.start_task import start_tasks
from shoal.web import server_worker_pool
from shoal.web.submit import url_lists
from shoal.web.submit.template_run import TemplateRun


def batch(api_server: ServerProcess, *urls: str, code: int = 200, key: str = "", **more: Any) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    answer = api_server.post("/api/crawl/batch", {"urls": list(urls), "timeout": 20} | more, headers=headers)
    assert answer.status_code == code, answer.text
    return answer.json()


def column(document: Any, name: str) -> list[Any]:
    return [result[name] for result in document["results"]]


def children(api_server: ServerProcess) -> list[int]:
    listed = Path(f"/proc/{api_server.process.pid}/task/{api_server.process.pid}/children").read_text()
    return [int(number) for number in listed.split()]


# each address


@pytest.mark.parametrize("fleet", ["sqlite", "redis"], indirect=True)
def test_every_url_is_accounted_for_in_the_order_given(fleet: LocalFleet) -> None:
    site = fleet.site
    site.pages = {"/a": page("Alpha"), "/b": page("Beta"), "/gone": page("old", status=410)}
    urls = [site.url("/b"), site.url("/a"), site.url("/gone"), site.url("/b"), "http://10.0.0.1/x", "hello"]
    with server_for(fleet) as api_server:
        said = batch(api_server, *urls)
        assert column(said, "url") == urls
        assert column(said, "status") == ["success", "success", "failed", "success", "failed", "failed"]
        assert column(said, "content") == ["Beta", "Alpha", None, "Beta", None, None]
        assert column(said, "http_status") == [200, 200, 410, 200, None, None]
        assert column(said, "error")[:2] == [None, None]
        assert column(said, "error")[2].startswith("http.410: ")
        assert column(said, "error")[4] == "refused: private address: 10.0.0.1:80 is a private address"
        assert column(said, "error")[5] == "not fetched: not a URL"
        assert all(column(said, "worker_id")[:4])
        assert said["stats"] == {"total": 6, "success": 3, "failed": 3, "pending": 0, "workers_used": 1}
        assert said["distributed"] is False
        assert api_server.ask(f"/api/crawl/batch/{said['session_id']}") == said
        assert len(site.hits_for("/b")) == 1


def test_a_batch_is_a_run_like_any_other(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages = {"/a": page("Alpha")}
    with server_for(sqlite_fleet) as api_server:
        said = batch(api_server, sqlite_fleet.site.url("/a"))
        wait_until(lambda: sqlite_fleet.user.ask("status", said["session_id"])["state"] == "finished")
        sqlite_fleet.user.shoal("export", said["session_id"], "-o", "out.jsonl")
        assert [row["title"] for row in sqlite_fleet.user.lines("out.jsonl")] == ["Alpha"]


WANTED: tuple[tuple[dict[str, Any], Any, dict[str, Any] | None], ...] = (
    ({}, "Alpha", {"title": "Alpha"}),
    ({"content": "html"}, "<title>Alpha</title><p>Alpha</p>", {"title": "Alpha"}),
    ({"content": "none"}, None, {"title": "Alpha"}),
    ({"fields": {"said": "p::text"}}, None, {"said": "Alpha"}),
    ({"fields": {"said": "p::text"}, "content": "text"}, "Alpha", {"said": "Alpha"}),
    ({"fields": {"content[]": "p::text"}, "content": "text"}, None, {"content": ["Alpha"]}),
)


def test_what_is_taken_of_a_page_is_as_asked(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    shared_fleet.site.pages = {"/a": page("Alpha")}
    for options, content, record in WANTED:
        (result,) = batch(api_server, shared_fleet.site.url("/a"), options=options)["results"]
        assert result["content"] == content, options
        assert record is not None and result["record"].items() >= record.items(), options
        assert ("content" in result["record"]) == ("content" in (record or {}))
        assert "text" not in result["record"]


def test_a_template_that_the_queue_keeps_gives_all_records_of_a_page(
    api_server: ServerProcess, shared_fleet: LocalFleet
) -> None:
    shared_fleet.site.pages = {"/list": page("", "/x", "/y", "/z")}
    keep(shared_fleet, "links", "name: links\neach: a\nfields: {to: '.'}\n")
    (result,) = batch(api_server, shared_fleet.site.url("/list"), options={"template": "links"})["results"]
    assert [result["record"], *result["more"]] == [{"to": "/x"}, {"to": "/y"}, {"to": "/z"}]
    said = batch(api_server, shared_fleet.site.url("/list"), options={"template": "links", "content": "html"}, code=422)
    assert "several records" in said["detail"]


def test_templates_that_batches_brought_are_not_listed_among_those_of_people(
    api_server: ServerProcess, shared_fleet: LocalFleet
) -> None:
    shared_fleet.site.pages = {"/a": page("Alpha")}
    for name in ("heads", "batch-of-mine"):
        keep(shared_fleet, name, "name: heads\nfields: {head: h1}\n")
    for options in ({"fields": {"head": "h1"}}, {"template": "heads", "content": "text"}):
        said = batch(api_server, shared_fleet.site.url("/a"), options=options)
        assert column(said, "status") == ["success"]
        brought = api_server.ask(f"/api/scraping/status/{said['session_id']}")["template_id"]
        assert brought.startswith("batch-") and api_server.get(f"/api/v1/templates/{brought}").status_code == 200
        listed = [one["name"] for one in api_server.ask("/api/v1/templates")["items"]]
        assert {"heads", "batch-of-mine"} <= set(listed) and brought not in listed
        assert brought not in api_server.get("/submit", headers={"Accept": "text/html"}).text


def test_a_redirect_to_a_private_address_is_refused(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    shared_fleet.site.pages = {"/out": moved("http://10.0.0.1/secret")}
    (result,) = batch(api_server, shared_fleet.site.url("/out"))["results"]
    assert result["status"] == "failed"
    assert result["error"].startswith("refused: private address: 10.0.0.1:80 is a private address")


def test_results_are_found_when_records_went_to_a_store(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages = {"/a": page("Alpha")}
    with server_for(sqlite_fleet, store=f"sqlite:///{sqlite_fleet.user.folder}/results.db") as api_server:
        said = batch(api_server, sqlite_fleet.site.url("/a"))
        (run,) = sqlite_fleet.ask(lambda queue: queue.runs())
        wait_until(lambda: sqlite_fleet.stats(run).trimmed == 1)
        assert column(api_server.ask(f"/api/crawl/batch/{said['session_id']}"), "content") == ["Alpha"]


def test_headers_priority_and_retries_travel_with_the_run(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    shared_fleet.site.pages = {"/a": page("Alpha"), "/busy": page("busy", status=503)}
    options = {"headers": {"X-Team": "blue"}, "retries": 1, "retry_delay": 0.05, "priority": 9}
    said = batch(api_server, shared_fleet.site.url("/a"), shared_fleet.site.url("/busy"), options=options)
    assert column(said, "status") == ["success", "failed"]
    assert len(shared_fleet.site.hits_for("/busy")) == 2
    assert shared_fleet.site.hits_for("/a")[0].headers["x-team"] == "blue"


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
    ({"options": {"rate": 1, "delay": 1}}, "conflict"),
    ({"options": {"render": "browser"}}, "not installed"),
    ({"options": {"headers": {"Authorization": "Bearer abcdefghijkl"}}}, "secret"),
    ({"options": {"headers": {"A\nB": "c"}}}, "options.headers"),
    ({"options": {"headers": {"Content-Length": "0"}}}, "Content-Length"),
    ({"options": {"headers": {"Host": "b.example"}}}, "Host"),
    ({"options": {"fields": {"a": "xpath://a[re:test(., '(a+)+$')]"}}}, "re:test() is not available"),
    ({"options": {"priority": 2**63}}, "options.priority"),
)


def test_what_cannot_be_done_is_refused_with_the_reason(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    before = len(shared_fleet.ask(lambda queue: queue.runs()))
    for change, words in REFUSED:
        answer = api_server.post("/api/crawl/batch", {"urls": ["http://a.example/"]} | change)
        assert answer.status_code == 422, (change, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert words in answer.json()["detail"], (change, answer.text)
        assert "abcdefghijkl" not in answer.text
    for path in ("nope", "%00", "x" * 200):
        assert api_server.get(f"/api/crawl/batch/{path}").status_code in (404, 422)
        assert api_server.delete(f"/api/crawl/batch/{path}").status_code in (404, 422)
    assert len(shared_fleet.ask(lambda queue: queue.runs())) == before


# time


def test_at_the_timeout_the_rest_goes_on_under_its_session(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    late = GatedPage()
    shared_fleet.site.pages = {"/a": page("Alpha"), "/late": late}
    said = batch(api_server, shared_fleet.site.url("/a"), shared_fleet.site.url("/late"), timeout=1.5)
    assert column(said, "status") == ["success", "pending"]
    assert said["stats"]["pending"] == 1
    late.open.set()
    wait_until(lambda: api_server.ask(f"/api/crawl/batch/{said['session_id']}")["stats"]["success"] == 2)


def test_work_goes_on_when_the_caller_hangs_up(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    late = GatedPage()
    shared_fleet.site.pages = {"/late": late}
    with pytest.raises(httpx.ReadTimeout):
        api_server.post("/api/crawl/batch", {"urls": [shared_fleet.site.url("/late")], "timeout": 30}, timeout=0.5)
    assert late.asked.acquire(timeout=HANG)
    late.open.set()
    run = shared_fleet.ask(lambda queue: queue.runs())[0]
    shared_fleet.finished(run)
    assert api_server.ask(f"/api/crawl/batch/{run.name}")["stats"]["success"] == 1


def test_a_batch_can_be_given_up(api_server: ServerProcess, shared_fleet: LocalFleet) -> None:
    late = GatedPage()
    shared_fleet.site.pages = {"/late": late}
    said = batch(
        api_server, shared_fleet.site.url("/late"), shared_fleet.site.url("/b"), options={"delay": 60}, timeout=1
    )
    try:
        ended = api_server.delete(f"/api/crawl/batch/{said['session_id']}").json()
        assert ended == {"session_id": said["session_id"], "state": "cancelled"}
        assert api_server.delete(f"/api/crawl/batch/{said['session_id']}").json() == ended
        assert api_server.ask(f"/api/crawl/batch/{said['session_id']}")["stats"]["pending"] == 0
    finally:
        late.open.set()


def test_a_server_that_is_stopped_answers_with_what_there_is(sqlite_fleet: LocalFleet) -> None:
    late = GatedPage()
    sqlite_fleet.site.pages = {"/late": late}
    with server_for(sqlite_fleet) as api_server:
        answers: list[Any] = []
        calling = threading.Thread(target=lambda: answers.append(batch(api_server, sqlite_fleet.site.url("/late"))))
        calling.start()
        assert late.asked.acquire(timeout=HANG)
        os.kill(api_server.process.pid, signal.SIGTERM)
        calling.join(HANG)
        late.open.set()
        assert answers and answers[0]["stats"]["pending"] == 1
        assert api_server.process.wait(HANG) == 0


# again


def test_a_repeated_key_begins_nothing_and_answers_the_same(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages = {"/a": page("Alpha")}
    with server_for(sqlite_fleet) as api_server:
        first = batch(api_server, sqlite_fleet.site.url("/a"), key="k1")
        assert batch(api_server, sqlite_fleet.site.url("/a"), key="k1") == first
        assert batch(api_server, sqlite_fleet.site.url("/a"), key="k2")["session_id"] != first["session_id"]
        assert batch(api_server, sqlite_fleet.site.url("/b"), key="k1", code=422)["type"].endswith(
            "idempotency-key-reused"
        )
        assert len(sqlite_fleet.ask(lambda queue: queue.runs())) == 2


# deaths


def test_a_killed_process_of_the_server_loses_nothing(sqlite_fleet: LocalFleet) -> None:
    late = GatedPage()
    sqlite_fleet.site.pages = {"/late": late, "/p/*": page("quick")}
    with server_for(sqlite_fleet) as api_server:
        answers: list[Any] = []
        urls = [sqlite_fleet.site.url("/late"), *(sqlite_fleet.site.url(f"/p/{n}") for n in range(20))]
        calling = threading.Thread(target=lambda: answers.append(batch(api_server, *urls)))
        calling.start()
        assert late.asked.acquire(timeout=HANG)
        os.kill(children(api_server)[0], signal.SIGKILL)
        late.open.set()
        calling.join(HANG)
        assert answers[0]["stats"] | {"workers_used": 0} == {
            "total": 21, "success": 21, "failed": 0, "pending": 0, "workers_used": 0,
        }  # fmt: skip


def test_another_server_goes_on_when_one_is_killed(redis_fleet: LocalFleet) -> None:
    late = GatedPage()
    redis_fleet.site.pages = {"/late": late, "/a": page("Alpha")}
    with server_for(redis_fleet) as api_server:
        said = batch(api_server, redis_fleet.site.url("/late"), redis_fleet.site.url("/a"), timeout=1)
        assert late.asked.acquire(timeout=HANG)
        os.kill(api_server.process.pid, signal.SIGKILL)
        api_server.process.wait(HANG)
        late.open.set()
    with server_for(redis_fleet) as api_server:
        path = f"/api/crawl/batch/{said['session_id']}"
        wait_until(lambda: api_server.ask(path)["stats"]["success"] == 2)


def asked(fleet: LocalFleet, settings: Settings, seed: str = "") -> TemplateRun:
    """A batch of three pages, as the API would put it into the queue."""
    template, content = page_template("batch", {}, "text")
    return TemplateRun(
        template=template,
        template_ref=(f"batch-{template.version}", 1),
        urls=tuple(fleet.site.url(f"/{n}") for n in range(3)),
        settings=settings,
        api={"as": "batch", "content": content, "distributed": True},
        seed=seed,
    )


def test_a_batch_whose_server_died_while_it_was_filled_is_filled_by_the_next(
    sqlite_fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load({"queue": sqlite_fleet.queue, "allow_private": sqlite_fleet.site.lane}, env={})
    monkeypatch.setattr(server_worker_pool, "SEEDING_TIMEOUT", 0.1)

    class Died(Exception): ...

    async def die(*_: object) -> AsyncIterator[object]:
        raise Died
        yield

    async def begun(queue: Queue) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(url_lists.UrlList, "batches", die)
            with pytest.raises(Died):
                await asked(sqlite_fleet, settings).start(queue)
        (run,) = await queue.runs()
        assert (await queue.stats(run.id)).seen == 0
        stop, another = asyncio.Event(), server_worker_pool.ServerWorkerPool(queue, settings)
        looking = asyncio.create_task(another.run(stop))
        while await is_seeding(queue, run):
            await asyncio.sleep(0.05)
            another.wake()
        stop.set()
        await looking
        assert (await queue.stats(run.id)).seen == 3

    sqlite_fleet.ask(begun)


def test_a_batch_that_is_begun_again_by_the_same_seed_is_the_same_run(sqlite_fleet: LocalFleet) -> None:
    settings = load({"queue": sqlite_fleet.queue, "allow_private": sqlite_fleet.site.lane}, env={})

    async def begun(queue: Queue) -> None:
        first = await asked(sqlite_fleet, settings, "seed").start(queue)
        await queue.set_run(first.id, "pause")
        again = await asked(sqlite_fleet, settings, "seed").start(queue)
        assert (again.id, again.state) == (first.id, "paused")
        await queue.set_run(first.id, "cancel")
        assert (await asked(sqlite_fleet, settings, "seed").start(queue)).id == first.id
        assert (await asked(sqlite_fleet, settings, "other").start(queue)).id != first.id
        assert (await queue.stats(first.id)).seen == 3

    sqlite_fleet.ask(begun)


def test_the_urls_of_a_removed_run_go_with_it(sqlite_fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load({"queue": sqlite_fleet.queue, "allow_private": sqlite_fleet.site.lane}, env={})
    monkeypatch.setattr(url_lists, "ORPHANED_AFTER", 0.0)

    async def removed(queue: Queue) -> None:
        gone, stays = [await asked(sqlite_fleet, settings).start(queue) for _ in range(2)]
        await queue.set_run(gone.id, "cancel")
        await queue.purge(run=gone.id)
        tidying = DocumentGc(url_lists.shelves(queue))
        assert sum([await tidying.sweep() for _ in range(SHARDS)]) == 1
        assert await url_lists.urls_of_run(queue, settings, gone) is None
        assert await url_lists.urls_of_run(queue, settings, stays) is not None

    sqlite_fleet.ask(removed)


# the fleet


def test_workers_of_the_fleet_do_what_is_distributed_and_leave_the_rest(redis_fleet: LocalFleet) -> None:
    late = GatedPage()
    redis_fleet.site.pages = {"/a": page("Alpha"), "/here": late}
    kind = "Redis" if "redis" in redis_fleet.queue else "SQLite"
    with server_for(redis_fleet) as api_server:
        path = "/api/crawl/distributed/status"
        none = {"distributed_available": False, "message": "no workers are connected: shoal worker"}
        assert api_server.ask(path) == none
        waiting = batch(api_server, redis_fleet.site.url("/a"), distributed=True, timeout=0.2)
        assert waiting["stats"]["pending"] == 1
        assert "No workers are connected" in waiting["notes"][0]
        worker = redis_fleet.worker(SHOAL_NAME="fleet")
        fleet_and_server = {"distributed_available": True, "message": f"{kind} connected"}
        wait_until(lambda: api_server.ask(path) == fleet_and_server)
        wait_until(lambda: api_server.ask(f"/api/crawl/batch/{waiting['session_id']}")["stats"]["success"] == 1)
        assert batch(api_server, redis_fleet.site.url("/a"), distributed=True)["results"][0]["worker_id"].startswith(
            "fleet-"
        )
        late.open.set()
        (mine,) = batch(api_server, redis_fleet.site.url("/here"))["results"]
        assert mine["status"] == "success" and not mine["worker_id"].startswith("fleet-")
        worker.terminate()
        wait_until(lambda: api_server.ask(path) == none)


def test_a_queue_that_is_away_is_not_available(tmp_path: Path) -> None:
    with own_server() as server, running_server(server.url("batch"), folder=tmp_path, **QUICK) as api_server:
        api_server.ask("/api/crawl/distributed/status")  # it has its queue
        server.kill()
        away = {"distributed_available": False, "message": "Redis not available"}
        wait_until(lambda: api_server.ask("/api/crawl/distributed/status") == away)


# its processes


def test_processes_come_with_the_first_run_and_go_when_there_was_nothing_to_do_for_a_while(
    sqlite_fleet: LocalFleet,
) -> None:
    settings = load({"queue": sqlite_fleet.queue, "workers": "1"}, env={})

    async def lived(queue: Queue) -> None:
        stop, own = asyncio.Event(), server_worker_pool.ServerWorkerPool(queue, settings, idle=0.1)
        living = asyncio.create_task(own.run(stop))
        await asyncio.sleep(0.1)
        assert not own.is_working
        run = await local_run(queue, "first")
        await woken(own, lambda: own.is_working)
        await queue.set_run(run, "cancel")
        await woken(own, lambda: not own.is_working)
        stop.set()
        await living

    sqlite_fleet.ask(lived)


def test_processes_that_a_person_drained_come_back_with_the_next_run_only(
    sqlite_fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load({"queue": sqlite_fleet.queue, "workers": "1", "lease": "2s", "heartbeat": "0.3s"}, env={})
    monkeypatch.setattr(server_worker_pool, "CHECK_INTERVAL", 0.1)

    async def lived(queue: Queue) -> None:
        stop, own = asyncio.Event(), server_worker_pool.ServerWorkerPool(queue, settings)
        await local_run(queue, "first")
        living = asyncio.create_task(own.run(stop))
        marks = await until(queue.workers)
        assert marks[0].serves == ("here",)
        await queue.command_worker(marks[0].id, "drain")
        await until(lambda: not own.is_working)
        await asyncio.sleep(0.5)  # nothing to wait for: the promise is that nothing happens
        assert not own.is_working
        await local_run(queue, "second")
        await woken(own, lambda: own.is_working)
        stop.set()
        await living

    sqlite_fleet.ask(lived)


async def local_run(queue: Queue, name: str) -> int:
    """A run for a server that stays open: there is no template for it, so nothing is asked for."""
    run = await queue.start_run(NewRun("x", name, name, {"mode": "here"}))
    await queue.add(run.id, start_tasks(["http://a.example/"])[0])
    return run.id


async def woken(own: server_worker_pool.ServerWorkerPool, what: Callable[[], bool]) -> None:
    await until(lambda: own.wake() or what(), every=0.05)
