"""The autoscaler with real workers on Redis: how soon a fleet has its size, and what is fetched again when it shrinks.

Steps: a run is submitted to a quiet fleet; `shoal scale auto` (driver local) tells when it changed what. Size: the
evaluation, counted from the submission, with which the fleet had as many workers as the load takes by arithmetic
(--workers). Back: seconds from the run's end to the minimum, which the cool-down and two evaluations allow.

Cycles: in the middle of a run the fleet is brought to a size and to nothing, again and again, by `shoal scale set`;
the site counts how often each page was asked for. Drained by the driver local, or with SIGTERM by the driver command,
once with time enough to finish pages and once with less time than a page takes.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
import queues

AT_ONCE = 4  # pages of one worker
LATENCY = 0.5  # seconds
ROOM = ("--cpu-high", "1", "--workers-per-core", "100", "--memory-per-worker", "1MB")


class Fleet:
    """The commands of a person, in a folder of their own, for one queue."""

    def __init__(self, folder: Path, url: str, site: harness.Site) -> None:
        self.folder, self.site = folder, site
        self.environment = {
            **os.environ, "SHOAL_QUEUE": url, "SHOAL_ALLOW_PRIVATE": "1", "SHOAL_HEARTBEAT": "1s",
            "SHOAL_WORKERS": "1", "SHOAL_CONCURRENCY": str(AT_ONCE), "SHOAL_MEMORY_HIGH": "1",
        }  # fmt: skip

    def shoal(self, *words: str) -> Any:
        """What it printed, as JSON where it is."""
        argv = [str(harness.SHOAL), *words]
        done = subprocess.run(argv, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout) if "--json" in words else done.stdout

    def submit(self, pages: int) -> str:
        """A run over a part of the site that no run before has asked for."""
        origin = self.site.urls[0]
        (self.folder / "urls.txt").write_text("".join(f"{origin}p/{n}\n" for n in range(1, pages + 1)))
        free = ("--delay", "0", "--in-flight", "0", "--fresh")
        return str(self.shoal("submit", "urls.txt", "-f", "title=h1::text", *free, "--json")["run_id"])

    def wait_for_end(self, run: str) -> None:
        until(lambda: self.shoal("status", run, "--json")["state"] == "finished", 1800)

    def sizes(self) -> list[tuple[float, int]]:
        """(seconds since the epoch, workers wanted) of every change, the oldest first."""
        events = [it for it in self.shoal("scale", "history", "--limit", "200", "--json") if not it["problem"]]
        return [(datetime.datetime.fromisoformat(it["at"]).timestamp(), it["wanted"]) for it in reversed(events)]

    def workers(self) -> int:
        return sum(it["state"] in ("working", "idle") for it in self.shoal("workers", "--json"))

    def leave(self, *asked: str) -> None:
        """Nobody is left who would wait for a queue that is gone."""
        self.shoal("scale", "set", "0", *asked)
        until(lambda: not self.shoal("workers", "--json"))


def until(true: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise SystemExit("it did not happen in time")
        time.sleep(0.2)


# Steps


@contextlib.contextmanager
def scaler(fleet: Fleet, *options: str) -> Iterator[None]:
    argv = [str(harness.SHOAL), "scale", "auto", "--scaler", "local", *ROOM, *options]
    with (fleet.folder / "scaler.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=fleet.folder, env=fleet.environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)
        fleet.leave("--scaler", "local")


def step(fleet: Fleet, args: argparse.Namespace, policy: str, minimum: int, warm: bool) -> dict[str, Any]:
    interval, pages = args.interval, int(args.workers * AT_ONCE / LATENCY * args.interval * 4)
    options = ["--scale-policy", policy, "--min-workers", str(minimum), "--max-workers", str(2 * args.workers)]
    options += ["--scale-interval", f"{interval}s", "--scale-up-cooldown", f"{2 * interval}s"]
    options += ["--scale-down-cooldown", f"{10 * interval}s", "--scale-within", f"{4 * interval}s"]
    options += ["--scale-up-above", str(pages // args.workers), "--scale-down-below", "2"]
    with scaler(fleet, *options):
        until(lambda: fleet.workers() == minimum)
        time.sleep(3 * interval)  # what the start was is forgotten
        if warm:
            fleet.wait_for_end(fleet.submit(AT_ONCE * 8))
            until(lambda: fleet.workers() == minimum, 20 * interval)
            time.sleep(3 * interval)
        began = time.time()
        run = fleet.submit(pages)
        fleet.wait_for_end(run)
        ended = time.time()
        until(lambda: fleet.sizes()[-1][1] == minimum, 20 * interval)
        sizes = [(at, size) for at, size in fleet.sizes() if at >= began]
    at_size = next((at for at, size in sizes if size >= args.workers), math.inf)
    moves = [later - earlier for earlier, later in itertools.pairwise([minimum, *(size for _, size in sizes)])]
    return {
        "policy": policy, "from": minimum, "warm": warm, "sizes": [size for _, size in sizes],
        "evaluation": math.ceil((at_size - began) / interval) if at_size < math.inf else "never",
        "turns": sum((a > 0) != (b > 0) for a, b in itertools.pairwise(moves)),
        "back": sizes[-1][0] - ended, "cooldown": 10 * interval,
    }  # fmt: skip


# Cycles


def cycles(fleet: Fleet, args: argparse.Namespace, driver: str, grace: float) -> dict[str, Any]:
    fleet.environment |= {"SHOAL_STOP_GRACE": f"{grace}s"}
    asked = ("--scaler", driver, "--max-workers", str(args.workers))
    if driver == "command":
        me = f"{sys.executable} {__file__} --drive"
        asked += ("--scale-command", f"{me} {{count}}", "--scale-count-command", f"{me} count")
    before = fleet.site.ask("/__count")["hits"]
    run = fleet.submit(args.pages)
    in_flight = 0
    try:
        for _ in range(args.cycles):
            until(lambda: fleet.site.ask("/__count")["open"] == 0)
            fleet.shoal("scale", "set", str(args.workers), *asked)
            until(lambda: fleet.site.ask("/__count")["open"] >= args.workers * AT_ONCE // 2)
            fleet.shoal("scale", "set", "0", *asked)
            noted = fleet.folder / "stopped"
            in_flight += int(noted.read_text()) if noted.exists() else fleet.site.ask("/__count")["open"]
            until(lambda: fleet.workers() == 0)
        if fleet.shoal("status", run, "--json")["state"] == "finished":
            raise SystemExit("the run ended before the cycles did: more --pages")
        fleet.shoal("scale", "set", str(args.workers), *asked)
        fleet.wait_for_end(run)
    finally:
        fleet.leave(*asked)
    hits = fleet.site.ask("/__count")["hits"] - before
    done = fleet.shoal("status", run, "--json")["done"]
    return {
        "driver": driver, "grace": grace, "cycles": args.cycles, "pages": args.pages, "done": done,
        "in_flight": in_flight, "again": hits - args.pages,
    }  # fmt: skip


def drive(word: str) -> None:
    """A driver of one's own: starts workers, stops them with SIGTERM, and notes what the site was about to answer."""
    folder = Path.cwd()
    alive = [file for file in folder.glob("worker-*.pid") if Path(f"/proc/{file.read_text()}").exists()]
    if word == "count":
        print(len(alive))
        return
    for number in range(len(alive), int(word)):
        with (folder / "workers.log").open("ab") as log:
            process = subprocess.Popen([str(harness.SHOAL), "worker"], stdout=log, stderr=log, start_new_session=True)
        (folder / f"worker-{number}.pid").write_text(str(process.pid))
    going = alive[int(word) :]
    for file in going:
        os.kill(int(file.read_text()), signal.SIGTERM)
        file.unlink()
    if going:
        site = harness.Site((os.environ["BENCH_SITE"],))
        (folder / "stopped").write_text(str(site.ask("/__count")["open"]))


