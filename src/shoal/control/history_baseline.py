"""The baseline of the history as a short text: with a thousand workers it is written every few seconds."""

from __future__ import annotations

import base64
import binascii
import zlib

import msgspec

from shoal.control.history_sample import Baseline

MAX_BYTES = 32 * 1024 * 1024  # unpacked; what is longer nobody of us has written


def pack_baseline(baseline: Baseline) -> str:
    return base64.b85encode(zlib.compress(msgspec.msgpack.encode(baseline), 1)).decode()


def unpack_baseline(text: str) -> Baseline:
    """What was packed; an empty one where that is not understood, so that measuring begins anew."""
    if not text:
        return Baseline()
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(base64.b85decode(text), MAX_BYTES)
        return msgspec.msgpack.decode(data, type=Baseline)
    except (ValueError, zlib.error, binascii.Error, msgspec.DecodeError):
        return Baseline()
