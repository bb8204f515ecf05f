"""Intake: what other programs publish to RabbitMQ becomes tasks, and is acknowledged once the ledger has it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

import msgspec

from shoal.amqp.channel import Channel
from shoal.amqp.connection import Connection
from shoal.amqp.errors import ConnectionLost, NotAmqp
from shoal.amqp.message import PERSISTENT, Message, Outgoing, Properties
from shoal.config.load import Settings
from shoal.control.broker_queues import BrokerQueues
from shoal.control.intake_counts import add_intake_counts
from shoal.control.intake_message import (
    MAX_REASON,
    IntakeMessage,
    MessageRejected,
    TypedMessage,
    UrlMessage,
    read_message,
)
from shoal.control.intake_runs import IntakeRuns
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.letter import Letter
from shoal.core.run import run_of
from shoal.core.task import Task as QueueTask
from shoal.core.typed_task import Task
from shoal.errors import ActionRequired, UsageError
from shoal.logs import log
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.daily_runs import DailyRuns
from shoal.runs.task_line import task_from_line
from shoal.runs.url_policy import UrlPolicy

PREFETCH = 1_000  # messages that are held at once
COUNT_INTERVAL = 1.0  # seconds between two changes of what is counted
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds before a ledger that failed is asked again
REASON_HEADER = "x-shoal-reason"
MAX_ID = 2**63 - 1

AddTasks = Callable[[Sequence[QueueTask]], Awaitable[str]]  # why none of them was taken; empty if they were


class Intake:
    def __init__(self, queue: Queue, settings: Settings, queues: BrokerQueues) -> None:
        self._queue = queue
        self._queues = queues
        self._runs = IntakeRuns(queue, settings)
        self._types = DailyRuns(queue)
        self._counts: Counter[str] = Counter()
        self._counted_at = time.monotonic()
        self._session = uuid4().hex

    async def serve(self, connection: Connection) -> None:
        """Take messages for as long as the connection lasts."""
        channel = await connection.channel(prefetch=PREFETCH)
        self._session = uuid4().hex  # tags count from 1 again
        await self._queues.declare(connection)
        await self._runs.prepare()
        inbox: list[Message] = []
        arrived = asyncio.Event()

        def received(message: Message) -> None:
            inbox.append(message)
            arrived.set()

        await channel.consume(self._queues.intake, received, tag="intake", on_cancel=arrived.set)
        try:
            while True:
                if not await self._wait(channel, arrived):
                    await self._save_counts()
                    continue
                batch, inbox[:] = inbox[:], []
                if not batch:
                    raise ConnectionLost(f"queue {self._queues.intake} is gone")
                rejected = await self._take_patiently(channel, batch)
                await self._reject(channel, rejected)
                channel.ack(batch[-1].tag, multiple=True)
                await self._save_counts()
        finally:
            await self._save_counts(last=True)

    async def _wait(self, channel: Channel, arrived: asyncio.Event) -> bool:
        """False: nothing has come, and what was counted is to be saved."""
        waiting = asyncio.ensure_future(arrived.wait())
        timeout = COUNT_INTERVAL if self._counts else None
        try:
            await asyncio.wait((waiting, channel.closed), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if channel.closed.done():
            raise channel.closed.result()
        came = arrived.is_set()
        arrived.clear()
        return came

    async def _take_patiently(self, channel: Channel, batch: Sequence[Message]) -> list[tuple[Message, str]]:
        """Nothing is acknowledged, and so nothing lost, while the ledger cannot be reached or is full."""
        delay, told = FIRST_DELAY, ""
        while True:
            try:
                return await self.take(batch)
            except UsageError:
                raise
            except ActionRequired as error:
                if str(error) != told:
                    told = str(error)
                    log("intake.waiting", "warning", error=told, hint=error.hint, messages=len(batch))
                await asyncio.wait((channel.closed,), timeout=delay)
                delay = min(LONGEST_DELAY, delay * 2)
            if channel.closed.done():
                raise channel.closed.result()

    async def take(self, batch: Sequence[Message]) -> list[tuple[Message, str]]:
        """Put a batch into the ledger; which of it cannot be, and why. Doing it again is harmless."""
        rejected: list[tuple[Message, str]] = []
        pages: dict[tuple[str, str], list[tuple[Message, UrlMessage]]] = defaultdict(list)
        typed: dict[str, list[tuple[Message, Task]]] = defaultdict(list)
        letters: list[tuple[Message, Letter]] = []
        for message in batch:
            try:
                found = _read(message)
                if isinstance(found, Letter):
                    letters.append((message, found))
                elif isinstance(found, TypedMessage):
                    typed[found.type].append((message, found.to_task(self._key(message))))
                else:
                    scraper = "" if found.run else found.scraper or self._runs.default_scraper()
                    pages[found.run or "", scraper].append((message, found))
            except MessageRejected as error:
                rejected.append((message, str(error)))
        for (run, scraper), some in pages.items():
            rejected += await (self._add_to_run(run, some) if run else self._add_pages(scraper, some))
        for type, tasks in typed.items():
            rejected += await self._add_typed(type, tasks)
        refused = [(message, reason) for message, letter in letters if (reason := await self._revive(letter))]
        revived = len(letters) - len(refused)
        rejected += refused
        self._counts["revived"] += revived
        self._counts["rejected"] += len(rejected)
        self._counts["accepted"] += len(batch) - len(rejected) - revived
        return rejected

    def _key(self, message: Message) -> str:
        """What a typed task is known by that has no key: the same message delivered again is the same task.

        Ids are its sender's, who may count from 1: only with the same text is it the same message. Without an
        id it is known as long as this relay holds it.
        """
        if given := message.properties.message_id:
            return f"message {hashlib.sha256(message.body).hexdigest()[:32]} {given}"[:500]
        return f"delivery {self._session} {message.tag}"

    async def _add_pages(self, scraper: str, some: Sequence[tuple[Message, UrlMessage]]) -> list[tuple[Message, str]]:
        if reason := self._runs.refusal(scraper):
            return [(message, reason) for message, _ in some]
        tasks, rejected = _tasks(some, self._runs.policy())

        async def add(tasks: Sequence[QueueTask]) -> str:
            await self._runs.add(scraper, tasks)
            return ""

        return rejected + await _isolating(tasks, add)

    async def _add_to_run(self, name: str, some: Sequence[tuple[Message, UrlMessage]]) -> list[tuple[Message, str]]:
        found = await self._runs.open_run(name)
        if isinstance(found, str):
            return [(message, found) for message, _ in some]
        run, policy = found
        tasks, rejected = _tasks(some, policy)

        async def add(tasks: Sequence[QueueTask]) -> str:
            return "" if await self._runs.add_to(run, policy, tasks) else f"run {name} has ended"

        return rejected + await _isolating(tasks, add)

    async def _add_typed(self, type: str, some: Sequence[tuple[Message, Task]]) -> list[tuple[Message, str]]:
        tasks = [(message, task.to_queue_task()) for message, task in some]
        keys = {made.digest for (_, task), (_, made) in zip(some, tasks, strict=True) if task.key}

        async def add(tasks: Sequence[QueueTask]) -> str:
            paces = {task.lane: UNLIMITED_PACE for task in tasks}
            await self._types.add(type, tasks, paces, keyed=[task.digest in keys for task in tasks])
            return ""

        return await _isolating(tasks, add)

    async def _revive(self, letter: Letter) -> str:
        """Why a letter cannot be revived; a death that was revived already is fine."""
        if not 0 < letter.letter <= MAX_ID:
            return "the letter's id is not that of a task"
        run = run_of(letter.letter)
        where = TaskFilter(ids=(letter.letter,))
        dead = await self._queue.list_tasks(run, state="dead", where=where, after=letter.letter - 1, limit=1)
        if not dead:
            known = await self._queue.list_tasks(run, where=where, after=letter.letter - 1, limit=1)
            return "" if known else f"there is no task {letter.letter}"
        if letter.died_at and letter.died_at != dead[0].finished_at:
            return ""  # it was revived, and has died again since
        if not await self._queue.revive(run, where):
            return f"task {letter.letter} cannot be revived: its run was cancelled"
        return ""

    async def _reject(self, channel: Channel, rejected: Sequence[tuple[Message, str]]) -> None:
        if not rejected:
            return
        messages = [self._rejected(message, reason) for message, reason in rejected]
        if await channel.publish_many(messages):
            raise ConnectionLost("the broker could not store rejected messages")
        log("intake.rejected", "warning", messages=len(rejected), first=rejected[0][1])

    def _rejected(self, message: Message, reason: str) -> Outgoing:
        """The message as it came, with the reason."""
        given = _properties(message)
        properties = Properties(
            content_type=given.content_type,
            delivery_mode=PERSISTENT,
            message_id=given.message_id,
            headers={REASON_HEADER: reason[:MAX_REASON], "x-shoal-routing-key": message.routing_key},
        )
        return Outgoing(self._queues.rejected, message.body, properties, mandatory=True)

    async def _save_counts(self, *, last: bool = False) -> None:
        """Add what was counted to the sum of all relays."""
        if not self._counts or (not last and time.monotonic() - self._counted_at < COUNT_INTERVAL):
            return
        counted, self._counts, self._counted_at = self._counts, Counter(), time.monotonic()
        with contextlib.suppress(ActionRequired):  # the ledger is out of reach: it is added with the next
            if await add_intake_counts(self._queue, counted):
                return
        self._counts += counted


def _read(message: Message) -> IntakeMessage:
    try:
        message.properties  # noqa: B018 - read here, where what is wrong with them can be said
    except NotAmqp as error:
        raise MessageRejected(f"its properties are not understood: {error}"[:MAX_REASON]) from None
    return read_message(message.body)


def _properties(message: Message) -> Properties:
    try:
        return message.properties
    except NotAmqp:
        return Properties()


def _tasks(
    some: Sequence[tuple[Message, UrlMessage]], policy: UrlPolicy
) -> tuple[list[tuple[Message, QueueTask]], list[tuple[Message, str]]]:
    tasks: list[tuple[Message, QueueTask]] = []
    rejected: list[tuple[Message, str]] = []
    for message, found in some:
        made = task_from_line(found, 1, policy)
        if isinstance(made, str):
            rejected.append((message, made))
        else:
            tasks.append((message, msgspec.structs.replace(made, meta=found.meta)))  # it is no line of a list
    return tasks, rejected


async def _isolating(tasks: Sequence[tuple[Message, QueueTask]], add: AddTasks) -> list[tuple[Message, str]]:
    """Add all at once; where the queue refuses that, one by one, so that it is known which it does not take."""
    if not tasks:
        return []
    try:
        reason = await add([task for _, task in tasks])
    except UsageError as error:
        if len(tasks) == 1:
            return [(tasks[0][0], str(error))]
        return [one for pair in tasks for one in await _isolating([pair], add)]
    return [(message, reason) for message, _ in tasks] if reason else []
