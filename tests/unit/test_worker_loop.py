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

from shoal.core.lane import FREE, Pace
from shoal.core.page import Request, Response
from shoal.core.run import NewRun
from shoal.core.task import LaneChange, Outcome, Task, Verdict
from shoal.core.url import request_digest
from shoal.errors import QueueFull, QueueUnavailable
from shoal.extract.links import LinkGate, start_tasks
from shoal.extract.scraper import Scraper
from shoal.queue.base import FOUND_CAP, Queue
from shoal.queue.sqlite import SqliteQueue
from shoal.worker.leases import Leases
from shoal.worker.loop import Worker
from shoal.worker.note import Note
from shoal.worker.plan import Plan
from shoal.worker.settler import Settler, parts
from shoal.worker.tools import Served, Tools


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


class Bench:
    """One worker on a virtual clock, with a queue in memory and a web of blank pages."""

    def __init__(self, handler: Callable[..., Any] = lambda page: [{"url": page.url}], **plan: Any) -> None:
        self.scraper = Scraper("s", hosts="*")
        self.scraper.page("*")(handler)
        self.links = LinkGate(self.scraper.in_scope, None, lambda lane, url: None)
        self.fetched: list[str] = []
        self.latency = 0.01
        self.plan = plan

    async def open(self, *paths: str, pace: Pace = FREE) -> None:
        self.step = 0
        loop = asyncio.get_running_loop()
        store = await SqliteQueue.open(":memory:", clock=lambda: EPOCH + self.step + round(loop.time() * 1e6))
        self.queue = Spy(store)
        self.run = (await store.start_run(NewRun(scraper="s", key="k"))).id
        tasks, _ = start_tasks(f"http://a.test{path}" for path in paths)
        await store.add(self.run, tasks, {"a.test": pace})
        served = Served(self.scraper, self.links, None, lambda lane: FREE)
        queue: Any = self.queue

        async def serve(run: int) -> Served:
            return served

        clock = loop.time
        tools = Tools("w", queue, self, serve, Note.unwritten(), clock=clock, jitter=lambda: 0.5)
        self.worker = Worker(tools, Plan(runs=(self.run,), **self.plan))

    async def fetch(self, request: Request) -> Response:
        self.fetched.append(request.url)
        await asyncio.sleep(self.latency)
        return Response(request.url, 200, (), b"")

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...

    async def states(self) -> list[tuple[str, int, int]]:
        return [(task.state, task.attempts, task.lost) for task in await self.queue.queue.look(self.run)]


