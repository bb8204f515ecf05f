"""Papers: documents that workers share, each with its versions."""

from __future__ import annotations

import asyncio

from shoal.queue.base import Paper
from shoal.queue.redis.engine import Engine


async def keep(engine: Engine, kind: str, name: str, text: str) -> Paper:
    version, made_at = await engine.run("keep_paper", kind, name, text)
    return Paper(kind, name, version, text, made_at)


async def find(engine: Engine, kind: str, name: str, version: int) -> Paper | None:
    if version < 0:
        return None
    return _paper(kind, name, await engine.run("paper", kind, name, version))


async def swap(engine: Engine, kind: str, name: str, text: str | None, expected: int) -> Paper | None:
    words = () if text is None else (text,)
    return _paper(kind, name, await engine.once("swap", kind, name, expected, *words))


async def listing(engine: Engine, kind: str) -> list[Paper]:
    names = sorted(name.decode() for name in await engine.read("SMEMBERS", f"papers:{kind}"))
    found = await asyncio.gather(*(find(engine, kind, name, 0) for name in names))
    return [paper for paper in found if paper is not None]


def _paper(kind: str, name: str, answer: tuple[int, int, bytes] | None) -> Paper | None:
    if answer is None:
        return None
    version, made_at, text = answer
    return Paper(kind, name, version, text.decode(), made_at)
