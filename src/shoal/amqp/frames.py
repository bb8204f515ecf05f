"""Frames and methods of AMQP 0-9-1, as far as this client speaks them."""

from __future__ import annotations

import struct

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
GREETING = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"
FRAME = struct.Struct(">BHI")
FRAME_OVERHEAD = 8  # header and end

_METHOD = struct.Struct(">BHIHH")
_CONTENT = struct.Struct(">BHIHHQ")
_ACK = struct.Struct(">BHIHHQBB")

# (class, method), as one number
START, START_OK = 10 << 16 | 10, 10 << 16 | 11
TUNE, TUNE_OK = 10 << 16 | 30, 10 << 16 | 31
OPEN, OPEN_OK = 10 << 16 | 40, 10 << 16 | 41
CLOSE, CLOSE_OK = 10 << 16 | 50, 10 << 16 | 51
BLOCKED, UNBLOCKED = 10 << 16 | 60, 10 << 16 | 61
CHANNEL_OPEN, CHANNEL_OPEN_OK = 20 << 16 | 10, 20 << 16 | 11
CHANNEL_FLOW, CHANNEL_FLOW_OK = 20 << 16 | 20, 20 << 16 | 21
CHANNEL_CLOSE, CHANNEL_CLOSE_OK = 20 << 16 | 40, 20 << 16 | 41
EXCHANGE_DECLARE, EXCHANGE_DECLARE_OK = 40 << 16 | 10, 40 << 16 | 11
EXCHANGE_DELETE, EXCHANGE_DELETE_OK = 40 << 16 | 20, 40 << 16 | 21
QUEUE_DECLARE, QUEUE_DECLARE_OK = 50 << 16 | 10, 50 << 16 | 11
QUEUE_BIND, QUEUE_BIND_OK = 50 << 16 | 20, 50 << 16 | 21
QUEUE_PURGE, QUEUE_PURGE_OK = 50 << 16 | 30, 50 << 16 | 31
QUEUE_DELETE, QUEUE_DELETE_OK = 50 << 16 | 40, 50 << 16 | 41
QUEUE_UNBIND, QUEUE_UNBIND_OK = 50 << 16 | 50, 50 << 16 | 51
QOS, QOS_OK = 60 << 16 | 10, 60 << 16 | 11
CONSUME, CONSUME_OK = 60 << 16 | 20, 60 << 16 | 21
CANCEL, CANCEL_OK = 60 << 16 | 30, 60 << 16 | 31
PUBLISH, RETURN, DELIVER = 60 << 16 | 40, 60 << 16 | 50, 60 << 16 | 60
GET, GET_OK, GET_EMPTY = 60 << 16 | 70, 60 << 16 | 71, 60 << 16 | 72
ACK, REJECT, NACK = 60 << 16 | 80, 60 << 16 | 90, 60 << 16 | 120
CONFIRM_SELECT, CONFIRM_SELECT_OK = 85 << 16 | 10, 85 << 16 | 11


def method_frame(channel: int, method: int, arguments: bytes = b"") -> bytes:
    return _METHOD.pack(METHOD, channel, 4 + len(arguments), method >> 16, method & 0xFFFF) + arguments + b"\xce"


def ack_frame(channel: int, tag: int, multiple: bool) -> bytes:
    return _ACK.pack(METHOD, channel, 13, 60, 80, tag, multiple, FRAME_END)


def nack_frame(channel: int, tag: int, multiple: bool, requeue: bool) -> bytes:
    return _ACK.pack(METHOD, channel, 13, 60, 120, tag, multiple | requeue << 1, FRAME_END)


def content_frames(channel: int, header: bytes, body: bytes, frame_max: int) -> bytes:
    """Header and body of a message, the body in as many frames as it takes."""
    size = len(body)
    head = _CONTENT.pack(HEADER, channel, 12 + len(header), 60, 0, size) + header
    room = frame_max - FRAME_OVERHEAD
    if size <= room:
        return b"%b\xce%b%b\xce" % (head, FRAME.pack(BODY, channel, size), body) if size else head + b"\xce"
    parts = [head, b"\xce"]
    for at in range(0, size, room):
        part = body[at : at + room]
        parts += (FRAME.pack(BODY, channel, len(part)), part, b"\xce")
    return b"".join(parts)
