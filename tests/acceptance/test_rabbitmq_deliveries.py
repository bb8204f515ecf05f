"""Work that RabbitMQ delivers: one task per message, whatever dies on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from conformance.rabbitmq_backend import RunningRelay, broker_url
from servers import rabbitmq
from servers.ports import free_port
from wait import HANG, until

from shoal.amqp.connection import Connection
from shoal.amqp.errors import ConnectionLost
from shoal.control.broker_queues import BrokerQueues
from shoal.control.carrier import audit, holdings
from shoal.control.carrier.leases import RELAY
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task import LeasedTask, Outcome, Task, digest
from shoal.errors import QueueRefused, QueueUnavailable
from shoal.queue import rabbitmq as queue_rabbitmq
from shoal.queue.base import Queue
from shoal.queue.broker import names
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.rabbitmq import RabbitmqQueue, deliveries
from shoal.queue.reconnect import reconnecting
from shoal.queue.request_ids import new_request_id
from shoal.queue.sqlite import SqliteQueue

TYPE = "task:work"


class Carried:
    """A relay, its ledger, and clients of it as other processes would have them."""

    def __init__(self, folder: Path, relay: RunningRelay) -> None:
        self._folder = folder
        self.relay = relay
        self.ledger: Queue = relay.ledger
        self.url = broker_url(folder)
        self.clients: list[RabbitmqQueue] = []

    async def client(self) -> RabbitmqQueue:
        self.clients.append(await RabbitmqQueue.open(self.url))
        return self.clients[-1]

    async def run(self, count: int, *, lane: Pace = UNLIMITED_PACE, **more: object) -> Run:
        queue = await self.client()
        run = await queue.start_run(NewRun(TYPE, key=f"k{count}{more}", name=f"r{count}"))
        tasks = [
            Task(f"{TYPE}/{n}", f"{TYPE}#{n % 8}", digest(f"{n}{more}"), kind="work", **more) for n in range(count)
        ]
        await self.ledger.add(run.id, tasks, {task.lane: lane for task in tasks})
        return run

    async def stats(self, run: Run) -> Stats:
        return await self.ledger.stats(run.id)

    def queue_name(self, priority: int = 0, ack: str = "manual") -> str:
        return names.task_queue(self.relay.url.namespace, TYPE, priority, ack)  # type: ignore[arg-type]

    async def depth(self, name: str = "") -> int:
        connection = await Connection.open(self.relay.url.address)
        try:
            channel = await connection.channel(confirms=False)
            return (await channel.declare_queue(name or self.queue_name(), passive=True)).messages
        finally:
            await connection.close()

    async def restart_relay(self) -> None:
        """As after kill -9: what it knew is gone."""
        await self.relay.kill()
        self.relay = await RunningRelay(self.ledger, self.url).start()


@asynccontextmanager
async def carrying(folder: Path) -> AsyncIterator[Carried]:
    ledger = await SqliteQueue.open(str(folder / "queue.db"))
    carried = Carried(folder, await RunningRelay(ledger, broker_url(folder)).start())
    try:
        yield carried
    finally:
        for client in carried.clients:
            await client.close()
        await carried.relay.close()


@pytest.fixture
def quick_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where something is missing: it would take for missing what a worker was just given and has not told of."""
    monkeypatch.setattr(audit, "INTERVAL", 0.2)
    monkeypatch.setattr(audit, "MIN_AGE", 0.5)


@pytest.fixture
async def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Carried]:
    monkeypatch.setattr(deliveries, "TEND_EVERY", 0.05)
    monkeypatch.setattr(deliveries, "WAIT_PAUSE", 0.1)
    monkeypatch.setattr(deliveries, "REPORT_EVERY", 0.1)
    async with carrying(tmp_path) as made:
        yield made


async def claim(queue: RabbitmqQueue, worker: str, limit: int = 100) -> tuple[LeasedTask, ...]:
    """The next tasks, waited for."""
    return await until(lambda: _claimed(queue, worker, limit))


async def _claimed(queue: RabbitmqQueue, worker: str, limit: int) -> tuple[LeasedTask, ...]:
    return (await queue.claim(worker, limit, serves=(TYPE,))).tasks


async def claim_all(queue: RabbitmqQueue, worker: str, count: int) -> list[LeasedTask]:
    tasks: list[LeasedTask] = []
    while len(tasks) < count:
        tasks += await claim(queue, worker, count - len(tasks))
    return tasks


