"""`shoal scale`: a scaler starts and drains real workers, one acts at a time, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from local_fleet import LocalFleet, stop_process, wait_for_line
from scaled_fleet import QUICK, scaled_fleet, status_of
from small_site import GatedPage, page, slow_page
from wait import wait_until

from shoal.cli.main import main
from shoal.config.load import load
from shoal.launch.scaler import scale_limits

POLICY = ("--scale-policy", "jobs_per_worker", "--scale-up-above", "5", "--max-workers", "8", "--", "--concurrency=2")


def test_step_of_the_load_brings_workers_and_its_end_drains_them_and_a_restart_forgets_nobody(
    redis_fleet: LocalFleet,
) -> None:
    gate = GatedPage()
    redis_fleet.site.pages["/p/*"] = gate
    with scaled_fleet(redis_fleet) as scaled:
        run = redis_fleet.submit([f"/p/{n}" for n in range(15)])
        scaler = scaled.scaler(*POLICY)
        wait_until(lambda: scaled.registered() == 3)  # 15 tasks, 5 for each
        before = {worker.pid for worker in scaled.processes()}
        scaler.kill()
        second = scaled.scaler(*POLICY)
        wait_for_line(second, "3 workers")
        assert {worker.pid for worker in scaled.processes()} == before
        gate.open.set()
        redis_fleet.finished(run)
        wait_until(lambda: not scaled.processes())
        assert set(scaled.hits(run).values()) == {1}  # nothing was done twice
        assert redis_fleet.stats(run).done == 15
        sizes = [event.wanted for event in scaled.events()]
        assert sizes[0] == 3  # at its size with the first evaluation
        assert sizes == [3, *sorted(sizes[1:], reverse=True)]  # and then only down
        assert sizes[-1] == 0
        assert stop_process(second).code == 0


def test_one_scaler_acts_while_others_stand_by_and_does_what_people_set(sqlite_fleet: LocalFleet) -> None:
    with scaled_fleet(sqlite_fleet) as scaled:
        first = scaled.scaler("--max-workers", "3")
        wait_for_line(first, "0 workers")
        second = scaled.scaler("--max-workers", "3")
        wait_for_line(second, "standing by")
        told = sqlite_fleet.user.shoal("scale", "set", "1")
        assert (told.code, "keeps 1 worker" in told.out) == (0, True), told
        wait_until(scaled.processes)
        assert "set to 1 by" in str(wait_until(lambda: status_of(sqlite_fleet))["decision"])
        refused = sqlite_fleet.user.shoal("scale", "set", "9")
        assert (refused.code, "more than the maximum, 3" in refused.err) == (2, True)
        os.kill(first.pid, signal.SIGKILL)
        wait_for_line(second, "1 worker")  # takes over at once, and keeps to what was set
        assert sqlite_fleet.user.shoal("scale", "set", "auto").code == 0
        wait_until(lambda: not scaled.processes())
        history = sqlite_fleet.user.shoal("scale", "history")
        assert "0 → 1" in history.out
        assert "1 → 0" in history.out


def test_the_last_number_that_a_person_set_counts_also_if_no_scaler_acts(sqlite_fleet: LocalFleet) -> None:
    with scaled_fleet(sqlite_fleet) as scaled:
        first = scaled.scaler()
        wait_for_line(first, "0 workers")
        assert sqlite_fleet.user.shoal("scale", "set", "1").code == 0
        wait_until(scaled.processes)
        assert stop_process(first).code == 0
        assert sqlite_fleet.user.shoal("scale", "set", "0", "--scaler", "local").code == 0
        assert status_of(sqlite_fleet)["fixed_workers"] == 0  # what the next scaler will keep to
        wait_until(lambda: not scaled.processes())


def test_idle_workers_go_first_and_a_busy_one_finishes(sqlite_fleet: LocalFleet) -> None:
    gate = GatedPage()
    sqlite_fleet.site.pages["/p/*"] = gate
    with scaled_fleet(sqlite_fleet) as scaled:
        scaled.scaler("--min-workers", "2")
        wait_until(lambda: scaled.registered() == 2)
        run = sqlite_fleet.submit(["/p/1"])
        gate.asked.acquire()
        (busy,) = wait_until(lambda: [it.name for it in sqlite_fleet.workers() if it.leased])
        assert sqlite_fleet.user.shoal("scale", "set", "1").code == 0
        wait_until(lambda: len(scaled.processes()) == 1)
        assert busy.startswith(scaled.processes()[0].name)
        assert sqlite_fleet.user.shoal("scale", "set", "0").code == 0
        wait_until(lambda: all(it.draining_at for it in scaled.processes()))
        gate.open.set()
        wait_until(lambda: not scaled.processes())
        assert (sqlite_fleet.stats(run).done, scaled.hits(run)) == (1, {"/p/1": 1})


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    code = sqlite_fleet.scraper()
    sqlite_fleet.submit(["/p/1"])
    done = sqlite_fleet.user.shoal("scale", "auto", code, *QUICK, "--dry-run", "--once")
    assert done.code == 0
    assert "would go 0 → 1 workers: hosts allow 1 page" in done.err
    assert status_of(sqlite_fleet)["driver"] is None
    assert sqlite_fleet.workers() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--scaler", "none"), "no driver is given"),
        (("--scaler", "swarm"), "what should swarm scale?"),
        (("--scaler", "compose", "--scale-target", "--verbose"), "the name of a service or deployment"),
        (("--scaler", "swarm", "--scale-target", "a b"), "the name of a service or deployment"),
        (("--scaler", "local", "--min-workers", "5", "--max-workers", "2"), "more than --max-workers 2"),
        (("--scaler", "command", "--scale-command", "x"), "where the number goes"),
        (("--scaler", "kubernetes", "--scale-target", "w"), "no pod of a Kubernetes cluster"),
        (("--scale-policy", "guess"), "claimable, jobs_per_worker or per_pending"),
    ],
)
@pytest.mark.usefixtures("clean_folder")
def test_what_cannot_work_is_said_before_anything_begins(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert main(["scale", "auto", *options, "--once"]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_worker_that_cannot_start_is_seen_and_not_started_for_ever(sqlite_fleet: LocalFleet) -> None:
    with scaled_fleet(sqlite_fleet) as scaled:
        scaled.code = "missing.py"
        scaler = scaled.scaler("--min-workers", "1")
        wait_for_line(scaler, "workers die as soon as they start")
        assert "missing.py" in str(status_of(sqlite_fleet)["problem"])
        stop_process(scaler)


def test_the_example_of_a_scaler_has_the_thresholds_it_says(sqlite_fleet: LocalFleet) -> None:
    example = Path(__file__).parents[2] / "examples" / "fleet" / "scaling.toml"
    settings = load({}, env={}, file=str(example))
    limits = scale_limits(settings)
    assert (limits.policy, limits.minimum, limits.maximum) == ("jobs_per_worker", 2, 20)
    assert (limits.up_above, limits.down_below, limits.interval) == (10, 2, 30)
    assert (limits.up_cooldown, limits.down_cooldown) == (60, 300)
    done = sqlite_fleet.user.shoal("scale", "auto", "--config", str(example), "--dry-run", "--once")
    assert (done.code, "would go 0 → 2 workers" in done.err) == (0, True), done


def test_worker_of_a_full_machine_claims_nothing_and_everybody_is_told(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    run = sqlite_fleet.submit(["/p/1"])
    code = sqlite_fleet.scraper()
    full = sqlite_fleet.worker(code, "--disk-reserve", "9000TB", "--heartbeat", "300ms")
    (status,) = wait_until(sqlite_fleet.workers)
    assert status.activity.startswith("claims nothing: ")
    advice = sqlite_fleet.user.shoal("advice", "--json").json["advice"]
    assert any(it["kind"] == "resources_low" and it["level"] == "act" for it in advice)
    assert (sqlite_fleet.stats(run).ready, sqlite_fleet.site.hits) == (1, [])
    assert stop_process(full).code == 0
    said = sqlite_fleet.user.shoal("resources", "--json", "--pending", "5").json
    assert said["cores"] > 0
    assert said["pending"] == 5


def test_limits_of_the_machine_that_the_scaler_is_given_hold_for_its_workers(sqlite_fleet: LocalFleet) -> None:
    with scaled_fleet(sqlite_fleet) as scaled:
        limit = ("--scaler", "local", "--disk-reserve", "9000TB")
        assert sqlite_fleet.user.shoal("scale", "set", "1", *limit, "--", scaled.code).code == 0
        wait_until(lambda: any(it.activity.startswith("claims nothing: ") for it in sqlite_fleet.workers()))
        assert "of disk free" in sqlite_fleet.user.shoal("resources", *limit[2:]).out


# Starts workers, and stops them with SIGTERM: what a driver does that cannot drain.
DRIVE = """
import os, pathlib, signal, subprocess, sys

