"""Redirects, credentials and requests of a handler's own, as one task sees them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from pipeline_harness import HOME, PipelineHarness, html
from wait import HANG

from shoal.core.lane import Slot
from shoal.core.page import Request, Response
from shoal.core.task import LaneChange, LeasedTask, RequestOptions
from shoal.core.url import UrlNormalizer, request_digest
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.auth import authorization_header
from shoal.fetch.cookies import CookieJars
from shoal.politeness.robots import RobotsVerdict
from shoal.worker.context import WorkerContext
from shoal.worker.task.handler_runner import handler_task_factory
from shoal.worker.task.pipeline import process_task
from shoal.worker.task.request_builder import RequestBuilder

LEASED = LeasedTask(id=7, lease=9, run=1, lane="a.test", url=HOME)


class RecordingHarness(PipelineHarness):
    """A harness that records every request as sent and may give one URL several answers in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Request] = []
        self.request_builder: dict[str, Any] = {}
        self.distinct = True
        self.rewrite: UrlNormalizer | None = None

    async def fetch(self, request: Request) -> Response:
        self.sent.append(request)
        answer = self.answers[request.url]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return msgspec.structs.replace(answer, url=request.url)

    def tools(self) -> WorkerContext:
        tools = super().tools()
        request_builder = RequestBuilder(authorization_header=authorization_header, **self.request_builder)

        async def serve(run: int) -> Any:
            import dataclasses

            return dataclasses.replace(
                await plain(run), request_builder=request_builder, distinct=self.distinct, rewrite=self.rewrite
            )

        plain = tools.build_run_context
        tools.build_run_context = serve
        return tools

    def headers(self, number: int) -> dict[str, str]:
        return {name.lower(): value for name, value in self.sent[number].headers}


@pytest.fixture
def harness() -> RecordingHarness:
    harness = RecordingHarness()
    harness.answers[HOME] = html()
    return harness


def moved(to: str, status: int = 302, **headers: str) -> Response:
    return html("", status, location=to, **headers)


async def test_a_task_goes_out_as_it_was_asked_for(harness: RecordingHarness) -> None:
    request_options = RequestOptions("POST", (("x-a", "1"),), b"body")
    assert (await harness.run(request_options=request_options)).result == "done"
    (request,) = harness.sent
    assert (request.method, request.body, harness.headers(0)) == ("POST", b"body", {"x-a": "1"})


async def test_a_post_that_is_redirected_becomes_a_get(harness: RecordingHarness) -> None:
    harness.answers |= {HOME: moved("/b", 303), "http://a.test/b": html()}
    await harness.run(request_options=RequestOptions("POST", (), b"body"))
    assert [(it.method, it.body) for it in harness.sent] == [("POST", b"body"), ("GET", None)]


async def test_credentials_do_not_cross_to_another_origin(harness: RecordingHarness) -> None:
    harness.request_builder = {
        "secrets": {"shop": "me:pw", "own": "token"}, "auth": "shop",
        "is_own_origin": lambda origin: origin == "http://a.test",
    }  # fmt: skip
    harness.answers |= {
        HOME: moved("/b"), "http://a.test/b": moved("http://evil.test/"),
        "http://evil.test/": moved(HOME + "c"), "http://a.test/c": html(),
    }  # fmt: skip
    outcome = await harness.run(request_options=RequestOptions(headers=(("x-key", "1"),), auth="own"))
    assert outcome.result == "done"
    assert [harness.headers(n).get("authorization", "") for n in range(4)] == [
        "Bearer token", "Bearer token", "", "Bearer token",
    ]  # fmt: skip
    assert [harness.headers(n).get("x-key", "") for n in range(4)] == ["1", "1", "", "1"]


async def test_a_page_that_sets_a_cookie_and_comes_back_is_no_loop(harness: RecordingHarness) -> None:
    harness.request_builder = {"sessions": CookieJars()}
    harness.answers[HOME] = [moved(HOME, set_cookie="seen=1"), html()]
    assert (await harness.run()).result == "done"
    assert harness.headers(1) == {"cookie": "seen=1"}


