"""Answers: the requests of workers and producers, done on the ledger within the bounds that hold for strangers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from shoal.amqp.channel import Channel
from shoal.amqp.errors import AmqpError, ConnectionLost, NotAmqp
from shoal.amqp.message import TRANSIENT, Message, Outgoing, Properties
from shoal.control.carrier.uploads import Uploads
from shoal.control.queue_verbs import (
    MAX_MESSAGE,
    MAX_TOTAL,
    InvalidMessage,
    do_verb,
    read_verb,
    refusing_unstorable,
    without_hooks,
)
from shoal.errors import QueueUnavailable, ShoalError
from shoal.queue.base import Queue
from shoal.queue.broker.parts import MAX_ANSWER, split
from shoal.queue.broker.wire import OK, REFUSED, UPLOAD, Refusal, encode
from shoal.queue.wire import MEDIA_TYPE, VERBS

log = logging.getLogger("shoal.relay")

PREFETCH = 64  # requests in progress at once
MAX_IN_PROGRESS = 2 * PREFETCH  # with those that came in parts; beyond it they are asked again
# Only whoever asked hears the answer: a request cannot have the relay write to a queue of its choice.
REPLY_PREFIX = "amq.rabbitmq.reply-to."
MAX_REPLY = 200  # letters of the name of a reply queue

Question = Callable[[bytes], Awaitable[Any]]
DoVerb = Callable[[list[Any], dict[str, Any]], Awaitable[Any]]


class Answers:
    """`questions` are those beside the contract, given the message; `special` are verbs that the relay does itself."""

    def __init__(
        self, ledger: Queue, questions: dict[str, Question], special: dict[str, DoVerb], *, cache_size: int
    ) -> None:
        self._ledger = ledger
        self._questions = {UPLOAD: self._where_to_upload, **questions}
        self._special = special
        self._cache_size = cache_size
        self._in_progress: set[asyncio.Task[None]] = set()
        self._uploads = Uploads()
        self._upload_queue = ""
        self._bytes = 0
        self.answered = 0

    async def serve(self, channel: Channel, queue: str) -> asyncio.Future[AmqpError]:
        """Answer what comes, as one of any number of relays. Done, with the reason, when nothing comes any more."""
        ended: asyncio.Future[AmqpError] = asyncio.get_running_loop().create_future()

        def end(error: AmqpError) -> None:
            if not ended.done():
                ended.set_result(error)

        def on_message(message: Message) -> None:
            self._begin(self._answer(channel, message, message.body))

        def on_part(message: Message) -> None:
            with contextlib.suppress(NotAmqp):
                whole = self._uploads.add(message, asyncio.get_running_loop().time())
                if whole is not None and len(self._in_progress) < MAX_IN_PROGRESS:
                    self._begin(self._answer(channel, message, whole, acked=True))

        inbox = await channel.declare_queue("", durable=False, exclusive=True, auto_delete=True)
        await channel.consume(inbox.name, on_part, tag="parts", no_ack=True)
        self._upload_queue = inbox.name
        channel.closed.add_done_callback(lambda closed: end(closed.result()))
        gone = ConnectionLost(f"queue {queue} is gone")
        await channel.consume(queue, on_message, tag="requests", on_cancel=lambda: end(gone))
        return ended

    def _begin(self, answering: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(answering)
        self._in_progress.add(task)
        task.add_done_callback(self._in_progress.discard)

    async def _where_to_upload(self, body: bytes) -> str:
        return self._upload_queue

    async def finish(self, seconds: float) -> None:
        """Let requests in progress end; what does not is asked again of another relay."""
        if self._in_progress:
            await asyncio.wait(self._in_progress, timeout=seconds)
        for task in self._in_progress:
            task.cancel()

    async def _answer(self, channel: Channel, message: Message, asked: bytes, *, acked: bool = False) -> None:
        size = len(asked)
        self._bytes += size
        try:
            properties = _properties(message)
            kind, body = await self._result(properties.type, asked)
            if properties.reply_to.startswith(REPLY_PREFIX) and len(properties.reply_to) <= MAX_REPLY:
                for name, part in split(body):
                    answer = Properties(
                        content_type=MEDIA_TYPE,
                        delivery_mode=TRANSIENT,
                        correlation_id=properties.correlation_id,
                        message_id=name,
                        type=kind,
                    )
                    channel.publish(Outgoing(properties.reply_to, part, answer))
            if not acked:
                channel.ack(message.tag)
            self.answered += 1
        except AmqpError:
            pass  # the connection is gone: whoever asked asks again, and the broker gives it to a relay
        finally:
            self._bytes -= size

    async def _result(self, verb: str, body: bytes) -> tuple[str, bytes]:
        try:
            answer = encode(await self._do(verb, body))
            if len(answer) > MAX_ANSWER:
                raise InvalidMessage(verb, f"its answer would have more than {MAX_ANSWER:,} bytes")
            return OK, answer
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
        if (question := self._questions.get(verb)) is not None:
            return await question(body)
        if verb not in VERBS:
            raise InvalidMessage(verb[:60], "there is no such verb")
        args, named = read_verb(verb, body, cache_size=self._cache_size)
        if (special := self._special.get(verb)) is not None:
            with refusing_unstorable(verb, (args, named)):
                return without_hooks(await special(args, named))
        return without_hooks(await do_verb(self._ledger, verb, args, named))


def _properties(message: Message) -> Properties:
    """Of a message that makes no sense, none: it is refused like any other, and does not stay."""
    try:
        return message.properties
    except NotAmqp:
        return Properties()
