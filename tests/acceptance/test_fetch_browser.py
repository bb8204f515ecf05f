"""Pages by a real browser: what comes back, what is shared, what is bounded, who makes room for whom."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from rendering import TRICKS, RenderedSite, browser_fetcher, need_browser, rendered_site, visit_of
from servers.ports import free_port
from wait import until

from shoal.core.browser_step import BrowserStep
from shoal.core.page import Request
from shoal.errors import FetchFailed, FetchRefused, GiveUp, ProxyFailed
from shoal.fetch.base import LivePage, VisitUsage
from shoal.fetch.browser.fetcher import BrowserFetcher
from shoal.fetch.browser.program import find_program
from shoal.fetch.browser.tab import Tab
from shoal.fetch.cookies import Cookie, CookieJar
from shoal.fetch.exits.options import ExitOptions

pytestmark = pytest.mark.timeout(300)


def paths(site: RenderedSite) -> list[str]:
    return [path for path, _ in site.requests]


async def test_a_page_is_read_as_its_scripts_have_made_it() -> None:
    async with rendered_site() as site, browser_fetcher(site, user_agent="books/1") as fetcher:
        live = await fetcher.visit(visit_of(f"{site.origin}/page/1", "wait .item"))
        assert live.response.status == 200
        assert live.response.body.count(b'class="item"') == 20
        assert live.response.header("content-type") == "text/html; charset=utf-8"
        assert live.console_errors == ("a mistake of the page",)
        [answer] = await live.responses("*/api/*")
        assert answer.body.startswith(b"[0, 1, ")
        assert (await live.screenshot()).startswith(b"\x89PNG")
        assert (await live.pdf()).startswith(b"%PDF")
        assert all("User-Agent: books/1\r\n" in head for _, head in site.requests)
        await live.close()


STEPS: list[tuple[str, list[str], bytes]] = [
    ("/page/1", ["wait .item", "scroll"], b"item 59<"),
    ("/page/1", ["wait .item", "scroll 1"], b"item 20<"),
    ("/page/1", ["wait .item", "more #more until #item-45"], b"item 45<"),
    ("/still/1", ["wait .item", "click #more", "wait #item-20"], b"item 20<"),  # where nothing moves
    ("/search", ["fill #q = red shoes", "press Enter in #q"], b'<p id="result">red shoes</p>'),
    ("/search", ["click #q", "press a", "press Enter", "wait idle"], b'<p id="result">a</p>'),
]


async def test_steps_are_taken_before_a_page_is_read() -> None:
    async with rendered_site() as site, browser_fetcher(site) as fetcher:

        async def body_after(path: str, steps: list[str]) -> bytes:
            live = await fetcher.visit(visit_of(f"{site.origin}{path}", *steps))
            await live.close()
            return live.response.body

        bodies = await asyncio.gather(*(body_after(path, steps) for path, steps, _ in STEPS))
        assert [steps for body, (_, steps, expected) in zip(bodies, STEPS, strict=True) if expected not in body] == []


async def test_a_step_that_can_be_taken_on_no_page_is_not_tried_again() -> None:
    async with rendered_site() as site, browser_fetcher(site) as fetcher:
        for wrong in ("click ((", "wait #1", "more a:nope", "fill a{} = x", "press Enter in //a"):
            with pytest.raises(GiveUp) as caught:
                await fetcher.visit(visit_of(f"{site.origin}/page/1", "wait .item", wrong))
            assert caught.value.cause == "bad_request"
            assert f"step 2 ({wrong}) cannot be taken: " in str(caught.value)


async def test_what_is_asked_for_is_what_is_said() -> None:
    """One browser for all that needs none of its own."""
    async with rendered_site() as site, browser_fetcher(site, max_body=100_000) as fetcher:
        # JSON comes as it was sent, an error is an answer, a redirect says where it led.
        live = await fetcher.visit(visit_of(f"{site.origin}/data.json"))
        assert (live.response.body, live.response.header("content-type")) == (b'{"a": 1}', "application/json")
        await live.close()
        live = await fetcher.visit(visit_of(f"{site.origin}/gone"))
        assert live.response.status == 404
        await live.close()
        live = await fetcher.visit(visit_of(f"{site.origin}/moved"))
        assert live.response.url == f"{site.origin}/page/1"
        assert live.response.redirects == (f"{site.origin}/moved",)
        await live.close()
        # Every navigation asks first, and what it is told to send goes to that origin alone.
        asked = []

        async def navigate(url: str) -> Request:
            asked.append(url)
            if "/private/" in url:
                raise FetchRefused("robots", "it is disallowed")
            return Request(url, headers=(("X-Own", "secret"), ("Cookie", "not=this")))

        with pytest.raises(FetchRefused) as caught:
            await fetcher.visit(visit_of(f"{site.origin}/to-private", navigate=navigate))
        assert caught.value.cause == "robots"
        assert asked == [f"{site.origin}/to-private", f"{site.origin}/private/1"]
        assert "/private/1" not in paths(site)
        live = await fetcher.visit(visit_of(f"{site.origin}/page/9", "wait .item", navigate=navigate))
        await live.close()
        own = {path: "X-Own: secret" in head for path, head in site.requests[-2:]}
        assert own == {"/page/9": True, "/api/items?page=0": False}

        # What a page loads from its own host is counted where that is asked for.
        counted = replace(visit_of(f"{site.origin}/page/1", "wait .item"), counts_subrequests=True)
        live = await fetcher.visit(counted)
        await live.close()
        assert live.subrequests == 1

        # A run that goes through a proxy does not go without it, nor by another one after a redirect.
        site.requests.clear()
        nowhere = f"http://127.0.0.1:{free_port()}"

        async def proxied(url: str) -> Request:
            return Request(url, proxy=nowhere)

        async def proxied_later(url: str) -> Request:
            return Request(url, proxy="" if url.endswith("/moved") else nowhere)

        with pytest.raises(ProxyFailed, match="cannot be connected to"):
            await fetcher.visit(visit_of(f"{site.origin}/page/1", navigate=proxied))
        assert site.requests == []
        with pytest.raises(FetchRefused) as caught:
            await fetcher.visit(visit_of(f"{site.origin}/moved", navigate=proxied_later))
        assert caught.value.cause == "blocked.proxy"
        assert paths(site) == ["/moved"]
        # A step that cannot be taken says which.
        with pytest.raises(FetchFailed, match=r"step 2 \(click #none\)"):
            await fetcher.visit(visit_of(f"{site.origin}/search", "wait #q", "click #none"))


async def fetch_pictures(fetcher: BrowserFetcher, site: RenderedSite) -> None:
    """Neither images nor films nor fonts are asked for."""
    site.requests.clear()
    live = await fetcher.visit(visit_of(f"{site.origin}/pictures", "wait idle"))
    await live.close()
    assert {path for path in paths(site) if path != "/favicon.ico"} == {"/pictures", "/last.js"}


async def test_images_films_and_fonts_are_not_loaded() -> None:
    async with rendered_site() as site, browser_fetcher(site) as fetcher:
        await fetch_pictures(fetcher, site)


async def test_a_form_is_sent_as_its_page_says() -> None:
    async with rendered_site() as site, browser_fetcher(site) as fetcher:
        steps = ("fill #q = shoes", "press Enter in #q", "wait .item")
        live = await fetcher.visit(visit_of(f"{site.origin}/form", *steps))
        await live.close()
        sent = [(head.partition(" HTTP/")[0], head.partition("\r\n\r\n")[2]) for _, head in site.requests]
        assert sent[:3] == [("GET /form", ""), ("POST /to-posted", "q=shoes"), ("GET /posted", "")]


async def test_answers_that_are_no_page_are_told_as_what_they_are() -> None:
    async with rendered_site() as site, browser_fetcher(site) as fetcher:
        nothing = await fetcher.visit(visit_of(f"{site.origin}/nothing"))
        assert (nothing.response.status, nothing.response.body) == (204, b"")
        assert nothing.response.url == f"{site.origin}/nothing"
        await nothing.close()
        again = await fetcher.visit(visit_of(f"{site.origin}/refreshed"))
        assert (again.response.status, again.response.url) == (200, f"{site.origin}/refreshed")
        assert b"<h1>again</h1>" in again.response.body  # and no error page: it stays where it was refused more
        await again.close()
        with pytest.raises(FetchRefused) as refused:
            await fetcher.visit(visit_of(f"{site.origin}/to-ftp"))
        assert refused.value.cause == "redirects"


async def test_page_that_goes_elsewhere_while_it_is_read_is_read_where_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    read, leaving = Tab._read, []

    async def read_late(tab: Tab, max_length: int) -> tuple[str, str | None]:
        if not leaving:  # its process is busy until the next document, of another site, has come in its place
            leaving.append(asyncio.create_task(tab.page.goto(f"{site.canary}/next")))
            await tab.devtools.send("Runtime.evaluate", {"expression": "for (;;);"})
        return await read(tab, max_length)

    monkeypatch.setattr(Tab, "_read", read_late)
    async with rendered_site() as site, browser_fetcher(site, "127.0.0.1") as fetcher:
        live = await fetcher.visit(visit_of(f"{site.origin}/page/1"))
        assert live.response.url == f"{site.canary}/next"
        assert ("access-control-allow-origin", "*") in live.response.headers  # of that one too
        await asyncio.gather(*leaving)
        await live.close()


async def test_page_stays_where_it_was_when_a_step_is_refused_and_fails_where_nothing_comes() -> None:
    asked = []

    async def navigate(url: str) -> Request:
        asked.append(url)
        if "/private/" in url:
            raise FetchRefused("robots", "it is disallowed")
        return Request(url)

    async with rendered_site() as site, browser_fetcher(site) as fetcher:
        live = await fetcher.visit(visit_of(f"{site.origin}/links", navigate=navigate))
        await live.perform([BrowserStep("click", at="#private")])
        await until(lambda: f"{site.origin}/private/1" in asked)
        response = await live.perform([BrowserStep("wait", at="#private")])
        assert (response.url, response.status) == (f"{site.origin}/links", 200)
        with pytest.raises(FetchFailed, match=f"it went to {site.origin}/silent, which the browser cannot load"):
            await live.perform([BrowserStep("click", at="#silent")])
            while True:
                await live.perform([])
        await live.close()


async def test_all_that_a_page_transfers_is_counted_also_if_it_fails() -> None:
    home = ExitOptions("home")

    async def navigate(url: str) -> Request:
        return Request(url, exit="home")

    async with rendered_site() as site, browser_fetcher(site, exits=[home], page_bytes=2_000_000) as fetcher:

        async def visit(path: str, *steps: str) -> tuple[LivePage, VisitUsage]:
            usage = usages[path] = VisitUsage()
            request = visit_of(f"{site.origin}{path}", *steps, navigate=navigate)
            return await fetcher.visit(replace(request, usage=usage)), usage

        usages: dict[str, VisitUsage] = {}
        live, usage = await visit("/still/1", "wait .item")
        usage.look()
        read = usage.bytes
        assert read > len(live.response.body) // 2
        await live.perform([BrowserStep("click", at="#more"), BrowserStep("wait", at="#item-20")])
        await live.close()
        assert usage.bytes > read
        flood = f"/trick/{[trick.name for trick in TRICKS].index('a flood')}"
        with pytest.raises(FetchRefused):
            await visit(flood)
        assert usages[flood].bytes > 2_000_000


async def test_cookies_are_those_of_the_session_and_go_both_ways() -> None:
    jar, other = CookieJar(), CookieJar()
    async with rendered_site() as site, browser_fetcher(site) as fetcher:
        host = site.origin.removeprefix("http://").partition(":")[0]
        jar.put([Cookie("plain", "1", host, "/", True, False, None, 0)], 0.0)
        live = await fetcher.visit(visit_of(f"{site.origin}/moved", "wait .item", session="a", cookies=jar))
        await live.close()
        first = site.requests[0][1]
        assert "Cookie: plain=1\r\n" in first
        assert {cookie.name: cookie.value for cookie in jar} == {"plain": "1", "moved": "yes", "seen": "1"}
        # A plain request says otherwise, then the browser is asked again.
        jar.put([Cookie("moved", "no", host, "/", True, False, None, 0)], 0.0)
        jar.put([Cookie("plain", "", host, "/", True, False, 0.0, 0)], 1.0)
        site.requests.clear()
        live = await fetcher.visit(visit_of(f"{site.origin}/page/2", "wait .item", session="a", cookies=jar))
        await live.close()
        assert "moved=no" in site.requests[0][1]
        assert "plain=1" not in site.requests[0][1]
        # Another session has nothing of it.
        site.requests.clear()
        live = await fetcher.visit(visit_of(f"{site.origin}/page/3", "wait .item", session="b", cookies=other))
        await live.close()
        assert "Cookie:" not in site.requests[0][1]


async def test_pages_are_bounded_and_reused_for_one_origin_only() -> None:
    async with rendered_site() as site, browser_fetcher(site, pages=2) as fetcher:

        async def visit(number: int) -> None:
            live = await fetcher.visit(visit_of(f"{site.origin}/page/{number}", session=""))
            assert len(fetcher.pool._busy) <= 2
            await live.close()

        await asyncio.gather(*(visit(number) for number in range(8)))
        sessions = list(fetcher.pool._idle)
        assert 1 <= len(sessions) <= 2
        assert all(session.tab is not None and session.tab.uses <= 5 for session in sessions)
        [browser] = fetcher.pool.browsers
        assert browser.pages == 8
        tab = sessions[-1].tab
        live = await fetcher.visit(visit_of(f"http://127.0.5.1:{site.port}/search"))
        assert tab is not None
        assert not tab.can_be_used_for("http://other.example")
        await live.close()


async def test_a_page_that_was_not_seen_to_end_is_not_used_again() -> None:
    async with rendered_site() as site, browser_fetcher(site) as fetcher:
        first = await fetcher.visit(visit_of(f"{site.origin}/page/1"))
        closing = asyncio.create_task(first.close())
        await asyncio.sleep(0)  # it has begun
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        second = await fetcher.visit(visit_of(f"{site.origin}/page/2"))
        assert second._session is not first._session
        await second.close()


async def test_a_browser_is_told_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_SECRET_SHOP", "hidden")
    async with rendered_site() as site, browser_fetcher(site) as fetcher:
        live = await fetcher.visit(visit_of(f"{site.origin}/page/1"))
        [browser] = fetcher.pool.browsers
        told = Path(f"/proc/{browser.pid}/environ").read_bytes()
        assert b"TMPDIR=" in told and b"hidden" not in told
        await live.close()


@pytest.fixture
async def secure_url(certificate: Path) -> AsyncIterator[str]:
    """Of a page that only a certificate of the test's own vouches for."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            body = b"<h1>secure</h1>"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n" + body)
            await writer.drain()
        writer.close()

    secured = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secured.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=secured)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()


