"""What handlers can do, with real servers and real worker processes."""

from __future__ import annotations

import asyncio
import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fetch_site import serving
from shell_user import CommandResult, ShellUser
from small_site import Hit, Reply, SmallSite, moved, page, small_site
from test_fetch_proxy import HttpProxy, Proxy, SocksProxy

LOGIN, TOKEN = "joe:s3cr3t-pw", "t0p-s3cr3t-token"

SHOP = """
import dataclasses

import attrs
import pydantic
import shoal

A, B = "{a}", "{b}"
shop = shoal.Scraper("shop", start=[A + "/", A + "/members/", A + "/anna/"], hosts=["*"])


@dataclasses.dataclass
class Book:
    kind: str
    title: str


@attrs.define
class Pen:
    kind: str
    title: str


class Ink(pydantic.BaseModel):
    kind: str
    title: str


@shop.page("/")
def start(page):
    yield page.follow("/many")
    yield from page.follow(["/doc.pdf", "/kinds/async", "/kinds/gen", "/kinds/list"])
    meta = {{"from": [1, {{"deep": True}}]}}
    yield from page.follow("/form", body={{"q": "bees"}}, headers={{"X-Own": "1"}}, meta=meta)
    yield from page.follow("/form", method="PUT", json={{"a": 1}})
    yield from page.follow("/leaves", auth="mine", headers={{"X-Api-Key": "k3y"}})
    yield from page.follow("/cond", headers={{"If-None-Match": '"1"'}})
    yield from page.follow(["/rank/low"], priority=-5)
    yield from page.follow(["/rank/high"], priority=50)


@shop.page("/members/*")
def members(page):
    yield {{"kind": "members", "path": page.url[len(A):], "said": page.css("p::text").get()}}
    if page.url.endswith("/members/"):
        yield from page.follow("/login", body={{"user": "joe"}})


@shop.page("/login")
def login(page):
    yield from page.follow([f"/members/{{n}}" for n in range(12)])


@shop.page("/anna/*")
async def anna(page):
    if page.url.endswith("/anna/"):
        await page.fetch("/login", body={{"user": "anna"}}, session="anna")
        yield page.follow([f"/anna/{{n}}" for n in range(4)], session="anna")
    else:
        yield {{"kind": "anna", "said": page.css("p::text").get()}}


@shop.page("/many")
def many(page):
    yield {{"kind": "dict", "title": "one"}}
    yield Book("dataclass", "two")
    yield [Pen("attrs", "three"), Ink(kind="pydantic", title="four")]


@shop.page("/form")
def form(page):
    yield {{"kind": "form", "echo": page.text, "meta": page.meta}}


@shop.page("*.pdf")
def pdf(page):
    yield {{"kind": "pdf", "size": len(page.body), "head": page.body[:5].decode(), "text": page.text}}


@shop.page("/kinds/async")
async def coroutine(page):
    other = await page.fetch(B + "/other")
    return {{"kind": "async", "other": other.css("p::text").get(), "status": other.status}}


@shop.page("/kinds/gen")
async def gen(page):
    yield {{"kind": "gen", "n": 1}}
    more = await page.fetch("/more?of=gen")
    yield {{"kind": "gen", "n": 2, "said": more.css("p::text").get()}}


@shop.page("/kinds/list")
def listed(page):
    return [{{"kind": "list", "n": n}} for n in range(3)]


@shop.page("/cond")
def cond(page):
    yield {{"kind": "cond", "status": page.status}}


@shop.page()
def rest(page):
    yield {{"kind": "rest", "url": page.url}}
"""


def echo(hit: Hit) -> Reply:
    return 200, {}, f"{hit.method} {hit.headers.get('content-type')} {hit.body.decode()}".encode()


def login(hit: Hit) -> Reply:
    user = hit.body.decode().partition("=")[2]
    return page("welcome", Set_Cookie=f"user={user}; Path=/; HttpOnly\nseen=1; Path=/nowhere")


def who(hit: Hit) -> Reply:
    return page(hit.headers.get("cookie", "nobody") + " " + hit.path)


def secured(hit: Hit) -> Reply:
    return page(status=200 if hit.headers.get("authorization") else 401)


