"""A response as it lies in the cache: a version, then everything of it, compressed.

Whoever can write to the queue can write there: what comes back is read like anything from outside.
"""

from __future__ import annotations

import sys

import msgspec

from shoal.core.page import Response

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

VERSION = b"\x01"
LEVEL = 3
MAX_SIZE = 256_000_000  # bytes that an entry may unpack to
HEAD_SIZE = 2_000_000  # of these, what is not its body


class _Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    address: str


_decode = msgspec.msgpack.Decoder(_Stored).decode


def pack_response(response: Response) -> bytes:
    stored = _Stored(response.url, response.status, response.headers, response.body, response.address)
    return VERSION + zstd.compress(msgspec.msgpack.encode(stored), level=LEVEL)


def unpack_response(data: bytes, url: str, max_body: int = MAX_SIZE) -> Response | None:
    """The response to a request for this URL; None for what is garbled, too large, of another version or URL."""
    if data[:1] != VERSION:
        return None
    unpacker = zstd.ZstdDecompressor()
    try:
        plain = unpacker.decompress(data[1:], max_length=min(max_body + HEAD_SIZE, MAX_SIZE))
        if not unpacker.eof or unpacker.unused_data:
            return None
        stored = _decode(plain)
    except (zstd.ZstdError, msgspec.DecodeError, UnicodeDecodeError, MemoryError):
        return None
    if stored.url != url or not 100 <= stored.status <= 599 or len(stored.body) > max_body:
        return None
    return Response(stored.url, stored.status, stored.headers, stored.body, 0.0, stored.address)
