"""Dead letters: every death is in RabbitMQ's dead-letter queue once, also of what expires in the broker."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_relay import relaying, take_all
from servers import rabbitmq
from wait import until

from shoal.amqp.errors import ConnectionLost
from shoal.control import broker_duties, letter_copies
from shoal.control.carrier.relay import BrokerRelay
from shoal.control.letter_copies import LetterCopies
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import Outcome, Task, digest
from shoal.core.typed_task import Task as TypedTask
from shoal.errors import QueueUnavailable
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.daily_runs import DailyRuns
from shoal.queue.sqlite import SqliteQueue


@pytest.fixture
def broker() -> Iterator[str]:
    with rabbitmq.vhost() as vhost:
        yield rabbitmq.shared().url(vhost)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Queue]:
    queue = await SqliteQueue.open(str(tmp_path / "state.db"))
    yield queue
    await queue.close()


def page(name: object, **more: Any) -> Task:
    url = f"http://shop.example/{name}"
    return Task(url, "shop.example", digest(url), **more)


async def copies(broker: str, taken: Counter[str], wanted: int) -> Counter[str]:
    """The ids of the copies, once there are so many."""

    async def enough() -> bool:
        found = await asyncio.to_thread(take_all, broker, "shoal.dead")
        taken.update(properties.message_id for properties, _ in found)
        return taken.total() >= wanted

    await until(enough, every=0.2)
    return taken


async def test_every_death_is_copied_once_however_often_whoever_copies_is_interrupted(
    queue: Queue, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_copies, "PAGE_SIZE", 7)
    monkeypatch.setattr(letter_copies, "PASS_INTERVAL", 0.05)
    monkeypatch.setattr(letter_copies, "LOCK_INTERVAL", 0.05)
    monkeypatch.setattr(broker_duties, "LONGEST_DELAY", 0.05)
    first, second = [await queue.start_run(NewRun("books", f"key {n}", name=f"run{n}")) for n in range(2)]
    for run in (first, second):
        await queue.add(run.id, [page(n) for n in range(30)], {"shop.example": UNLIMITED_PACE})
        await queue.add(run.id, [page(f"short {n}", ttl=0.01) for n in range(3)])
    turns = 0
    save, publish = LetterCopies._save, LetterCopies._publish

    async def save_or_die(self: LetterCopies) -> None:
        nonlocal turns
        turns += 1
        if turns % 3 == 0:
            raise QueueUnavailable("gone before it was saved")
        await save(self)
        if turns % 5 == 0:
            raise QueueUnavailable("gone before it was told")

    async def publish_or_die(self: LetterCopies, channel: Any, messages: Any) -> None:
        nonlocal turns
        turns += 1
        await publish(self, channel, messages[:3] if turns % 4 == 0 else messages)
        if turns % 4 == 0:
            raise ConnectionLost("gone in the middle of a page")

    monkeypatch.setattr(LetterCopies, "_save", save_or_die)
    monkeypatch.setattr(LetterCopies, "_publish", publish_or_die)
    taken: Counter[str] = Counter()
    async with relaying(queue, broker):
        await until(lambda: _ready(broker))
        for _ in range(6):
            claim = await queue.claim("w", 10)
            await queue.settle([Outcome(task.id, claim.lease, "dead", cause="http.404") for task in claim.tasks])
            await asyncio.sleep(0.05)
        await copies(broker, taken, 66)
        await queue.revive(first.id, TaskFilter(cause="http.404"))
        claim = await queue.claim("w", 10)
        await queue.settle([Outcome(task.id, claim.lease, "dead", cause="again") for task in claim.tasks])
        again = len(claim.tasks)
        assert again
        await copies(broker, taken, 66 + again)
    dead = {
        f"{it.id}.{it.finished_at}" for run in (first, second) for it in await queue.list_tasks(run.id, state="dead")
    }
    assert dead <= set(taken) and len(taken) == 66 + again
    assert set(taken.values()) == {1} and turns > 20


async def _ready(broker: str) -> bool:
    path = f"/api/queues/{broker.rpartition('/')[2]}/shoal.dead"
    return await asyncio.to_thread(rabbitmq.shared().manage, "GET", path, expect=None) is not None


async def test_a_task_that_expires_in_the_broker_is_expired_in_the_ledger_and_a_letter(
    queue: Queue, broker: str
) -> None:
    types = DailyRuns(queue)
    short = TypedTask(type="resize", payload={"n": 1}, ttl=3.0, key="short").to_queue_task()
    long = TypedTask(type="resize", payload={"n": 2}, ttl=600.0, key="long", priority=100).to_queue_task()
    ids = await types.add("resize", [short, long], {task.lane: UNLIMITED_PACE for task in (short, long)})
    relay = BrokerRelay(queue, BrokerUrl.parse(f"{broker}?ledger=relay"))
    stop = asyncio.Event()
    async with relaying(queue, broker):
        running = asyncio.create_task(relay.run(stop, on_ready=lambda: None, say=print))

        async def published() -> bool:
            now = asyncio.get_running_loop().time()
            await relay._free_runs.refresh(now)
            relay.ahead.ask(None, now)
            return relay.ahead.published == 2

        try:
            await until(published)
            (letter,) = await until(lambda: asyncio.to_thread(take_all, broker, "shoal.dead"), every=0.2)
        finally:
            stop.set()
            await running
    told = json.loads(letter[1])
    assert (told["letter"], told["cause"], told["payload"]) == (ids[0], "expired", {"n": 1})
    (view,) = await queue.list_tasks(ids[0] >> 32, state="dead")
    assert (view.id, view.cause) == (ids[0], "expired")
    (waiting,) = await asyncio.to_thread(take_all, broker, "shoal.tasks.task:resize.0")
    assert 500_000 < int(waiting[0].expiration) <= 600_000
