"""Pages as they come from the server: whole, harmless, with the numbers of the store; no script is needed."""

from __future__ import annotations

import asyncio
import gzip
import html
import re
import sqlite3
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from busy_queue import HOSTILE_TEXTS
from server_process import ServerProcess, running_server, unless_busy
from servers.redis import own_server
from wait import HANG, wait_until

from shoal.core.lane import Pace
from shoal.core.run import NewRun
from shoal.core.task import Task
from shoal.queue.sqlite import SqliteQueue

TOKEN = "a-token-that-may-do-everything"
RUN = "products-2026-11"
PAGES = (
    "/", "/runs", f"/runs/{RUN}", f"/runs/{RUN}/tasks", f"/runs/{RUN}/tasks?state=dead", f"/runs/{RUN}/hosts",
    f"/runs/{RUN}/dead", f"/runs/{RUN}/dead?cause=http.404", f"/runs/{RUN}/records", f"/runs/{RUN}/settings",
    f"/runs/{RUN}/log", "/hosts", "/hosts/biggest.example", "/fleet", "/fleet/node04-7f3a-1", "/dead",
    "/advice", "/schedules", "/settings", "/submit", "/search", "/search?q=example",
)  # fmt: skip
HTML = {"Accept": "text/html"}


class Page(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = text
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def number(self, key: str) -> str:
        found = re.search(rf'data-key="{re.escape(key)}"[^>]*>([^<]*)<', self.text)
        assert found, key
        return found[1]


@pytest.fixture(scope="module")
def closed(shown: Path) -> Iterator[ServerProcess]:
    with running_server(f"sqlite:///{shown}", "--no-maintenance", token=TOKEN) as made:
        yield made


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(f"sqlite:///{tmp_path_factory.mktemp('submit') / 'shoal.db'}", "--no-maintenance") as made:
        yield made


@pytest.fixture
def browser(closed: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=closed.url, headers=HTML, trust_env=False, timeout=HANG) as made:
        yield made


def open_page(server: ServerProcess, path: str, **more: Any) -> Page:
    answer = wait_until(lambda: unless_busy(server.get(path, headers=HTML, **more)), every=0.2)
    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:300]}"
    return Page(answer.text)


def perform_action(server: ServerProcess, action: str, about: str, **more: str) -> httpx.Response:
    fields = {"page_action": action, "about": about, "back": "/runs"} | more
    return server.client.post("/act", data=fields, headers=HTML)


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_whole_and_needs_nothing_from_elsewhere(server: ServerProcess, path: str) -> None:
    page = open_page(server, path)
    assert len(page.all("h1")) == 1
    assert len(page.all("main")) == 1
    assert all(script.get("src", "").startswith("/static/") for script in page.all("script"))
    assert all(link["href"].startswith("/static/") for link in page.all("link"))
    for tag, attrs in page.tags:
        assert tag != "style" and "style" not in attrs, f"{tag} has a style of its own"
        assert not [name for name in attrs if name.startswith("on")], tag
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids)), "an id is given twice"


@pytest.mark.parametrize("path", PAGES)
def test_every_form_can_be_understood_by_somebody_who_does_not_see_it(server: ServerProcess, path: str) -> None:
    page = open_page(server, path)
    labelled = {label.get("for") for label in page.all("label")}
    inside = set(re.findall(r"<label[^>]*>(?:(?!</label>).)*?name=\"([^\"]+)\"", page.text, re.S))
    for tag in ("input", "select", "textarea"):
        for attrs in page.all(tag):
            if attrs.get("type") == "hidden":
                continue
            named = attrs.get("id") in labelled or attrs["name"] in inside or "aria-label" in attrs
            assert named, f"{attrs} has no label"
    assert page.text.count("<table") == page.text.count("<caption")


