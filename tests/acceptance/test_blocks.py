"""Block pages with real workers: a wall comes up in the middle of a crawl and goes away, on every queue."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from backend_urls import QUEUE_KINDS, backend_url
from server_process import running_server
from servers.forward_proxies import tinyproxy
from shell_user import ShellUser
from wait import HANG, wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "site"))

from walled.pages import ODD, WALLS, name_of
from walled.site import WalledSite, walled_site

PRODUCTS, UP_AFTER, WALL_PAGES = 120, 40, 12
OWN_PATHS = {"empty_category": "/category", "print_version": "/print", "contact": "/contact", "login_page": "/account"}
RUN = ("run", "shop.py", "-o", "out.jsonl", "--delay", "0", "--in-flight", "8", "--retry-delay", "200ms")
SCRAPER = """
import shoal

shop = shoal.Scraper("shop", start={urls!r})

@shop.page("*")
def page(page):
    yield {{"url": page.url, "title": page.css("h1::text").get(), "price": page.css(".price::text").get(),
            "text": page.css(".text p::text").get(), "others": len(page.css(".related a"))}}
"""


class Shopper:
    """Somebody who crawls the shop, by commands in a folder of their own."""

    def __init__(self, user: ShellUser, site: WalledSite, queue: str) -> None:
        self.user = user
        self.site = site
        user.environment |= {"SHOAL_QUEUE": queue, "SHOAL_ALLOW_PRIVATE": site.host, "SHOAL_WORKERS": "2"}

    def scraper(self, paths: list[str]) -> None:
        (self.user.folder / "shop.py").write_text(SCRAPER.format(urls=[self.site.url(path) for path in paths]))

    def products(self, number: int = PRODUCTS) -> None:
        self.scraper([f"/product/{one}" for one in range(1, number + 1)])

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.user.folder / "out.jsonl").read_text().splitlines()]

    def wrong(self) -> list[dict[str, Any]]:
        """Records that are not of the page at their URL."""
        return [it for it in self.records() if it["title"] != name_of(it["url"].removeprefix(self.site.url("")))]

    def start(self, *more: str) -> subprocess.Popen[str]:
        rule = () if "--on-block" in more else ("--on-block", "later")
        return self.user.start(*RUN, *rule, *more)

    def finish(self, command: subprocess.Popen[str]) -> str:
        out, err = command.communicate(timeout=HANG)
        assert command.returncode == 0, err
        return out + err


@contextmanager
def shopper(kind: str, folder: Path) -> Iterator[Shopper]:
    with walled_site() as site, ShellUser(folder) as user:
        yield Shopper(user, site, backend_url(kind, folder, "queue"))


def up_in_the_middle(site: WalledSite, wall: str, most: int = WALL_PAGES) -> None:
    """It comes up when some products are known, and goes away when it was given so often."""

    def on_page(site: WalledSite) -> None:
        if site.walls >= most:
            site.drop_wall()
        elif site.goods >= UP_AFTER:
            site.raise_wall(wall)

    site.on_page = on_page


@pytest.mark.parametrize("kind", QUEUE_KINDS)
def test_a_wall_that_comes_up_and_goes_away_costs_no_page_and_gives_no_record(kind: str, tmp_path: Path) -> None:
    with shopper(kind, tmp_path) as it:
        it.products()
        up_in_the_middle(it.site, "captcha")
        said = it.finish(it.start())
        assert it.site.walls >= WALL_PAGES
        assert len(it.records()) == PRODUCTS, said
        assert not it.wrong()
        assert not {record["url"] for record in it.records()} ^ {it.site.url(f"/product/{n}") for n in range(1, 121)}
        status = it.user.ask("status")
        assert (status["seen"], status["done"], status["dead"]) == (PRODUCTS, PRODUCTS, 0)
        (blocked,) = status["blocked"]
        assert (blocked["fetcher"], blocked["exit"]) == ("http", "direct")
        assert 0 < blocked["blocked"] <= it.site.walls
        listed = it.user.ask("hosts", "blocks", it.site.host)
        (page,) = listed["pages"]
        assert (page["is_block"], page["leaked"], page["has_evidence"]) == (True, 0, True)
        shown = it.user.shoal("hosts", "blocks", it.site.host, "--show", page["id"])
        assert "Enter the characters you see" in shown.out


@pytest.mark.parametrize("kind", QUEUE_KINDS)
def test_by_default_block_pages_count_and_people_are_told(kind: str, tmp_path: Path) -> None:
    with shopper(kind, tmp_path) as it:
        it.products()
        up_in_the_middle(it.site, "captcha", 100_000)
        said = it.finish(it.user.start(*RUN))
        assert len(it.records()) == PRODUCTS
        assert it.site.goods + it.site.walls == PRODUCTS, "nothing is asked for twice"
        assert "look like block pages" in said
        assert f"host={it.site.host}" in said
        status = it.user.ask("status")
        assert (status["done"], status["blocked"]) == (PRODUCTS, [])
        (noticed,) = status["noticed_blocks"]
        assert 0 < noticed["noticed"] <= it.site.walls
        assert "look like block pages" in it.user.shoal("status").out
        assert "look like block pages" in it.user.shoal("advice").out
        (page,) = it.user.ask("hosts", "blocks", it.site.host)["pages"]
        assert (page["is_block"], page["pages"], page["has_evidence"]) == (True, 0, True)
        assert page["leaked"] >= noticed["noticed"] // 2  # of each process that has seen it, the largest number


@pytest.mark.parametrize("wall", [name for name in WALLS if name != "captcha"])
def test_every_kind_of_wall_is_found(wall: str, tmp_path: Path) -> None:
    with shopper("sqlite", tmp_path) as it:
        it.products()
        up_in_the_middle(it.site, wall)
        it.finish(it.start())
        assert len(it.records()) == PRODUCTS
        assert not it.wrong()
        assert it.user.ask("status")["blocked"]


# "Not found" with status 200 under several URLs may be taken for a block page: docs/blocks.md says so.
@pytest.mark.parametrize("odd", [name for name in ODD if name != "not_found"])
def test_every_kind_of_odd_page_counts(odd: str, tmp_path: Path) -> None:
    with shopper("sqlite", tmp_path) as it:
        usual = [f"/product/{number}" for number in range(1, 81)]
        strange = [f"{OWN_PATHS.get(odd, '/product')}/{number}" for number in range(200, 212)]
        if odd == "redesigned":
            it.site.on_page = lambda site: setattr(site, "everywhere", odd if site.goods >= UP_AFTER else "")
            it.scraper(usual)
            strange = []
        else:
            it.site.odd = dict.fromkeys(strange, odd)
            mixed = [path for pair in zip(strange, usual[40:52], strict=True) for path in pair]
            it.scraper([*usual[:40], *mixed, *usual[52:]])
        it.finish(it.start())
        status = it.user.ask("status")
        assert status["dead"] == 0
        assert {record["url"] for record in it.records()} == {it.site.url(path) for path in usual + strange}


def test_a_wall_that_stays_ends_its_pages_with_a_cause_of_their_own(tmp_path: Path) -> None:
    with shopper("sqlite", tmp_path) as it:
        it.products(60)
        up_in_the_middle(it.site, "challenge", 100_000)
        command = it.start("--retry-delay", "20ms", "--retries", "1", "--workers", "1")
        out, err = command.communicate(timeout=HANG)
        assert command.returncode == 3, err
        assert "block pages (captcha, consent, login)" in out + err
        status = it.user.ask("status")
        assert set(status["dead_by_cause"]) == {"block_page"}
        assert status["dead"] + status["done"] == 60
        assert not it.wrong()
        letters = it.user.ask("dead", "--list")
        why = it.user.shoal("why", letters[0]["url"])
        assert "blocked" in why.out
        assert f"shoal hosts blocks {it.site.host}" in why.out
        assert "block page" in it.user.shoal("advice").out


def test_blocked_pages_go_by_another_exit(tmp_path: Path) -> None:
    with shopper("sqlite", tmp_path) as it, tinyproxy("other-way") as proxy:
        (tmp_path / "shoal.toml").write_text(f'[exits]\nother = ["{proxy}"]\n')
        it.products()
        it.site.is_walled = lambda visitor: not visitor.is_by_proxy
        up_in_the_middle(it.site, "login_in_layout", 100_000)
        it.finish(it.start("--on-block", "exit:other"))
        assert len(it.records()) == PRODUCTS
        assert not it.wrong()
        ways = {one["exit"]: one["responses"] for one in it.user.ask("status")["fetched"]}
        assert ways["other"] >= PRODUCTS - UP_AFTER
        assert ways["direct"] < PRODUCTS, "where all is blocked, nearly nothing is asked for"


def test_people_see_what_was_blocked_and_can_say_that_it_is_none(tmp_path: Path) -> None:
    with shopper("sqlite", tmp_path) as it:
        it.products()
        up_in_the_middle(it.site, "captcha")
        it.finish(it.start())
        with running_server(f"sqlite:///{tmp_path / 'queue.db'}", "--no-maintenance") as server:
            found = server.get(f"/api/v1/hosts/{it.site.host}/blocks").json()
            (page,) = found["pages"]
            html = server.get(f"/hosts/{it.site.host}", headers={"accept": "text/html"}).text
            assert "Block pages" in html
            assert f"/block-pages/{page['id']}?host=" in html
            kept = server.get(f"/block-pages/{page['id']}?host={it.site.host}")
            assert kept.status_code == 200
            assert kept.headers["content-type"] == "text/plain; charset=utf-8"
            assert kept.headers["x-content-type-options"] == "nosniff"
            assert "Robot Check" in kept.text
            assert server.get("/block-pages/00000000?host=x").status_code == 404
            assert server.get(f"/block-pages/0000000g?host={it.site.host}").status_code == 404
            path = f"/api/v1/hosts/{it.site.host}/blocks"
            accepted = server.post(f"{path}/{page['id']}/accept")
            assert [one["is_block"] for one in accepted.json()["pages"]] == [False]
            assert server.post(f"{path}/00000000/accept").status_code == 404
            wait_until(lambda: "shoal_fleet_block_pages" in server.get("/metrics").text)
        refused = it.user.shoal("hosts", "blocks", it.site.host, "--accept", "nonsense")
        assert refused.code != 0
        assert "has no block page nonsense" in refused.err
        none = it.user.shoal("hosts", "blocks", "other.example")
        assert none.out.strip() == "No block pages of other.example are known."


def test_a_rule_that_is_none_is_refused(tmp_path: Path) -> None:
    with shopper("sqlite", tmp_path) as it:
        it.products(1)
        refused = it.user.shoal(*RUN, "--on-block", "record")
        assert refused.code != 0
        assert "notice, later, browser, exit:NAME, park or off" in refused.err