alive = [file for file in sorted(pathlib.Path().glob("*.pid")) if pathlib.Path("/proc", file.read_text()).exists()]
if sys.argv[1] == "count":
    sys.exit(print(len(alive)))
for number in range(len(alive), int(sys.argv[1])):
    with open(f"{number}.log", "ab") as log:
        made = subprocess.Popen([*sys.argv[2:]], stdout=log, stderr=log, start_new_session=True)
    pathlib.Path(f"{number}.pid").write_text(str(made.pid))
for file in alive[int(sys.argv[1]):]:
    os.kill(int(file.read_text()), signal.SIGTERM)
    file.unlink()
"""


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.faults)])
def test_where_sigterm_is_the_drain_only_what_was_in_progress_is_done_again(
    redis_fleet: LocalFleet, times: int
) -> None:
    fleet, workers, at_once = redis_fleet, 2, 2
    program = f"{sys.executable} drive.py"
    start = f"{sys.executable} -P -m shoal worker {fleet.scraper()} --concurrency {at_once} --stop-grace 300ms"
    asked = ("--scaler", "command", "--scale-command", f"{program} {{count}} {start}")
    asked += ("--scale-count-command", f"{program} count")
    (fleet.user.folder / "drive.py").write_text(DRIVE)
    gate = GatedPage()
    fleet.site.pages["/p/*"] = gate
    run = fleet.submit([f"/p/{n}" for n in range(20)])

    def scale(number: int) -> None:
        assert fleet.user.shoal("scale", "set", str(number), *asked).code == 0

    try:
        for _ in range(times):
            scale(workers)
            for _ in range(workers * at_once):
                gate.asked.acquire()
            scale(0)  # nobody can finish what the site does not answer
            wait_until(lambda: not fleet.workers())
            assert fleet.stats(run).leased == 0  # handed back, not left to expire
        gate.open.set()
        scale(workers)
        fleet.finished(run)
    finally:
        gate.open.set()
        scale(0)
    again = sum(hit.path.startswith("/p/") for hit in fleet.site.hits) - 20
    assert again <= times * workers * at_once
    assert (fleet.stats(run).done, len(fleet.records(run)), fleet.stats(run).lost) == (20, 20, 0)


@pytest.mark.faults
def test_twenty_times_up_and_down_nothing_is_done_twice(redis_fleet: LocalFleet) -> None:
    redis_fleet.site.pages["/p/*"] = slow_page(0.05)
    with scaled_fleet(redis_fleet) as scaled:
        scaled.scaler(*POLICY)
        runs = []
        for cycle in range(20):
            runs.append(redis_fleet.submit([f"/p/{cycle}-{n}" for n in range(40)]))
            redis_fleet.finished(runs[-1])
            if cycle % 2:
                wait_until(lambda: not scaled.processes())
            else:
                time.sleep(0.5)  # the next step comes while some of them drain
        wait_until(lambda: not scaled.processes())
        hits = scaled.hits(runs[0])
        assert len(hits) == 20 * 40
        assert set(hits.values()) == {1}
        assert all(redis_fleet.stats(run).done == 40 for run in runs)
