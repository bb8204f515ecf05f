"""The worker around its tasks: batches, drain, lost leases, trouble with the queue."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from simulation import EPOCH, run_virtually

from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.page import Request, Response
from shoal.core.run import NewRun
from shoal.core.task import Ack, LaneChange, Outcome, Task, Verdict, digest
from shoal.core.url import request_digest
from shoal.errors import QueueFull, QueueUnavailable
from shoal.extract.links import LinkFilter
from shoal.extract.scraper import Scraper
from shoal.queue.base import MAX_FOUND_PER_SETTLE, Queue
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_tasks
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.leases import Leases
from shoal.worker.loop import Worker
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.settler import Settler, split_outcome


class Spy:
    """A queue that counts its verbs and can be told to fail."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.calls: list[str] = []
        self.settled: list[Sequence[Outcome]] = []
        self.trouble: Callable[[str], BaseException | None] = lambda verb: None

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        real = getattr(self.queue, verb)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(verb)
            if error := self.trouble(verb):
                raise error
            if verb == "settle":
                self.settled.append(args[0])
            return await real(*args, **kwargs)

        return call


class WorkerHarness:
    """One worker on a virtual clock, with a queue in memory and a web of blank pages."""

    def __init__(self, handler: Callable[..., Any] = lambda page: [{"url": page.url}], **plan: Any) -> None:
        self.scraper = Scraper("s", hosts="*")
        self.scraper.page("*")(handler)
        self.links = LinkFilter(self.scraper.in_scope, None, lambda lane, url: None)
        self.fetched: list[str] = []
        self.latency = 0.01
        self.stalled = 0.0  # seconds that the worker stood still, by its own clock
        self.plan = plan

    async def open(self, *paths: str, pace: Pace = UNLIMITED_PACE) -> None:
        self.step = 0
        loop = asyncio.get_running_loop()
        store = await SqliteQueue.open(":memory:", clock=lambda: EPOCH + self.step + round(loop.time() * 1e6))
        self.queue = Spy(store)
        self.run = (await store.start_run(NewRun(scraper="s", key="k"))).id
        tasks, _ = start_tasks(f"http://a.test{path}" for path in paths)
        await store.add(self.run, tasks, {"a.test": pace})
        served = RunContext(self.scraper, self.links, None, lambda lane: UNLIMITED_PACE)
        queue: Any = self.queue

        async def serve(run: int) -> RunContext:
            return served

        def clock() -> float:
            return loop.time() + self.stalled

        tools = WorkerContext("w", queue, self, serve, CrashNote.in_memory(), clock=clock, jitter=lambda: 0.5)
        self.worker = Worker(tools, WorkerPlan(runs=(self.run,), **self.plan))

    async def add_pages(self, count: int) -> None:
        tasks, _ = start_tasks(f"http://a.test/more/{number}" for number in range(count))
        await self.queue.queue.add(self.run, tasks, {"a.test": UNLIMITED_PACE})

    async def add_typed(self, count: int, ack: Ack = "manual") -> None:
        """Tasks of the type t."""
        names = [f"task:t/{number}" for number in range(count)]
        tasks = [Task(name, "task:t", digest(name), "t", ack=ack) for name in names]
        await self.queue.queue.add(self.run, tasks, {"task:t": UNLIMITED_PACE})

    async def fetch(self, request: Request) -> Response:
        self.fetched.append(request.url)
        await asyncio.sleep(self.latency)
        return Response(request.url, 200, (), b"")

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...

    async def states(self) -> list[tuple[str, int, int]]:
        return [(task.state, task.attempts, task.lost) for task in await self.queue.queue.list_tasks(self.run)]


