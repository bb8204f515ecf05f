"""Sessions: one login for a whole fleet, who makes it, and what becomes of tasks while nobody is logged in."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from backend_urls import backend_url
from login_site import PASSWORD, SECRET, USER, LoginSite, login_site
from rendering import need_browser
from shell_user import ShellUser
from wait import HANG, wait_until

from shoal import app
from shoal.config.load import load
from shoal.core.run import RunState

pytestmark = pytest.mark.timeout(300)
KEY = "k3y-of-all-sessions-0123456789"
SCRAPER = """
import shoal

members = shoal.Scraper("members", start="{url}")

@members.page("*")
def page(page):
    yield {{"url": page.url, "who": page.css(".account::text").get()}}
    yield page.follow("a", session="shop")
"""
FORM = """[sessions.shop]
hosts = ["{host}"]
secret = "shop"
login = {{form = "{url}login", fields = {{user = "{{user}}", password = "{{password}}"}}}}
check = {{redirect = "*/login*", present = ".account", url = "{url}account"}}
"""
JSON = """[sessions.shop]
hosts = ["{host}"]
secret = "shop"
login = {{json = "{url}api/login", body = {{user = "{{user}}", password = "{{password}}"}}, token = "data.token"}}
"""
SCRIPTED = """[sessions.shop]
hosts = ["{host}"]
secret = "shop"
check = {{redirect = "*/login*"}}

