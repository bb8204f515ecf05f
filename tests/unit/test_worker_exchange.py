"""Redirects, credentials and requests of a handler's own, as one task sees them."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from desk import HOME, Desk, html

from shoal.core.lane import Slot
from shoal.core.page import Request, Response
from shoal.core.task import Ask, LaneChange, Leased
from shoal.core.url import Rewrite, request_digest
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.auth import credential
from shoal.fetch.cookies import Sessions
from shoal.politeness.robots import Verdict
from shoal.worker.handling import noting_tasks
from shoal.worker.manners import Manners
from shoal.worker.process import process
from shoal.worker.tools import Tools

LEASED = Leased(id=7, lease=9, run=1, lane="a.test", url=HOME)


class Wire(Desk):
    """A desk that keeps every request as it went out, and may answer the same address in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Request] = []
        self.manners: dict[str, Any] = {}
        self.distinct = True
        self.rewrite: Rewrite | None = None

    async def fetch(self, request: Request) -> Response:
        self.sent.append(request)
        answer = self.answers[request.url]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return msgspec.structs.replace(answer, url=request.url)

    def tools(self) -> Tools:
        tools = super().tools()
        manners = Manners(credential=credential, **self.manners)

        async def serve(run: int) -> Any:
            import dataclasses

            return dataclasses.replace(
                await plain(run), manners=manners, distinct=self.distinct, rewrite=self.rewrite
            )

        plain = tools.serve
        tools.serve = serve
        return tools

    def headers(self, number: int) -> dict[str, str]:
        return {name.lower(): value for name, value in self.sent[number].headers}


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    wire.answers[HOME] = html()
    return wire


def moved(to: str, status: int = 302, **headers: str) -> Response:
    return html("", status, location=to, **headers)


async def test_a_task_goes_out_as_it_was_asked_for(wire: Wire) -> None:
    ask = Ask("POST", (("x-a", "1"),), b"body")
    assert (await wire.run(ask=ask)).result == "done"
    (request,) = wire.sent
    assert (request.method, request.body, wire.headers(0)) == ("POST", b"body", {"x-a": "1"})


async def test_a_post_that_is_redirected_becomes_a_get(wire: Wire) -> None:
    wire.answers |= {HOME: moved("/b", 303), "http://a.test/b": html()}
    await wire.run(ask=Ask("POST", (), b"body"))
    assert [(it.method, it.body) for it in wire.sent] == [("POST", b"body"), ("GET", None)]


async def test_credentials_do_not_cross_to_another_origin(wire: Wire) -> None:
    wire.manners = {
        "secrets": {"shop": "me:pw", "own": "token"}, "auth": "shop",
        "at_home": lambda origin: origin == "http://a.test",
    }  # fmt: skip
    wire.answers |= {
        HOME: moved("/b"), "http://a.test/b": moved("http://evil.test/"),
        "http://evil.test/": moved(HOME + "c"), "http://a.test/c": html(),
    }  # fmt: skip
    outcome = await wire.run(ask=Ask(headers=(("x-key", "1"),), auth="own"))
    assert outcome.result == "done"
    assert [wire.headers(n).get("authorization", "") for n in range(4)] == [
        "Bearer token", "Bearer token", "", "Bearer token",
    ]  # fmt: skip
    assert [wire.headers(n).get("x-key", "") for n in range(4)] == ["1", "1", "", "1"]


async def test_a_page_that_sets_a_cookie_and_comes_back_is_no_loop(wire: Wire) -> None:
    wire.manners = {"sessions": Sessions()}
    wire.answers[HOME] = [moved(HOME, set_cookie="seen=1"), html()]
    assert (await wire.run()).result == "done"
    assert wire.headers(1) == {"cookie": "seen=1"}


async def test_a_redirect_to_itself_is_a_loop_found_at_once(wire: Wire) -> None:
    wire.manners = {"sessions": Sessions()}
    wire.answers[HOME] = moved(HOME)
    outcome = await wire.run()
    assert (outcome.result, outcome.cause, len(wire.sent)) == ("dead", "redirects", 1)


async def test_a_cookie_set_anew_with_every_redirect_does_not_go_on_for_ever(wire: Wire) -> None:
    wire.manners = {"sessions": Sessions()}
    wire.answers[HOME] = moved(HOME, set_cookie="n=1")
    outcome = await wire.run()
    assert (outcome.result, outcome.cause, len(wire.sent)) == ("dead", "redirects", 11)


