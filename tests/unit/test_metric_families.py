"""Metrics: how families are written, what they hold, and that sums of a fleet never fall."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from servers.prometheus import promtool

from shoal.cli.metrics import bundled_file
from shoal.control.history import LifetimeCounters
from shoal.control.history_sample import Baseline, Observation, measure
from shoal.core.counters import DURATION_BOUNDS, ERROR_CLASSES, Counters, WorkerCounters, encode
from shoal.core.lane import LaneState, WorkerStatus
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.view.metric_family import MetricFamily, prometheus_text
from shoal.view.metrics import MAX_RUNS, FleetCounters, fleet_families, fleet_metrics, server_families, worker_families
from shoal.view.snapshot import RunSnapshot, Snapshot
from shoal.worker.pool.totals import PoolTotals

DOCS = Path(__file__).parents[2] / "docs"
NAMES = re.compile(r"\bshoal_[a-z_]+")


def worker_status(id: str, figures: Counters | None = None, **more: Any) -> WorkerStatus:
    return WorkerStatus(
        id, id, "h", 1, "1", 0, more.pop("seen_at", 10**9), counters=encode(figures or Counters()), **more
    )


def run(number: int, **stats: int) -> RunSnapshot:
    return RunSnapshot(Run(number, f"r{number}", "books", "k", "running", 0, 0), "running", Stats(**stats))


SNAPSHOT = Snapshot(
    at=10**9,
    runs=(run(1, ready=7, delayed=3, leased=2, done=5, dead=1, claimable=4, records=6),),
    totals=Stats(ready=7, delayed=3, leased=2, done=5, dead=1, claimable=4, records=6, trimmed=1),
    workers=(worker_status("a", Counters(done=5, lag=0.5), memory=100), worker_status("b", state="idle", seen_at=0)),
    parked=(LaneState("h", 0, 0.0, 0.0, 0.0, 0, 0, 1, parked=True),),
    oldest_at=10**9 - 2_500_000,
    unfinished=1,
    stale_after=60.0,
    unfinished_totals=Stats(records=6, trimmed=1),
)


def samples(text: str) -> dict[str, float]:
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"}


def both() -> str:
    """Everything that exists, of a worker and of the server."""
    worker = "".join(map(str, worker_families("w", PoolTotals(), reachable=True, stopping=False)))
    return worker + fleet_metrics(SNAPSHOT) + prometheus_text(server_families(0, 0.0))


def test_histogram_counts_upwards_and_ends_with_all() -> None:
    family = MetricFamily("x", "histogram", "Words.").add_distribution((0.1, 1.0), (2, 0, 3), 9.5, a="b")
    assert str(family) == (
        "# HELP shoal_x Words.\n# TYPE shoal_x histogram\n"
        'shoal_x_bucket{a="b",le="0.1"} 2\nshoal_x_bucket{a="b",le="1"} 2\n'
        'shoal_x_bucket{a="b",le="+Inf"} 5\n'
        'shoal_x_sum{a="b"} 9.5\nshoal_x_count{a="b"} 5\n'
    )


def test_server_shows_what_the_store_holds() -> None:
    shown = samples(fleet_metrics(SNAPSHOT))
    states = {state: shown[f'shoal_tasks{{state="{state}"}}'] for state in ("ready", "delayed", "leased", "dead")}
    assert states == {"ready": 4, "delayed": 3, "leased": 2, "dead": 1}
    assert shown["shoal_claimable"] == 4
    assert shown["shoal_oldest_waiting_seconds"] == 2.5
    assert shown["shoal_hosts_parked"] == 1
    assert shown["shoal_records_waiting"] == 5
    assert shown['shoal_workers{state="working"}'] == 1
    assert shown['shoal_workers{state="stale"}'] == 1
    assert shown['shoal_run_tasks{run="r1",scraper="books",state="done"}'] == 5
    assert shown["shoal_fleet_tasks_done_total"] == 5
    assert shown["shoal_fleet_event_loop_lag_seconds"] == 0.5
    assert shown["shoal_fleet_memory_bytes"] == 100


def looked(base: Baseline, *marks: WorkerStatus, left: tuple[WorkerCounters, ...] = ()) -> Baseline:
    """The base after one more sample."""
    at = round(base.at * 1e6) + 10_000_000
    return measure(base, Observation(at, (), marks, {}, final_counts=left))[1]


def test_sums_of_a_fleet_never_fall_when_workers_come_and_go() -> None:
    counted, base = FleetCounters(), Baseline()
    rounds: tuple[list[WorkerStatus], ...] = (
        [worker_status("a", Counters(done=5)), worker_status("b", Counters(done=7, failed={"dns": 2}))],
        [worker_status("a", Counters(done=6))],
        [worker_status("a", Counters(done=6)), worker_status("c", Counters(done=1))],
        [worker_status("a", Counters(done=6)), worker_status("c", Counters(done=3, took=[2]))],
        [],
    )
    seen = []
    for marks in rounds:
        seen.append(counted.update(10**9, marks, LifetimeCounters(base)))
        base = looked(base, *marks)
        seen.append(counted.update(10**9, marks, LifetimeCounters(base)))
        seen.append(counted.update(10**9, (), LifetimeCounters(base)))  # they are away for a moment
    assert [one.done for one in seen] == [12] * 3 + [13] * 3 + [14] * 3 + [16] * 6
    assert seen[-1].failed == {"dns": 2} and seen[-1].took == [2]
    assert FleetCounters().update(10**9, (), LifetimeCounters(base)).done == 16, "the next server goes on from there"


def test_what_a_worker_left_counts_once_before_and_after_it_is_in_the_history() -> None:
    first = looked(Baseline(), worker_status("a", Counters(done=5)))
    left = (WorkerCounters("a", 0, 9, 0, Counters(done=9)), WorkerCounters("b", 0, 4, 0, Counters(done=4, took=[4])))
    later = looked(first, worker_status("a", Counters(done=8)), left=left)
    for base, marks, final_counts in (
        (first, (), left),
        (first, (worker_status("a", Counters(done=8)),), left),
        (later, (), left),
        (later, (worker_status("a", Counters(done=8)),), ()),
        (later, (), ()),
        (looked(looked(later, worker_status("a", Counters(done=8)), left=left)), (), ()),
    ):
        found = FleetCounters().update(10**7, marks, LifetimeCounters(base, final_counts))
        assert (found.done, found.took) == (13, [4])


def test_sums_go_on_when_the_history_was_removed() -> None:
    counted, base = FleetCounters(), looked(Baseline(), worker_status("a", Counters(done=50, asks=9)))
    assert counted.update(0, (), LifetimeCounters(base)).done == 50
    assert counted.update(0, (), LifetimeCounters()).done == 50
    anew = looked(Baseline(), worker_status("b", Counters(done=3, asks=1)))
    assert [counted.update(0, (), LifetimeCounters(anew)).done for _ in range(2)] == [53, 53]


def test_queue_that_does_not_answer_is_not_shown_as_an_empty_one() -> None:
    counted = FleetCounters()
    counted.update(SNAPSHOT.at, SNAPSHOT.workers)
    shown = samples(fleet_metrics(Snapshot(at=0), counted, reachable=False))
    assert shown["shoal_coordinator_queue_reachable"] == 0
    assert not [name for name in shown if name.startswith(("shoal_tasks", "shoal_workers", "shoal_claimable"))]
    assert shown["shoal_fleet_tasks_done_total"] == 5


def test_labels_are_few_whatever_there_is() -> None:
    crowd = Snapshot(
        at=0,
        runs=tuple(run(number) for number in range(3 * MAX_RUNS)),
        workers=tuple(worker_status(f"w{n}", state=f"odd{n}", seen_at=0) for n in range(200)),
    )
    families = fleet_families(crowd)
    labels = {name for family in families for sample in family.samples for name, _ in sample.labels}
    assert labels == {"class", "state", "run", "scraper", "version", "role", "level", "result"}
    runs = {dict(sample.labels).get("run") for family in families for sample in family.samples} - {None}
    assert len(runs) == MAX_RUNS
    size = sum(len(it.samples) for it in families)
    assert size < MAX_RUNS * 10 + 2 * len(ERROR_CLASSES) + 50
    assert all(len(it.bounds) <= len(DURATION_BOUNDS) for family in families for it in family.distributions)


def test_every_metric_of_the_dashboard_and_of_the_alerts_exists() -> None:
    known = set(NAMES.findall(both()))
    board, alerts = bundled_file("grafana"), bundled_file("alerts")
    asked = set(NAMES.findall(board)) | set(NAMES.findall(alerts))
    assert asked - known == set()
    assert {panel["type"] for panel in json.loads(board)["panels"]} <= {"row", "stat", "timeseries", "table"}


def test_dashboard_asks_nothing_that_prometheus_does_not_understand() -> None:
    targets = [it["expr"] for panel in json.loads(bundled_file("grafana"))["panels"] for it in panel.get("targets", ())]
    rules = [
        {"record": f"x:y{n}", "expr": expr.replace("$__rate_interval", "1m").replace("$run", ".*")}
        for n, expr in enumerate(targets)
    ]
    checked = promtool("check", "rules", "/dev/stdin", stdin=json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert len(targets) > 20


def test_prometheus_has_no_word_to_say_against_the_metrics() -> None:
    for families in (
        worker_families("w", PoolTotals(), reachable=True, stopping=False),
        fleet_families(SNAPSHOT),
        fleet_families(Snapshot(at=0)),
    ):
        checked = promtool("check", "metrics", stdin="".join(map(str, families)))
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_documentation_lists_every_metric_as_it_is_and_no_other() -> None:
    page = (DOCS / "metrics.md").read_text("utf-8")
    families = [*worker_families("w", PoolTotals(), reachable=True, stopping=False), *fleet_families(SNAPSHOT)]
    families += server_families(0, 0.0)
    rows = set(re.findall(r"^\| `(\w+)` \| (\w+) \| .*? \| (.*) \|$", page, re.MULTILINE))
    assert rows == {(family.name, family.kind, family.help) for family in families}
    assert all(f"`{name}`" in page for name in ERROR_CLASSES)


def test_documentation_says_what_to_do_about_every_alert() -> None:
    page = (DOCS / "metrics.md").read_text("utf-8")
    alerts = [rule["alert"] for rule in yaml.safe_load(bundled_file("alerts"))["groups"][0]["rules"]]
    assert re.findall(r"^\| `(Shoal\w+)` \|", page, re.MULTILINE) == alerts
