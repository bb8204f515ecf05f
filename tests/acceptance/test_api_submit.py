"""Submitting over the API: one document, or a stream of any length; and what repeating a request does."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import sample_queue
from backend_urls import QUEUE_KINDS, backend_url
from server_process import ServerProcess, running_server
from shell_user import ShellUser
from small_site import small_site
from wait import wait_until

LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running_server(sample_queue.state_url(tmp_path), "--no-maintenance") as made:
        yield made


@pytest.fixture(params=QUEUE_KINDS)
def any_kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    with running_server(backend_url(request.param, tmp_path), "--no-maintenance", folder=tmp_path) as made:
        yield made


def begun(server: ServerProcess, **more: Any) -> str:
    """A run that addresses will follow for."""
    answer = server.post("/api/v1/runs", {"more": True} | more)
    assert answer.status_code == 201, answer.text
    name: str = answer.json()["run"]
    return name


def test_a_run_is_put_into_the_queue_with_what_was_refused_and_why(server: ServerProcess) -> None:
    answer = server.post(
        "/api/v1/runs",
        {
            "urls": ["https://a.example/1", "a.example/1", "https://b.example/", "nonsense", "http://10.0.0.1/"],
            "fields": {"title": "h1::text"},
            "settings": {"rate": 4, "max_pages": 100},
            "priority": 5,
            "weight": 3,
            "name": "titles",
        },
    )
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["location"] == f"/api/v1/runs/{made['run']}"
    assert (made["added"], made["known"], made["rejected"]) == (2, 1, 2)
    assert [reject["line"] for reject in made["rejects"]] == [4, 5]
    assert "private" in made["rejects"][1]["why"]
    run = server.ask(f"/api/v1/runs/{made['run']}")
    assert (run["scraper"], run["ready"], run["max_pages"]) == ("titles", 2, 100)
    assert server.ask("/api/v1/hosts/a.example")["spacing"] == 0.25
    assert not run["seeding"]
    tasks = server.ask(f"/api/v1/runs/{made['run']}/tasks")["items"]
    assert {task["priority"] for task in tasks} == {0}


def test_routes_of_a_request_hold_for_all_of_its_urls_and_for_those_that_follow(server: ServerProcess) -> None:
    rules = ["*/urgent/* priority=10", {"match": "b.example", "delay": "5s", "priority": 2}]
    urls = ["https://a.example/urgent/1", "https://a.example/1", "https://b.example/1"]
    name = server.post("/api/v1/runs", {"urls": urls, "routes": rules, "more": True}).json()["run"]
    lines = [{"url": "https://a.example/urgent/2"}, {"url": "https://b.example/2"}]
    documents = "\n".join(map(json.dumps, [*lines, {"url": "https://b.example/3", "priority": 0}]))
    answer = server.post(f"/api/v1/runs/{name}/tasks", content=documents, headers=LINES)
    assert answer.json()["added"] == 3, answer.text
    found = {it["url"][8:]: it["priority"] for it in server.ask(f"/api/v1/runs/{name}/tasks")["items"]}
    assert found == {
        "a.example/urgent/1": 10, "a.example/1": 0, "b.example/1": 2,
        "a.example/urgent/2": 10, "b.example/2": 2, "b.example/3": 0,
    }  # fmt: skip
    assert server.ask("/api/v1/hosts/b.example")["spacing"] == 5.0
    for bad, words in ((["* ttl=0"], "rule 1: ttl '0'"), (["/x delay=1"], "rule 1: delay"), ([{"match": "*"}], "sets")):
        answer = server.post("/api/v1/runs", {"urls": urls, "routes": bad})
        assert answer.status_code == 422 and words in answer.json()["detail"], answer.text
    both = {"urls": urls, "routes": ["* ttl=1"], "settings": {"routes": ["* ttl=2"]}}
    assert server.post("/api/v1/runs", both).status_code == 422


def test_steps_that_no_browser_would_take_are_refused(server: ServerProcess) -> None:
    body: dict[str, Any] = {"urls": ["https://a.example/x"], "fields": {"title": "h1"}}
    steps = {"steps": ["wait .item"]}
    refused = server.post("/api/v1/runs", body | {"settings": steps})
    assert refused.status_code == 422
    assert "steps are taken by a browser" in refused.json()["detail"]
    assert "fetch" in refused.json()["hint"]
    # Where a browser is asked for, or URLs follow that can say so themselves, there is nothing to refuse.
    for more in ({"settings": steps | {"fetch": "auto"}}, {"settings": steps, "more": True}):
        assert server.post("/api/v1/runs", body | more).status_code == 201
    unknown = server.post("/api/v1/runs", body | {"settings": {"fetch": "browser", "steps": ["evaluate alert(1)"]}})
    assert unknown.status_code == 422 and "'evaluate' is not an action" in unknown.json()["detail"], unknown.text


def test_sitemaps_are_asked_for_in_one_word(server: ServerProcess) -> None:
    for body, count in (
        ({"urls": ["https://a.example/x"], "sitemap": True}, 2),
        ({"sitemap": "https://a.example/s.xml"}, 1),
        ({"sitemap": ["https://a.example/s.xml", "b.example"]}, 2),
    ):
        made = server.post("/api/v1/runs", body | {"fields": {"title": "h1::text"}})
        assert (made.status_code, made.json()["added"]) == (201, count), made.text
    nowhere = server.post("/api/v1/runs", {"sitemap": True, "fields": {"title": "h1::text"}})
    private = server.post("/api/v1/runs", {"sitemap": "http://10.0.0.1/s.xml", "fields": {"title": "h1::text"}})
    assert (nowhere.status_code, private.status_code) == (422, 422)
    assert "sitemaps" in nowhere.json()["detail"] and "10.0.0.1" in private.json()["detail"]


def test_a_key_finds_the_run_again_while_it_goes_on(server: ServerProcess) -> None:
    first = server.post("/api/v1/runs", {"urls": ["https://a.example/1"], "key": "nightly"})
    again = server.post("/api/v1/runs", {"urls": ["https://a.example/2"], "key": "nightly"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["run"] == first.json()["run"]
    assert again.json()["status"] == "continued"
    assert server.ask(f"/api/v1/runs/{first.json()['run']}")["ready"] == 2


def test_a_kept_template_brings_its_start_urls(server: ServerProcess) -> None:
    text = "name: shop\nstart: https://shop.example/\nfields: {title: h1}\nsettings: {rate: 4}\n"
    assert server.put("/api/v1/templates/shop", content=text).status_code == 200
    made = server.post("/api/v1/runs", {"template": "shop"}).json()
    assert (made["scraper"], made["added"]) == ("shop", 1)
    assert server.ask("/api/v1/hosts/shop.example")["spacing"] == 0.25


BOOKS = """
import shoal