@pytest.mark.parametrize(
    "path",
    ["/runs/reviews-2026-11/records", f"/runs/{RUN}/records", f"/runs/{RUN}/tasks", f"/runs/{RUN}/dead?cause=http.404"],
)
def test_what_was_scraped_is_text(server: ServerProcess, path: str) -> None:
    page = open_page(server, path)
    for nasty in HOSTILE_TEXTS:
        assert nasty not in page.text
    if "reviews" in path:
        assert "&lt;script&gt;" in page.text and "javascript:" in page.text, "they are there, as text"
    for link in page.all("a"):
        assert not link.get("href", "").lower().startswith(("javascript:", "data:"))
        if link.get("href", "").startswith("http"):
            assert link["rel"] == "noreferrer noopener nofollow"
    assert not any(0x202A <= ord(char) <= 0x202E or ord(char) < 9 for char in page.text)


def test_scraped_text_that_hides_something_is_shown_with_it(tmp_path: Path) -> None:
    async def sow() -> None:
        queue = await SqliteQueue.open(str(tmp_path / "shoal.db"))
        run = await queue.start_run(NewRun("nasty", "k", "nasty"))
        await queue.add(run.id, [Task("https://a.example/x", "a.example", b"1" * 16)], {"a.example": Pace(0, 0)})
        (task,) = (await queue.claim("w", 1)).tasks
        from shoal.core.task import Outcome

        record = '{"a": "x\\u202ey", "b": "<script>alert(1)</script>", "c": "javascript:alert(1)"}'
        await queue.settle([Outcome(task.id, task.lease, "done", records=(record.encode(),))])
        await queue.close()

    asyncio.run(sow())
    with running_server(f"sqlite:///{tmp_path / 'shoal.db'}", "--no-maintenance") as server:
        page = open_page(server, "/runs/nasty/records")
    assert "x‹U+202E›y" in page.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.text
    assert "javascript:alert(1)" in page.text
    assert not [link for link in page.all("a") if "alert" in link.get("href", "")]


def test_pages_show_the_numbers_that_the_api_and_the_store_have(server: ServerProcess) -> None:
    fleet, run = server.ask("/api/v1/fleet"), server.ask(f"/api/v1/runs/{RUN}")
    overview, progress = open_page(server, "/"), open_page(server, f"/runs/{RUN}")
    for name in ("leased", "delayed", "dead"):
        assert overview.number(f"fleet:totals.{name}") == f"{fleet['totals'][name]:,}"
    for name in ("done", "seen", "leased", "delayed", "dead", "records"):
        assert progress.number(f"run:{name}") == f"{run[name]:,}"


def test_every_big_number_leads_to_what_is_behind_it(server: ServerProcess) -> None:
    page = open_page(server, f"/runs/{RUN}")
    links = re.findall(r'<a href="([^"]+)"><span class="num', page.text)
    assert len(links) >= 6
    for link in links:
        assert server.get(html.unescape(link), headers=HTML).status_code == 200


def test_lists_go_on_by_their_links_to_the_end_and_show_all(server: ServerProcess) -> None:
    path, seen = f"/runs/{RUN}/tasks?state=done", set[str]()
    while path:
        page = open_page(server, path)
        found = re.findall(r'href="/tasks/(\d+)"', page.text)
        assert found and not seen & set(found)
        seen |= set(found)
        next = re.search(r'href="([^"]+)" rel="next"', page.text)
        path = html.unescape(next[1]) if next else ""
    assert len(seen) == server.ask(f"/api/v1/runs/{RUN}")["done"]


