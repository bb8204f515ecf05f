"""Users of a site with a login: who runs what in a folder of their own, on one queue."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend_urls import backend_url
from login_site import PASSWORD, SECRET, LoginSite
from shell_user import ShellUser

from shoal import app
from shoal.config.load import load
from shoal.core.run import RunState

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


@contextmanager
def members_on(kind: str, site: LoginSite, folder: Path) -> Iterator[Members]:
    with ShellUser(folder) as user:
        made = Members(site, user, backend_url(kind, folder, "queue"))
        made.declare()
        yield made
