"""Codings: bombs, halves and lies. A bomb is a small piece that can be repeated without packing it again."""

from __future__ import annotations

import gzip
import struct
import sys
import zlib
from functools import cache

from hostile.behaviour import Group
from hostile.client_connection import ClientConnection, Request, answer, head, html

group = Group("codings")
BLOCK = 1 << 24
TIMES = 64  # a gigabyte in all
PAGE = html("codings", "<p>packed</p>" * 500).encode()


def _zstd() -> object:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


@cache
def deflate_bomb() -> bytes:
    """A gigabyte of zeros: after a full flush the same piece may follow again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)
    return piece * TIMES + zlib.compressobj(9, zlib.DEFLATED, -15).flush()


@cache
def gzip_bomb() -> bytes:
    check, zeros = 0, bytes(BLOCK)
    for _ in range(TIMES):
        check = zlib.crc32(zeros, check)
    return GZIP_HEAD + deflate_bomb() + struct.pack("<II", check, BLOCK * TIMES)


@cache
def zlib_bomb() -> bytes:
    sum_of_zeros = (BLOCK * TIMES % 65521) << 16 | 1
    return b"\x78\xda" + deflate_bomb() + struct.pack(">I", sum_of_zeros)


@cache
def members_bomb() -> bytes:
    return gzip.compress(bytes(BLOCK), 9) * TIMES


@cache
def brotli_bomb() -> bytes:
    import brotli

    packer, zeros = brotli.Compressor(quality=5, lgwin=18), bytes(BLOCK)
    first = packer.process(zeros) + packer.flush()
    again = packer.process(zeros) + packer.flush()
    return first + again * (TIMES - 1) + packer.finish()


@cache
def zstd_bomb() -> bytes:
    return _zstd().compress(bytes(BLOCK)) * TIMES  # type: ignore[attr-defined]


@cache
def wide_zstd() -> bytes:
    """A frame that asks for a window of 2 GB."""
    window = bytes(((31 - 10) << 3,))
    last_raw_block = struct.pack("<I", 5 << 3 | 1)[:3]
    return struct.pack("<I", 0xFD2FB528) + b"\x00" + window + last_raw_block + b"hello"


@cache
def packed(coding: str) -> bytes:
    import brotli

    if coding == "br":
        return brotli.compress(PAGE)  # type: ignore[no-any-return]
    if coding == "zstd":
        return _zstd().compress(PAGE)  # type: ignore[attr-defined,no-any-return]
    return gzip.compress(PAGE)


GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"


def _nested() -> bytes:
    body = PAGE
    for _ in range(10):
        body = gzip.compress(body)
    return body


def _named() -> bytes:
    """gzip with a file name of 10 MB in its head."""
    deflated = zlib.compressobj(9, zlib.DEFLATED, -15)
    name = GZIP_HEAD[:3] + b"\x08" + GZIP_HEAD[4:] + b"n" * 10_000_000 + b"\x00"
    end = struct.pack("<II", zlib.crc32(PAGE), len(PAGE))
    return name + deflated.compress(PAGE) + deflated.flush() + end


BODIES = {
    "bomb-gzip": ("gzip", "too_large", "a gigabyte in a megabyte of gzip", gzip_bomb),
    "bomb-deflate": ("deflate", "too_large", "the same with deflate", zlib_bomb),
    "bomb-raw-deflate": ("deflate", "too_large", "deflate without its header", deflate_bomb),
    "bomb-brotli": ("br", "too_large", "a gigabyte in 25 KB of brotli", brotli_bomb),
    "bomb-zstd": ("zstd", "too_large", "a gigabyte in zstd frames", zstd_bomb),
    "bomb-members": ("gzip", "too_large", "64 gzip members of 16 MB each", members_bomb),
    "bomb-gzip-gzip": ("gzip, gzip", "too_large", "a bomb packed twice", lambda: gzip.compress(gzip_bomb())),
    "bomb-gzip-br": ("gzip, br", "too_large", "a gzip bomb within brotli", lambda: _brotli(gzip_bomb())),
    "gzip-ten-times": (", ".join(["gzip"] * 10), "decode", "ten codings, one inside the other", _nested),
    "gzip-cut": ("gzip", "bad_response|decode", "half of a gzip body", lambda: packed("gzip")[:-40]),
    "brotli-cut": ("br", "bad_response|decode", "half of a brotli body", lambda: packed("br")[:-20]),
    "zstd-cut": ("zstd", "bad_response|decode", "half of a zstd body", lambda: packed("zstd")[:-20]),
    "gzip-in-name-only": ("gzip", "decode", "said to be gzip, and is plain", lambda: PAGE),
    "brotli-in-name-only": ("br", "decode", "said to be brotli, and is plain", lambda: PAGE),
    "zstd-in-name-only": ("zstd", "decode", "said to be zstd, and is plain", lambda: PAGE),
    "coding-nobody-knows": ("rot13", "decode", "a coding nobody knows", lambda: PAGE),
    "coding-of-1k": ("x" * 1_000, "decode", "a coding with a name of 1 KB", lambda: PAGE),
    "gzip-bad-sum": ("gzip", "decode", "a checksum that is wrong", lambda: packed("gzip")[:-8] + bytes(8)),
    "gzip-then-garbage": ("gzip", "done", "rubbish after gzip", lambda: packed("gzip") + b"\x00odd" * 9),
    "gzip-empty-members": ("gzip", "decode|done", "many empty members", lambda: gzip.compress(b"") * 10**5),
    "gzip-long-name": ("gzip", "done", "a file name of 10 MB in the gzip head", _named),
    "gzip-of-nothing": ("gzip", "done", "gzip, and no byte of it", lambda: b""),
    "zstd-wide-window": ("zstd", "decode", "zstd that asks for a window of 2 GB", wide_zstd),
    "identity": ("identity", "done", "a coding that is none", lambda: PAGE),
}  # fmt: skip


def _brotli(data: bytes) -> bytes:
    import brotli

    return brotli.compress(data, quality=5)  # type: ignore[no-any-return]


def _declare(name: str) -> None:
    coding, expect, why, _ = BODIES[name]

    @group.does(name, expect, why)
    async def pack(connection: ClientConnection, request: Request) -> None:
        await connection.send(answer(ready()[name], f"Content-Encoding: {coding}"))


@cache
def ready() -> dict[str, bytes]:
    """All bodies, made once and before anybody asks."""
    return {name: make() for name, (_, _, _, make) in BODIES.items()}


for _name in BODIES:
    _declare(_name)


@group.does("bomb-endless", "too_large", "a gzip stream that never ends")
async def bomb_endless(connection: ClientConnection, request: Request) -> None:
    await connection.send(head("Content-Encoding: gzip", "Connection: close"), GZIP_HEAD)
    await connection.send_endlessly(deflate_bomb()[:-2][: len(deflate_bomb()) // TIMES])
