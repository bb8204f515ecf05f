"""Requests to the relay, through the broker: each verb is a message, and its answer comes back directly."""

from __future__ import annotations

import asyncio
import itertools

from shoal import errors
from shoal.amqp.channel import Channel
from shoal.amqp.errors import AmqpError
from shoal.amqp.message import TRANSIENT, Message, Outgoing, Properties
from shoal.errors import ActionRequired, QueueRefused, QueueUnavailable
from shoal.queue.broker import names
from shoal.queue.broker.connect import Link
from shoal.queue.broker.failure import translate
from shoal.queue.broker.wire import REFUSED, REQUEST_SECONDS, decode_refusal
from shoal.queue.wire import MEDIA_TYPE

REPLY_TO = "amq.rabbitmq.reply-to"
BUDGET = 30.0  # seconds in which a request is repeated; every verb may be
NO_RELAY_PAUSE = 0.2  # seconds after which a request that no queue took is sent again
START_RELAY = "start one where the ledger can be reached: shoal relay --queue 'amqp://…?ledger=redis://…'"


class NoRelay(Exception):
    """The broker has no queue for requests: no relay has been here."""


class Requests:
    def __init__(self, link: Link, namespace: str) -> None:
        self._link = link
        self._to = names.requests(namespace)
        self._channel: Channel | None = None
        self._turn = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Message]] = {}

    async def ask(self, verb: str, body: bytes, budget: float = BUDGET) -> bytes:
        """The answer to a verb. Repeated while none comes; raises what the relay refused it with."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + budget
        while True:
            try:
                answer = await self._exchange(verb, body, max(0.1, min(REQUEST_SECONDS, deadline - loop.time())))
            except TimeoutError:
                problem: ActionRequired = QueueUnavailable(
                    f"no relay answers behind {self._link.address}", hint=START_RELAY
                )
            except NoRelay:
                problem = QueueUnavailable(f"no relay has been at {self._link.address}", hint=START_RELAY)
                await asyncio.sleep(min(NO_RELAY_PAUSE, max(0.0, deadline - loop.time())))
            except AmqpError as error:  # the connection broke: the relay may have heard it or not
                problem = translate(self._link.address, error)
            else:
                if answer.properties.type == REFUSED:
                    raise _refusal(answer.body)
                return answer.body
            if isinstance(problem, QueueRefused) or loop.time() >= deadline:
                raise problem

    async def _exchange(self, verb: str, body: bytes, seconds: float) -> Message:
        channel = await self._open_channel()
        number = str(next(self._numbers))
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        properties = Properties(
            content_type=MEDIA_TYPE,
            delivery_mode=TRANSIENT,
            correlation_id=number,
            reply_to=REPLY_TO,
            expiration=int(seconds * 1000),
            type=verb,
        )
        try:
            async with asyncio.timeout(seconds):
                connection = self._link.current
                if connection is not None:
                    await connection.wait_writable()
                channel.publish(Outgoing(self._to, body, properties, mandatory=True))
                return await answer
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
        answer = self._waiting.get(message.properties.correlation_id)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _on_return(self, message: Message, code: int) -> None:
        answer = self._waiting.get(message.properties.correlation_id)
        if answer is not None and not answer.done():
            answer.set_exception(NoRelay())

    def _on_lost(self, error: AmqpError) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)


def _refusal(body: bytes) -> ActionRequired:
    refusal = decode_refusal(body)
    kind = getattr(errors, refusal.error, None)
    if not (isinstance(kind, type) and issubclass(kind, ActionRequired)):
        kind = QueueRefused
    return kind(refusal.detail, hint=refusal.hint)
