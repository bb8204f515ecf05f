"""One task as a pipeline: what becomes of it, by what the slot, robots, the server and the handler do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from desk import HOME, Desk, html

from shoal.core.lane import Slot
from shoal.core.page import Response
from shoal.core.task import LaneChange, Leased
from shoal.core.url import request_digest
from shoal.errors import FetchFailed, FetchRefused, GiveUp, QueueUnavailable, Retry
from shoal.politeness.robots import Verdict
from shoal.worker.handling import noting_tasks
from shoal.worker.process import process


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.answers[HOME] = html('<a href="/b">b</a><a href="http://other.test/">o</a>')
    return desk


async def test_page_without_handler_is_done_and_its_links_are_followed_where_a_handler_waits(
    desk: Desk,
) -> None:
    desk.scraper.page("/b")(lambda page: None)
    outcome = await desk.run()
    assert outcome.result == "done"
    assert [task.url for task in outcome.found] == ["http://a.test/b"]
    assert outcome.found[0].parent == 7
    assert outcome.attempt is not None
    assert outcome.attempt.status == 200


async def test_handler_yields_records_and_links(desk: Desk) -> None:
    @dataclasses.dataclass
    class Item:
        name: str

    class Thing(msgspec.Struct):
        name: str

    @desk.handler
    def every(page: Any) -> Any:
        record = {"n": 1}
        yield record
        record["n"] = 2
        yield Item("i")
        yield Thing("t")
        yield from page.follow()

    outcome = await desk.run()
    assert outcome.records == (b'{"n":1}', b'{"name":"i"}', b'{"name":"t"}')
    assert [task.url for task in outcome.found] == ["http://a.test/b"]
    assert outcome.skipped == (("scope", "http://other.test/"),)


async def _coroutine(page: Any) -> Any:
    await asyncio.sleep(0)
    return [{"a": 1}, *page.follow()]


async def _stream(page: Any) -> Any:
    yield {"a": 1}
    await asyncio.sleep(0)
    for follow in page.follow():
        yield follow


@pytest.mark.parametrize(
    "handler",
    [
        lambda page: [{"a": 1}, *page.follow()],
        lambda page: iter([{"a": 1}, *page.follow()]),
        _coroutine,
        _stream,
    ],
)
async def test_handler_may_be_a_function_a_generator_or_async(desk: Desk, handler: Any) -> None:
    desk.handler(handler)
    outcome = await desk.run()
    assert outcome.records == (b'{"a":1}',)
    assert len(outcome.found) == 1


def _raises(error: BaseException) -> Callable[[Any], None]:
    def handler(page: Any) -> None:
        raise error

    return handler


async def _raises_later(page: Any) -> None:
    await asyncio.sleep(0)
    raise SystemExit(3)


async def _leaks(page: Any) -> None:
    own = asyncio.ensure_future(asyncio.sleep(10))
    own.cancel()
    await own


def _deep(page: Any) -> None:
    _deep(page)


@pytest.mark.parametrize(
    ("handler", "result", "cause", "word"),
    [
        (_raises(ValueError("odd")), "retry", "handler.ValueError", "odd (test_worker_process.py:"),
        (_raises(KeyboardInterrupt()), "retry", "handler.KeyboardInterrupt", "test_worker_process.py:"),
        (_raises(SystemExit(1)), "retry", "handler.SystemExit", "test_worker_process.py:"),
        (_raises(GeneratorExit()), "retry", "handler.GeneratorExit", ""),
        (_raises(MemoryError()), "retry", "memory", ""),
        (_raises(Retry("later", "come again")), "retry", "later", "come again"),
        (_raises(GiveUp("login", "not for us")), "dead", "login", "not for us"),
        (_raises(QueueUnavailable("mine")), "retry", "handler.QueueUnavailable", "mine"),
        (_raises_later, "retry", "handler.SystemExit", ""),
        (_leaks, "retry", "handler.CancelledError", ""),
        (_deep, "retry", "handler.RecursionError", ""),
        (lambda page: [{"when": object()}], "retry", "handler.TypeError", "record key 'when'"),
        (lambda page: page.follow(meta={"o": object()}), "retry", "handler.TypeError", "meta key 'o'"),
        (lambda page: [["a list"]], "retry", "handler.TypeError", "a handler yields records"),
        (lambda page: "text", "retry", "handler.TypeError", "not str"),
        (lambda page: [{"a": "\ud800"}], "retry", "handler.TypeError", "record key 'a'"),
    ],
)
async def test_whatever_a_handler_raises_is_a_failure_of_its_task(
    desk: Desk, handler: Any, result: str, cause: str, word: str
) -> None:
    desk.handler(handler)
    outcome = await desk.run()
    assert (outcome.result, outcome.cause) == (result, cause)
    assert outcome.attempt is not None
    assert word in outcome.attempt.message
    assert not outcome.records


async def test_ctrl_c_in_somebodys_own_process_is_not_the_handlers(desk: Desk) -> None:
    desk.handler(_raises(KeyboardInterrupt()))
    tools = desk.tools()
    tools.supervised = False
    running = process(Leased(id=7, lease=9, run=1, lane="a.test", url=HOME), tools, 100.0)
    with pytest.raises(KeyboardInterrupt):
        await running


async def test_second_failure_of_a_handler_is_dead_with_evidence_and_keeps_nothing_it_yielded(
    desk: Desk,
) -> None:
    @desk.handler
    def every(page: Any) -> Any:
        yield {"a": 1}
        raise KeyError("price")

    outcome = await desk.run(failures={"handler.KeyError": 1})
    assert (outcome.result, outcome.records, outcome.found) == ("dead", (), ())
    assert outcome.evidence is not None
    assert outcome.evidence["status"] == 200
    assert "<a href" in outcome.evidence["body"]
    assert 'raise KeyError("price")' in outcome.evidence["traceback"]


async def test_async_handler_that_takes_too_long_is_stopped(desk: Desk) -> None:
    desk.limit = 0.01

    @desk.handler
    async def every(page: Any) -> None:
        await asyncio.sleep(10)

    outcome = await desk.run()
    assert (outcome.result, outcome.cause) == ("retry", "handler_timeout")


@pytest.mark.parametrize("waits", [True, False])
async def test_handler_that_yields_for_ever_is_stopped(desk: Desk, waits: bool) -> None:
    def tick() -> dict[str, float]:
        desk.now += 1.0
        return {"now": desk.now}

    async def stream(page: Any) -> Any:
        while True:
            yield tick()

    def plain(page: Any) -> Any:
        while True:
            yield tick()

    desk.handler(stream if waits else plain)
    outcome = await desk.run()
    assert (outcome.result, outcome.cause) == ("retry", "handler_timeout")


async def test_only_the_code_of_the_handler_is_noted_not_its_waiting(desk: Desk) -> None:
    tools = desk.tools()
    seen: list[int] = []

    @desk.handler
    async def every(page: Any) -> Any:
        seen.append(tools.note.seen().task)
        watcher = asyncio.get_running_loop().call_soon(lambda: seen.append(tools.note.seen().task))
        await asyncio.sleep(0.01)
        watcher.cancel()
        seen.append(tools.note.seen().task)

    await process(Leased(id=7, lease=9, run=1, lane="a.test", url=HOME), tools, 100.0)
    assert seen == [7, 0, 7]
    assert tools.note.seen().task == 0


async def test_tasks_a_handler_starts_are_noted_as_its_code(desk: Desk) -> None:
    tools = desk.tools()
    seen: list[int] = []

    async def part() -> None:
        seen.append(tools.note.seen().task)
        await asyncio.sleep(0)
        seen.append(tools.note.seen().task)

    @desk.handler
    async def every(page: Any) -> None:
        await asyncio.gather(part(), part())

    loop = asyncio.get_running_loop()
    loop.set_task_factory(noting_tasks)
    await asyncio.create_task(process(Leased(id=7, lease=9, run=1, lane="a.test", url=HOME), tools, 100.0))
    await asyncio.create_task(part())
    loop.set_task_factory(None)
    assert seen == [7, 7, 7, 7, 0, 0]


async def test_step_that_held_the_loop_is_told_to_the_fetcher(desk: Desk) -> None:
    @desk.handler
    def every(page: Any) -> None:
        desk.now += 3.0

    await desk.run()
    assert desk.stalls == [3.0]


@pytest.mark.parametrize(
    ("answer", "result", "cause", "after"),
    [
        (html(status=404), "dead", "http.404", 0.0),
        (html(status=500), "retry", "http.500", 1.0),
        (html(status=429, retry_after="30"), "retry", "http.429", 30.0),
        (FetchFailed("timeout.total"), "retry", "timeout.total", 1.0),
        (FetchRefused("too_large"), "dead", "too_large", 0.0),
        (FetchFailed("stalled"), "released", "", 0.0),
        (FetchFailed("closed"), "released", "", 0.0),
    ],
)
async def test_answer_decides(desk: Desk, answer: Any, result: str, cause: str, after: float) -> None:
    desk.answers[HOME] = answer
    outcome = await desk.run()
    assert (outcome.result, outcome.cause, outcome.after) == (result, cause, after)


async def test_server_that_asks_for_less_moves_its_lane(desk: Desk) -> None:
    desk.answers[HOME] = html(status=503, retry_after="30")
    outcome = await desk.run()
    assert outcome.lanes[0].lane == "a.test"
    assert outcome.lanes[0].hold_for == 30.0


# redirects


def moved(to: str) -> Response:
    return html(status=302, location=to)


async def test_redirect_is_followed_and_remembered_by_where_it_led(desk: Desk) -> None:
    desk.answers |= {HOME: moved("/x"), "http://a.test/x": moved("y#part"), "http://a.test/y": html()}
    outcome = await desk.run(parent=1)
    assert outcome.result == "done"
    assert outcome.same_as == request_digest("http://a.test/y")


@pytest.mark.parametrize("to", [HOME, "ftp://a.test/", "http://exa mple/"])
async def test_redirect_that_leads_nowhere_is_dead(desk: Desk, to: str) -> None:
    desk.answers[HOME] = moved(to)
    outcome = await desk.run()
    assert (outcome.result, outcome.cause) == ("dead", "redirects")


async def test_endless_redirects_are_dead(desk: Desk) -> None:
    desk.answers |= {f"http://a.test/{n}": moved(f"/{n + 1}") for n in range(20)}
    outcome = await desk.run("http://a.test/0")
    assert (outcome.result, outcome.cause) == ("dead", "redirects")
    assert len(desk.asked) == 11


@pytest.mark.parametrize(("parent", "result"), [(None, "done"), (1, "cancelled")])
async def test_redirect_out_of_scope_is_for_start_urls_only(
    desk: Desk, parent: int | None, result: str
) -> None:
    desk.answers |= {HOME: moved("http://b.test/"), "http://b.test/": html()}
    outcome = await desk.run(parent=parent)
    assert outcome.result == result
    assert outcome.cause == ("" if parent is None else "scope")


async def test_redirect_uses_a_slot_of_the_host_it_leads_to(desk: Desk) -> None:
    desk.answers |= {HOME: moved("http://b.test/"), "http://b.test/": html()}
    await desk.run()
    assert desk.asked == [HOME, "slot b.test", "http://b.test/"]


async def test_redirect_to_a_parked_host_waits_in_the_queue(desk: Desk) -> None:
    desk.answers[HOME] = moved("http://b.test/")
    desk.slots = [Slot(0.0, "captcha", taken=False)]
    outcome = await desk.run()
    assert (outcome.result, outcome.cause) == ("retry", "lane_busy")


# slots and robots


@pytest.mark.parametrize(
    ("start_at", "spacing", "asked"),
    [
        (100.0, 1.0, [HOME]),
        (99.97, 1.0, [HOME]),
        (99.9, 1.0, ["slot a.test", HOME]),
        (0.0, 0.0, [HOME]),
    ],
)
async def test_slot_that_was_missed_is_reserved_again(
    desk: Desk, start_at: float, spacing: float, asked: list[str]
) -> None:
    await desk.run(start_at=start_at, spacing=spacing)
    assert desk.asked == asked


@pytest.mark.parametrize("slot", [Slot(0.0, "captcha", taken=False), Slot(600.0, taken=False)])
async def test_task_of_a_parked_or_booked_host_is_handed_back(desk: Desk, slot: Slot) -> None:
    desk.slots = [slot]
    outcome = await desk.run(start_at=0.0, spacing=1.0)
    assert outcome.result == "released"
    assert outcome.attempt is None


@pytest.mark.parametrize(("parent", "result"), [(None, "dead"), (1, "cancelled")])
async def test_page_that_robots_refuse_is_not_fetched(desk: Desk, parent: int | None, result: str) -> None:
    desk.verdicts["a.test"] = Verdict(False)
    outcome = await desk.run(parent=parent)
    assert (outcome.result, outcome.cause, desk.asked) == (result, "robots", [])


async def test_page_waits_while_robots_cannot_be_read(desk: Desk) -> None:
    desk.verdicts["a.test"] = Verdict(False, wait=120.0)
    outcome = await desk.run()
    assert (outcome.result, outcome.cause, outcome.after) == ("retry", "robots_unreachable", 120.0)


async def test_robots_took_the_slot_so_the_page_takes_another(desk: Desk) -> None:
    desk.verdicts["a.test"] = Verdict(True, fresh=True)
    await desk.run(spacing=1.0)
    assert desk.asked == ["slot a.test", HOME]


async def test_crawl_delay_moves_the_lane_before_the_first_page(desk: Desk) -> None:
    desk.verdicts["a.test"] = Verdict(True, crawl_delay=10.0, fresh=True, news=True)
    outcome = await desk.run(spacing=1.0)
    assert desk.changes == [LaneChange("a.test", spacing=10.0, reason="crawl-delay")]
    assert outcome.lanes == (), "told at once: a slower pace learned meanwhile is not forgotten for it"


async def test_task_called_back_is_handed_back_at_no_cost(desk: Desk) -> None:
    started = asyncio.Event()

    @desk.handler
    async def every(page: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    running = asyncio.create_task(desk.run())
    await started.wait()
    running.cancel()
    outcome = await running
    assert (outcome.result, outcome.attempt) == ("released", None)


async def test_links_and_records_may_be_yielded_as_a_list(desk: Desk) -> None:
    @desk.handler
    async def every(page: Any) -> Any:
        yield page.follow(["/a", "/b"])
        yield [{"n": 1}, {"n": 2}]

    desk.answers[HOME] = html()
    outcome = await desk.run()
    assert [task.url for task in outcome.found] == [HOME + "a", HOME + "b"]
    assert [msgspec.json.decode(it) for it in outcome.records] == [{"n": 1}, {"n": 2}]


async def test_meta_that_no_queue_could_keep_is_said_to_the_handler(desk: Desk) -> None:
    class Model:
        def model_dump(self, mode: str) -> dict[str, int]:
            return {"a": 1}

    @desk.handler
    def every(page: Any) -> Any:
        yield from page.follow(["/a"], meta={"it": Model()})

    desk.answers[HOME] = html()
    outcome = await desk.run()
    assert outcome.cause == "handler.TypeError" and outcome.attempt is not None
    assert "meta key 'it'" in outcome.attempt.message
