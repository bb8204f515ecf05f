"""Dead letters: every death is in RabbitMQ's dead-letter queue once, also of what expires in the broker."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest
from broker_relay import relaying, take_all
from servers import rabbitmq
from wait import until

from shoal.amqp.channel import Channel
from shoal.amqp.errors import INTERNAL_ERROR, ConnectionLost
from shoal.amqp.message import Message, Outgoing
from shoal.control import broker_duties, letter_copies
from shoal.control.carrier.relay import BrokerRelay
from shoal.control.letter_copies import LetterCopies, Position
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome, Task, digest
from shoal.core.typed_task import Task as TypedTask
from shoal.errors import QueueUnavailable
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.daily_runs import DailyRuns


def page(name: object, **more: Any) -> Task:
    url = f"http://shop.example/{name}"
    return Task(url, "shop.example", digest(url), **more)


async def copied(queue: Queue, *runs: Run) -> set[str]:
    """The ids of all deaths of these runs, once they are said to be copied."""
    dead = [view for run in runs for view in await queue.list_tasks(run.id, state="dead")]
    last = max(view.finished_at for view in dead)

    async def is_past() -> bool:
        document = await queue.document(kinds.LETTER_COPIES, letter_copies.CURSOR)
        return document is not None and msgspec.json.decode(document.text, type=Position).until >= last

    await until(is_past)
    return {f"{view.id}.{view.finished_at}" for view in dead}


async def copies(broker: str) -> Counter[str]:
    found = await asyncio.to_thread(take_all, broker, "shoal.dead")
    return Counter(properties.message_id for properties, _ in found)


async def test_every_death_is_copied_once_however_often_whoever_copies_is_interrupted(
    queue: Queue, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_copies, "PAGE_SIZE", 7)
    monkeypatch.setattr(letter_copies, "PASS_INTERVAL", 0.05)
    monkeypatch.setattr(letter_copies, "IDLE_SHARE", 1)
    monkeypatch.setattr(letter_copies, "LOCK_INTERVAL", 0.05)
    monkeypatch.setattr(letter_copies, "RETURN_DELAY", 0.1)
    monkeypatch.setattr(broker_duties, "LONGEST_DELAY", 0.05)
    first, second = [await queue.start_run(NewRun("books", f"key {n}", name=f"run{n}")) for n in range(2)]
    for run in (first, second):
        await queue.add(run.id, [page(n) for n in range(15)], {"shop.example": UNLIMITED_PACE})
        await queue.add(run.id, [page(f"short {n}", ttl=0.01) for n in range(3)])
    turns = 0
    save, publish = LetterCopies._save, LetterCopies._publish

    async def save_or_die(self: LetterCopies) -> None:
        nonlocal turns
        turns += 1
        if turns % 5 == 0:
            raise QueueUnavailable("gone before it was saved")
        await save(self)
        if turns % 9 == 0:
            raise QueueUnavailable("gone before it was told")

    async def publish_or_die(self: LetterCopies, channel: Any, messages: Any) -> None:
        nonlocal turns
        turns += 1
        await publish(self, channel, messages[:3] if turns % 7 == 0 else messages)
        if turns % 7 == 0:
            raise ConnectionLost("gone in the middle of a page")

    monkeypatch.setattr(LetterCopies, "_save", save_or_die)
    monkeypatch.setattr(LetterCopies, "_publish", publish_or_die)
    async with relaying(queue, broker):
        await until(lambda: _ready(broker))
        for _ in range(3):
            claim = await queue.claim("w", 10)
            await queue.settle([Outcome(task.id, claim.lease, "dead", cause="http.404") for task in claim.tasks])
            await asyncio.sleep(0.05)
        deaths = await copied(queue, first, second)
        assert len(deaths) == 36
        await queue.revive(first.id, TaskFilter(cause="http.404"))
        claim = await queue.claim("w", 10)
        await queue.settle([Outcome(task.id, claim.lease, "dead", cause="again") for task in claim.tasks])
        deaths |= await copied(queue, first, second)
        assert len(deaths) == 36 + len(claim.tasks) > 36
    assert await copies(broker) == Counter(deaths) and turns > 20


@pytest.mark.parametrize("lost", ["copies", "their ids"])
async def test_copies_of_which_the_broker_kept_only_some_are_neither_missing_nor_there_twice(
    queue: Queue, broker: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr(letter_copies, "PASS_INTERVAL", 0.05)
    run = await queue.start_run(NewRun("books", "key", name="run"))
    await queue.add(run.id, [page(f"short {n}", ttl=0.01) for n in range(30)])
    publish, killed = LetterCopies._publish, False

    async def publish_some(self: LetterCopies, channel: Any, messages: list[Outgoing]) -> None:
        """As a broker that is killed: of what it had not confirmed, it may have stored any part."""
        nonlocal killed
        is_copy = any(message.exchange for message in messages)
        if killed or (is_copy and lost == "their ids"):
            return await publish(self, channel, messages)
        await publish(self, channel, messages[::2])
        killed = True
        raise ConnectionLost("the broker was killed")

    monkeypatch.setattr(LetterCopies, "_publish", publish_some)
    async with relaying(queue, broker):
        await until(lambda: _dead_of(queue, run, 30))
        deaths = await copied(queue, run)
    assert await copies(broker) == Counter(deaths) and killed


@pytest.mark.parametrize("can_be_deleted", [True, False])
async def test_a_queue_of_ids_that_the_broker_cannot_read_is_made_anew_or_done_without(
    queue: Queue, broker: str, monkeypatch: pytest.MonkeyPatch, can_be_deleted: bool
) -> None:
    monkeypatch.setattr(letter_copies, "PASS_INTERVAL", 0.05)
    monkeypatch.setattr(letter_copies, "PAGE_SIZE", 10)
    run = await queue.start_run(NewRun("books", "key", name="run"))
    await queue.add(run.id, [page(f"short {n}", ttl=0.01) for n in range(30)])
    publish, get_many, delete = LetterCopies._publish, Channel.get_many, Channel.delete_queue
    killed, deleted = False, 0

    async def publish_all_and_die_once(self: LetterCopies, channel: Channel, messages: list[Outgoing]) -> None:
        nonlocal killed
        await publish(self, channel, messages)
        if not killed:
            killed = True
            raise ConnectionLost("the broker was killed")

    async def get_many_or_fail(self: Channel, name: str, count: int) -> list[Message]:
        if name.endswith(".recent") and not deleted:
            raise ConnectionLost("INTERNAL_ERROR - Cannot get a message from queue", INTERNAL_ERROR)
        return await get_many(self, name, count)

    async def delete_or_fail(self: Channel, name: str) -> int:
        nonlocal deleted
        if not can_be_deleted:
            raise ConnectionLost("the broker did not answer within 30 s")
        deleted += 1
        return await delete(self, name)

    monkeypatch.setattr(LetterCopies, "_publish", publish_all_and_die_once)
    monkeypatch.setattr(Channel, "get_many", get_many_or_fail)
    monkeypatch.setattr(Channel, "delete_queue", delete_or_fail)
    async with relaying(queue, broker):
        await until(lambda: _dead_of(queue, run, 30))
        deaths = await copied(queue, run)
    assert await copies(broker) == Counter(deaths) and killed and deleted == can_be_deleted
    ids = await asyncio.to_thread(take_all, broker, "shoal.dead.recent")
    assert len(ids) == (30 if can_be_deleted else 0)


async def _dead_of(queue: Queue, run: Run, count: int) -> bool:
    return (await queue.stats(run.id)).dead == count


async def _ready(broker: str) -> bool:
    path = f"/api/queues/{broker.rpartition('/')[2]}/shoal.dead"
    return await asyncio.to_thread(rabbitmq.shared().manage, "GET", path, expect=None) is not None


async def added(queue: Queue, key: str, **more: Any) -> int:
    task = TypedTask(type="resize", payload={"key": key}, key=key, **more).to_queue_task()
    return (await DailyRuns(queue).add("resize", [task], {task.lane: UNLIMITED_PACE}))[0]


async def was_published(relay: BrokerRelay, queue: Queue, id: int) -> str:
    """The state of a task, once it is in the broker or dead; meanwhile a worker asks for such tasks."""
    now = asyncio.get_running_loop().time()
    await relay._free_runs.refresh(now)
    relay.ahead.ask(None, now)
    (view,) = await queue.list_tasks(id >> 32, after=id - 1, limit=1)
    is_confirmed = view.state == "leased" and id not in relay.ahead.unconfirmed and relay.ahead.published
    return view.state if is_confirmed or view.state == "dead" else ""


async def test_a_task_that_expires_in_the_broker_is_expired_in_the_ledger_and_a_letter(
    queue: Queue, broker: str
) -> None:
    relay = BrokerRelay(queue, BrokerUrl.parse(f"{broker}?ledger=relay"), cache_size=0)
    stop = asyncio.Event()
    async with relaying(queue, broker):
        running = asyncio.create_task(relay.run(stop, on_ready=lambda: None, say=print))
        try:
            long = await added(queue, "long", ttl=600.0, priority=100)
            await until(partial(was_published, relay, queue, long))
            for ttl in (2.0, 10.0, 50.0):  # so short, one may expire in the ledger before it is published
                short = await added(queue, f"short {ttl}", ttl=ttl)
                state = await until(partial(was_published, relay, queue, short))
                if state == "leased":
                    break
            letters: dict[int, Any] = {}
            while short not in letters:
                found = await asyncio.to_thread(take_all, broker, "shoal.dead")
                letters |= {told["letter"]: told for told in (json.loads(body) for _, body in found)}
                await asyncio.sleep(0.1)
        finally:
            stop.set()
            await running
    assert state == "leased"
    assert (letters[short]["cause"], letters[short]["payload"]) == ("expired", {"key": f"short {ttl}"})
    views = {view.id: view for view in await queue.list_tasks(short >> 32, state="dead")}
    assert views.keys() == letters.keys() and views[short].cause == "expired"
    (waiting,) = await asyncio.to_thread(take_all, broker, "shoal.tasks.task:resize.0")
    assert 500_000 < int(waiting[0].expiration) <= 600_000
