"""One connection to a broker: the handshake, frames in and out, heartbeats, and a broker that blocks publishers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

from shoal.amqp import frames
from shoal.amqp.address import BrokerAddress
from shoal.amqp.channel import Channel
from shoal.amqp.encoding import Reader, long_string, short_string, table
from shoal.amqp.errors import INTERNAL_ERROR, AmqpError, ConnectionLost, ConnectionRefused, NotAmqp

CONNECT_TIMEOUT = 10.0  # seconds for the whole handshake
CLOSE_TIMEOUT = 2.0
HEARTBEAT = 20  # seconds; a broker that is silent for two of them is gone
FRAME_MAX = 131_072  # bytes of one frame, as RabbitMQ proposes by itself
SMALLEST_FRAME = 4_096
MAX_CHANNELS = 256
HIGH_WATER = 4_000_000  # bytes that wait to be sent, above which publishers wait
_MAX_BUFFERED = 128_000_000  # likewise, above which the connection is given up: acks and calls do not wait
_CLASS_METHOD = struct.Struct(">HH")
_TUNE = struct.Struct(">HIH")
_CAPABILITIES = {
    "publisher_confirms": True,
    "consumer_cancel_notify": True,
    "basic.nack": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


class Connection(asyncio.Protocol):
    def __init__(self, address: BrokerAddress, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.address = address
        self.closed: asyncio.Future[AmqpError] = self._loop.create_future()
        self.frame_max = FRAME_MAX
        self.blocked = ""  # why the broker takes no messages now; empty if it does
        self.server: dict[str, Any] = {}  # what the broker says of itself
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._channels: dict[int, Channel] = {}
        self._max_channels = MAX_CHANNELS
        self._rest = b""
        self._out: list[bytes] = []
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._connected = False
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()
        self._paused = False
        self._heartbeat = 0.0
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._last_received_at = self._last_sent_at = self._loop.time()

    @classmethod
    async def open(
        cls,
        address: BrokerAddress,
        *,
        tls: ssl.SSLContext | None = None,
        name: str = "",
        timeout: float = CONNECT_TIMEOUT,
    ) -> Connection:
        """ConnectionLost: it cannot be reached; ConnectionRefused: it does not want us; NotAmqp: it is no broker."""
        connection = cls(address, name)
        loop = asyncio.get_running_loop()
        context = (tls or ssl.create_default_context()) if address.tls else None
        try:
            async with asyncio.timeout(timeout):
                await loop.create_connection(lambda: connection, address.host, address.port, ssl=context)
                await connection._ready
        except TimeoutError:
            await connection._drop()
            raise ConnectionLost(f"no answer within {timeout:g} s") from None
        except OSError as error:
            await connection._drop()
            if isinstance(error, ssl.SSLError):
                raise
            raise ConnectionLost(str(error) or type(error).__name__) from error
        except BaseException:
            await connection._drop()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return not self.closed.done()

    async def channel(self, *, prefetch: int = 0, confirms: bool = True) -> Channel:
        if self.closed.done():
            raise self.closed.result()
        number = next((it for it in range(1, self._max_channels + 1) if it not in self._channels), None)
        if number is None:
            raise ValueError(f"a connection has at most {self._max_channels} channels")
        channel = self._channels[number] = Channel(self, number)
        return await channel.open(prefetch=prefetch, confirms=confirms)

    @contextlib.asynccontextmanager
    async def using_channel(self, *, prefetch: int = 0, confirms: bool = True) -> AsyncIterator[Channel]:
        """A channel that is closed if what uses it fails, so that it can be begun again on this connection."""
        channel = await self.channel(prefetch=prefetch, confirms=confirms)
        try:
            yield channel
        except Exception:
            await channel.close()
            raise

    async def close(self) -> None:
        if self.is_open and self._transport is not None:
            self.send(frames.method_frame(0, frames.CLOSE, b"\x00\xc8\x00\x00\x00\x00\x00"))
            try:
                await asyncio.wait((self.closed,), timeout=CLOSE_TIMEOUT)
            finally:  # also if whoever closes it is cancelled: nobody else would
                self.abort(ConnectionLost("the connection was closed"))
        await self._drop()

    async def _drop(self) -> None:
        self.abort(ConnectionLost("the connection was closed"))
        if self._connected:
            await asyncio.wait((self._lost,), timeout=CLOSE_TIMEOUT)  # the socket is closed in a later turn

    def abort(self, error: AmqpError) -> None:
        """Give it up at once."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._end(error)

    async def wait_writable(self) -> None:
        """Until the broker takes messages; at once while it does."""
        await self._writable.wait()  # also set when the connection ends
        if self.closed.done():
            raise self.closed.result()

    # out

    def send(self, data: bytes) -> None:
        """Frames go out together at the end of this turn of the event loop."""
        if self._transport is None:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is None or not out:
            return
        self._last_sent_at = self._loop.time()
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        if self._paused and self._transport.get_write_buffer_size() > _MAX_BUFFERED:
            self.abort(ConnectionLost("the broker does not read what it is sent"))

    def pause_writing(self) -> None:
        self._paused = True
        self._update_writable()

    def resume_writing(self) -> None:
        self._paused = False
        self._update_writable()

    def _update_writable(self) -> None:
        if (self._paused or self.blocked) and self.is_open:
            self._writable.clear()
        else:
            self._writable.set()

    # in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it
        self._connected = True
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        self._transport.write(frames.GREETING)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self._lost.done():
            self._lost.set_result(None)
        why = "the broker closed the connection" if error is None else str(error) or type(error).__name__
        self._end(ConnectionLost(why))

    def data_received(self, data: bytes) -> None:
        self._last_received_at = self._loop.time()
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        unpack = frames.FRAME.unpack_from
        try:
            while size - at >= 7:
                kind, number, length = unpack(data, at)
                if length > self.frame_max or (not self._ready.done() and data.startswith(b"AMQP")):
                    raise NotAmqp("what answers there does not speak AMQP 0-9-1")
                start = at + 7
                stop = start + length
                if stop >= size:
                    break
                if data[stop] != frames.FRAME_END:
                    raise NotAmqp("a frame of the broker does not end where it should")
                self._on_frame(kind, number, data, start, stop)
                at = stop + 1
        except (NotAmqp, struct.error, IndexError) as error:
            self.abort(error if isinstance(error, NotAmqp) else NotAmqp("a frame of the broker ends too soon"))
            return
        self._rest = data[at:] if at < size else b""

    def _on_frame(self, kind: int, number: int, data: bytes, at: int, end: int) -> None:
        if number == 0:
            if kind == frames.METHOD:
                group, method = _CLASS_METHOD.unpack_from(data, at)
                self._on_method(group << 16 | method, Reader(data, at + 4, end))
            elif kind != frames.HEARTBEAT:
                raise NotAmqp("the broker sent a message outside of any channel")
            return
        channel = self._channels.get(number)
        if channel is None:
            return  # it was closed, and this was on its way
        if kind == frames.METHOD:
            group, method = _CLASS_METHOD.unpack_from(data, at)
            channel.on_method(group << 16 | method, data, at + 4, end)
        elif kind == frames.HEADER:
            channel.on_header(data, at, end)
        elif kind == frames.BODY:
            channel.on_body(data, at, end)
        else:
            raise NotAmqp(f"the broker sent a frame of an unknown kind {kind}")

    def _on_method(self, method: int, reader: Reader) -> None:
        if method == frames.START:
            self._on_start(reader)
        elif method == frames.TUNE:
            self._on_tune(reader)
        elif method == frames.OPEN_OK:
            if not self._ready.done():
                self._ready.set_result(None)
        elif method == frames.CLOSE:
            code, text = reader.number(2), reader.short_string()
            self.send(frames.method_frame(0, frames.CLOSE_OK))
            self._flush()
            # 320: it is being shut down, or somebody closed this connection in its management
            self._end(ConnectionLost(text, code) if code in (320, INTERNAL_ERROR) else ConnectionRefused(code, text))
            if self._transport is not None:
                self._transport.close()
        elif method == frames.CLOSE_OK:
            self._end(ConnectionLost("the connection was closed"))
        elif method == frames.BLOCKED:
            self.blocked = reader.short_string() or "it did not say why"
            self._update_writable()
        elif method == frames.UNBLOCKED:
            self.blocked = ""
            self._update_writable()
        else:
            raise NotAmqp(f"the broker sent a method that nobody asked for: {method >> 16}.{method & 0xFFFF}")

    def _on_start(self, reader: Reader) -> None:
        if reader.number(2) != 9:
            raise NotAmqp("the broker speaks another version of AMQP than 0-9-1")
        self.server = reader.table()
        if b"PLAIN" not in reader.long_string().split():
            raise NotAmqp("the broker takes no passwords (its mechanisms do not include PLAIN)")
        properties = {"product": "shoal", "capabilities": _CAPABILITIES, "connection_name": self._name}
        secret = f"\0{self.address.user}\0{self.address.password}".encode()
        answer = table(properties) + short_string("PLAIN") + long_string(secret) + short_string("en_US")
        self.send(frames.method_frame(0, frames.START_OK, answer))

    def _on_tune(self, reader: Reader) -> None:
        channels, frame_max, heartbeat = _TUNE.unpack(reader.take(_TUNE.size))
        self._max_channels = min(channels or MAX_CHANNELS, MAX_CHANNELS)
        self.frame_max = min(frame_max or FRAME_MAX, FRAME_MAX)
        if self.frame_max < SMALLEST_FRAME:
            raise NotAmqp(f"the broker wants frames of {self.frame_max} bytes")
        self._heartbeat = float(min(heartbeat or HEARTBEAT, HEARTBEAT))
        tune = _TUNE.pack(self._max_channels, self.frame_max, int(self._heartbeat))
        self.send(frames.method_frame(0, frames.TUNE_OK, tune))
        self.send(frames.method_frame(0, frames.OPEN, short_string(self.address.vhost) + b"\x00\x00"))
        self._heartbeat_timer = self._loop.call_later(self._heartbeat / 2, self._beat)

    def _beat(self) -> None:
        now = self._loop.time()
        if self._transport is None:
            return
        if now - self._last_received_at > 2 * self._heartbeat:
            # Read first what has come while this process stood still: the broker may be well.
            self._loop.call_later(0.5, self._give_up_if_silent, self._last_received_at)
        if now - self._last_sent_at >= self._heartbeat / 2:
            self.send(frames.HEARTBEAT_FRAME)
        self._heartbeat_timer = self._loop.call_later(self._heartbeat / 2, self._beat)

    def _give_up_if_silent(self, since: float) -> None:
        if self._last_received_at == since and self.is_open:
            self.abort(ConnectionLost(f"the broker was silent for {2 * self._heartbeat:g} s"))

    def forget(self, number: int) -> None:
        self._channels.pop(number, None)

    def _end(self, error: AmqpError) -> None:
        if self.closed.done():
            return
        self.closed.set_result(error)
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()
        self._writable.set()
        for channel in list(self._channels.values()):
            channel.on_connection_lost(error)
