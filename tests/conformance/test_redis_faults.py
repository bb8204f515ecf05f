"""What Redis may do to us: lost replies, restarts that forget, a full memory or disk, another primary."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from servers.lossy_proxy import LossyProxy, ReplyFate, lossy_proxy
from servers.ports import free_port
from servers.redis import RedisServer, own_server
from wait import until

from conformance.harness import QueueHarness, outcome, page, pages
from conformance.redis_backend import command, harness_on
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import TASK_BITS, NewRun
from shoal.core.task import LeasedTask, Outcome, Task, digest
from shoal.errors import QueueFull, QueueReadOnly, QueueUnavailable
from shoal.queue.base import TaskFilter
from shoal.queue.redis import RedisQueue
from shoal.queue.redis import engine as engine_module

OPENING = 6  # replies until a queue is open


@pytest.fixture
async def harness(own: RedisServer, tmp_path: Path) -> AsyncIterator[QueueHarness]:
    async with harness_on(own, tmp_path) as harness:
        yield harness


@pytest.fixture
async def opened(own: RedisServer, tmp_path: Path) -> AsyncIterator[Callable[..., object]]:
    """Opens a queue at the end of a way that has a fate for its replies."""
    async with AsyncExitStack() as stack:

        async def open_(
            decide: Callable[[int, bytes], ReplyFate] | None = None, to: str = ""
        ) -> tuple[RedisQueue, LossyProxy]:
            path = str(tmp_path / uuid4().hex[:8])
            made = await stack.enter_async_context(lossy_proxy(path, to or own.socket, decide))
            queue = await RedisQueue.open(f"redis+unix://{path}?namespace={uuid4().hex}")
            stack.push_async_callback(queue.close)
            return queue, made

        yield open_


def losing(*numbers: int) -> Callable[[int, bytes], ReplyFate]:
    return lambda number, reply: None if number in numbers else reply


def halving(*numbers: int) -> Callable[[int, bytes], ReplyFate]:
    return lambda number, reply: reply[: len(reply) // 2] if number in numbers else reply


def tasks(count: int, first: int = 0) -> list[Task]:
    return [Task(url=f"u{n}", lane="a.test", digest=digest(f"u{n}")) for n in range(first, first + count)]


def done(leased: LeasedTask) -> Outcome:
    return outcome(leased, records=(b"{}",))


# lost replies


@pytest.mark.parametrize("kind", [losing, halving])
@pytest.mark.parametrize("lost", range(OPENING + 1, OPENING + 14))
async def test_a_lost_reply_is_asked_for_again_and_nothing_counts_twice(
    opened: Callable, lost: int, kind: Callable
) -> None:
    queue, _ = await opened(kind(lost, lost + 2))
    run = await queue.start_run(NewRun(scraper="s", key="k"))
    assert await queue.add(run.id, tasks(10), {"a.test": UNLIMITED_PACE}) == ["added"] * 10
    assert await queue.add(run.id, tasks(4, 8)) == ["known", "known", "added", "added"]
    claim = await queue.claim("w", 7)
    assert len(claim.tasks) == 7
    results = ["done", "done", "dead", "retry", "released", "cancelled"]
    outcomes = [
        outcome(leased, result, cause="x", records=(b"{}",) if result == "done" else ())
        for leased, result in zip(claim.tasks, results, strict=False)
    ]
    verdicts = await queue.settle(outcomes)
    assert set(verdicts) <= {"ok", "already"} and len(set(verdicts)) == 1
    part = outcome(claim.tasks[6], "part", found=tuple(tasks(1, 90)), skipped=(("scope", "x"),))
    assert await queue.settle([part]) == ["ok"]
    assert await queue.revive(run.id, TaskFilter(cause="x")) == 1
    assert await queue.trim(run.id, 1) == 1
    document = await queue.compare_and_swap("lock", "a", "text", 0)
    assert document is not None and await queue.compare_and_swap("lock", "a", None, document.version) == document
    stats = await queue.stats(run.id)
    assert (stats.done, stats.dead, stats.cancelled, stats.leased) == (2, 0, 1, 1)
    assert (stats.seen, stats.ready, stats.records, stats.retries, stats.stale) == (13, 9, 2, 1, 0)
    assert (stats.skipped, stats.trimmed) == ({"scope": 1}, 1)
    await queue.set_run(run.id, "cancel")
    assert await queue.purge(run=run.id) == 1


async def test_a_settle_in_several_calls_may_break_off_and_be_repeated(
    opened: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, made = await opened()
    run = await queue.start_run(NewRun(scraper="s", key="k"))
    await queue.add(run.id, tasks(700), {"a.test": UNLIMITED_PACE})
    outcomes = [done(leased) for leased in (await queue.claim("w", 700)).tasks]
    monkeypatch.setattr(engine_module, "TIMEOUT", 0.2)
    made.decide = lambda number, reply: reply if number == first else None
    first = made.replies + 1
    with pytest.raises(QueueUnavailable):
        await queue.settle(outcomes)
    made.decide = lambda number, reply: reply
    verdicts = Counter(await queue.settle(outcomes))
    assert set(verdicts) == {"ok", "already"} and verdicts["already"] >= 300
    stats = await queue.stats(run.id)
    assert (stats.done, stats.records, stats.stale) == (700, 700, 0)
    assert await queue.recount(run.id) == stats


async def test_an_add_in_several_calls_may_break_off_and_be_repeated(
    opened: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, made = await opened()
    run = await queue.start_run(NewRun(scraper="s", key="k"))
    monkeypatch.setattr(engine_module, "TIMEOUT", 0.2)
    made.decide = losing(*range(made.replies + 2, made.replies + 1000))
    with pytest.raises(QueueUnavailable):
        await queue.add(run.id, tasks(2500), {"a.test": UNLIMITED_PACE})
    made.decide = lambda number, reply: reply
    answers = Counter(await queue.add(run.id, tasks(2500), {"a.test": UNLIMITED_PACE}))
    assert answers.total() == 2500 and answers["rejected"] == 0
    stats = await queue.stats(run.id)
    assert (stats.seen, stats.ready) == (2500, 2500)
    assert await queue.recount(run.id) == stats


async def test_what_is_not_an_answer_at_all_breaks_the_connection_off(opened: Callable) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)
    queue, made = await opened()
    run = await queue.start_run(NewRun(scraper="s", key="k"))
    at = made.replies + 1
    made.decide = lambda number, reply: b"!?" * len(reply) if number == at else reply
    assert await queue.add(run.id, tasks(3)) == ["added"] * 3


async def test_connections_cut_again_and_again_cost_nothing_but_time(opened: Callable) -> None:
    queue, made = await opened()
    run = await queue.start_run(NewRun(scraper="s", key="k"))

    made.decide = lambda number, reply: reply if number % 10 else None
    before = made.replies
    added = await queue.add(run.id, tasks(1000), {"a.test": UNLIMITED_PACE})
    assert added == ["added"] * 1000
    count = 0
    while claim := (await queue.claim("w", 50)).tasks:
        assert set(await queue.settle([done(leased) for leased in claim])) <= {"ok", "already"}
        count += len(claim)
    assert made.replies - before > 40
    stats = await queue.stats(run.id)
    assert (count, stats.done, stats.records, stats.stale) == (1000, 1000, 1000, 0)


# restarts


async def test_what_was_acknowledged_survives_a_killed_server(harness: QueueHarness, own: RedisServer) -> None:
    run = await harness.run()
    await harness.add(run, pages(20))
    await harness.settle_all(await harness.claim(10), records=(b"{}",))
    held = await harness.one()
    before = await harness.stats(run)
    own.kill()
    own.start()
    assert await harness.stats(run) == before, "the same handle goes on"
    assert await harness.settle(held) == "ok"
    assert await harness.queue.recount(run) == await harness.stats(run)
    assert len(await harness.queue.list_tasks(run)) == 20


async def test_a_verb_waits_for_a_server_that_is_restarted(harness: QueueHarness, own: RedisServer) -> None:
    run = await harness.run()
    own.kill()
    adding = asyncio.create_task(harness.add(run, "a"))
    await asyncio.sleep(0.1)
    assert not adding.done()
    own.start()
    assert await adding == ["added"]


async def test_a_server_that_stays_away_is_said_to_be_unreachable(
    harness: QueueHarness, own: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "TIMEOUT", 0.2)
    own.kill()
    try:
        with pytest.raises(QueueUnavailable, match="cannot be reached"):
            await harness.claim()
        with pytest.raises(QueueUnavailable, match="cannot be reached"):
            await RedisQueue.open(own.url("x"))
    finally:
        own.start()


async def test_numbers_given_in_a_second_that_was_forgotten_are_not_given_again(
    own: RedisServer, tmp_path: Path
) -> None:
    """What a crash of the machine does with appendfsync everysec: the log is as it was a moment ago."""
    queue = await RedisQueue.open(own.url(uuid4().hex))
    run = await queue.start_run(NewRun(scraper="s", key="k"))
    await queue.add(run.id, tasks(5), {"a.test": UNLIMITED_PACE})
    kept = await queue.claim("w1", 1)
    shutil.copytree(own.data, tmp_path / "data")
    lost_run = await queue.start_run(NewRun(scraper="s", key="other"))
    await queue.add(run.id, tasks(5, 100))
    lost_claim = await queue.claim("w1", 4)
    lost_ids = await queue.ids(run.id, [task.digest for task in tasks(5, 100)])
    own.kill()
    shutil.rmtree(own.data)
    shutil.copytree(tmp_path / "data", own.data)
    own.start()

    assert (await queue.stats(run.id)).seen == 5, "the second is forgotten"
    again = await queue.claim("w2", 4)
    assert {task.id for task in again.tasks} == {task.id for task in lost_claim.tasks}
    assert again.lease > lost_claim.lease
    assert await queue.settle([done(leased) for leased in lost_claim.tasks]) == ["stale"] * 4
    assert (await queue.extend("w1", {lost_claim.lease: ()})).lost == {lost_claim.lease}
    assert await queue.settle([done(leased) for leased in again.tasks]) == ["ok"] * 4
    assert await queue.settle([done(leased) for leased in kept.tasks]) == ["ok"]
    await queue.add(run.id, tasks(5, 200))
    assert not set(lost_ids) & set(await queue.ids(run.id, [task.digest for task in tasks(5, 200)]))
    assert (await queue.start_run(NewRun(scraper="s", key="new"))).id > lost_run.id
    stats = await queue.stats(run.id)
    assert (stats.seen, stats.done, stats.records, stats.stale) == (10, 5, 5, 4)
    assert await queue.recount(run.id) == stats
    assert [view.id >> TASK_BITS for view in await queue.list_tasks(run.id)] == [run.id] * 10
    assert await queue.orphans(run.id) == []
    await queue.close()


async def test_workers_go_on_over_a_server_that_is_killed_again_and_again(own: RedisServer) -> None:
    namespace, count = uuid4().hex, 3000
    queue = await RedisQueue.open(own.url(namespace))
    run = await queue.start_run(NewRun(scraper="s", key="k"))
    executed: Counter[int] = Counter()
    verdicts: Counter[str] = Counter()

    async def work(name: str, handle: RedisQueue) -> None:
        while (await handle.stats(run.id)).done < count:
            claim = await handle.claim(name, 20)
            executed.update(task.id for task in claim.tasks)
            verdicts.update(await handle.settle([done(leased) for leased in claim.tasks]))
        await handle.close()

    handles = [await RedisQueue.open(own.url(namespace)) for _ in range(4)]  # while it is there
    working = [asyncio.create_task(work(f"w{n}", handle)) for n, handle in enumerate(handles)]
    adding = asyncio.create_task(queue.add(run.id, tasks(count), {"a.test": UNLIMITED_PACE}))
    for _ in range(3):
        await asyncio.sleep(0.15)
        own.kill()
        own.start()
    assert await adding == ["added"] * count
    await asyncio.gather(*working)
    stats = await queue.stats(run.id)
    assert (stats.done, stats.records, stats.open, stats.stale) == (count, count, 0, 0)
    assert set(executed.values()) == {1} and set(verdicts) <= {"ok", "already"}
    assert await queue.recount(run.id) == stats
    await queue.close()


async def test_a_server_that_is_still_loading_is_waited_for() -> None:
    with own_server() as server:
        queue = await RedisQueue.open(server.url("x"))
        run = await queue.start_run(NewRun(scraper="s", key="k"))
        await queue.add(run.id, [page(f"{n}", f"h{n}.test") for n in range(400)])
        server.ask("SAVE")
        server.kill()
        slowly = ("--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024")
        server.start(*slowly, loaded=False)
        assert server.ask("GET x").startswith("-LOADING")
        assert (await queue.stats(run.id)).seen == 400
        server.kill()
        server.start(*slowly, loaded=False)
        assert server.ask("GET x").startswith("-LOADING")
        other = await RedisQueue.open(server.url("x"))
        assert (await other.stats(run.id)).seen == 400
        await other.close()
        await queue.close()


# a server that takes no changes


async def test_work_goes_on_with_the_new_primary_after_a_fail_over(opened: Callable) -> None:
    ports = free_port(), free_port()
    first, second = (
        RedisServer("--port", str(port), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0") for port in ports
    )
    first.start()
    second.start()
    try:
        queue, made = await opened(to=first.socket)
        run = await queue.start_run(NewRun(scraper="s", key="k"))
        await queue.add(run.id, tasks(10), {"a.test": UNLIMITED_PACE})
        held = await queue.claim("w", 3)
        second.ask(f"REPLICAOF 127.0.0.1 {ports[0]}")
        await until(lambda: first.ask("WAIT 1 100").startswith(":1"))
        second.ask("REPLICAOF NO ONE")
        first.ask(f"REPLICAOF 127.0.0.1 {ports[1]}")
        made.to = second.socket
        assert await queue.settle([done(leased) for leased in held.tasks]) == ["ok"] * 3
        lost = (await queue.claim("w", 3)).lease
        assert lost > held.lease
        assert (await queue.stats(run.id)).done == 3
    finally:
        first.stop()
        second.stop()


async def test_a_replica_is_read_only(own: RedisServer, harness: QueueHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await harness.run()
    await command(harness.queue, "REPLICAOF", "127.0.0.1", "1")
    try:
        with pytest.raises(QueueReadOnly, match="replica") as caught:
            await RedisQueue.open(own.url("x"))
        assert "primary" in caught.value.hint
        monkeypatch.setattr(engine_module, "TIMEOUT", 0.2)
        with pytest.raises(QueueReadOnly, match="replica"):
            await harness.add(run, "a")
    finally:
        own.ask("REPLICAOF NO ONE")
    assert await harness.add(run, "a") == ["added"]


async def test_a_full_server_says_so_and_loses_nothing(own: RedisServer, harness: QueueHarness) -> None:
    old = await harness.run("old")
    await harness.add(old, pages(20))
    await harness.queue.set_run(old, "cancel")
    run = await harness.run()
    await harness.add(run, pages(3))
    held = await harness.one()
    before = await harness.stats(run)
    await command(harness.queue, "CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(QueueFull, match="full") as caught:
            await harness.add(run, pages(100, "more"))
        assert "maxmemory" in caught.value.hint
        with pytest.raises(QueueFull):
            await harness.settle(held, records=(b"{}",))
        assert await harness.stats(run) == before, "looking goes on"
        assert await harness.queue.purge(run=old) == 1, "room can still be made"
    finally:
        own.ask("CONFIG SET maxmemory 0")
    assert await harness.stats(run) == before
    assert await harness.settle(held, records=(b"{}",)) == "ok"
    assert await harness.queue.recount(run) == await harness.stats(run)


async def test_a_server_that_cannot_save_says_so_and_loses_nothing() -> None:
    with own_server() as server:
        queue = await RedisQueue.open(server.url("x"))
        run = await queue.start_run(NewRun(scraper="s", key="k"))
        server.ask('CONFIG SET save "3600 1"')
        (server.data / "dump.rdb").mkdir()  # in the way of the snapshot
        server.ask("BGSAVE")
        await until(lambda: server.ask("SET x 1").startswith("-MISCONF"))
        with pytest.raises(QueueReadOnly, match="cannot save") as caught:
            await queue.add(run.id, tasks(3))
        assert "disk" in caught.value.hint
        (server.data / "dump.rdb").rmdir()
        server.ask("SAVE")
        assert await queue.add(run.id, tasks(3)) == ["added"] * 3
        await queue.close()