def virtually(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run an async test on a clock that jumps."""

    def run() -> None:
        run_virtually(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


@virtually
async def test_worker_ends_when_nothing_is_open() -> None:
    bench = Bench()
    await bench.open("/1", "/2", "/3")
    tally = await bench.worker.run()
    assert (tally.done, tally.records) == (3, 3)
    assert not await bench.queue.queue.workers()


@virtually
async def test_outcomes_of_many_pages_are_settled_together() -> None:
    bench = Bench(concurrency=8)
    await bench.open(*(f"/{number}" for number in range(200)))
    await bench.worker.run()
    assert (await bench.queue.queue.stats(bench.run)).done == 200
    assert len(bench.queue.settled) < 30
    assert bench.queue.calls.count("claim") < 40


@virtually
async def test_idle_worker_asks_seldom_but_never_stops_asking() -> None:
    bench = Bench(stop_when_empty=False)
    await bench.open()
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(60)
    asked = bench.queue.calls.count("claim")
    assert 55 < asked < 100
    await bench.queue.queue.add(bench.run, start_tasks(["http://a.test/late"])[0], {"a.test": FREE})
    await asyncio.sleep(2)
    assert (await bench.queue.queue.stats(bench.run)).done == 1
    bench.worker.stop()
    await working


@virtually
async def test_stop_hands_back_what_is_unfinished_and_settles_what_is_done() -> None:
    bench = Bench(concurrency=2)
    await bench.open("/1", "/2", "/3", "/4", "/5")
    bench.latency = 1000.0
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(1)
    bench.worker.stop()
    before = asyncio.get_running_loop().time()
    await working
    assert asyncio.get_running_loop().time() - before < 1
    assert await bench.states() == [("ready", 0, 0)] * 5


@virtually
async def test_cancelling_the_worker_hands_back_too() -> None:
    bench = Bench()
    await bench.open("/1")
    bench.latency = 1000.0
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(1)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await bench.states() == [("ready", 0, 0)]


@virtually
async def test_handler_that_will_not_be_cancelled_delays_the_end_by_the_grace_only() -> None:
    async def stubborn(page: Any) -> None:
        for _ in range(100):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(10)

    bench = Bench(stubborn, grace=5.0)
    await bench.open("/1")
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(1)
    bench.worker.stop()
    before = asyncio.get_running_loop().time()
    await working
    assert asyncio.get_running_loop().time() - before < 7


@virtually
async def test_hard_stop_ends_at_once() -> None:
    bench = Bench()
    await bench.open("/1")
    bench.latency = 1000.0
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(1)
    bench.worker.stop_hard()
    await working
    assert [state for state, *_ in await bench.states()] == ["leased"]


@virtually
async def test_hold_of_a_lane_without_spacing_is_kept_to_its_end() -> None:
    bench = Bench()
    await bench.open("/1")
    await bench.queue.queue.set_lane(LaneChange("a.test", hold_for=3.0))
    await bench.worker.run()
    assert asyncio.get_running_loop().time() >= 3.0


@virtually
async def test_lease_lost_to_another_is_left_at_once_and_its_outcome_dropped() -> None:
    bench = Bench(heartbeat=3.0, lease=9.0)
    await bench.open("/1")
    bench.latency = 4.0
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(1)
    await bench.queue.queue.reap({"w": ()})
    await working
    assert len(bench.fetched) == 2  # the first was called back by the heartbeat, the second is the next claim
    assert (await bench.queue.queue.stats(bench.run)).stale == 0
    assert (await bench.queue.queue.stats(bench.run)).done == 1


@virtually
async def test_lease_that_cannot_be_renewed_is_left_at_two_thirds() -> None:
    bench = Bench(heartbeat=3.0, lease=9.0)
    await bench.open("/1")
    bench.latency = 1000.0
    bench.queue.trouble = lambda verb: QueueUnavailable("gone") if verb == "extend" else None
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(5.5)
    assert bench.worker.running == 1
    await asyncio.sleep(1.6)
    assert [len(batch) for batch in bench.queue.settled] == [1]
    assert bench.queue.settled[0][0].result == "released"
    bench.worker.stop()
    await working


@virtually
async def test_slow_task_keeps_its_lease_as_long_as_it_takes() -> None:
    bench = Bench(heartbeat=3.0, lease=9.0)
    await bench.open("/1")
    bench.latency = 100.0
    await bench.worker.run()
    assert await bench.states() == [("done", 1, 0)]


@virtually
async def test_task_of_a_cancelled_run_is_not_finished() -> None:
    bench = Bench(heartbeat=3.0)
    await bench.open("/1")
    bench.latency = 1000.0
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(1)
    await bench.queue.queue.set_run(bench.run, "cancel")
    await working
    assert asyncio.get_running_loop().time() < 10


@virtually
async def test_full_disk_pauses_the_worker_and_costs_nothing_once_there_is_room() -> None:
    bench = Bench(concurrency=2)
    await bench.open(*(f"/{number}" for number in range(20)))
    bench.queue.trouble = lambda verb: (
        QueueFull("no space") if verb == "settle" and asyncio.get_running_loop().time() < 30 else None
    )
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(20)
    assert len(bench.fetched) < 8  # nothing is started whose outcome could not be kept
    tally = await working
    assert tally.done == 20
    assert len(bench.fetched) == 20


@virtually
async def test_queue_that_stays_out_of_reach_ends_the_worker_with_its_error() -> None:
    bench = Bench(patience=20.0)
    await bench.open("/1")
    bench.queue.trouble = lambda verb: QueueFull("no space") if verb == "settle" else None
    with pytest.raises(QueueFull):
        await bench.worker.run()
    assert 20 < asyncio.get_running_loop().time() < 60


@virtually
async def test_lost_answer_to_a_claim_is_asked_for_again() -> None:
    bench = Bench()
    await bench.open("/1", "/2")
    lost = [True]
    real = bench.queue.queue.claim

    async def claim(*args: Any, **kwargs: Any) -> Any:
        answer = await real(*args, **kwargs)
        if answer.tasks and lost.pop() if lost else False:
            raise QueueUnavailable("no answer")
        return answer

    bench.queue.queue.claim = claim  # type: ignore[method-assign]
    tally = await bench.worker.run()
    assert tally.done == 2
    assert asyncio.get_running_loop().time() < 5  # no lease had to run out


@virtually
async def test_links_dropped_with_a_redirect_are_not_taken_for_known() -> None:
    bench = Bench(lambda page: page.follow(["/x"]))
    await bench.open("/1")
    told: list[Task] = []
    bench.links.committed = told.extend  # type: ignore[method-assign, assignment]
    worker: Any = bench.worker
    await worker._tools.served(bench.run)
    found = start_tasks(["http://a.test/x"])[0][0]
    plain = Outcome(task=bench.run << 32 | 1, lease=1, result="done", found=(found,))
    worker._on_settled([msgspec.structs.replace(plain, same_as=request_digest("http://a.test/y"))], ["ok"])
    assert told == []
    worker._on_settled([plain], ["ok"])
    assert told == [found]


@virtually
async def test_pace_that_came_too_late_is_told_again() -> None:
    bench = Bench()
    await bench.open()
    worker: Any = bench.worker
    await worker._tools.served(bench.run)
    found = start_tasks(["http://b.test/x"])[0][0]
    outcome = Outcome(task=bench.run << 32 | 1, lease=1, result="done", found=(found,))
    assert worker._paces([outcome]) == {"b.test": FREE}
    worker._on_settled([outcome], ["stale"])
    assert worker._paces([outcome]) == {"b.test": FREE}
    worker._on_settled([outcome], ["ok"])
    assert worker._paces([outcome]) is None


@virtually
async def test_pace_of_a_new_host_goes_with_the_first_link_to_it_only() -> None:
    bench = Bench(lambda page: page.follow(["http://b.test/1", f"{page.url}x"]) if page.depth < 3 else None)
    await bench.open("/1")
    await bench.worker.run()
    lanes = {lane.name: lane for lane in await bench.queue.queue.lanes()}
    assert lanes["b.test"].spacing == 0  # told to be free; the default would be one a second


# heart


async def test_heart_goes_on_while_a_handler_blocks_the_event_loop(tmp_path: Path) -> None:
    path = str(tmp_path / "q.db")
    bench = Bench(lambda page: [time.sleep(1.0) or {"a": 1}])
    store = await SqliteQueue.open(path)
    run = (await store.start_run(NewRun(scraper="s", key="k"))).id
    await store.add(run, start_tasks(["http://a.test/"])[0], {"a.test": FREE})
    served = Served(bench.scraper, bench.links, None, lambda lane: FREE)

    async def serve(run: int) -> Served:
        return served

    async def open_queue() -> Queue:
        return await SqliteQueue.open(path)

    tools = Tools("w", store, bench, serve, Note.unwritten(), open_queue)
    tally = await Worker(tools, Plan(runs=(run,), lease=0.6, heartbeat=0.1)).run()
    await store.reap()
    assert (tally.done, tally.stale) == (1, 0)
    assert (await store.stats(run)).lost == 0
    await store.close()


# settler


def test_outcome_with_too_many_links_goes_in_parts_and_the_records_last() -> None:
    found = tuple(Task(f"http://a.test/{n}", "a.test", bytes(16)) for n in range(2 * FOUND_CAP + 1))
    change = LaneChange("a.test", spacing=2.0)
    whole = Outcome(task=1, lease=2, result="done", found=found, records=(b"{}",), lanes=(change,))
    some = list(parts(whole))
    assert [(part.result, len(part.found)) for part in some] == [
        ("part", FOUND_CAP),
        ("part", FOUND_CAP),
        ("done", 1),
    ]
    assert [part.records for part in some] == [(), (), (b"{}",)]
    assert sum((part.found for part in some), ()) == found


@virtually
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
    settler = Settler(queue, clock=clock, settled=settled, paces=lambda _: None, company=8, patience=1.0)
    running = asyncio.create_task(settler.run())
    for number in range(3):
        records = (b"poison",) if number == 1 else ()
        settler.put(Outcome(task=number, lease=1, result="done", records=records))
    await settler.flushed()
    assert kept == [(0, "done", ""), (1, "dead", "settle.UnicodeError"), (2, "done", "")]
    running.cancel()


# leases


def test_lease_is_trusted_for_two_thirds_from_when_it_was_asked_for() -> None:
    from shoal.core.task import Claim, Leased

    leases = Leases(30.0)
    task = Leased(id=1, lease=5, run=1, lane="a", url="u")
    leases.take(Claim(5, (task,)), sent=100.0)
    assert not leases.give_up(119.0)
    leases.confirm([5], 110.0)
    assert not leases.give_up(129.0)
    assert leases.give_up(131.0) == {5}
    assert not leases.give_up(131.0)
    assert leases.start(task, 0.0)
    assert leases.report() == {5: (1,)}
    leases.settled(1, 5)
    assert leases.report() == {}
    assert not leases.start(task, 0.0)


@virtually
async def test_pages_that_only_wait_for_slow_servers_leave_their_places_to_others_within_reason() -> None:
    bench = Bench(concurrency=2)
    await bench.open(*(f"/{n}" for n in range(20)))
    bench.latency = 10.0
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(0.4)
    assert len(bench.fetched) == 2
    await asyncio.sleep(1.0)
    assert 2 < len(bench.fetched) <= 6
    await asyncio.sleep(5.0)
    assert len(bench.fetched) == 6  # three times what was asked for, and no more
    bench.latency = 0.01
    await working
    assert (await bench.queue.queue.stats(bench.run)).done == 20


@virtually
async def test_slow_handlers_keep_their_places() -> None:
    running: list[int] = []

    async def slow(page: Any) -> Any:
        running.append(len(bench.worker._running))
        await asyncio.sleep(3.0)
        return {"url": page.url}

    bench = Bench(slow, concurrency=1)
    await bench.open("/1", "/2", "/3", "/4")
    await bench.worker.run()
    assert running == [1, 1, 1, 1]


@virtually
async def test_places_made_for_slow_servers_go_when_these_have_answered() -> None:
    bench = Bench(concurrency=2)
    await bench.open(*(f"/{n}" for n in range(60)))
    bench.latency = 3.0
    working = asyncio.create_task(bench.worker.run())
    await asyncio.sleep(2.9)
    assert bench.worker.running == 6
    bench.latency = 0.3
    await asyncio.sleep(2.5)
    seen = set()
    for _ in range(20):
        await asyncio.sleep(0.1)
        seen.add(bench.worker.running)
    assert max(seen) == 2
    await working
