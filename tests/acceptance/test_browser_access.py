"""Who may do what, in a real Chromium: login, tokens, forms of other sites, and pages without scripts."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import Visit, chromium, visit, with_queue
from control_room import ControlRoom, room
from showroom import furnish
from small_site import small_site

from shoal.web import tokens

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
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("access") / "shoal.db"
    asyncio.run(furnish(path, minutes=2, scale=0.03))
    return path


@pytest.fixture(scope="module")
def address(shown: Path) -> str:
    return f"sqlite:///{shown}"


@pytest.fixture(scope="module")
def opened(address: str) -> Iterator[ControlRoom]:
    with room(address, "--no-upkeep") as made:
        yield made


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlRoom]:
    path = tmp_path_factory.mktemp("closed") / "shoal.db"
    asyncio.run(furnish(path, minutes=2, scale=0.03, seed=8))
    with room(f"sqlite:///{path}", "--no-upkeep", token=TOKEN) as made:
        yield made


@pytest.fixture(scope="module")
def browser(opened: ControlRoom, closed: ControlRoom) -> Iterator[Browser]:
    with chromium() as made:
        yield made


def log_in(looker: Visit, token: str, path: str = "/") -> None:
    looker.go(path)
    looker.page.keyboard.type(token)  # the field has the focus already
    looker.page.keyboard.press("Enter")
    looker.page.wait_for_url(looker.url + path)


def new_token(closed: ControlRoom, name: str, scope: str) -> str:
    made = closed.post("/api/v1/tokens", {"name": name, "scopes": [scope]})
    return str(made.json()["token"])


def state(server: ControlRoom, name: str = RUN) -> str:
    return str(server.ask(f"/api/v1/runs/{name}")["state"])


def test_one_logs_in_with_the_keyboard_comes_where_one_wanted_and_logs_out(
    browser: Browser, closed: ControlRoom
) -> None:
    with visit(browser, closed.url) as looker:
        looker.expected = ("status of 401",)
        looker.go("/runs?state=running")
        looker.page.keyboard.type("a-wrong-token-of-some-length")
        looker.page.keyboard.press("Enter")
        looker.page.get_by_text("this token is not known here").wait_for()
        assert looker.page.get_by_label("Token").get_attribute("aria-invalid") == "true"
        looker.page.get_by_label("Token").fill(TOKEN)
        looker.page.get_by_role("button", name="Log in").click()
        looker.page.wait_for_url(closed.url + "/runs?state=running")
        assert TOKEN not in looker.page.content()
        cookies = {it["name"]: it for it in looker.context.cookies()}
        (session,) = [it for name, it in cookies.items() if re.fullmatch(r"shoal-[0-9a-f]{8}", name)]
        assert session["httpOnly"] and session["sameSite"] == "Strict"
        looker.page.get_by_role("button", name="Log out").click()
        looker.page.wait_for_url(closed.url + "/login")
        looker.go("/runs")
        assert looker.page.url.startswith(closed.url + "/login")


def test_an_admin_makes_a_token_on_the_page_and_removes_it(browser: Browser, closed: ControlRoom) -> None:
    with visit(browser, closed.url) as looker, visit(browser, closed.url) as other:
        log_in(looker, TOKEN, "/settings")
        looker.page.get_by_label("Name of a new token").fill("grafana")
        looker.page.get_by_label("It may").select_option("read")
        looker.page.get_by_role("button", name="Make a token").click()
        looker.page.get_by_text("This is the only time it is shown.").wait_for()
        made = looker.page.locator(".command code").first.inner_text()
        log_in(other, made, "/runs")
        looker.go("/settings")
        assert made not in looker.page.content()
        row = looker.page.locator("tbody tr", has_text="grafana").first
        row.get_by_role("button", name="Remove").click()
        dialog = looker.page.locator("dialog#confirm")
        assert "shoal token remove grafana" in dialog.inner_text()
        dialog.locator("[data-yes]").click()
        looker.page.locator("#said .said", has_text="Token grafana is removed.").wait_for()
        assert closed.ask("/api/v1/tokens")["items"] == []
        other.expected = ("status of 401",)
        other.go("/runs")
        assert other.page.url.startswith(closed.url + "/login"), "who was logged in with it is out"


def test_who_may_only_look_sees_no_button_and_what_is_forged_is_refused(
    browser: Browser, closed: ControlRoom
) -> None:
    reader = new_token(closed, "reader", "read")
    with visit(browser, closed.url) as looker:
        log_in(looker, reader)
        for path in PAGES:
            looker.go(path)
            buttons = looker.page.locator("main button:visible").all_inner_texts()
            assert set(buttons) <= {"copy", "Filter"}, path
            assert looker.page.get_by_text("read-only", exact=True).is_visible()
        looker.expected = ("status of 403",)
        forged = """async ([path, fields]) => {
          const form = new URLSearchParams(fields);
          form.set("csrf", document.querySelector('meta[name="csrf"]').content);
          return (await fetch(path, { method: "POST", body: form })).status;
        }"""
        for path, fields in (
            ("/act", {"deed": "run.pause", "about": RUN, "confirmed": "1"}),
            ("/act", {"deed": "host.park", "about": "biggest.example", "confirmed": "1"}),
            ("/settings/tokens", {"name": "mine", "scope": "admin"}),
            ("/submit", {"urls": "https://a.example/", "what": "fields", "fields": "t = h1"}),
        ):
            assert looker.page.evaluate(forged, [path, fields]) == 403, fields
        assert state(closed) == "running"
        looker.go("/submit", status=403)
        assert "You may not do this" in looker.text()


def test_who_operates_sees_no_button_of_an_admin(browser: Browser, closed: ControlRoom) -> None:
    operator = new_token(closed, "operator", "operate")
    with visit(browser, closed.url) as looker:
        log_in(looker, operator, "/settings")
        assert not looker.page.locator("main").get_by_role("button", name="Remove").count()
        assert not looker.page.get_by_role("button", name="Make a token").count()
        looker.go(f"/runs/{RUN}")
        assert looker.page.get_by_role("button", name="Pause").is_visible()
        looker.go("/runs/news-trial")
        assert not looker.page.get_by_role("button", name="Remove").count()


FORM = """<!doctype html><title>win a prize</title>
<form id="f" method="post" action="{action}">{fields}</form><iframe src="{frame}"></iframe>
<script>addEventListener("load", () => document.getElementById("f").submit())</script>"""


@pytest.mark.parametrize("logged_in", [True, False], ids=["with a session", "without any token"])
def test_a_form_of_another_site_does_nothing(
    browser: Browser, opened: ControlRoom, closed: ControlRoom, logged_in: bool
) -> None:
    server = closed if logged_in else opened
    fields = {"deed": "run.pause", "about": RUN, "confirmed": "1", "back": "/"}
    inputs = "".join(f'<input name="{name}" value="{html.escape(value)}">' for name, value in fields.items())
    page = FORM.format(action=f"{server.url}/act", fields=inputs, frame=f"{server.url}/")
    with small_site() as evil, visit(browser, server.url) as looker:
        evil.pages["/prize"] = 200, {}, page.encode()
        looker.expected = (
            "status of 403",
            "frame-ancestors",
            "refused to connect",
            "favicon",
            "status of 404",
        )
        if logged_in:
            log_in(looker, TOKEN)
        # Another port of the same machine is the same site: the browser does send the cookie along.
        looker.page.goto(evil.url("/prize"))
        looker.page.wait_for_url(server.url + "/act")
        assert "asked for by a page of another site" in looker.text()
        assert state(server) == "running"


def test_a_script_of_another_site_reads_nothing(browser: Browser, opened: ControlRoom) -> None:
    with small_site() as evil, visit(browser, opened.url) as looker:
        evil.pages["/"] = 200, {}, b"<!doctype html><title>x</title>"
        looker.expected = ("CORS policy", "ERR_FAILED", "favicon", "status of 404", "WebSocket")
        looker.page.goto(evil.url("/"))
        read = "async (url) => { try { return await (await fetch(url)).text(); } catch { return ''; } }"
        assert looker.page.evaluate(read, f"{opened.url}/api/v1/runs") == ""
        listen = """(url) => new Promise((done) => {
          const socket = new WebSocket(url);
          socket.onopen = () => done("open"); socket.onerror = () => done("refused");
        })"""
        assert looker.page.evaluate(listen, f"{opened.url.replace('http', 'ws')}/ws?topic=fleet") == "refused"


class TestWithoutScripts:
    @pytest.fixture
    def looker(self, browser: Browser, opened: ControlRoom) -> Iterator[Visit]:
        with visit(browser, opened.url, java_script_enabled=False) as made:
            yield made

    def test_actions_are_confirmed_on_a_page_of_their_own_and_can_be_undone(
        self, looker: Visit, opened: ControlRoom
    ) -> None:
        looker.go(f"/runs/{RUN}")
        looker.page.get_by_role("button", name="Pause").click()
        assert looker.page.locator("h1").inner_text() == f"Pause run {RUN}?"
        assert f"shoal pause {RUN}" in looker.text() and state(opened) == "running"
        looker.page.get_by_role("link", name="Leave it").click()
        looker.page.wait_for_url(f"{opened.url}/runs/{RUN}")
        looker.page.get_by_role("button", name="Pause").click()
        looker.page.get_by_role("button", name="Pause").click()
        looker.page.wait_for_url(f"{opened.url}/runs/{RUN}")
        assert f"Run {RUN} is paused." in looker.text() and state(opened) == "paused"
        looker.page.get_by_role("button", name="Undo").click()
        looker.page.get_by_role("button", name="Pause").wait_for()
        assert state(opened) == "running"

    def test_a_batch_is_submitted_and_found_again(self, looker: Visit, opened: ControlRoom) -> None:
        looker.go("/submit")
        looker.page.get_by_label("Addresses, one a line").fill(
            "https://plain.example/1\nhttps://plain.example/2"
        )
        looker.page.get_by_label("Name", exact=True).fill("plain")
        looker.page.locator("main").get_by_role("button", name="Submit").click()
        looker.page.wait_for_url(re.compile(r"/runs/[^/]+$"))
        assert "done of 2" in looker.text()
        looker.page.get_by_label("Find an address, run or task").fill("https://plain.example/2")
        looker.page.keyboard.press("Enter")
        looker.page.wait_for_url(re.compile(r"/tasks/\d+$"))
        assert "https://plain.example/2" in looker.page.locator("h1").inner_text()

    def test_lists_are_filtered_and_paged(self, looker: Visit, opened: ControlRoom) -> None:
        looker.go(f"/runs/{RUN}/tasks")
        looker.page.get_by_label("State").select_option("done")
        looker.page.get_by_role("button", name="Filter").click()
        assert "state=done" in looker.page.url
        looker.page.get_by_role("link", name="Next page").click()
        assert "after=" in looker.page.url
        assert looker.page.locator("tbody tr").count() > 0

    def test_charts_lead_to_their_figures(self, looker: Visit) -> None:
        looker.go("/")
        assert looker.page.locator("figure noscript a, figure .empty a").count() == 4
        assert "reload for new numbers" in looker.text()


def test_a_token_that_the_queue_holds_closes_the_server_that_was_open(
    browser: Browser, address: str, tmp_path: Path
) -> None:
    place = f"sqlite:///{tmp_path / 'shoal.db'}"
    with room(place, "--no-upkeep") as server, visit(browser, server.url) as looker:
        looker.go("/settings")
        assert "this server answers to this machine alone" in looker.text()
        assert not looker.page.get_by_role("button", name="Make a token").count(), "it would lock oneself out"
        with_queue(place, lambda queue: tokens.add(queue, "mara", ("admin",)))
        looker.page.wait_for_timeout(1_100)  # what a server knows of tokens is at most a second old
        looker.go("/settings")
        assert looker.page.url.startswith(server.url + "/login")
