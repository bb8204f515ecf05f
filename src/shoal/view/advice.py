"""Recommendations: what a person should do next, from current figures and recent history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.config.load import Settings
from shoal.control.history import History, Series
from shoal.core.scaling import TARGET, Capacity
from shoal.queue.base import DeadLetterGroup, Queue, TaskFilter
from shoal.queue.glance import glance
from shoal.view.capacity import RECENT_SECONDS, autoscale_document, capacity_of
from shoal.view.dead_letters import dead_letter_groups
from shoal.view.formatting import count, iso_time
from shoal.view.problems import find_problems
from shoal.view.recommendation import LEVELS, Recommendation, recommendation_document
from shoal.view.scaling import scaling_recommendations
from shoal.view.snapshot import FleetMonitor, Snapshot

MAX_RECOMMENDATIONS = 30
MAX_DEAD_RUNS = 5  # runs whose dead letters are looked at
DEAD_ALL, DEAD_SOME = 5_000, 300  # letters: with more of them, some stand for all
# Seconds between looks, how many, and pages that tell a rate.
SAMPLE_SECONDS, MAX_LOOKS, ENOUGH_PAGES = 1.0, 3, 20


def recommend(
    snapshot: Snapshot,
    series: Series,
    *,
    target: float = TARGET,
    dead: Mapping[str, Sequence[DeadLetterGroup]] | None = None,
) -> list[Recommendation]:
    """What to do, most pressing first; where there is nothing, that it goes well."""
    found = capacity_of(snapshot, series, target)
    recommendations = [*scaling_recommendations(snapshot, series, found), *find_problems(snapshot, series, dead or {})]
    recommendations.sort(key=lambda one: LEVELS.index(one.level))
    # With nothing open, whatever else is said (that workers can go, or what failed) is something to do.
    if not any(one.level == "act" for one in recommendations) and (found.work.open or not recommendations):
        recommendations.append(_all_good(snapshot, found))
    return recommendations[:MAX_RECOMMENDATIONS]


def _all_good(snapshot: Snapshot, found: Capacity) -> Recommendation:
    figures = autoscale_document(found)
    if not found.work.open:
        return Recommendation("idle", "good", "Nothing to do", "no running run has open tasks", figures)
    workers, open_ = count(found.work.workers, "worker"), count(found.work.open)
    if found.is_unknown:
        why = f"{workers}, {open_} open, and no page has ended yet: nobody can say how many workers it takes"
        return Recommendation("insufficient_data", "good", "Too little data yet", why, figures)
    why = f"{snapshot.rate:.1f} pages/s with {workers}, {open_} open"
    return Recommendation("all_clear", "good", "All clear", why, figures)


def autoscale(snapshot: Snapshot, series: Series, *, target: float = TARGET) -> dict[str, Any]:
    """How many workers there should be, for whoever starts and stops them."""
    return autoscale_document(capacity_of(snapshot, series, target))


def recommendations_document(
    snapshot: Snapshot, recommendations: Sequence[Recommendation], scale: dict[str, Any]
) -> dict[str, Any]:
    return {
        "at": iso_time(snapshot.at),
        "desired_workers": scale["desired_workers"],
        "autoscale": scale,
        "advice": [recommendation_document(one) for one in recommendations],
    }


async def dead_groups_by_run(queue: Queue, snapshot: Snapshot) -> dict[str, list[DeadLetterGroup]]:
    """Dead letters by host and cause, of runs that go on first; of very many, some stand for all."""
    runs = [one for one in snapshot.runs if one.stats.dead][:MAX_DEAD_RUNS]
    made: dict[str, list[DeadLetterGroup]] = {}
    for one in runs:
        few = one.stats.dead <= DEAD_ALL
        every = TaskFilter() if few else TaskFilter(url="*")
        made[one.run.name] = await glance(dead_letter_groups(queue, one.run.id, every, most=DEAD_SOME))
    return made


async def recommend_for_queue(
    queue: Queue, settings: Settings, *, target: float = TARGET
) -> tuple[Snapshot, list[Recommendation], dict[str, Any]]:
    """All of it for whoever asks once: where the queue does not know how fast it goes, further looks tell."""
    monitor = FleetMonitor(queue, settings)
    snapshot = await monitor.snapshot()
    began = snapshot.totals.done
    for _ in range(MAX_LOOKS if snapshot.totals.leased and not snapshot.rate else 0):
        await asyncio.sleep(SAMPLE_SECONDS)
        snapshot = await monitor.snapshot()
        if snapshot.totals.done - began >= ENOUGH_PAGES:
            break
    series = await History(queue, stale_after=settings.stale_after).read(RECENT_SECONDS)
    dead = await dead_groups_by_run(queue, snapshot)
    recommendations = recommend(snapshot, series, target=target, dead=dead)
    return snapshot, recommendations, autoscale(snapshot, series, target=target)
