"""Stalls: runs that have work of which none ends. Each stall is told once, whoever looks, and over restarts.

What did not move since when, and who was told of it, is one document. A stall ends with the first page that
ends, or when nothing can be done any more; what follows is another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from shoal.control.hooks import Describe, Hook, hooks, hooks_of, keep_delivery
from shoal.core.run import Run, RunState
from shoal.core.stats import Stats
from shoal.queue.base import Queue

KIND, NAME = "hook.stall", "runs"
EVERY = 30.0  # seconds between two looks
RUNNING: tuple[RunState, ...] = ("running",)
MANY, SLICE = 10_000, 500  # runs that are looked at, and in one question
DRIVEN = ("running", "waiting")  # a run whose process was stopped does not stall: it was stopped

# A run's standing for people, and figures of it worth telling.
Standing = Callable[[Run], Awaitable[tuple[str, dict[str, Any]]]]


class Still(msgspec.Struct, frozen=True, array_like=True):
    """A run that has work, and did not move since."""

    moved: int  # how far it had come: see moved()
    since: int
    told: tuple[str, ...] = ()  # hooks


class Stalls:
    def __init__(self, queue: Queue, describe: Describe, standing: Standing) -> None:
        self._queue = queue
        self._describe = describe
        self._standing = standing

    async def turn(self) -> None:
        """See what moves, and have told what does not."""
        everywhere = [hook for hook in await hooks(self._queue) if "stalled" in hook.events]
        runs = await self._queue.runs(states=RUNNING, limit=MANY)
        asked = [(run, wanted) for run in runs if (wanted := _wanted(run, everywhere))]
        paper = await self._queue.paper(KIND, NAME)
        known = _read(paper.text) if paper else {}
        if not asked and not known:
            return
        now = await self._queue.now()
        still: dict[int, Still] = {}
        for first in range(0, len(asked), SLICE):
            some = asked[first : first + SLICE]
            accounts = await self._queue.stats_of([run.id for run, _ in some])
            for (run, wanted), stats in zip(some, accounts, strict=True):
                if stats.claimable or stats.leased:
                    found = _continued(known.get(run.id), moved(stats), now)
                    still[run.id] = await self._told(run, wanted, stats, found, now)
            await asyncio.sleep(0)
        if still != known:
            text = msgspec.json.encode(still).decode() if still else None
            await self._queue.swap(KIND, NAME, text, paper.version if paper else 0)

    async def _told(self, run: Run, wanted: Sequence[Hook], stats: Stats, found: Still, now: int) -> Still:
        seconds = (now - found.since) / 1e6
        due = [hook for hook in wanted if seconds >= hook.stalled_after and hook.id not in found.told]
        if not due:
            return found
        standing, figures = await self._standing(run)
        if standing not in DRIVEN:
            return Still(found.moved, now)
        said = {
            "run": self._describe(run, stats),
            "stalled": {
                "seconds": round(seconds),
                "claimable": stats.claimable,
                "leased": stats.leased,
                "open": stats.open,
                "standing": standing,
                **figures,
            },
        }
        for hook in due:
            await keep_delivery(self._queue, hook, "stalled", run, f"stalled/{found.since}", said)
            await asyncio.sleep(0)  # very many may stall at once: others get their turn
        return msgspec.structs.replace(found, told=(*found.told, *(hook.id for hook in due)))


def moved(stats: Stats) -> int:
    """How far a run has come: grows with everything that ends, also with an attempt that failed."""
    return stats.done + stats.dead + stats.cancelled + stats.retries


def _continued(known: Still | None, at: int, now: int) -> Still:
    return known if known is not None and known.moved == at else Still(at, now)


def _wanted(run: Run, everywhere: Sequence[Hook]) -> list[Hook]:
    own = [hook for hook in hooks_of(run) if "stalled" in hook.events]
    return [hook for hook in (*everywhere, *own) if hook.of(run)]


def _read(text: str) -> Mapping[int, Still]:
    try:
        return msgspec.json.decode(text, type=dict[int, Still])
    except msgspec.DecodeError:
        return {}  # of another version