async def test_a_redirect_to_itself_is_a_loop_found_at_once(harness: RecordingHarness) -> None:
    harness.request_builder = {"sessions": CookieJars()}
    harness.answers[HOME] = moved(HOME)
    outcome = await harness.run()
    assert (outcome.result, outcome.cause, len(harness.sent)) == ("dead", "redirects", 1)


async def test_a_cookie_set_anew_with_every_redirect_does_not_go_on_for_ever(harness: RecordingHarness) -> None:
    harness.request_builder = {"sessions": CookieJars()}
    harness.answers[HOME] = moved(HOME, set_cookie="n=1")
    outcome = await harness.run()
    assert (outcome.result, outcome.cause, len(harness.sent)) == ("dead", "redirects", 11)


async def test_the_page_a_redirect_led_to_counts_once_unless_each_url_is_to_be_accounted_for(
    harness: RecordingHarness,
) -> None:
    harness.answers |= {HOME: moved("/b"), "http://a.test/b": html()}
    assert (await harness.run()).redirect_digest == request_digest("http://a.test/b")
    harness.distinct = False
    assert (await harness.run()).redirect_digest is None


# page.fetch


async def test_a_handler_may_ask_for_more_in_a_slot_of_its_own(harness: RecordingHarness) -> None:
    harness.answers["http://a.test/more"] = html("<p>more</p>")

    @harness.handler
    async def every(page: Any) -> Any:
        more = await page.fetch("/more", method="POST", body=b"q")
        return {"text": more.css("p::text").get(), "status": more.status}

    outcome = await harness.run(spacing=1.0)
    assert [msgspec.json.decode(it) for it in outcome.records] == [{"text": "more", "status": 200}]
    assert harness.calls == ["slot a.test"]
    assert (harness.sent[1].method, harness.sent[1].body) == ("POST", b"q")


async def test_another_host_is_asked_at_that_hosts_pace(harness: RecordingHarness) -> None:
    harness.answers["http://b.test/"] = html()

    @harness.handler
    async def every(page: Any) -> None:
        await page.fetch("http://b.test/")

    assert (await harness.run()).result == "done"
    assert harness.calls == ["slot b.test"]


async def test_all_requests_of_a_task_leave_by_its_exit(harness: RecordingHarness) -> None:
    harness.answers[HOME] = moved("/next")
    harness.answers["http://a.test/next"] = html()
    harness.answers["http://b.test/"] = html("", 429, retry_after="30")
    harness.verdicts["a.test"] = RobotsVerdict(True, fresh=True)

    @harness.handler
    async def every(page: Any) -> None:
        await page.fetch("http://b.test/")

    outcome = await harness.run(lane="a.test@north", spacing=1.0)
    assert harness.calls == ["slot a.test@north", "slot a.test@north", "slot a.test@north", "slot b.test@north"]
    assert [(it.lane, it.hold_for) for it in outcome.lanes] == [("b.test@north", 30.0)]


async def test_scope_and_robots_are_those_of_the_host_whatever_the_exit(harness: RecordingHarness) -> None:
    harness.answers[HOME] = moved("/next")
    harness.answers["http://a.test/next"] = html()
    assert (await harness.run(lane="a.test@north", parent=3)).result == "done"
    harness.verdicts["a.test"] = RobotsVerdict(False)
    refused = await harness.run(lane="a.test@north")
    assert refused.cause == "robots"
    assert refused.attempt is not None and "robots.txt of a.test does" in refused.attempt.message


async def test_robots_hold_for_extra_requests_and_a_handler_may_live_with_it(harness: RecordingHarness) -> None:
    harness.verdicts["b.test"] = RobotsVerdict(False)

    @harness.handler
    async def every(page: Any) -> Any:
        try:
            await page.fetch("http://b.test/")
        except FetchRefused as error:
            return {"cause": error.cause}

    outcome = await harness.run()
    assert [msgspec.json.decode(it) for it in outcome.records] == [{"cause": "robots"}]
    assert [it.url for it in harness.sent] == [HOME]


async def test_an_extra_answer_of_429_sends_the_page_back_and_holds_its_host(harness: RecordingHarness) -> None:
    harness.answers["http://b.test/"] = html("", 429, retry_after="30")

    @harness.handler
    async def every(page: Any) -> None:
        await page.fetch("http://b.test/")

    outcome = await harness.run()
    assert (outcome.result, outcome.cause) == ("retry", "http.429")
    assert outcome.after >= 30
    assert [(it.lane, it.hold_for) for it in outcome.lanes] == [("b.test", 30.0)]