def done(tasks: Sequence[LeasedTask]) -> list[Outcome]:
    return [Outcome(task.id, task.lease, "done", records=(b'{"n": 1}',)) for task in tasks]


async def test_free_tasks_are_messages_until_they_are_settled(carried: Carried) -> None:
    run = await carried.run(30)
    queue = await carried.client()
    tasks = await claim_all(queue, "w", 10)
    assert len({task.id for task in tasks}) == 10
    leased = await carried.ledger.list_tasks(run.id, state="leased")
    assert {view.worker for view in leased} == {RELAY}
    assert len(leased) == 30
    assert set(await queue.settle(done(tasks))) == {"ok"}
    rest = await claim_all(queue, "w", 20)
    assert set(await queue.settle(done(rest))) == {"ok"}
    stats = await carried.stats(run)
    assert (stats.done, stats.records, stats.open) == (30, 30, 0)
    await queue.close()  # what was not acknowledged would be in the queue again
    assert await carried.depth() == 0


async def test_what_a_dead_worker_held_is_done_by_another_and_recorded_once(carried: Carried) -> None:
    run = await carried.run(20)
    first, second = await carried.client(), await carried.client()
    tasks = await claim_all(first, "first", 20)
    await first.settle(done(tasks[:5]))
    held = [(task.id, task.lease) for task in tasks[5:]]
    connection = first._link.current
    assert connection is not None
    connection.abort(ConnectionLost("killed"))
    await carried.ledger.reap()
    again = await claim_all(second, "second", 15)
    assert sorted((task.id, task.lease) for task in again) == sorted(held)
    assert set(await second.settle(done(again))) == {"ok"}
    # The first comes back to life: its answers are known already, and count for nothing.
    assert set(await first.settle(done(tasks[5:]))) == {"already"}
    stats = await carried.stats(run)
    assert (stats.done, stats.records, stats.open) == (20, 20, 0)


async def test_a_task_that_another_worker_holds_is_not_begun_again(carried: Carried) -> None:
    run = await carried.run(5)
    first, second = await carried.client(), await carried.client()
    tasks = await claim_all(first, "first", 5)
    # As if its connection had been lost and made again: the broker has given its messages away.
    channel = first._deliveries._channel
    assert channel is not None
    await until(lambda: carried.relay.relay._holdings.held(asyncio.get_running_loop().time()))
    reports = first._deliveries._report
    await channel.close()
    queue = first._deliveries
    queue._channel = await (await first._link.connection()).channel(confirms=False)
    for _ in range(20):
        reports()
        assert await _claimed(second, "second", 5) == ()
        await asyncio.sleep(0.02)
    assert set(await first.settle(done(tasks))) == {"ok"}
    await until(lambda: _is_idle(second))
    assert (await carried.stats(run)).records == 5


async def _is_idle(queue: RabbitmqQueue) -> bool:
    await _claimed(queue, "second", 5)
    return not queue._deliveries._doubtful


async def test_what_a_worker_held_when_it_was_closed_is_anothers_at_once(
    carried: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "FRESH_SECONDS", 1e9)  # only what it says itself counts
    await carried.run(5)
    first, second = await carried.client(), await carried.client()
    tasks = await claim_all(first, "first", 5)
    await until(lambda: carried.relay.relay._holdings.held(asyncio.get_running_loop().time()))
    await first.close()
    again = await claim_all(second, "second", 5)
    assert {task.id for task in again} == {task.id for task in tasks}


async def test_whoever_kills_its_workers_is_a_dead_letter_and_the_others_are_not_charged(carried: Carried) -> None:
    run = await carried.run(3)
    queue = await carried.client()
    for number in range(3):
        tasks = await claim_all(queue, f"w{number}", 3)
        guilty = min(tasks, key=lambda task: task.id)
        # The supervisor says which task was executing, and closes nothing: its child is gone with its connection.
        reaped = await queue.reap({f"w{number}": [guilty.id]})
        assert (reaped.returned, reaped.dead) == ((1, 0) if number < 2 else (0, 1))
        await queue.close()
        queue = await carried.client()
    await queue.settle(done(await claim_all(queue, "last", 2)))
    stats = await carried.stats(run)
    assert (stats.done, stats.dead, stats.open) == (2, 1, 0)
    (view,) = await carried.ledger.list_tasks(run.id, state="dead")
    assert (view.cause, len(view.history)) == ("worker_lost", 3)