async def test_sites_are_trusted_by_the_certificates_that_one_names(
    certificate: Path, secure_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    async with rendered_site() as site:
        allow = secure_url.removeprefix("https://").rstrip("/")
        async with browser_fetcher(site, allow) as fetcher:
            with pytest.raises(FetchFailed) as caught:
                await fetcher.visit(visit_of(secure_url))
            assert caught.value.cause == "tls"
        async with browser_fetcher(site, allow, ca_file=str(certificate / "cert.pem")) as fetcher:
            live = await fetcher.visit(visit_of(secure_url))
            assert b"<h1>secure</h1>" in live.response.body
            await live.close()
        async with browser_fetcher(site, allow, ca_file=str(tmp_path / "empty.pem")) as fetcher:
            with pytest.raises(FetchFailed) as caught:
                await fetcher.visit(visit_of(secure_url))
            assert caught.value.cause == "tls"
            live = await fetcher.visit(visit_of(f"{site.origin}/page/1"))
            await live.close()
    [said] = [record for record in caplog.records if record.msg == "browser_without_ca_file"]
    assert "empty.pem holds no certificate" in said.__dict__["why"]


async def test_a_browser_makes_room_for_a_successor_that_has_started_before() -> None:
    async with rendered_site() as site, browser_fetcher(site, pages=2, retire_pages=3) as fetcher:
        seen: set[int] = set()
        for number in range(12):
            live = await fetcher.visit(visit_of(f"{site.origin}/page/{number}"))
            assert fetcher.pool._current is not None
            seen.add(fetcher.pool._current.pid)
            await live.close()
            if fetcher.pool._replacing is not None:
                await fetcher.pool._replacing
        assert len(seen) >= 3
        assert len(fetcher.pool.browsers) <= 2


async def test_a_browser_that_dies_is_replaced_and_its_pages_fail_to_be_tried_again() -> None:
    async with rendered_site() as site, browser_fetcher(site) as fetcher:
        live = await fetcher.visit(visit_of(f"{site.origin}/page/1"))
        [browser] = fetcher.pool.browsers
        os.kill(browser.pid, signal.SIGKILL)
        with pytest.raises(FetchFailed) as caught:
            await live.perform(visit_of("", "wait #never").steps)
        assert caught.value.cause == "browser"
        await live.close()
        live = await fetcher.visit(visit_of(f"{site.origin}/page/2"))
        assert live.response.status == 200
        await live.close()


async def test_a_browser_elsewhere_is_used_by_its_endpoint_and_said_to_be_unguarded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    need_browser()
    command = [find_program(), "--headless", "--no-sandbox", "--remote-debugging-port=0", f"--user-data-dir={tmp_path}"]
    elsewhere = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        port = (await until((tmp_path / "DevToolsActivePort").exists)) and await until(lambda: devtools_port(tmp_path))
        async with rendered_site() as site, browser_fetcher(site, browser=f"http://127.0.0.1:{port}") as fetcher:
            live = await fetcher.visit(visit_of(f"{site.origin}/page/1", "wait .item"))
            assert live.response.body.count(b'class="item"') == 20
            await live.close()
            await fetch_pictures(fetcher, site)
        assert "browser_unguarded" in caplog.messages
        assert elsewhere.returncode is None
    finally:
        elsewhere.kill()
        await elsewhere.wait()


def devtools_port(profile: Path) -> str:
    return (profile / "DevToolsActivePort").read_text().partition("\n")[0]
