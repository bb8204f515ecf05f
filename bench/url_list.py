"""A list in, a table out: 500 URLs of 40 hosts to CSV by one command, every line accounted for."""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from pathlib import Path

import harness

HOSTS, LINES = 40, 500
LIMIT = 60.0  # seconds: what is claimed
FIELDS = ("-f", "title=h1::text", "-f", "price=.price::text")


def addresses(site: harness.Site) -> list[str]:
    """Pages of forty hosts, and among them what real lists have: a page that is gone, a double, nonsense."""
    lines = [f"{site.urls[n % HOSTS].rstrip('/')}/p/{n // HOSTS + 1}" for n in range(LINES)]
    lines[100] = f"{site.urls[0].rstrip('/')}/p/9999"
    lines[200] = lines[0]
    lines[300] = "see the other sheet"
    return lines


def rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def compare_keeping(pages: int, pairs: int) -> int:
    """CPU time per page of a list that keeps its pages, as lists do, beside one that does not."""
    shares = []
    with harness.site(pages, hosts=1, latency=0.0) as site:
        lines = [f"{site.urls[0].rstrip('/')}/p/{number}" for number in range(1, pages)]
        for pair in range(1, pairs + 1):
            cpu = [cpu_of(lines, *options) / len(lines) for options in ((), ("--no-keep-raw",))]
            shares.append(cpu[0] / cpu[1] - 1)
            print(f"pair {pair}: {1e3 * cpu[0]:.3f} ms a page with, {1e3 * cpu[1]:.3f} ms without: {shares[-1]:+.0%}")
    print(f"keeping pages: {statistics.median(shares):+.0%} CPU ({min(shares):+.0%} to {max(shares):+.0%})")
    return 0


def cpu_of(lines: list[str], *options: str) -> float:
    with harness.scratch() as folder:
        (folder / "urls.txt").write_text("".join(f"{line}\n" for line in lines))
        argv = [str(harness.SHOAL), "run", "urls.txt", *FIELDS, "-o", "out.csv", "--allow-private", "--workers", "1"]
        cost = harness.measured([*argv, *options], cwd=folder)
        assert cost.code == 0 and len(rows(folder / "out.csv")) == len(lines), cost.words
        return cost.cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=50.0, help="milliseconds the site takes to answer")
    parser.add_argument("--keeping", type=int, metavar="PAIRS", help="measure what keeping pages costs instead")
    parser.add_argument("--pages", type=int, default=3_000, help="pages of each run, with --keeping")
    given = parser.parse_args()
    if given.keeping:
        return compare_keeping(given.pages, given.keeping)
    with harness.site(20 * HOSTS, hosts=HOSTS, latency=given.latency) as site, harness.scratch() as folder:
        lines = addresses(site)
        (folder / "urls.txt").write_text("".join(f"{line}\n" for line in lines))
        argv = [str(harness.SHOAL), "run", "urls.txt", *FIELDS, "-o", "out.csv", "--allow-private"]
        cost = harness.measured(argv, cwd=folder)
        out, failed, rejected = (rows(folder / f"out{end}.csv") for end in ("", ".failed", ".rejected"))
    told = [row["url"] for row in out] + [row["input"] for row in (*failed, *rejected)]
    whole = sorted(told) == sorted(lines)
    print(f"{LINES} lines of {HOSTS} hosts in {cost.wall:.1f} s ({cost.cpu:.1f} s CPU), exit {cost.code}")
    sign = "=" if whole else "≠"
    print(f"{LINES} lines {sign} {len(out)} rows + {len(failed)} failed + {len(rejected)} rejected")
    if not whole or cost.wall > LIMIT:
        print(cost.words)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
