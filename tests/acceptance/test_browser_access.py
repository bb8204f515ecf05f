"""Who may do what, in a real Chromium: login, tokens, forms of other sites, and pages without scripts."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import BrowserSession, browser_session, with_queue
from busy_queue import populate
from server_process import ServerProcess, running_server
from small_site import small_site
from wait import wait_until

from shoal.web.auth import tokens

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TOKEN = "a-token-that-may-do-everything"
RUN = "products-2026-11"
PAGES = (
    "/", "/runs", f"/runs/{RUN}", f"/runs/{RUN}/tasks?state=dead", f"/runs/{RUN}/dead", f"/runs/{RUN}/hosts",
    f"/runs/{RUN}/records", "/hosts", "/hosts/cdn.example", "/fleet", "/fleet/node04-7f3a-1", "/dead",
    "/advice", "/schedules", "/settings",
)  # fmt: skip


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    path = tmp_path_factory.mktemp("closed") / "shoal.db"
    with ThreadPoolExecutor(1) as other:
        other.submit(lambda: asyncio.run(populate(path, minutes=2, scale=0.03, seed=8))).result()
    with running_server(f"sqlite:///{path}", "--no-maintenance", token=TOKEN) as made:
        yield made


def log_in(session: BrowserSession, token: str, path: str = "/") -> None:
    session.go(path)
    session.page.keyboard.type(token)  # the field has the focus already
    session.page.keyboard.press("Enter")
    session.page.wait_for_url(session.url + path)


def new_token(closed: ServerProcess, name: str, scope: str) -> str:
    made = closed.post("/api/v1/tokens", {"name": name, "scopes": [scope]})
    return str(made.json()["token"])


def state(server: ServerProcess, name: str = RUN) -> str:
    return str(server.ask(f"/api/v1/runs/{name}")["state"])


def test_one_logs_in_with_the_keyboard_comes_where_one_wanted_and_logs_out(
    browser: Browser, closed: ServerProcess
) -> None:
    with browser_session(browser, closed.url) as session:
        session.expected = ("status of 401",)
        session.go("/runs?state=running")
        session.page.keyboard.type("a-wrong-token-of-some-length")
        session.page.keyboard.press("Enter")
        session.page.get_by_text("this token is unknown").wait_for()
        assert session.page.get_by_label("Token").get_attribute("aria-invalid") == "true"
        session.page.get_by_label("Token").fill(TOKEN)
        session.page.get_by_role("button", name="Log in").click()
        session.page.wait_for_url(closed.url + "/runs?state=running")
        assert TOKEN not in session.page.content()
        cookies = {it["name"]: it for it in session.context.cookies()}
        (session_cookie,) = [it for name, it in cookies.items() if re.fullmatch(r"shoal-[0-9a-f]{8}", name)]
        assert session_cookie["httpOnly"] and session_cookie["sameSite"] == "Strict"
        session.page.get_by_role("button", name="Log out").click()
        session.page.wait_for_url(closed.url + "/login")
        session.go("/runs")
        assert session.page.url.startswith(closed.url + "/login")


def test_an_admin_makes_a_token_on_the_page_and_removes_it(browser: Browser, closed: ServerProcess) -> None:
    with browser_session(browser, closed.url) as session, browser_session(browser, closed.url) as other:
        log_in(session, TOKEN, "/settings")
        session.page.get_by_label("Name of a new token").fill("grafana")
        session.page.get_by_label("It may").select_option("read")
        session.page.get_by_role("button", name="Create a token").click()
        session.page.get_by_text("This is the only time it is shown.").wait_for()
        made = session.page.locator(".command code").first.inner_text()
        log_in(other, made, "/runs")
        session.go("/settings")
        assert made not in session.page.content()
        row = session.page.locator("tbody tr", has_text="grafana").first
        row.get_by_role("button", name="Remove").click()
        dialog = session.page.locator("dialog#confirm")
        assert "shoal token remove grafana" in dialog.inner_text()
        dialog.locator("[data-confirm]").click()
        session.page.locator("#flash .flash", has_text="Token grafana is removed.").wait_for()
        assert closed.ask("/api/v1/tokens")["items"] == []
        other.expected = ("status of 401",)
        other.go("/runs")
        assert other.page.url.startswith(closed.url + "/login"), "who was logged in with it is out"


def test_who_may_only_look_sees_no_button_and_what_is_forged_is_refused(
    browser: Browser, closed: ServerProcess
) -> None:
    reader = new_token(closed, "reader", "read")
    with browser_session(browser, closed.url) as session:
        log_in(session, reader)
        for path in PAGES:
            session.go(path)
            buttons = session.page.locator("main button:visible").all_inner_texts()
            assert set(buttons) <= {"copy", "Filter"}, path
            assert session.page.get_by_text("read-only", exact=True).is_visible()
        session.expected = ("status of 403",)
        forged = """async ([path, fields]) => {
          const form = new URLSearchParams(fields);
          form.set("csrf", document.querySelector('meta[name="csrf"]').content);
          return (await fetch(path, { method: "POST", body: form })).status;
        }"""
        for path, fields in (
            ("/act", {"page_action": "run.pause", "about": RUN, "confirmed": "1"}),
            ("/act", {"page_action": "host.park", "about": "biggest.example", "confirmed": "1"}),
            ("/settings/tokens", {"name": "mine", "scope": "admin"}),
            ("/submit", {"urls": "https://a.example/", "what": "fields", "fields": "t = h1"}),
        ):
            assert session.page.evaluate(forged, [path, fields]) == 403, fields
        assert state(closed) == "running"
        session.go("/submit", status=403)
        assert "Not allowed" in session.text()


def test_who_operates_sees_no_button_of_an_admin(browser: Browser, closed: ServerProcess) -> None:
    operator = new_token(closed, "operator", "operate")
    with browser_session(browser, closed.url) as session:
        log_in(session, operator, "/settings")
        assert not session.page.locator("main").get_by_role("button", name="Remove").count()
        assert not session.page.get_by_role("button", name="Create a token").count()
        session.go(f"/runs/{RUN}")
        assert session.page.get_by_role("button", name="Pause").is_visible()
        session.go("/runs/news-trial")
        assert not session.page.get_by_role("button", name="Remove").count()


FORM = """<!doctype html><title>win a prize</title>
<form id="f" method="post" action="{action}">{fields}</form><iframe src="{frame}"></iframe>
<script>addEventListener("load", () => document.getElementById("f").submit())</script>"""


@pytest.mark.parametrize("logged_in", [True, False], ids=["with a session", "without any token"])
def test_a_form_of_another_site_does_nothing(
    browser: Browser, server: ServerProcess, closed: ServerProcess, logged_in: bool
) -> None:
    server = closed if logged_in else server
    fields = {"page_action": "run.pause", "about": RUN, "confirmed": "1", "back": "/"}
    inputs = "".join(f'<input name="{name}" value="{html.escape(value)}">' for name, value in fields.items())
    page = FORM.format(action=f"{server.url}/act", fields=inputs, frame=f"{server.url}/")
    with small_site() as evil, browser_session(browser, server.url) as session:
        evil.pages["/prize"] = 200, {}, page.encode()
        session.expected = ("status of 403", "frame-ancestors", "refused to connect", "favicon", "status of 404")
        if logged_in:
            log_in(session, TOKEN)
        # Another port of the same machine is the same site: the browser does send the cookie along.
        session.page.goto(evil.url("/prize"))
        session.page.wait_for_url(server.url + "/act")
        assert "came from a page of another site" in session.text()
        assert state(server) == "running"


def test_a_script_of_another_site_reads_nothing(browser: Browser, server: ServerProcess) -> None:
    with small_site() as evil, browser_session(browser, server.url) as session:
        evil.pages["/"] = 200, {}, b"<!doctype html><title>x</title>"
        session.expected = ("CORS policy", "ERR_FAILED", "favicon", "status of 404", "WebSocket")
        session.page.goto(evil.url("/"))
        read = "async (url) => { try { return await (await fetch(url)).text(); } catch { return ''; } }"
        assert session.page.evaluate(read, f"{server.url}/api/v1/runs") == ""
        listen = """(url) => new Promise((done) => {
          const socket = new WebSocket(url);
          socket.onopen = () => done("open"); socket.onerror = () => done("refused");
        })"""
        assert session.page.evaluate(listen, f"{server.url.replace('http', 'ws')}/ws?topic=fleet") == "refused"


class TestWithoutScripts:
    @pytest.fixture
    def session(self, browser: Browser, server: ServerProcess) -> Iterator[BrowserSession]:
        with browser_session(browser, server.url, java_script_enabled=False) as made:
            yield made

    def test_actions_are_confirmed_on_a_page_of_their_own_and_can_be_undone(
        self, session: BrowserSession, server: ServerProcess
    ) -> None:
        session.go(f"/runs/{RUN}")
        session.page.get_by_role("button", name="Pause").click()
        assert session.page.locator("h1").inner_text() == f"Pause run {RUN}?"
        assert f"shoal pause {RUN}" in session.text() and state(server) == "running"
        session.page.get_by_role("link", name="Go back").click()
        session.page.wait_for_url(f"{server.url}/runs/{RUN}")
        session.page.get_by_role("button", name="Pause").click()
        session.page.get_by_role("button", name="Pause").click()
        session.page.wait_for_url(f"{server.url}/runs/{RUN}")
        assert f"Run {RUN} is paused." in session.text() and state(server) == "paused"
        session.page.get_by_role("button", name="Undo").click()
        session.page.get_by_role("button", name="Pause").wait_for()
        assert state(server) == "running"

    def test_a_batch_is_submitted_and_found_again(self, session: BrowserSession, server: ServerProcess) -> None:
        session.go("/submit")
        session.page.get_by_label("URLs, one per line").fill("https://plain.example/1\nhttps://plain.example/2")
        session.page.get_by_label("Name", exact=True).fill("plain")
        session.page.locator("main").get_by_role("button", name="Submit").click()
        session.page.wait_for_url(re.compile(r"/runs/[^/]+$"))
        assert "done of 2" in session.text()
        session.page.get_by_label("Find a URL, run or task").fill("https://plain.example/2")
        session.page.keyboard.press("Enter")
        session.page.wait_for_url(re.compile(r"/tasks/\d+$"))
        assert "https://plain.example/2" in session.page.locator("h1").inner_text()

    def test_lists_are_filtered_and_paged(self, session: BrowserSession, server: ServerProcess) -> None:
        session.go(f"/runs/{RUN}/tasks")
        session.page.get_by_label("State").select_option("done")
        session.page.get_by_role("button", name="Filter").click()
        session.page.wait_for_url(re.compile("state=done"))
        session.page.get_by_role("link", name="Next page").click()
        session.page.wait_for_url(re.compile("after="))
        session.page.locator("tbody tr").first.wait_for()

    def test_charts_lead_to_their_figures(self, session: BrowserSession) -> None:
        session.go("/")
        assert session.page.locator("figure noscript a, figure .empty a").count() == 4
        assert "reload for current numbers" in session.text()


def test_a_token_that_the_queue_holds_closes_the_server_that_was_open(browser: Browser, tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path / 'shoal.db'}"
    with running_server(place, "--no-maintenance") as server, browser_session(browser, server.url) as session:
        session.go("/settings")
        assert "this server answers only to this machine" in session.text()
        assert not session.page.get_by_role("button", name="Create a token").count(), "it would lock oneself out"
        session.expected = ("status of 401",)  # of a page that was open when the door closed
        with_queue(place, lambda queue: tokens.add(queue, "mara", ("admin",)))
        # what a server knows of tokens is at most a second old
        wait_until(lambda: session.go("/settings").url.startswith(server.url + "/login"), every=0.2)