def main() -> int:
    if sys.argv[1:2] == ["--drive"]:
        drive(sys.argv[2])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interval", type=int, default=5, help="seconds between evaluations; cool-downs are 2 and 10")
    parser.add_argument("--workers", type=int, default=4, help="that a step takes, and that a cycle starts")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--pages", type=int, default=4000, help="of the run that the cycles interrupt")
    parser.add_argument("--only", default="step,cycle")
    args = parser.parse_args()
    result: dict[str, Any] = {"machine": harness.machine()}
    texts = []
    with harness.scratch() as folder, harness.site(100_000, latency=1000 * LATENCY) as site:

        def measure(job: Callable[..., dict[str, Any]], *more: Any) -> dict[str, Any]:
            place = folder / str(time.monotonic_ns())
            place.mkdir()
            with queues.redis_server(place) as url:
                fleet = Fleet(place, url, site)
                fleet.environment["BENCH_SITE"] = site.urls[0]
                found = job(fleet, args, *more)
            print(found, flush=True)
            return found

        if "step" in args.only:
            cases = [
                ("claimable", 1, True),
                ("claimable", 1, False),
                ("claimable", 0, False),
                ("jobs_per_worker", 1, False),
            ]
            found = result["steps"] = [measure(step, *case) for case in cases]
            head = ("step, driver local", "workers", "at size with evaluation (≤ 2)", "turns (≤ 1)", "back after (s)")
            texts.append(harness.table(head, [_step_row(one, args.interval) for one in found]))
        if "cycle" in args.only:
            drained = [("local", 30), ("command", 30), ("command", LATENCY / 2)]
            found = result["cycles"] = [measure(cycles, *case) for case in drained]
            head = ("cycles of 0 and more workers", "pages done", "in flight as they stopped", "fetched again")
            texts.append(harness.table(head, [_cycle_row(one) for one in found]))
    text = "\n\n".join(texts)
    print(f"\n{text}")
    harness.save("autoscale", result, text)
    return 0


def _step_row(one: dict[str, Any], interval: int) -> tuple[str, ...]:
    known = ", speed known" if one["warm"] else ""
    sizes = " → ".join(map(str, [one["from"], *one["sizes"]]))
    limit = one["cooldown"] + 2 * interval
    what = f"{one['policy']}, from {one['from']}{known}"
    return what, sizes, str(one["evaluation"]), str(one["turns"]), f"{one['back']:.0f} (≤ {limit})"


def _cycle_row(one: dict[str, Any]) -> tuple[str, ...]:
    how = "drained" if one["driver"] == "local" else f"SIGTERM, {one['grace']:g} s for pages of {LATENCY:g} s"
    limit = 0 if one["driver"] == "local" else one["in_flight"]
    return (
        f"{one['cycles']} × {how}", f"{one['done']:,} of {one['pages']:,}", str(one["in_flight"]),
        f"{one['again']} (≤ {limit})",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
