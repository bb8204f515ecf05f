"""Farewell: what a worker had counted when it ended, left in the queue for whoever keeps the history.

Heartbeats tell what a worker has done so far; the rest comes with this. A few documents are shared by all:
however many workers end while nobody looks, what they leave takes up little room.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec

from shoal.core.figures import Figures, decode
from shoal.core.lane import Mark
from shoal.queue.base import Paper, Queue

KIND = "farewell"
PLACES = 64  # documents
KEPT = 32  # farewells in each; of more the oldest are forgotten
TRIES = 20  # against others who end at the same time


class Farewell(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    started_at: int
    done: int = 0
    failed: int = 0
    figures: Figures = msgspec.field(default_factory=Figures)


class Left(msgspec.Struct, frozen=True):
    """One document of farewells."""

    paper: Paper
    farewells: tuple[Farewell, ...] = ()


def farewell_of(mark: Mark) -> Farewell:
    """From how a worker is in its last moment."""
    return Farewell(mark.id, mark.started_at, mark.done, mark.failed, decode(mark.figures))


async def leave(queue: Queue, one: Farewell) -> None:
    """Leave a farewell; it takes the place of one that the same worker has left before."""
    place = str(zlib.crc32(one.id.encode()) % PLACES)
    for _ in range(TRIES):
        paper = await queue.paper(KIND, place)
        others = [other for other in _read(paper) if other.id != one.id]
        text = msgspec.json.encode([*others, one][-KEPT:]).decode()
        if await queue.swap(KIND, place, text, paper.version if paper else 0):
            return


async def left(queue: Queue) -> list[Left]:
    """All there are."""
    return [Left(paper, _read(paper)) for paper in await queue.papers(KIND)]


async def take_away(queue: Queue, taken: Sequence[Left]) -> None:
    """Remove what is counted; a document to which somebody has added meanwhile stays as it is."""
    for one in taken:
        await queue.swap(KIND, one.paper.name, None, one.paper.version)


def _read(paper: Paper | None) -> tuple[Farewell, ...]:
    try:
        return msgspec.json.decode(paper.text, type=tuple[Farewell, ...]) if paper else ()
    except msgspec.DecodeError:
        return ()  # of another version of ours
