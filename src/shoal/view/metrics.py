"""Metrics: the families that workers and the server show. Names are kept from release to release.

No label holds a host, a URL or anything else that a site could invent; runs are at most RUNS. A worker
counts itself (`shoal_…`); the server adds up what workers say (`shoal_fleet_…`): no task counts twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shoal.control.history import LifetimeCounters
from shoal.control.history_sample import total_counters, worker_deltas
from shoal.core.counters import (
    DURATION_BOUNDS,
    ERROR_CLASSES,
    SIZE_BOUNDS,
    Counters,
    ExitCounters,
    combine,
    decode,
    maximum,
)
from shoal.core.lane import WorkerStatus
from shoal.core.stats import Stats
from shoal.version import __version__
from shoal.view.blocks import block_family
from shoal.view.exits import fleet_exits
from shoal.view.machines import machine_families, machine_views, pressure_family
from shoal.view.metric_family import MetricFamily, prometheus_text
from shoal.view.scale import scale_families
from shoal.view.snapshot import RunSnapshot, Snapshot
from shoal.view.workers import count_by_state
from shoal.worker.pool.totals import PoolTotals

MAX_RUNS = 50
TASK_STATES = ("ready", "delayed", "leased", "done", "dead", "discarded", "cancelled")


def worker_families(name: str, totals: PoolTotals, *, reachable: bool, stopping: bool) -> list[MetricFamily]:
    """Of one `shoal worker` or `shoal run`, all its processes together, those that died included."""
    rows = (
        ("tasks_claimed_total", "counter", "Tasks taken from the queue.", totals.claimed),
        ("tasks_done_total", "counter", "Tasks done.", totals.done),
        ("tasks_failed_total", "counter", "Attempts that failed.", totals.failed),
        ("leases_lost_total", "counter", "Leases lost to other workers.", totals.lost),
        ("children_deaths_total", "counter", "Worker processes that died.", totals.deaths),
        ("children", "gauge", "Worker processes alive.", totals.children),
        ("memory_bytes", "gauge", "Memory of the worker processes.", totals.memory),
        ("leases", "gauge", "Leases held.", totals.leases),
        (
            "step_seconds",
            "gauge",
            "How long the running handler or parser has blocked its process.",
            totals.longest_step,
        ),
        ("queue_reachable", "gauge", "Whether the queue answers.", int(reachable)),
        ("stopping", "gauge", "Whether it was asked to stop.", int(stopping)),
    )
    return [
        _build("worker"),
        *(MetricFamily(f"worker_{row[0]}", row[1], row[2]).add(row[3], worker=name) for row in rows),
        *counter_families(totals.counters, totals.memory),
    ]


def counter_families(figures: Counters, memory: int, of: str = "") -> list[MetricFamily]:
    """What was counted: by one worker, or with of="fleet_" by all."""
    failed = MetricFamily(f"{of}attempts_failed_total", "counter", "Attempts that failed, by class of error.")
    dead = MetricFamily(f"{of}dead_total", "counter", "Tasks that failed permanently, by class of error.")
    for name in ERROR_CLASSES:  # all of them, also at 0: a rate needs a beginning
        failed.add(figures.failed.get(name, 0), **{"class": name})
        dead.add(figures.dead.get(name, 0), **{"class": name})
    took = MetricFamily(f"{of}attempt_seconds", "histogram", "How long attempts took, waiting for the host included.")
    size = MetricFamily(f"{of}answer_bytes", "histogram", "Sizes of responses, decompressed.")
    asks = MetricFamily(f"{of}queue_seconds", "summary", "Duration of queue calls (claim and settle).")
    lag = MetricFamily(f"{of}event_loop_lag_seconds", "gauge", "Longest recent event-loop lag of a process.")
    return [
        MetricFamily(f"{of}tasks_done_total", "counter", "Tasks done.").add(figures.done),
        MetricFamily(f"{of}records_total", "counter", "Records extracted from pages.").add(figures.records),
        failed,
        MetricFamily(f"{of}retries_total", "counter", "Failed attempts that will be retried.").add(figures.retries),
        dead,
        MetricFamily(f"{of}leases_lost_total", "counter", "Leases lost to other workers.").add(figures.lost),
        MetricFamily(f"{of}stale_settles_total", "counter", "Outcomes that came too late and were discarded.").add(
            figures.stale
        ),
        took.add_distribution(DURATION_BOUNDS, figures.took, figures.took_sum),
        size.add_distribution(SIZE_BOUNDS, figures.size, figures.size_sum),
        MetricFamily(f"{of}cache_hits_total", "counter", "Pages taken from the response cache.").add(
            figures.cache_hits
        ),
        MetricFamily(f"{of}cache_misses_total", "counter", "Pages that the response cache did not have fresh.").add(
            figures.cache_misses
        ),
        *cost_families(figures, of),
        asks.add_distribution((), (figures.asks,), figures.ask_seconds),
        lag.add(figures.lag),
        MetricFamily(f"{of}memory_bytes", "gauge", "Memory of worker processes.").add(memory),
    ]


def cost_families(figures: Counters, of: str) -> list[MetricFamily]:
    """What pages have cost, whatever became of them."""
    rows = (
        ("transferred_bytes_total", "Bytes sent and received for pages, as transferred.", figures.transferred),
        ("proxy_bytes_total", "Bytes of these that went by exits and proxies.", figures.proxy_bytes),
        ("page_cpu_seconds_total", "Processor time of pages, in workers and browsers.", figures.cpu_us / 1e6),
        ("browser_seconds_total", "Time for which tabs of browsers were open.", figures.browser_us / 1e6),
    )
    return [MetricFamily(f"{of}{name}", "counter", words).add(value) for name, words, value in rows]


def exit_families(exits: Mapping[str, ExitCounters]) -> list[MetricFamily]:
    """By exit, of processes that are alive."""
    requests = MetricFamily("fleet_exit_requests", "gauge", "Requests by each exit, of processes that are alive.")
    failures = MetricFamily("fleet_exit_failures", "gauge", "Requests by each exit that got no answer.")
    traffic = MetricFamily("fleet_exit_bytes", "gauge", "Bytes sent and received by each exit.")
    cooling = MetricFamily("fleet_exit_proxies_cooling", "gauge", "Proxies of each exit that are left alone now.")
    for name, one in sorted(exits.items()):
        requests.add(one.requests, exit=name)
        failures.add(one.failures, exit=name)
        traffic.add(one.bytes, exit=name)
        cooling.add(one.cooling, exit=name)
    return [requests, failures, traffic, cooling]


class FleetCounters:
    """All that workers have ever counted, as the history keeps it: it never falls, whatever is seen late.

    Should the history begin anew, because somebody has removed it, the sums go on from where they were.
    """

    def __init__(self) -> None:
        self._before = Counters()  # of histories there were
        self._most = Counters()
        self._known = Counters()  # what the history had last

    def update(
        self, at: int, statuses: Sequence[WorkerStatus], lifetime: LifetimeCounters = LifetimeCounters()
    ) -> Counters:
        base = lifetime.base
        if base.at:
            if base.total.asks < self._known.asks or base.total.done < self._known.done:
                self._before, self._most = combine(self._before, self._most), Counters()
            self._known = base.total
        self._most = maximum(
            self._most, total_counters(base, worker_deltas(base, at, statuses, lifetime.final_counts, lanes=0))
        )
        lag = max((decode(status.counters).lag for status in statuses), default=0.0)
        return msgspec.structs.replace(combine(self._before, self._most), lag=lag)


def fleet_metrics(
    snapshot: Snapshot,
    counted: FleetCounters | None = None,
    lifetime: LifetimeCounters = LifetimeCounters(),
    *,
    reachable: bool = True,
) -> str:
    """What `shoal serve` answers at /metrics. counted: kept between two looks, so that sums never fall."""
    return prometheus_text(fleet_families(snapshot, counted, lifetime, reachable=reachable))


def fleet_families(
    snapshot: Snapshot,
    counted: FleetCounters | None = None,
    lifetime: LifetimeCounters = LifetimeCounters(),
    *,
    reachable: bool = True,
) -> list[MetricFamily]:
    """The fleet as one look at the queue shows it; without a queue, nothing is said of it."""
    figures = (counted or FleetCounters()).update(snapshot.at, snapshot.alive, lifetime)
    memory = sum(status.memory for status in snapshot.alive)
    return [
        _build("coordinator"),
        MetricFamily("coordinator_queue_reachable", "gauge", "Whether the queue answers.").add(int(reachable)),
        *(_store_families(snapshot) if reachable else ()),
        *counter_families(figures, memory, "fleet_"),
        *exit_families(fleet_exits(snapshot.alive)),
        block_family(snapshot.alive),
    ]


def server_families(blocked_count: int, blocked_seconds: float) -> list[MetricFamily]:
    """Of one `shoal serve`."""
    times = MetricFamily("coordinator_event_loop_blocks_total", "counter", "Times the server's event loop was blocked.")
    seconds = MetricFamily(
        "coordinator_event_loop_blocked_seconds_total", "counter", "How long the server's event loop was blocked."
    )
    return [times.add(blocked_count), seconds.add(round(blocked_seconds, 3))]


def _store_families(snapshot: Snapshot) -> list[MetricFamily]:
    unfinished = [look for look in snapshot.runs if look.run.state in ("running", "paused")]
    return _queue_families(snapshot) + _run_families(unfinished[:MAX_RUNS])


def _queue_families(snapshot: Snapshot) -> list[MetricFamily]:
    totals, waited = snapshot.totals, max(0, snapshot.at - snapshot.oldest_at) / 1e6
    workers = MetricFamily("workers", "gauge", "Worker processes in the registry, by state.")
    for state, number in count_by_state(snapshot.workers, snapshot.at, snapshot.stale_after).items():
        workers.add(number, state=state)
    intake = MetricFamily("intake_messages_total", "counter", "Messages from RabbitMQ, by what became of them.")
    for result, number in msgspec.to_builtins(snapshot.intake).items():
        intake.add(number, result=result)
    return [
        MetricFamily("runs_unfinished", "gauge", "Runs that are not finished.").add(snapshot.unfinished),
        _by_state(MetricFamily("tasks", "gauge", "Tasks of all runs that are kept, by state."), totals),
        MetricFamily("claimable", "gauge", "Tasks that could be claimed right now.").add(totals.claimable),
        MetricFamily("oldest_waiting_seconds", "gauge", "Age of the task that has waited longest.").add(
            waited if snapshot.oldest_at else 0
        ),
        MetricFamily("records_waiting", "gauge", "Records of unfinished runs that are still in the queue.").add(
            snapshot.unfinished_totals.records - snapshot.unfinished_totals.trimmed
        ),
        MetricFamily("outbox_entries", "gauge", "Entries in the outboxes of unfinished runs, to be drained.").add(
            totals.outbox
        ),
        MetricFamily("hosts_parked", "gauge", "Hosts that get no requests because they failed.").add(
            len(snapshot.parked)
        ),
        MetricFamily("cache_entries", "gauge", "Responses in the response cache.").add(snapshot.cache.entries),
        MetricFamily("cache_bytes", "gauge", "Size of the response cache, compressed.").add(snapshot.cache.bytes),
        intake,
        workers,
        pressure_family(snapshot.alive),
        *machine_families(machine_views(snapshot.alive)),
        *scale_families(snapshot.scale),
    ]


def _run_families(looks: Iterable[RunSnapshot]) -> list[MetricFamily]:
    tasks = MetricFamily("run_tasks", "gauge", "Tasks of a run, by state; the newest unfinished runs.")
    claimable = MetricFamily("run_claimable", "gauge", "Tasks of a run that could be claimed right now.")
    records = MetricFamily("run_records", "gauge", "Records of a run.")
    paused = MetricFamily("run_paused", "gauge", "Whether the run is paused.")
    for look in looks:
        named = {"run": look.run.name, "scraper": look.run.scraper}
        _by_state(tasks, look.stats, **named)
        claimable.add(look.stats.claimable, **named)
        records.add(look.stats.records, **named)
        paused.add(int(look.run.state == "paused"), **named)
    return [tasks, claimable, records, paused]


def _by_state(family: MetricFamily, stats: Stats, **labels: str) -> MetricFamily:
    """Every task in exactly one state: what is delayed is not ready yet."""
    for state in TASK_STATES:
        number = stats.ready - stats.delayed if state == "ready" else getattr(stats, state)
        family.add(number, **labels, state=state)
    return family


def _build(role: str) -> MetricFamily:
    return MetricFamily("build_info", "gauge", "Version information.").add(1, version=__version__, role=role)