async def test_any_other_answer_is_the_handlers_to_judge(harness: RecordingHarness) -> None:
    harness.answers["http://a.test/none"] = html("", 404)

    @harness.handler
    async def every(page: Any) -> Any:
        return {"status": (await page.fetch("/none")).status}

    assert [msgspec.json.decode(it) for it in (await harness.run()).records] == [{"status": 404}]


async def test_the_evidence_of_a_failure_is_the_page_not_what_was_fetched_besides(harness: RecordingHarness) -> None:
    harness.answers["http://a.test/more"] = html("more")

    @harness.handler
    async def every(page: Any) -> Any:
        await page.fetch("/more")
        raise KeyError("x")

    harness.answers[HOME] = html("the page")
    outcome = await harness.run(failures={"handler.KeyError": 9})
    assert outcome.evidence is not None
    assert (outcome.evidence["url"], outcome.evidence["body"]) == (HOME, "the page")


async def test_waiting_for_a_slot_is_not_the_handlers_time(harness: RecordingHarness) -> None:
    harness.limit = 0.8
    harness.answers["http://a.test/more"] = html("more")
    harness.slots = [Slot(0.0)]
    real_reserve = harness.reserve

    async def slow_reserve(lane: str, pace: Any = None, *, within: float | None = None) -> Slot:
        await asyncio.sleep(1.0)
        return await real_reserve(lane, pace, within=within)

    harness.reserve = slow_reserve  # type: ignore[method-assign]

    @harness.handler
    async def every(page: Any) -> Any:
        await asyncio.gather(page.fetch("/more"), page.fetch("/more"))
        return {"ok": True}

    assert (await harness.run(spacing=1.0)).result == "done"


async def test_a_handler_that_takes_too_long_beside_its_requests_is_still_stopped(harness: RecordingHarness) -> None:
    harness.limit = 0.1
    harness.answers["http://a.test/more"] = html("more")

    @harness.handler
    async def every(page: Any) -> Any:
        await page.fetch("/more")
        await asyncio.sleep(30)

    assert (await harness.run()).cause == "handler_timeout"


async def test_robots_txt_of_another_host_and_the_page_there_take_a_slot_each(harness: RecordingHarness) -> None:
    harness.answers["http://b.test/"] = html()
    harness.verdicts["b.test"] = RobotsVerdict(True, fresh=True)

    @harness.handler
    async def every(page: Any) -> None:
        await page.fetch("http://b.test/")

    assert (await harness.run()).result == "done"
    assert harness.calls == ["slot b.test", "slot b.test"]


async def test_a_host_that_asked_for_quiet_is_left_alone_by_handlers_too(harness: RecordingHarness) -> None:
    harness.answers["http://a.test/more"] = html("more")
    tools = harness.tools()
    said: list[str] = []

    @harness.handler
    async def every(page: Any) -> None:
        tools.lane_holds.add("a.test", 300.0)
        try:
            await page.fetch("/more")
        finally:
            said.append("tried")

    outcome = await process_task(LEASED, tools, 100.0)
    assert (outcome.result, said, [it.url for it in harness.sent]) == ("released", ["tried"], [HOME])


