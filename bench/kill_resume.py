"""Crawls that are killed with SIGKILL at a random moment and started again with the same command.

The victim is the supervisor, one worker, or the whole process group. Afterwards every page must be
in the output exactly once, the last command must have ended with 0, and at most the pages that were
in flight at the kill may have been fetched twice (the site counts).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import harness
import psutil

VICTIMS = ("supervisor", "worker", "group")


@dataclass
class Trial:
    """One crawl, its violent end and its resumption."""

    seed: int
    victim: str
    at: float  # seconds after the start
    fetched: int = 0  # pages at the kill
    starts: int = 1
    latency: float | None = None  # from the second start to its first page
    refetched: int = 0
    faults: list[str] = field(default_factory=list)


class Command:
    """`shoal run` in a session of its own."""

    def __init__(self, site: harness.Site, folder: Path, args: argparse.Namespace) -> None:
        argv, env = harness.shoal_run(site, folder / "out.jsonl", workers=args.workers, concurrency=args.concurrency)
        with (folder / "log.txt").open("ab") as log:
            self.started = time.time()
            self.process = subprocess.Popen(
                argv,
                cwd=folder,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self, timeout: float) -> int | None:
        """Its exit code, or None when it did not end in time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout)
        return None

    def kill(self, victim: str, rng: random.Random) -> str:
        """SIGKILL to the victim; says who it really was."""
        children: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.process.pid).children(recursive=True)
        if victim == "worker" and children:
            with contextlib.suppress(psutil.NoSuchProcess):
                rng.choice(children).kill()
            return "worker"
        if victim == "group":
            harness.kill_group(self.process.pid)
            return "group"
        os.kill(self.process.pid, signal.SIGKILL)
        return "supervisor"

    def left_behind(self) -> int:
        """Processes of this session that still live; ends them."""
        left = 0
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    left += 1
        harness.kill_group(self.process.pid)
        return left


def trial(seed: int, whole: float, site: harness.Site, folder: Path, args: argparse.Namespace) -> Trial:
    rng = random.Random(seed)
    done = Trial(seed, rng.choice(VICTIMS), rng.uniform(0.02, whole))
    site.ask("/__reset")
    commands = [Command(site, folder, args)]
    try:
        code = commands[0].end(done.at)
        if code is None:
            done.victim = commands[0].kill(done.victim, rng)
            done.fetched = site.ask("/__count")["pages"]
            # A lost worker is the supervisor's business: that command must get through by itself.
            code = commands[0].end(args.timeout if done.victim == "worker" else 30.0)
        else:
            done.victim = "nobody"
        if code != 0:
            site.ask("/__mark")
            commands.append(Command(site, folder, args))
            code = commands[-1].end(args.timeout)
            first_at = site.ask("/__count")["first_at"]
            done.latency = first_at - commands[-1].started if first_at else None
        done.starts = len(commands)
        done.faults = check(done, code, site, folder, args)
    finally:
        left = sum(command.left_behind() for command in commands)
    done.faults += [f"{left} processes left behind"] if left else []
    return done


def check(done: Trial, code: int | None, site: harness.Site, folder: Path, args: argparse.Namespace) -> list[str]:
    (hits,) = site.ask("/__hits").values()
    done.refetched = sum(count - 1 for count in hits if count > 1)
    faults = [f"exit code {code}"] if code != 0 else []
    if done.victim == "worker" and done.starts > 1:
        faults.append("the supervisor did not survive a lost worker")
    faults += [f"{hits.count(0)} pages never fetched"] if 0 in hits else []
    if done.refetched > args.in_flight:
        faults.append(f"{done.refetched} fetched again, {args.in_flight} could be in flight")
    return faults + check_output(folder / "out.jsonl", site, len(hits))