async def test_the_page_a_redirect_led_to_counts_once_unless_each_address_is_to_be_accounted_for(
    wire: Wire,
) -> None:
    wire.answers |= {HOME: moved("/b"), "http://a.test/b": html()}
    assert (await wire.run()).same_as == request_digest("http://a.test/b")
    wire.distinct = False
    assert (await wire.run()).same_as is None


# page.fetch


async def test_a_handler_may_ask_for_more_in_a_slot_of_its_own(wire: Wire) -> None:
    wire.answers["http://a.test/more"] = html("<p>more</p>")

    @wire.handler
    async def every(page: Any) -> Any:
        more = await page.fetch("/more", method="POST", body=b"q")
        return {"text": more.css("p::text").get(), "status": more.status}

    outcome = await wire.run(spacing=1.0)
    assert [msgspec.json.decode(it) for it in outcome.records] == [{"text": "more", "status": 200}]
    assert wire.asked == ["slot a.test"]
    assert (wire.sent[1].method, wire.sent[1].body) == ("POST", b"q")


async def test_another_host_is_asked_at_that_hosts_pace(wire: Wire) -> None:
    wire.answers["http://b.test/"] = html()

    @wire.handler
    async def every(page: Any) -> None:
        await page.fetch("http://b.test/")

    assert (await wire.run()).result == "done"
    assert wire.asked == ["slot b.test"]


async def test_robots_hold_for_extra_requests_and_a_handler_may_live_with_it(wire: Wire) -> None:
    wire.verdicts["b.test"] = Verdict(False)

    @wire.handler
    async def every(page: Any) -> Any:
        try:
            await page.fetch("http://b.test/")
        except FetchRefused as error:
            return {"cause": error.cause}

    outcome = await wire.run()
    assert [msgspec.json.decode(it) for it in outcome.records] == [{"cause": "robots"}]
    assert [it.url for it in wire.sent] == [HOME]


async def test_an_extra_answer_of_429_sends_the_page_back_and_holds_its_host(wire: Wire) -> None:
    wire.answers["http://b.test/"] = html("", 429, retry_after="30")

    @wire.handler
    async def every(page: Any) -> None:
        await page.fetch("http://b.test/")

    outcome = await wire.run()
    assert (outcome.result, outcome.cause) == ("retry", "http.429")
    assert outcome.after >= 30
    assert [(it.lane, it.hold_for) for it in outcome.lanes] == [("b.test", 30.0)]


async def test_any_other_answer_is_the_handlers_to_judge(wire: Wire) -> None:
    wire.answers["http://a.test/none"] = html("", 404)

    @wire.handler
    async def every(page: Any) -> Any:
        return {"status": (await page.fetch("/none")).status}

    assert [msgspec.json.decode(it) for it in (await wire.run()).records] == [{"status": 404}]


async def test_the_evidence_of_a_failure_is_the_page_not_what_was_fetched_besides(wire: Wire) -> None:
    wire.answers["http://a.test/more"] = html("more")

    @wire.handler
    async def every(page: Any) -> Any:
        await page.fetch("/more")
        raise KeyError("x")

    wire.answers[HOME] = html("the page")
    outcome = await wire.run(failures={"handler.KeyError": 9})
    assert outcome.evidence is not None
    assert (outcome.evidence["address"], outcome.evidence["body"]) == (HOME, "the page")


async def test_waiting_for_a_slot_is_not_the_handlers_time(wire: Wire) -> None:
    wire.limit = 0.2
    wire.answers["http://a.test/more"] = html("more")
    wire.slots = [Slot(0.0)]
    real_reserve = wire.reserve

    async def slow_reserve(lane: str, pace: Any = None, *, within: float | None = None) -> Slot:
        await asyncio.sleep(0.5)
        return await real_reserve(lane, pace, within=within)

    wire.reserve = slow_reserve  # type: ignore[method-assign]

    @wire.handler
    async def every(page: Any) -> Any:
        await asyncio.gather(page.fetch("/more"), page.fetch("/more"))
        return {"ok": True}

    assert (await wire.run(spacing=1.0)).result == "done"