@pytest.mark.usefixtures("quick_audit")
@pytest.mark.parametrize("how", ["purge", "delete"])
async def test_what_a_person_removed_from_the_broker_is_published_again(carried: Carried, how: str) -> None:
    run = await carried.run(40)
    queue = await carried.client()
    kept = await claim_all(queue, "w", 1)
    await queue._deliveries._give_back()
    await until(lambda: _depth_of(carried, 39))
    connection = await Connection.open(carried.relay.url.address)
    channel = await connection.channel(confirms=False)
    await (channel.purge_queue if how == "purge" else channel.delete_queue)(carried.queue_name())
    await connection.close()
    tasks = await claim_all(queue, "w", 39)
    assert kept[0].id not in {task.id for task in tasks}
    await queue.settle(done([*tasks, *kept]))
    stats = await carried.stats(run)
    assert (stats.done, stats.records, stats.open) == (40, 40, 0)


async def _depth_of(carried: Carried, count: int) -> bool:
    return await carried.depth() == count


@pytest.mark.usefixtures("quick_audit")
async def test_what_a_relay_leased_before_it_died_is_published_by_the_next(carried: Carried) -> None:
    run = await carried.run(25)
    await carried.ledger.claim(RELAY, 25, lease=3600.0)  # and then it was killed
    await carried.restart_relay()
    queue = await carried.client()
    await queue.settle(done(await claim_all(queue, "w", 25)))
    assert (await carried.stats(run)).records == 25


async def test_leases_of_workers_go_on_by_their_heartbeats_and_end_with_their_run(carried: Carried) -> None:
    run = await carried.run(4)
    queue, heartbeat = await carried.client(), await carried.client()
    tasks = await claim_all(queue, "w", 4)
    answer = await heartbeat.extend("w", {tasks[0].lease: [tasks[0].id], 12345: []})
    assert answer.lost == {12345}
    await carried.ledger.set_run(run.id, "cancel")
    answer = await heartbeat.extend("w", {tasks[0].lease: [tasks[0].id]})
    assert answer.cancelled == {task.id for task in tasks}


async def test_work_with_a_pace_or_needs_is_claimed_and_never_published(carried: Carried) -> None:
    await carried.run(3, lane=Pace(0.05, 1))
    queue = await carried.client()
    for _ in range(3):
        (task,) = await claim(queue, "w", 1)
        leased = {view.id: view.worker for view in await carried.ledger.list_tasks(task.run, state="leased")}
        assert leased[task.id] == "w"  # what is published is leased to the relays
        assert task.spacing == 0.05
        await queue.settle(done([task]))
    needy = await carried.run(2, needs=("browser",))
    claimed = await until(lambda: _with_browser(queue))
    assert {task.run for task in claimed} == {needy.id}


async def _with_browser(queue: RabbitmqQueue) -> tuple[LeasedTask, ...]:
    return (await queue.claim("w", 5, serves=(TYPE,), capabilities=("browser",))).tasks


@pytest.mark.usefixtures("quick_audit")
async def test_auto_tasks_are_acknowledged_by_delivery_and_never_given_twice(carried: Carried) -> None:
    run = await carried.run(6, ack="auto")
    queue = await carried.client()
    tasks = await claim_all(queue, "w", 6)
    assert await carried.depth(carried.queue_name(ack="auto")) == 0
    await queue.settle(done(tasks[:4]))
    connection = queue._link.current
    assert connection is not None
    connection.abort(ConnectionLost("killed"))
    queue._deliveries._held.clear()  # nobody holds the two others any more
    await _claimed(queue, "w", 0)  # connected again, it tells the relay so
    stats = await until(lambda: _ended(carried, run))
    assert (stats.done, stats.dead, stats.open) == (4, 2, 0)


@pytest.mark.usefixtures("quick_audit")
async def test_auto_tasks_that_a_dead_worker_may_have_begun_are_letters_and_nobody_begins_them(
    carried: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "FRESH_SECONDS", 0.2)
    run = await carried.run(6, ack="auto")
    dead = await carried.client()
    await claim(dead, "dead", 2)
    await until(lambda: _is_empty(carried, carried.queue_name(ack="auto")))  # all of them are with it
    await kill(dead)
    other = await carried.client()

    async def ended() -> Stats | None:
        assert not await _claimed(other, "other", 6)
        return await _ended(carried, run)

    assert (await until(ended)).dead == 6


async def kill(queue: RabbitmqQueue) -> None:
    """As kill -9 of its process does: it says nothing more, and its connection breaks."""
    tending, connection = queue._deliveries._tending, queue._link.current
    assert tending is not None
    assert connection is not None
    tending.cancel()
    connection.abort(ConnectionLost("killed"))