class HandlerSites:
    def __init__(self, folder: Path, home: SmallSite, other: SmallSite) -> None:
        self.home, self.other, self.folder = home, other, folder
        self.user = ShellUser(folder, products=1)
        self.done: CommandResult

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.user.lines("out.jsonl") if line["kind"] == kind]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HandlerSites]:
    folder = tmp_path_factory.mktemp("shop")
    with small_site() as home, small_site() as other:
        sites = HandlerSites(folder, home, other)
        home.pages |= {
            "/": page("start"), "/many": page("many"), "/form": echo, "/login": login, "/more": page("more"),
            "/doc.pdf": (200, {"Content-Type": "application/pdf"}, b"%PDF-1.7\n\xff\xfe" + bytes(5_000)),
            "/kinds/*": page("kind"), "/members/*": who, "/anna/*": who, "/rank/*": page("rank"),
            "/leaves": moved(f"http://{other.lane}/landed", Set_Cookie="home=1; Path=/landed"),
            "/cond": lambda hit: page(status=304 if hit.headers.get("if-none-match") == '"1"' else 200),
        }  # fmt: skip
        other.pages |= {"/landed": page("landed"), "/other": page("other"), "/back": page()}
        with sites.user as user:
            (folder / "shop.py").write_text(SHOP.format(a=f"http://{home.lane}", b=f"http://{other.lane}"))
            sites.done = user.shoal(
                "run", "shop.py", "-o", "out.jsonl", "--allow-private", "--workers", "2", "--auth", "shop",
                "--header", "X-Api-Key: run-k3y", "--header", "Accept-Language: de", "--log-level", "debug",
                "--log-file", "log.txt", "--keep-raw", SHOAL_SECRET_SHOP=LOGIN, SHOAL_SECRET_MINE=TOKEN,
            )  # fmt: skip
            yield sites


def test_all_of_it_goes_well(sites: HandlerSites) -> None:
    assert sites.done.code == 0, sites.done.err


def test_records_may_be_dicts_dataclasses_attrs_and_pydantic_and_several_of_a_page(sites: HandlerSites) -> None:
    titles = {"dict": ["one"], "dataclass": ["two"], "attrs": ["three"], "pydantic": ["four"]}
    assert {kind: [line["title"] for line in sites.of(kind)] for kind in titles} == titles


def test_handlers_may_be_async_generators_or_return_a_list(sites: HandlerSites) -> None:
    assert [(line["other"], line["status"]) for line in sites.of("async")] == [("other", 200)]
    assert sorted(line["n"] for line in sites.of("gen")) == [1, 2]
    assert len(sites.of("list")) == 3


def test_a_binary_page_reaches_its_handler_as_bytes(sites: HandlerSites) -> None:
    (line,) = sites.of("pdf")
    assert (line["size"], line["head"], line["text"]) == (5_011, "%PDF-", "")


def test_links_carry_method_body_headers_and_meta(sites: HandlerSites) -> None:
    said = {(line["echo"], str(line["meta"])) for line in sites.of("form")}
    assert said == {
        ("POST application/x-www-form-urlencoded q=bees", "{'from': [1, {'deep': True}]}"),
        ('PUT application/json {"a":1}', "{}"),
    }
    (post,) = [hit for hit in sites.home.hits_for("/form") if hit.method == "POST"]
    assert post.headers["x-own"] == "1"


def test_who_logs_in_is_logged_in_in_every_worker_process(sites: HandlerSites) -> None:
    said = {line["path"]: line["said"] for line in sites.of("members")}
    assert said.pop("/members/").startswith("nobody")
    assert said == {f"/members/{n}": f"user=joe /members/{n}" for n in range(12)}


def test_a_session_has_cookies_of_its_own(sites: HandlerSites) -> None:
    assert sorted(line["said"] for line in sites.of("anna")) == [f"user=anna /anna/{n}" for n in range(4)]


def test_cookies_go_to_their_own_host_and_path_only(sites: HandlerSites) -> None:
    assert not any("seen=1" in hit.headers.get("cookie", "") for hit in sites.home.hits)
    # A cookie knows no ports: what another port of the host is told is what browsers tell it, too.
    assert all("home=1" in hit.headers.get("cookie", "") for hit in sites.other.hits_for("/landed"))


def test_logins_go_to_the_origin_they_are_meant_for_and_not_along_with_a_redirect(sites: HandlerSites) -> None:
    (own,) = sites.home.hits_for("/leaves")
    assert (own.headers["authorization"], own.headers["x-api-key"]) == (f"Bearer {TOKEN}", "k3y")
    (plain,) = sites.home.hits_for("/many")
    assert plain.headers["authorization"] == "Basic " + b64encode(LOGIN.encode()).decode()
    assert plain.headers["x-api-key"] == "run-k3y"
    elsewhere = sites.other.hits_for("/landed") + sites.other.hits_for("/other")
    assert len(elsewhere) == 2
    for hit in elsewhere:
        assert "authorization" not in hit.headers and "x-api-key" not in hit.headers
        assert hit.headers["accept-language"] == "de"


