"""Whole crawls of the same site by shoal and its peers, interleaved, in pages per CPU-second.

Every contender crawls the bench site from `/`, follows every link once, extracts four fields, obeys
robots.txt and writes one JSON line per page. A round runs a calibration job and then each contender
once; ratios are taken within a round. With --polite the site takes 100 ms to answer and one request
per 0.1 s and host is allowed: then all should take the same time, and CPU is what differs.
"""

from __future__ import annotations

import argparse
import compileall
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import harness

TARGETS = {"scrapy": 8.0, "scrapy-lexbor": 4.0, "crawlee-sql": 20.0, "crawlee-memory": 8.0, "crawlee-http": 1.5}
SCRIPTS = {
    "scrapy": ("scrapy_css.py",),
    "scrapy-lexbor": ("scrapy_lexbor.py",),
    "crawlee-sql": ("crawlee_parsel.py", "--storage", "sql"),
    "crawlee-memory": ("crawlee_parsel.py", "--storage", "memory"),
    "crawlee-http": ("crawlee_http.py",),
}
CONTENDERS = ("shoal", *SCRIPTS)
CONCURRENCY = {"crawlee-sql": 8}  # more only makes its connections wait for each other's locks
PEER_PACKAGES = ("scrapy", "twisted", "crawlee", "parsel", "lxml", "selectolax", "uvloop", "impit", "sqlalchemy")
OWN_PACKAGES = ("shoal", "pycurl", "selectolax", "uvloop", "msgspec", "ada-url")
STARTUP_PAGES = 20
HEAD = ("contender", "pages/CPU-s", "without start-up", "wall s", "RSS MB", "shoal is", "target", "remarks")


@dataclass(frozen=True)
class Crawl:
    """One crawl by one contender."""

    contender: str
    pages: int  # the site's own count
    hits: int
    robots: int
    records: int
    code: int
    cpu: float
    wall: float
    rss: int
    words: str = ""

    @property
    def rate(self) -> float:
        return self.pages / self.cpu

    def faults(self, expected: int) -> str:
        wrong = [f"exit code {self.code}"] if self.code else []
        wrong += [f"{self.pages} pages"] if self.pages != expected else []
        wrong += [f"{self.records} records"] if self.records != expected else []
        wrong += [f"{self.hits - self.pages} fetched again"] if self.hits > self.pages else []
        wrong += [] if self.robots else ["robots.txt not asked for"]
        return ", ".join(wrong)


