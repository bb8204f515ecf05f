"""Users of RabbitMQ with no more rights than docs/rabbitmq.md gives them: enough for each, and said where not."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from broker_relay import publish, relaying, take_all
from conformance.rabbitmq_backend import RunningRelay
from servers import rabbitmq
from wait import HANG, until

from shoal.control.intake_counts import intake_counts
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import LeasedTask, Outcome, Task, digest
from shoal.errors import QueueRefused
from shoal.queue.base import Queue
from shoal.queue.rabbitmq import RabbitmqQueue, deliveries

DOCS = Path(__file__).parents[2] / "docs" / "rabbitmq.md"
COMMAND = "$ rabbitmqctl set_permissions -p / "
TYPE = "task:work"


def documented() -> dict[str, list[str]]:
    """By user: what it may configure, write and read."""
    lines = [line.removeprefix(COMMAND) for line in DOCS.read_text("utf-8").splitlines() if line.startswith(COMMAND)]
    return {words[0]: words[1:] for words in map(shlex.split, lines)}


class Users:
    """Of a virtual host; each has its own name in the broker, because all virtual hosts share them."""

    def __init__(self, vhost: str) -> None:
        self._vhost = vhost
        self._server = rabbitmq.shared()
        self.names: dict[str, str] = {}
        for user, rights in documented().items():
            self.names[user] = f"{vhost}-{user}"
            self._server.manage("PUT", f"/api/users/{self.names[user]}", {"password": "pw", "tags": ""})
            self.allow(user, *rights)

    def allow(self, user: str, configure: str, write: str, read: str) -> None:
        rights = {"configure": configure, "write": write, "read": read}
        self._server.manage("PUT", f"/api/permissions/{self._vhost}/{self.names[user]}", rights)

    def url(self, user: str) -> str:
        return self._server.url(self._vhost).replace("guest:guest", f"{self.names[user]}:pw")

    def remove(self) -> None:
        for name in self.names.values():
            self._server.manage("DELETE", f"/api/users/{name}")


@pytest.fixture
def users() -> Iterator[Users]:
    with rabbitmq.vhost() as vhost:
        made = Users(vhost)
        yield made
        made.remove()


@asynccontextmanager
async def relay_of(queue: Queue, users: Users) -> AsyncIterator[RunningRelay]:
    """All that a relay does, as its own user."""
    async with relaying(queue, users.url("relay")):
        running = await RunningRelay(queue, f"{users.url('relay')}?ledger=relay").start()
        try:
            yield running
        finally:
            await running.kill()


@asynccontextmanager
async def opened(users: Users, user: str) -> AsyncIterator[RabbitmqQueue]:
    client = await RabbitmqQueue.open(f"{users.url(user)}?ledger=relay")
    try:
        yield client
    finally:
        await client.close()


async def produced(users: Users) -> Run:
    """A task that is done, one that fails, and one that is acknowledged by being delivered."""
    async with opened(users, "producer") as client:
        run = await client.start_run(NewRun(TYPE, key="k", name="work"))
        tasks = [
            Task(f"{TYPE}/{ack}{n}", TYPE, digest(f"{ack}{n}"), kind="work", ack=ack)
            for ack, count in (("manual", 2), ("auto", 1))
            for n in range(count)
        ]
        await client.add(run.id, tasks, {TYPE: UNLIMITED_PACE})
        return run


async def claimed(client: RabbitmqQueue) -> list[LeasedTask]:
    return list((await client.claim("w", 3, serves=(TYPE,))).tasks)


async def test_everybody_can_do_their_part_with_the_rights_of_the_page(
    queue: Queue, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(users.names) == {"relay", "worker", "producer", "publisher"}
    monkeypatch.setattr(deliveries, "REPORT_EVERY", 0.1)
    async with relay_of(queue, users) as relay:
        run = await produced(users)
        async with opened(users, "worker") as client:
            tasks: list[LeasedTask] = []
            while len(tasks) < 3:
                tasks += await until(lambda: claimed(client))
            await until(lambda: relay.relay._holdings.held(asyncio.get_running_loop().time()))  # it may report, too
            results = [Outcome(it.id, it.lease, "done", records=(b"1",)) for it in tasks[1:]]
            failed = Outcome(tasks[0].id, tasks[0].lease, "dead", cause="odd")
            assert await client.settle([failed, *results]) == ["ok"] * 3
            assert await claimed(client) == []
        stats = await queue.stats(run.id)
        assert (stats.done, stats.dead, stats.records) == (2, 1, 2)
        await asyncio.to_thread(lambda: publish(users.url("publisher"), {"url": "http://shop.example/1"}))
        await until(lambda: _accepted(queue))
        assert await until(lambda: asyncio.to_thread(take_all, users.url("relay"), "shoal.dead"), every=0.1)


async def _accepted(queue: Queue) -> bool:
    counts = await intake_counts(queue)
    return counts is not None and counts.accepted == 1


@pytest.mark.parametrize("missing", ["configure", "write", "report", "read"])
async def test_a_worker_that_may_not_consume_is_told_so_and_what_to_type(
    queue: Queue, users: Users, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(deliveries, "REPORT_EVERY", 0.1)
    monkeypatch.setattr(deliveries, "TEND_EVERY", 0.05)
    monkeypatch.setattr(deliveries, "LOOK_EVERY", 0.05)
    configure, write, read = documented()["worker"]
    rights = {
        "configure": ("^$", write, read),
        "write": (configure, r"^amq\.default$", read),
        "report": (configure, r"^(amq\.default|amq\.gen-.*)$", read),
        "read": (configure, write, r"^(shoal\.hints|amq\.gen-.*)$"),
    }
    users.allow("worker", *rights[missing])
    async with relay_of(queue, users):
        await produced(users)
        async with opened(users, "worker") as client:
            with pytest.raises(QueueRefused, match=r"does not let .*worker do this: ACCESS_REFUSED") as refused:
                await until(lambda: _never(client), HANG / 4)
        assert f"set_permissions -p '{users._vhost}' {users.names['worker']}" in refused.value.hint


async def _never(client: RabbitmqQueue) -> bool:
    await claimed(client)
    return False


async def test_a_relay_that_may_not_listen_ends_and_says_what_to_type(queue: Queue, users: Users) -> None:
    _, write, read = documented()["relay"]
    users.allow("relay", r"^shoal\..*$", write, read)
    with pytest.raises(QueueRefused, match=r"does not let .*relay do this: ACCESS_REFUSED") as refused:
        await RunningRelay(queue, f"{users.url('relay')}?ledger=relay").start()
    assert "rabbitmqctl set_permissions" in refused.value.hint