async def test_a_handler_that_takes_too_long_beside_its_requests_is_still_stopped(wire: Wire) -> None:
    wire.limit = 0.1
    wire.answers["http://a.test/more"] = html("more")

    @wire.handler
    async def every(page: Any) -> Any:
        await page.fetch("/more")
        await asyncio.sleep(30)

    assert (await wire.run()).cause == "handler_timeout"


async def test_robots_txt_of_another_host_and_the_page_there_take_a_slot_each(wire: Wire) -> None:
    wire.answers["http://b.test/"] = html()
    wire.verdicts["b.test"] = Verdict(True, fresh=True)

    @wire.handler
    async def every(page: Any) -> None:
        await page.fetch("http://b.test/")

    assert (await wire.run()).result == "done"
    assert wire.asked == ["slot b.test", "slot b.test"]


async def test_a_host_that_asked_for_quiet_is_left_alone_by_handlers_too(wire: Wire) -> None:
    wire.answers["http://a.test/more"] = html("more")
    tools = wire.tools()
    said: list[str] = []

    @wire.handler
    async def every(page: Any) -> None:
        tools.holds.add("a.test", 300.0)
        try:
            await page.fetch("/more")
        finally:
            said.append("tried")

    outcome = await process(LEASED, tools, 100.0)
    assert (outcome.result, said, [it.url for it in wire.sent]) == ("released", ["tried"], [HOME])


async def test_a_handlers_requests_to_a_host_with_limited_places_take_turns(wire: Wire) -> None:
    wire.answers |= {f"http://a.test/{n}": html() for n in range(5)}
    under_way = most = 0
    real = wire.fetch

    async def fetch(request: Request) -> Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await real(request)

    wire.fetch = fetch  # type: ignore[method-assign]

    @wire.handler
    async def every(page: Any) -> None:
        await asyncio.gather(*(page.fetch(f"/{n}") for n in range(5)))

    assert (await wire.run()).result == "done"
    assert (most, len(wire.sent)) == (1, 6)


async def test_of_several_requests_that_fail_at_once_any_one_is_no_fault_of_the_handler(wire: Wire) -> None:
    wire.answers |= {f"http://a.test/{n}": FetchFailed("stalled", "we were busy") for n in range(3)}

    @wire.handler
    async def every(page: Any) -> None:
        raise (await asyncio.gather(*(page.fetch(f"/{n}") for n in range(3)), return_exceptions=True))[0]

    assert (await wire.run()).result == "released"


async def test_a_task_group_fails_as_what_its_requests_failed_with(wire: Wire) -> None:
    wire.answers |= {f"http://a.test/{n}": FetchFailed("connect", "no") for n in range(3)}

    @wire.handler
    async def every(page: Any) -> None:
        async with asyncio.TaskGroup() as group:
            for n in range(3):
                group.create_task(page.fetch(f"/{n}"))

    outcome = await wire.run()
    assert (outcome.result, outcome.cause) == ("retry", "connect")


