"""Answers: the requests of workers and producers, done on the ledger within the bounds that hold for strangers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from shoal.amqp.channel import Channel
from shoal.amqp.errors import AmqpError
from shoal.amqp.message import TRANSIENT, Message, Outgoing, Properties
from shoal.control.queue_verbs import MAX_MESSAGE, MAX_TOTAL, InvalidMessage, do_verb, read_verb, without_hooks
from shoal.errors import QueueUnavailable, ShoalError
from shoal.queue.base import Queue
from shoal.queue.broker.wire import OK, REFUSED, Refusal, encode
from shoal.queue.wire import MEDIA_TYPE, VERBS

log = logging.getLogger("shoal.relay")

PREFETCH = 64  # requests in progress at once
MAX_REPLY = 200  # letters of the name of a reply queue

Question = Callable[[bytes], Awaitable[Any]]


class Answers:
    """`special` are the verbs that the relay does itself: given the message, they say the answer."""

    def __init__(self, ledger: Queue, special: dict[str, Question]) -> None:
        self._ledger = ledger
        self._special = special
        self._in_progress: set[asyncio.Task[None]] = set()
        self._bytes = 0
        self.answered = 0

    async def serve(self, channel: Channel, queue: str) -> None:
        """Answer what comes, as one of any number of relays."""

        def on_message(message: Message) -> None:
            task = asyncio.create_task(self._answer(channel, message))
            self._in_progress.add(task)
            task.add_done_callback(self._in_progress.discard)

        await channel.consume(queue, on_message, tag="requests")

    async def finish(self, seconds: float) -> None:
        """Let requests in progress end; what does not is asked again of another relay."""
        if self._in_progress:
            await asyncio.wait(self._in_progress, timeout=seconds)
        for task in self._in_progress:
            task.cancel()

    async def _answer(self, channel: Channel, message: Message) -> None:
        size = len(message.body)
        self._bytes += size
        try:
            kind, body = await self._result(message)
            properties = message.properties
            if 0 < len(properties.reply_to) <= MAX_REPLY:
                answer = Properties(
                    content_type=MEDIA_TYPE,
                    delivery_mode=TRANSIENT,
                    correlation_id=properties.correlation_id,
                    type=kind,
                )
                channel.publish(Outgoing(properties.reply_to, body, answer))
            channel.ack(message.tag)
            self.answered += 1
        except AmqpError:
            pass  # the connection is gone: whoever asked asks again, and the broker gives it to a relay
        finally:
            self._bytes -= size

    async def _result(self, message: Message) -> tuple[str, bytes]:
        verb = message.properties.type
        try:
            return OK, encode(await self._do(verb, message.body))
        except ShoalError as error:
            name = type(error).__name__
            return REFUSED, encode(Refusal(name, str(error), getattr(error, "hint", "")))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return REFUSED, encode(Refusal("QueueRefused", f"this is not a message of {verb[:60]}: {error}"))
        except Exception as error:
            log.exception("request_failed", extra={"verb": verb[:60]})
            return REFUSED, encode(Refusal("QueueRefused", f"the relay failed: {type(error).__name__}"))

    async def _do(self, verb: str, body: bytes) -> Any:
        if len(body) > MAX_MESSAGE:
            raise InvalidMessage(verb, f"a message has at most {MAX_MESSAGE:,} bytes")
        if self._bytes > MAX_TOTAL:
            raise QueueUnavailable("the relay has too many large messages at once", hint="it is asked again by itself")
        if (special := self._special.get(verb)) is not None:
            return await special(body)
        if verb not in VERBS:
            raise InvalidMessage(verb[:60], "there is no such verb")
        args, named = read_verb(verb, body)
        return without_hooks(await do_verb(self._ledger, verb, args, named))
