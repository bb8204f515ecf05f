"""Advice: what a person should do next, from the numbers of this minute and of the last ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.config import Settings
from shoal.control.history import History, Series
from shoal.queue.base import DeadGroup, Queue, Where
from shoal.view.capacity import LATELY, TARGET, Capacity, autoscale_document, capacity
from shoal.view.letters import groups
from shoal.view.scaling import scaling
from shoal.view.snapshot import Lookout, Snapshot
from shoal.view.suggestion import LEVELS, Advice, advice_document
from shoal.view.trouble import trouble
from shoal.view.words import count, stamp

MOST = 30
DEAD_RUNS = 5  # runs whose dead letters are looked at
DEAD_ALL, DEAD_SOME = 5_000, 300  # letters: with more of them, some stand for all
SAMPLE, LOOKS, ENOUGH = 1.0, 3, 20  # seconds between looks, how many, and pages that tell a rate


def advise(
    snapshot: Snapshot,
    series: Series,
    *,
    target: float = TARGET,
    dead: Mapping[str, Sequence[DeadGroup]] | None = None,
) -> list[Advice]:
    """What to do, most pressing first; where there is nothing, that it goes well."""
    found = capacity(snapshot, series, target)
    said = [*scaling(snapshot, series, found), *trouble(snapshot, series, dead or {})]
    said.sort(key=lambda one: LEVELS.index(one.level))
    if not any(one.level == "act" for one in said):
        said.append(_good(snapshot, found))
    return said[:MOST]


def _good(snapshot: Snapshot, found: Capacity) -> Advice:
    figures = autoscale_document(found)
    if not found.open:
        return Advice("at_rest", "good", "Nothing to do", "no run that goes on has anything open", figures)
    why = f"{snapshot.rate:.1f} pages/s with {count(found.current, 'worker')}, {count(found.open)} open"
    return Advice("on_its_way", "good", "Nothing needs you", why, figures)


def autoscale(snapshot: Snapshot, series: Series, *, target: float = TARGET) -> dict[str, Any]:
    """How many workers there should be, for whoever starts and stops them."""
    return autoscale_document(capacity(snapshot, series, target))


def advice_listing(snapshot: Snapshot, said: Sequence[Advice], scale: dict[str, Any]) -> dict[str, Any]:
    return {
        "at": stamp(snapshot.at),
        "desired_workers": scale["desired_workers"],
        "autoscale": scale,
        "advice": [advice_document(one) for one in said],
    }


async def dead_of(queue: Queue, snapshot: Snapshot) -> dict[str, list[DeadGroup]]:
    """Dead letters by host and cause, of runs that go on first; of very many, some stand for all."""
    runs = [one for one in snapshot.runs if one.stats.dead][:DEAD_RUNS]
    made: dict[str, list[DeadGroup]] = {}
    for one in runs:
        few = one.stats.dead <= DEAD_ALL
        every = Where() if few else Where(url="*")
        made[one.run.name] = await groups(queue, one.run.id, every, most=DEAD_SOME)
    return made


async def look_and_advise(
    queue: Queue, settings: Settings, *, target: float = TARGET
) -> tuple[Snapshot, list[Advice], dict[str, Any]]:
    """All of it for whoever asks once: a second look, or a third, tells how fast it goes."""
    lookout = Lookout(queue, settings)
    snapshot = await lookout.look()
    began = snapshot.totals.done
    for _ in range(LOOKS if snapshot.totals.leased else 0):
        await asyncio.sleep(SAMPLE)
        snapshot = await lookout.look()
        if snapshot.totals.done - began >= ENOUGH:
            break
    series = await History(queue, stale_after=settings.stale_after).read(LATELY)
    dead = await dead_of(queue, snapshot)
    said = advise(snapshot, series, target=target, dead=dead)
    return snapshot, said, autoscale(snapshot, series, target=target)
