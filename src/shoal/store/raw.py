"""RawShelf: every answer as it came, kept to be read again without asking the site.

Answers are put on the shelf in memory and are on disk after the next `sync`, many in one commit. A body that
came before, in whatever run, is not written again. Any number of processes may use a shelf at once.
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
from shoal.store import raw_rows as rows
from shoal.store.raw_block import Block, Damaged, Packer, Recent, unpack
from shoal.store.raw_file import RawFile
from shoal.store.raw_removal import ids_of, removed, repacked
from shoal.store.raw_rows import KeptRun

log = logging.getLogger("shoal.store")

TOGETHER = 256_000  # bytes of bodies in one block
BIG = 256_000  # bytes of one body that is packed by itself, beside the event loop
FULL = 8_000_000  # bytes waiting for a sync

_telling = re.compile(
    r"cookie|^(?:proxy-)?authorization|authentication-info|token|secret|session|api-?key"
).search


@lru_cache(4096)
def _is_secret(name: str) -> bool:
    """Whether a header says who we are: that does not belong on a shelf that others may read."""
    return _telling(name) is not None


class Kept(msgspec.Struct, frozen=True):
    """An answer from the shelf."""

    run: str
    digest: bytes
    kept_at: int  # UTC microseconds
    response: Response


class Size(msgspec.Struct, frozen=True):
    answers: int
    bodies: int  # different ones
    bytes: int  # of all answers, as they came
    different: int  # of the different bodies
    disk: int


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of an answer besides its body; new fields may only be added at the end."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    seconds: float = 0.0
    address: str = ""
    redirects: tuple[str, ...] = ()


class _Waiting(msgspec.Struct, gc=False):
    run: str
    digest: bytes
    kept_at: int
    head: bytes
    body: bytes
    hash: bytes


_head_of = msgspec.msgpack.Encoder().encode
_read_head = msgspec.msgpack.Decoder(Head).decode

_ANSWER = """
    SELECT run.name, a.digest, a.kept_at, a.block, a.start, a.size, b.hash, b.block, b.start, b.size
    FROM answer a JOIN run ON run.id = a.run JOIN body b ON b.id = a.body
