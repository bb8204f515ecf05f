"""The dashboard inside an application of one's own, below a prefix."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
import sample_queue
import uvicorn
from browser import browser_session
from fastapi import FastAPI
from servers.redis import own_server
from starlette.types import ASGIApp, Receive, Scope, Send
from wait import HANG, wait_until

from shoal.web import app as shoal_app
from shoal.web.mounted import MountedServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LINK = re.compile(r'(?:href|src|hx-get|data-from)="([^"]*)"')
FORM = re.compile(r'action="([^"]*)"')


def host_app(dashboard: MountedServer, prefix: str = "/shoal") -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with dashboard:
            yield

    host = FastAPI(lifespan=lifespan)

    @host.get("/mine")
    async def mine() -> str:
        return "mine"

    host.mount(prefix, dashboard)
    return host


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The application behind a real socket, in a thread of its own."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(HANG)


@pytest.fixture
def queue(clean_folder: Path) -> str:
    with ThreadPoolExecutor(1) as other:  # a browser may have an event loop in this thread
        other.submit(sample_queue.create, clean_folder).result()
    return sample_queue.state_url(clean_folder)


def test_every_link_of_the_pages_stays_below_the_prefix(queue: str) -> None:
    with served(host_app(shoal_app(queue))) as url, httpx.Client(timeout=HANG) as browser:
        assert browser.get(f"{url}/mine").json() == "mine"
        todo, seen, pages = [f"{url}/shoal/"], set[str](), 0
        while todo:
            at = todo.pop()
            if (path := at.partition("#")[0].partition("?")[0]) in seen:
                continue
            seen.add(path)
            answer = browser.get(at, headers={"Accept": "text/html,*/*"}, follow_redirects=True)
            assert answer.status_code == (404 if at.endswith("/fleet/w-1") else 200), at  # it has never registered
            assert answer.url.path.startswith("/shoal"), at
            if not answer.headers["content-type"].startswith("text/html"):
                continue
            pages += 1
            assert "content-security-policy" in answer.headers
            for link in map(unescape, [*LINK.findall(answer.text), *FORM.findall(answer.text)]):
                target = urljoin(str(answer.url), link)
                if urlsplit(target).netloc == urlsplit(url).netloc:
                    assert urlsplit(target).path.startswith("/shoal/"), (at, link)
            todo += [
                urljoin(str(answer.url), unescape(link)) for link in LINK.findall(answer.text) if "://" not in link
            ]
        assert pages > 15
        assert {"/shoal/runs/r1", "/shoal/dead", "/shoal/hosts"} <= {urlsplit(one).path for one in seen}
        assert f"{url}/shoal/api/v1" in browser.get(f"{url}/shoal/docs").text  # in the examples, too


def test_stats_workers_and_actions_work_below_the_prefix(queue: str) -> None:
    with served(host_app(shoal_app(queue), "/ops/scraping")) as url, httpx.Client(timeout=HANG) as client:
        base = f"{url}/ops/scraping"
        assert client.get(f"{base}/stats").json()["tasks"]["ready"] == 4
        assert [worker["id"] for worker in client.get(f"{base}/workers").json()["workers"]] == ["node1-1"]
        assert client.get(f"{base}/health").json()["status"] == "ok"
        assert client.post(f"{base}/api/v1/runs/r1/pause", headers={"Origin": url}).json()["state"] == "paused"
        form = {"page_action": "run.resume", "about": "r1", "back": "/runs/r1", "confirmed": "1"}
        done = client.post(f"{base}/act", data=form, headers={"Origin": url})
        assert done.status_code == 303 and done.headers["location"].startswith("/ops/scraping/runs/r1")
        assert client.get(f"{base}/api/v1/runs/r1").json()["state"] == "running"


def test_it_opens_with_the_first_request_where_the_host_does_not_enter_it(queue: str) -> None:
    host = FastAPI()
    host.mount("/shoal", shoal_app(queue))
    with served(host) as url:
        assert httpx.get(f"{url}/shoal/stats", timeout=HANG).json()["tasks"]["ready"] == 4
    with served(shoal_app(queue)) as url:  # and it is an application by itself
        assert httpx.get(f"{url}/stats", timeout=HANG).json()["tasks"]["ready"] == 4


def test_queue_that_is_away_is_said_so_and_found_when_it_is_back(
    clean_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.web.mounted.FIRST_REQUEST_WAIT", 0.1)
    with own_server() as server:
        url = server.url("away")
        server.kill()
        dashboard = shoal_app(url)

        @asynccontextmanager
        async def closing(_: FastAPI) -> AsyncIterator[None]:
            yield
            await dashboard.close()

        host = FastAPI(lifespan=closing)
        host.mount("/shoal", dashboard)
        with served(host) as here:
            answer = httpx.get(f"{here}/shoal/stats", timeout=HANG)
            assert answer.status_code == 503 and "queue" in answer.json()["detail"]
            server.start()
            wait_until(lambda: httpx.get(f"{here}/shoal/stats", timeout=HANG).status_code == 200, every=0.2)


def test_without_a_token_other_machines_are_refused_whatever_they_call_us(queue: str) -> None:
    def from_afar(app: ASGIApp) -> ASGIApp:
        async def called(scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope | {"client": ("203.0.113.9", 4711)}, receive, send)

        return called

    with served(from_afar(host_app(shoal_app(queue)))) as url:
        answer = httpx.get(f"{url}/shoal/stats", timeout=HANG)
        assert answer.status_code == 403 and "token" in answer.json()["detail"]
    with served(from_afar(host_app(shoal_app(queue, token="shoal_" + "x" * 40)))) as url:
        assert httpx.get(f"{url}/shoal/stats", timeout=HANG).status_code == 401
        known = httpx.get(f"{url}/shoal/stats", headers={"Authorization": f"Bearer shoal_{'x' * 40}"}, timeout=HANG)
        assert known.status_code == 200


def test_pages_are_live_below_the_prefix(queue: str, browser: Browser) -> None:
    with served(host_app(shoal_app(queue))) as url, browser_session(browser, url) as session:
        page = session.page
        with page.expect_request("**/shoal/api/v1/events?*"):
            page.goto(f"{url}/shoal/runs/r1")
        page.keyboard.press("g")
        page.keyboard.press("h")
        page.wait_for_url(f"{url}/shoal/hosts")
        page.locator("a", has_text="h1.example").first.click()
        page.wait_for_url(f"{url}/shoal/hosts/h1.example")
