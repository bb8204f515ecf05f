"""Messages: what is published, what is delivered, and the properties that both carry."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from shoal.amqp.encoding import Reader, short_string, table

TRANSIENT, PERSISTENT = 1, 2  # delivery modes
_FLAGS = struct.Struct(">H")


class Properties(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of a message. What is empty is not sent."""

    content_type: str = ""
    content_encoding: str = ""
    headers: dict[str, Any] = {}
    delivery_mode: int = 0
    priority: int = 0
    correlation_id: str = ""
    reply_to: str = ""
    expiration: int | None = None  # milliseconds after which the broker drops it
    message_id: str = ""
    timestamp: int = 0  # seconds since 1970
    type: str = ""
    user_id: str = ""
    app_id: str = ""

    def encode(self) -> bytes:
        flags, parts = 0, []
        if self.content_type:
            flags |= 0x8000
            parts.append(short_string(self.content_type))
        if self.content_encoding:
            flags |= 0x4000
            parts.append(short_string(self.content_encoding))
        if self.headers:
            flags |= 0x2000
            parts.append(table(self.headers))
        if self.delivery_mode:
            flags |= 0x1000
            parts.append(bytes((self.delivery_mode,)))
        if self.priority:
            flags |= 0x0800
            parts.append(bytes((self.priority,)))
        expiration = "" if self.expiration is None else str(self.expiration)
        for flag, text in (
            (0x0400, self.correlation_id), (0x0200, self.reply_to), (0x0100, expiration), (0x0080, self.message_id),
        ):  # fmt: skip
            if text:
                flags |= flag
                parts.append(short_string(text))
        if self.timestamp:
            flags |= 0x0040
            parts.append(self.timestamp.to_bytes(8, "big"))
        for flag, text in ((0x0020, self.type), (0x0010, self.user_id), (0x0008, self.app_id)):
            if text:
                flags |= flag
                parts.append(short_string(text))
        return _FLAGS.pack(flags) + b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Properties:
        """Of what a broker sent; NotAmqp where it makes no sense."""
        reader = Reader(data)
        flags = reader.number(2)
        found: dict[str, Any] = {}
        for flag, name in _NAMES:
            if flags & flag:
                found[name] = _READ.get(name, Reader.short_string)(reader)
        expiration = found.get("expiration", "")
        found["expiration"] = int(expiration) if expiration.isdecimal() and len(expiration) < 20 else None
        return cls(**found)


_NAMES = (
    (0x8000, "content_type"), (0x4000, "content_encoding"), (0x2000, "headers"), (0x1000, "delivery_mode"),
    (0x0800, "priority"), (0x0400, "correlation_id"), (0x0200, "reply_to"), (0x0100, "expiration"),
    (0x0080, "message_id"), (0x0040, "timestamp"), (0x0020, "type"), (0x0010, "user_id"), (0x0008, "app_id"),
)  # fmt: skip
_READ: dict[str, Any] = {
    "headers": Reader.table,
    "delivery_mode": lambda reader: reader.number(1),
    "priority": lambda reader: reader.number(1),
    "timestamp": lambda reader: reader.number(8),
}


class MessageHeaders:
    """Properties of many messages that differ in their id alone, encoded once."""

    __slots__ = ("_before", "_behind")

    def __init__(self, properties: Properties) -> None:
        replace = msgspec.structs.replace
        flags = replace(properties, message_id="1").encode()[:2]
        self._before = (
            flags + replace(properties, message_id="", timestamp=0, type="", user_id="", app_id="").encode()[2:]
        )
        behind = Properties(
            timestamp=properties.timestamp, type=properties.type, user_id=properties.user_id, app_id=properties.app_id
        )
        self._behind = behind.encode()[2:]

    def encode(self, message_id: str) -> bytes:
        return self._before + short_string(message_id) + self._behind


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A message to be published. Of many alike, `properties` may be encoded once."""

    routing_key: str
    body: bytes
    properties: Properties | bytes = b"\x00\x00"
    exchange: str = ""
    mandatory: bool = False  # to be told if no queue takes it

    def header(self) -> bytes:
        return self.properties if isinstance(self.properties, bytes) else self.properties.encode()


class Message:
    """A message that was delivered, or returned. Its properties are read when they are asked for."""

    __slots__ = ("_properties", "body", "exchange", "header", "redelivered", "routing_key", "tag")

    def __init__(
        self, body: bytes, header: bytes, tag: int, redelivered: bool, exchange: str, routing_key: str
    ) -> None:
        self.body = body
        self.header = header
        self.tag = tag
        self.redelivered = redelivered
        self.exchange = exchange
        self.routing_key = routing_key
        self._properties: Properties | None = None

    @property
    def properties(self) -> Properties:
        if self._properties is None:
            self._properties = Properties.decode(self.header)
        return self._properties

    def __repr__(self) -> str:
        return f"Message({self.tag}, {self.routing_key!r}, {len(self.body)} bytes)"
