"""What does a hostile site do to a crawl, and to the pages of its neighbours?

Crawls the neighbours alone and beside every behaviour of tests/site/hostile, in turns, and prints what
became of each page. With --peer it gives the same addresses to another client instead, one at a time in
a process of its own with that client's defaults, and counts who runs out of memory, who hangs and who
makes a request inside the network.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass

import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "site"))

from hostile.behaviour import Behaviour
from hostile.crawl import CrawlResult, Sites, crawl
from hostile.registry import BEHAVIOURS

MOST_MEMORY, MOST_SECONDS, LEAST_SHARE = 256.0, 30.0, 0.8
PEER_MEMORY = 1_000_000_000

PEERS = {
    "aiohttp": """
import asyncio, sys, aiohttp
async def main(url):
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        print("done", response.status, len(await response.text(errors="replace")))
asyncio.run(main(sys.argv[1]))
""",
    "httpx": """
import sys, httpx
response = httpx.get(sys.argv[1], follow_redirects=True)
print("done", response.status_code, len(response.text))
""",
    "scrapy": """
import sys, scrapy
from scrapy.crawler import CrawlerProcess
class Spider(scrapy.Spider):
    name = "hostile"
    async def start(self):
        yield scrapy.Request(sys.argv[1], callback=self.parse, errback=self.failed)
    def parse(self, response):
        title = response.css("title::text").get() if hasattr(response, "text") else None
        print("done", response.status, len(response.body), title and title[:20])
    def failed(self, failure):
        print("failed", failure.type.__name__)
process = CrawlerProcess({"LOG_LEVEL": "CRITICAL", "TELNETCONSOLE_ENABLED": False})
process.crawl(Spider)
process.start()
""",
}


# shoal


def measure_shoal(args: argparse.Namespace) -> int:
    shares, last = [], None
    with harness.scratch() as folder, Sites(pages=args.pages) as sites:
        for turn in range(args.repeat):
            alone = crawl(sites, folder / f"alone{turn}", ())
            last = crawl(sites, folder / f"beside{turn}", BEHAVIOURS)
            shares.append(last.speed / alone.speed)
            print(f"neighbours {alone.speed:.0f} pages/s alone, {last.speed:.0f} beside: {shares[-1]:.0%}")
        canary = sites.seen()["canary"]
    assert last is not None
    text = table_of(last)
    wrong = [fate for fate in last.results if not fate.as_expected]
    share = statistics.median(shares)
    figures = {
        "behaviours": len(last.results),
        "not as expected": len(wrong),
        "longest page, s": round(max(fate.seconds for fate in last.results), 1),
        "largest process, MB": round(max(last.peaks.values())),
        "requests to the canary": canary.get("requests", 0),
        "connections to the canary": canary.get("connections", 0),
        "neighbours' speed": f"{share:.0%} of alone ({harness.spread([100 * it for it in shares], '.0f')} %)",
        "run": f"{last.wall:.0f} s, exit status {last.code}",
    }
    text += "\n\n" + harness.table(["", ""], [[name, str(value)] for name, value in figures.items()])
    print(f"\n{text}\n")
    for fate in wrong:
        print(f"not as expected: {fate}")
    harness.save("hostile", {"machine": harness.machine(), "arguments": vars(args), "figures": figures}, text)
    return 0 if not wrong and share >= LEAST_SHARE and in_bounds(last) and not canary else 1


def in_bounds(crawled: CrawlResult) -> bool:
    memory, time_taken = max(crawled.peaks.values()), max(fate.seconds for fate in crawled.results)
    return memory <= MOST_MEMORY and time_taken <= MOST_SECONDS and crawled.code == 3 and crawled.is_balanced


def table_of(crawled: CrawlResult) -> str:
    rows = [
        [fate.behaviour.group, fate.behaviour.name, fate.outcome, f"{fate.seconds:.1f}", f"{fate.peak:.0f}"]
        for fate in crawled.results
    ]
    return harness.table(["group", "behaviour", "outcome", "seconds", "largest process MB"], rows)


# peers


@dataclass(frozen=True)
class Try:
    behaviour: Behaviour
    verdict: str  # done, failed, memory, hangs
    seconds: float
    words: str


def measure_peer(args: argparse.Namespace) -> int:
    chosen = [one for one in BEHAVIOURS if not one.leaves_machine]  # nobody is sent beyond this machine
    with Sites(hosts=1, pages=1) as sites, concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
        tries = list(pool.map(lambda one: try_peer(args, one, sites.urls[one.name]), chosen))
        canary = sites.seen()["canary"]
    rows = [[one.behaviour.name, one.verdict, f"{one.seconds:.1f}", one.words] for one in tries]
    counts = Counter(one.verdict for one in tries)
    figures = {
        "behaviours": len(tries),
        "out of memory (1 GB)": counts["memory"],
        f"hanging (more than {MOST_SECONDS:.0f} s)": counts["hangs"],
        "requests to the canary": canary.get("requests", 0),
        "done": counts["done"],
        "failed": counts["failed"],
    }
    bad = [row for row in rows if row[1] in ("memory", "hangs")]
    text = harness.table(["behaviour", args.peer, "seconds", "words"], rows if args.all else bad)
    text += "\n\n" + harness.table(["", args.peer], [[name, str(value)] for name, value in figures.items()])
    print(f"\n{text}")
    harness.save(f"hostile_{args.peer}", {"machine": harness.machine(), "figures": figures, "tries": rows}, text)
    return 0


def try_peer(args: argparse.Namespace, behaviour: Behaviour, url: str) -> Try:
    """One address by one client, within limits that it does not know of."""
    began = time.monotonic()
    process = subprocess.Popen(
        [str(harness.PEERS), "-c", PEERS[args.peer], url],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (PEER_MEMORY, PEER_MEMORY)),
    )  # fmt: skip
    try:
        words = process.communicate(timeout=args.limit)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        words = process.communicate()[0]
    took = time.monotonic() - began
    last = words.strip().splitlines()[-1:] or [""]
    return Try(behaviour, _verdict(took, process.returncode, words), took, last[0][:80])


def _verdict(took: float, code: int, words: str) -> str:
    if took > MOST_SECONDS:
        return "hangs"
    if "MemoryError" in words or "allocate memory" in words or (code < 0 and code != -9):
        return "memory"
    return "done" if "\ndone" in f"\n{words}" else "failed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=500, help="of each of the eight neighbours")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peer", choices=sorted(PEERS))
    parser.add_argument("--at-once", type=int, default=4, help="processes of the peer")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a peer may take for one address")
    parser.add_argument("--all", action="store_true", help="every behaviour in the table of a peer")
    args = parser.parse_args()
    return measure_peer(args) if args.peer else measure_shoal(args)


if __name__ == "__main__":
    sys.exit(main())