def command(name: str, site: harness.Site, folder: Path, args: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    out = folder / "out.jsonl"
    concurrency = min(args.concurrency, CONCURRENCY.get(name, args.concurrency))
    delay = 0.1 if args.polite else 0.0
    if name == "shoal":
        return harness.shoal_run(site, out, workers=args.workers, concurrency=concurrency, fresh=True, delay=delay)
    script, *extra = SCRIPTS[name]
    argv = [str(harness.PEERS), str(harness.BENCH / "contenders" / script), *extra, "--out", str(out)]
    argv += ["--state", str(folder / "state"), "--concurrency", str(concurrency), "--delay", str(delay)]
    return argv + [part for url in site.urls for part in ("--url", url)], {}


def crawl(name: str, site: harness.Site, args: argparse.Namespace) -> Crawl:
    site.ask("/__reset")
    with harness.scratch() as folder:
        argv, env = command(name, site, folder, args)
        cost = harness.measured(argv, cwd=folder, env=env, timeout=args.timeout)
        out = folder / "out.jsonl"
        records = sum(1 for line in out.open("rb") if line.strip()) if out.exists() else 0
    count = site.ask("/__count")
    return Crawl(
        name, count["pages"], count["hits"], count["robots"], records,
        cost.code, cost.cpu, cost.wall, cost.rss, cost.words if cost.code else "",
    )  # fmt: skip


def told(done: Crawl, expected: int) -> str:
    faults = done.faults(expected)
    return (
        f"  {done.contender:15} {done.rate:8,.0f} pages/CPU-s  cpu {done.cpu:6.2f} s  "
        f"wall {done.wall:6.2f} s  rss {done.rss / 1e6:4.0f} MB" + (f"  WRONG: {faults}" if faults else "")
    )


def rounds(names: list[str], args: argparse.Namespace) -> dict[str, Any]:
    latency, hosts = (100.0, args.hosts) if args.polite else (0.0, args.hosts)
    crawls: dict[str, list[Crawl]] = {name: [] for name in names}
    startup: dict[str, float] = {}
    calibration = []
    with harness.site(STARTUP_PAGES * hosts, hosts=hosts) as small:
        for name in names if not args.polite else []:
            startup[name] = crawl(name, small, args).cpu
    with harness.site(args.pages, hosts=hosts, latency=latency) as site:
        for number in range(args.repeats):
            calibration.append(harness.calibrate())
            print(f"round {number + 1} of {args.repeats}, calibration {calibration[-1]:.3f} CPU-s", flush=True)
            for name in names:
                crawls[name].append(crawl(name, site, args))
                print(told(crawls[name][-1], args.pages), flush=True)
                if crawls[name][-1].code:
                    print(crawls[name][-1].words, file=sys.stderr)
    return {"crawls": crawls, "startup": startup, "calibration": calibration}


def report(result: dict[str, Any], args: argparse.Namespace) -> str:
    crawls: dict[str, list[Crawl]] = result["crawls"]
    head = HEAD
    rows = []
    for name, done in crawls.items():
        ratios = [ours.rate / theirs.rate for ours, theirs in zip(crawls.get("shoal", []), done, strict=False)]
        base = result["startup"].get(name)
        net = [(d.pages - STARTUP_PAGES * args.hosts) / max(d.cpu - base, 1e-9) for d in done] if base else []
        faults = sorted({fault for d in done if (fault := d.faults(args.pages))})
        rows.append([
            name,
            harness.spread([d.rate for d in done], ",.0f"),
            f"{statistics.median(net):,.0f}" if net else "",
            harness.spread([d.wall for d in done], ".1f"),
            f"{max(d.rss for d in done) / 1e6:.0f}",
            f"{harness.spread(ratios, '.1f')} ×" if ratios and name != "shoal" else "",
            f"{TARGETS[name]:g} ×" if name in TARGETS and not args.polite else "",
            "; ".join(faults),
        ])  # fmt: skip
    return harness.table(head, rows)


def settings(names: list[str], args: argparse.Namespace) -> dict[str, Any]:
    own = harness.versions(harness.ROOT / ".venv" / "bin" / "python", OWN_PACKAGES) if "shoal" in names else {}
    peers = harness.versions(harness.PEERS, PEER_PACKAGES) if set(names) - {"shoal"} else {}
    return {"machine": harness.machine(), "shoal": own, "peers": peers, "arguments": vars(args)}


def words(stated: dict[str, Any], result: dict[str, Any], args: argparse.Namespace) -> str:
    kind = "polite: 100 ms per answer, one request per 0.1 s and host" if args.polite else "as fast as it goes"
    versions = ", ".join(f"{k} {v}" for k, v in {**stated["peers"], **stated["shoal"]}.items())
    cal = result["calibration"]
    return (
        f"{args.pages:,} pages, {args.hosts} host(s), concurrency {args.concurrency}, "
        f"{args.workers} shoal worker(s), {args.repeats} interleaved rounds, {kind}. "
        f"{', '.join(stated['machine'].values())}. {versions}. "
        f"Calibration {harness.spread(cal, '.3f')} CPU-s; median (lowest–highest)."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, help="default 2000, or 200 with --polite")
    parser.add_argument("--repeats", type=int, help="default 3, or 1 with --polite")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="default: %(default)s")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1, help="of shoal")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--polite", action="store_true")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds one crawl may take")
    args = parser.parse_args()
    # As an installed package would be: the peers were compiled when pip installed them.
    compileall.compile_dir(harness.ROOT / "src", quiet=1)
    args.pages = args.pages or (200 if args.polite else 2000)
    args.pages = -(-args.pages // args.hosts) * args.hosts  # every host has equally many
    args.repeats = args.repeats or (1 if args.polite else 3)
    names = args.contenders.split(",")
    if unknown := set(names) - set(CONTENDERS):
        parser.error(f"no such contender: {', '.join(sorted(unknown))}; there are {', '.join(CONTENDERS)}")
    if set(names) - {"shoal"} and not harness.PEERS.exists():
        parser.error("the peers are not installed: run bench/peers.sh")
    stated = settings(names, args)
    result = rounds(names, args)
    text = f"{words(stated, result, args)}\n\n{report(result, args)}"
    print(f"\n{text}")
    crawls = {name: [asdict(d) for d in done] for name, done in result["crawls"].items()}
    harness.save("polite" if args.polite else "crawl", {**stated, **result, "crawls": crawls}, text)
    if len(result["calibration"]) > 1 and max(result["calibration"]) > 1.1 * min(result["calibration"]):
        print("note: the calibration job varied by more than 10 %: the machine was not quiet")
    return 1 if any(d.faults(args.pages) for done in result["crawls"].values() for d in done) else 0


if __name__ == "__main__":
    sys.exit(main())
