"""What a stranger sends through RabbitMQ: the relay refuses what the server refuses, and goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conformance.rabbitmq_backend import RunningRelay, broker_url
from hostile_messages import MESSAGES, NO_VERBS, RESERVED, TASK, TOO_LARGE, entry
from wait import until

from shoal.amqp.connection import Connection
from shoal.amqp.message import Message, Outgoing, Properties
from shoal.control.carrier import holdings, uploads
from shoal.control.carrier.answers import PREFETCH
from shoal.control.carrier.expiry import ExpiredTasks
from shoal.control.carrier.holdings import Holdings
from shoal.control.carrier.uploads import Uploads
from shoal.core.lane import Pace
from shoal.core.run import NewRun
from shoal.core.task import Outcome
from shoal.errors import QueueRefused
from shoal.queue.broker import names
from shoal.queue.broker.parts import PART_BYTES
from shoal.queue.broker.wire import CHECK, TASK_QUEUES, HoldingReport, LeaseCheck, TaskQueuesQuestion, encode
from shoal.queue.rabbitmq import RabbitmqQueue
from shoal.queue.sqlite import SqliteQueue
from shoal.queue.wire import VERBS

CACHE_SIZE = 100_000
QUESTIONS = [
    (CHECK, encode(LeaseCheck("w", ((1, 1),) * 2_001))),
    (CHECK, b"\xc1"),
    (TASK_QUEUES, encode(TaskQueuesQuestion(("x",) * 10_001))),
]


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[RunningRelay]:
    ledger = await SqliteQueue.open(str(tmp_path / "queue.db"))
    running = await RunningRelay(ledger, broker_url(tmp_path), CACHE_SIZE).start()
    yield running
    await running.close()


@pytest.fixture
async def client(relay: RunningRelay, tmp_path: Path) -> AsyncIterator[RabbitmqQueue]:
    queue = await RabbitmqQueue.open(broker_url(tmp_path))
    yield queue
    await queue.close()


async def test_the_relay_refuses_what_the_server_refuses(relay: RunningRelay, client: RabbitmqQueue) -> None:
    packed = [(verb, VERBS[verb].pack(args, named)) for verb, args, named in MESSAGES + RESERVED]
    for verb, message in packed + NO_VERBS + QUESTIONS:
        with pytest.raises(QueueRefused) as refused:
            await client._requests.ask(verb, message)
        assert "the relay failed" not in str(refused.value), (verb, message[:60])
    # A worker's own bound is not that of the machine which keeps the queue.
    for number in range(100):
        await client.cache_put(entry(key=b"%d" % number, data=b"x" * 5000), 2**62)
    assert 0 < (await relay.ledger.cache_stats()).bytes <= CACHE_SIZE


async def test_an_answer_goes_to_whoever_asked_and_into_no_queue_of_their_choice(
    relay: RunningRelay, client: RabbitmqQueue
) -> None:
    connection = await Connection.open(relay.url.address)
    try:
        channel = await connection.channel()
        await channel.declare_queue(other := f"{relay.url.namespace}.other", arguments=names.REQUEST_ARGUMENTS)
        before = relay.relay.answers.answered
        for to in (other, "amq.rabbitmq.reply-to.nobody", ""):
            asked = Properties(reply_to=to, type="runs")
            assert not await channel.publish_many([Outgoing(names.requests(relay.url.namespace), b"\x80", asked)])
        await until(lambda: relay.relay.answers.answered >= before + 3)
        await client.runs()  # its answer is behind theirs
        assert (await channel.declare_queue(other, passive=True)).messages == 0
        await channel.delete_queue(other)
    finally:
        await connection.close()


async def test_messages_that_make_no_sense_and_a_queue_that_was_deleted_do_not_silence_the_relay(
    relay: RunningRelay, client: RabbitmqQueue
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"x": deep}
    requests = names.requests(relay.url.namespace)
    connection = await Connection.open(relay.url.address)
    try:
        channel = await connection.channel()
        nonsense = Outgoing(requests, b"\x80", Properties(headers=deep, type="runs"))
        assert not await channel.publish_many([nonsense] * (PREFETCH + 1))
        assert await client.runs() == []
        await channel.delete_queue(requests)
        assert await client.runs() == []
    finally:
        await connection.close()


async def test_tasks_that_nobody_has_published_do_not_keep_others_from_expiring(
    relay: RunningRelay, client: RabbitmqQueue
) -> None:
    run = await client.start_run(NewRun("books", "key", name="books"))
    await client.add(run.id, [TASK], {TASK.lane: Pace(0.1, 1)})
    (task,) = (await client.claim("w", 1)).tasks
    bodies = [b"\xc1", encode(msgspec.structs.replace(task, id=TOO_LARGE)), encode(task)]
    headers = Properties(headers={"x-death": [{"reason": "expired"}]}).encode()
    expired = ExpiredTasks(relay.ledger, relay.url.namespace)
    await expired._settle([Message(body, headers, 1, False, "", "") for body in bodies])
    assert (await relay.ledger.stats(run.id)).dead == 1


async def test_requests_and_answers_larger_than_the_broker_takes_come_in_parts(
    relay: RunningRelay, client: RabbitmqQueue
) -> None:
    run = await client.start_run(NewRun("books", "key", name="books"))
    await client.add(run.id, [TASK], {TASK.lane: Pace(0.1, 1)})  # not published: claimed
    (task,) = (await client.claim("w", 1)).tasks
    record = b'"' + b"x" * (2 * PART_BYTES + 1000) + b'"'
    assert await client.settle([Outcome(task.id, task.lease, "done", records=(record, b'"y"'))]) == ["ok"]
    assert [it.data for it in await client.records(run.id)] == [record, b'"y"']


def test_parts_of_many_requests_take_no_more_than_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_TOTAL", 1_000)
    monkeypatch.setattr(uploads, "MAX_MESSAGE", 300)

    def part(sender: str, name: str, size: int = 100) -> Message:
        header = Properties(reply_to=sender, correlation_id="1", message_id=name).encode()
        return Message(b"x" * size, header, 0, False, "", "")

    begun = Uploads()
    for number in range(20):
        assert begun.add(part(f"r{number}", "0/2"), 0.0) is None
    assert begun.add(part("r0", "1/2"), 0.0) is None  # given up for the others
    assert begun.add(part("r19", "1/2"), 0.0) == b"x" * 200
    assert begun.add(part("r18", "1/2"), 61.0) == b"x" * 200
    assert begun.add(part("r17", "1/2"), 61.0) is None  # too old
    assert [begun.add(part("large", f"{n}/9"), 61.0) for n in range(9)] == [None] * 9
    assert begun._size == 0
    assert begun.add(part("alone", ""), 61.0) is None  # no part, but a whole request
    monkeypatch.setattr(uploads, "MAX_UPLOADS", 3)
    for number in range(5):
        begun.add(part(f"small{number}", "0/2", 1), 61.0)
    assert [begun.add(part(f"small{number}", "1/2", 1), 61.0) for number in (0, 4)] == [None, b"xx"]


def test_what_workers_say_they_hold_takes_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "MAX_HELD", 1_000)
    known = Holdings()
    for worker in range(100):
        known.note(HoldingReport(f"w{worker}", tuple(range(100 * worker, 100 * worker + 100))), 0.0)
        known.note(HoldingReport("often", tuple(range(100))), 0.0)
    assert known.held(1.0) == {*range(100), *range(9_100, 10_000)}
    known.forget([f"w{worker}" for worker in range(100)])
    assert known.held(1.0) == set(range(100))
