"""FetchLearning: what this process knows of which pages need a browser, shared with the fleet through the queue."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakValueDictionary

from msgspec.structs import replace

from shoal.core.fetch_choice import Compared, Lesson, ShapeState
from shoal.core.fetch_knowledge import Knowledge, ShapeKey, learned
from shoal.core.fetch_shape import fetch_shape, finest_shape
from shoal.errors import ActionRequired
from shoal.queue.base import Queue
from shoal.queue.fetch_knowledge import load_knowledge, save_lessons

MAX_HOSTS = 2_000  # of which this process remembers what it knows
REFRESH_SECONDS = 5.0  # for which the document of a host is not read again
SHARE_SECONDS = 10.0  # for which lessons wait that change nothing
MAX_LESSONS = 500  # that wait; further ones, of which none is a comparison, are dropped
MAX_ALONE = 4  # comparisons of a shape without a verdict that are made one at a time

log = logging.getLogger("shoal.worker")


class ShapeFound(NamedTuple):
    key: ShapeKey
    state: ShapeState


@dataclass(slots=True)
class _Host:
    knowledge: Knowledge = field(default_factory=dict)
    lessons: list[tuple[ShapeKey, Lesson]] = field(default_factory=list)  # that the queue does not have yet
    read_at: float = float("-inf")
    shared_at: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class FetchLearning:
    def __init__(self, queue: Queue, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._clock = clock
        self._hosts: OrderedDict[str, _Host] = OrderedDict()
        self._alone: WeakValueDictionary[tuple[str, ShapeKey], asyncio.Lock] = WeakValueDictionary()
        self._begun: dict[tuple[str, ShapeKey], int] = {}

    async def find(self, host: str, reader: str, url: str) -> ShapeFound:
        """The shape of a page, and what is known of it."""
        known = self._host(host)
        if self._clock() >= known.read_at + REFRESH_SECONDS:
            await self._refresh(host, known)
        return _find(known.knowledge, reader, url)

    def peek(self, host: str, reader: str, url: str) -> ShapeState:
        """What this process knows at the moment, without asking the queue."""
        known = self._hosts.get(host)
        if known is None:
            return ShapeState()
        return _find(known.knowledge, reader, url).state

    def begin_comparison(self, host: str, key: ShapeKey) -> None:
        """One is on its way: the next pages need none."""
        known = self._host(host)
        if key in known.knowledge:
            known.knowledge[key] = replace(known.knowledge[key], since=0)
        if len(self._begun) > MAX_HOSTS:
            self._begun.clear()
        self._begun[host, key] = self._begun.get((host, key), 0) + 1

    def alone(self, host: str, key: ShapeKey) -> asyncio.Lock | None:
        """While nothing is known of a shape its pages wait for the one that is compared; None: it was tried often."""
        if self._begun.get((host, key), 0) >= MAX_ALONE:
            return None
        return self._alone.setdefault((host, key), asyncio.Lock())

    async def add(self, host: str, key: ShapeKey, lesson: Lesson) -> None:
        """A comparison is shared at once, what else was seen goes along or waits."""
        known = self._host(host)
        known.knowledge = learned(known.knowledge, [(key, lesson)])
        if isinstance(lesson, Compared) or len(known.lessons) < MAX_LESSONS:
            known.lessons.append((key, lesson))
        if isinstance(lesson, Compared):
            await self._share(host, known)

    async def share_due(self) -> None:
        """Share what has waited for long enough."""
        now = self._clock()
        for host, known in list(self._hosts.items()):
            if known.lessons and now >= known.shared_at + SHARE_SECONDS:
                await self._share(host, known)

    async def share_all(self) -> None:
        for host, known in list(self._hosts.items()):
            if known.lessons:
                await self._share(host, known)

    def _host(self, name: str) -> _Host:
        known = self._hosts.get(name)
        if known is None:
            known = self._hosts[name] = _Host(shared_at=self._clock())
            while len(self._hosts) > MAX_HOSTS:
                self._hosts.popitem(last=False)
        else:
            self._hosts.move_to_end(name)
        return known

    async def _refresh(self, host: str, known: _Host) -> None:
        async with known.turn:
            if self._clock() < known.read_at + REFRESH_SECONDS:
                return
            known.read_at = self._clock()
            try:
                stored = await load_knowledge(self._queue, host)
            except ActionRequired as error:  # the pages do not wait for this: what is known here will do
                log.warning("fetch_knowledge_unread", extra={"host": host, "why": str(error)})
                return
            known.knowledge = learned(stored, known.lessons)

    async def _share(self, host: str, known: _Host) -> None:
        async with known.turn:
            lessons = list(known.lessons)
            known.shared_at = self._clock()
            try:
                stored = await save_lessons(self._queue, host, lessons)
            except ActionRequired as error:
                log.warning("fetch_knowledge_unsaved", extra={"host": host, "why": str(error)})
                return
            if stored is None:  # others were always first; again with the next lesson
                return
            del known.lessons[: len(lessons)]
            known.knowledge = learned(stored, known.lessons)
            known.read_at = self._clock()


def _find(knowledge: Knowledge, reader: str, url: str) -> ShapeFound:
    key = (reader, finest_shape(url))
    if key not in knowledge:
        key = (reader, fetch_shape(url, {shape for who, shape in knowledge if who == reader}))
    return ShapeFound(key, knowledge.get(key, ShapeState()))
