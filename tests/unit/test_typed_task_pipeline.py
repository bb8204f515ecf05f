"""One typed task as a pipeline: what its handler gives, what it raises, and its client."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pipeline_harness import PipelineHarness
from wait import HANG, until

from shoal.core.task import LeasedTask, Outcome
from shoal.core.typed_task import Task
from shoal.errors import GiveUp, Retry
from shoal.extract.scraper import Scraper
from shoal.worker.context import WorkerContext
from shoal.worker.task import typed_task
from shoal.worker.task.handler_runner import handler_task_factory
from shoal.worker.task.pipeline import process_task
from shoal.worker.task.threads import HandlerThreads


@pytest.fixture
def harness() -> PipelineHarness:
    return PipelineHarness()


def records(outcome: Outcome) -> list[Any]:
    return [msgspec.json.decode(record) for record in outcome.records]


async def perform(harness: PipelineHarness, tools: WorkerContext | None = None, **given: Any) -> Outcome:
    own = tools or harness.tools()
    task = LeasedTask(
        **{"id": 7, "lease": 9, "run": 1, "lane": "task:t:0", "url": "task:t/k", "kind": "t"}
        | {"meta": {"payload": {"n": 4}}}
        | given
    )
    try:
        return await process_task(task, own, 100.0)
    finally:
        if tools is None:
            await own.close()


@dataclass
class Item:
    n: int


class Callable_:
    async def __call__(self, task: Any) -> Any:
        return task.payload["n"]


def plain(task: Any) -> Any:
    return {"n": task.payload["n"]}


async def awaited(task: Any) -> Any:
    await asyncio.sleep(0)
    return {"n": task.payload["n"]}


def generator(task: Any) -> Iterator[Any]:
    yield {"n": 1}
    yield "two"


async def async_generator(task: Any) -> AsyncIterator[Any]:
    yield {"n": 1}
    await asyncio.sleep(0)
    yield "two"


async def with_more(task: Any, more: int) -> Any:
    return task.payload["n"] + more


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (plain, [{"n": 4}]),
        (awaited, [{"n": 4}]),
        (generator, [{"n": 1}, {"value": "two"}]),
        (async_generator, [{"n": 1}, {"value": "two"}]),
        (functools.partial(with_more, more=1), [{"value": 5}]),
        (Callable_(), [{"value": 4}]),
        (lambda task: with_more(task, 2), [{"value": 6}]),
        (lambda task: async_generator(task), [{"n": 1}, {"value": "two"}]),
        (lambda task: [1, 2], [{"value": [1, 2]}]),
        (lambda task: {"value": 1}, [{"value": {"value": 1}}]),
        (lambda task: Item(3), [{"n": 3}]),
        (lambda task: "text", [{"value": "text"}]),
        (lambda task: 0, [{"value": 0}]),
        (lambda task: None, []),
        (lambda task: iter(()), []),
    ],
)
async def test_what_a_handler_gives_is_kept_as_records(
    harness: PipelineHarness, handler: Any, expected: list[Any]
) -> None:
    harness.scraper.task("t")(handler)
    outcome = await perform(harness)
    assert outcome.result == "done", outcome
    assert records(outcome) == expected
    assert harness.calls == []  # no slot, no request


async def test_code_that_is_not_async_runs_in_a_thread_and_holds_nobody_up(harness: PipelineHarness) -> None:
    both = threading.Barrier(2, timeout=HANG)

    @harness.scraper.task("t")
    def handler(task: Any) -> Any:
        both.wait()
        return threading.current_thread() is threading.main_thread()

    tools = harness.tools()
    outcomes = await asyncio.gather(perform(harness, tools), perform(harness, tools, id=8))
    assert [records(outcome) for outcome in outcomes] == [[{"value": False}], [{"value": False}]]
    await tools.close()


async def test_threads_are_used_again() -> None:
    threads = HandlerThreads()
    names = {await threads.call(lambda: threading.get_ident()) for _ in range(20)}
    assert len(names) == 1
    threads.close()


class Large:
    """What a handler works with, in place of some hundred megabytes."""


async def test_idle_thread_holds_nothing_of_the_task_it_had() -> None:
    threads, large = HandlerThreads(), Large()
    gone = weakref.ref(large)
    call = functools.partial(type, large)
    del large
    await threads.call(call)
    del call
    await until(lambda: gone() is None)
    threads.close()


@pytest.mark.parametrize("meta", [{"retries": "many"}, {"retries": -1}, {"payload": [1]}, {"payload": None}])
async def test_task_that_somebody_else_wrote_oddly_ends_no_worker(
    harness: PipelineHarness, meta: dict[str, Any]
) -> None:
    harness.scraper.task("t")(lambda task: task.payload["n"])
    assert (await perform(harness, meta=meta)).cause == "handler.KeyError"


@pytest.mark.parametrize(
    ("error", "result", "cause"),
    [
        (ValueError("odd"), "retry", "handler.ValueError"),
        (Retry("api.busy", "later", after=30.0), "retry", "api.busy"),
        (GiveUp("gone", "no such user"), "dead", "gone"),
        (StopIteration(), "retry", "handler.RuntimeError"),
        (SystemExit(3), "retry", "handler.SystemExit"),
        (MemoryError(), "retry", "memory"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_errors_go_the_way_of_the_retry_policy(
    harness: PipelineHarness, error: BaseException, result: str, cause: str, is_async: bool
) -> None:
    def fails(task: Any) -> None:
        raise error

    async def fails_later(task: Any) -> None:
        raise error

    harness.scraper.task("t")(fails_later if is_async else fails)
    outcome = await perform(harness)
    assert (outcome.result, outcome.cause) == (result, cause)
    if isinstance(error, Retry):
        assert outcome.after >= 30.0


@pytest.mark.parametrize(
    ("of_task", "of_handler", "failures", "result"),
    [
        (None, None, 0, "retry"),  # one retry unless said otherwise
        (None, None, 1, "dead"),
        (None, 3, 2, "retry"),
        (None, 3, 3, "dead"),
        (0, 3, 0, "dead"),
        (5, 0, 4, "retry"),
    ],
)
async def test_retries_are_the_tasks_own_or_else_the_handlers(
    harness: PipelineHarness, of_task: int | None, of_handler: int | None, failures: int, result: str
) -> None:
    @harness.scraper.task("t", retries=of_handler)
    def handler(task: Any) -> None:
        raise ValueError("odd")

    meta: dict[str, Any] = {"payload": {}} | ({} if of_task is None else {"retries": of_task})
    outcome = await perform(harness, meta=meta, failures={"handler.ValueError": failures})
    assert outcome.result == result
    if result == "dead":
        assert outcome.evidence is not None
        assert "ValueError: odd" in outcome.evidence["traceback"]


async def test_record_that_is_not_json_names_the_key(harness: PipelineHarness) -> None:
    harness.scraper.task("t")(lambda task: {"fine": 1, "lock": threading.Lock()})
    outcome = await perform(harness)
    assert outcome.attempt is not None
    assert "key 'lock'" in outcome.attempt.message


@pytest.mark.parametrize("is_async", [False, True])
async def test_time_limit_of_the_handler_ends_the_attempt(harness: PipelineHarness, is_async: bool) -> None:
    ended = threading.Event()

    @harness.scraper.task("t", timeout=0.05)
    def handler(task: Any) -> Iterator[Any]:
        try:
            while True:
                time.sleep(0.01)
                yield {}
        finally:
            ended.set()

    async def handler_async(task: Any) -> None:
        await asyncio.sleep(60)

    if is_async:
        harness.scraper.tasks.clear()
        harness.scraper.task("t", timeout=0.05)(handler_async)
    outcome = await perform(harness)
    assert (outcome.result, outcome.cause) == ("retry", "handler_timeout")
    assert is_async or ended.wait(HANG)  # a generator in a thread ends with its next yield


async def test_time_before_a_handler_first_waits_counts_for_its_limit(harness: PipelineHarness) -> None:
    @harness.scraper.task("t", timeout=2 * HANG)
    async def handler(task: Any) -> None:
        harness.now += 3 * HANG
        await asyncio.sleep(2 * HANG)

    async with asyncio.timeout(HANG):
        assert (await perform(harness)).cause == "handler_timeout"


async def test_generator_that_never_waits_is_ended_by_its_time_limit(harness: PipelineHarness) -> None:
    @harness.scraper.task("t", timeout=0.05)
    async def handler(task: Any) -> AsyncIterator[Any]:
        while True:
            yield {}

    assert (await perform(harness)).cause == "handler_timeout"


async def test_zero_is_no_time_limit(harness: PipelineHarness) -> None:
    harness.limit = 0.01
    harness.scraper.task("t", timeout=0)(lambda task: time.sleep(0.05))
    assert (await perform(harness)).result == "done"


async def test_cancelled_attempt_is_released_and_its_thread_is_told(harness: PipelineHarness) -> None:
    begun, told = threading.Event(), threading.Event()

    @harness.scraper.task("t")
    def handler(task: Any) -> None:
        begun.set()
        while not task.cancelled:
            time.sleep(0.001)
        told.set()

    tools = harness.tools()
    attempt = asyncio.create_task(perform(harness, tools))
    await asyncio.to_thread(begun.wait, HANG)
    assert tools.clients.threads.abandoned == 0
    attempt.cancel()
    outcome = await attempt
    assert outcome.result == "released"
    assert await asyncio.to_thread(told.wait, HANG)
    await until(lambda: not tools.clients.threads.abandoned)


async def test_worker_with_too_many_stuck_threads_makes_place_for_another(
    harness: PipelineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typed_task, "MAX_ABANDONED_THREADS", 2)
    sent: list[Any] = []
    monkeypatch.setattr(typed_task.os, "kill", lambda *args: sent.append(args))
    go_on = threading.Event()
    harness.scraper.task("t", timeout=0.02)(lambda task: go_on.wait(HANG))
    tools = harness.tools()
    await perform(harness, tools)
    assert not sent
    await perform(harness, tools, id=8)
    assert len(sent) == 1
    go_on.set()


async def test_note_names_the_tasks_whose_code_runs_in_threads(harness: PipelineHarness) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @harness.scraper.task("t")
    def handler(task: Any) -> None:
        begun.set()
        go_on.wait(HANG)

    tools = harness.tools()
    attempt = asyncio.create_task(perform(harness, tools))
    await asyncio.to_thread(begun.wait, HANG)
    assert tools.crash_note.snapshot().executing == (7,)
    go_on.set()
    await attempt
    assert tools.crash_note.snapshot().executing == ()


async def test_note_names_the_task_while_async_code_runs(harness: PipelineHarness) -> None:
    seen: list[tuple[int, ...]] = []
    asyncio.get_running_loop().set_task_factory(handler_task_factory)
    tools = harness.tools()

    async def within() -> None:
        seen.append(tools.crash_note.snapshot().executing)

    @harness.scraper.task("t")
    async def handler(task: Any) -> None:
        await within()
        await asyncio.create_task(within())
        await asyncio.sleep(0)

    assert (await perform(harness, tools)).result == "done"
    assert seen == [(7,), (7,)]
    assert tools.crash_note.snapshot().executing == ()


async def test_slot_of_a_lane_with_a_rate_is_kept(harness: PipelineHarness) -> None:
    harness.scraper.task("t")(plain)
    outcome = await perform(harness, spacing=0.5)
    assert outcome.result == "done"
    harness.now = 101.0
    await perform(harness, spacing=0.5)
    assert harness.calls == ["slot task:t:0"]  # it came late, so it took another


async def test_type_without_a_handler_is_given_up_with_a_reason(harness: PipelineHarness) -> None:
    outcome = await perform(harness)
    assert (outcome.result, outcome.cause) == ("dead", "no_handler")


async def test_success_of_a_probe_releases_its_lane(harness: PipelineHarness) -> None:
    harness.scraper.task("t")(plain)
    outcome = await perform(harness, probe=2)
    assert [change.park_for for change in outcome.lanes] == [0.0]


# the client


async def test_client_is_opened_once_before_the_first_task_and_closed_at_the_end(harness: PipelineHarness) -> None:
    story: list[str] = []

    @harness.scraper.open
    async def login() -> str:
        story.append("open")
        await asyncio.sleep(0)
        return "client"

    @harness.scraper.close
    def logout(client: str) -> None:
        story.append(f"close {client}")

    harness.scraper.task("t")(lambda task: story.append(task.client))
    tools = harness.tools()
    await asyncio.gather(perform(harness, tools), perform(harness, tools))
    assert story == ["open", "client", "client"]
    await tools.close()
    await tools.close()
    assert story[3:] == ["close client"]


async def test_client_that_cannot_be_opened_costs_no_task_its_life(harness: PipelineHarness) -> None:
    tries: list[int] = []

    @harness.scraper.open
    def login() -> None:
        tries.append(1)
        raise ConnectionError("refused")

    harness.scraper.task("t", retries=0)(plain)
    tools = harness.tools()
    outcome = await perform(harness, tools, failures={"client": 50})
    assert (outcome.result, outcome.cause) == ("retry", "client")
    assert outcome.attempt is not None
    assert "ConnectionError: refused" in outcome.attempt.message
    await perform(harness, tools)
    assert len(tries) == 1  # it is left alone for a moment


async def test_closing_goes_on_after_a_failure(harness: PipelineHarness) -> None:
    closed: list[str] = []
    first, second = Scraper("first"), Scraper("second")
    for scraper in (first, second):
        scraper.open(lambda: "it")
    first.close(closed.append)

    @second.close
    def fails(client: str) -> None:
        raise OSError("away")

    tools = harness.tools()
    assert [await tools.clients.client_for(first), await tools.clients.client_for(second)] == ["it", "it"]
    await tools.close()
    assert closed == ["it"]


# fanning out


async def test_tasks_of_the_same_type_are_found_in_the_same_step(harness: PipelineHarness) -> None:
    @harness.scraper.task("t")
    def handler(task: Any) -> None:
        task.enqueue(Task(type="t", payload={"n": 5}), Task(type="t", payload={"n": 5}))
        task.enqueue(Task(type="t", key="mine", priority=9))

    one, two = await perform(harness), await perform(harness, lease=10, attempts=1)
    assert [task.kind for task in one.found] == ["t", "t", "t"]
    assert [task.parent for task in one.found] == [7, 7, 7]
    assert one.found[2].url == "task:t/mine"
    digests = [task.digest for task in one.found]
    assert len(set(digests)) == 3
    assert [task.digest for task in two.found] == digests  # tried again, it finds the same tasks
    other = await perform(harness, id=8)
    assert other.found[0].digest not in digests


async def test_what_a_failed_handler_wanted_is_dropped(harness: PipelineHarness) -> None:
    @harness.scraper.task("t")
    def handler(task: Any) -> None:
        task.enqueue(Task(type="t"))
        raise ValueError("odd")

    assert (await perform(harness)).found == ()


async def test_only_tasks_can_be_enqueued(harness: PipelineHarness) -> None:
    harness.scraper.task("t")(lambda task: task.enqueue({"type": "t"}))
    outcome = await perform(harness)
    assert outcome.attempt is not None
    assert "shoal.Task" in outcome.attempt.message or "takes tasks" in outcome.attempt.message


async def test_progress_is_known_while_the_task_goes_on(harness: PipelineHarness) -> None:
    tools = harness.tools()
    said: list[str] = []

    @harness.scraper.task("t")
    def handler(task: Any) -> None:
        task.progress("page 3 of 7")
        said.extend(tools.clients.progress.values())

    await perform(harness, tools)
    assert said == ["page 3 of 7"]
    assert not tools.clients.progress


@pytest.mark.parametrize(("attempts", "lost", "attempt"), [(0, 0, 1), (2, 0, 3), (0, 1, 2)])
async def test_attempt_counts_from_one(harness: PipelineHarness, attempts: int, lost: int, attempt: int) -> None:
    harness.scraper.task("t")(lambda task: task.attempt)
    assert records(await perform(harness, attempts=attempts, lost=lost)) == [{"value": attempt}]
