"""Places: where each task of a run is, five bytes a task, read as they lie; see lua/items.lua."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from itertools import compress
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from shoal.queue.redis.engine import Engine

PLACES = 16_384  # tasks per string
AT_ONCE = 8  # strings read together, once the first ones held nothing
WAITS, ODD, ENDED, DEAD, CALLED_OFF = 1, 2, 3, 4, 6
_WIDTH = 5
_NUMBER = Struct(">I")
_pack = _NUMBER.pack
_LANE = Struct(">I")


class Sought(NamedTuple):
    """Tasks of these kinds, and of these numbers; of those that wait, only in this lane."""

    tags: Collection[int]
    also: Collection[int] = ()
    lane: int | None = None


async def find(
    engine: Engine, run: int, sought: Sought, first: int, last: int, most: int, then_many: bool = False
) -> AsyncIterator[list[bytes]]:
    """Number, tag and value of what is sought, in order of the numbers, `most` at a time."""
    found: list[bytes] = []
    step = 1
    while first <= last:
        chunks = range(first // PLACES, min(last // PLACES, first // PLACES + step - 1) + 1)
        ranges = [(max(first, chunk * PLACES), min(last, (chunk + 1) * PLACES - 1)) for chunk in chunks]
        texts = await asyncio.gather(*(_read(engine, run, *each) for each in ranges))
        for (begin, _), text in zip(ranges, texts, strict=True):
            for place in _matching(text, begin, sought):
                found.append(place)
                if len(found) == most:
                    yield found
                    found, most = [], 2 * PLACES if then_many else most
        first, step = (chunks[-1] + 1) * PLACES, min(AT_ONCE, step * 2)
    if found:
        yield found


async def _read(engine: Engine, run: int, first: int, last: int) -> bytes:
    begin, end = first % PLACES * _WIDTH, (last % PLACES + 1) * _WIDTH - 1
    text: bytes = await engine.read("GETRANGE", f"place:{run}:{first // PLACES}", begin, end)
    return text


def _matching(text: bytes, first: int, sought: Sought) -> Iterator[bytes]:
    tags = text[::_WIDTH]
    chosen = set(sought.also)
    kinds = [tag for tag in sought.tags if tag in tags]
    if sought.lane is not None:  # there are too many that wait to look at each
        for tag in (WAITS, ODD):
            if tag in kinds:
                kinds.remove(tag)
                part = bytes([tag]) + _LANE.pack(sought.lane)
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


def number(place: bytes) -> int:
    found: int = _NUMBER.unpack_from(place)[0]
    return found


kind = itemgetter(slice(_NUMBER.size, None))  # of a place its tag and value: those of one lane are alike