books = shoal.Scraper("books", start="https://books.example/", rate=4)
alone = shoal.Scraper("alone", start="https://books.example/", mode="single")
"""


def test_a_scraper_is_submitted_by_its_name_with_the_start_urls_of_its_code(tmp_path: Path) -> None:
    (tmp_path / "books.py").write_text(BOOKS)
    (tmp_path / "broken.py").write_text("raise SystemExit(3)")
    places = f"{tmp_path / 'broken.py'} | {tmp_path / 'books.py'} | {tmp_path / 'none.py'}"
    with running_server(sample_queue.state_url(tmp_path), "--no-maintenance", scrapers=places) as server:
        listed = {one["name"]: one for one in server.ask("/api/v1/scrapers")["items"]}
        assert listed["books"]["start"] == ["https://books.example/"]
        made = server.post("/api/v1/runs", {"scraper": "books"}).json()
        assert (made["scraper"], made["added"]) == ("books", 1)
        assert "No worker serves books" in made["notes"][0]
        assert server.post("/api/v1/runs", {"scraper": "alone"}).json()["type"].endswith(":single-mode-scraper")
        assert server.post("/api/v1/runs", {"scraper": "unknown"}).json()["type"].endswith(":no-urls")
        elsewhere = {"scraper": "unknown", "urls": ["https://a.example/"]}
        assert server.post("/api/v1/runs", elsewhere).status_code == 201


def test_what_was_submitted_is_fetched_by_a_worker_and_finishes(tmp_path: Path) -> None:
    with small_site() as site:
        site.pages["/*"] = lambda hit: (200, {"Content-Type": "text/html"}, f"<h1>{hit.path}</h1>".encode())
        queue = sample_queue.state_url(tmp_path)
        with running_server(queue, allow_private=site.lane) as server:
            urls = [site.url(f"/p{n}") for n in range(5)]
            name = server.post("/api/v1/runs", {"urls": urls, "fields": {"title": "h1"}}).json()["run"]
            with ShellUser(tmp_path) as user:
                user.environment |= {"SHOAL_QUEUE": queue, "SHOAL_ALLOW_PRIVATE": site.lane}
                done = user.shoal("worker", "--exit-when-done", "--workers", "1")
            assert done.code == 0, done.err
            wait_until(lambda: server.ask(f"/api/v1/runs/{name}")["state"] == "finished")
            records = server.ask(f"/api/v1/runs/{name}/records")["items"]
            assert sorted(record["data"]["title"] for record in records) == [f"/p{n}" for n in range(5)]


def test_what_is_to_be_done_here_needs_no_worker(tmp_path: Path) -> None:
    with small_site() as site:
        site.pages["/*"] = lambda hit: (200, {"Content-Type": "text/html"}, f"<h1>{hit.path}</h1>".encode())
        with running_server(sample_queue.state_url(tmp_path), allow_private=site.lane) as server:
            order = {"urls": [site.url("/p1")], "fields": {"title": "h1"}, "here": True}
            name = server.post("/api/v1/runs", order).json()["run"]
            wait_until(lambda: server.ask(f"/api/v1/runs/{name}")["state"] == "finished")
            (record,) = server.ask(f"/api/v1/runs/{name}/records")["items"]
            assert record["data"]["title"] == "/p1"


def test_a_stream_is_added_line_by_line_and_counted(any_kind: ServerProcess) -> None:
    name = begun(any_kind)
    text = "\ufeffhttps://a.example/1\r\n\nhttps://a.example/2\nhttps://a.example/1\nnot one\nhttp://127.0.0.1/\n"
    text += "https://a.example/" + "x" * 70_000 + "\nhttps://a.example/3"
    answer = any_kind.post(f"/api/v1/runs/{name}/tasks?last=false", content=text.encode() + b"\n\xff\xfe\n")
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert (made["read"], made["added"], made["known"], made["rejected"]) == (8, 3, 1, 4)
    assert [reject["line"] for reject in made["rejects"]] == [4, 5, 6, 8]
    assert any_kind.ask(f"/api/v1/runs/{name}")["seeding"]
    assert any_kind.post(f"/api/v1/runs/{name}/tasks", content=b"").json()["last"]
    assert not any_kind.ask(f"/api/v1/runs/{name}")["seeding"]


def test_lines_of_json_say_more_about_each_url(any_kind: ServerProcess) -> None:
    name = begun(any_kind)
    given: list[object] = [
        {"url": "https://a.example/1", "priority": 7, "meta": {"sku": "x", "n": 2**53}},
        {"url": "https://a.example/2", "delay": 3600},
        {"url": "https://a.example/3", "method": "POST", "body": "q=1", "headers": {"X-Kind": "a"}},
        {"url": "https://a.example/3"},
        {"url": "https://a.example/4", "headers": {"Authorization": "Bearer x"}},
        {"url": "https://a.example/5", "ttl": -1},
        {"url": "https://a.example/6", "unknown": 1},
        {"url": "https://a.example/7", "priority": 2**70},
        {"url": 5},
        [],
    ]
    lines = [json.dumps(one) for one in given] + ["{", '{"url": "https://a.example/8", "meta": ' + "[" * 9_000]
    answer = any_kind.post(f"/api/v1/runs/{name}/tasks", content="\n".join(lines).encode(), headers=LINES)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert (made["added"], made["rejected"]) == (4, 8)
    tasks = {task["url"][-1]: task for task in any_kind.ask(f"/api/v1/runs/{name}/tasks")["items"]}
    assert tasks["1"]["priority"] == 7
    assert tasks["2"]["state"] == "delayed"
    assert "Bearer x" not in json.dumps(made)


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Connection", "Host", "Proxy-X", "X Y"])
def test_no_task_frames_its_own_message(server: ServerProcess, name: str) -> None:
    """A second request in its body, on a connection that other runs use, would bring them its response."""
    run = begun(server)
    inner = "GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
    task = {"url": "https://a.example/", "method": "POST", "headers": {name: "0"}, "body": inner}
    answer = server.post(f"/api/v1/runs/{run}/tasks", content=json.dumps(task).encode(), headers=LINES)
    assert (answer.json()["added"], answer.json()["rejected"]) == (0, 1)
    assert name in answer.json()["rejects"][0]["why"]
    begin = server.post("/api/v1/runs", {"urls": ["https://a.example/"], "settings": {"header": [f"{name}: 0"]}})
    assert begin.status_code == 422
    template = {
        "name": "t",
        "start": "https://a.example/",
        "settings": {"header": [f"{name}: 0"]},
        "fields": {"a": "b"},
    }
    assert server.put("/api/v1/templates/t", json=template).status_code == 422


def test_streams_of_another_kind_and_for_runs_that_ended_are_refused(server: ServerProcess) -> None:
    name = begun(server)
    wrong = server.post(f"/api/v1/runs/{name}/tasks", content=b"{}", headers={"Content-Type": "text/csv"})
    assert wrong.status_code == 415
    server.post(f"/api/v1/runs/{name}/cancel")
    late = server.post(f"/api/v1/runs/{name}/tasks", content=b"https://a.example/\n")
    assert (late.status_code, late.json()["type"]) == (409, "urn:shoal:problem:run-ended")


def numbered_urls(count: int) -> bytes:
    return b"".join(b"https://h%d.example/p%d\n" % (n % 500, n) for n in range(count))


def test_a_hundred_thousand_urls_go_in_with_bounded_memory_and_once(server: ServerProcess) -> None:
    name, body = begun(server), numbered_urls(100_000)
    process = psutil.Process(server.process.pid)
    before = process.memory_info().rss
    looks, ended = 0, threading.Event()

    def look() -> None:
        nonlocal looks
        while not ended.wait(0.05):
            server.ask("/api/v1/runs?limit=10")
            looks += not ended.is_set()

    looking = threading.Thread(target=look)
    looking.start()
    answer = server.post(f"/api/v1/runs/{name}/tasks", content=body, headers={"Idempotency-Key": "big"})
    ended.set()
    looking.join()
    assert answer.json()["added"] == 100_000, answer.text
    assert process.memory_info().rss - before < 60_000_000
    assert looks > 3, "others are answered meanwhile"
    again = server.post(f"/api/v1/runs/{name}/tasks", content=body, headers={"Idempotency-Key": "big"})
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == answer.json()
    other = server.post(f"/api/v1/runs/{name}/tasks", content=body[:-10], headers={"Idempotency-Key": "big"})
    assert other.status_code == 422
    assert server.ask(f"/api/v1/runs/{name}")["seen"] == 100_000


def test_an_interrupted_stream_leaves_what_was_added_and_repeating_it_is_harmless(server: ServerProcess) -> None:
    name, body = begun(server), numbered_urls(5_000)
    with socket.create_connection(("127.0.0.1", server.port)) as half:
        _half(half, name, body, "half")
        wait_until(lambda: server.ask(f"/api/v1/runs/{name}")["seen"] > 1_000)
    assert server.ask(f"/api/v1/runs/{name}")["seeding"]
    again = _retry_until_answered(
        server, f"/api/v1/runs/{name}/tasks", content=body, headers={"Idempotency-Key": "half"}
    )
    assert again["added"] + again["known"] == 5_000
    assert server.ask(f"/api/v1/runs/{name}")["seen"] == 5_000


def _retry_until_answered(server: ServerProcess, path: str, **more: Any) -> dict[str, Any]:
    """The answer, asked for again for as long as another request with its key is under way."""
    answers: list[Any] = []

    def answered() -> bool:
        answers.append(server.post(path, **more))
        return answers[-1].status_code != 409

    wait_until(answered)
    found: dict[str, Any] = answers[-1].json()
    assert answers[-1].status_code in (200, 201), found
    return found


def test_a_repeated_request_answers_the_same_and_does_nothing(any_kind: ServerProcess) -> None:
    body = {"urls": ["https://a.example/1"], "hooks": [{"url": "https://hooks.example/x"}]}
    headers = {"Idempotency-Key": "once"}
    first = any_kind.post("/api/v1/runs", body, headers=headers)
    again = any_kind.post("/api/v1/runs", body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json() == again.json()
    assert first.json()["hooks"][0]["secret"].startswith("whsec_")
    assert len(any_kind.ask("/api/v1/runs")["items"]) == 1
    other = any_kind.post("/api/v1/runs", body | {"priority": 1}, headers=headers)
    assert (other.status_code, other.json()["type"]) == (422, "urn:shoal:problem:idempotency-key-reused")


def test_of_two_requests_with_one_key_at_once_one_works(server: ServerProcess) -> None:
    body = {"urls": [f"https://h{n}.example/" for n in range(5_000)]}
    answers: list[Any] = []

    def ask() -> None:
        answers.append(server.post("/api/v1/runs", body, headers={"Idempotency-Key": "both"}))

    both = [threading.Thread(target=ask) for _ in range(4)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    statuses = sorted(answer.status_code for answer in answers)
    assert set(statuses) <= {201, 409} and 201 in statuses
    for answer in answers:
        if answer.status_code == 409:
            assert int(answer.headers["retry-after"]) >= 1
    assert len(server.ask("/api/v1/runs")["items"]) == 1


def test_a_failed_request_leaves_its_key_free(server: ServerProcess) -> None:
    headers = {"Idempotency-Key": "again"}
    assert server.post("/api/v1/runs", {"template": "nope"}, headers=headers).status_code == 422
    assert server.post("/api/v1/runs", {"urls": ["https://a.example/"]}, headers=headers).status_code == 201


def test_a_stream_whose_server_was_killed_is_gone_on_with_by_another(tmp_path: Path) -> None:
    queue, body = sample_queue.state_url(tmp_path), numbered_urls(5_000)
    headers = {"Idempotency-Key": "killed"}
    with running_server(queue, "--no-maintenance") as second, running_server(queue, "--no-maintenance") as first:
        name = begun(first)
        with socket.create_connection(("127.0.0.1", first.port)) as half:
            _half(half, name, body, "killed")
            wait_until(lambda: first.ask(f"/api/v1/runs/{name}")["seen"] > 1_000)
            early = second.post(f"/api/v1/runs/{name}/tasks", content=body, headers=headers)
            assert early.status_code == 409, "the first is still at it"
            first.stop(signal.SIGKILL)
        made = _retry_until_answered(second, f"/api/v1/runs/{name}/tasks", content=body, headers=headers)
        assert made["added"] + made["known"] == 5_000
        assert made["added"] and made["known"]
        assert second.ask(f"/api/v1/runs/{name}")["seen"] == 5_000
        assert not second.ask(f"/api/v1/runs/{name}")["seeding"]


def _half(wire: socket.socket, run: str, body: bytes, key: str) -> None:
    head = f"POST /api/v1/runs/{run}/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
    wire.sendall(f"{head}Idempotency-Key: {key}\r\n\r\n".encode() + body[: len(body) // 2])
