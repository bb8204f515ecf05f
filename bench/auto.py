"""fetch="auto" on a site of which scripts write one half, beside a browser for all; then the halves are swapped.

.venv/bin/python bench/auto.py                       # 400 pages of each half
.venv/bin/python bench/auto.py --pages 60
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from browser import SAMPLE, ProcessTimes, running
from harness import ROOT, machine, save, scratch, table

sys.path.insert(0, str(ROOT / "tests" / "site"))
from rendered.mixed import HALVES, MixedSite, mixed_site

SCRAPER = """
import shoal

start = [{origin!r} + path for path in ("/left/1", "/right/1")]
shop = shoal.Scraper("shop", start=start, steps=["wait body[data-ready]"])

@shop.page("/*")
def page(page):
    for item in page.css(".item"):
        yield {{"item": item.text}}
    yield page.follow("nav a")
"""


@dataclass(frozen=True)
class AutoCost:
    records: int  # that are right
    cpu: float  # seconds of all processes
    wall: float
    http: int  # requests by HTTP
    browser: int


def crawl(site: MixedSite, folder: Path, fetch: str, pages: int) -> AutoCost:
    """One crawl of the whole site; what is known of it stays in the folder."""
    site.forget_requests()
    out = folder / "out.jsonl"
    out.unlink(missing_ok=True)
    (folder / "shop.py").write_text(SCRAPER.format(origin=site.origin))
    argv = [sys.executable, "-m", "shoal", "run", "shop.py", "-o", str(out), "--fetch", fetch, "--fresh"]
    spent, start = ProcessTimes(), time.monotonic()
    with running([*argv, "--workers", "1", "--allow-private"], folder) as process:
        while process.poll() is None:
            time.sleep(SAMPLE)
            spent.sample(process.pid, wants_memory=False)
    wall = time.monotonic() - start
    if not out.exists():
        print((folder / "log.txt").read_text()[-2_000:], file=sys.stderr)
        return AutoCost(0, spent.total, wall, 0, 0)
    found = {json.loads(line)["item"] for line in out.read_text().splitlines()}
    http, browser = site.by_http.total(), site.by_browser.total()
    return AutoCost(len(found & set(site.all_items())), spent.total, wall, http, browser)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=400, help="of each half")
    args = parser.parse_args()
    with scratch() as first, scratch() as second, mixed_site(args.pages) as site:
        costs = {}
        for name, folder, fetch in (("browser", first, "browser"), ("auto", second, "auto")):
            costs[name] = crawl(site, folder, fetch, args.pages)
            print(f"{name}: {costs[name]}", flush=True)
        site.swap()
        costs["auto, swapped"] = crawl(site, second, "auto", args.pages)
        print(f"auto, swapped: {costs['auto, swapped']}", flush=True)
        corrected = {half: site.pages_until_right(half) for half in HALVES}
    base = costs["browser"]
    rows = [
        [name, f"{it.records:,}", f"{it.records / base.records:.1%}", f"{it.cpu:.1f}", f"{it.cpu / base.cpu:.0%}",
         f"{it.http:,}", f"{it.browser:,}"]
        for name, it in costs.items()
    ]  # fmt: skip
    head = ["", "records", "of browser's", "CPU-seconds", "of browser's", "requests by HTTP", "by the browser"]
    text = table(head, rows)
    text += "\n\nAfter the swap the last page that was fetched in the wrong way alone: " + ", ".join(
        f"number {number} of {half}" for half, number in corrected.items()
    )
    print(f"\n{2 * args.pages:,} pages, load {os.getloadavg()[0]:.1f}\n\n{text}")
    save("auto", {"machine": machine(), "pages": args.pages, "costs": costs, "corrected": corrected}, text)


if __name__ == "__main__":
    main()
