"""Everything here is slow and rough: `make faults`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wait import wait_until


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.faults)


SCRAPER = """
import shoal
books = shoal.Scraper("books", start="{url}")
@books.page("/catalogue/*_*/")
def book(page):
    yield {{"url": page.url, "title": page.css("h1::text").get(), "filler": "x" * {filler}}}
@books.page("/catalogue/*")
def listing(page):
    yield from page.follow(".next a, .product a")
"""


class Crawl:
    """A crawl of a demo site through the real command, and what must be true at its end."""

    def __init__(self, folder: Path, products: int, delay: float, filler: int = 0) -> None:
        self.folder = folder
        self.products = products
        command = [sys.executable, "-m", "shoal.demo.server", "--until-stdin-closes"]
        command += ["--products", str(products), "--delay", str(delay)]
        self.site = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.site.stdout is not None
        self.url = self.site.stdout.readline().strip()
        (folder / "books.py").write_text(SCRAPER.format(url=self.url, filler=filler))

    def start(self, *flags: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "shoal", "run", "books.py", "-o", "books.jsonl", "--allow-private", *flags]
        return subprocess.Popen(
            command, cwd=self.folder, stderr=subprocess.PIPE, text=True, start_new_session=True, env=clean_environment()
        )

    def finish(self, *flags: str, timeout: float = 120) -> tuple[int, str]:
        running = self.start(*flags)
        _, said = running.communicate(timeout=timeout)
        return running.returncode, said

    def records(self) -> Counter[str]:
        lines = (self.folder / "books.jsonl").read_text().splitlines()
        return Counter(json.loads(line)["url"] for line in lines)

    def check(self) -> None:
        found = self.records()
        assert len(found) == self.products, f"{self.products - len(found)} pages are missing"
        assert max(found.values()) == 1, f"duplicated: {[url for url, n in found.items() if n > 1][:5]}"

    def wait_for(self, count: int) -> None:
        """Until so many records are in the output."""
        output = self.folder / "books.jsonl"
        wait_until(lambda: output.exists() and output.read_bytes().count(b"\n") >= count)

    def close(self) -> None:
        assert self.site.stdin is not None
        self.site.stdin.close()
        self.site.wait(timeout=10)
        assert self.site.stdout is not None
        self.site.stdout.close()


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.fixture
def crawl_of(tmp_path: Path) -> Iterator[Callable[..., Crawl]]:
    made: list[Crawl] = []

    def make(products: int, delay: float = 0.0, filler: int = 0) -> Crawl:
        made.append(Crawl(tmp_path, products, delay, filler))
        return made[-1]

    yield make
    for crawl in made:
        crawl.close()
