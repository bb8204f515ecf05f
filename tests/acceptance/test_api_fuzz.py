"""The description of the API is true: whatever is sent, no 5xx, no status and no answer it does not name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import sample_queue
from backend_urls import QUEUE_KINDS, backend_url
from fuzzing import fuzz, operations
from server_process import ServerProcess, running_server

EXAMPLES, FEW = 10, 3  # of every operation; few where only the queue is another one
TOKEN = "fuzz-" + "0123456789" * 3
# Streams without an end, and what would have the server itself fetch whatever addresses are made up here.
LEFT_OUT = ("/api/v1/events", "/api/crawl/batch", "/api/scraping/start", "/api/v1/queue")
HARMLESS = ("get",)


@pytest.fixture(scope="module", params=QUEUE_KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("fuzz")
    url = backend_url(request.param, folder)
    sample_queue.create(folder, "r1", url, done=5, dead=5, ready=5)
    # Without maintenance no hook is delivered: their addresses are made up, too.
    with running_server(url, "--no-maintenance", folder=folder, token=TOKEN, api_rate="100000") as made:
        made.put("/api/v1/templates/shop", content="name: shop\nstart: https://shop.example/\nfields: {t: h1}\n")
        yield made


def test_no_request_that_can_be_made_up_is_answered_by_other_than_the_description_says(
    server: ServerProcess, request: pytest.FixtureRequest
) -> None:
    examples = EXAMPLES if "sqlite" in request.node.name else FEW

    def attempt(case: Any) -> Any:
        _adjust(case)
        return case.call(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"})

    tried, wrong = 0, []
    for operation in operations(server):
        if operation.path.startswith(LEFT_OUT) or not operation.path.startswith("/api/"):
            continue
        try:
            fuzz(operation, examples, attempt)
        except (Exception, BaseExceptionGroup) as error:
            wrong.append(f"{operation.method} {operation.path}: {error!s:.1500}")
        tried += 1
    assert not wrong, "\n\n".join(wrong)
    assert tried > 40


def _adjust(case: Any) -> None:
    """Names that are there are worth more than made-up ones; and nothing is fetched or followed for ever."""
    names = {"run": "r1", "id": 4294967297, "host": "h1.example", "worker": "node1-1", "name": "shop"}
    seen = len(json.dumps(case.query or {}, default=str)) % 2
    if case.method.lower() in HARMLESS or seen:
        for name in case.path_parameters or {}:
            if name in names and case.method.lower() != "delete":
                case.path_parameters[name] = names[name]
    if isinstance(case.query, dict):
        case.query.pop("follow", None)
    if isinstance(case.body, dict):
        case.body.pop("here", None)


TEXTS = ["", "\0", "\ud800", "a" * 10_000, "../../etc/passwd", "%00", "r1\n", "🐟" * 200, "'; --", "{}"]
NUMBERS = [0, -1, 2**31, 2**63 - 1, 2**63, 2**64, 10**400, 1.5, "NaN", "1e400", "x", ""]


def _quoted(text: str) -> str:
    return httpx.QueryParams({"q": text.encode("utf-8", "replace").decode()}).__str__()[2:].replace("+", "%20")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/runs/{}",
        "/api/v1/runs/{}/tasks",
        "/api/v1/runs/{}/dead",
        "/api/v1/runs/{}/records.csv",
        "/api/v1/hosts/{}",
        "/api/v1/workers/{}",
        "/api/v1/templates/{}",
        "/api/v1/schedules/{}",
        "/api/v1/tasks/{}",
        "/api/v1/runs?name={}",
        "/api/v1/runs?scraper={}",
        "/api/v1/runs?cursor={}",
        "/api/v1/runs/r1/tasks?cursor={}",
        "/api/v1/runs/r1/tasks?url={}",
        "/api/v1/runs/r1/tasks?host={}",
        "/api/v1/runs/r1/records?cursor={}",
        "/api/v1/hosts?like={}",
        "/api/v1/hosts?cursor={}",
        "/api/v1/search?q={}",
        "/api/v1/history?host={}",
        "/api/v1/events?topic=run:{}",
    ],
)
def test_odd_texts_are_refused_or_not_found_and_never_break_anything(server: ServerProcess, path: str) -> None:
    for text in TEXTS:
        with server.client.stream("GET", path.format(_quoted(text))) as answer:
            assert answer.status_code < 500, (path, text)
            if answer.status_code >= 400:
                answer.read()
                assert answer.headers["content-type"].startswith("application/problem+json"), (path, text)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/runs?limit={}",
        "/api/v1/tasks/{}",
        "/api/v1/runs/r1/records.jsonl?after={}",
        "/api/v1/templates/shop?version={}",
        "/api/v1/history?hours={}",
        "/api/v1/history?points={}",
        "/api/v1/advice?target={}",
    ],
)
def test_odd_numbers_are_refused_with_a_problem(server: ServerProcess, path: str) -> None:
    for number in NUMBERS:
        answer = server.get(path.format(number))
        assert answer.status_code in (200, 404, 422), (path, number, answer.text)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/runs", {"urls": ["https://a.example/"] * 10_001}),
        ("/api/v1/runs", {"urls": [None]}),
        ("/api/v1/runs", {"urls": "https://a.example/"}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "priority": 2**63}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "weight": 0}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "unknown": 1}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "settings": {"rate": 10**400}}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "settings": {"rate": -1}}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "settings": {"queue": "sqlite:///x"}}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "settings": {"allow_private": "1"}}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "settings": {"auth": "me:secret"}}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "settings": {"header": ["Cookie: a=b"]}}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "fields": {"title": "h1[["}}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "template": "nope"}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "template": "shop", "fields": {"a": "b"}}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "hooks": [{"url": "http://127.0.0.1/"}]}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "hooks": [{"url": "https://u:p@h.example/"}]}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "hooks": [{"url": "file:///etc/passwd"}]}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "key": "\0"}),
        ("/api/v1/runs", {"urls": ["https://a.example/"], "name": "../x"}),
        ("/api/v1/runs", {}),
        ("/api/v1/runs", []),
        ("/api/v1/runs/r1/revive", {}),
        ("/api/v1/runs/r1/revive", {"all": True, "cause": "x"}),
        ("/api/v1/runs/r1/revive", {"ids": [2**63]}),
        ("/api/v1/runs/r1/revive", {"ids": [0]}),
        ("/api/v1/runs/r1/drop", {"all": True, "state": "leased"}),
        ("/api/v1/hosts/h1.example/pace", {}),
        ("/api/v1/hosts/h1.example/pace", {"delay": -1}),
        ("/api/v1/hosts/h1.example/pace", {"delay": 1, "rate": 1}),
        ("/api/v1/hosts/h1.example/pace", {"reset": True, "rate": 1}),
        ("/api/v1/hosts/h1.example/park", {"seconds": 10**30}),
        ("/api/v1/hosts/h1.example/park", {"reason": "\0"}),
        ("/api/v1/hooks", {"url": "http://[::1]/"}),
        ("/api/v1/hooks", {"url": "http://localhost/"}),
        ("/api/v1/hooks", {"url": "https://h.example/", "events": []}),
        ("/api/v1/hooks", {"url": "https://h.example/", "secret": "nobody"}),
        ("/api/v1/actions", {"action": "cancel"}),
        ("/api/v1/actions", {"action": "purge", "all": True}),
        ("/api/v1/workers/drain", {}),
        ("/api/v1/workers/explode", {"all": True}),
    ],
)
def test_wrong_bodies_are_refused_with_what_is_wrong(server: ServerProcess, path: str, body: object) -> None:
    answer = server.post(path, body)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff\xfe", b'{"urls": ["\\ud800"]}', b"[" * 100_000, b'{"urls": [1e999]}', b"null"]
)
def test_bodies_that_are_no_documents_are_refused(server: ServerProcess, body: bytes) -> None:
    answer = server.post("/api/v1/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
