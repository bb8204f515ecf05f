"""Documents that workers share, each with its versions."""

from __future__ import annotations

import asyncio

from shoal.queue.base import Document
from shoal.queue.redis.engine import Engine


async def save(engine: Engine, kind: str, name: str, text: str) -> Document:
    version, made_at = await engine.run("save_document", kind, name, text)
    return Document(kind, name, version, text, made_at)


async def find(engine: Engine, kind: str, name: str, version: int = 0) -> Document | None:
    if version < 0:
        return None
    return _document(kind, name, await engine.run("document", kind, name, version))


async def compare_and_swap(engine: Engine, kind: str, name: str, text: str | None, expected: int) -> Document | None:
    words = () if text is None else (text,)
    return _document(kind, name, await engine.run_cached("compare_and_swap", kind, name, expected, *words))


async def listing(engine: Engine, kind: str) -> list[Document]:
    names = sorted(name.decode() for name in await engine.read("SMEMBERS", f"documents:{kind}"))
    found = await asyncio.gather(*(find(engine, kind, name, 0) for name in names))
    return [document for document in found if document is not None]


def _document(kind: str, name: str, answer: tuple[int, int, bytes] | None) -> Document | None:
    if answer is None:
        return None
    version, made_at, text = answer
    return Document(kind, name, version, text.decode(), made_at)
