"""RawPageStore: every response as it came, stored to be read again without asking the site.

Responses are put into memory and are on disk after the next `sync`, many in one commit. A body that
came before, in whatever run, is not written again. Any number of processes may use it at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from shoal.core.page import Response
from shoal.errors import QueueRefused
from shoal.store.raw import queries as queries
from shoal.store.raw.block import Block, BlockCache, BlockPacker, DamagedBlock, unpack
from shoal.store.raw.file import LOCK_TIMEOUT, RawFile
from shoal.store.raw.queries import RawRun
from shoal.store.raw.removal import page_id_range, remove_oldest, remove_pages, repack

log = logging.getLogger("shoal.store")

BLOCK_SIZE = 256_000  # bytes of bodies in one block
LARGE_BODY = 256_000  # bytes of one body that is packed by itself, beside the event loop
SHRINK_STEP = 20  # pages removed before it is asked again whether that is enough: some are large
MAX_PENDING_BYTES = 8_000_000  # bytes waiting for a sync

_names_secret = re.compile(r"cookie|^(?:proxy-)?authorization|authentication-info|token|secret|session|api-?key").search


@lru_cache(4096)
def _is_secret_header(name: str) -> bool:
    """Whether a header says who we are: that does not belong into a file that others may read."""
    return _names_secret(name) is not None


class RawPage(msgspec.Struct, frozen=True):
    """A response from the store."""

    run: str
    digest: bytes
    kept_at: int  # UTC microseconds
    response: Response


class StoreSize(msgspec.Struct, frozen=True):
    answers: int
    bodies: int  # different ones
    bytes: int  # of all answers, as they came
    different: int  # of the different bodies
    disk: int


class ResponseHead(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of a response besides its body; new fields may only be added at the end."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    seconds: float = 0.0
    address: str = ""
    redirects: tuple[str, ...] = ()


class _PendingPage(msgspec.Struct, gc=False):
    run: str
    digest: bytes
    kept_at: int
    head: bytes
    body: bytes
    hash: bytes


_head_of = msgspec.msgpack.Encoder().encode
_read_head = msgspec.msgpack.Decoder(ResponseHead).decode

_ANSWER = """
    SELECT run.name, a.digest, a.kept_at, a.block, a.start, a.size, b.hash, b.block, b.start, b.size
    FROM answer a JOIN run ON run.id = a.run JOIN body b ON b.id = a.body