async def test_a_mistake_in_a_task_group_stays_the_handlers_own(wire: Wire) -> None:
    wire.answers["http://a.test/0"] = FetchFailed("connect", "no")

    async def wrong() -> None:
        raise KeyError("x")

    @wire.handler
    async def every(page: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(page.fetch("/0"))
            group.create_task(wrong())

    assert (await wire.run()).cause == "handler.ExceptionGroup"


async def test_what_is_started_for_an_extra_request_is_not_the_handlers_code(wire: Wire) -> None:
    asyncio.get_running_loop().set_task_factory(noting_tasks)
    wire.answers["http://a.test/more"] = html()
    real, started = wire.fetch, list[asyncio.Task[Any]]()

    async def fetch(request: Request) -> Response:
        if request.url.endswith("/more"):
            started.append(asyncio.create_task(asyncio.sleep(0)))
        return await real(request)

    wire.fetch = fetch  # type: ignore[method-assign]

    @wire.handler
    async def every(page: Any) -> None:
        await page.fetch("/more")
        started.append(asyncio.create_task(asyncio.sleep(0)))

    assert (await wire.run()).result == "done"
    assert [task.get_coro().__name__ for task in started] == ["sleep", "_noted"]  # type: ignore[union-attr]
    await asyncio.gather(*started)


@pytest.mark.parametrize("asked", ["If-None-Match", "if-modified-since"])
async def test_not_modified_is_an_answer_to_who_asked_for_it(wire: Wire, asked: str) -> None:
    wire.answers[HOME] = html("", 304)

    @wire.handler
    def every(page: Any) -> Any:
        yield {"status": page.status}

    outcome = await wire.run(ask=Ask(headers=((asked, '"1"'),)))
    assert [msgspec.json.decode(it) for it in outcome.records] == [{"status": 304}]
    assert (await wire.run()).cause == "http.304"


async def test_a_redirect_is_known_by_the_address_that_stands_for_its_page(wire: Wire) -> None:
    wire.answers |= {HOME: moved("/b?utm_source=x"), "http://a.test/b?utm_source=x": html()}
    wire.rewrite = Rewrite(drop_tracking=True)
    assert (await wire.run()).same_as == request_digest("http://a.test/b")


async def test_a_failed_extra_request_keeps_nothing_of_its_page_alive(wire: Wire) -> None:
    seen: list[weakref.ref[Any]] = []
    real = wire.fetch

    class Witness:
        pass

    async def fetch(request: Request) -> Response:
        if request.url == HOME:
            return await real(request)
        raise FetchFailed("connect", "no")

    wire.fetch = fetch  # type: ignore[method-assign]

    @wire.handler
    async def every(page: Any) -> None:
        witness = Witness()
        seen.append(weakref.ref(witness))
        with suppress(FetchFailed):
            await page.fetch("/0")

    gc.collect()
    gc.disable()
    try:
        assert (await wire.run()).result == "done"
        assert seen[0]() is None
    finally:
        gc.enable()


# robots.txt that cannot be read

DOWN = Verdict(False, 4.0, reason="robots.txt cannot be read: connect: refused", cause="connect")


async def test_five_pages_that_cannot_know_their_robots_txt_park_the_host(wire: Wire) -> None:
    wire.verdicts["a.test"] = DOWN
    tools = wire.tools()
    outcomes = [
        await process(msgspec.structs.replace(LEASED, id=number), tools, 100.0) for number in range(5)
    ]
    assert {(it.result, it.cause) for it in outcomes} == {("retry", "connect")}
    assert [it.lanes for it in outcomes[:4]] == [()] * 4
    (change,) = outcomes[4].lanes
    assert (change.park_for, change.reason) == (5.0, "5 requests in a row could not connect")
    assert not wire.sent


async def test_a_probe_that_may_not_even_ask_for_robots_txt_waits_until_it_may_and_costs_nothing(
    wire: Wire,
) -> None:
    wire.verdicts["a.test"] = DOWN
    outcome = await wire.run(probe=2)
    assert outcome.result == "released"
    assert [(it.lane, it.hold_for, it.park_for) for it in outcome.lanes] == [("a.test", 4.0, None)]


async def test_a_probe_that_asked_for_robots_txt_in_vain_has_found_out(wire: Wire) -> None:
    wire.verdicts["a.test"] = msgspec.structs.replace(DOWN, fresh=True)
    outcome = await wire.run(probe=2)
    assert (outcome.result, outcome.cause) == ("retry", "connect")
    assert [it.park_for for it in outcome.lanes] == [20.0]


async def test_a_crawl_delay_that_is_gone_is_told_before_the_page_can_teach_anything(wire: Wire) -> None:
    wire.verdicts["a.test"] = Verdict(True, fresh=True, news=True)
    outcome = await wire.run(spacing=1.0)
    assert wire.changes == [LaneChange("a.test", spacing=0.0)]
    assert outcome.lanes == ()


async def test_a_handler_that_asks_for_ever_ends_some_time(wire: Wire) -> None:
    wire.limit = 0.02
    loop = asyncio.get_running_loop()
    began, plain = loop.time(), wire.fetch
    wire.answers["http://a.test/more"] = html("more")

    async def slow(request: Request) -> Response:
        wire.now = 100.0 + loop.time() - began
        await asyncio.sleep(0.01)
        return await plain(request)

    wire.fetch = slow  # type: ignore[method-assign]

    @wire.handler
    async def every(page: Any) -> Any:
        while True:
            await page.fetch("/more")

    assert (await asyncio.wait_for(wire.run(), 5)).cause == "handler_timeout"
