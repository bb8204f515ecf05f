"""Fetchers around the shelf: what is kept can be had again, what has not changed is not sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from desk import HOME, Desk, html

from shoal.core.page import Request, Response
from shoal.core.task import Leased, Outcome
from shoal.core.url import lane_of, request_digest
from shoal.errors import FetchRefused
from shoal.fetch.raw import KEPT, Fetcher, KeepingFetcher, ReplayFetcher, RevalidatingFetcher, key_of
from shoal.store.raw import RawShelf
from shoal.worker.process import process

B = "http://a.test/b"


class Web:
    """A fetcher with one answer for every address; what went out can be looked at."""

    def __init__(self) -> None:
        self.answers: dict[str, Response] = {}
        self.sent: list[Request] = []
        self.stalled = 0.0
        self.closed = False

    async def fetch(self, request: Request) -> Response:
        self.sent.append(request)
        answer = self.answers[request.url]
        etag = answer.header("etag")
        known = dict(request.headers).get("if-none-match")
        if etag and known == etag:
            news = (("etag", etag), ("date", "later"), ("content-length", "0"), ("set-cookie", "a=b"))
            return Response(request.url, 304, news, b"", 0.5, "127.0.0.2")
        return msgspec.structs.replace(answer, url=request.url)

    def note_stall(self, seconds: float) -> None:
        self.stalled += seconds

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[RawShelf]:
    shelf = RawShelf(tmp_path)
    yield shelf
    shelf.close()


@pytest.fixture
def web() -> Web:
    return Web()


def page(body: bytes = b"<p>one</p>", status: int = 200, **headers: str) -> Response:
    names = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response(HOME, status, (("date", "now"), ("content-type", "text/html"), *names), body)


# The identity of a request


def test_a_plain_get_is_kept_under_the_digest_of_its_task() -> None:
    assert key_of(Request(HOME)) == request_digest(HOME)


def test_what_is_not_a_plain_get_is_kept_under_the_key_it_brings() -> None:
    assert key_of(Request(HOME, "POST", key=b"k" * 16)) == b"k" * 16
    assert key_of(Request(HOME, timeout=1.0, proxy="http://proxy.test:1")) == key_of(Request(HOME))
    assert key_of(Request(HOME)) != key_of(Request(B))


# Keeping and replaying


@pytest.mark.parametrize(
    ("status", "kept"),
    [(200, True), (206, True), (302, True), (404, True), (500, True), (429, False), (503, False)],
)
async def test_every_answer_is_kept_but_those_that_only_ask_for_patience(
    web: Web, shelf: RawShelf, status: int, kept: bool
) -> None:
    web.answers[HOME] = page(status=status)
    assert (await KeepingFetcher(web, shelf, "R").fetch(Request(HOME))).status == status
    await shelf.sync()
    assert shelf.has("R", request_digest(HOME)) is kept


async def test_a_handler_that_fetches_without_end_does_not_fill_the_memory(web: Web, shelf: RawShelf) -> None:
    fetcher = KeepingFetcher(web, shelf, "R")
    most = 0
    for number in range(12):
        url = f"{HOME}{number}"
        web.answers[url] = page(bytes([number]) * 3_000_000)
        await fetcher.fetch(Request(url))
        most = max(most, shelf._bytes)
    assert most < 15_000_000


async def test_what_was_not_kept_is_refused_and_nobody_is_asked(shelf: RawShelf) -> None:
    with pytest.raises(FetchRefused, match=r"run R did not keep http://a\.test/") as refused:
        await ReplayFetcher(shelf, "R").fetch(Request(HOME))
    assert refused.value.cause == "not_kept"


@pytest.mark.parametrize("wrap", [lambda web, shelf: KeepingFetcher(web, shelf, "R"), RevalidatingFetcher])
async def test_stalls_and_the_end_reach_the_fetcher_within(
    web: Web, shelf: RawShelf, wrap: Callable[[Fetcher, RawShelf], Fetcher]
) -> None:
    fetcher = wrap(web, shelf)
    fetcher.note_stall(2.0)
    await fetcher.close()
    assert web.stalled == 2.0 and web.closed


async def _process(desk: Desk, fetcher: Any, url: str = HOME, **task: Any) -> Outcome:
    tools = desk.tools()
    tools.fetcher = fetcher
    return await process(Leased(id=7, lease=9, run=1, lane=lane_of(url), url=url, **task), tools, 100.0)


def _told(outcome: Outcome) -> tuple[Any, ...]:
    """All of an outcome but its times."""
    return (
        outcome.result,
        outcome.cause,
        outcome.records,
        [(task.url, task.parent) for task in outcome.found],
        outcome.skipped,
        outcome.same_as,
        outcome.attempt and (outcome.attempt.status, outcome.attempt.size),
    )


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.answers[HOME] = html('<h1>Home</h1><a href="/b">b</a>')
    desk.answers[B] = html("", 302, location="/c")
    desk.answers["http://a.test/c"] = html("<h1>There</h1>")
    desk.answers["http://a.test/gone"] = html("nothing", 404)

    @desk.handler
    def every(page: Any) -> Any:
        yield {"title": page.css("h1::text").get(), "url": page.url, "from": list(page.response.redirects)}
        yield from page.follow()

    return desk


@pytest.mark.parametrize(
    ("url", "end"),
    [
        (HOME, ("done", "", 1)),
        (B, ("done", "", 1)),
        ("http://a.test/c", ("done", "", 1)),
        ("http://a.test/gone", ("dead", "http.404", 0)),
    ],
)
async def test_a_task_comes_to_the_same_end_from_the_shelf(
    desk: Desk, shelf: RawShelf, url: str, end: tuple[str, str, int]
) -> None:
    live = await _process(desk, KeepingFetcher(desk, shelf, "R"), url)
    assert (live.result, live.cause, len(live.records)) == end
    await shelf.sync()
    desk.answers.clear()
    again = await _process(desk, ReplayFetcher(shelf, "R"), url)
    assert _told(again) == _told(live)


async def test_the_target_of_a_redirect_is_kept_as_a_page_of_its_own(desk: Desk, shelf: RawShelf) -> None:
    await _process(desk, KeepingFetcher(desk, shelf, "R"), B)
    await shelf.sync()
    again = await _process(desk, ReplayFetcher(shelf, "R"), "http://a.test/c")
    assert again.records == (b'{"title":"There","url":"http://a.test/c","from":[]}',)


async def test_a_page_that_was_not_kept_is_dead_with_that_cause(desk: Desk, shelf: RawShelf) -> None:
    outcome = await _process(desk, ReplayFetcher(shelf, "R"), HOME)
    assert (outcome.result, outcome.cause) == ("dead", "not_kept")


async def test_a_page_whose_handler_failed_is_kept_for_a_better_handler(shelf: RawShelf) -> None:
    desk = Desk()
    desk.answers[HOME] = html("<h1>Home</h1>")
    desk.handler(lambda page: [{"n": 1 / 0}])
    assert (await _process(desk, KeepingFetcher(desk, shelf, "R"))).cause == "handler.ZeroDivisionError"
    await shelf.sync()
    better = Desk()
    better.handler(lambda page: [{"h": page.css("h1::text").get()}])
    assert (await _process(better, ReplayFetcher(shelf, "R"))).records == (b'{"h":"Home"}',)


async def test_extra_requests_of_a_handler_are_kept_too(shelf: RawShelf) -> None:
    desk = Desk()
    desk.answers[HOME] = html("<h1>Home</h1>")
    desk.answers[B] = html('{"stock": 3}')

    @desk.handler
    async def every(page: Any) -> Any:
        more = await page.fetch("/b")
        return [{"more": more.body.decode()}]

    live = await _process(desk, KeepingFetcher(desk, shelf, "R"))
    await shelf.sync()
    desk.answers.clear()
    again = await _process(desk, ReplayFetcher(shelf, "R"))
    assert again.records == live.records == (b'{"more":"{\\"stock\\": 3}"}',)


async def test_links_to_what_was_not_kept_can_be_told_from_the_others(web: Web, shelf: RawShelf) -> None:
    web.answers[HOME] = page()
    await KeepingFetcher(web, shelf, "R").fetch(Request(HOME))
    await shelf.sync()
    replay = ReplayFetcher(shelf, "R")
    assert replay.knows("a.test", HOME) and not replay.knows("a.test", B)


# Asking only for what has changed


async def _kept(web: Web, shelf: RawShelf, answer: Response, run: str = "R") -> None:
    web.answers[HOME] = answer
    await KeepingFetcher(web, shelf, run).fetch(Request(HOME))
    await shelf.sync()
    web.sent.clear()


async def test_a_page_that_did_not_change_is_taken_from_the_shelf(web: Web, shelf: RawShelf) -> None:
    await _kept(web, shelf, page(b"<p>long</p>" * 100, etag='"1"', x_old="yes"))
    got = await RevalidatingFetcher(web, shelf).fetch(Request(HOME))
    assert web.sent[0].headers == (("if-none-match", '"1"'),)
    assert (got.status, got.body, got.address, got.seconds) == (200, b"<p>long</p>" * 100, "127.0.0.2", 0.5)
    assert got.header(KEPT) == "revalidated"
    assert (got.header("date"), got.header("x-old"), got.header("content-type")) == (
        "later",
        "yes",
        "text/html",
    )
    assert got.header("set-cookie") == "a=b"


async def test_a_page_that_changed_comes_over_the_wire(web: Web, shelf: RawShelf) -> None:
    await _kept(web, shelf, page(b"old", etag='"1"'))
    web.answers[HOME] = page(b"new", etag='"2"')
    got = await RevalidatingFetcher(web, shelf).fetch(Request(HOME))
    assert (got.status, got.body, got.header(KEPT)) == (200, b"new", "")


async def test_a_revalidated_page_is_kept_for_its_run_and_revalidated_again(
    web: Web, shelf: RawShelf
) -> None:
    await _kept(web, shelf, page(b"same", etag='"1"'))
    for run in ("S", "T"):
        fetcher = KeepingFetcher(RevalidatingFetcher(web, shelf), shelf, run)
        live = await fetcher.fetch(Request(HOME))
        await shelf.sync()
        again = shelf.get(run, request_digest(HOME))
        assert again is not None and again.body == b"same"
        assert [value for name, value in again.headers if name == KEPT] == ["revalidated"]
        assert live.status == again.status == 200
    assert shelf.size().bodies == 1
    await shelf.remove("R")
    assert (await fetcher.fetch(Request(HOME))).header(KEPT) == "revalidated"


@pytest.mark.parametrize(
    ("answer", "conditions"),
    [
        (page(etag='"1"'), ("if-none-match",)),
        (page(etag='W/"1"'), ("if-none-match",)),
        (page(last_modified="Mon"), ("if-modified-since",)),
        (page(etag='"1"', last_modified="Mon"), ("if-none-match", "if-modified-since")),
        (page(etag='"1"', vary="Accept-Encoding, User-Agent"), ("if-none-match",)),
        (page(etag='"1"', cache_control="no-cache, max-age=0"), ("if-none-match",)),
        (page(), ()),
        (page(etag='"1"', cache_control="max-age=0, No-Store"), ()),
        (page(etag='"1"', vary="*"), ()),
        (page(etag='"1"', vary="Accept, Cookie"), ()),
        (page(status=404, etag='"1"'), ()),
        (page(status=206, etag='"1"'), ()),
    ],
)
async def test_only_an_answer_that_allows_it_is_asked_after(
    web: Web, shelf: RawShelf, answer: Response, conditions: tuple[str, ...]
) -> None:
    await _kept(web, shelf, answer)
    await RevalidatingFetcher(web, shelf).fetch(Request(HOME))
    assert tuple(name for name, _ in web.sent[0].headers) == conditions


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (Request(HOME), True),
        (Request(HOME, headers=(("cookie", "a=b"),)), True),
        (Request(HOME, headers=(("authorization", "x"),)), False),
        (Request(HOME, headers=(("accept-language", "de"),)), True),  # it does not vary by that
        (Request(HOME, headers=(("range", "bytes=0-1"),)), False),
        (Request(HOME, "POST"), False),
        (Request(HOME, "HEAD"), False),
        (Request(HOME, body=b"x"), False),
    ],
)
async def test_only_the_same_plain_request_is_asked_after(
    web: Web, shelf: RawShelf, request_: Request, asked: bool
) -> None:
    await _kept(web, shelf, page(etag='"1"'))
    await RevalidatingFetcher(web, shelf).fetch(request_)
    assert ("if-none-match" in dict(web.sent[0].headers)) is asked


async def test_a_private_page_is_not_asked_after_with_a_login(web: Web, shelf: RawShelf) -> None:
    await _kept(web, shelf, page(etag='"1"', cache_control="private"))
    await RevalidatingFetcher(web, shelf).fetch(Request(HOME, headers=(("cookie", "a=b"),)))
    assert dict(web.sent[0].headers) == {"cookie": "a=b"}


@pytest.mark.parametrize(("vary", "asked"), [("Accept-Language", False), ("Accept-Encoding", True)])
async def test_a_page_that_depends_on_what_we_say_is_asked_for_whole(
    web: Web, shelf: RawShelf, vary: str, asked: bool
) -> None:
    web.answers[HOME] = page(etag='"1"', vary=vary)
    german = Request(HOME, headers=(("Accept-Language", "de"),))
    fetcher = KeepingFetcher(RevalidatingFetcher(web, shelf), shelf, "R")
    for _ in range(2):
        await fetcher.fetch(german)
        await shelf.sync()
    assert ("if-none-match" in dict(web.sent[1].headers)) is asked


async def test_a_handlers_own_condition_gets_its_own_304(web: Web, shelf: RawShelf) -> None:
    await _kept(web, shelf, page(etag='"1"'))
    mine = Request(HOME, headers=(("if-none-match", '"1"'),))
    assert (await RevalidatingFetcher(web, shelf).fetch(mine)).status == 304
    assert web.sent == [mine]


async def test_a_handlers_own_condition_is_sent_as_it_is(web: Web, shelf: RawShelf) -> None:
    web.answers[HOME] = page(etag='"2"')
    mine = Request(HOME, headers=(("if-none-match", '"1"'),))
    fetcher = KeepingFetcher(RevalidatingFetcher(web, shelf), shelf, "R")
    for _ in range(2):
        assert (await fetcher.fetch(mine)).header(KEPT) == ""
        await shelf.sync()
    assert web.sent == [mine, mine]


async def test_a_damaged_page_is_asked_for_whole(web: Web, shelf: RawShelf) -> None:
    await _kept(web, shelf, page(etag='"1"'))
    shelf._file.db.execute("UPDATE block SET crc = crc + 1")
    got = await RevalidatingFetcher(web, shelf).fetch(Request(HOME))
    assert (got.status, web.sent[0].headers) == (200, ())
