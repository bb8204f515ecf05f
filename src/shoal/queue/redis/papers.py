"""Papers: documents that workers share, each with its versions."""

from __future__ import annotations

from struct import Struct

from shoal.queue.base import Paper
from shoal.queue.redis.engine import Engine

_MADE = Struct(">d")


async def keep(engine: Engine, kind: str, name: str, text: str) -> Paper:
    version, made_at = await engine.run("keep_paper", kind, name, text)
    return Paper(kind, name, version, text, made_at)


async def find(engine: Engine, kind: str, name: str, version: int) -> Paper | None:
    key = f"paper:{len(kind.encode())}:{kind}{name}"
    if version < 0:
        return None
    kept = await engine.read("LINDEX", key, version - 1)  # -1 is the newest
    if kept is None:
        return None
    (made_at,) = _MADE.unpack_from(kept)
    number = version or await engine.read("LLEN", key)
    return Paper(kind, name, number, kept[_MADE.size :].decode(), int(made_at))


async def listing(engine: Engine, kind: str) -> list[Paper]:
    names = sorted(name.decode() for name in await engine.read("SMEMBERS", f"papers:{kind}"))
    found = [await find(engine, kind, name, 0) for name in names]
    return [paper for paper in found if paper is not None]
