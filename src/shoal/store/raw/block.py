"""Block: many small things compressed as one, because the pages of a site are much alike.

Twelve pages of a shop take a third of the space, and a third of the time, of twelve pages each by itself.
"""

from __future__ import annotations

import sys
import zlib
from collections import OrderedDict

import msgspec

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEVEL = 3
MIN_COMPRESSED_SIZE = 200  # bytes; less is not worth compressing
MAX_RATIO = 0.95  # pictures and archives are compressed already: what hardly shrinks is kept as it is
UNCOMPRESSED, ZSTD = 0, 1


class Block(msgspec.Struct, frozen=True, gc=False):
    codec: int
    size: int
    crc: int
    data: bytes


class DamagedBlock(Exception):
    """A block that cannot be what was written."""


class BlockPacker:
    """Compresses; to be used by one thread at a time."""

    def __init__(self) -> None:
        self._compressor = zstd.ZstdCompressor(level=LEVEL)

    def pack(self, plain: bytes) -> Block:
        codec, data = UNCOMPRESSED, plain
        if len(plain) >= MIN_COMPRESSED_SIZE:
            # Knowing the length, zstd need not prepare for megabytes.
            self._compressor.set_pledged_input_size(len(plain))
            packed = self._compressor.compress(plain, self._compressor.FLUSH_FRAME)
            if len(packed) < len(plain) * MAX_RATIO:
                codec, data = ZSTD, packed
        return Block(codec, len(plain), zlib.crc32(data), data)


def unpack(block: Block) -> bytes:
    """What was packed; raises Damaged, and never unpacks more than the block says it holds."""
    if zlib.crc32(block.data) != block.crc or block.codec not in (UNCOMPRESSED, ZSTD):
        raise DamagedBlock
    plain = block.data
    if block.codec == ZSTD:
        try:
            plain = zstd.ZstdDecompressor().decompress(block.data, max_length=block.size + 1)
        except zstd.ZstdError as error:
            raise DamagedBlock from error
    if len(plain) != block.size:
        raise DamagedBlock
    return plain


class BlockCache:
    """Blocks unpacked lately: who reads a run in order, or crawls a site again, needs each many times."""

    def __init__(self, max_bytes: int = 4_000_000) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    def get(self, number: int) -> bytes | None:
        found = self._blocks.get(number)
        if found is not None:
            self._blocks.move_to_end(number)
        return found

    def put(self, number: int, plain: bytes) -> None:
        if len(plain) > self._max_bytes // 4 or number in self._blocks:
            return
        self._blocks[number] = plain
        self._bytes += len(plain)
        while self._bytes > self._max_bytes:
            self._bytes -= len(self._blocks.popitem(last=False)[1])
