"""Fetch knowledge: what the fleet has learned of one host's pages, as the document that it shares.

Whoever can write to the queue can write this: what is not as it should be is not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from shoal.core.fetch_choice import Lesson, ShapeState, learn
from shoal.core.fetch_shape import MAX_SHAPE

MAX_KNOWN = 120  # shapes of one host, over all who read its pages
MAX_READER = 130  # letters
MAX_DOCUMENT = 100_000  # letters; a longer one is not read

ShapeKey = tuple[str, str]  # who reads the pages (a scraper, or a handler of it), and their shape
Knowledge = dict[ShapeKey, ShapeState]  # the most recently compared last


class KnownShape(msgspec.Struct, frozen=True):
    reader: Annotated[str, msgspec.Meta(max_length=MAX_READER)]
    shape: Annotated[str, msgspec.Meta(max_length=MAX_SHAPE)]
    state: ShapeState


_decode = msgspec.json.Decoder(Annotated[list[KnownShape], msgspec.Meta(max_length=MAX_KNOWN)]).decode


def read_knowledge(text: str) -> Knowledge:
    if len(text) > MAX_DOCUMENT:
        return {}
    try:
        return {(one.reader, one.shape): one.state for one in _decode(text)}
    except msgspec.MsgspecError:
        return {}


def written(knowledge: Knowledge) -> str:
    """Those that were compared last, as many as there is room for."""
    latest = sorted(knowledge.items(), key=lambda item: item[1].compared_at)[-MAX_KNOWN:]
    shapes = [KnownShape(reader, shape, state) for (reader, shape), state in latest]
    while len(text := msgspec.json.encode(shapes).decode()) > MAX_DOCUMENT:
        shapes = shapes[len(shapes) // 4 + 1 :]
    return text


def learned(knowledge: Knowledge, lessons: Iterable[tuple[ShapeKey, Lesson]]) -> Knowledge:
    """Knowledge with further lessons, in their order."""
    made = dict(knowledge)
    for key, lesson in lessons:
        made[key] = learn(made.get(key, ShapeState()), lesson)
    return made


def reader_name(scraper: str, handler: str) -> str:
    """Who reads pages: what one takes from them may be there without a browser, and what another wants not."""
    return (f"{scraper}/{handler}" if handler else scraper)[:MAX_READER]