def check_output(out: Path, site: harness.Site, pages: int) -> list[str]:
    expected = {site.urls[0] + (f"p/{page}" if page else "") for page in range(pages)}
    seen: collections.Counter[str] = collections.Counter()
    torn = 0
    for line in out.read_bytes().splitlines() if out.exists() else ():
        try:
            seen[json.loads(line)["url"]] += 1
        except (ValueError, KeyError):
            torn += 1
    missing, doubled = len(expected - seen.keys()), sum(n - 1 for n in seen.values())
    faults = [f"{torn} broken lines"] if torn else []
    faults += [f"{missing} pages missing"] if missing else []
    faults += [f"{doubled} records doubled"] if doubled else []
    return faults + (["records of unknown pages"] if seen.keys() - expected else [])


def told(number: int, done: Trial) -> str:
    latency = "" if done.latency is None else f"  resumed in {done.latency:.2f} s"
    return (
        f"  {number:3}  seed {done.seed}  {done.victim:10} at {done.at:5.2f} s ({done.fetched:5,} pages)  "
        f"{done.refetched:3} again{latency}  {'; '.join(done.faults) or 'ok'}"
    )


def report(trials: list[Trial], whole: float, args: argparse.Namespace) -> str:
    resumed = [done.latency for done in trials if done.latency is not None]
    kinds = collections.Counter(done.victim for done in trials)
    again = [done.refetched for done in trials]
    most = f"{harness.quantile(again, 0.5)} / {max(again)}"
    soon = f"{harness.quantile(resumed, 0.5):.2f} / {max(resumed):.2f} s" if resumed else "-"
    rows = [
        ["crawls killed and resumed", f"{len(trials)} of {args.pages:,} pages", "50"],
        ["victims", ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()), "any"],
        ["crawls with a fault", str(sum(bool(done.faults) for done in trials)), "0"],
        ["pages fetched again, median / most", most, f"≤ {args.in_flight}"],
        ["resumed after, median / most", soon, "at once"],
        ["a whole crawl undisturbed", f"{whole:.2f} s", ""],
    ]
    return harness.table(["kill -9 and go on", "measured", "target"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=None, help="of the first run; the others count on")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--in-flight", type=int, help="default: workers × concurrency")
    parser.add_argument("--latency", type=float, default=0.0, metavar="MS", help="of the site")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds one command may take")
    parser.add_argument("--keep", type=Path, help="copy the folder of a failed run here")
    args = parser.parse_args()
    args.in_flight = args.in_flight or args.workers * args.concurrency
    first = random.SystemRandom().randrange(10**6) if args.seed is None else args.seed
    trials: list[Trial] = []
    with harness.site(args.pages, latency=args.latency) as site:
        whole = undisturbed(site, args)
        print(f"undisturbed {whole:.2f} s; seeds from {first}", flush=True)
        for number in range(args.runs):
            with harness.scratch() as folder:
                trials.append(trial(first + number, whole, site, folder, args))
                print(told(number + 1, trials[-1]), flush=True)
                if trials[-1].faults:
                    keep(folder, trials[-1], args.keep)
    text = report(trials, whole, args)
    print(f"\n{text}")
    result: dict[str, Any] = {"machine": harness.machine(), "arguments": {**vars(args), "keep": str(args.keep)}}
    harness.save("kill_resume", {**result, "trials": [asdict(done) for done in trials]}, text)
    return 1 if any(done.faults for done in trials) else 0


def undisturbed(site: harness.Site, args: argparse.Namespace) -> float:
    """How long a crawl takes that nobody kills: the time from which moments are drawn."""
    site.ask("/__reset")
    with harness.scratch() as folder:
        command = Command(site, folder, args)
        try:
            code = command.end(args.timeout)
            whole = time.time() - command.started
        finally:
            command.left_behind()
        faults = check_output(folder / "out.jsonl", site, args.pages) + ([f"exit code {code}"] if code else [])
        if faults:
            words = (folder / "log.txt").read_text(errors="replace")[-2000:]
            sys.exit(f"{words}\nan undisturbed crawl went wrong: {'; '.join(faults)}")
    return whole


def keep(folder: Path, done: Trial, where: Path | None) -> None:
    print((folder / "log.txt").read_text(errors="replace")[-2000:], file=sys.stderr)
    if where:
        shutil.copytree(folder, where / f"seed-{done.seed}", dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