def test_a_task_page_tells_its_story(server: ServerProcess) -> None:
    items = server.ask(f"/api/v1/runs/{RUN}/tasks?state=dead&cause=handler&limit=1")["items"]
    page = open_page(server, f"/tasks/{items[0]['id']}")
    assert "given as a start URL" in page.text
    assert "KeyError: &#39;price&#39; in shop.py:48" in page.text
    assert "Traceback (most recent call last)" in page.text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/nowhere", 404, "Page not found"),
        ("/runs/no-such-run", 404, "there is no run no-such-run"),
        ("/tasks/12345678901234567890123", 404, "there is no task"),
        ("/tasks/\u0661", 404, "there is no task"),
        ("/hosts/nobody.example", 404, "there is no host"),
        ("/fleet/nobody", 404, "there is no worker"),
        (f"/runs/{RUN}/tasks?after=-1", 422, "Invalid request"),
        (f"/runs/{RUN}/tasks?after=99999999999999999999999", 422, "Invalid request"),
        (f"/runs/{RUN}/tasks?after=5", 422, "belongs to another list"),
        ("/hosts?like=%00", 422, "Invalid request"),
        ("/runs?state=odd", 422, "Invalid request"),
    ],
)
def test_what_is_not_there_or_not_understood_is_said_on_a_page(
    server: ServerProcess, path: str, status: int, words: str
) -> None:
    answer = server.get(path, headers=HTML)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert words in html.unescape(answer.text)


def test_programs_get_the_same_as_a_problem(server: ServerProcess) -> None:
    answer = server.get("/runs/no-such-run", headers={"Accept": "application/json"})
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_the_first_page_is_small_and_its_files_are_kept_for_ever(server: ServerProcess) -> None:
    page = server.get("/", headers=HTML | {"Accept-Encoding": "gzip"})
    total = len(gzip.compress(page.content, 6))
    for path in sorted(set(re.findall(r'"(/static/[^"]+)"', page.text))):
        answer = server.get(path, headers={"Accept-Encoding": "gzip"})
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-encoding"] == "gzip"
        total += int(answer.headers["content-length"])
        plain = server.get(path, headers={"Accept-Encoding": "identity"})
        assert plain.content == answer.content and "content-encoding" not in plain.headers
    assert total < 100_000, f"{total:,} bytes"
    assert server.get("/static/shoal.0000000000.js").status_code == 404


def test_an_empty_queue_teaches_the_first_commands(tmp_path: Path) -> None:
    with running_server(f"sqlite:///{tmp_path / 'shoal.db'}") as server:
        page = open_page(server, "/")
        for path in ("/runs", "/hosts", "/fleet", "/dead", "/advice", "/schedules", "/settings"):
            open_page(server, path)
    assert "Nothing has run here yet" in page.text
    assert page.text.count('<div class="command">') >= 3
    assert "shoal worker" in page.text


def test_only_the_living_part_is_sent_to_a_page_that_asks_for_it(server: ServerProcess) -> None:
    whole, part = (
        open_page(server, "/runs").text,
        server.get("/runs", headers=HTML | {"HX-Source": "div#live-part"}).text,
    )
    assert part.startswith('<div id="live-part"')
    assert "<html" not in part and len(part) < len(whole)
    assert 'href="/runs/products-2026-11"' in part


def test_ten_thousand_hosts_are_paged_through_by_name(tmp_path: Path) -> None:
    path = tmp_path / "shoal.db"

    async def sow() -> None:
        queue = await SqliteQueue.open(str(path))
        run = await queue.start_run(NewRun("wide", "k", "wide"))
        for first in range(0, 10_000, 1000):
            names = [f"h{number:05}.example" for number in range(first, first + 1000)]
            found = [Task(f"https://{it}/", it, it.encode().ljust(16)[:16]) for it in names]
            await queue.add(run.id, found, {it: Pace(1.0, 1) for it in names})
        await queue.close()

    asyncio.run(sow())
    with running_server(f"sqlite:///{path}", "--no-maintenance") as server:
        page = open_page(server, "/hosts?order=name")
        assert "h00000.example" in page.text and "h00050.example" not in page.text
        next = re.search(r'href="([^"]+)" rel="next"', page.text)
        assert next and "h00050.example" in open_page(server, html.unescape(next[1])).text
        filtered = open_page(server, "/hosts?like=h0999")
        assert "h09990.example" in filtered.text and "h00000.example" not in filtered.text


