"""Metrics: the families that workers and the control room show. Names are kept from release to release.

No label holds a host, an address or anything else that a site could invent; runs are at most RUNS. A worker
counts itself (`shoal_…`); the control room adds up what workers say (`shoal_fleet_…`): no task counts twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shoal.control.history import Ledger
from shoal.control.sample import lives, total
from shoal.core.figures import CLASSES, SECONDS, SIZES, Figures, decode, highest, plus
from shoal.core.lane import Mark
from shoal.core.stats import Stats
from shoal.version import __version__
from shoal.view.family import Family, text
from shoal.view.snapshot import RunLook, Snapshot
from shoal.view.workers import by_state
from shoal.worker.totals import Totals

RUNS = 50
STATES = ("ready", "delayed", "leased", "done", "dead", "cancelled")


def worker_families(name: str, totals: Totals, *, reachable: bool, stopping: bool) -> list[Family]:
    """Of one `shoal worker` or `shoal run`, all its processes together, those that died included."""
    rows = (
        ("tasks_claimed_total", "counter", "Tasks taken from the queue.", totals.claimed),
        ("tasks_done_total", "counter", "Tasks done.", totals.done),
        ("tasks_failed_total", "counter", "Attempts that failed.", totals.failed),
        ("leases_lost_total", "counter", "Leases that were taken over by others.", totals.lost),
        ("children_deaths_total", "counter", "Worker processes that died.", totals.deaths),
        ("children", "gauge", "Worker processes alive.", totals.children),
        ("memory_bytes", "gauge", "Memory of the worker processes.", totals.memory),
        ("leases", "gauge", "Leases held.", totals.leases),
        ("step_seconds", "gauge", "How long the code under way has held its process up.", totals.step),
        ("queue_reachable", "gauge", "Whether the queue answers.", int(reachable)),
        ("stopping", "gauge", "Whether it was told to stop.", int(stopping)),
    )
    return [
        _build("worker"),
        *(Family(f"worker_{row[0]}", row[1], row[2]).add(row[3], worker=name) for row in rows),
        *figure_families(totals.figures, totals.memory),
    ]


def figure_families(figures: Figures, memory: int, of: str = "") -> list[Family]:
    """What was counted: by one worker, or with of="fleet_" by all."""
    failed = Family(f"{of}attempts_failed_total", "counter", "Attempts that failed, by class of error.")
    dead = Family(f"{of}dead_total", "counter", "Tasks given up, by class of error.")
    for name in CLASSES:  # all of them, also at 0: a rate needs a beginning
        failed.add(figures.failed.get(name, 0), **{"class": name})
        dead.add(figures.dead.get(name, 0), **{"class": name})
    took = Family(
        f"{of}attempt_seconds", "histogram", "How long attempts took, waiting for the host included."
    )
    size = Family(f"{of}answer_bytes", "histogram", "Sizes of answers, unpacked.")
    asks = Family(
        f"{of}queue_seconds", "summary", "How long the queue took to hand out and to take back work."
    )
    lag = Family(f"{of}event_loop_lag_seconds", "gauge", "Longest time that a process was held up lately.")
    return [
        Family(f"{of}tasks_done_total", "counter", "Tasks done.").add(figures.done),
        Family(f"{of}records_total", "counter", "Records taken from pages.").add(figures.records),
        failed,
        Family(f"{of}retries_total", "counter", "Failed attempts that will be made again.").add(
            figures.retries
        ),
        dead,
        Family(f"{of}leases_lost_total", "counter", "Leases taken over by others.").add(figures.lost),
        Family(f"{of}stale_settles_total", "counter", "Outcomes that came too late and were dropped.").add(
            figures.stale
        ),
        took.spread(SECONDS, figures.took, figures.took_sum),
        size.spread(SIZES, figures.size, figures.size_sum),
        asks.spread((), (figures.asks,), figures.ask_seconds),
        lag.add(figures.lag),
        Family(f"{of}memory_bytes", "gauge", "Memory of worker processes.").add(memory),
    ]


class FleetCount:
    """All that workers have ever counted, as the history keeps it: it never falls, whatever is seen late.

    Should the history begin anew, because somebody has removed it, the sums go on from where they were.
    """

    def __init__(self) -> None:
        self._before = Figures()  # of histories there were
        self._most = Figures()
        self._known = Figures()  # what the history had last

    def take(self, at: int, marks: Sequence[Mark], ledger: Ledger = Ledger()) -> Figures:
        base = ledger.base
        if base.at:
            if base.total.asks < self._known.asks or base.total.done < self._known.done:
                self._before, self._most = plus(self._before, self._most), Figures()
            self._known = base.total
        self._most = highest(self._most, total(base, lives(base, at, marks, ledger.farewells, lanes=0)))
        lag = max((decode(mark.figures).lag for mark in marks), default=0.0)
        return msgspec.structs.replace(plus(self._before, self._most), lag=lag)


def fleet_metrics(
    snapshot: Snapshot,
    counted: FleetCount | None = None,
    ledger: Ledger = Ledger(),
    *,
    reachable: bool = True,
) -> str:
    """What `shoal serve` answers at /metrics. counted: kept between two looks, so that sums never fall."""
    return text(fleet_families(snapshot, counted, ledger, reachable=reachable))


def fleet_families(
    snapshot: Snapshot,
    counted: FleetCount | None = None,
    ledger: Ledger = Ledger(),
    *,
    reachable: bool = True,
) -> list[Family]:
    """The fleet as one look at the queue shows it; without a queue, nothing is said of it."""
    figures = (counted or FleetCount()).take(snapshot.at, snapshot.alive, ledger)
    memory = sum(mark.memory for mark in snapshot.alive)
    return [
        _build("coordinator"),
        Family("coordinator_queue_reachable", "gauge", "Whether the queue answers.").add(int(reachable)),
        *(_store_families(snapshot) if reachable else ()),
        *figure_families(figures, memory, "fleet_"),
    ]


def _store_families(snapshot: Snapshot) -> list[Family]:
    unfinished = [look for look in snapshot.runs if look.run.state in ("running", "paused")]
    return _queue_families(snapshot) + _run_families(unfinished[:RUNS])


def _queue_families(snapshot: Snapshot) -> list[Family]:
    totals, waited = snapshot.totals, max(0, snapshot.at - snapshot.oldest_at) / 1e6
    workers = Family("workers", "gauge", "Worker processes in the registry, by state.")
    for state, number in by_state(snapshot.workers, snapshot.at, snapshot.stale_after).items():
        workers.add(number, state=state)
    return [
        Family("runs_unfinished", "gauge", "Runs that are not finished.").add(snapshot.unfinished),
        _by_state(Family("tasks", "gauge", "Tasks of unfinished runs, by state."), totals),
        Family("claimable", "gauge", "Tasks that could be handed out this second.").add(totals.claimable),
        Family("oldest_waiting_seconds", "gauge", "Age of the task that has waited longest.").add(
            waited if snapshot.oldest_at else 0
        ),
        Family("records_waiting", "gauge", "Records of unfinished runs that are still in the queue.").add(
            totals.records - totals.trimmed
        ),
        Family("hosts_parked", "gauge", "Hosts that are left alone because they fail.").add(
            len(snapshot.parked)
        ),
        workers,
    ]


def _run_families(looks: Iterable[RunLook]) -> list[Family]:
    tasks = Family("run_tasks", "gauge", "Tasks of a run, by state; the newest unfinished runs.")
    claimable = Family("run_claimable", "gauge", "Tasks of a run that could be handed out this second.")
    records = Family("run_records", "gauge", "Records of a run.")
    paused = Family("run_paused", "gauge", "Whether a person has paused the run.")
    for look in looks:
        named = {"run": look.run.name, "scraper": look.run.scraper}
        _by_state(tasks, look.stats, **named)
        claimable.add(look.stats.claimable, **named)
        records.add(look.stats.records, **named)
        paused.add(int(look.run.state == "paused"), **named)
    return [tasks, claimable, records, paused]


def _by_state(family: Family, stats: Stats, **labels: str) -> Family:
    """Every task in exactly one state: what is delayed is not ready yet."""
    for state in STATES:
        number = stats.ready - stats.delayed if state == "ready" else getattr(stats, state)
        family.add(number, **labels, state=state)
    return family


def _build(role: str) -> Family:
    return Family("build_info", "gauge", "What is running.").add(1, version=__version__, role=role)
