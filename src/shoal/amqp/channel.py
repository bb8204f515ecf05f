"""One channel of a connection: queues are declared, messages published, confirmed, delivered and acknowledged."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shoal.amqp import frames
from shoal.amqp.confirms import Confirms
from shoal.amqp.encoding import Reader, short_string, table
from shoal.amqp.errors import AmqpError, ChannelClosed, ConnectionLost, NotAmqp
from shoal.amqp.message import Message, Outgoing

if TYPE_CHECKING:
    from shoal.amqp.connection import Connection

MAX_BODY = 70_000_000  # bytes of one message; a broker that announces more is not believed
CALL_TIMEOUT = 30.0  # seconds for the answer to one method
_U64 = struct.Struct(">Q")
_HEADER = struct.Struct(">HHQ")
_PUBLISH_CACHE = 1_000  # targets whose frame is remembered

OnMessage = Callable[[Message], None]
OnCancel = Callable[[], None]


class DeclaredQueue(msgspec.Struct, frozen=True):
    name: str
    messages: int
    consumers: int


class Channel:
    def __init__(self, connection: Connection, number: int) -> None:
        self.closed: asyncio.Future[AmqpError] = asyncio.get_running_loop().create_future()
        self.on_return: Callable[[Message, int], None] | None = None  # of mandatory messages, with a code
        self._connection = connection
        self._number = number
        self._turn = asyncio.Lock()
        self._expected: tuple[int, asyncio.Future[Reader]] | None = None
        self._unheard: deque[int] = deque()  # answers on their way to callers that were cancelled
        self._consumers: dict[str, tuple[OnMessage, OnCancel | None]] = {}
        self._gets: deque[asyncio.Future[Message | None]] = deque()  # the broker answers them in order
        self._confirms: Confirms | None = None
        self._publish_frames: dict[tuple[str, str, bool], bytes] = {}
        # The message that is being received: who gets it, what its method said, header, size, body so far.
        self._receiving: tuple[Callable[[bytes, bytes], None], bytes, int, list[bytes]] | None = None
        self._receiver: Callable[[bytes, bytes], None] | None = None
        self._received = 0

    @property
    def is_open(self) -> bool:
        return not self.closed.done()

    # what is asked of the broker

    async def open(self, *, prefetch: int = 0, confirms: bool = True) -> Channel:
        await self._call(frames.CHANNEL_OPEN, b"\x00", frames.CHANNEL_OPEN_OK)
        if prefetch:
            await self.set_prefetch(prefetch)
        if confirms:
            await self._call(frames.CONFIRM_SELECT, b"\x00", frames.CONFIRM_SELECT_OK)
            self._confirms = Confirms()
        return self

    async def close(self) -> None:
        if self.is_open:
            try:
                await self._call(frames.CHANNEL_CLOSE, b"\x00\xc8\x00\x00\x00\x00\x00", frames.CHANNEL_CLOSE_OK)
            except AmqpError:
                return  # it is closed, which is what was asked for
            self._end(ConnectionLost("the channel was closed"))

    async def set_prefetch(self, count: int) -> None:
        """How many unacknowledged messages each consumer that is started after this may hold."""
        await self._call(frames.QOS, b"\x00\x00\x00\x00" + count.to_bytes(2, "big") + b"\x00", frames.QOS_OK)

    async def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        passive: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        bits = passive | durable << 1
        body = b"\x00\x00" + short_string(name) + short_string(kind) + bytes((bits,)) + table(arguments or {})
        await self._call(frames.EXCHANGE_DECLARE, body, frames.EXCHANGE_DECLARE_OK)

    async def delete_exchange(self, name: str) -> None:
        await self._call(frames.EXCHANGE_DELETE, b"\x00\x00" + short_string(name) + b"\x00", frames.EXCHANGE_DELETE_OK)

    async def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
        arguments: dict[str, Any] | None = None,
    ) -> DeclaredQueue:
        bits = passive | durable << 1 | exclusive << 2 | auto_delete << 3
        body = b"\x00\x00" + short_string(name) + bytes((bits,)) + table(arguments or {})
        answer = await self._call(frames.QUEUE_DECLARE, body, frames.QUEUE_DECLARE_OK)
        return DeclaredQueue(answer.short_string(), answer.number(4), answer.number(4))

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        names = short_string(queue) + short_string(exchange) + short_string(routing_key)
        await self._call(
            frames.QUEUE_BIND, b"\x00\x00" + names + b"\x00" + table(arguments or {}), frames.QUEUE_BIND_OK
        )

    async def unbind_queue(self, queue: str, exchange: str, routing_key: str = "") -> None:
        names = short_string(queue) + short_string(exchange) + short_string(routing_key)
        await self._call(frames.QUEUE_UNBIND, b"\x00\x00" + names + table({}), frames.QUEUE_UNBIND_OK)

    async def purge_queue(self, name: str) -> int:
        body = b"\x00\x00" + short_string(name) + b"\x00"
        return (await self._call(frames.QUEUE_PURGE, body, frames.QUEUE_PURGE_OK)).number(4)

    async def delete_queue(self, name: str) -> int:
        """How many messages went with it."""
        body = b"\x00\x00" + short_string(name) + b"\x00"
        return (await self._call(frames.QUEUE_DELETE, body, frames.QUEUE_DELETE_OK)).number(4)

    async def consume(
        self,
        queue: str,
        on_message: OnMessage,
        *,
        tag: str,
        no_ack: bool = False,
        exclusive: bool = False,
        on_cancel: OnCancel | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """Have messages delivered; `tag` names this consumer within the channel. on_cancel: the queue is gone."""
        self._consumers[tag] = on_message, on_cancel  # the first message may come with the answer
        bits = no_ack << 1 | exclusive << 2
        body = b"\x00\x00" + short_string(queue) + short_string(tag) + bytes((bits,)) + table(arguments or {})
        await self._call(frames.CONSUME, body, frames.CONSUME_OK)

    async def cancel(self, tag: str) -> None:
        """End a consumer; what was delivered to it stays to be acknowledged."""
        await self._call(frames.CANCEL, short_string(tag) + b"\x00", frames.CANCEL_OK)
        self._consumers.pop(tag, None)

    async def get_many(self, queue: str, count: int) -> list[Message]:
        """The next messages of a queue, to be acknowledged; fewer than asked for if no more of them wait there."""
        if self.closed.done():
            raise self.closed.result()
        frame = frames.method_frame(self._number, frames.GET, b"\x00\x00" + short_string(queue) + b"\x00")
        asked = [asyncio.get_running_loop().create_future() for _ in range(count)]
        self._gets.extend(asked)
        self._connection.send(frame * count)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        if failed := next((it for it in answers if isinstance(it, BaseException)), None):
            raise failed
        return [it for it in answers if isinstance(it, Message)]

    # messages

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self._connection.send(frames.ack_frame(self._number, tag, multiple))

    def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        self._connection.send(frames.nack_frame(self._number, tag, multiple, requeue))

    def publish(self, message: Outgoing) -> None:
        """Publish one and wait for nothing; of a channel without confirms, or where the answer does not matter."""
        if self.closed.done():
            raise self.closed.result()
        if self._confirms is not None:
            self._confirms.skip()
        self._connection.send(self._encode(message))

    async def publish_many(self, messages: Sequence[Outgoing]) -> dict[int, int]:
        """Publish and wait until the broker has answered for all; which were not taken, with a code.

        NACKED: the broker could not store it; NO_ROUTE: it is mandatory, and no queue takes it. While the broker
        blocks publishers, nothing is sent. What was in flight when the connection broke may have arrived or not.
        """
        if self._confirms is None:
            raise ValueError("this channel has no confirms")
        if not messages:
            return {}
        await self._connection.wait_writable()
        if self.closed.done():
            raise self.closed.result()
        batch = self._confirms.begin(messages)
        encode = self._encode
        self._connection.send(b"".join([encode(message) for message in messages]))
        return await batch.done

    def _encode(self, message: Outgoing) -> bytes:
        target = message.exchange, message.routing_key, message.mandatory
        method = self._publish_frames.get(target)
        if method is None:
            if len(self._publish_frames) >= _PUBLISH_CACHE:
                self._publish_frames.clear()
            names = short_string(message.exchange) + short_string(message.routing_key)
            method = frames.method_frame(
                self._number, frames.PUBLISH, b"\x00\x00" + names + bytes((message.mandatory,))
            )
            self._publish_frames[target] = method
        return method + frames.content_frames(self._number, message.header(), message.body, self._connection.frame_max)

    # what the broker sends

    async def _call(self, method: int, arguments: bytes, answer: int) -> Reader:
        async with self._turn:
            if self.closed.done():
                raise self.closed.result()
            future: asyncio.Future[Reader] = asyncio.get_running_loop().create_future()
            self._expected = answer, future
            self._connection.send(frames.method_frame(self._number, method, arguments))
            try:
                async with asyncio.timeout(CALL_TIMEOUT):
                    return await future
            except TimeoutError:
                # An answer that came now would be taken for the next one's.
                error = ConnectionLost(f"the broker did not answer within {CALL_TIMEOUT:g} s")
                self._connection.abort(error)
                raise error from None
            except asyncio.CancelledError:
                if not future.done() or future.cancelled():
                    self._unheard.append(answer)
                raise
            finally:
                self._expected = None

    def on_method(self, method: int, data: bytes, at: int, end: int) -> None:
        if method == frames.DELIVER:
            self._on_deliver(data, at, end)
        elif method == frames.ACK or method == frames.NACK:
            if self._confirms is not None:
                (tag,) = _U64.unpack_from(data, at)
                self._confirms.answer(tag, bool(data[at + 8] & 1), method == frames.NACK)
        elif self._unheard and self._unheard[0] == method:
            self._unheard.popleft()
        elif self._expected is not None and self._expected[0] == method:
            future = self._expected[1]
            if not future.done():
                future.set_result(Reader(data[at:end]))
        else:
            self._on_rare_method(method, Reader(data, at, end))

    def _on_rare_method(self, method: int, reader: Reader) -> None:
        if method == frames.RETURN:
            code = reader.number(2)
            reader.short_string()
            exchange, routing_key = reader.short_string(), reader.short_string()

            def returned(header: bytes, body: bytes) -> None:
                message = Message(body, header, 0, False, exchange, routing_key)
                if self._confirms is not None:
                    self._confirms.returned(message, code)
                if self.on_return is not None:
                    self.on_return(message, code)

            self._receiver = returned
        elif method == frames.GET_OK and self._gets:
            self._on_get_ok(reader, self._gets.popleft())
        elif method == frames.GET_EMPTY and self._gets:
            _answer(self._gets.popleft(), None)
        elif method == frames.CHANNEL_CLOSE:
            code, text = reader.number(2), reader.short_string()
            self._connection.send(frames.method_frame(self._number, frames.CHANNEL_CLOSE_OK))
            self._end(ChannelClosed(code, text))
        elif method == frames.CANCEL:
            tag = reader.short_string()
            _, on_cancel = self._consumers.pop(tag, (None, None))
            if on_cancel is not None:
                on_cancel()
        elif method == frames.CHANNEL_FLOW:
            self._connection.send(frames.method_frame(self._number, frames.CHANNEL_FLOW_OK, bytes((reader.number(1),))))
        elif method != frames.CHANNEL_CLOSE_OK:
            raise NotAmqp(f"the broker sent a method that nobody asked for: {method >> 16}.{method & 0xFFFF}")

    def _on_deliver(self, data: bytes, at: int, end: int) -> None:
        size = data[at]
        start = at + 1 + size
        consumer = data[at + 1 : start].decode("utf-8", "replace")
        (tag,) = _U64.unpack_from(data, start)
        redelivered = bool(data[start + 8])
        reader = Reader(data, start + 9, end)
        exchange, routing_key = reader.short_string(), reader.short_string()
        handler = self._consumers.get(consumer)

        def delivered(header: bytes, body: bytes) -> None:
            if handler is not None:  # else its consumer was cancelled: the broker gives it to another
                handler[0](Message(body, header, tag, redelivered, exchange, routing_key))

        self._receiver = delivered

    def _on_get_ok(self, reader: Reader, asked: asyncio.Future[Message | None]) -> None:
        tag, redelivered = reader.number(8), bool(reader.number(1))
        exchange, routing_key = reader.short_string(), reader.short_string()
        self._receiver = lambda header, body: _answer(
            asked, Message(body, header, tag, redelivered, exchange, routing_key)
        )

    def on_header(self, data: bytes, at: int, end: int) -> None:
        if self._receiver is None or end - at < 14:
            raise NotAmqp("the broker sent the header of no message")
        _, _, size = _HEADER.unpack_from(data, at)
        if size > MAX_BODY:
            raise NotAmqp(f"the broker announced a message of {size:,} bytes")
        receiver, header, self._receiver = self._receiver, data[at + 12 : end], None
        if size:
            self._receiving = receiver, header, size, []
            self._received = 0
        else:
            receiver(header, b"")

    def on_body(self, data: bytes, at: int, end: int) -> None:
        if self._receiving is None:
            raise NotAmqp("the broker sent the body of no message")
        receiver, header, size, parts = self._receiving
        self._received += end - at
        if self._received > size:
            raise NotAmqp("the broker sent a message longer than it had announced")
        parts.append(data[at:end])
        if self._received == size:
            self._receiving = None
            receiver(header, parts[0] if len(parts) == 1 else b"".join(parts))

    def on_connection_lost(self, error: AmqpError) -> None:
        self._end(error)

    def _end(self, error: AmqpError) -> None:
        if self.closed.done():
            return
        self.closed.set_result(error)
        self._connection.forget(self._number)
        if self._expected is not None and not self._expected[1].done():
            self._expected[1].set_exception(error)
        if self._confirms is not None:
            self._confirms.fail(error)
        while self._gets:
            asked = self._gets.popleft()
            if not asked.done():
                asked.set_exception(error)
        self._consumers.clear()


def _answer(asked: asyncio.Future[Message | None], message: Message | None) -> None:
    if not asked.done():  # else whoever asked was cancelled
        asked.set_result(message)
