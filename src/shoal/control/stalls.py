"""Stalled runs: they have work, but none of it ends. Each stall is reported once, over servers and restarts.

What did not move since when, and who was told of it, is one document. A stall ends with the first page that
ends, or when nothing can be done any more; what follows is another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from shoal.control.webhooks import Describe, Webhook, create_delivery, list_webhooks, webhooks_of
from shoal.core.run import Run, RunState
from shoal.core.stats import Stats
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

NAME = "runs"
INTERVAL = 30.0  # seconds between two looks
RUNNING_STATES: tuple[RunState, ...] = ("running",)
MAX_RUNS, BATCH_SIZE = 10_000, 500  # runs that are looked at, and in one question
ACTIVE_STATES = ("running", "waiting")  # a run whose process was stopped does not stall: it was stopped

# A run's standing for people, and figures of it worth telling.
RunStateLookup = Callable[[Run], Awaitable[tuple[str, dict[str, Any]]]]


class StallState(msgspec.Struct, frozen=True, array_like=True):
    """A run that has work, and did not move since."""

    progress: int  # how far it had come: see progress_of()
    since: int
    notified: tuple[str, ...] = ()  # hooks


class StallDetector:
    def __init__(self, queue: Queue, describe: Describe, run_state: RunStateLookup) -> None:
        self._queue = queue
        self._describe = describe
        self._run_state = run_state

    async def run_once(self) -> None:
        """See what moves, and have told what does not."""
        everywhere = [hook for hook in await list_webhooks(self._queue) if "stalled" in hook.events]
        runs = await self._queue.runs(states=RUNNING_STATES, limit=MAX_RUNS)
        asked = [(run, wanted) for run in runs if (wanted := _interested_webhooks(run, everywhere))]
        document = await self._queue.document(kinds.WEBHOOK_STALL, NAME)
        known = _decode(document.text) if document else {}
        if not asked and not known:
            return
        now = await self._queue.now()
        still: dict[int, StallState] = {}
        for first in range(0, len(asked), BATCH_SIZE):
            some = asked[first : first + BATCH_SIZE]
            accounts = await self._queue.stats_of([run.id for run, _ in some])
            for (run, wanted), stats in zip(some, accounts, strict=True):
                if stats.claimable or stats.leased:
                    found = _updated_state(known.get(run.id), progress_of(stats), now)
                    still[run.id] = await self._notify(run, wanted, stats, found, now)
            await asyncio.sleep(0)
        if still != known:
            text = msgspec.json.encode(still).decode() if still else None
            await self._queue.compare_and_swap(kinds.WEBHOOK_STALL, NAME, text, document.version if document else 0)

    async def _notify(
        self, run: Run, wanted: Sequence[Webhook], stats: Stats, found: StallState, now: int
    ) -> StallState:
        seconds = (now - found.since) / 1e6
        due = [hook for hook in wanted if seconds >= hook.stalled_after and hook.id not in found.notified]
        if not due:
            return found
        run_state, figures = await self._run_state(run)
        if run_state not in ACTIVE_STATES:
            return StallState(found.progress, now)
        said = {
            "run": self._describe(run, stats),
            "stalled": {
                "seconds": round(seconds),
                "claimable": stats.claimable,
                "leased": stats.leased,
                "open": stats.open,
                "display_state": run_state,
                **figures,
            },
        }
        for hook in due:
            await create_delivery(self._queue, hook, "stalled", run, f"stalled/{found.since}", said)
            await asyncio.sleep(0)  # very many may stall at once: others get their turn
        return msgspec.structs.replace(found, notified=(*found.notified, *(hook.id for hook in due)))


def progress_of(stats: Stats) -> int:
    """How far a run has come: grows with everything that ends, also with an attempt that failed."""
    return stats.done + stats.failed + stats.cancelled + stats.retries


def _updated_state(known: StallState | None, at: int, now: int) -> StallState:
    return known if known is not None and known.progress == at else StallState(at, now)


def _interested_webhooks(run: Run, everywhere: Sequence[Webhook]) -> list[Webhook]:
    own = [hook for hook in webhooks_of(run) if "stalled" in hook.events]
    return [hook for hook in (*everywhere, *own) if hook.applies_to(run)]


def _decode(text: str) -> Mapping[int, StallState]:
    try:
        return msgspec.json.decode(text, type=dict[int, StallState])
    except msgspec.DecodeError:
        return {}  # of another version