"""
_GET = _ANSWER + "WHERE a.digest = ? AND run.name = ?"
_LATEST = _ANSWER + "WHERE a.digest = ? ORDER BY a.kept_at DESC LIMIT 1"
_NUMBER = _ANSWER + "WHERE a.id = ?"


def body_hash(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:16]


class RawShelf:
    def __init__(
        self, folder: Path, *, durable: bool = True, wall: Callable[[], int] = lambda: time.time_ns() // 1000
    ) -> None:
        self._file = RawFile(folder, durable=durable)
        self._wall = wall
        self._packer = Packer()
        self._recent = Recent()
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._turn = asyncio.Lock()

    @property
    def full(self) -> bool:
        """So much waits in memory that a sync should come before the next put."""
        return self._bytes > FULL

    def put(self, run: str, digest: bytes, response: Response) -> None:
        """Keep an answer under a digest; it takes the place of an earlier one of the same run."""
        headers = tuple([pair for pair in response.headers if not _is_secret(pair[0])])
        head = Head(
            response.url, response.status, headers, response.seconds, response.address, response.redirects
        )
        body = response.body
        hash = body_hash(body) if len(body) < BIG else b""
        self._waiting.append(_Waiting(run, digest, self._wall(), _head_of(head), body, hash))
        self._bytes += len(body)

    async def sync(self) -> None:
        """Return when everything put so far is safe on disk."""
        if not self._waiting:
            return
        async with self._turn:
            batch = self._waiting[:]  # they leave only when written: a sync that failed can be repeated
            if not batch:
                return
            bundles = await self._packed(batch)
            await self._file.write(self._store, batch, bundles)
            del self._waiting[: len(batch)]
            self._bytes -= sum(len(item.body) for item in batch)

    async def _packed(self, batch: list[_Waiting]) -> list[rows.Bundle]:
        """Blocks of the bodies that nobody kept before, made before the file is locked."""
        for item in batch:
            if not item.hash:
                item.hash = await asyncio.to_thread(body_hash, item.body)
        known = self._file.read(rows.known, {item.hash for item in batch})
        fresh = {item.hash: item.body for item in batch if item.hash not in known}
        bundles: list[rows.Bundle] = []
        small: list[tuple[bytes, bytes]] = []
        for hash, body in fresh.items():
            if len(body) >= BIG:
                block = await asyncio.to_thread(Packer().pack, body)
                bundles.append((block, [(hash, 0, len(body))]))
            else:
                small.append((hash, body))
        return bundles + self._bundled(small)

    def _bundled(self, bodies: Sequence[tuple[bytes, bytes]]) -> list[rows.Bundle]:
        bundles: list[rows.Bundle] = []
        parts: list[bytes] = []
        places: list[tuple[bytes, int, int]] = []
        start = 0
        for hash, body in bodies:
            parts.append(body)
            places.append((hash, start, len(body)))
            start += len(body)
            if start >= TOGETHER:
                bundles.append((self._packer.pack(b"".join(parts)), places))
                parts, places, start = [], [], 0
        if places:
            bundles.append((self._packer.pack(b"".join(parts)), places))
        return bundles

    def _store(self, db: sqlite3.Connection, batch: list[_Waiting], bundles: list[rows.Bundle]) -> None:
        uses = Counter(item.hash for item in batch)
        ids: dict[bytes, int] = {}
        for bundle in bundles:
            ids |= rows.add_bodies(db, bundle, uses)
        gone: dict[bytes, bytes] = {}
        for item in batch:
            if item.hash not in ids and item.hash not in gone:
                found = rows.use_body(db, item.hash, uses[item.hash])
                if found is None:  # another process removed its run while we were packing
                    gone[item.hash] = item.body
                else:
                    ids[item.hash] = found
        for bundle in self._bundled(list(gone.items())):
            ids |= rows.add_bodies(db, bundle, uses)
        for run in dict.fromkeys(item.run for item in batch):
            self._add_answers(db, run, [item for item in batch if item.run == run], ids)

    def _add_answers(
        self, db: sqlite3.Connection, run: str, items: list[_Waiting], ids: dict[bytes, int]
    ) -> None:
        number = rows.run_number(db, run)
        block = rows.add_block(db, self._packer.pack(b"".join(item.head for item in items)), bodies=0)
        last = db.execute("SELECT max(id) FROM answer WHERE id >= ? AND id < ?", ids_of(number)).fetchone()[0]
        next_id, start = (last or ids_of(number)[0]) + 1, 0
        answers: list[rows.Answer] = []
        for place, item in enumerate(items):
            size = len(item.head)
            body = ids[item.hash]
            answers.append((next_id + place, item.digest, number, item.kept_at, body, block, start, size))
            start += size
        rows.add_answers(db, answers)

    def get(self, run: str, digest: bytes) -> Response | None:
        """The answer a run kept under a digest; None also where it is damaged."""
        kept = self._load(_GET, digest, run)
        return kept.response if kept else None

    def has(self, run: str, digest: bytes) -> bool:
        """Whether a run kept an answer, without reading it."""
        return bool(self._file.read(rows.has, run, digest))

    def latest(self, digest: bytes) -> Kept | None:
        """The newest answer under a digest, of whatever run."""
        return self._load(_LATEST, digest)

    def pages(self, run: str) -> Iterator[Kept]:
        """What a run kept, in the order in which it came; damaged ones are left out."""
        after = 0
        while numbers := self._file.read(rows.numbers, run, after):
            for number in numbers:
                kept = self._load(_NUMBER, number)
                if kept is not None:
                    yield kept
            after = numbers[-1]

    def runs(self) -> list[KeptRun]:
        """The runs with something on the shelf, oldest first."""
        return self._file.read(rows.runs)

    def size(self) -> Size:
        self._file.fold()  # workers end without tidying up: their log would be counted too
        return Size(*self._file.read(rows.sums), self._file.disk())

    async def remove(self, run: str) -> int:
        """Take a run's answers off the shelf and give their space back; says how many they were."""
        count, ended = await self._file.write(removed, run, rows.SLICE)
        while not ended:
            await asyncio.sleep(0)  # between two steps others may write
            taken, ended = await self._file.write(removed, run, rows.SLICE)
            count += taken
        await self._give_space_back()
        return count

    async def _give_space_back(self) -> None:
        last: int | None = 0
        while last is not None:
            last = await self._file.write(repacked, self._packer, last)
            await asyncio.sleep(0)
        more = True
        while more:
            more = await self._file.write(rows.vacuum)
            await asyncio.sleep(0)
        self._file.fold()

    def close(self) -> None:
        """What was put and not synced is dropped: its task was not settled either."""
        self._file.close()

    def _load(self, query: str, *values: object) -> Kept | None:
        try:
            return self._file.read(self._read, query, *values)
        except (Damaged, QueueRefused, msgspec.MsgspecError) as error:
            log.warning("kept_page_damaged", extra={"file": str(self._file.path), "why": repr(error)})
            return None

    def _read(self, db: sqlite3.Connection, query: str, *values: object) -> Kept | None:
        row = db.execute(query, values).fetchone()
        if row is None:
            return None
        run, digest, kept_at, block, start, size, hash, body_block, body_start, body_size = row
        head = _read_head(self._unpacked(db, block)[start : start + size])
        body = b""
        if body_size:  # an empty one takes no place, and its block may be gone
            body = self._unpacked(db, body_block)[body_start : body_start + body_size]
        if body_hash(body) != hash:
            raise Damaged(f"the body of {head.url}")
        response = Response(
            head.url, head.status, head.headers, body, head.seconds, head.address, head.redirects
        )
        return Kept(run, digest, kept_at, response)

    def _unpacked(self, db: sqlite3.Connection, number: int) -> bytes:
        plain = self._recent.get(number)
        if plain is None:
            row = db.execute("SELECT codec, size, crc, data FROM block WHERE id = ?", (number,)).fetchone()
            if row is None:
                raise Damaged(f"block {number} is missing")
            plain = unpack(Block(*row))
            self._recent.put(number, plain)
        return plain