"""
_GET = _ANSWER + "WHERE a.digest = ? AND run.name = ?"
_LATEST = _ANSWER + "WHERE a.digest = ? ORDER BY a.kept_at DESC LIMIT 1"
_NUMBER = _ANSWER + "WHERE a.id = ?"


def body_hash(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:16]


class RawPageStore:
    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = True,
        lock_timeout: float = LOCK_TIMEOUT,
        wall: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._file = RawFile(folder, durable=durable, lock_timeout=lock_timeout)
        self._wall = wall
        self._packer = BlockPacker()
        self._block_cache = BlockCache()
        self._pending: list[_PendingPage] = []
        self._pending_bytes = 0
        self._lock = asyncio.Lock()

    @property
    def is_full(self) -> bool:
        """So much waits in memory that a sync should come before the next put."""
        return self._pending_bytes > MAX_PENDING_BYTES

    def put(self, run: str, digest: bytes, response: Response) -> None:
        """Store a response under a digest; it takes the place of an earlier one of the same run."""
        headers = tuple([pair for pair in response.headers if not _is_secret_header(pair[0])])
        head = ResponseHead(
            response.url, response.status, headers, response.seconds, response.address, response.redirects
        )
        body = response.body
        hash = body_hash(body) if len(body) < LARGE_BODY else b""
        self._pending.append(_PendingPage(run, digest, self._wall(), _head_of(head), body, hash))
        self._pending_bytes += len(body)

    async def sync(self) -> None:
        """Return when everything put so far is safe on disk."""
        if not self._pending:
            return
        async with self._lock:
            batch = self._pending[:]  # they leave only when written: a sync that failed can be repeated
            if not batch:
                return
            blocks = await self._pack_new_bodies(batch)
            await self._file.write(self._store, batch, blocks)
            del self._pending[: len(batch)]
            self._pending_bytes -= sum(len(item.body) for item in batch)

    async def _pack_new_bodies(self, batch: list[_PendingPage]) -> list[queries.PackedBodies]:
        """Blocks of the bodies that nobody kept before, made before the file is locked."""
        for item in batch:
            if not item.hash:
                item.hash = await asyncio.to_thread(body_hash, item.body)
        known = self._file.read(queries.known_hashes, {item.hash for item in batch})
        fresh = {item.hash: item.body for item in batch if item.hash not in known}
        blocks: list[queries.PackedBodies] = []
        small: list[tuple[bytes, bytes]] = []
        for hash, body in fresh.items():
            if len(body) >= LARGE_BODY:
                block = await asyncio.to_thread(BlockPacker().pack, body)
                blocks.append((block, [(hash, 0, len(body))]))
            else:
                small.append((hash, body))
        return blocks + self._pack_bodies(small)

    def _pack_bodies(self, bodies: Sequence[tuple[bytes, bytes]]) -> list[queries.PackedBodies]:
        blocks: list[queries.PackedBodies] = []
        parts: list[bytes] = []
        places: list[tuple[bytes, int, int]] = []
        start = 0
        for hash, body in bodies:
            parts.append(body)
            places.append((hash, start, len(body)))
            start += len(body)
            if start >= BLOCK_SIZE:
                blocks.append((self._packer.pack(b"".join(parts)), places))
                parts, places, start = [], [], 0
        if places:
            blocks.append((self._packer.pack(b"".join(parts)), places))
        return blocks

    def _store(self, db: sqlite3.Connection, batch: list[_PendingPage], blocks: list[queries.PackedBodies]) -> None:
        uses = Counter(item.hash for item in batch)
        ids: dict[bytes, int] = {}
        for packed in blocks:
            ids |= queries.add_bodies(db, packed, uses)
        gone: dict[bytes, bytes] = {}
        for item in batch:
            if item.hash not in ids and item.hash not in gone:
                found = queries.use_body(db, item.hash, uses[item.hash])
                if found is None:  # another process removed its run while we were packing
                    gone[item.hash] = item.body
                else:
                    ids[item.hash] = found
        for packed in self._pack_bodies(list(gone.items())):
            ids |= queries.add_bodies(db, packed, uses)
        for run in dict.fromkeys(item.run for item in batch):
            self._add_pages(db, run, [item for item in batch if item.run == run], ids)

    def _add_pages(self, db: sqlite3.Connection, run: str, items: list[_PendingPage], ids: dict[bytes, int]) -> None:
        number = queries.run_number(db, run)
        block = queries.add_block(db, self._packer.pack(b"".join(item.head for item in items)), bodies=0)
        last = db.execute("SELECT max(id) FROM answer WHERE id >= ? AND id < ?", page_id_range(number)).fetchone()[0]
        next_id, start = (last or page_id_range(number)[0]) + 1, 0
        answers: list[queries.PageRow] = []
        for place, item in enumerate(items):
            size = len(item.head)
            body = ids[item.hash]
            answers.append((next_id + place, item.digest, number, item.kept_at, body, block, start, size))
            start += size
        queries.add_pages(db, answers)

    def get(self, run: str, digest: bytes) -> Response | None:
        """The response that a run stored under a digest; None also where it is damaged."""
        page = self._load(_GET, digest, run)
        return page.response if page else None

    def has(self, run: str, digest: bytes) -> bool:
        """Whether a run stored a response, without reading it."""
        return bool(self._file.read(queries.has_page, run, digest))

    def latest(self, digest: bytes) -> RawPage | None:
        """The newest response under a digest, of any run."""
        return self._load(_LATEST, digest)

    def pages(self, run: str) -> Iterator[RawPage]:
        """What a run stored, in the order in which it came; damaged ones are left out."""
        after = 0
        while numbers := self._file.read(queries.page_ids, run, after):
            for number in numbers:
                page = self._load(_NUMBER, number)
                if page is not None:
                    yield page
            after = numbers[-1]

    def has_run(self, run: str) -> bool:
        """Whether pages of a run are stored."""
        return bool(self._file.read(queries.page_ids, run, 0))

    def runs(self) -> list[RawRun]:
        """The runs with stored pages, oldest first."""
        return self._file.read(queries.runs)

    def size(self) -> StoreSize:
        self._file.checkpoint_wal()  # workers end without tidying up: their log would be counted too
        return StoreSize(*self._file.read(queries.totals), self._file.disk_bytes())

    def used_bytes(self) -> int:
        """Bytes that the pages take on disk, without the space that is free to be used again."""
        return self._file.used_bytes()

    async def shrink(self, most: int) -> int:
        """Remove the oldest pages until the rest takes at most so many bytes; says how many they were."""
        count = 0
        while self._file.used_bytes() > most:
            taken = await self._file.write(remove_oldest, SHRINK_STEP)
            if not taken:
                break
            count += taken
            await self._repack()
        if count and self._file.disk_bytes() > 2 * most:  # the room has become less: give the disk its space back
            await self._reclaim_space()
        return count

    async def remove(self, run: str) -> int:
        """Remove a run's pages and give their space back; says how many they were."""
        count, ended = await self._file.write(remove_pages, run, queries.BATCH_SIZE)
        while not ended:
            await asyncio.sleep(0)  # between two steps others may write
            taken, ended = await self._file.write(remove_pages, run, queries.BATCH_SIZE)
            count += taken
        await self._reclaim_space()
        return count

    async def _repack(self) -> None:
        last: int | None = 0
        while last is not None:
            last = await self._file.write(repack, self._packer, last)
            await asyncio.sleep(0)

    async def _reclaim_space(self) -> None:
        await self._repack()
        more = True
        while more:
            more = await self._file.write(queries.vacuum)
            await asyncio.sleep(0)
        self._file.checkpoint_wal()

    def close(self) -> None:
        """What was put and not synced is dropped: its task was not settled either."""
        self._file.close()

    def _load(self, query: str, *values: object) -> RawPage | None:
        try:
            return self._file.read(self._read, query, *values)
        except (DamagedBlock, QueueRefused, msgspec.MsgspecError) as error:
            log.warning("kept_page_damaged", extra={"file": str(self._file.path), "why": repr(error)})
            return None

    def _read(self, db: sqlite3.Connection, query: str, *values: object) -> RawPage | None:
        row = db.execute(query, values).fetchone()
        if row is None:
            return None
        run, digest, kept_at, block, start, size, hash, body_block, body_start, body_size = row
        head = _read_head(self._unpack_block(db, block)[start : start + size])
        body = b""
        if body_size:  # an empty one takes no place, and its block may be gone
            body = self._unpack_block(db, body_block)[body_start : body_start + body_size]
        if body_hash(body) != hash:
            raise DamagedBlock(f"the body of {head.url}")
        response = Response(head.url, head.status, head.headers, body, head.seconds, head.address, head.redirects)
        return RawPage(run, digest, kept_at, response)

    def _unpack_block(self, db: sqlite3.Connection, number: int) -> bytes:
        plain = self._block_cache.get(number)
        if plain is None:
            row = db.execute("SELECT codec, size, crc, data FROM block WHERE id = ?", (number,)).fetchone()
            if row is None:
                raise DamagedBlock(f"block {number} is missing")
            plain = unpack(Block(*row))
            self._block_cache.put(number, plain)
        return plain
