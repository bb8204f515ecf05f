"""Backup of a namespace: its keys as the server dumps them, read while writes are held up for a moment.

The pause is short, is renewed while it lasts and ends by itself if we die. Restoring asks the server to take
the dumps, so nobody needs its files, and other namespaces on it are left alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import hiredis
import msgspec

from shoal.errors import ActionRequired, QueueRefused, RunBusy
from shoal.queue.backup import MAX_PAUSE
from shoal.queue.redis import server
from shoal.queue.redis.connection import RedisConnection
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.failure import translate_error, unreachable
from shoal.queue.redis.server_url import RedisUrl

SCAN_COUNT = 500
PAUSE, RENEW_EVERY = 4.0, 1.0  # seconds
MAX_FRAME = 600_000_000  # bytes; a server takes no value above 512 MB
BATCH_KEYS, BATCH_BYTES = 500, 8_000_000
_LENGTH = 4


class DumpedKey(msgspec.Struct, frozen=True, array_like=True):
    name: bytes  # without the namespace
    expires_at: int  # milliseconds of the server's clock; 0 is never
    data: bytes


class RedisBackup:
    def __init__(self, url: str) -> None:
        self._url = RedisUrl.parse(url)
        self._engine = Engine(self._url)
        self._prefix = self._engine.prefix.encode()
        self.namespace = self._url.namespace
        self.edition = server.LAYOUT

    async def save(self, file: Path, *, max_pause: float = MAX_PAUSE) -> None:
        async with self._connected() as db, _paused(db, self._url, max_pause) as pause:
            seconds, micros = await self._ask(db, "TIME")
            now = int(seconds) * 1000 + int(micros) // 1000
            with file.open("xb") as out:
                async for names in self._keys(db):
                    await pause.renew()
                    await self._dump(db, names, now, out)
                await pause.renew()

    async def is_empty(self) -> bool:
        async with self._connected() as db:
            async for names in self._keys(db):
                if names:
                    return False
            return True

    async def remove(self) -> None:
        async with self._connected() as db:
            async for names in self._keys(db):
                if names:
                    await self._ask(db, "UNLINK", *names)

    async def load(self, file: Path) -> None:
        async with self._connected() as db:
            last: list[DumpedKey] = []
            for batch in _batches(file):
                # Who opens the queue asks for `meta` first: it comes when all else is there.
                last += [key for key in batch if key.name == b"meta"]
                await self._restore(db, [key for key in batch if key.name != b"meta"])
            await self._restore(db, last)

    async def _dump(self, db: RedisConnection, names: list[bytes], now: int, out: BinaryIO) -> None:
        answers = [(db.send("PTTL", name), db.send("DUMP", name)) for name in names]
        for name, (lives, dump) in zip(names, answers, strict=True):
            rest, data = self._checked(await lives), self._checked(await dump)
            if data is not None:
                frame = msgspec.msgpack.encode(
                    DumpedKey(name.removeprefix(self._prefix), now + rest if rest > 0 else 0, data)
                )
                out.write(len(frame).to_bytes(_LENGTH, "big") + frame)

    async def _restore(self, db: RedisConnection, keys: list[DumpedKey]) -> None:
        sent = [db.send("RESTORE", self._prefix + key.name, key.expires_at, key.data, "ABSTTL") for key in keys]
        for key, answer in zip(keys, sent, strict=True):
            said = await answer
            if isinstance(said, hiredis.ReplyError):
                raise self._restore_error(key, said)

    def _restore_error(self, key: DumpedKey, error: hiredis.ReplyError) -> ActionRequired:
        if str(error).startswith("BUSYKEY"):
            return RunBusy(
                f"somebody else writes to namespace {self.namespace} of {self._url}",
                hint="stop workers and servers, then restore again with --replace",
            )
        if "DUMP payload" in str(error):
            return QueueRefused(
                f"{self._url} does not understand the backup ({error})",
                hint="restore to a server that is not older than the one it was taken from",
            )
        return translate_error(self._url, error)

    async def _keys(self, db: RedisConnection) -> AsyncIterator[list[bytes]]:
        cursor, pattern = b"0", _escaped(self._prefix) + b"*"
        while True:
            cursor, names = await self._ask(db, "SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT)
            yield list(dict.fromkeys(names))
            if cursor == b"0":
                return

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[RedisConnection]:
        """A connection of its own: one that comes back by itself would first have to write."""
        try:
            db = await self._engine.connect()
        except (OSError, TimeoutError) as error:
            raise unreachable(self._url, error) from error
        try:
            yield db
        except (OSError, TimeoutError) as error:
            raise unreachable(self._url, error) from error
        finally:
            db.close()

    async def _ask(self, db: RedisConnection, *command: Any) -> Any:
        return self._checked(await db.send(*command))

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, hiredis.ReplyError):
            raise translate_error(self._url, answer) from answer
        return answer


class _Pause:
    """Writes of all clients are held up from the first renewal on."""

    def __init__(self, db: RedisConnection, url: RedisUrl, longest: float) -> None:
        self._db = db
        self._url = url
        self._longest = longest
        self._began = time.monotonic()
        self._renewed = 0.0

    async def renew(self) -> None:
        """Hold up writes for longer, if need be; raises where they may have gone on, or waited long enough."""
        now = time.monotonic()
        if self._renewed and now - self._renewed >= PAUSE:
            raise RunBusy(
                f"this machine or {self._url} was too busy to read one state of the queue",
                hint="run it again; nothing was changed",
            )
        if self._renewed and now - self._began > self._longest:
            raise RunBusy(
                f"reading the queue takes longer than the {self._longest:g} s for which writes may wait",
                hint="--max-pause 30s: workers wait that long, and some pages are fetched again;"
                " or copy the files of Redis (docs: backup)",
            )
        if now - self._renewed < RENEW_EVERY:
            return
        answer = await self._db.send("CLIENT", "PAUSE", int(PAUSE * 1000), "WRITE")
        if isinstance(answer, hiredis.ReplyError):
            raise QueueRefused(
                f"{self._url} does not let us hold up writes ({answer})",
                hint="let this user use CLIENT PAUSE and CLIENT UNPAUSE, or copy the files of Redis (docs: backup)",
            )
        self._renewed = now


@contextlib.asynccontextmanager
async def _paused(db: RedisConnection, url: RedisUrl, longest: float) -> AsyncIterator[_Pause]:
    pause = _Pause(db, url, longest)
    try:
        await pause.renew()
        yield pause
    finally:
        with contextlib.suppress(OSError):
            await db.send("CLIENT", "UNPAUSE")


def _batches(file: Path) -> Iterator[list[DumpedKey]]:
    batch: list[DumpedKey] = []
    size = 0
    with file.open("rb") as source:
        while head := source.read(_LENGTH):
            length = int.from_bytes(head, "big")
            frame = source.read(length) if len(head) == _LENGTH and length <= MAX_FRAME else b""
            try:
                batch.append(msgspec.msgpack.decode(frame, type=DumpedKey))
            except msgspec.DecodeError as error:
                raise QueueRefused(f"{file} is damaged", hint="use another backup") from error
            size += length
            if len(batch) >= BATCH_KEYS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
    yield batch


def _escaped(prefix: bytes) -> bytes:
    """A pattern that matches just this text."""
    return b"".join(b"\\" + bytes((byte,)) if byte in b"*?[]^\\" else bytes((byte,)) for byte in prefix)
