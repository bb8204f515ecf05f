"""Block pages: what looking for them costs a normal crawl, how many are found, how many good pages are taken for one.

CPU: crawls of the bench site with --on-block later, and off, by turns. Found: a crawl of 150 products for
each of the twelve walls of tests/site/walled, which comes up in the middle and goes away; and once more with a wall
from the first page. False alarms: a crawl of odd but good pages among usual ones for each of their twelve kinds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "site"))
from walled.pages import ODD, WALLS, name_of
from walled.site import WalledSite, walled_site

TARGET = 0.03  # of the CPU of a crawl
PRODUCTS, ODD_PAGES = 150, 20
UP_AFTER, WALL_PAGES = 50, 12
OWN_PATHS = {"empty_category": "/category", "print_version": "/print", "contact": "/contact", "login_page": "/account"}
SCRAPER = """
import shoal

shop = shoal.Scraper("shop", start={urls})

@shop.page("*")
def page(page):
    related = page.css(".related a::attr(href)").getall()
    yield {{"url": page.url, "title": page.css("h1::text").get(), "price": page.css(".price::text").get(),
            "text": page.css(".text p::text").get(), "others": len(related)}}
"""


@dataclass(frozen=True)
class Walled:
    kind: str
    asked: int  # answers of the site
    blocks: int  # block pages among them
    kept_out: int
    leaked: int  # records of block pages
    good: int  # records of good pages, of `urls`
    urls: int
    dead: int
    seconds: float


def shoal(folder: Path, *words: str) -> Any:
    done = subprocess.run([harness.SHOAL, *words, "--json"], cwd=folder, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def crawl(site: WalledSite, kind: str, urls: list[str], is_good: Callable[[dict[str, Any]], bool]) -> Walled:
    with harness.scratch() as folder:
        (folder / "shop.py").write_text(SCRAPER.format(urls=urls))
        argv = [str(harness.SHOAL), "run", "shop.py", "-o", "out.jsonl", "--workers", "2", "--delay", "0"]
        argv += ["--in-flight", "8", "--retry-delay", "300ms", "--allow-private", "--on-block", "later"]
        cost = harness.measured(argv, cwd=folder, env=None)
        found = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
        status = shoal(folder, "status")
        good = sum(map(is_good, found))
        return Walled(
            kind, site.goods + site.walls, site.walls, sum(one["blocked"] for one in status["blocked"]),
            len(found) - good, good, len(urls), status["dead"], cost.wall,
        )  # fmt: skip


def walled(name: str, *, at_first: bool) -> Walled:
    with walled_site() as site:

        def on_page(it: WalledSite) -> None:
            if it.walls >= WALL_PAGES:
                it.drop_wall()
            elif it.goods >= (0 if at_first else UP_AFTER) and not it.wall:
                it.raise_wall(name)

        site.on_page = on_page
        paths = [f"/product/{number}" for number in range(1, PRODUCTS + 1)]
        titles = {site.url(path): name_of(path) for path in paths}
        return crawl(site, name, list(titles), lambda record: record["title"] == titles.get(record["url"]))


def odd(name: str) -> Walled:
    """Odd pages among usual ones; a site that is made anew is so from some moment on."""
    with walled_site() as site:
        usual = [f"/product/{number}" for number in range(1, 81)]
        strange = [f"{OWN_PATHS.get(name, '/product')}/{number}" for number in range(200, 200 + ODD_PAGES)]
        if name == "redesigned":
            site.on_page = lambda it: setattr(it, "everywhere", name if it.goods >= UP_AFTER else "")
            paths = usual
        else:
            site.odd = dict.fromkeys(strange, name)
            paths = usual[:40] + [path for pair in zip(strange, usual[40:], strict=False) for path in pair] + usual[60:]
        return crawl(site, name, [site.url(path) for path in paths], lambda record: True)


def cpu_of(site: harness.Site, rule: str, args: argparse.Namespace) -> harness.Cost:
    with harness.scratch() as folder:
        argv, env = harness.shoal_run(site, folder / "out.jsonl", workers=1, concurrency=32, fresh=True)
        cost = harness.measured([*argv, "--on-block", rule], cwd=folder, env=env)
        if cost.code:
            sys.exit(f"the crawl ended with {cost.code}:\n{cost.words}")
        return cost


def cpu(args: argparse.Namespace) -> tuple[list[float], list[float]]:
    with harness.site(args.pages) as site:
        costs: dict[str, list[float]] = {"later": [], "off": []}
        for number in range(args.rounds):
            for rule in ("later", "off") if number % 2 else ("off", "later"):
                costs[rule].append(cpu_of(site, rule, args).cpu)
        return costs["later"], costs["off"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("cpu", "found"))
    args = parser.parse_args()
    parts: list[str] = []
    result: dict[str, Any] = {"machine": harness.machine()}
    if args.only != "found":
        later, off = cpu(args)
        ratio = statistics.median(one / other for one, other in zip(later, off, strict=True))
        parts.append(
            f"CPU s of {args.pages} pages: {harness.spread(later)} with blocks looked for, {harness.spread(off)}"
            f" without; {100 * (ratio - 1):+.1f} % (target: at most {100 * TARGET:.0f} %)"
        )
        result |= {"pages": args.pages, "later": later, "off": off, "ratio": ratio}
    if args.only != "cpu":
        heads = ("kind", "answers", "blocks", "kept out", "records of blocks", "good records", "dead", "wall s")
        for title, found in (
            ("A wall in the middle", [walled(name, at_first=False) for name in WALLS]),
            ("A wall from the first page", [walled(name, at_first=True) for name in WALLS]),
            ("Odd but good pages", [odd(name) for name in ODD]),
        ):
            rows = [
                (it.kind, str(it.asked), str(it.blocks), str(it.kept_out), str(it.leaked),
                 f"{it.good} of {it.urls}", str(it.dead), f"{it.seconds:.0f}")
                for it in found
            ]  # fmt: skip
            parts.append(f"{title}\n\n{harness.table(heads, rows)}")
            result[title] = [asdict(it) for it in found]
    text = "\n\n".join(parts)
    print(text)
    harness.save("blocks", result, text)


if __name__ == "__main__":
    main()
