"""`shoal plan`: a crawl worked out before it is paid for, from figures that were given or that a run has shown."""

from __future__ import annotations

from statistics import median
from typing import Any

from shoal.commands.machine_speed import measure_speed
from shoal.config.load import Settings
from shoal.core.plan import Plan, PlanRequest, Prices, make_plan
from shoal.core.queue_url import split_urls
from shoal.core.run import Run
from shoal.core.run_counters import fetch_usage
from shoal.core.sizing import QUEUES
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.queue.registry import backend_of

MAX_LANES = 10_000  # hosts of a run that are looked at
ENOUGH_WAITING = 0.5  # of a run's pages: then what waits shows how large hosts are


async def seen_in_run(queue: Queue, run: Run) -> dict[str, Any]:
    """What a run has shown of itself, by the names of PlanRequest; only what is known."""
    stats, usage = await queue.stats(run.id), fetch_usage(await queue.run_counters(run.id))
    lanes = await queue.lanes(run=run.id, limit=MAX_LANES)
    found: dict[str, Any] = {"urls": max(1, stats.seen)}
    if lanes:
        found["hosts"] = len(lanes)
        found["spacing"] = median(lane.spacing for lane in lanes)
        found["in_flight"] = min(lane.max_in_flight for lane in lanes)
        if len(lanes) == 1:
            found["largest_host"] = found["urls"]
        elif stats.ready > ENOUGH_WAITING * stats.seen:
            largest = max(lane.ready for lane in lanes) / stats.ready * stats.seen
            found["largest_host"] = min(round(largest), stats.seen - len(lanes) + 1)
    if usage and (responses := sum(one.responses for one in usage)):
        found["latency"] = sum(one.seconds for one in usage) / responses
        found["page_bytes"] = max(1, round(sum(one.bytes for one in usage) / responses))
        if cpu := sum(one.cpu_seconds for one in usage):
            found["page_seconds"] = cpu / responses
    if ended := stats.ended_pages:
        found["repeated"] = round(stats.retries / ended, 4)
    return found


def plan_command(
    settings: Settings, given: dict[str, Any], prices: dict[str, Any], *, measure: bool, seen: dict[str, Any]
) -> Plan:
    """What was given counts, then what a run has shown, then what is usual."""
    known = _scaled(seen, given) | given
    if "urls" not in known:
        raise UsageError("a plan needs the number of URLs", hint="shoal plan --urls 1e6 --hosts 1e3, or --run RUN")
    if "queue" not in known:
        known = _own_queue(settings) | known
    if known["queue"] not in QUEUES:
        raise UsageError(
            f"what a queue of the kind {known['queue']} costs was not measured", hint=f"--on {', '.join(QUEUES)}"
        )
    if measure:
        known["speed"] = measure_speed()
        known.pop("page_seconds", None)
    return make_plan(PlanRequest(**known, prices=Prices(**prices)))


def _own_queue(settings: Settings) -> dict[str, Any]:
    """The kind of queue that the settings name, and of how many servers it is."""
    if not settings.queue:
        return {"queue": "redis"}
    urls = split_urls(settings.queue)
    kinds = sorted({backend_of(url).name for url in urls})
    if len(kinds) > 1:
        raise UsageError(
            f"its shards are of several kinds: {', '.join(kinds)}",
            hint=f"--on with that of most of them, --servers {len(urls)}",
        )
    return {"queue": kinds[0], "servers": len(urls)}


def _scaled(seen: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A larger crawl of the same kind: its largest host grows with it."""
    if "largest_host" not in seen or not {"urls", "hosts"} & given.keys():
        return seen
    if "hosts" in given:
        return {name: value for name, value in seen.items() if name != "largest_host"}
    return seen | {"largest_host": max(1, round(seen["largest_host"] / seen["urls"] * given["urls"]))}
