"""Fetchers around the raw store: what is stored can be replayed, what has not changed is not sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from auto_harness import FULL, SHELL, AutoHarness
from pipeline_harness import HOME, PipelineHarness, html

from shoal.core.page import Request, Response
from shoal.core.task import LeasedTask, Outcome, RequestOptions
from shoal.core.url import lane_of, request_digest
from shoal.errors import FetchRefused
from shoal.extract.scraper import Scraper
from shoal.fetch.raw_pages import (
    STORED_HEADER,
    Fetcher,
    RecordingFetcher,
    ReplayFetcher,
    RevalidatingFetcher,
    storage_key,
)
from shoal.store.raw.page_store import RawPageStore
from shoal.worker.task.pipeline import process_task

B = "http://a.test/b"
ITEM = "http://a.test/item/1"


class FakeWeb:
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
def store(tmp_path: Path) -> Iterator[RawPageStore]:
    store = RawPageStore(tmp_path)
    yield store
    store.close()


@pytest.fixture
def web() -> FakeWeb:
    return FakeWeb()


def page(body: bytes = b"<p>one</p>", status: int = 200, **headers: str) -> Response:
    names = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response(HOME, status, (("date", "now"), ("content-type", "text/html"), *names), body)


# The identity of a request


def test_a_plain_get_is_kept_under_the_digest_of_its_task() -> None:
    assert storage_key(Request(HOME)) == request_digest(HOME)


def test_what_is_not_a_plain_get_is_kept_under_the_key_it_brings() -> None:
    assert storage_key(Request(HOME, "POST", key=b"k" * 16)) == b"k" * 16
    assert storage_key(Request(HOME, timeout=1.0, proxy="http://proxy.test:1")) == storage_key(Request(HOME))
    assert storage_key(Request(HOME)) != storage_key(Request(B))


# Keeping and replaying


@pytest.mark.parametrize(
    ("status", "kept"), [(200, True), (206, True), (302, True), (404, True), (500, True), (429, False), (503, False)]
)
async def test_every_answer_is_kept_but_those_that_only_ask_for_patience(
    web: FakeWeb, store: RawPageStore, status: int, kept: bool
) -> None:
    web.answers[HOME] = page(status=status)
    assert (await RecordingFetcher(web, store, "R").fetch(Request(HOME))).status == status
    await store.sync()
    assert store.has("R", request_digest(HOME)) is kept


async def test_a_handler_that_fetches_without_end_does_not_fill_the_memory(web: FakeWeb, store: RawPageStore) -> None:
    fetcher = RecordingFetcher(web, store, "R")
    most = 0
    for number in range(12):
        url = f"{HOME}{number}"
        web.answers[url] = page(bytes([number]) * 3_000_000)
        await fetcher.fetch(Request(url))
        most = max(most, store._pending_bytes)
    assert most < 15_000_000


async def test_what_was_not_kept_is_refused_and_nobody_is_asked(store: RawPageStore) -> None:
    with pytest.raises(FetchRefused, match=r"run R did not save http://a\.test/") as refused:
        await ReplayFetcher(store, "R").fetch(Request(HOME))
    assert refused.value.cause == "not_kept"


@pytest.mark.parametrize("wrap", [lambda web, store: RecordingFetcher(web, store, "R"), RevalidatingFetcher])
async def test_stalls_and_the_end_reach_the_fetcher_within(
    web: FakeWeb, store: RawPageStore, wrap: Callable[[Fetcher, RawPageStore], Fetcher]
) -> None:
    fetcher = wrap(web, store)
    fetcher.note_stall(2.0)
    await fetcher.close()
    assert web.stalled == 2.0 and web.closed


async def _process(harness: PipelineHarness, fetcher: Any, url: str = HOME, **task: Any) -> Outcome:
    tools = harness.tools()
    tools.fetcher = fetcher
    return await process_task(LeasedTask(id=7, lease=9, run=1, lane=lane_of(url), url=url, **task), tools, 100.0)


def _told(outcome: Outcome) -> tuple[Any, ...]:
    """All of an outcome but its times."""
    return (
        outcome.result,
        outcome.cause,
        outcome.records,
        [(task.url, task.parent) for task in outcome.found],
        outcome.skipped,
        outcome.redirect_digest,
        outcome.attempt and (outcome.attempt.status, outcome.attempt.size),
    )


@pytest.fixture
def harness() -> PipelineHarness:
    harness = PipelineHarness()
    harness.answers[HOME] = html('<h1>Home</h1><a href="/b">b</a>')
    harness.answers[B] = html("", 302, location="/c")
    harness.answers["http://a.test/c"] = html("<h1>There</h1>")
    harness.answers["http://a.test/gone"] = html("nothing", 404)

    @harness.handler
    def every(page: Any) -> Any:
        yield {"title": page.css("h1::text").get(), "url": page.url, "from": list(page.response.redirects)}
        yield from page.follow()

    return harness


@pytest.mark.parametrize(
    ("url", "end"),
    [
        (HOME, ("done", "", 1)),
        (B, ("done", "", 1)),
        ("http://a.test/c", ("done", "", 1)),
        ("http://a.test/gone", ("dead", "http.404", 0)),
    ],
)
async def test_a_task_comes_to_the_same_end_from_the_raw_store(
    harness: PipelineHarness, store: RawPageStore, url: str, end: tuple[str, str, int]
) -> None:
    live = await _process(harness, RecordingFetcher(harness, store, "R"), url)
    assert (live.result, live.cause, len(live.records)) == end
    await store.sync()
    harness.answers.clear()
    again = await _process(harness, ReplayFetcher(store, "R"), url)
    assert _told(again) == _told(live)


async def test_the_target_of_a_redirect_is_kept_as_a_page_of_its_own(
    harness: PipelineHarness, store: RawPageStore
) -> None:
    await _process(harness, RecordingFetcher(harness, store, "R"), B)
    await store.sync()
    again = await _process(harness, ReplayFetcher(store, "R"), "http://a.test/c")
    assert again.records == (b'{"title":"There","url":"http://a.test/c","from":[]}',)


async def test_a_page_that_was_not_kept_is_dead_with_that_cause(harness: PipelineHarness, store: RawPageStore) -> None:
    outcome = await _process(harness, ReplayFetcher(store, "R"), HOME)
    assert (outcome.result, outcome.cause) == ("dead", "not_kept")


async def test_a_page_whose_handler_failed_is_kept_for_a_better_handler(store: RawPageStore) -> None:
    harness = PipelineHarness()
    harness.answers[HOME] = html("<h1>Home</h1>")
    harness.handler(lambda page: [{"n": 1 / 0}])
    assert (await _process(harness, RecordingFetcher(harness, store, "R"))).cause == "handler.ZeroDivisionError"
    await store.sync()
    better = PipelineHarness()
    better.handler(lambda page: [{"h": page.css("h1::text").get()}])
    assert (await _process(better, ReplayFetcher(store, "R"))).records == (b'{"h":"Home"}',)


async def test_extra_requests_of_a_handler_are_kept_too(store: RawPageStore) -> None:
    harness = PipelineHarness()
    harness.answers[HOME] = html("<h1>Home</h1>")
    harness.answers[B] = html('{"stock": 3}')

    @harness.handler
    async def every(page: Any) -> Any:
        more = await page.fetch("/b")
        return [{"more": more.body.decode()}]

    live = await _process(harness, RecordingFetcher(harness, store, "R"))
    await store.sync()
    harness.answers.clear()
    again = await _process(harness, ReplayFetcher(store, "R"))
    assert again.records == live.records == (b'{"more":"{\\"stock\\": 3}"}',)


async def test_links_to_what_was_not_kept_can_be_told_from_the_others(web: FakeWeb, store: RawPageStore) -> None:
    web.answers[HOME] = page()
    await RecordingFetcher(web, store, "R").fetch(Request(HOME))
    await store.sync()
    replay = ReplayFetcher(store, "R")
    assert replay.knows("a.test", HOME) and not replay.knows("a.test", B)


# Pages by a browser


@pytest.fixture
def rendering() -> AutoHarness:
    """A page that is empty until its scripts have run; its handler asks for a browser where it finds nothing."""
    harness = AutoHarness()
    harness.scraper = Scraper("s", HOME)
    harness.page(1, SHELL, FULL)

    @harness.handler
    async def read(page: Any) -> Any:
        if not page.css("li"):
            page.need_browser()
        yield {"items": len(page.css("li")), "url": page.url}
        yield page.follow("a")

    return harness


async def _saved(harness: AutoHarness, store: RawPageStore, fetching: str, task: dict[str, Any]) -> Outcome:
    recording = RecordingFetcher(harness, store, "R")
    harness.fetching, harness.options["record_rendered"] = fetching, recording.record_rendered
    harness.tools().fetcher = recording
    outcome = await harness.take(ITEM, **task)
    await store.sync()
    return outcome


async def _replayed(harness: AutoHarness, store: RawPageStore, task: dict[str, Any]) -> Outcome:
    harness._context = None
    harness.options |= {"renders": False, "record_rendered": None}
    harness.tools().fetcher = ReplayFetcher(store, "R")
    harness.rendered.clear()
    harness.answers.clear()
    return await harness.take(ITEM, **task)


@pytest.mark.parametrize("task", [{}, {"request_options": RequestOptions(fetch="browser", steps=("wait li",))}])
@pytest.mark.parametrize("fetching", ["browser", "auto", "http"])
async def test_a_page_that_a_browser_was_used_for_is_read_again_as_the_browser_gave_it(
    rendering: AutoHarness, store: RawPageStore, fetching: str, task: dict[str, Any]
) -> None:
    live = await _saved(rendering, store, fetching, task)
    assert live.records == (b'{"items":3,"url":"http://a.test/item/1"}',)
    again = await _replayed(rendering, store, task)
    assert again.records == live.records
    assert [task.url for task in again.found] == [task.url for task in live.found]


async def test_of_a_page_that_was_saved_nothing_more_can_be_asked(store: RawPageStore) -> None:
    harness = AutoHarness()
    harness.scraper = Scraper("s", HOME)
    harness.page(1)

    @harness.handler
    async def capture(page: Any) -> Any:
        yield {"image": len(await page.screenshot())} if not harness.rendered else {}

    assert (await _saved(harness, store, "browser", {})).result == "done"
    again = await _replayed(harness, store, {})
    assert again.attempt is not None and "is not open in a browser any more" in again.attempt.message


async def test_what_a_browser_gave_is_not_taken_for_what_the_site_says_has_not_changed(
    web: FakeWeb, store: RawPageStore
) -> None:
    web.answers[HOME] = page(b"shell", etag='"1"')
    await RecordingFetcher(web, store, "R").record_rendered(Request(HOME), page(b"rendered", etag='"1"'))
    await store.sync()
    assert (await RevalidatingFetcher(web, store).fetch(Request(HOME))).body == b"shell"


# Asking only for what has changed


async def _kept(web: FakeWeb, store: RawPageStore, answer: Response, run: str = "R") -> None:
    web.answers[HOME] = answer
    await RecordingFetcher(web, store, run).fetch(Request(HOME))
    await store.sync()
    web.sent.clear()


async def test_a_page_that_did_not_change_is_taken_from_the_raw_store(web: FakeWeb, store: RawPageStore) -> None:
    await _kept(web, store, page(b"<p>long</p>" * 100, etag='"1"', x_old="yes"))
    got = await RevalidatingFetcher(web, store).fetch(Request(HOME))
    assert web.sent[0].headers == (("if-none-match", '"1"'),)
    assert (got.status, got.body, got.address, got.seconds) == (200, b"<p>long</p>" * 100, "127.0.0.2", 0.5)
    assert got.header(STORED_HEADER) == "revalidated"
    assert (got.header("date"), got.header("x-old"), got.header("content-type")) == ("later", "yes", "text/html")
    assert got.header("set-cookie") == "a=b"


async def test_a_page_that_changed_comes_over_the_wire(web: FakeWeb, store: RawPageStore) -> None:
    await _kept(web, store, page(b"old", etag='"1"'))
    web.answers[HOME] = page(b"new", etag='"2"')
    got = await RevalidatingFetcher(web, store).fetch(Request(HOME))
    assert (got.status, got.body, got.header(STORED_HEADER)) == (200, b"new", "")


async def test_a_revalidated_page_is_kept_for_its_run_and_revalidated_again(web: FakeWeb, store: RawPageStore) -> None:
    await _kept(web, store, page(b"same", etag='"1"'))
    for run in ("S", "T"):
        fetcher = RecordingFetcher(RevalidatingFetcher(web, store), store, run)
        live = await fetcher.fetch(Request(HOME))
        await store.sync()
        again = store.get(run, request_digest(HOME))
        assert again is not None and again.body == b"same"
        assert [value for name, value in again.headers if name == STORED_HEADER] == ["revalidated"]
        assert live.status == again.status == 200
    assert store.size().bodies == 1
    await store.remove("R")
    assert (await fetcher.fetch(Request(HOME))).header(STORED_HEADER) == "revalidated"


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
    web: FakeWeb, store: RawPageStore, answer: Response, conditions: tuple[str, ...]
) -> None:
    await _kept(web, store, answer)
    await RevalidatingFetcher(web, store).fetch(Request(HOME))
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
    web: FakeWeb, store: RawPageStore, request_: Request, asked: bool
) -> None:
    await _kept(web, store, page(etag='"1"'))
    await RevalidatingFetcher(web, store).fetch(request_)
    assert ("if-none-match" in dict(web.sent[0].headers)) is asked


async def test_a_private_page_is_not_asked_after_with_a_login(web: FakeWeb, store: RawPageStore) -> None:
    await _kept(web, store, page(etag='"1"', cache_control="private"))
    await RevalidatingFetcher(web, store).fetch(Request(HOME, headers=(("cookie", "a=b"),)))
    assert dict(web.sent[0].headers) == {"cookie": "a=b"}


@pytest.mark.parametrize(("vary", "asked"), [("Accept-Language", False), ("Accept-Encoding", True)])
async def test_a_page_that_depends_on_what_we_say_is_asked_for_whole(
    web: FakeWeb, store: RawPageStore, vary: str, asked: bool
) -> None:
    web.answers[HOME] = page(etag='"1"', vary=vary)
    german = Request(HOME, headers=(("Accept-Language", "de"),))
    fetcher = RecordingFetcher(RevalidatingFetcher(web, store), store, "R")
    for _ in range(2):
        await fetcher.fetch(german)
        await store.sync()
    assert ("if-none-match" in dict(web.sent[1].headers)) is asked


async def test_a_handlers_own_condition_gets_its_own_304(web: FakeWeb, store: RawPageStore) -> None:
    await _kept(web, store, page(etag='"1"'))
    mine = Request(HOME, headers=(("if-none-match", '"1"'),))
    assert (await RevalidatingFetcher(web, store).fetch(mine)).status == 304
    assert web.sent == [mine]


async def test_a_handlers_own_condition_is_sent_as_it_is(web: FakeWeb, store: RawPageStore) -> None:
    web.answers[HOME] = page(etag='"2"')
    mine = Request(HOME, headers=(("if-none-match", '"1"'),))
    fetcher = RecordingFetcher(RevalidatingFetcher(web, store), store, "R")
    for _ in range(2):
        assert (await fetcher.fetch(mine)).header(STORED_HEADER) == ""
        await store.sync()
    assert web.sent == [mine, mine]


async def test_a_damaged_page_is_asked_for_whole(web: FakeWeb, store: RawPageStore) -> None:
    await _kept(web, store, page(etag='"1"'))
    store._file.db.execute("UPDATE block SET crc = crc + 1")
    got = await RevalidatingFetcher(web, store).fetch(Request(HOME))
    assert (got.status, web.sent[0].headers) == (200, ())