def test_not_modified_is_an_answer_to_a_condition_of_the_handlers_own(sites: HandlerSites) -> None:
    assert [line["status"] for line in sites.of("cond")] == [304]


def test_secrets_are_nowhere_but_on_the_wire(sites: HandlerSites) -> None:
    words = [LOGIN, LOGIN.partition(":")[2], TOKEN, b64encode(LOGIN.encode()).decode()]
    files = [it for it in sites.folder.rglob("*") if it.is_file() and it.name != "shop.py"]
    assert len(files) > 4 and (sites.folder / "log.txt").stat().st_size
    for file in files:
        data = file.read_bytes()
        assert not [word for word in words if word.encode() in data], file
    said = sites.done.out + sites.done.err + sites.user.shoal("why", sites.home.url("/leaves")).out
    assert not [word for word in words if word in said]
    with sqlite3.connect(sites.folder / ".shoal" / "shoal.db") as db:
        kept = "".join(db.iterdump())
    assert not [word for word in words if word in kept]


def test_kept_pages_are_extracted_again_without_asking_anybody(sites: HandlerSites) -> None:
    before = len(sites.home.hits), len(sites.other.hits)
    (run,) = [run for run in sites.user.ask("runs") if not run.get("from_raw")]
    again = sites.user.shoal(
        "run", "shop.py", "-o", "again.jsonl", "--from-raw", run["name"], "--allow-private", "--workers", "1"
    )
    assert (len(sites.home.hits), len(sites.other.hits)) == before
    records = sites.user.lines("again.jsonl")
    assert {line["kind"] for line in records} >= {"dict", "pdf", "gen", "members"}, again.err


# Pace

PACED = """
import asyncio
import shoal

paced = shoal.Scraper("paced", start=["{a}/%d" % n for n in range(6)])

@paced.page()
async def every(page):
    one, two = await asyncio.gather(page.fetch("/x?" + page.url), page.fetch("/y?" + page.url))
    yield {{"url": page.url, "said": one.css("p::text").get() + two.css("p::text").get()}}
"""


def test_requests_of_handlers_keep_the_pace_of_the_host_over_all_workers(tmp_path: Path) -> None:
    with small_site() as site, ShellUser(tmp_path, products=1) as user:
        site.pages |= {"/*": page("page"), "/x": page("x"), "/y": page("y")}
        (tmp_path / "paced.py").write_text(PACED.format(a=f"http://{site.lane}"))
        done = user.shoal("run", "paced.py", "-o", "out.jsonl", "--allow-private", "--workers", "2", "--delay", "0.2")
        assert done.code == 0, done.err
        assert [line["said"] for line in user.lines("out.jsonl")] == ["xy"] * 6
        times = [hit.at for hit in site.hits]
        assert len(times) == 1 + 3 * 6, "robots.txt once, and each page and what it asked for"
        # One may come late and the next in time: none comes before its turn.
        assert all(at - times[0] >= 0.2 * turn - 0.15 for turn, at in enumerate(times)), times
        assert times[-1] - times[0] < 0.2 * 18 * 2


# Proxies

VIA = """
import shoal

via = shoal.Scraper("via", start="http://shop.example:81/", hosts=["*"])

@via.page()
def every(page):
    yield {"url": page.url}
    if page.url == "http://shop.example:81/":
        yield from page.follow("/socks", proxy="sock")
        yield from page.follow("/again")
"""


class Home(HttpProxy):
    """Sends every request to one port, whatever host it is for."""

    async def once(self, port: int, head: bytes, writer: Any) -> None:
        await super().once(self.to, head, writer)

    to = 0


class SocksHome(SocksProxy):
    async def join(self, port: int, reader: Any, writer: Any) -> None:
        await Proxy.join(self, Home.to, reader, writer)


