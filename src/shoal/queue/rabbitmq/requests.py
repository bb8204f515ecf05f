"""Requests to the relay, through the broker: each verb is a message, and its answer comes back directly."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import msgspec

from shoal import errors
from shoal.amqp.channel import Channel
from shoal.amqp.errors import NOT_FOUND, AmqpError, ChannelClosed, NotAmqp
from shoal.amqp.message import TRANSIENT, Message, Outgoing, Properties
from shoal.errors import ActionRequired, QueueRefused, QueueUnavailable
from shoal.queue.broker import names
from shoal.queue.broker.connect import Link
from shoal.queue.broker.failure import is_refusal, translate
from shoal.queue.broker.parts import MAX_ANSWER, PART_BYTES, Assembly, split
from shoal.queue.broker.wire import REFUSED, REQUEST_SECONDS, UPLOAD, decode_refusal
from shoal.queue.wire import MEDIA_TYPE

REPLY_TO = "amq.rabbitmq.reply-to"
BUDGET = 30.0  # seconds in which a request is repeated; every verb may be
NO_RELAY_PAUSE = 0.2  # seconds after which a request that no queue took is sent again
BLOCKED_INTERVAL = 0.2  # seconds between two looks at whether the broker takes messages
UPLOAD_SPEED = 1_000_000  # bytes a second: a large request is given that much longer
START_RELAY = "start one where the ledger can be reached: shoal relay --queue 'amqp://…?ledger=redis://…'"

Answer = tuple[str, bytes]  # its kind, and what it says


class NoRelay(Exception):
    """The broker has no queue for requests: no relay has been here."""


class Blocked(Exception):
    """The broker takes no messages, and whoever asks does not wait for that to end."""


class Requests:
    def __init__(self, link: Link, namespace: str) -> None:
        self._link = link
        self._to = names.requests(namespace)
        self._channel: Channel | None = None
        self._turn = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[str, _Expected] = {}

    async def ask(self, verb: str, body: bytes, budget: float = BUDGET, *, hurry: bool = False) -> bytes:
        """The answer to a verb. Repeated while none comes; raises what the relay refused it with.

        hurry: a broker that takes no messages is not waited for.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + budget
        while True:
            try:
                exchange = self._exchange(verb, body, max(0.1, min(REQUEST_SECONDS, deadline - loop.time())))
                kind, answer = await (self._unless_blocked(exchange) if hurry else exchange)
            except Blocked:
                raise self._no_answer() from None
            except TimeoutError:
                problem: ActionRequired = self._no_answer()
            except NoRelay:
                problem = QueueUnavailable(f"no relay has been at {self._link.address}", hint=START_RELAY)
                await asyncio.sleep(min(NO_RELAY_PAUSE, max(0.0, deadline - loop.time())))
            except AmqpError as error:  # the connection broke: the relay may have heard it or not
                problem = translate(self._link.address, error)
            else:
                if kind == REFUSED:
                    raise _refusal(answer)
                return answer
            if isinstance(problem, QueueRefused) or loop.time() >= deadline:
                raise problem

    async def _unless_blocked(self, exchange: Coroutine[Any, Any, Answer]) -> Answer:
        exchanging = asyncio.ensure_future(exchange)
        try:
            while True:
                await asyncio.wait((exchanging,), timeout=BLOCKED_INTERVAL)
                if exchanging.done():
                    return exchanging.result()
                if self._link.blocked:
                    raise Blocked
        finally:
            exchanging.cancel()
            await asyncio.wait((exchanging,))

    def _no_answer(self) -> QueueUnavailable:
        address = self._link.address
        if self._link.blocked:
            words = f"{address} takes no messages: {self._link.blocked}"
            return QueueUnavailable(words, hint="free memory or disk on it; shoal rabbit status shows its alarms")
        hint = f"{START_RELAY}; one that runs and does not answer stands still or is cut off: restart it"
        return QueueUnavailable(f"no relay answers behind {address}", hint=hint)

    async def wait_for_relay(self, budget: float) -> None:
        """QueueUnavailable if none listens: that is known at once, while an answer might only be late."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + budget
        while not await self._has_relay():
            if loop.time() >= deadline:
                raise QueueUnavailable(f"no relay runs behind {self._link.address}", hint=START_RELAY)
            await asyncio.sleep(NO_RELAY_PAUSE)

    async def _has_relay(self) -> bool:
        connection = await self._link.connection()
        try:
            channel = await connection.channel(confirms=False)
            consumers = (await channel.declare_queue(self._to, passive=True)).consumers
            await channel.close()
            return consumers > 0
        except ChannelClosed as error:
            if is_refusal(error):
                return True  # RabbitMQ 4 lets look only who may configure the queue: the answer will tell
            if error.code != NOT_FOUND:
                raise translate(self._link.address, error) from error
            return False  # none has ever been here
        except AmqpError as error:
            raise translate(self._link.address, error) from error

    async def _exchange(self, verb: str, body: bytes, seconds: float) -> Answer:
        to = self._to
        if len(body) > PART_BYTES:  # the parts must come to the same relay
            kind, where = await self._exchange(UPLOAD, b"", seconds)
            if kind == REFUSED:
                return kind, where
            to = msgspec.msgpack.decode(where, type=str)
            seconds += len(body) / UPLOAD_SPEED
        channel = await self._open_channel()
        number = str(next(self._numbers))
        expected = self._waiting[number] = _Expected()
        try:
            async with asyncio.timeout(seconds):
                connection = self._link.current
                if connection is not None:
                    await connection.wait_writable()
                for name, part in split(body):
                    properties = Properties(
                        content_type=MEDIA_TYPE,
                        delivery_mode=TRANSIENT,
                        correlation_id=number,
                        reply_to=REPLY_TO,
                        expiration=int(seconds * 1000),
                        message_id=name,
                        type=verb,
                    )
                    channel.publish(Outgoing(to, part, properties, mandatory=True))
                return await expected.answer
        finally:
            self._waiting.pop(number, None)

    async def _open_channel(self) -> Channel:
        if self._channel is not None and self._channel.is_open:
            return self._channel
        async with self._turn:
            if self._channel is not None and self._channel.is_open:
                return self._channel
            connection = await self._link.connection()
            channel = await connection.channel(confirms=False)
            channel.on_return = self._on_return
            await channel.consume(REPLY_TO, self._on_answer, tag="answers", no_ack=True)
            channel.closed.add_done_callback(lambda closed: self._on_lost(closed.result()))
            self._channel = channel
            return channel

    def _on_answer(self, message: Message) -> None:
        expected = self._waiting.get(message.properties.correlation_id)
        if expected is not None:
            expected.receive(message)

    def _on_return(self, message: Message, code: int) -> None:
        expected = self._waiting.get(message.properties.correlation_id)
        if expected is not None:
            expected.fail(NoRelay())

    def _on_lost(self, error: AmqpError) -> None:
        for expected in self._waiting.values():
            expected.fail(error)


class _Expected:
    """An answer that is waited for; it may come in parts."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._assembly = Assembly()

    def receive(self, message: Message) -> None:
        whole = self._assembly.add(message.properties.message_id, message.body)
        if self._assembly.size > MAX_ANSWER:
            self.fail(NotAmqp("the relay's answer is too large"))
        elif whole is not None and not self.answer.done():
            self.answer.set_result((message.properties.type, whole))

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def _refusal(body: bytes) -> ActionRequired:
    refusal = decode_refusal(body)
    kind = getattr(errors, refusal.error, None)
    if not (isinstance(kind, type) and issubclass(kind, ActionRequired)):
        kind = QueueRefused
    return kind(refusal.detail, hint=refusal.hint)
