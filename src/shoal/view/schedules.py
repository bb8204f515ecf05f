"""Schedules as people and machines see them."""

from __future__ import annotations

from typing import Any

from shoal.core.cron_words import describe_cron
from shoal.core.schedule import Schedule, next_firing
from shoal.view.formatting import iso_time


def next_time(found: Schedule, now: int) -> int:
    """As it is shown: a time that has just come is there until somebody sees to it."""
    return found.next if found.next > now or not found.next else next_firing(found, now)


def schedule_document(found: Schedule, now: int) -> dict[str, Any]:
    """The keys are stable: new ones may come, none goes or changes its meaning."""
    return {
        "name": found.name,
        "cron": found.cron,
        "zone": found.zone,
        "when": describe_cron(found.cron, found.zone),
        "overlap": found.overlap,
        "paused": found.paused,
        "scraper": found.order.scraper,
        "urls": found.order.urls,
        "made_at": iso_time(found.made_at),
        "next_at": None if found.paused else iso_time(next_time(found, now)),
        "waiting_at": iso_time(found.waiting),
        "latest": found.latest or None,
        "fired": found.fired,
        "skipped": found.skipped,
        "missed": found.missed,
        "history": [
            {"at": iso_time(it.at), "run": it.run or None, "skipped": it.why or None, "by_hand": it.is_manual}
            for it in found.history
        ],
    }
