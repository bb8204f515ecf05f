"""Letter copies: every dead letter of the ledger is copied to RabbitMQ's dead-letter exchange, once per death.

The ledger says which tasks are dead and since when, in no order of time. So all dead letters are looked at, again
and again, in passes; a pass copies those that died after the last one and before it began. How far it has come is
a document in the ledger, written after the broker has confirmed a page of copies. A relay or a broker that dies in
between leaves at most one page of which nobody knows whether it was copied. Whoever goes on looks for it: a second
queue holds the ids of the last copies, written after the copies themselves; what is not there may still be in the
queue of copies, which is then looked through. Only one connection at a time copies: it owns an exclusive queue, so
that one that was cut off cannot publish any more.

What is guaranteed: every death that the ledger still shows when it is looked at is copied once, whatever is killed.
A copy can come a second time, with the same message id, only if another program took it out of the queue before its
id was written, a few milliseconds after it got there, and relay or broker died in these; or if a relay died while it
looked through the queue, and the broker took longer than RETURN_DELAY to put back what it had. If the ledger's clock
is set back, deaths of the time that comes again may be left out.

A broker that was killed may be unable to read a quorum queue any more (seen with 3.10: basic.get fails after a minute,
again and again). The queue of ids is then made anew, once, and done without if that does not help; what is in doubt is
looked for among the copies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec

from shoal.amqp.channel import Channel
from shoal.amqp.connection import Connection
from shoal.amqp.errors import INTERNAL_ERROR, RESOURCE_LOCKED, ChannelClosed, ConnectionLost, NotAmqp
from shoal.amqp.message import PERSISTENT, Message, Outgoing, Properties
from shoal.control.broker_queues import BrokerQueues
from shoal.core.letter import MAX_WORDS, Letter
from shoal.core.run import Run
from shoal.core.typed_task import TYPE_PREFIX, payload_of
from shoal.logs import log
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue, TaskView

CURSOR = "cursor"  # the name of the document
PAGE_SIZE = 100  # letters that are published together; RECENT_LETTERS are remembered
LIST_SIZE = 500  # dead letters looked at in one question
RUNS_SIZE = 1_000
VISIBLE_AFTER = 5.0  # seconds after which a death is sure to be seen by everybody: commits take time
PASS_INTERVAL = 2.0
IDLE_SHARE = 20  # between two passes so many times what the last one took
SAVE_INTERVAL = 60.0  # of a position that has changed by nothing but time
LOCK_INTERVAL = 2.0
RETURN_DELAY = 1.0  # seconds after which the broker has put back what a connection that is gone was looking at
ENDED = ("finished", "cancelled")


class Position(msgspec.Struct, frozen=True):
    """Deaths up to `until` are copied; those up to `to`, of runs before `run` and of its tasks up to `after`, too."""

    until: int = 0
    to: int = 0
    run: int = 0
    after: int = 0


class LetterCopies:
    def __init__(self, queue: Queue, queues: BrokerQueues, *, visible_after: float = VISIBLE_AFTER) -> None:
        self._queue = queue
        self._queues = queues
        self._visible_after = visible_after
        self._position = self._saved = Position()
        self._version = 0
        self._saved_at = float("-inf")
        self._is_in_doubt = False  # the next page may have been copied, all or in part
        self._unreadable = 0  # how often the broker could not read the queue of ids
        self.copied = 0  # by this process

    async def serve(self, connection: Connection) -> None:
        """Copy letters for as long as the connection lasts, when it is this one's turn."""
        channel = await self._own(connection)
        if self._unreadable == 1:
            await self._renew_ids(connection)
        await self._load(channel)
        while True:
            began, was_in_doubt = time.monotonic(), self._is_in_doubt
            await self._pass(channel)
            pause = PASS_INTERVAL
            if not was_in_doubt:  # looking for copies takes long, and happens once
                pause = max(pause, IDLE_SHARE * (time.monotonic() - began))
            await asyncio.wait((channel.closed,), timeout=pause)
            if channel.closed.done():
                raise channel.closed.result()

    async def _own(self, connection: Connection) -> Channel:
        """A channel of the only connection that copies; waits for its turn."""
        await self._queues.declare(connection)
        while True:
            channel = await connection.channel()
            try:
                await channel.declare_queue(self._queues.writer, durable=False, exclusive=True)
            except ChannelClosed as error:
                if error.code != RESOURCE_LOCKED:
                    raise
                await asyncio.sleep(LOCK_INTERVAL)
            else:
                return channel

    async def _renew_ids(self, connection: Connection) -> None:
        name = self._queues.recent
        log(
            "letters.unreadable",
            "warning",
            queue=name,
            hint="RabbitMQ cannot read it: it is made anew, or done without",
        )
        self._unreadable += 1  # whatever comes of it: once
        channel = await connection.channel()
        await channel.delete_queue(name)
        await channel.close()
        await self._queues.declare(connection)
        self._unreadable = 0

    async def _load(self, channel: Channel) -> None:
        document = await self._queue.document(kinds.LETTER_COPIES, CURSOR)
        self._version = document.version if document else 0
        if document:
            self._position = msgspec.json.decode(document.text, type=Position)
        else:
            self._position = Position(until=await self._queue.now() - round(self._queues.letter_ttl * 1e6))
        self._saved = self._position
        self._is_in_doubt = bool(self._position.to)

    async def _find(self, channel: Channel, queue: str, names: set[str]) -> set[str]:
        """Which of these ids are in a queue; what is looked at stays there."""
        found: set[str] = set()
        last = 0
        while len(found) < len(names):
            # How many wait is a guess just after a broker's start; that none is left, it says for certain.
            waiting = (await channel.declare_queue(queue, passive=True)).messages
            messages = await channel.get_many(queue, max(1, min(waiting, LIST_SIZE)))
            if not messages:
                break
            last = messages[-1].tag
            found |= names.intersection(map(_id_of, messages))
        if last:
            channel.nack(last, multiple=True, requeue=True)
        return found

    async def _find_ids(self, channel: Channel, names: set[str]) -> set[str]:
        if self._unreadable:
            return set()
        try:
            return await self._find(channel, self._queues.recent, names)
        except ConnectionLost as error:
            self._unreadable += error.code == INTERNAL_ERROR
            raise

    async def _pass(self, channel: Channel) -> None:
        """Look at every dead letter once."""
        now = await self._queue.now()
        if not self._position.to:
            to = now - round(self._visible_after * 1e6)
            if to <= self._position.until:
                return
            self._position = msgspec.structs.replace(self._position, to=to)
        async for run in self._runs():
            await self._copy_run(channel, run)
        self._position, self._is_in_doubt = Position(until=self._position.to), False
        if self._saved.to or time.monotonic() - self._saved_at > SAVE_INTERVAL:
            await self._save()

    async def _runs(self) -> AsyncIterator[Run]:
        """Runs in which a task may have died since, in the order in which they began."""
        found: list[Run] = []
        before = 0
        while page := await self._queue.runs(before=before, limit=RUNS_SIZE):
            stats = await self._queue.stats_of([run.id for run in page])
            found += [run for run, it in zip(page, stats, strict=True) if it.dead and self._may_have_died(run)]
            before = page[-1].id
            if len(page) < RUNS_SIZE:
                break
        for run in reversed(found):
            if run.id >= self._position.run:
                yield run

    def _may_have_died(self, run: Run) -> bool:
        changed_at = max(run.changed_at, run.finished_at) + round(self._visible_after * 1e6)
        return run.state not in ENDED or changed_at > self._position.until

    async def _copy_run(self, channel: Channel, run: Run) -> None:
        after = self._position.after if run.id == self._position.run else 0
        waiting: list[Letter] = []
        while page := await self._queue.list_tasks(run.id, state="dead", after=after, limit=LIST_SIZE):
            for view in page:
                if self._position.until < view.finished_at <= self._position.to:
                    waiting.append(letter_of(view, run))
                    if len(waiting) == PAGE_SIZE:
                        await self._copy(channel, run, waiting)
                        waiting = []
            after = page[-1].id
            if len(page) < LIST_SIZE:
                break
            await asyncio.sleep(0)
        if waiting:
            await self._copy(channel, run, waiting)

    async def _copy(self, channel: Channel, run: Run, letters: list[Letter]) -> None:
        if self._saved.to != self._position.to:  # so that whoever goes on after us comes by the same letters
            await self._save()
        noted = copied = set[str]()
        if self._is_in_doubt:
            await asyncio.sleep(RETURN_DELAY)
            names = {letter.name for letter in letters}
            noted = await self._find_ids(channel, names)
            copied = await self._find(channel, self._queues.dead, names - noted)
        await self._publish(channel, [self._message(it) for it in letters if it.name not in noted | copied])
        ids = [Properties(delivery_mode=PERSISTENT, message_id=it.name) for it in letters if it.name not in noted]
        if not self._unreadable:
            await self._publish(channel, [Outgoing(self._queues.recent, b"", properties) for properties in ids])
        self._is_in_doubt = False
        self.copied += len(letters)
        self._position = msgspec.structs.replace(self._position, run=run.id, after=letters[-1].letter)
        await self._save()

    def _message(self, letter: Letter) -> Outgoing:
        # Measured from its death: a copy that is made late goes no later.
        age = max(0.0, (self._position.to - letter.died_at) / 1e6)
        properties = Properties(
            content_type="application/json",
            delivery_mode=PERSISTENT,
            message_id=letter.name,
            timestamp=letter.died_at // 1_000_000,
            type="dead letter",
            expiration=round(max(0.0, self._queues.letter_ttl - age) * 1000),
            headers={"x-shoal-run": letter.run[:200], "x-shoal-cause": letter.cause[:200]},
        )
        key = f"{letter.scraper}.{letter.cause}".encode()[:255].decode("utf-8", "ignore")
        return Outgoing(key, letter.encode(), properties, exchange=self._queues.dead)

    async def _publish(self, channel: Channel, messages: list[Outgoing]) -> None:
        if await channel.publish_many(messages):
            raise ConnectionLost("the broker could not store dead letters")

    async def _save(self) -> None:
        text = msgspec.json.encode(self._position).decode()
        saved = await self._queue.compare_and_swap(kinds.LETTER_COPIES, CURSOR, text, self._version)
        if saved is None:
            raise ConnectionLost("another relay copies dead letters")
        self._version, self._saved, self._saved_at = saved.version, self._position, time.monotonic()


def _id_of(message: Message) -> str:
    try:
        return message.properties.message_id
    except NotAmqp:  # a stranger's
        return ""


def letter_of(view: TaskView, run: Run) -> Letter:
    last = view.history[-1] if view.history else None
    meta, typed = view.meta or {}, view.url.startswith(TYPE_PREFIX)
    return Letter(
        letter=view.id,
        died_at=view.finished_at,
        run=run.name,
        scraper=run.scraper,
        url=view.url,
        type=view.kind if typed else "",
        payload=payload_of(meta) if typed else None,
        meta=(meta or None) if not typed else None,
        cause=view.cause,
        message=last.message[:MAX_WORDS] if last else "",
        status=last.status if last else 0,
        attempts=view.attempts,
        added_at=view.added_at,
        worker=last.worker if last else "",
    )
