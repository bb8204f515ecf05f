"""Ahead: tasks that need no pace are leased in advance and published, one per message."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from shoal.amqp.channel import Channel
from shoal.amqp.connection import Connection
from shoal.amqp.errors import NO_ROUTE, NOT_FOUND, ChannelClosed
from shoal.amqp.message import PERSISTENT, MessageHeaders, Outgoing, Properties
from shoal.control.carrier.expiry import time_left
from shoal.control.carrier.free_runs import FreeRuns
from shoal.control.carrier.leases import LEASE_SECONDS, RELAY
from shoal.core.run import Run
from shoal.core.task import Ack, LeasedTask, Outcome
from shoal.errors import QueueRefused
from shoal.queue.base import Queue
from shoal.queue.broker import names
from shoal.queue.broker.topology import declare_queue
from shoal.queue.broker.wire import MAX_QUEUES, TaskQueue, encode
from shoal.queue.wire import MEDIA_TYPE

log = logging.getLogger("shoal.relay")

AHEAD = 2_000  # tasks of a scraper that wait in the broker
BATCH = 500  # tasks of one claim
INTEREST_SECONDS = 20.0  # for which a scraper's tasks are published after a worker asked for them
POLL_MIN, POLL_MAX = 0.02, 0.5
RENEW_AGE = 1200.0  # seconds after which a lease is extended that is still needed
AGAIN = {"again": True}  # of a message that may be a second one: whoever gets it asks first


class Ahead:
    def __init__(self, ledger: Queue, namespace: str, free_runs: FreeRuns) -> None:
        self._ledger = ledger
        self._namespace = namespace
        self._free_runs = free_runs
        self._interest: dict[str, float] = {}  # by scraper, when a worker last asked
        self.queues: dict[str, TaskQueue] = {}  # that were declared by us
        self.unconfirmed: dict[int, LeasedTask] = {}  # published, and the broker has not said that it stored them
        self._leases: dict[int, float] = {}  # ours, by when they were taken
        self._confirming: set[asyncio.Task[None]] = set()  # what was published, until the broker has answered for it
        self._probe: Channel | None = None
        self._say: Callable[[str], None] = log.warning
        self._wake = asyncio.Event()
        self.published = 0

    def wake(self) -> None:
        self._wake.set()

    def ask(self, serves: Collection[str] | None, now: float) -> list[TaskQueue]:
        """A worker serves these names: where it finds work, from now on as long as it asks."""
        free = self._free_runs.scrapers
        for scraper in free if serves is None else free.intersection(serves):
            if now - self._interest.get(scraper, -INTEREST_SECONDS) >= INTEREST_SECONDS:
                self._wake.set()
            self._interest[scraper] = now
        wanted = None if serves is None else frozenset(serves)
        return [it for it in self.queues.values() if wanted is None or it.scraper in wanted][:MAX_QUEUES]

    async def run(self, connection: Connection, say: Callable[[str], None]) -> None:
        """Publish until the connection is lost; says what keeps it from publishing."""
        self._say = say
        self.queues.clear()  # what a person deletes meanwhile is declared again
        async with connection.using_channel() as channel:
            await self._keep_publishing(connection, channel)

    async def _keep_publishing(self, connection: Connection, channel: Channel) -> None:
        pause = POLL_MIN
        loop = asyncio.get_running_loop()
        try:
            if again := tuple(self.unconfirmed.values()):
                await self._publish(connection, channel, again, await self._free_runs.refresh(loop.time()), AGAIN)
            while True:
                self._wake.clear()
                if await self._step(connection, channel, loop.time()):
                    pause = POLL_MIN
                    continue
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                    pause = POLL_MIN
                except TimeoutError:
                    pause = min(POLL_MAX, 2 * pause)
        finally:
            await self._end_confirming()

    async def _end_confirming(self) -> None:
        """Whatever the broker has not answered for stays unconfirmed, and is published again."""
        waiting = tuple(self._confirming)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        self._confirming.clear()

    async def _step(self, connection: Connection, channel: Channel, now: float) -> int:
        """Claim and publish once for every scraper that workers ask for; how many that were.

        The next tasks are claimed while the broker stores the last ones: a confirm takes as long as its disk.
        """
        for task in [task for task in self._confirming if task.done()]:
            self._confirming.discard(task)
            task.result()
        by_scraper: dict[str, list[Run]] = defaultdict(list)
        for run in await self._free_runs.refresh(now):
            if now - self._interest.get(run.scraper, -INTEREST_SECONDS) < INTEREST_SECONDS:
                by_scraper[run.scraper].append(run)
        published = 0
        for scraper, runs in by_scraper.items():
            ids = {run.id for run in runs}
            unconfirmed = sum(task.run in ids for task in self.unconfirmed.values()) if self.unconfirmed else 0
            room = AHEAD - unconfirmed - await self.depth(connection, scraper)
            if room < min(BATCH, AHEAD // 4):
                continue
            claim = await self._ledger.claim(
                RELAY,
                min(room, BATCH),
                lease=LEASE_SECONDS,
                serves=[run.name for run in runs],
                request_id=uuid.uuid4().hex,
            )
            if claim.tasks:
                self._leases[claim.lease] = now
                published += await self._publish(connection, channel, claim.tasks, runs)
        return published

    async def depth(self, connection: Connection, scraper: str) -> int:
        """How many tasks of a scraper wait in the broker."""
        return sum(
            [await self._messages(connection, it.name) for it in list(self.queues.values()) if it.scraper == scraper]
        )

    async def _messages(self, connection: Connection, name: str) -> int:
        if self._probe is None or not self._probe.is_open:
            self._probe = await connection.channel(confirms=False)  # a refusal closes it
        try:
            return (await self._probe.declare_queue(name, passive=True)).messages
        except ChannelClosed as error:
            if error.code != NOT_FOUND:
                raise
            self.queues.pop(name, None)  # a person has deleted it
            return 0

    async def _publish(
        self,
        connection: Connection,
        channel: Channel,
        tasks: Sequence[LeasedTask],
        runs: Sequence[Run],
        headers: dict[str, bool] | None = None,
    ) -> int:
        scrapers = {run.id: run.scraper for run in runs}
        queues = await self._declare_queues(connection, tasks, scrapers)
        back: list[LeasedTask] = []
        going: list[LeasedTask] = []
        for task in tasks:
            is_paced = task.spacing or task.start_in > 0 or task.probe
            (back if is_paced or (task.run, task.priority, task.ack) not in queues else going).append(task)
        for task in back:
            self._free_runs.note_pace(task.run)
            self.unconfirmed.pop(task.id, None)
        await self._release(back)
        left = await time_left(self._ledger, going)
        alike: dict[tuple[str, int | None], MessageHeaders] = {}
        messages = []
        for task in going:
            key = task.kind, left.get(task.id)
            if (properties := alike.get(key)) is None:
                properties = alike[key] = _headers(*key, headers or {})
            queue = queues[task.run, task.priority, task.ack]
            messages.append(Outgoing(queue, encode(task), properties.encode(str(task.id)), mandatory=True))
        self.unconfirmed.update((task.id, task) for task in going)
        self._confirming.add(asyncio.create_task(self._confirm(channel, going, messages)))
        await asyncio.sleep(0)  # it is sent before anything else is claimed
        return len(going)

    async def _confirm(self, channel: Channel, tasks: Sequence[LeasedTask], messages: Sequence[Outgoing]) -> None:
        failed = await channel.publish_many(messages)
        for task in tasks:
            self.unconfirmed.pop(task.id, None)
        for at, code in failed.items():
            if code == NO_ROUTE:
                self.queues.pop(messages[at].routing_key, None)
        self.published += len(tasks) - len(failed)
        await self._release([tasks[at] for at in failed])
        self._wake.set()

    async def _release(self, tasks: Sequence[LeasedTask]) -> None:
        if tasks:
            await self._ledger.settle([Outcome(task=it.id, lease=it.lease, result="released") for it in tasks])

    async def _declare_queues(
        self, connection: Connection, tasks: Sequence[LeasedTask], scrapers: dict[int, str]
    ) -> dict[tuple[int, int, Ack], str]:
        """The queues of these tasks, by run, priority and acknowledgement; what has none is left to claims."""
        queues: dict[tuple[int, int, Ack], str] = {}
        for run, priority, ack in {(task.run, task.priority, task.ack) for task in tasks}:
            if run not in scrapers:
                continue
            name = names.task_queue(self._namespace, scrapers[run], priority, ack)
            try:
                await self.declare(connection, TaskQueue(name, scrapers[run], ack == "auto"))
                queues[run, priority, ack] = name
            except QueueRefused as error:  # one queue must not stop the others
                self._say(f"{error}; {error.hint}")
        return queues

    async def declare(self, connection: Connection, queue: TaskQueue) -> None:
        if queue.name not in self.queues and len(self.queues) < MAX_QUEUES:
            await declare_queue(connection, queue.name, names.task_arguments(self._namespace))
            self.queues[queue.name] = queue

    def found_lease(self, number: int, now: float) -> None:
        """A lease of the relays' that another relay took."""
        self._leases.setdefault(number, now - RENEW_AGE)

    async def renew(self, now: float) -> None:
        """Leases that are still needed after long are extended, whoever took them; the others are forgotten."""
        old = [number for number, taken in self._leases.items() if now - taken >= RENEW_AGE]
        for at in range(0, len(old), BATCH):
            some = old[at : at + BATCH]
            answer = await self._ledger.extend(RELAY, dict.fromkeys(some, ()), lease=LEASE_SECONDS)
            for number in some:
                if number in answer.lost:
                    del self._leases[number]
                else:
                    self._leases[number] = now


def _headers(kind: str, left: int | None, headers: dict[str, bool]) -> MessageHeaders:
    return MessageHeaders(
        Properties(content_type=MEDIA_TYPE, headers=headers, delivery_mode=PERSISTENT, type=kind, expiration=left)
    )