@pytest.mark.parametrize("lane", ["a.test", "b.test"])
async def test_a_redirect_waits_until_a_host_that_asked_for_quiet_may_be_asked_again(
    harness: RecordingHarness, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"http://{lane}/there"
    harness.answers |= {HOME: moved(target), target: html()}
    at: list[float] = []
    real, sleep = harness.fetch, asyncio.sleep

    async def fetch(request: Request) -> Response:
        if not at:
            tools.lane_holds.add(lane, 20.0)  # another page was told so meanwhile
        at.append(harness.now)
        return await real(request)

    async def slept(seconds: float) -> None:
        harness.now += seconds
        await sleep(0)

    harness.fetch = fetch  # type: ignore[method-assign]
    tools = harness.tools()
    monkeypatch.setattr(asyncio, "sleep", slept)
    assert (await process_task(LEASED, tools, 100.0)).result == "done"
    assert at == [100.0, 120.0]


@pytest.mark.parametrize("target", ["http://b.test/", "http://a.test/private"])
async def test_a_redirect_to_where_robots_do_not_allow_is_not_followed(harness: RecordingHarness, target: str) -> None:
    harness.answers |= {HOME: moved(target), target: html()}
    verdict = harness.verdict

    async def refuses(url: str, exit: str = "") -> RobotsVerdict:
        return RobotsVerdict(False) if url == target else await verdict(url)

    harness.verdict = refuses  # type: ignore[method-assign]
    outcome = await harness.run()
    assert (outcome.result, outcome.cause, [request.url for request in harness.sent]) == ("dead", "robots", [HOME])


async def test_a_redirect_to_a_host_that_asked_for_long_quiet_is_tried_again_after_it(
    harness: RecordingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.answers |= {HOME: moved("http://b.test/"), "http://b.test/": html()}
    monkeypatch.setattr(asyncio, "sleep", AsyncMock())
    tools = harness.tools()
    tools.lane_holds.add("b.test", 300.0)
    outcome = await process_task(LEASED, tools, 100.0)
    assert (outcome.result, outcome.cause, outcome.after) == ("retry", "lane_busy", 300.0)
    assert [request.url for request in harness.sent] == [HOME]


async def test_a_handlers_requests_to_a_host_with_limited_places_take_turns(harness: RecordingHarness) -> None:
    harness.answers |= {f"http://a.test/{n}": html() for n in range(5)}
    under_way = most = 0
    real = harness.fetch

    async def fetch(request: Request) -> Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await real(request)

    harness.fetch = fetch  # type: ignore[method-assign]

    @harness.handler
    async def every(page: Any) -> None:
        await asyncio.gather(*(page.fetch(f"/{n}") for n in range(5)))

    assert (await harness.run()).result == "done"
    assert (most, len(harness.sent)) == (1, 6)


async def test_of_several_requests_that_fail_at_once_any_one_is_no_fault_of_the_handler(
    harness: RecordingHarness,
) -> None:
    harness.answers |= {f"http://a.test/{n}": FetchFailed("stalled", "we were busy") for n in range(3)}

    @harness.handler
    async def every(page: Any) -> None:
        raise (await asyncio.gather(*(page.fetch(f"/{n}") for n in range(3)), return_exceptions=True))[0]

    assert (await harness.run()).result == "released"


async def test_a_task_group_fails_as_what_its_requests_failed_with(harness: RecordingHarness) -> None:
    harness.answers |= {f"http://a.test/{n}": FetchFailed("connect", "no") for n in range(3)}

    @harness.handler
    async def every(page: Any) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(page.fetch(f"/{n}"))

    outcome = await harness.run()
    assert (outcome.result, outcome.cause) == ("retry", "connect")


async def test_a_mistake_in_a_task_group_stays_the_handlers_own(harness: RecordingHarness) -> None:
    harness.answers["http://a.test/0"] = FetchFailed("connect", "no")

    async def wrong() -> None:
        raise KeyError("x")

    @harness.handler
    async def every(page: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(page.fetch("/0"))
            group.create_task(wrong())

    assert (await harness.run()).cause == "handler.ExceptionGroup"


async def test_what_is_started_for_an_extra_request_is_not_the_handlers_code(harness: RecordingHarness) -> None:
    asyncio.get_running_loop().set_task_factory(handler_task_factory)
    harness.answers["http://a.test/more"] = html()
    real, started = harness.fetch, list[asyncio.Task[Any]]()

    async def fetch(request: Request) -> Response:
        if request.url.endswith("/more"):
            started.append(asyncio.create_task(asyncio.sleep(0)))
        return await real(request)

    harness.fetch = fetch  # type: ignore[method-assign]

    @harness.handler
    async def every(page: Any) -> None:
        await page.fetch("/more")
        started.append(asyncio.create_task(asyncio.sleep(0)))

    assert (await harness.run()).result == "done"
    assert [task.get_coro().__name__ for task in started] == ["sleep", "_run_stepped"]  # type: ignore[union-attr]
    await asyncio.gather(*started)


@pytest.mark.parametrize("asked", ["If-None-Match", "if-modified-since"])
async def test_not_modified_is_an_answer_to_who_asked_for_it(harness: RecordingHarness, asked: str) -> None:
    harness.answers[HOME] = html("", 304)

    @harness.handler
    def every(page: Any) -> Any:
        yield {"status": page.status}

    outcome = await harness.run(request_options=RequestOptions(headers=((asked, '"1"'),)))
    assert [msgspec.json.decode(it) for it in outcome.records] == [{"status": 304}]
    assert (await harness.run()).cause == "http.304"


async def test_a_redirect_is_known_by_the_url_that_stands_for_its_page(harness: RecordingHarness) -> None:
    harness.answers |= {HOME: moved("/b?utm_source=x"), "http://a.test/b?utm_source=x": html()}
    harness.rewrite = UrlNormalizer(drop_tracking=True)
    assert (await harness.run()).redirect_digest == request_digest("http://a.test/b")


async def test_a_failed_extra_request_keeps_nothing_of_its_page_alive(harness: RecordingHarness) -> None:
    seen: list[weakref.ref[Any]] = []
    real = harness.fetch

    class Witness:
        pass

    async def fetch(request: Request) -> Response:
        if request.url == HOME:
            return await real(request)
        raise FetchFailed("connect", "no")

    harness.fetch = fetch  # type: ignore[method-assign]

    @harness.handler
    async def every(page: Any) -> None:
        witness = Witness()
        seen.append(weakref.ref(witness))
        with suppress(FetchFailed):
            await page.fetch("/0")

    gc.collect()
    gc.disable()
    try:
        assert (await harness.run()).result == "done"
        assert seen[0]() is None
    finally:
        gc.enable()


# robots.txt that cannot be read

DOWN = RobotsVerdict(False, 4.0, reason="robots.txt cannot be read: connect: refused", cause="connect")


async def test_five_pages_that_cannot_know_their_robots_txt_park_the_host(harness: RecordingHarness) -> None:
    harness.verdicts["a.test"] = DOWN
    tools = harness.tools()
    outcomes = [await process_task(msgspec.structs.replace(LEASED, id=number), tools, 100.0) for number in range(5)]
    assert {(it.result, it.cause) for it in outcomes} == {("retry", "connect")}
    assert [it.lanes for it in outcomes[:4]] == [()] * 4
    (change,) = outcomes[4].lanes
    assert (change.park_for, change.reason) == (5.0, "the last 5 requests could not connect")
    assert not harness.sent


async def test_a_probe_that_may_not_even_ask_for_robots_txt_waits_until_it_may_and_costs_nothing(
    harness: RecordingHarness,
) -> None:
    harness.verdicts["a.test"] = DOWN
    outcome = await harness.run(probe=2)
    assert outcome.result == "released"
    assert [(it.lane, it.hold_for, it.park_for) for it in outcome.lanes] == [("a.test", 4.0, None)]


async def test_a_probe_that_asked_for_robots_txt_in_vain_has_found_out(harness: RecordingHarness) -> None:
    harness.verdicts["a.test"] = msgspec.structs.replace(DOWN, fresh=True)
    outcome = await harness.run(probe=2)
    assert (outcome.result, outcome.cause) == ("retry", "connect")
    assert [it.park_for for it in outcome.lanes] == [20.0]


async def test_a_crawl_delay_that_is_gone_is_told_before_the_page_can_teach_anything(harness: RecordingHarness) -> None:
    harness.verdicts["a.test"] = RobotsVerdict(True, fresh=True, crawl_delay_changed=True)
    outcome = await harness.run(spacing=1.0)
    assert harness.changes == [LaneChange("a.test", spacing=0.0)]
    assert outcome.lanes == ()


async def test_a_handler_that_asks_for_ever_ends_some_time(harness: RecordingHarness) -> None:
    harness.limit = 0.02
    loop = asyncio.get_running_loop()
    began, plain = loop.time(), harness.fetch
    harness.answers["http://a.test/more"] = html("more")

    async def slow(request: Request) -> Response:
        harness.now = 100.0 + loop.time() - began
        await asyncio.sleep(0.01)
        return await plain(request)

    harness.fetch = slow  # type: ignore[method-assign]

    @harness.handler
    async def every(page: Any) -> Any:
        while True:
            await page.fetch("/more")

    assert (await asyncio.wait_for(harness.run(), HANG)).cause == "handler_timeout"