def test_actions_work_without_scripts_and_are_confirmed_first(server: ServerProcess) -> None:
    asked = perform_action(server, "run.pause", RUN)
    assert asked.status_code == 200
    page = Page(asked.text)
    assert f"shoal pause {RUN}" in page.text and "/pause" in page.text
    assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "running", "nothing happens before it is confirmed"
    fields = {it["name"]: it["value"] for it in page.all("input") if it.get("type") == "hidden" and "name" in it}
    done = server.client.post("/act", data=fields, headers=HTML)
    assert (done.status_code, done.headers["location"]) == (303, "/runs")
    after = server.get("/runs", headers=HTML)
    assert f"Run {RUN} is paused." in after.text and "Undo" in after.text
    assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "paused"
    assert "is paused." not in server.get("/runs", headers=HTML).text, "it is said once"
    assert perform_action(server, "run.resume", RUN, confirmed="1").status_code == 303
    assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "running"
    whats = [action["what"] for action in server.ask("/api/v1/actions")["items"]]
    assert whats[:2] == ["resume", "pause"]


def test_the_pace_of_a_host_is_set_and_taken_back(server: ServerProcess) -> None:
    def host() -> Any:
        return server.ask("/api/v1/hosts/biggest.example")

    assert (
        perform_action(server, "host.pace", "biggest.example", spacing="7", limit="1", confirmed="1").status_code == 303
    )
    assert (host()["rule"], host()["limit"]) == (7.0, 1)
    undo = Page(server.get("/hosts", headers=HTML).text)
    hidden = [it for it in undo.all("input") if it.get("type") == "hidden"]
    back = {it["name"]: it["value"] for it in hidden if it["name"] in ("spacing", "limit")}
    assert back == {"spacing": "-1", "limit": "-1"}
    assert perform_action(server, "host.pace", "biggest.example", **back, confirmed="1", undo="1").status_code == 303
    assert (host()["rule"], host()["limit"]) == (None, None)
    wrong = perform_action(server, "host.pace", "biggest.example", spacing="quick", limit="1", confirmed="1")
    assert wrong.status_code == 422 and "not understood" in wrong.text


