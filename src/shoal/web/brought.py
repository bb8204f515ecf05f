"""Brought: templates that calls brought along. They are kept once, and go with the last run that has them.

Each has a document that says when it was last used. Who removes a template marks that document first, which
fails where somebody has used it since; and who uses one that is marked waits until it is gone, and keeps it
again.
"""

from __future__ import annotations

import asyncio
import re

import msgspec

from shoal.app import TEMPLATE
from shoal.control.schedule import KIND as SCHEDULE
from shoal.extract.template import Template
from shoal.queue.base import Paper, Queue

BROUGHT = "batch-"  # how the names of templates begin that a call brought along
is_brought = re.compile(BROUGHT + r"(.*-)?[0-9a-f]{12}").fullmatch  # and people did not name themselves

KIND = "template.used"
IN_USE, GOING = "in use", "going"
EVERY = 3600.0  # seconds between two looks
NOTED = 600.0  # seconds in which a use is not said again
REST = 3600.0  # seconds after the last use; a run that has it has begun by then
FORGOTTEN = 60.0  # seconds after which whoever was about to remove one is taken for dead
RUNS = 200  # in one question


async def keep_template(queue: Queue, template: Template) -> tuple[str, int]:
    """Keep a template that a call brought; the same one is kept once, however often it is brought."""
    name = name_of(template)
    await in_use(queue, name)
    paper = await queue.keep_paper(TEMPLATE, name, msgspec.json.encode(template).decode())
    return paper.name, paper.version


def name_of(template: Template) -> str:
    return BROUGHT + f"{template.name}-{template.version}".removeprefix(BROUGHT)


async def in_use(queue: Queue, name: str) -> None:
    """Say that a run is about to have it, so that it stays."""
    while is_brought(name):
        paper, now = await queue.paper(KIND, name), await queue.now()
        if paper is not None:
            age = (now - paper.made_at) / 1e6
            if paper.text == GOING and age < FORGOTTEN:
                await asyncio.sleep(0.05)
                continue
            if paper.text == IN_USE and age < NOTED:
                return
        if await queue.swap(KIND, name, IN_USE, paper.version if paper else 0) is not None:
            return


class Brought:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def tidy(self) -> int:
        """Remove those that no run has any more, and that nobody used for a while; says how many."""
        kept = {it.name: it for it in await self._queue.papers(TEMPLATE) if is_brought(it.name)}
        uses = {it.name: it for it in await self._queue.papers(KIND)}
        for name in kept.keys() - uses.keys():  # of an older version, or it came with a run that moved here
            await self._queue.swap(KIND, name, IN_USE, 0)
            await asyncio.sleep(0)  # others get their turn
        now = await self._queue.now()
        old = [use for use in uses.values() if now - use.made_at > _rest(use) * 1e6]
        needed = await self._needed() if old else set()
        return sum([await self._remove(use, kept.get(use.name)) for use in old if use.name not in needed])

    async def _remove(self, use: Paper, template: Paper | None) -> bool:
        going = await self._queue.swap(KIND, use.name, GOING, use.version)
        if going is None:
            return False  # used since, or another is at it
        removed = None
        if template is not None and _is_ours(template):
            removed = await self._queue.swap(TEMPLATE, template.name, None, template.version)
        await self._queue.swap(KIND, use.name, None, going.version)
        await asyncio.sleep(0)
        return removed is not None

    async def _needed(self) -> set[str]:
        """Those that a run has, or that a schedule will give to one."""
        words = "\n".join([paper.text for paper in await self._queue.papers(SCHEDULE)])
        found = {match[0] for match in re.finditer(BROUGHT + r"[\w.-]+", words)}
        before = 0
        while runs := await self._queue.runs(before=before, limit=RUNS):
            found |= {str(run.spec[TEMPLATE]) for run in runs if run.spec.get(TEMPLATE)}
            before = runs[-1].id
            await asyncio.sleep(0)
        return found


def _rest(use: Paper) -> float:
    return FORGOTTEN if use.text == GOING else REST


def _is_ours(paper: Paper) -> bool:
    """Whether it is what its name says: a person may have given one such a name."""
    try:
        return name_of(msgspec.json.decode(paper.text, type=Template)) == paper.name
    except (msgspec.DecodeError, ValueError):
        return False
