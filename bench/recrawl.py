"""The second crawl of a site that has not changed, with --changed-only: bytes and CPU beside those of the first.

A round crawls the bench site twice with the same state: the first crawl fetches and remembers every page, the second
is answered 304 for each (or, with --no-etags, gets every page again and finds its content the same). A plain crawl
without --changed-only says what remembering costs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import harness

TARGET_BYTES, TARGET_CPU = 0.03, 1 / 3  # of the first crawl
STARTUP_PAGES = 20
HEAD = ("crawl", "pages", "records", "MB from the site", "CPU s", "of the first", "wall s", "RSS MB")
NAMES = ("plain", "first", "second")


@dataclass(frozen=True)
class Crawl:
    name: str
    pages: int
    records: int
    bytes: int
    cpu: float
    wall: float
    rss: int


def crawl(name: str, site: harness.Site, folder: Path, args: argparse.Namespace) -> Crawl:
    site.ask("/__reset")
    out = folder / f"{name}.jsonl"
    argv, env = harness.shoal_run(site, out, workers=args.workers, concurrency=args.concurrency, fresh=True)
    cost = harness.measured([*argv, *([] if name == "plain" else ["--changed-only"])], cwd=folder, env=env)
    if cost.code:
        sys.exit(f"the {name} crawl ended with {cost.code}:\n{cost.words}")
    count = site.ask("/__count")
    records = sum(1 for _ in out.open("rb"))
    return Crawl(name, int(count["pages"]), records, int(count["bytes"]), cost.cpu, cost.wall, cost.rss)


def crawls(pages: int, args: argparse.Namespace) -> list[Crawl]:
    with harness.site(pages, etags=args.etags) as site, harness.scratch() as folder, harness.scratch() as other:
        return [crawl("plain", site, other, args), *(crawl(name, site, folder, args) for name in NAMES[1:])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--no-etags", dest="etags", action="store_false", help="only the content says what is the same")
    args = parser.parse_args()
    rounds = [crawls(args.pages, args) for _ in range(args.rounds)]
    startup = crawls(STARTUP_PAGES, args)[0].cpu
    rows = []
    for number, name in enumerate(NAMES):
        found = [one[number] for one in rounds]
        share = statistics.median(one[number].cpu / one[1].cpu for one in rounds)
        rows.append((
            name, str(found[0].pages), str(found[0].records), f"{found[0].bytes / 1e6:.1f}",
            harness.spread([it.cpu for it in found]), f"{share:.2f}", harness.spread([it.wall for it in found]),
            f"{max(it.rss for it in found) / 1e6:.0f}",
        ))  # fmt: skip
    transfer = statistics.median(one[2].bytes / one[1].bytes for one in rounds)
    cpu = statistics.median(one[2].cpu / one[1].cpu for one in rounds)
    net = statistics.median((one[2].cpu - startup) / (one[1].cpu - startup) for one in rounds)
    text = (
        f"{harness.table(HEAD, rows)}\n\nsecond crawl: {100 * transfer:.2f} % of the bytes (target: below"
        f" {100 * TARGET_BYTES:.0f} %), {100 * cpu:.0f} % of the CPU (target: below {100 * TARGET_CPU:.0f} %);"
        f" {100 * net:.0f} % without start-up ({startup:.1f} s)"
    )
    print(text)
    whole = all(it.records == it.pages for one in rounds for it in one)
    result = {"pages": args.pages, "etags": args.etags, "startup": startup, "machine": harness.machine()}
    harness.save("recrawl", {**result, "rounds": [[asdict(it) for it in one] for one in rounds]}, text)
    if not whole:
        sys.exit("a crawl has not as many records as pages")


if __name__ == "__main__":
    main()
