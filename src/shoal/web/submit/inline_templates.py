"""Inline templates: they came with a request, are stored once, and removed after the last run that uses them.

Each has a document that says when it was last used. Who removes a template marks that document first, which
fails where somebody has used it since; and who uses one that is marked waits until it is gone, and keeps it
again.
"""

from __future__ import annotations

import asyncio
import re

import msgspec

from shoal.extract.template import Template
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue

INLINE_PREFIX = "batch-"  # how the names of inline templates begin
is_inline = re.compile(INLINE_PREFIX + r"(.*-)?[0-9a-f]{12}").fullmatch  # and people did not name themselves

IN_USE, REMOVING = "in use", "going"
INTERVAL = 3600.0  # seconds
USE_NOTED_FOR = 600.0  # seconds in which a use is not said again
UNUSED_AFTER = 3600.0  # seconds after the last use; a run that has it has begun by then
REMOVAL_TIMEOUT = 60.0  # seconds after which whoever was about to remove one is taken for dead
RUNS_PER_QUERY = 200  # in one question


async def store_template(queue: Queue, template: Template) -> tuple[str, int]:
    """Store a template that came with a request; the same one is stored once, however often it comes."""
    name = inline_name(template)
    await mark_in_use(queue, name)
    document = await queue.save_document(kinds.TEMPLATE, name, msgspec.json.encode(template).decode())
    return document.name, document.version


def inline_name(template: Template) -> str:
    return INLINE_PREFIX + f"{template.name}-{template.version}".removeprefix(INLINE_PREFIX)


async def mark_in_use(queue: Queue, name: str) -> None:
    """Say that a run is about to have it, so that it stays."""
    while is_inline(name):
        document, now = await queue.document(kinds.TEMPLATE_USE, name), await queue.now()
        if document is not None:
            age = (now - document.made_at) / 1e6
            if document.text == REMOVING and age < REMOVAL_TIMEOUT:
                await asyncio.sleep(0.05)
                continue
            if document.text == IN_USE and age < USE_NOTED_FOR:
                return
        version = document.version if document else 0
        if await queue.compare_and_swap(kinds.TEMPLATE_USE, name, IN_USE, version) is not None:
            return


class InlineTemplates:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def remove_unused(self) -> int:
        """Remove those that no run has any more, and that nobody used for a while; says how many."""
        kept = {it.name: it for it in await self._queue.documents(kinds.TEMPLATE) if is_inline(it.name)}
        uses = {it.name: it for it in await self._queue.documents(kinds.TEMPLATE_USE)}
        for name in kept.keys() - uses.keys():  # of an older version, or it came with a run that moved here
            await self._queue.compare_and_swap(kinds.TEMPLATE_USE, name, IN_USE, 0)
            await asyncio.sleep(0)  # others get their turn
        now = await self._queue.now()
        old = [use for use in uses.values() if now - use.made_at > _unused_after(use) * 1e6]
        needed = await self._names_in_use() if old else set()
        return sum([await self._remove(use, kept.get(use.name)) for use in old if use.name not in needed])

    async def _remove(self, use: Document, template: Document | None) -> bool:
        removing = await self._queue.compare_and_swap(kinds.TEMPLATE_USE, use.name, REMOVING, use.version)
        if removing is None:
            return False  # used since, or another is at it
        removed = None
        if template is not None and _has_inline_name(template):
            removed = await self._queue.compare_and_swap(kinds.TEMPLATE, template.name, None, template.version)
        await self._queue.compare_and_swap(kinds.TEMPLATE_USE, use.name, None, removing.version)
        await asyncio.sleep(0)
        return removed is not None

    async def _names_in_use(self) -> set[str]:
        """Those that a run has, or that a schedule will give to one."""
        words = "\n".join([document.text for document in await self._queue.documents(kinds.SCHEDULE)])
        found = {match[0] for match in re.finditer(INLINE_PREFIX + r"[\w.-]+", words)}
        before = 0
        while runs := await self._queue.runs(before=before, limit=RUNS_PER_QUERY):
            found |= {str(run.spec["template"]) for run in runs if run.spec.get("template")}
            before = runs[-1].id
            await asyncio.sleep(0)
        return found


def _unused_after(use: Document) -> float:
    return REMOVAL_TIMEOUT if use.text == REMOVING else UNUSED_AFTER


def _has_inline_name(document: Document) -> bool:
    """Whether it is what its name says: a person may have given one such a name."""
    try:
        return inline_name(msgspec.json.decode(document.text, type=Template)) == document.name
    except (msgspec.DecodeError, ValueError):
        return False
