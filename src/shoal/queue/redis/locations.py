"""Locations: where each task of a run is, five bytes per task; see lua/items.lua."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from itertools import compress
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from shoal.queue.redis.engine import Engine

LOCATIONS_PER_KEY = 16_384  # tasks per string
AT_ONCE = 8  # strings read together, once the first ones held nothing
WAITING, STORED, ENDED, DEAD, CANCELLED_ROW, DISCARDED = 1, 2, 3, 4, 6, 7
_WIDTH = 5
_NUMBER = Struct(">I")
_pack = _NUMBER.pack
_LANE = Struct(">I")


class LocationQuery(NamedTuple):
    """Tasks of these kinds, and of these numbers; of those that wait, only in this lane."""

    tags: Collection[int]
    also: Collection[int] = ()
    lane: int | None = None


async def find(
    engine: Engine, run: int, query: LocationQuery, first: int, last: int, most: int, then_many: bool = False
) -> AsyncIterator[list[bytes]]:
    """Number, tag and value of what is sought, in order of the numbers, `most` at a time."""
    found: list[bytes] = []
    step = 1
    while first <= last:
        chunks = range(
            first // LOCATIONS_PER_KEY, min(last // LOCATIONS_PER_KEY, first // LOCATIONS_PER_KEY + step - 1) + 1
        )
        ranges = [
            (max(first, chunk * LOCATIONS_PER_KEY), min(last, (chunk + 1) * LOCATIONS_PER_KEY - 1)) for chunk in chunks
        ]
        texts = await asyncio.gather(*(_read(engine, run, *each) for each in ranges))
        for (begin, _), text in zip(ranges, texts, strict=True):
            for location in _matching(text, begin, query):
                found.append(location)
                if len(found) == most:
                    yield found
                    found, most = [], 2 * LOCATIONS_PER_KEY if then_many else most
        first, step = (chunks[-1] + 1) * LOCATIONS_PER_KEY, min(AT_ONCE, step * 2)
    if found:
        yield found


async def _read(engine: Engine, run: int, first: int, last: int) -> bytes:
    begin, end = first % LOCATIONS_PER_KEY * _WIDTH, (last % LOCATIONS_PER_KEY + 1) * _WIDTH - 1
    text: bytes = await engine.read("GETRANGE", f"location:{run}:{first // LOCATIONS_PER_KEY}", begin, end)
    return text


def _matching(text: bytes, first: int, query: LocationQuery) -> Iterator[bytes]:
    tags = text[::_WIDTH]
    chosen = set(query.also)
    kinds = [tag for tag in query.tags if tag in tags]
    if query.lane is not None:  # there are too many that wait to look at each
        for tag in (WAITING, STORED):
            if tag in kinds:
                kinds.remove(tag)
                part = bytes([tag]) + _LANE.pack(query.lane)
                chosen |= {first + at // _WIDTH for at in _positions(text, part) if at % _WIDTH == 0}
    if not kinds and not chosen:
        return
    wanted = bytearray(tags.translate(bytes(tag in kinds for tag in range(256))))
    for number in chosen:
        if 0 <= number - first < len(wanted):
            wanted[number - first] = 1
    few = wanted.count(1) * 8 < len(wanted)
    for at in _positions(wanted, b"\x01") if few else compress(range(len(wanted)), wanted):
        yield _pack(first + at) + text[at * _WIDTH : (at + 1) * _WIDTH]


def _positions(text: bytes | bytearray, part: bytes) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def number(location: bytes) -> int:
    found: int = _NUMBER.unpack_from(location)[0]
    return found


kind = itemgetter(slice(_NUMBER.size, None))  # of a place its tag and value: those of one lane are alike