def on_virtual_clock(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run an async test on a clock that jumps."""

    def run() -> None:
        run_virtually(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


@on_virtual_clock
async def test_worker_ends_when_nothing_is_open() -> None:
    harness = WorkerHarness()
    await harness.open("/1", "/2", "/3")
    counts = await harness.worker.run()
    assert (counts.done, counts.records) == (3, 3)
    assert not await harness.queue.queue.workers()


@on_virtual_clock
async def test_outcomes_of_many_pages_are_settled_together() -> None:
    harness = WorkerHarness(concurrency=8)
    await harness.open(*(f"/{number}" for number in range(200)))
    await harness.worker.run()
    assert (await harness.queue.queue.stats(harness.run)).done == 200
    assert len(harness.queue.settled) < 30
    assert harness.queue.calls.count("claim") < 40


@on_virtual_clock
async def test_idle_worker_asks_seldom_but_never_stops_asking() -> None:
    harness = WorkerHarness(stop_when_empty=False)
    await harness.open()
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(60)
    asked = harness.queue.calls.count("claim")
    assert 55 < asked < 100
    await harness.queue.queue.add(harness.run, start_tasks(["http://a.test/late"])[0], {"a.test": UNLIMITED_PACE})
    await asyncio.sleep(2)
    assert (await harness.queue.queue.stats(harness.run)).done == 1
    harness.worker.stop()
    await working


@on_virtual_clock
async def test_stop_hands_back_what_is_unfinished_and_settles_what_is_done() -> None:
    harness = WorkerHarness(concurrency=2)
    await harness.open("/1", "/2", "/3", "/4", "/5")
    harness.latency = 1000.0
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(1)
    harness.worker.stop()
    before = asyncio.get_running_loop().time()
    await working
    assert asyncio.get_running_loop().time() - before < 1
    assert await harness.states() == [("ready", 0, 0)] * 5


@on_virtual_clock
async def test_cancelling_the_worker_hands_back_too() -> None:
    harness = WorkerHarness()
    await harness.open("/1")
    harness.latency = 1000.0
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(1)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await harness.states() == [("ready", 0, 0)]


@on_virtual_clock
async def test_handler_that_will_not_be_cancelled_delays_the_end_by_the_grace_only() -> None:
    async def stubborn(page: Any) -> None:
        for _ in range(100):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(10)

    harness = WorkerHarness(stubborn, grace_period=5.0)
    await harness.open("/1")
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(1)
    harness.worker.stop()
    before = asyncio.get_running_loop().time()
    await working
    assert asyncio.get_running_loop().time() - before < 7


@on_virtual_clock
async def test_hold_of_a_lane_without_spacing_is_kept_to_its_end() -> None:
    harness = WorkerHarness()
    await harness.open("/1")
    await harness.queue.queue.set_lane(LaneChange("a.test", hold_for=3.0))
    await harness.worker.run()
    assert asyncio.get_running_loop().time() >= 3.0


@on_virtual_clock
async def test_lease_lost_to_another_is_left_at_once_and_its_outcome_dropped() -> None:
    harness = WorkerHarness(heartbeat=3.0, lease=9.0)
    await harness.open("/1")
    harness.latency = 4.0
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(1)
    await harness.queue.queue.reap({"w": ()})
    await working
    assert len(harness.fetched) == 2  # the first was called back by the heartbeat, the second is the next claim
    assert (await harness.queue.queue.stats(harness.run)).stale == 0
    assert (await harness.queue.queue.stats(harness.run)).done == 1


@on_virtual_clock
async def test_lease_that_cannot_be_renewed_is_left_at_two_thirds() -> None:
    harness = WorkerHarness(heartbeat=3.0, lease=9.0)
    await harness.open("/1")
    harness.latency = 1000.0
    harness.queue.trouble = lambda verb: QueueUnavailable("gone") if verb == "extend" else None
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(5.5)
    assert harness.worker.running == 1
    await asyncio.sleep(1.6)
    assert [len(batch) for batch in harness.queue.settled] == [1]
    assert harness.queue.settled[0][0].result == "released"
    harness.worker.stop()
    await working


@on_virtual_clock
async def test_slow_task_keeps_its_lease_as_long_as_it_takes() -> None:
    harness = WorkerHarness(heartbeat=3.0, lease=9.0)
    await harness.open("/1")
    harness.latency = 100.0
    await harness.worker.run()
    assert await harness.states() == [("done", 1, 0)]


@on_virtual_clock
async def test_task_of_a_cancelled_run_is_not_finished() -> None:
    harness = WorkerHarness(heartbeat=3.0)
    await harness.open("/1")
    harness.latency = 1000.0
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(1)
    await harness.queue.queue.set_run(harness.run, "cancel")
    await working
    assert asyncio.get_running_loop().time() < 10


@on_virtual_clock
async def test_full_disk_pauses_the_worker_and_costs_nothing_once_there_is_room() -> None:
    harness = WorkerHarness(concurrency=2)
    await harness.open(*(f"/{number}" for number in range(20)))
    harness.queue.trouble = lambda verb: (
        QueueFull("no space") if verb == "settle" and asyncio.get_running_loop().time() < 30 else None
    )
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(20)
    assert len(harness.fetched) < 8  # nothing is started whose outcome could not be kept
    counts = await working
    assert counts.done == 20
    assert len(harness.fetched) == 20


@on_virtual_clock
async def test_no_page_is_started_while_the_queue_is_away() -> None:
    harness = WorkerHarness(concurrency=8)
    await harness.open("/0")
    away = True
    harness.queue.trouble = lambda verb: QueueUnavailable("gone") if verb == "settle" and away else None
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(5)
    tasks, _ = start_tasks(f"http://a.test/{number}" for number in range(1, 20))
    await harness.queue.queue.add(harness.run, tasks)
    await asyncio.sleep(15)
    assert len(harness.fetched) == 1, "the outcomes of others could not be kept"
    assert (await harness.queue.queue.stats(harness.run)).leased == 1, "other workers may be able to do them"
    away = False
    assert (await working).done == 20


@on_virtual_clock
async def test_pages_that_wait_for_their_slots_when_the_queue_goes_away_go_on_waiting() -> None:
    harness = WorkerHarness(concurrency=8)
    await harness.open(*(f"/{number}" for number in range(4)), pace=Pace(1.0, 0))
    away = True
    harness.queue.trouble = lambda verb: QueueUnavailable("gone") if verb == "settle" and away else None
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(15)
    assert len(harness.fetched) == 1
    away = False
    assert (await working).done == len(harness.fetched) == 4
    assert await harness.states() == [("done", 1, 0)] * 4


@on_virtual_clock
async def test_worker_that_stood_still_for_a_lease_starts_nothing_of_it() -> None:
    def stands_still(page: Any) -> Any:
        if len(harness.fetched) == 1:
            harness.stalled += 100.0
            harness.step += 100_000_000
        return {"url": page.url}

    harness = WorkerHarness(stands_still, concurrency=1, lease=30.0)
    await harness.open("/1", "/2")
    await harness.worker.run()
    results = [outcome.result for batch in harness.queue.settled for outcome in batch]
    assert results == ["done", "released", "done"], "the second page is handed back and claimed again"
    assert len(harness.fetched) == 2
    assert await harness.states() == [("done", 1, 0)] * 2


@on_virtual_clock
async def test_queue_that_stays_out_of_reach_ends_the_worker_with_its_error() -> None:
    harness = WorkerHarness(outage_timeout=20.0)
    await harness.open("/1")
    harness.queue.trouble = lambda verb: QueueFull("no space") if verb == "settle" else None
    with pytest.raises(QueueFull):
        await harness.worker.run()
    assert 20 < asyncio.get_running_loop().time() < 60


@on_virtual_clock
async def test_lost_answer_to_a_claim_is_asked_for_again() -> None:
    harness = WorkerHarness()
    await harness.open("/1", "/2")
    lost = [True]
    real = harness.queue.queue.claim

    async def claim(*args: Any, **kwargs: Any) -> Any:
        answer = await real(*args, **kwargs)
        if answer.tasks and lost.pop() if lost else False:
            raise QueueUnavailable("no answer")
        return answer

    harness.queue.queue.claim = claim  # type: ignore[method-assign]
    counts = await harness.worker.run()
    assert counts.done == 2
    assert asyncio.get_running_loop().time() < 5  # no lease had to run out


@on_virtual_clock
async def test_links_dropped_with_a_redirect_are_not_taken_for_known() -> None:
    harness = WorkerHarness(lambda page: page.follow(["/x"]))
    await harness.open("/1")
    told: list[Task] = []
    harness.links.mark_committed = told.extend  # type: ignore[method-assign, assignment]
    worker: Any = harness.worker
    await worker._context.run_context(harness.run)
    found = start_tasks(["http://a.test/x"])[0][0]
    plain = Outcome(task=harness.run << 32 | 1, lease=1, result="done", found=(found,))
    worker._on_settled([msgspec.structs.replace(plain, redirect_digest=request_digest("http://a.test/y"))], ["ok"])
    assert told == []
    worker._on_settled([plain], ["ok"])
    assert told == [found]


@on_virtual_clock
async def test_pace_that_came_too_late_is_told_again() -> None:
    harness = WorkerHarness()
    await harness.open()
    worker: Any = harness.worker
    await worker._context.run_context(harness.run)
    found = start_tasks(["http://b.test/x"])[0][0]
    outcome = Outcome(task=harness.run << 32 | 1, lease=1, result="done", found=(found,))
    assert worker._paces_for([outcome]) == {"b.test": UNLIMITED_PACE}
    worker._on_settled([outcome], ["stale"])
    assert worker._paces_for([outcome]) == {"b.test": UNLIMITED_PACE}
    worker._on_settled([outcome], ["ok"])
    assert worker._paces_for([outcome]) is None


@pytest.mark.parametrize(
    ("one", "other", "slower"),
    [
        (Pace(1.0, 4), Pace(5.0, 2), Pace(5.0, 2)),
        (Pace(5.0, 2), Pace(1.0, 4), Pace(5.0, 2)),
        (Pace(5.0, 4), Pace(1.0, 2), Pace(5.0, 2)),
        (Pace(0.0, 0), Pace(1.0, 3), Pace(1.0, 3)),  # 0 is no limit
        (Pace(1.0, 0), Pace(0.0, 0), Pace(1.0, 0)),
    ],
)
def test_of_two_runs_that_find_a_host_the_slower_pace_counts(one: Pace, other: Pace, slower: Pace) -> None:
    async def check() -> None:
        harness = WorkerHarness()
        await harness.open()
        worker: Any = harness.worker
        paces = {1: one, 2: other}

        async def serve(run: int) -> RunContext:
            return RunContext(harness.scraper, harness.links, None, lambda lane: paces[run])

        worker._context.build_run_context = serve
        found = start_tasks(["http://b.test/x"])[0][0]
        outcomes = []
        for run in paces:
            await worker._context.run_context(run)
            outcomes.append(Outcome(task=run << 32 | 1, lease=1, result="done", found=(found,)))
        assert worker._paces_for(outcomes) == {"b.test": slower}

    run_virtually(check())


@on_virtual_clock
async def test_pace_of_a_new_host_goes_with_the_first_link_to_it_only() -> None:
    harness = WorkerHarness(lambda page: page.follow(["http://b.test/1", f"{page.url}x"]) if page.depth < 3 else None)
    await harness.open("/1")
    await harness.worker.run()
    lanes = {lane.name: lane for lane in await harness.queue.queue.lanes()}
    assert lanes["b.test"].spacing == 0  # told to be free; the default would be one a second


# heart


async def test_heartbeat_goes_on_while_a_handler_blocks_the_event_loop(tmp_path: Path) -> None:
    path = str(tmp_path / "q.db")
    harness = WorkerHarness(lambda page: [time.sleep(1.0) or {"a": 1}])
    store = await SqliteQueue.open(path)
    run = (await store.start_run(NewRun(scraper="s", key="k"))).id
    await store.add(run, start_tasks(["http://a.test/"])[0], {"a.test": UNLIMITED_PACE})
    served = RunContext(harness.scraper, harness.links, None, lambda lane: UNLIMITED_PACE)

    async def serve(run: int) -> RunContext:
        return served

    async def open_queue() -> Queue:
        return await SqliteQueue.open(path)

    tools = WorkerContext("w", store, harness, serve, CrashNote.in_memory(), open_queue)
    counts = await Worker(tools, WorkerPlan(runs=(run,), lease=0.6, heartbeat=0.1)).run()
    await store.reap()
    assert (counts.done, counts.stale) == (1, 0)
    assert (await store.stats(run)).lost == 0
    await store.close()


# settler


def test_outcome_with_too_many_links_goes_in_parts_and_the_records_last() -> None:
    found = tuple(Task(f"http://a.test/{n}", "a.test", bytes(16)) for n in range(2 * MAX_FOUND_PER_SETTLE + 1))
    change = LaneChange("a.test", spacing=2.0)
    whole = Outcome(task=1, lease=2, result="done", found=found, records=(b"{}",), lanes=(change,))
    some = list(split_outcome(whole))
    assert [(part.result, len(part.found)) for part in some] == [
        ("part", MAX_FOUND_PER_SETTLE),
        ("part", MAX_FOUND_PER_SETTLE),
        ("done", 1),
    ]
    assert [part.records for part in some] == [(), (), (b"{}",)]
    assert sum((part.found for part in some), ()) == found


@on_virtual_clock
async def test_outcome_the_queue_cannot_store_is_dead_and_its_neighbours_are_kept() -> None:
    kept: list[tuple[int, str, str]] = []

    class Picky:
        async def settle(self, outcomes: Sequence[Outcome], paces: Any = None) -> list[Verdict]:
            if any(outcome.records == (b"poison",) for outcome in outcomes):
                raise UnicodeError("cannot be stored")
            return ["ok"] * len(outcomes)

    def settled(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict]) -> None:
        kept.extend((outcome.task, outcome.result, outcome.cause) for outcome in outcomes)

    queue: Any = Picky()
    clock = asyncio.get_running_loop().time
    settler = Settler(
        queue, clock=clock, on_settled=settled, paces_for=lambda _: None, batch_target=8, outage_timeout=1.0
    )
    running = asyncio.create_task(settler.run())
    for number in range(3):
        records = (b"poison",) if number == 1 else ()
        settler.put(Outcome(task=number, lease=1, result="done", records=records))
    await settler.flush()
    assert kept == [(0, "done", ""), (1, "dead", "settle.UnicodeError"), (2, "done", "")]
    running.cancel()


# leases


def test_lease_is_trusted_for_two_thirds_from_when_it_was_asked_for() -> None:
    from shoal.core.task import Claim, LeasedTask

    leases = Leases(30.0)
    task = LeasedTask(id=1, lease=5, run=1, lane="a", url="u")
    leases.add(Claim(5, (task,)), sent=100.0)
    assert not leases.give_up_unconfirmed(119.0)
    leases.confirm([5], 110.0)
    assert not leases.give_up_unconfirmed(129.0)
    assert leases.give_up_unconfirmed(131.0) == {5}
    assert not leases.give_up_unconfirmed(131.0)
    assert not leases.start(task, 141.0), "longer ago than a lease lasts"
    assert leases.start(task, 139.0)
    assert leases.started_tasks() == {5: (1,)}
    leases.remove_task(1, 5)
    assert leases.started_tasks() == {}
    assert not leases.start(task, 139.0)


@on_virtual_clock
async def test_no_more_pages_are_in_progress_than_asked_for_however_slow_their_servers_are() -> None:
    harness = WorkerHarness(concurrency=2)
    await harness.open(*(f"/{n}" for n in range(20)))
    harness.latency = 10.0
    working = asyncio.create_task(harness.worker.run())
    for seconds, fetched in ((0.4, 2), (9.0, 2), (1.0, 4), (9.0, 4)):
        await asyncio.sleep(seconds)
        assert (harness.worker.running, len(harness.fetched)) == (2, fetched)
    harness.latency = 0.01
    await working
    assert (await harness.queue.queue.stats(harness.run)).done == 20


@on_virtual_clock
async def test_slow_handlers_keep_their_places() -> None:
    running: list[int] = []

    async def slow(page: Any) -> Any:
        running.append(len(harness.worker._running))
        await asyncio.sleep(3.0)
        return {"url": page.url}

    harness = WorkerHarness(slow, concurrency=1)
    await harness.open("/1", "/2", "/3", "/4")
    await harness.worker.run()
    assert running == [1, 1, 1, 1]


@on_virtual_clock
async def test_task_takes_up_its_place_until_it_is_settled() -> None:
    handled: list[int] = []

    async def handler(task: Any) -> None:
        handled.append(task.id)

    harness = WorkerHarness(concurrency=4)
    harness.scraper.task("t")(handler)
    await harness.open()
    await harness.add_typed(20)
    settle, may_settle = harness.queue.queue.settle, asyncio.Event()

    async def settle_later(*args: Any) -> Any:
        await may_settle.wait()
        return await settle(*args)

    harness.queue.settle = settle_later  # type: ignore[attr-defined]
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(10.0)
    assert len(handled) == 4
    may_settle.set()
    await working
    assert len(handled) == len(set(handled)) == 20


@on_virtual_clock
async def test_tasks_that_wait_for_nothing_leave_others_their_turn() -> None:
    turns: list[int] = []

    async def handler(task: Any) -> None:
        harness.stalled += 0.002
        turns.append(turn)

    harness = WorkerHarness(concurrency=64)
    harness.scraper.task("t")(handler)
    await harness.open()
    await harness.add_typed(64)
    working, turn = asyncio.create_task(harness.worker.run()), 0
    while len(turns) < 64:
        turn += 1
        await asyncio.sleep(0)
    await working
    assert max(turns.count(one) for one in turns) <= 4


@on_virtual_clock
async def test_tasks_that_wait_are_in_progress_together() -> None:
    most = 0

    async def handler(task: Any) -> None:
        nonlocal most
        most = max(most, harness.worker.running)
        await asyncio.sleep(1.0)

    harness = WorkerHarness(concurrency=8)
    harness.scraper.task("t")(handler)
    await harness.open()
    await harness.add_typed(16)
    before = asyncio.get_running_loop().time()
    await harness.worker.run()
    assert most == 8
    assert asyncio.get_running_loop().time() - before < 4.0


@on_virtual_clock
async def test_outcomes_of_tasks_that_come_once_at_most_are_settled_in_larger_batches() -> None:
    async def handler(task: Any) -> None:
        await asyncio.sleep(0.01)

    harness = WorkerHarness(concurrency=4)
    harness.scraper.task("t")(handler)
    await harness.open()
    await harness.add_typed(32, ack="auto")
    await harness.worker.run()
    assert [state for state, _, _ in await harness.states()] == ["done"] * 32
    assert max(len(batch) for batch in harness.queue.settled) >= 12
    assert harness.worker.counts.done == 32


@on_virtual_clock
async def test_outcome_that_waits_for_others_does_not_wait_when_there_is_nothing_else_to_do() -> None:
    ended_at: list[float] = []

    async def handler(task: Any) -> None:
        ended_at.append(asyncio.get_running_loop().time())

    harness = WorkerHarness(concurrency=4, stop_when_empty=False)
    harness.scraper.task("t")(handler)
    await harness.open()
    await harness.add_typed(1, ack="auto")
    working = asyncio.create_task(harness.worker.run())
    while not harness.queue.settled:
        await asyncio.sleep(0.001)
    assert asyncio.get_running_loop().time() - ended_at[0] < 0.03
    harness.worker.stop()
    await working


@on_virtual_clock
async def test_stopped_worker_settles_what_waited_for_others() -> None:
    async def handler(task: Any) -> None:
        if task.id % 2:
            await asyncio.sleep(100.0)

    harness = WorkerHarness(concurrency=4, grace_period=0.02)
    harness.scraper.task("t")(handler)
    await harness.open()
    await harness.add_typed(2, ack="auto")
    working = asyncio.create_task(harness.worker.run())
    while not harness.worker.finished:
        await asyncio.sleep(0.001)
    harness.worker.stop()
    await working
    assert sorted(state for state, _, _ in await harness.states()) == ["dead", "done"]


@on_virtual_clock
async def test_pages_of_a_host_that_wants_quiet_for_long_are_handed_back_at_once() -> None:
    async def wants_quiet(page: Any) -> Any:
        harness.worker._context.lane_holds.add("a.test", 300.0)
        await harness.queue.queue.set_lane(LaneChange("a.test", hold_for=300.0))
        return {"url": page.url}

    harness = WorkerHarness(wants_quiet, concurrency=8)
    await harness.open(*(f"/{number}" for number in range(4)), pace=Pace(1.0, 0))
    working = asyncio.create_task(harness.worker.run())
    await asyncio.sleep(10.0)
    assert len(harness.fetched) == 1
    assert (await harness.queue.queue.stats(harness.run)).leased == 0, "this worker may be gone by then"
    assert (await working).done == 4
