"""Failing: how often URLs failed for good, over runs; counted by lua/failing.lua."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from shoal.core import failing
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import micros
from shoal.queue.values import UrlFailures

PER_CALL = 1_000  # URLs that are asked for or forgotten at once
_unpack = msgspec.msgpack.Decoder(tuple[int, int, int, dict[str, int]]).decode


def _key(url: str) -> str:
    return hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()


async def failures(engine: Engine, urls: Sequence[str]) -> list[UrlFailures]:
    found: list[UrlFailures] = []
    for first in range(0, len(urls), PER_CALL):
        keys = [_key(url) for url in urls[first : first + PER_CALL]]
        found += [_failures(row) for row in await engine.read("HMGET", "failing", *keys)]
    return found


def _failures(row: bytes | None) -> UrlFailures:
    if row is None:
        return UrlFailures()
    count, last_at, _, causes = _unpack(row)
    return UrlFailures(count, causes, last_at)


async def forget(engine: Engine, urls: Sequence[str] | None = None) -> int:
    if urls is None:
        return int(await engine.run_cached("forget_failures", 1))
    keys = [_key(url) for url in urls]
    parts = [keys[first : first + PER_CALL] for first in range(0, len(keys), PER_CALL)]
    return sum([await engine.run_cached("forget_failures", 0, *part) for part in parts])


async def forget_old(engine: Engine) -> None:
    await engine.run("forget_old_failures", micros(failing.KEPT_SECONDS), failing.MAX_REMEMBERED)