async def _is_empty(carried: Carried, name: str) -> bool:
    return await carried.depth(name) == 0


async def test_one_worker_gets_only_as_many_auto_tasks_as_it_can_begin_soon_and_gives_back_what_it_has_not(
    carried: Carried,
) -> None:
    run = await carried.run(100, ack="auto")
    first, second = await carried.client(), await carried.client()
    (task,) = await claim(first, "first", 1)
    await until(lambda: _delivered(first, 16))
    assert await carried.depth(carried.queue_name(ack="auto")) == 100 - 16 - 1
    await first.settle(done([task]))
    await first.close()
    tasks = await claim_all(second, "second", 99)
    assert len({it.id for it in (task, *tasks)}) == 100
    await second.settle(done(tasks))
    stats = await carried.stats(run)
    assert (stats.done, stats.dead, stats.open) == (100, 0, 0)


@pytest.mark.parametrize("ack", ["manual", "auto"])
async def test_what_waits_at_a_worker_that_is_slow_is_not_taken_for_missing(
    carried: Carried, ack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "IDLE_AFTER", 1e9)  # a slow worker claims now and then
    monkeypatch.setattr(holdings, "FRESH_SECONDS", 1e9)
    monkeypatch.setattr(audit, "MIN_AGE", 0.0)
    run = await carried.run(8, ack=ack)
    queue = await carried.client()
    await until(lambda: _delivered(queue, 8))
    (task,) = await claim(queue, "w", 1)
    relay, loop = carried.relay.relay, asyncio.get_running_loop()
    await until(lambda: task.id in relay._holdings.held(loop.time()))  # it has said what it has
    connection = relay._link.current
    assert connection is not None
    for _ in range(2):
        assert await relay._audit.look(connection, loop.time()) == 0
    tasks = await claim_all(queue, "w", 7)
    await queue.settle(done([task, *tasks]))
    assert (await carried.stats(run)).done == 8


async def _ended(carried: Carried, run: Run) -> Stats | None:
    stats = await carried.stats(run)
    return stats if stats.open == 0 else None


async def test_urgent_tasks_have_a_queue_of_their_own_and_come_first(carried: Carried) -> None:
    await carried.run(5, priority=0)
    await carried.run(4, priority=100)
    queue = await carried.client()
    await _claimed(queue, "w", 0)
    await until(lambda: _delivered(queue, 9))
    assert [task.priority for task in await claim(queue, "w", 5)] == [100, 100, 100, 100, 0]


async def _delivered(queue: RabbitmqQueue, count: int) -> bool:
    await queue.claim("w", 0, serves=(TYPE,))
    return sum(map(len, queue._deliveries._bands)) == count


async def test_a_queue_with_other_arguments_is_named_with_the_difference_and_the_cure(carried: Carried) -> None:
    connection = await Connection.open(carried.relay.url.address)
    channel = await connection.channel(confirms=False)
    arguments = names.task_arguments(carried.relay.url.namespace) | {"x-max-length": 5}
    await channel.declare_queue(carried.queue_name(), arguments=arguments)
    await connection.close()
    run = await carried.run(3)
    queue = await carried.client()
    tasks = await claim_all(queue, "w", 3)  # they are claimed, as those with a pace are
    await queue.settle(done(tasks))
    assert (await carried.stats(run)).done == 3
    said = carried.relay.said[0]
    assert "its x-max-length is " in said
    assert f"rabbitmqctl delete_queue -p '/' '{carried.queue_name()}', and nothing is lost" in said


async def test_nobody_is_told_to_delete_messages_that_are_nowhere_else(carried: Carried) -> None:
    url = carried.relay.url
    queues = BrokerQueues(f"{url.namespace}-other")
    connection = await Connection.open(url.address)
    channel = await connection.channel(confirms=False)
    await channel.declare_queue(queues.intake, arguments={"x-queue-type": "classic"})
    with pytest.raises(QueueRefused, match="is another than shoal would make: its x-") as refused:
        await queues.declare(connection)
    assert refused.value.hint.startswith("if it is shoal's: empty it, because its messages are nowhere else, then")
    assert f"rabbitmqctl delete_queue -p '/' '{queues.intake}'" in refused.value.hint
    await connection.close()


