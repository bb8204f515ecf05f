"""Figures of real workers on real crawls: they equal the store, never fall, and alert a real Prometheus."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

from local_fleet import LocalFleet, wait_for_exit
from servers.prometheus import prometheus, promtool
from small_site import Hit, Reply, page
from wait import HANG, wait_until

from shoal.cli.metrics import bundled_file
from shoal.core.counters import decode

STUCK = """
import time
import shoal

stuck = shoal.Scraper("stuck", start="{url}")

@stuck.page("*")
def page(page):
    time.sleep(60 if page.url.endswith("/stuck") else 0)
    yield {{{{"url": page.url}}}}
"""


def health_address(worker: subprocess.Popen[str]) -> str:
    assert worker.stderr is not None
    return worker.stderr.readline().rpartition("http://")[2].partition("/health")[0]


def server_address(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    return server.stderr.readline().rpartition("http://")[2].strip().rstrip("/")


def metrics(place: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{place}/metrics", timeout=HANG) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:  # a server that waits for its queue
        with error:
            return ""


def samples(text: str) -> dict[str, float]:
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def sum_of(shown: dict[str, float], name: str) -> float:
    return sum(value for sample, value in shown.items() if sample.partition("{")[0] == name)


def quick_rules() -> str:
    """The same alerts, within seconds."""
    rules = re.sub(r"\[\d+m\]", "[8s]", bundled_file("alerts"))
    rules = re.sub(r"for: \w+", "for: 1s", rules).replace("offset 10m", "offset 8s")
    return rules.replace("shoal_worker_step_seconds) > 15", "shoal_worker_step_seconds) > 3")


def sometimes(hit: Hit) -> Reply:
    time.sleep(0.01)
    return page("x") if int(hit.path.rpartition("/")[2]) % 4 else (404, {}, b"gone")


def test_figures_equal_the_store_and_never_fall_though_processes_are_killed(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = sometimes
    run = sqlite_fleet.submit([f"/p/{n}" for n in range(300)])
    worker = sqlite_fleet.worker(
        sqlite_fleet.scraper(), "--health", "0", "--heartbeat", "0.3s", "--concurrency", "4", SHOAL_WORKERS="2"
    )
    place, seen, over = health_address(worker), list[dict[str, float]](), threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            seen.append(samples(metrics(place)))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        wait_until(lambda: sqlite_fleet.stats(run).done > 40)
        os.kill(sqlite_fleet.workers()[0].pid, signal.SIGKILL)
        sqlite_fleet.finished(run)
    finally:
        over.set()
        watching.join(HANG)
    for before, after in itertools.pairwise(seen):
        for name, value in before.items():
            if name.partition("{")[0].endswith(("_total", "_sum", "_count", "_bucket")):
                assert after[name] >= value, name

    stats = sqlite_fleet.stats(run)
    assert (stats.done, stats.dead) == (225, 75)
    # Between the queue's word and the note of a process that is killed there is a moment.
    wait_until(lambda: samples(metrics(place))["shoal_tasks_done_total"] >= stats.done - 8)
    text = metrics(place)
    shown = samples(text)
    assert shown["shoal_tasks_done_total"] <= stats.done
    assert stats.dead - 8 <= sum_of(shown, "shoal_dead_total") <= stats.dead
    assert shown['shoal_dead_total{class="http.404"}'] == sum_of(shown, "shoal_attempts_failed_total")
    attempts = shown["shoal_tasks_done_total"] + sum_of(shown, "shoal_attempts_failed_total")
    assert shown["shoal_attempt_seconds_count"] == attempts == shown["shoal_answer_bytes_count"]
    assert shown["shoal_attempt_seconds_sum"] > 0.01 * attempts
    assert shown["shoal_queue_seconds_count"] > 5
    assert sum_of(shown, "shoal_worker_children_deaths_total") == 1
    assert shown["shoal_memory_bytes"] > 10_000_000
    checked = promtool("check", "metrics", stdin=text)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    os.kill(worker.pid, signal.SIGTERM)
    assert wait_for_exit(worker).code == 0


def test_command_says_what_the_store_holds(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    run = sqlite_fleet.submit([f"/p/{n}" for n in range(9)])
    sqlite_fleet.user.shoal("pause", run.name)
    said = sqlite_fleet.user.shoal("metrics")
    shown = samples(said.out)
    assert said.code == 0
    assert shown['shoal_tasks{state="ready"}'] == 9 == sqlite_fleet.stats(run).ready
    assert shown[f'shoal_run_paused{{run="{run.name}",scraper="plain"}}'] == 1
    checked = promtool("check", "metrics", stdin=said.out)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    server = sqlite_fleet.user.start("serve", "--listen", "0")
    place = server_address(server)
    wait_until(lambda: "shoal_tasks" in metrics(place))
    text = metrics(place)
    same = ("shoal_tasks", "shoal_run_", "shoal_claimable", "shoal_workers", "shoal_fleet_")
    assert {name: value for name, value in samples(text).items() if name.startswith(same)} == {
        name: value for name, value in shown.items() if name.startswith(same)
    }
    checked = promtool("check", "metrics", stdin=text)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    server.terminate()
    assert server.wait(HANG) == 0
    assert sqlite_fleet.user.shoal("metrics", "alerts").out == bundled_file("alerts")
    assert sqlite_fleet.user.shoal("metrics", "grafana").json["uid"] == "shoal-fleet"
    assert sqlite_fleet.user.shoal("metrics", "nonsense").code == 2


def test_registry_carries_the_figures_of_workers_on_every_queue(fleet: LocalFleet) -> None:
    fleet.site.pages |= {"/p/*": page("x"), "/gone": (404, {}, b"")}
    run = fleet.submit([*(f"/p/{n}" for n in range(9)), "/gone"])
    worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.2s")
    fleet.finished(run)
    shown: dict[str, float] = {}

    def told() -> bool:
        shown.update(samples(fleet.user.shoal("metrics").out))
        # The last page may come with a later heartbeat than the others.
        return shown["shoal_fleet_attempt_seconds_count"] == 10

    wait_until(told)
    assert shown["shoal_fleet_tasks_done_total"] == 9
    assert shown['shoal_fleet_dead_total{class="http.404"}'] == 1
    assert shown["shoal_fleet_memory_bytes"] > 10_000_000
    assert sum_of(shown, "shoal_workers") == 1
    (mark,) = fleet.workers()
    assert decode(mark.counters).lanes[fleet.site.lane].done == 9
    os.kill(worker.pid, signal.SIGTERM)
    assert wait_for_exit(worker).code == 0


def test_real_prometheus_calls_out_for_a_stuck_worker_and_for_a_burst_of_errors(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages |= {"/bad/*": (404, {}, b"gone"), "/good/*": page("x"), "/stuck": page("x")}
    worker = sqlite_fleet.worker(
        sqlite_fleet.scraper("stuck", STUCK), "--health", "0", "--heartbeat", "0.3s", SHOAL_WORKERS="1"
    )
    server = sqlite_fleet.user.start("serve", "--listen", "0")
    targets = {"shoal-workers": health_address(worker), "shoal-room": server_address(server)}
    with prometheus(targets, quick_rules(), every="1s") as monitor:
        good = sqlite_fleet.submit([f"/good/{n}" for n in range(30)], scraper="stuck")
        sqlite_fleet.finished(good)
        wait_until(lambda: monitor.value("sum(shoal_tasks_done_total)") == 30)
        assert monitor.firing() == set()
        sqlite_fleet.submit([f"/bad/{n}" for n in range(120)], scraper="stuck")
        wait_until(lambda: "ShoalErrorBurst" in monitor.firing())
        assert monitor.value('shoal_dead_total{class="http.404"}') > 20
        sqlite_fleet.submit(["/stuck"], scraper="stuck")
        wait_until(lambda: "ShoalWorkerStuck" in monitor.firing())
        assert monitor.value("max(shoal_event_loop_lag_seconds)") > 1
        wait_until(lambda: len(monitor.healthy()) == 2)  # one that was late for a look is asked again
        assert monitor.value("max(shoal_fleet_tasks_done_total)") == 30  # told before it got stuck
        os.kill(worker.pid, signal.SIGTERM)
        os.kill(worker.pid, signal.SIGINT)
        wait_for_exit(worker)
        wait_until(lambda: "ShoalWorkerGone" in monitor.firing())
    server.terminate()
    assert server.wait(HANG) == 0