@pytest.mark.parametrize("back", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:x", ""])
def test_an_action_leads_nowhere_else(server: ServerProcess, back: str) -> None:
    answer = perform_action(server, "run.resume", RUN, confirmed="1", back=back)
    assert answer.status_code == 303 and answer.headers["location"] == "/"


@pytest.mark.parametrize("fields", [{}, {"page_action": "run.pause"}, {"page_action": "odd", "about": RUN}])
def test_a_form_that_asks_for_nothing_is_refused(server: ServerProcess, fields: dict[str, str]) -> None:
    assert server.client.post("/act", data=fields, headers=HTML).status_code == 422


def test_dead_letters_are_revived_and_dropped_by_cause(shown: Path) -> None:
    copy = shown.parent / "copy.db"
    with sqlite3.connect(shown) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    with running_server(f"sqlite:///{copy}", "--no-maintenance") as server:
        groups = server.ask(f"/api/v1/runs/{RUN}")["dead_by_cause"]
        answer = perform_action(server, "dead.revive", RUN, cause="http.404", confirmed="1")
        assert answer.status_code == 303
        number = groups["http.404"]
        assert f"{number} page{'s' if number > 1 else ''} of run {RUN} requeued." in server.get("/", headers=HTML).text
        assert perform_action(server, "dead.drop", RUN, cause="handler", confirmed="1").status_code == 303
        left = server.ask(f"/api/v1/runs/{RUN}")["dead_by_cause"]
        assert left == {cause: n for cause, n in groups.items() if cause not in ("http.404", "handler")}
        answer = perform_action(server, "run.cancel", RUN, confirmed="1")
        assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "cancelled"
        shown_run = server.get(f"/runs/{RUN}", headers=HTML).text
        assert f"Undo the cancel of run {RUN}?" in shown_run and f"shoal cancel --undo {RUN}" in shown_run
        letter = server.ask(f"/api/v1/runs/{RUN}/tasks", params={"state": "dead"})["items"][0]["id"]
        places = (
            f"/runs/{RUN}/dead",
            f"/runs/{RUN}/dead?cause=http*",
            f"/runs/{RUN}/tasks?state=dead&url=*",
            f"/tasks/{letter}",
        )
        for path in places:
            said = server.get(path, headers=HTML)
            assert said.status_code == 200 and "Drop" in said.text
            assert ".revive" not in said.text, (
                f"{path} offers what would be refused: dead letters of a cancelled run stay"
            )
        assert perform_action(server, "run.undo", RUN, confirmed="1").status_code == 303
        assert server.ask(f"/api/v1/runs/{RUN}")["state"] != "cancelled"
        assert "Undo the cancel" not in server.get(f"/runs/{RUN}", headers=HTML).text
        assert perform_action(server, "run.cancel", RUN, confirmed="1").status_code == 303
        assert perform_action(server, "run.purge", RUN, confirmed="1").status_code == 303
        assert server.get(f"/runs/{RUN}", headers=HTML).status_code == 404


class TestWithTokens:
    def sign_in(self, browser: httpx.Client, token: str) -> str:
        """The word of its forms."""
        assert browser.post("/login", data={"token": token, "next": "/runs"}).headers["location"] == "/runs"
        found = re.search(r'name="csrf" content="([^"]+)"', browser.get("/runs").text)
        assert found
        return found[1]

    def token(self, closed: ServerProcess, scope: str) -> str:
        name = f"somebody-{scope}"
        closed.delete(f"/api/v1/tokens/{name}")
        made = closed.post("/api/v1/tokens", {"name": name, "scopes": [scope]})
        return str(made.json()["token"])

    def test_somebody_unknown_is_asked_who_they_are_and_led_back(self, browser: httpx.Client) -> None:
        answer = browser.get("/runs?state=running")
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fruns%3Fstate%3Drunning")
        form = browser.get(answer.headers["location"])
        assert 'value="/runs?state=running"' in form.text
        assert "products" not in form.text
        wrong = browser.post("/login", data={"token": "not-a-token-at-all", "next": "/"})
        assert wrong.status_code == 401 and "this token is unknown" in wrong.text
        assert "not-a-token-at-all" not in wrong.text

    def test_a_form_of_another_page_does_nothing(self, closed: ServerProcess, browser: httpx.Client) -> None:
        word = self.sign_in(browser, TOKEN)
        fields = {"page_action": "run.pause", "about": RUN, "confirmed": "1"}
        assert browser.post("/act", data=fields).status_code == 403
        assert browser.post("/act", data=fields | {"csrf": "0" * 64}).status_code == 403
        for path in ("/schedules/new", "/settings/hooks/new"):
            assert browser.post(path, data={"csrf": "0" * 64}).status_code == 403
            assert browser.post(path, data={"csrf": word}).status_code == 422
        other = {"Origin": "https://evil.example"}
        assert browser.post("/act", data=fields | {"csrf": word}, headers=other).status_code == 403
        assert closed.ask(f"/api/v1/runs/{RUN}")["state"] == "running"
        assert browser.post("/act", data=fields | {"csrf": word}).status_code == 303
        resume = {"page_action": "run.resume", "about": RUN, "confirmed": "1", "csrf": word}
        assert browser.post("/act", data=resume).status_code == 303

    def test_who_may_only_look_sees_no_buttons_and_can_do_nothing(
        self, closed: ServerProcess, browser: httpx.Client
    ) -> None:
        word = self.sign_in(browser, self.token(closed, "read"))
        for path in (*PAGES[:18], "/search?q=example"):
            page = Page(browser.get(path).text)
            assert not [form for form in page.all("form") if form.get("action") == "/act"], path
            assert "read-only" in page.text
        assert browser.get("/submit").status_code == 403
        for path in ("/schedules/new", "/settings/hooks/new"):
            assert browser.get(path).status_code == 403
        fields = {"page_action": "run.pause", "about": RUN, "confirmed": "1", "csrf": word}
        assert browser.post("/act", data=fields).status_code == 403

    def test_what_needs_more_is_refused_to_who_operates(self, closed: ServerProcess, browser: httpx.Client) -> None:
        word = self.sign_in(browser, self.token(closed, "operate"))
        fields = {"page_action": "token.remove", "about": "somebody-read", "confirmed": "1", "csrf": word}
        assert browser.post("/act", data=fields).status_code == 403
        assert "Pause" in browser.get(f"/runs/{RUN}").text

    def test_tokens_and_secrets_are_on_no_page(self, closed: ServerProcess, browser: httpx.Client) -> None:
        self.sign_in(browser, TOKEN)
        for path in PAGES:
            assert TOKEN not in browser.get(path).text, path

    def test_logging_out_ends_it(self, browser: httpx.Client) -> None:
        word = self.sign_in(browser, TOKEN)
        assert "Log out" in browser.get("/settings").text
        assert browser.post("/logout", data={"csrf": word}).status_code == 303
        assert browser.get("/").status_code == 303


class TestSubmit:
    GOOD = {"urls": "https://a.example/1\nhttps://a.example/2", "what": "fields", "fields": "title = h1::text"}

    def test_a_list_becomes_a_run(self, empty: ServerProcess) -> None:
        answer = empty.client.post("/submit", data=self.GOOD | {"name": "titles", "rate": "2"}, headers=HTML)
        assert answer.status_code == 303
        run = empty.ask("/api/v1" + answer.headers["location"])
        assert (run["scraper"], run["seen"]) == ("titles", 2)
        assert 'class="num" data-key="run:done">0<' in empty.get(answer.headers["location"], headers=HTML).text

    @pytest.mark.parametrize(
        ("field", "given", "words"),
        [
            ("urls", "", "Give at least one URL"),
            ("urls", "\n".join(f"https://a.example/{n}" for n in range(10_001)), "takes 10,000 URLs"),
            ("fields", "title", "Line 1 is not NAME = SELECTOR"),
            ("rate", "quickly", "a rate such as 30/m"),
            ("max_pages", "-5", "out of range"),
            ("priority", "high", "a whole number"),
            ("name", "no spaces here", "pattern"),
            ("fields", "title = h1[[", "title"),
        ],
    )
    def test_what_is_wrong_is_said_beside_its_field_and_nothing_is_lost(
        self, empty: ServerProcess, field: str, given: str, words: str
    ) -> None:
        before = len(empty.ask("/api/v1/runs")["items"])
        answer = empty.client.post("/submit", data=self.GOOD | {field: given}, headers=HTML)
        assert answer.status_code == 422
        found = re.search(rf'id="{field}-wrong">([^<]+)<', answer.text)
        assert found and words in html.unescape(found[1])
        assert field == "urls" or "https://a.example/2" in answer.text
        assert len(empty.ask("/api/v1/runs")["items"]) == before

    def test_private_addresses_are_left_out_and_said_so(self, empty: ServerProcess) -> None:
        given = self.GOOD | {"urls": "https://a.example/9\nhttp://127.0.0.1/x\nnot an address"}
        answer = empty.client.post("/submit", data=given, headers=HTML)
        assert answer.status_code == 200
        assert "2 left out" in answer.text and "http://127.0.0.1/x" in answer.text


def test_a_queue_that_is_away_is_said_on_a_page() -> None:
    with own_server() as own, running_server(own.url("away"), "--no-maintenance") as server:
        open_page(server, "/")
        own.kill()
        answer = server.get("/runs", headers=HTML, timeout=60)
    assert answer.status_code == 503
    assert "The queue does not respond" in answer.text
