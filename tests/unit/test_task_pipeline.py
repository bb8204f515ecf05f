"""One task as a pipeline: what becomes of it, by what the slot, robots, the server and the handler do."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from pipeline_harness import HOME, PipelineHarness, html

from shoal.core.lane import Slot
from shoal.core.page import Response
from shoal.core.task import LaneChange, LeasedTask, RequestOptions
from shoal.core.url import request_digest
from shoal.errors import (
    FetchFailed,
    FetchRefused,
    GiveUp,
    QueueFull,
    QueueReadOnly,
    QueueRefused,
    QueueUnavailable,
    Retry,
)
from shoal.politeness.robots import RobotsVerdict
from shoal.queue.base import UrlFailures
from shoal.worker.task.handler_runner import handler_task_factory
from shoal.worker.task.pipeline import process_task


@pytest.fixture
def harness() -> PipelineHarness:
    harness = PipelineHarness()
    harness.answers[HOME] = html('<a href="/b">b</a><a href="http://other.test/">o</a>')
    return harness


async def test_page_without_handler_is_done_and_its_links_are_followed_where_a_handler_waits(
    harness: PipelineHarness,
) -> None:
    harness.scraper.page("/b")(lambda page: None)
    outcome = await harness.run()
    assert outcome.result == "done"
    assert [task.url for task in outcome.found] == ["http://a.test/b"]
    assert outcome.found[0].parent == 7
    assert outcome.attempt is not None
    assert outcome.attempt.status == 200


async def test_handler_yields_records_and_links(harness: PipelineHarness) -> None:
    @dataclasses.dataclass
    class Item:
        name: str

    class Thing(msgspec.Struct):
        name: str

    @harness.handler
    def every(page: Any) -> Any:
        record = {"n": 1}
        yield record
        record["n"] = 2
        yield Item("i")
        yield Thing("t")
        yield from page.follow()

    outcome = await harness.run()
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
    [lambda page: [{"a": 1}, *page.follow()], lambda page: iter([{"a": 1}, *page.follow()]), _coroutine, _stream],
)
async def test_handler_may_be_a_function_a_generator_or_async(harness: PipelineHarness, handler: Any) -> None:
    harness.handler(handler)
    outcome = await harness.run()
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
        (_raises(ValueError("odd")), "retry", "handler.ValueError", "odd (test_task_pipeline.py:"),
        (_raises(KeyboardInterrupt()), "retry", "handler.KeyboardInterrupt", "test_task_pipeline.py:"),
        (_raises(SystemExit(1)), "retry", "handler.SystemExit", "test_task_pipeline.py:"),
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
    harness: PipelineHarness, handler: Any, result: str, cause: str, word: str
) -> None:
    harness.handler(handler)
    outcome = await harness.run()
    assert (outcome.result, outcome.cause) == (result, cause)
    assert outcome.attempt is not None
    assert word in outcome.attempt.message
    assert not outcome.records


async def test_ctrl_c_in_somebodys_own_process_is_not_the_handlers(harness: PipelineHarness) -> None:
    harness.handler(_raises(KeyboardInterrupt()))
    tools = harness.tools()
    tools.supervised = False
    running = process_task(LeasedTask(id=7, lease=9, run=1, lane="a.test", url=HOME), tools, 100.0)
    with pytest.raises(KeyboardInterrupt):
        await running


async def test_second_failure_of_a_handler_is_dead_with_evidence_and_keeps_nothing_it_yielded(
    harness: PipelineHarness,
) -> None:
    @harness.handler
    def every(page: Any) -> Any:
        yield {"a": 1}
        raise KeyError("price")

    outcome = await harness.run(failures={"handler.KeyError": 1})
    assert (outcome.result, outcome.records, outcome.found) == ("dead", (), ())
    assert outcome.evidence is not None
    assert outcome.evidence["status"] == 200
    assert "<a href" in outcome.evidence["body"]
    assert 'raise KeyError("price")' in outcome.evidence["traceback"]


async def test_async_handler_that_takes_too_long_is_stopped(harness: PipelineHarness) -> None:
    harness.limit = 0.01

    @harness.handler
    async def every(page: Any) -> None:
        await asyncio.sleep(10)

    outcome = await harness.run()
    assert (outcome.result, outcome.cause) == ("retry", "handler_timeout")


@pytest.mark.parametrize("waits", [True, False])
async def test_handler_that_yields_for_ever_is_stopped(harness: PipelineHarness, waits: bool) -> None:
    def tick() -> dict[str, float]:
        harness.now += 1.0
        return {"now": harness.now}

    async def stream(page: Any) -> Any:
        while True:
            yield tick()

    def plain(page: Any) -> Any:
        while True:
            yield tick()

    harness.handler(stream if waits else plain)
    outcome = await harness.run()
    assert (outcome.result, outcome.cause) == ("retry", "handler_timeout")


async def test_only_the_code_of_the_handler_is_noted_not_its_waiting(harness: PipelineHarness) -> None:
    tools = harness.tools()
    seen: list[int] = []

    @harness.handler
    async def every(page: Any) -> Any:
        seen.append(tools.crash_note.snapshot().task)
        watcher = asyncio.get_running_loop().call_soon(lambda: seen.append(tools.crash_note.snapshot().task))
        await asyncio.sleep(0.01)
        watcher.cancel()
        seen.append(tools.crash_note.snapshot().task)

    await process_task(LeasedTask(id=7, lease=9, run=1, lane="a.test", url=HOME), tools, 100.0)
    assert seen == [7, 0, 7]
    assert tools.crash_note.snapshot().task == 0


async def test_tasks_a_handler_starts_are_noted_as_its_code(harness: PipelineHarness) -> None:
    tools = harness.tools()
    seen: list[int] = []

    async def part() -> None:
        seen.append(tools.crash_note.snapshot().task)
        await asyncio.sleep(0)
        seen.append(tools.crash_note.snapshot().task)

    @harness.handler
    async def every(page: Any) -> None:
        await asyncio.gather(part(), part())

    loop = asyncio.get_running_loop()
    loop.set_task_factory(handler_task_factory)
    await asyncio.create_task(process_task(LeasedTask(id=7, lease=9, run=1, lane="a.test", url=HOME), tools, 100.0))
    await asyncio.create_task(part())
    loop.set_task_factory(None)
    assert seen == [7, 7, 7, 7, 0, 0]


async def test_step_that_held_the_loop_is_told_to_the_fetcher(harness: PipelineHarness) -> None:
    @harness.handler
    def every(page: Any) -> None:
        harness.now += 3.0

    await harness.run()
    assert harness.stalls == [3.0]


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
async def test_answer_decides(harness: PipelineHarness, answer: Any, result: str, cause: str, after: float) -> None:
    harness.answers[HOME] = answer
    outcome = await harness.run()
    assert (outcome.result, outcome.cause, outcome.after) == (result, cause, after)


async def test_server_that_asks_for_less_moves_its_lane(harness: PipelineHarness) -> None:
    harness.answers[HOME] = html(status=503, retry_after="30")
    outcome = await harness.run()
    assert outcome.lanes[0].lane == "a.test"
    assert outcome.lanes[0].hold_for == 30.0


# redirects


def moved(to: str) -> Response:
    return html(status=302, location=to)


async def test_redirect_is_followed_and_remembered_by_where_it_led(harness: PipelineHarness) -> None:
    harness.answers |= {HOME: moved("/x"), "http://a.test/x": moved("y#part"), "http://a.test/y": html()}
    outcome = await harness.run(parent=1)
    assert outcome.result == "done"
    assert outcome.redirect_digest == request_digest("http://a.test/y")


@pytest.mark.parametrize("to", [HOME, "ftp://a.test/", "http://exa mple/"])
async def test_redirect_that_leads_nowhere_is_dead(harness: PipelineHarness, to: str) -> None:
    harness.answers[HOME] = moved(to)
    outcome = await harness.run()
    assert (outcome.result, outcome.cause) == ("dead", "redirects")


async def test_endless_redirects_are_dead(harness: PipelineHarness) -> None:
    harness.answers |= {f"http://a.test/{n}": moved(f"/{n + 1}") for n in range(20)}
    outcome = await harness.run("http://a.test/0")
    assert (outcome.result, outcome.cause) == ("dead", "redirects")
    assert len(harness.calls) == 11


@pytest.mark.parametrize(("parent", "result"), [(None, "done"), (1, "cancelled")])
async def test_redirect_out_of_scope_is_for_start_urls_only(
    harness: PipelineHarness, parent: int | None, result: str
) -> None:
    harness.answers |= {HOME: moved("http://b.test/"), "http://b.test/": html()}
    outcome = await harness.run(parent=parent)
    assert outcome.result == result
    assert outcome.cause == ("" if parent is None else "scope")


async def test_redirect_uses_a_slot_of_the_host_it_leads_to(harness: PipelineHarness) -> None:
    harness.answers |= {HOME: moved("http://b.test/"), "http://b.test/": html()}
    await harness.run()
    assert harness.calls == [HOME, "slot b.test", "http://b.test/"]


async def test_redirect_to_a_parked_host_waits_in_the_queue(harness: PipelineHarness) -> None:
    harness.answers[HOME] = moved("http://b.test/")
    harness.slots = [Slot(0.0, "captcha", taken=False)]
    outcome = await harness.run()
    assert (outcome.result, outcome.cause) == ("retry", "lane_busy")


# slots and robots


@pytest.mark.parametrize(
    ("start_at", "spacing", "asked"),
    [(100.0, 1.0, [HOME]), (99.97, 1.0, [HOME]), (99.9, 1.0, ["slot a.test", HOME]), (0.0, 0.0, [HOME])],
)
async def test_slot_that_was_missed_is_reserved_again(
    harness: PipelineHarness, start_at: float, spacing: float, asked: list[str]
) -> None:
    await harness.run(start_at=start_at, spacing=spacing)
    assert harness.calls == asked


@pytest.mark.parametrize("slot", [Slot(0.0, "captcha", taken=False), Slot(600.0, taken=False)])
async def test_task_of_a_parked_or_booked_host_is_handed_back(harness: PipelineHarness, slot: Slot) -> None:
    harness.slots = [slot]
    outcome = await harness.run(start_at=0.0, spacing=1.0)
    assert outcome.result == "released"
    assert outcome.attempt is None


@pytest.mark.parametrize(("parent", "result"), [(None, "dead"), (1, "cancelled")])
async def test_page_that_robots_refuse_is_not_fetched(
    harness: PipelineHarness, parent: int | None, result: str
) -> None:
    harness.verdicts["a.test"] = RobotsVerdict(False)
    outcome = await harness.run(parent=parent)
    assert (outcome.result, outcome.cause, harness.calls) == (result, "robots", [])


async def test_page_waits_while_robots_cannot_be_read(harness: PipelineHarness) -> None:
    harness.verdicts["a.test"] = RobotsVerdict(False, wait=120.0)
    outcome = await harness.run()
    assert (outcome.result, outcome.cause, outcome.after) == ("retry", "robots_unreachable", 120.0)


async def test_robots_took_the_slot_so_the_page_takes_another(harness: PipelineHarness) -> None:
    harness.verdicts["a.test"] = RobotsVerdict(True, fresh=True)
    await harness.run(spacing=1.0)
    assert harness.calls == ["slot a.test", HOME]


async def test_crawl_delay_moves_the_lane_before_the_first_page(harness: PipelineHarness) -> None:
    harness.verdicts["a.test"] = RobotsVerdict(True, crawl_delay=10.0, fresh=True, crawl_delay_changed=True)
    outcome = await harness.run(spacing=1.0)
    assert harness.changes == [LaneChange("a.test", spacing=10.0, reason="crawl-delay")]
    assert outcome.lanes == (), "told at once: a slower pace learned meanwhile is not forgotten for it"


async def test_task_called_back_is_handed_back_at_no_cost(harness: PipelineHarness) -> None:
    started = asyncio.Event()

    @harness.handler
    async def every(page: Any) -> None:
        started.set()
        await asyncio.sleep(60)

    running = asyncio.create_task(harness.run())
    await started.wait()
    running.cancel()
    outcome = await running
    assert (outcome.result, outcome.attempt) == ("released", None)


async def test_links_and_records_may_be_yielded_as_a_list(harness: PipelineHarness) -> None:
    @harness.handler
    async def every(page: Any) -> Any:
        yield page.follow(["/a", "/b"])
        yield [{"n": 1}, {"n": 2}]

    harness.answers[HOME] = html()
    outcome = await harness.run()
    assert [task.url for task in outcome.found] == [HOME + "a", HOME + "b"]
    assert [msgspec.json.decode(it) for it in outcome.records] == [{"n": 1}, {"n": 2}]


async def test_meta_that_no_queue_could_keep_is_said_to_the_handler(harness: PipelineHarness) -> None:
    class Model:
        def model_dump(self, mode: str) -> dict[str, int]:
            return {"a": 1}

    @harness.handler
    def every(page: Any) -> Any:
        yield from page.follow(["/a"], meta={"it": Model()})

    harness.answers[HOME] = html()
    outcome = await harness.run()
    assert outcome.cause == "handler.TypeError" and outcome.attempt is not None
    assert "meta key 'it'" in outcome.attempt.message


async def test_a_page_waits_for_a_host_that_asked_for_quiet_after_its_slot_was_given_out(
    harness: PipelineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        harness.now += seconds

    harness.answers[HOME] = html()
    tools = harness.tools()
    tools.lane_holds.add("a.test", 20.0)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    leased = LeasedTask(id=7, lease=9, run=1, lane="a.test", url=HOME, spacing=1.0)
    assert (await process_task(leased, tools, 100.0)).result == "done"
    assert slept == [20.0]
    assert harness.calls == ["slot a.test", HOME], "its own slot was before that"


async def test_a_page_of_a_dead_host_fails_without_a_request_but_for_a_probe_a_minute(harness: PipelineHarness) -> None:
    harness.answers[HOME] = html()
    tools = harness.tools()
    tools.health.record_failure("a.test", task=1, cause="connect", now=harness.now, probe=9)
    leased = LeasedTask(id=7, lease=9, run=1, lane="a.test", url=HOME)
    outcome = await process_task(leased, tools, 100.0)
    assert (outcome.result, outcome.cause, harness.calls) == ("dead", "connect", [])
    harness.now += 60.0
    assert (await process_task(leased, tools, 160.0)).result == "done"
    assert harness.calls == [HOME]


@pytest.mark.parametrize(
    ("headers", "result", "cause"),
    [((), "dead", "http.304"), ((("If-None-Match", '"a"'),), "done", ""), ((("X-Other", "1"),), "dead", "http.304")],
)
async def test_not_modified_is_an_answer_only_to_whoever_asked_for_it(
    harness: PipelineHarness, headers: Any, result: str, cause: str
) -> None:
    harness.answers[HOME] = html("", 304)
    outcome = await harness.run(request_options=RequestOptions(headers=headers))
    assert (outcome.result, outcome.cause) == (result, cause)


@pytest.mark.parametrize(("again", "counts"), [(False, [1, 1, 0, 0]), (True, [1, 1, 1, 1])])
async def test_links_of_pages_that_are_all_the_same_are_followed_only_so_often(
    harness: PipelineHarness, again: bool, counts: list[int]
) -> None:
    body = f'<a href="/b">b</a>{"x" * 200}'
    harness.scraper.page("*")(lambda page: page.follow([f"{page.url}x"], again=again))
    tools = harness.tools()
    built = await tools.build_run_context(1)
    limited = dataclasses.replace(built, max_same_content=2)

    async def serve(run: int) -> Any:
        return limited

    tools.build_run_context = serve
    found = []
    for number in range(4):
        url = f"http://a.test/{number}"
        harness.answers[url] = html(body)
        outcome = await process_task(LeasedTask(id=7, lease=9, run=1, lane="a.test", url=url), tools, 100.0)
        assert outcome.result == "done"
        found.append(len(outcome.found))
    assert found == counts


async def test_links_to_urls_that_failed_too_often_before_are_skipped(harness: PipelineHarness) -> None:
    async def failures(urls: list[str]) -> list[UrlFailures]:
        return [UrlFailures(int(url[-1])) for url in urls]

    harness.failures = failures  # type: ignore[attr-defined]
    harness.answers[HOME] = html()
    harness.scraper.page("*")(lambda page: page.follow(["/1", "/2", "/3"]))
    tools = harness.tools()
    strict = dataclasses.replace(await tools.build_run_context(1), skip_failing=2)

    async def serve(run: int) -> Any:
        return strict

    tools.build_run_context = serve
    outcome = await process_task(LeasedTask(id=7, lease=9, run=1, lane="a.test", url=HOME), tools, 100.0)
    assert [task.url for task in outcome.found] == ["http://a.test/1"]
    assert outcome.skipped == (("failing", "http://a.test/2"), ("failing", "http://a.test/3"))


@pytest.mark.parametrize("error", [QueueUnavailable, QueueFull, QueueReadOnly, QueueRefused])
async def test_a_queue_that_cannot_be_asked_costs_the_page_nothing(
    harness: PipelineHarness, error: type[Exception]
) -> None:
    async def reserve(*args: Any, **named: Any) -> Slot:
        raise error("gone")

    harness.reserve = reserve  # type: ignore[method-assign]
    outcome = await harness.run(start_at=0.0, spacing=1.0)
    assert (outcome.result, outcome.attempt, harness.calls) == ("released", None, [])


async def test_what_a_handler_raises_can_be_stored_whatever_is_in_it(harness: PipelineHarness) -> None:
    harness.handler(_raises(ValueError("half \ud800 a pair")))
    outcome = await harness.run(failures={"handler.ValueError": 1})
    assert outcome.result == "dead" and outcome.attempt is not None
    assert outcome.attempt.message.startswith("ValueError: half ? a pair")
    assert msgspec.json.encode(outcome.evidence)


# what it counts for its run


async def test_a_page_counts_what_its_exchange_took_and_how_its_records_are_filled(harness: PipelineHarness) -> None:
    harness.answers[HOME] = msgspec.structs.replace(html("x" * 50), seconds=0.25)

    @harness.handler
    def every(page: Any) -> Any:
        yield {"title": "a", "price": 1}
        yield {"title": "", "price": 2.5}

    counters = dict((await harness.run()).counters)
    assert counters.pop("fetch.http.direct.cpu_us") >= 0
    assert counters == {
        "fetch.http.direct.responses": 1, "fetch.http.direct.bytes": 50, "fetch.http.direct.us": 250_000,
        "field.title.string": 1, "field.title.empty": 1, "field.price.number": 2,
    }  # fmt: skip


async def test_a_page_that_failed_counts_its_exchange_and_one_without_an_answer_nothing(
    harness: PipelineHarness,
) -> None:
    harness.answers[HOME] = html("gone", status=404)
    counters = (await harness.run()).counters
    assert (counters["fetch.http.direct.responses"], counters["fetch.http.direct.bytes"]) == (1, 4)
    assert not [name for name in counters if name.startswith("field.")]
    harness.answers[HOME] = FetchFailed("timeout.connect", "it took too long")
    assert (await harness.run()).counters == {}


async def test_a_page_that_was_replayed_is_counted_as_that(harness: PipelineHarness) -> None:
    harness.name = "replay"  # type: ignore[attr-defined]
    assert (await harness.run()).counters["fetch.replay.direct.responses"] == 1


async def test_a_page_through_a_proxy_is_counted_under_its_name(harness: PipelineHarness) -> None:
    tools = harness.tools()
    run_context = await tools.run_context(1)
    run_context.request_builder._secrets = {"office": "http://user:pw@proxy.test:1"}
    leased = LeasedTask(id=7, lease=9, run=1, lane="a.test", url=HOME, request_options=RequestOptions(proxy="office"))
    counters = (await process_task(leased, tools, 100.0)).counters
    assert counters["fetch.http.office.responses"] == 1 and "pw" not in str(counters)