[sessions.shop.login]
browser = "{url}scripted"
steps = ["fill #user = {{user}}", "fill #password = {{password}}", "click #go", "wait .account"]
"""


class Members:
    """Users of one site and one queue, each with a folder of its own."""

    def __init__(self, site: LoginSite, user: ShellUser, queue: str) -> None:
        self.site, self.folder, self.queue = site, user.folder, queue
        self.user = user
        self.user.environment |= {
            "SHOAL_QUEUE": queue,
            "SHOAL_ALLOW_PRIVATE": "1",
            "SHOAL_IGNORE_ROBOTS": "1",
            "SHOAL_WORKERS": "1",
            "SHOAL_SESSION_KEY": KEY,
            "SHOAL_SECRET_SHOP": SECRET,
            "SHOAL_DELAY": "0",
        }

    def declare(self, text: str = FORM) -> None:
        values = {"url": self.site.url(), "host": self.site.site.lane}
        (self.folder / "shoal.toml").write_text(text.format(**values))

    def scraper(self, path: str = "/account") -> str:
        (self.folder / "members.py").write_text(SCRAPER.format(url=self.site.url(path)))
        return "members.py"

    def state(self) -> dict[str, object]:
        found = self.user.shoal("session", "show", "shop", "--json")
        assert found.code == 0, found.err
        return dict(found.json)

    def run(self) -> tuple[RunState, int, int, int]:
        """Its state, and pages done, failed and retried."""

        async def look() -> tuple[RunState, int, int, int]:
            queue = await app.open_queue(load({"queue": self.queue}, env={}))
            try:
                run = (await queue.runs())[0]
                stats = await queue.stats(run.id)
                return run.state, stats.done, stats.failed + stats.dead, stats.retries
            finally:
                await queue.close()

        return asyncio.run(look())

    def workers(self, count: int, *arguments: str) -> list[subprocess.Popen[str]]:
        code = self.scraper()
        quick = ("--heartbeat", "0.5s", "--lease", "5s")
        return [self.user.start("worker", code, *quick, *arguments) for _ in range(count)]

    def submit(self) -> None:
        sent = self.user.shoal("submit", self.scraper(), "--session", "shop")
        assert sent.code == 0, sent.err

    def check_nothing_leaked(self, *words: str) -> None:
        """No password, no cookie and no token is in any file but the one that declares them."""
        hidden = [PASSWORD.encode(), KEY.encode(), *(token.encode() for token in self.site.logins)]
        files = [file for file in self.folder.rglob("*") if file.is_file() and file.name != "shoal.toml"]
        for data in (*(file.read_bytes() for file in files), *(word.encode() for word in words)):
            assert not [one for one in hidden if one in data]


@pytest.fixture
def site() -> Iterator[LoginSite]:
    with login_site() as site:
        yield site


@contextmanager
def members_on(kind: str, site: LoginSite, folder: Path) -> Iterator[Members]:
    with ShellUser(folder) as user:
        made = Members(site, user, backend_url(kind, folder, "queue"))
        made.declare()
        yield made


@pytest.fixture
def members(site: LoginSite, tmp_path: Path) -> Iterator[Members]:
    with members_on("sqlite", site, tmp_path) as made:
        yield made


@pytest.fixture
def fleet(site: LoginSite, tmp_path: Path) -> Iterator[Members]:
    with members_on("redis", site, tmp_path) as made:
        yield made


@pytest.mark.parametrize("kind", ["form", "json", "scripted"])
def test_a_run_logs_in_once_and_fetches_all_pages_as_a_member(members: Members, kind: str) -> None:
    if kind == "scripted":
        need_browser()
    members.declare({"form": FORM, "json": JSON, "scripted": SCRIPTED}[kind])
    start = "/api/start" if kind == "json" else "/account"
    done = members.user.shoal("run", members.scraper(start), "--session", "shop", "-o", "out.jsonl")
    assert done.code == 0, done.err + done.out
    assert len((members.folder / "out.jsonl").read_text().splitlines()) == members.site.pages + 1
    assert len(members.site.logins) == 1
    assert {token for _, token in members.site.visits} == {members.site.logins[0]}
    shown = members.user.shoal("session", "list")
    assert "logged in" in shown.out
    members.check_nothing_leaked(done.out, done.err, shown.out, json.dumps(members.state()))


def stop(commands: list[subprocess.Popen[str]]) -> str:
    said = ""
    for command in commands:
        command.send_signal(signal.SIGTERM)
    for command in commands:
        out, err = command.communicate(timeout=HANG)
        said += out + err
    return said


def test_two_workers_log_in_exactly_once_and_the_end_of_a_session_costs_nothing(fleet: Members) -> None:
    site = fleet.site
    site.pages = 60
    working = fleet.workers(2)
    fleet.submit()
    wait_until(lambda: len(site.visits) > 15)
    assert len(site.logins) == 1
    site.end_sessions()
    wait_until(lambda: fleet.run()[0] == "finished")
    said = stop(working)
    assert fleet.run() == ("finished", site.pages + 1, 0, 0)
    assert (len(site.logins), site.at_once, site.refused) == (2, 1, 0)
    items = [path for path, _ in site.visits if path.startswith("/item/")]
    assert len(items) == len(set(items)) == site.pages
    assert {token for _, token in site.visits} == set(site.logins)
    fleet.check_nothing_leaked(said)


def test_a_wrong_password_asks_for_a_person_and_all_pages_wait(members: Members) -> None:
    members.user.environment["SHOAL_SECRET_SHOP"] = f"{USER}:wr0ng"
    members.declare(FORM.replace("secret =", "failures = 1\nsecret ="))
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl")
    said = " ".join((done.out + done.err).split())
    assert done.code == 4, said
    assert "1 page waits for session shop, which needs a person: " in said
    assert "wr0ng" not in said
    assert members.site.refused == 1
    assert "needs a person" in members.user.shoal("session", "list").out
    advice = members.user.shoal("advice", "--json").out
    assert "session_needs_person" in advice
    assert members.run()[1:] == (0, 0, 0)
    # The same command again is told the same, without another login; with the right one renewed, it goes on.
    assert members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl").code == 4
    assert members.site.refused == 1
    members.user.environment["SHOAL_SECRET_SHOP"] = SECRET
    assert members.user.shoal("session", "renew", "shop").code == 0
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl")
    assert done.code == 0, done.err
    assert len(members.site.logins) == 1


def test_a_worker_killed_while_it_logs_in_blocks_the_login_for_its_term_alone(fleet: Members) -> None:
    site, asked, go = fleet.site, threading.Event(), threading.Event()

    def wait() -> None:
        asked.set()
        go.wait(HANG)

    site.before_answer = wait
    fleet.submit()
    (first,) = fleet.workers(1)
    assert asked.wait(HANG)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(HANG)
    site.before_answer = lambda: None
    others = fleet.workers(2)
    wait_until(lambda: fleet.run()[0] == "finished", 120)
    go.set()
    stop(others)
    assert fleet.run() == ("finished", site.pages + 1, 0, 0)
    assert {token for _, token in site.visits} == {site.logins[0]}
    wait_until(lambda: len(site.logins) == 2)  # the killed one's own, which nobody uses


def test_a_lost_key_is_said_and_leads_to_one_new_login(members: Members) -> None:
    assert members.user.shoal("run", members.scraper(), "--session", "shop").code == 0
    members.user.environment["SHOAL_SESSION_KEY"] = "another-k3y-0123456789"
    shown = members.user.shoal("session", "show", "shop")
    assert "cannot be read on this machine" in shown.out
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "--fresh")
    assert done.code == 0, done.err
    assert len(members.site.logins) == 2
    members.user.environment.pop("SHOAL_SESSION_KEY")
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "--fresh")
    assert done.code == 2
    assert "there is no key" in done.err
    assert "openssl rand -hex 32" in done.err


@pytest.mark.parametrize("kind", ["netscape", "extension", "playwright"])
def test_cookies_exported_by_a_browser_go_on_as_that_browser(members: Members, kind: str) -> None:
    members.declare('[sessions.shop]\nhosts = ["{host}"]\ncheck = {{redirect = "*/login*"}}\n')
    site = members.site
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl")
    assert done.code == 4, done.err
    assert "shoal session import shop FILE" in members.user.shoal("session", "list").out
    site.valid.add("by-hand-s3cret")
    site.logins.append("by-hand-s3cret")
    cookie = {"name": "member", "value": "by-hand-s3cret", "domain": "127.0.0.1", "path": "/"}
    text = {
        "netscape": "# Netscape HTTP Cookie File\n#HttpOnly_127.0.0.1\tFALSE\t/\tFALSE\t0\tmember\tby-hand-s3cret\n",
        "extension": json.dumps([cookie | {"hostOnly": True, "session": True, "secure": False}]),
        "playwright": json.dumps({"cookies": [cookie | {"expires": -1, "secure": False}], "origins": []}),
    }[kind]
    (members.folder / "shoal.toml").touch()
    outside = members.folder.parent / f"{members.folder.name}-exported"
    outside.write_text(text)
    taken = members.user.shoal("session", "import", "shop", str(outside))
    assert taken.code == 0, taken.err
    assert "1 cookie imported" in taken.out
    done = members.user.shoal("run", members.scraper(), "--session", "shop", "-o", "out.jsonl")
    assert done.code == 0, done.err
    assert len((members.folder / "out.jsonl").read_text().splitlines()) == site.pages + 1
    members.check_nothing_leaked(taken.out, done.out, done.err, json.dumps(members.state()))