async def test_a_repeated_request_returns_its_own_batch_whatever_else_was_delivered(carried: Carried) -> None:
    run = await carried.run(6)
    queue = await carried.client()
    new = Task(f"{TYPE}/pushed", f"{TYPE}#0", digest("pushed"), kind="work")
    pushed = await queue.push(run.id, [new], "w", {}, request_id="pushed")
    await queue.claim("w", 0, serves=(TYPE,))
    await until(lambda: _delivered(queue, 6))
    again = await queue.claim("w", 3, serves=(TYPE,), request_id="pushed")
    assert [task.id for task in again.tasks] == [task.id for task in pushed.claim.tasks] != []
    first = await queue.claim("w", 3, serves=(TYPE,), request_id="delivered")
    assert len(first.tasks) == 3
    await queue.settle(done(first.tasks[:1]))
    second = await queue.claim("w", 3, serves=(TYPE,), request_id="delivered")
    assert second.tasks == first.tasks[1:]


async def test_a_push_of_another_process_is_repeated_also_where_something_else_was_delivered(carried: Carried) -> None:
    run = await carried.run(6)
    queue, other = await carried.client(), await carried.client()
    await queue.claim("w", 0, serves=(TYPE,))
    await until(lambda: _delivered(queue, 6))
    new = Task(f"{TYPE}/pushed", f"{TYPE}#0", digest("pushed"), kind="work")
    pushed = await other.push(run.id, [new], "w", {}, request_id="pushed elsewhere")
    again = await queue.claim("w", 3, serves=(TYPE,), request_id="pushed elsewhere")
    assert [task.id for task in again.tasks] == [task.id for task in pushed.claim.tasks] != []
    before = carried.relay.relay.answers.answered
    assert len((await queue.claim("w", 3, serves=(TYPE,), request_id=new_request_id())).tasks) == 3
    assert carried.relay.relay.answers.answered <= before + 1  # where tasks are, at most: its own are not asked about


async def test_people_who_look_are_told_at_once_that_no_relay_runs(
    carried: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_rabbitmq, "HELLO_BUDGET", 10 * HANG)
    await carried.relay.kill()  # its queue stays
    for url in (carried.url, f"{carried.url}x"):
        with pytest.raises(QueueUnavailable, match="no relay runs behind amqp://") as said:
            async with asyncio.timeout(HANG / 4):
                await RabbitmqQueue.open(url, hurry=True)
        assert "shoal relay --queue" in said.value.hint


async def test_people_who_look_do_not_wait_long_for_a_relay_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_rabbitmq, "HELLO_BUDGET", 10 * HANG)
    monkeypatch.setattr(queue_rabbitmq, "HURRY_ANSWER_BUDGET", 0.2)
    url = BrokerUrl.parse(broker_url(tmp_path))
    frozen = await Connection.open(url.address)
    try:
        channel = await frozen.channel()
        await channel.declare_queue(names.requests(url.namespace), arguments=names.REQUEST_ARGUMENTS)
        await channel.consume(names.requests(url.namespace), lambda message: None, tag="frozen")
        with pytest.raises(QueueUnavailable, match="no relay answers behind amqp://") as said:
            async with asyncio.timeout(HANG):
                await RabbitmqQueue.open(broker_url(tmp_path), hurry=True)
        assert "does not answer stands still or is cut off: restart it" in said.value.hint
        await channel.delete_queue(names.requests(url.namespace))
    finally:
        await frozen.close()


async def test_relay_and_worker_wait_for_a_broker_that_is_late(tmp_path: Path) -> None:
    broker, port = rabbitmq.shared(), free_port()
    url = broker_url(tmp_path).replace(f":{broker.port}/", f":{port}/")
    relay = RunningRelay(await SqliteQueue.open(str(tmp_path / "queue.db")), url)
    tries: list[Exception] = []
    starting = asyncio.create_task(relay.start())
    opening = asyncio.create_task(
        reconnecting(lambda: RabbitmqQueue.open(url), HANG, on_failure=lambda error, _: tries.append(error))
    )
    await until(lambda: relay.said and tries)
    async with forwarding(port, broker.port):
        queue = await opening
        await starting
        assert await queue.runs() == []
        await queue.close()
        await relay.close()


@asynccontextmanager
async def forwarding(port: int, to: int) -> AsyncIterator[None]:
    """Whoever connects to the port speaks with the other."""
    ways: set[asyncio.Task[None]] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while some := await reader.read(1 << 16):
                writer.write(some)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", to)
        ways.update((asyncio.create_task(pipe(reader, requests)), asyncio.create_task(pipe(answers, writer))))

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        await asyncio.wait(ways)
        await asyncio.sleep(0)  # the sockets are closed in the next turn
