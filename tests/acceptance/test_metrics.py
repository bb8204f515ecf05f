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

from flotilla import Fleet, ended
from servers.prometheus import prometheus, promtool
from small_site import Hit, Said, page
from user import until

from shoal.cli.metrics import kept
from shoal.core.figures import decode

STUCK = """
import time
import shoal

stuck = shoal.Scraper("stuck", start="{url}")

@stuck.page("*")
def page(page):
    time.sleep(60 if page.url.endswith("/stuck") else 0)
    yield {{{{"url": page.url}}}}
"""


def place_of(worker: subprocess.Popen[str]) -> str:
    assert worker.stderr is not None
    return worker.stderr.readline().rpartition("http://")[2].partition("/health")[0]


def room_of(room: subprocess.Popen[str]) -> str:
    assert room.stderr is not None
    return room.stderr.readline().rpartition("http://")[2].strip().rstrip("/")


def metrics(place: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{place}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:  # a control room that waits for its queue
        with error:
            return ""


def samples(text: str) -> dict[str, float]:
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def sum_of(shown: dict[str, float], name: str) -> float:
    return sum(value for sample, value in shown.items() if sample.partition("{")[0] == name)


def quick_rules() -> str:
    """The same alerts, within seconds."""
    rules = re.sub(r"\[\d+m\]", "[8s]", kept("alerts"))
    rules = re.sub(r"for: \w+", "for: 1s", rules).replace("offset 10m", "offset 8s")
    return rules.replace("shoal_worker_step_seconds) > 15", "shoal_worker_step_seconds) > 1")


def sometimes(hit: Hit) -> Said:
    time.sleep(0.01)
    return page("x") if int(hit.path.rpartition("/")[2]) % 4 else (404, {}, b"gone")


def test_figures_equal_the_store_and_never_fall_though_processes_are_killed(small: Fleet) -> None:
    small.site.pages["/p/*"] = sometimes
    run = small.submit([f"/p/{n}" for n in range(300)])
    worker = small.worker(
        small.scraper(), "--health", "0", "--heartbeat", "0.3s", "--concurrency", "4", SHOAL_WORKERS="2"
    )
    place, seen, over = place_of(worker), list[dict[str, float]](), threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            seen.append(samples(metrics(place)))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        until(lambda: small.stats(run).done > 40)
        os.kill(small.workers()[0].pid, signal.SIGKILL)
        small.finished(run)
    finally:
        over.set()
        watching.join(10)
    for before, after in itertools.pairwise(seen):
        for name, value in before.items():
            if name.partition("{")[0].endswith(("_total", "_sum", "_count", "_bucket")):
                assert after[name] >= value, name

    stats = small.stats(run)
    assert (stats.done, stats.dead) == (225, 75)
    # Between the queue's word and the note of a process that is killed there is a moment.
    until(lambda: samples(metrics(place))["shoal_tasks_done_total"] >= stats.done - 8)
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
    checked = promtool("check", "metrics", given=text)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    os.kill(worker.pid, signal.SIGTERM)
    assert ended(worker).code == 0


def test_command_says_what_the_store_holds(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    run = small.submit([f"/p/{n}" for n in range(9)])
    small.user.shoal("pause", run.name)
    said = small.user.shoal("metrics")
    shown = samples(said.out)
    assert said.code == 0
    assert shown['shoal_tasks{state="ready"}'] == 9 == small.stats(run).ready
    assert shown[f'shoal_run_paused{{run="{run.name}",scraper="plain"}}'] == 1
    checked = promtool("check", "metrics", given=said.out)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    room = small.user.start("serve", "--listen", "0")
    place = room_of(room)
    until(lambda: "shoal_tasks" in metrics(place))
    text = metrics(place)
    same = ("shoal_tasks", "shoal_run_", "shoal_claimable", "shoal_workers", "shoal_fleet_")
    assert {name: value for name, value in samples(text).items() if name.startswith(same)} == {
        name: value for name, value in shown.items() if name.startswith(same)
    }
    checked = promtool("check", "metrics", given=text)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    room.terminate()
    assert room.wait(20) == 0
    assert small.user.shoal("metrics", "alerts").out == kept("alerts")
    assert small.user.shoal("metrics", "grafana").json["uid"] == "shoal-fleet"
    assert small.user.shoal("metrics", "nonsense").code == 2


def test_registry_carries_the_figures_of_workers_on_every_queue(fleet: Fleet) -> None:
    fleet.site.pages |= {"/p/*": page("x"), "/gone": (404, {}, b"")}
    run = fleet.submit([*(f"/p/{n}" for n in range(9)), "/gone"])
    worker = fleet.worker(fleet.scraper(), "--heartbeat", "0.2s")
    fleet.finished(run)
    shown: dict[str, float] = {}

    def told() -> bool:
        shown.update(samples(fleet.user.shoal("metrics").out))
        return shown["shoal_fleet_tasks_done_total"] == 9

    until(told)
    assert shown['shoal_fleet_dead_total{class="http.404"}'] == 1
    assert shown["shoal_fleet_attempt_seconds_count"] == 10
    assert shown["shoal_fleet_memory_bytes"] > 10_000_000
    assert sum_of(shown, "shoal_workers") == 1
    (mark,) = fleet.workers()
    assert decode(mark.figures).lanes[fleet.site.lane].done == 9
    os.kill(worker.pid, signal.SIGTERM)
    assert ended(worker).code == 0


def test_real_prometheus_calls_out_for_a_stuck_worker_and_for_a_burst_of_errors(small: Fleet) -> None:
    small.site.pages |= {"/bad/*": (404, {}, b"gone"), "/good/*": page("x"), "/stuck": page("x")}
    worker = small.worker(
        small.scraper("stuck", STUCK), "--health", "0", "--heartbeat", "0.3s", SHOAL_WORKERS="1"
    )
    room = small.user.start("serve", "--listen", "0")
    targets = {"shoal-workers": place_of(worker), "shoal-room": room_of(room)}
    with prometheus(targets, quick_rules(), every="500ms") as server:
        good = small.submit([f"/good/{n}" for n in range(30)], scraper="stuck")
        small.finished(good)
        until(lambda: server.value("sum(shoal_tasks_done_total)") == 30)
        assert server.firing() == set()
        small.submit([f"/bad/{n}" for n in range(120)], scraper="stuck")
        until(lambda: "ShoalErrorBurst" in server.firing(), 20)
        assert server.value('shoal_dead_total{class="http.404"}') > 20
        small.submit(["/stuck"], scraper="stuck")
        until(lambda: "ShoalWorkerStuck" in server.firing(), 20)
        assert server.value("max(shoal_event_loop_lag_seconds)") > 1
        assert len(server.healthy()) == 2
        assert server.value("max(shoal_fleet_tasks_done_total)") == 30  # told before it got stuck
        os.kill(worker.pid, signal.SIGTERM)
        os.kill(worker.pid, signal.SIGINT)
        ended(worker)
        until(lambda: "ShoalWorkerGone" in server.firing(), 20)
    room.terminate()
    assert room.wait(20) == 0
