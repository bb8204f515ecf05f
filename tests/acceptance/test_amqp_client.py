"""The AMQP client against a real RabbitMQ, and against brokers that break the rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from servers import rabbitmq
from servers.ports import free_port
from wait import HANG

from shoal.amqp import frames
from shoal.amqp.address import BrokerAddress
from shoal.amqp.connection import Connection
from shoal.amqp.encoding import long_string, table
from shoal.amqp.errors import (
    ACCESS_REFUSED,
    NO_ROUTE,
    NOT_FOUND,
    PRECONDITION_FAILED,
    ChannelClosed,
    ConnectionLost,
    ConnectionRefused,
    NotAmqp,
)
from shoal.amqp.message import Message, Outgoing, Properties


@pytest.fixture
def address() -> Iterator[BrokerAddress]:
    server = rabbitmq.shared()
    with rabbitmq.vhost(server) as vhost:
        yield BrokerAddress.parse(server.url(vhost))


@asynccontextmanager
async def connected(address: BrokerAddress) -> AsyncIterator[Connection]:
    connection = await Connection.open(address, name="test")
    try:
        yield connection
    finally:
        await connection.close()


async def test_every_confirmed_message_is_delivered_in_order_with_its_properties(address: BrokerAddress) -> None:
    got: asyncio.Queue[Message] = asyncio.Queue()
    async with connected(address) as connection:
        channel = await connection.channel(prefetch=50)
        await channel.declare_queue("q", arguments={"x-queue-type": "quorum"})
        sizes = [0, 1, 200, 131_064, 131_065, 500_000]
        sent = [
            Outgoing("q", bytes([65 + at]) * size, Properties(message_id=str(at), headers={"n": at}, delivery_mode=2))
            for at, size in enumerate(sizes)
        ]
        assert await channel.publish_many(sent) == {}
        await channel.consume("q", got.put_nowait, tag="me")
        for at, one in enumerate(sent):
            message = await asyncio.wait_for(got.get(), HANG)
            assert (message.body, message.properties.message_id) == (one.body, str(at))
            assert message.properties.headers["n"] == at
        channel.ack(message.tag, multiple=True)
        again = await connection.channel()
        await channel.close()
        assert (await again.declare_queue("q", passive=True)).messages == 0


async def test_a_mandatory_message_that_no_queue_takes_is_named_and_the_others_are_taken(
    address: BrokerAddress,
) -> None:
    async with connected(address) as connection:
        channel = await connection.channel()
        await channel.declare_queue("there", arguments={"x-queue-type": "classic"})
        messages = [
            Outgoing(to, b"same", Properties(message_id=str(at)), mandatory=True)
            for at, to in enumerate(["there", "nowhere", "there"])
        ]
        assert await channel.publish_many(messages) == {1: NO_ROUTE}


async def test_what_was_not_acknowledged_is_delivered_again_to_another(address: BrokerAddress) -> None:
    got: asyncio.Queue[Message] = asyncio.Queue()
    async with connected(address) as connection:
        first = await connection.channel()
        await first.declare_queue("q", arguments={"x-queue-type": "quorum"})
        await first.publish_many([Outgoing("q", b"1"), Outgoing("q", b"2")])
        await first.consume("q", got.put_nowait, tag="a")
        assert not (await asyncio.wait_for(got.get(), HANG)).redelivered
        second_message = await asyncio.wait_for(got.get(), HANG)
        first.ack(second_message.tag)
        await first.close()
        second = await connection.channel()
        await second.consume("q", got.put_nowait, tag="b")
        again = await asyncio.wait_for(got.get(), HANG)
        assert (again.body, again.redelivered, again.properties.headers["x-delivery-count"]) == (b"1", True, 1)


async def test_answers_come_by_direct_reply(address: BrokerAddress) -> None:
    got: asyncio.Queue[Message] = asyncio.Queue()
    async with connected(address) as connection:
        channel = await connection.channel()
        await channel.declare_queue("asked", arguments={"x-queue-type": "classic"})
        await channel.consume("amq.rabbitmq.reply-to", got.put_nowait, tag="answers", no_ack=True)
        server = await connection.channel()

        def answer(message: Message) -> None:
            properties = Properties(correlation_id=message.properties.correlation_id)
            server.publish(Outgoing(message.properties.reply_to, message.body.upper(), properties))
            server.ack(message.tag)

        await server.consume("asked", answer, tag="server")
        asked = Properties(correlation_id="7", reply_to="amq.rabbitmq.reply-to", expiration=60_000)
        channel.publish(Outgoing("asked", b"hello", asked))
        message = await asyncio.wait_for(got.get(), HANG)
        assert (message.body, message.properties.correlation_id) == (b"HELLO", "7")


async def test_refusals_carry_their_code_and_leave_the_connection_open(address: BrokerAddress) -> None:
    async with connected(address) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q", arguments={"x-queue-type": "classic"})
        with pytest.raises(ChannelClosed, match="x-message-ttl") as refused:
            await channel.declare_queue("q", arguments={"x-queue-type": "classic", "x-message-ttl": 1000})
        assert refused.value.code == PRECONDITION_FAILED
        assert not channel.is_open
        other = await connection.channel()
        with pytest.raises(ChannelClosed) as missing:
            await other.declare_queue("nobody", passive=True)
        assert missing.value.code == NOT_FOUND
        assert connection.is_open


async def test_wrong_password_and_missing_vhost_are_refusals_and_a_closed_port_is_not(address: BrokerAddress) -> None:
    def variant(**changed: object) -> BrokerAddress:
        fields = {name: getattr(address, name) for name in ("host", "port", "user", "password", "vhost", "tls")}
        return BrokerAddress(**fields | changed)

    with pytest.raises(ConnectionRefused) as wrong:
        await Connection.open(variant(password="wrong"))
    assert wrong.value.code == ACCESS_REFUSED
    with pytest.raises(ConnectionRefused, match="vhost"):
        await Connection.open(variant(vhost="nobody"))
    with pytest.raises(ConnectionLost):
        await Connection.open(variant(port=free_port()))


async def test_the_answer_to_a_caller_that_was_cancelled_is_not_taken_for_the_next_ones(address: BrokerAddress) -> None:
    async with connected(address) as connection:
        channel = await connection.channel()
        for name in ("first", "second"):
            asking = asyncio.create_task(channel.declare_queue(name))
            await asyncio.sleep(0)  # it has asked
            asking.cancel()
            await asyncio.wait((asking,))
        assert (await channel.declare_queue("third")).name == "third"
        await channel.consume("third", lambda _: None, tag="me")
        assert connection.is_open


async def test_the_end_of_a_queue_reaches_its_consumer(address: BrokerAddress) -> None:
    gone = asyncio.Event()
    async with connected(address) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q", arguments={"x-queue-type": "classic"})
        await channel.consume("q", lambda message: None, tag="me", on_cancel=gone.set)
        await (await connection.channel()).delete_queue("q")
        await asyncio.wait_for(gone.wait(), HANG)


START = frames.method_frame(
    0, frames.START, b"\x00\x09" + table({"product": "fake"}) + long_string(b"PLAIN") + long_string(b"en_US")
)
TUNE = frames.method_frame(0, frames.TUNE, b"\x00\x10\x00\x02\x00\x00\x00\x00")
OPEN_OK = frames.method_frame(0, frames.OPEN_OK, b"\x00")
CHANNEL_OPEN, CONFIRM = b"\x00\x14\x00\x0a\x00\xce", b"\x00\x55\x00\x0a\x00\xce"  # as the client sends them
CHANNEL_OK = frames.method_frame(1, frames.CHANNEL_OPEN_OK, b"\x00\x00\x00\x00")
CONFIRM_OK = frames.method_frame(1, frames.CONFIRM_SELECT_OK)


@asynccontextmanager
async def fake_broker(greeting: bytes, *script: tuple[bytes, bytes]) -> AsyncIterator[BrokerAddress]:
    """Something that greets, and then waits for what the script says and sends what it says, step by step."""
    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        try:
            for awaited, sent in script:
                await reader.readuntil(awaited)
                writer.write(sent)
            await reader.read()
        finally:
            writer.transport.abort()
            await asyncio.sleep(0)  # the socket is closed in the next turn

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)


DELIVER = frames.method_frame(1, frames.DELIVER, b"\x01c" + b"\x00" * 8 + b"\x00\x00\x00")


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"AMQP\x00\x01\x00\x00",
        frames.FRAME.pack(1, 0, 2**31),
        frames.FRAME.pack(1, 0, 4) + b"abcdX",
        frames.FRAME.pack(1, 0, 1) + b"a\xce",
        frames.method_frame(0, frames.START, b"\x00\x09\xff\xff\xff\xff"),
    ],
)
async def test_what_is_no_broker_is_said_to_be_none(sent: bytes) -> None:
    async with fake_broker(sent) as address:
        with pytest.raises(NotAmqp):
            await Connection.open(address, timeout=HANG)


@pytest.mark.parametrize(
    "sent",
    [
        DELIVER + frames.FRAME.pack(2, 1, 14) + b"\x00\x3c\x00\x00" + (2**40).to_bytes(8, "big") + b"\x00\x00\xce",
        DELIVER
        + frames.FRAME.pack(2, 1, 14)
        + b"\x00\x3c\x00\x00"
        + (1).to_bytes(8, "big")
        + b"\x00\x00\xce"
        + frames.FRAME.pack(3, 1, 2)
        + b"ab\xce",  # one byte was announced
        frames.FRAME.pack(3, 1, 1) + b"a\xce",
        frames.FRAME.pack(9, 1, 1) + b"a\xce",
        frames.method_frame(1, 77 << 16 | 7),
        DELIVER + frames.content_frames(1, b"\x00\x00", b"", 4096)[:-1] + b"X",
        frames.method_frame(1, frames.DELIVER, b"\xff"),
    ],
)
async def test_a_broker_that_breaks_the_rules_is_left(sent: bytes) -> None:
    async with fake_broker(START + TUNE + OPEN_OK, (CHANNEL_OPEN, CHANNEL_OK), (CONFIRM, sent)) as address:
        connection = await Connection.open(address)
        try:
            with pytest.raises(NotAmqp):
                await connection.channel()
            assert isinstance(await asyncio.wait_for(asyncio.shield(connection.closed), HANG), NotAmqp)
        finally:
            await connection.close()


async def test_publishers_wait_while_the_broker_blocks_and_go_on_after_it() -> None:
    blocked = frames.method_frame(0, frames.BLOCKED, b"\x06memory")
    script = (
        (CHANNEL_OPEN, CHANNEL_OK),
        (CONFIRM, blocked + CONFIRM_OK),
        (frames.HEARTBEAT_FRAME, frames.method_frame(0, frames.UNBLOCKED)),
        (b"secret", frames.ack_frame(1, 1, False)),
        (frames.method_frame(0, frames.CLOSE)[7:11], frames.method_frame(0, frames.CLOSE_OK)),
    )
    async with fake_broker(START + TUNE + OPEN_OK, *script) as address, connected(address) as connection:
        channel = await connection.channel()
        assert connection.blocked == "memory"
        publishing = asyncio.ensure_future(channel.publish_many([Outgoing("q", b"secret")]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not publishing.done()
        # Sent after the message would have been: had that not waited, this broker would have read it here.
        connection.send(frames.HEARTBEAT_FRAME)
        assert await asyncio.wait_for(publishing, HANG) == {}
        assert not connection.blocked


async def test_whoever_waits_for_a_confirm_is_told_when_the_connection_is_lost() -> None:
    script = ((CHANNEL_OPEN, CHANNEL_OK), (CONFIRM, CONFIRM_OK), (b"secret", b""))
    async with fake_broker(START + TUNE + OPEN_OK, *script) as address:
        connection = await Connection.open(address)
        channel = await connection.channel()
        publishing = asyncio.ensure_future(channel.publish_many([Outgoing("q", b"secret")]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not publishing.done()
    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(publishing, HANG)
    await connection.close()


async def test_a_connection_is_closed_also_if_whoever_closes_it_is_cancelled() -> None:
    async with fake_broker(START + TUNE + OPEN_OK) as address:  # it does not answer, and closes nothing
        connection = await Connection.open(address)
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait((closing,))
        for _ in range(3):
            await asyncio.sleep(0)  # the socket is closed in a later turn
        assert connection._lost.done()
