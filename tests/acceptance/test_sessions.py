"""Sessions: one login for a whole fleet, who makes it, and what becomes of tasks while nobody is logged in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from login_site import PASSWORD, SECRET, LoginSite, login_site
from rendering import need_browser
from shell_user import ShellUser

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

    def __init__(self, site: LoginSite, folder: Path, queue: str) -> None:
        self.site, self.folder, self.queue = site, folder, queue
        self.user = ShellUser(folder)
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


@pytest.fixture
def members(site: LoginSite, tmp_path: Path) -> Members:
    made = Members(site, tmp_path, f"sqlite:///{tmp_path}/q.db")
    made.declare()
    return made


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