async def test_a_run_goes_through_its_proxy_and_single_links_through_another(tmp_path: Path) -> None:
    with small_site() as site, ShellUser(tmp_path, products=1) as user:
        site.pages |= {"/*": page("page")}
        Home.to = site.port
        (tmp_path / "via.py").write_text(VIA)
        async with serving(Home("joe:pass-one")) as http, serving(SocksHome("ann:pass-two")) as socks:
            done = await asyncio.to_thread(
                user.shoal, "run", "via.py", "-o", "out.jsonl", "--workers", "1", "--proxy", "way",
                "--delay", "0", SHOAL_SECRET_WAY=http.url("http", "joe:pass-one"),
                SHOAL_SECRET_SOCK=socks.url("socks5h", "ann:pass-two"),
            )  # fmt: skip
            assert done.code == 0, done.err
            paths = [target.removeprefix("http://shop.example:81") for _, target in http.asked]
            assert sorted(paths) == ["/", "/again", "/robots.txt"]
            assert [login for login, _ in socks.asked] == ["ann:pass-two"]
            assert sorted(line["url"][22:] for line in user.lines("out.jsonl")) == ["/", "/again", "/socks"]
        assert all(hit.headers["host"] == "shop.example:81" for hit in site.hits)
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or (b"pass-one" not in file.read_bytes() and b"pass-two" not in file.read_bytes())


# Where to go

WALK = """
import shoal

walk = shoal.Scraper("walk", start="{a}/")

@walk.page()
def every(page):
    yield {{"path": page.url.partition("//")[2].partition("/")[2]}}
    yield from page.follow("a")
"""


def next_day(hit: Hit) -> Reply:
    day = int(hit.path.rpartition("=")[2])
    return page(f"day {day}", f"/calendar?day={day + 1}", f"/calendar?day={day + 2}")


MAZE = b"<p>" + b"always the same " * 30 + b'</p><a href="x/">x</a> <a href="y/">y</a> <a href="z/">z</a>'


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ShellUser, SmallSite, SmallSite]]:
    with small_site() as site, small_site() as other, ShellUser(tmp_path_factory.mktemp("walk"), products=1) as user:
        (user.folder / "walk.py").write_text(WALK.format(a=f"http://{site.lane}"))
        site.pages |= {
            "/": page("start", "/shop/a", "/shop/b", "/print/a", "/tags?b=1&a=2", "/tags?a=2&b=1",
                      "/tags?a=2&b=1&utm_source=x", "/calendar?day=1", f"http://{other.lane}/o"),
            "/shop/*": page("shop", "/shop/a/deep", "/print/b"), "/shop/a/*": page("deep", "/shop/a/deeper"),
            "/print/*": page("print"), "/tags": page("tags"), "/calendar": next_day,
        }  # fmt: skip
        other.pages |= {"/o": page("other")}
        yield user, site, other


WALKS = {
    "patterns": ("--include", "/shop/*", "--exclude", "*/deep*"),
    "depth": ("--max-depth", "1", "--exclude", "/calendar*"),
    "site": ("--scope", "site", "--include", "*/o"),
    "rewrite": ("--sort-query", "--drop-tracking", "--include", "/tags*"),
}
FOUND = {
    "patterns": ["", "shop/a", "shop/b"],
    "depth": ["", "print/a", "shop/a", "shop/b", "tags?a=2&b=1", "tags?a=2&b=1&utm_source=x", "tags?b=1&a=2"],
    "site": ["", "o"],
    "rewrite": ["", "tags?a=2&b=1"],
}


@pytest.mark.parametrize("name", list(WALKS))
def test_links_are_followed_where_the_settings_say(walker: tuple[ShellUser, SmallSite, SmallSite], name: str) -> None:
    user, _, _ = walker
    done = user.shoal("run", "walk.py", "-o", f"{name}.jsonl", "--allow-private", "--workers", "1", *WALKS[name])
    assert done.code == 0, done.err
    assert sorted(line["path"] for line in user.lines(f"{name}.jsonl")) == FOUND[name]


def test_a_calendar_without_end_is_followed_so_far(walker: tuple[ShellUser, SmallSite, SmallSite]) -> None:
    user, _, _ = walker
    limits = ("--include", "/calendar*", "--max-per-shape", "20")
    done = user.shoal("run", "walk.py", "-o", "days.jsonl", "--allow-private", "--workers", "1", *limits)
    assert done.code == 0, done.err
    assert 10 < len(user.lines("days.jsonl")) <= 21
    assert user.ask("runs")[0]["skipped"]["trap"] > 0


def test_the_same_content_under_ever_new_urls_ends(walker: tuple[ShellUser, SmallSite, SmallSite]) -> None:
    user, site, _ = walker
    site.pages["/"] = page("start", "/maze/")
    site.default = (200, {}, MAZE)
    done = user.shoal(
        "run", "walk.py", "-o", "same.jsonl", "--allow-private", "--workers", "1", "--max-same-content", "5"
    )
    assert done.code == 0, done.err
    assert 6 <= len(user.lines("same.jsonl")) <= 1 + 1 + 5 * 3
    assert user.ask("runs")[0]["skipped"]["trap"] > 0
