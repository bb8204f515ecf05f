"""Scrapers written by `shoal new --start URL`, on documentation that nobody wrote with them in mind.

Debian packages are downloaded with apt-get and unpacked into a temporary folder; each is served on loopback, looked
at and crawled with two commands. What counts: the share of its HTML pages whose URL and title are in the output.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import harness

TARGET = 80.0  # percent of the pages: what is claimed


@dataclass(frozen=True)
class Package:
    name: str
    root: str  # the folder with the pages
    start: str = ""  # the first page in it


PACKAGES = (
    Package("python3.11-doc", "usr/share/doc/python3.11/html"),
    Package("postgresql-doc-15", "usr/share/doc/postgresql-doc-15/html"),
    Package("apache2-doc", "usr/share/doc/apache2-doc/manual", "en/"),
    Package("git-doc", "usr/share/doc/git-doc"),
    Package("zsh-doc", "usr/share/doc/zsh-common/html"),
)


class Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def list_directory(self, path: str) -> None:  # type: ignore[override]
        self.send_error(404)


@contextlib.contextmanager
def served(root: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def unpacked(package: Package, folder: Path) -> tuple[Path, str]:
    """Where the pages of a package are, and its version."""
    subprocess.run(["apt-get", "download", package.name], cwd=folder, check=True, capture_output=True)
    (archive,) = folder.glob(f"{package.name}_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(archive), str(folder / package.name)], check=True)
    return folder / package.name / package.root, unquote(archive.name).split("_")[1]


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag in ("a", "area") and name == "href" and value]


def linked(root: Path, start: str) -> set[str]:
    """The HTML pages that can be reached from the start by links, found without shoal."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        path = todo.pop()
        file = root / path / "index.html" if path.endswith("/") or not path else root / path
        if path in seen or not file.is_file() or not file.name.endswith(".html"):
            continue
        seen.add(path)
        links = Links()
        links.feed(file.read_text("utf-8", "replace"))
        for href in links.found:
            with contextlib.suppress(ValueError):
                url = urldefrag(urljoin(f"http://site/{path}", href))[0].partition("?")[0]
                if url.startswith("http://site/"):
                    todo.append(unquote(url.removeprefix("http://site/")))
    return seen


def titled(path: Path, site: str) -> set[str]:
    """The pages of the output that have a URL and a title."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.get("title", "").strip()]
    return {unquote(row["url"].removeprefix(site)) for row in rows}


def measure(package: Package, folder: Path) -> list[str]:
    root, version = unpacked(package, folder)
    place = folder / f"{package.name}-crawl"
    place.mkdir()
    with served(root) as site:
        shoal = str(harness.SHOAL)
        new = [shoal, "new", "--start", site + package.start, "docs", "--allow-private"]
        looked = harness.measured(new, cwd=place)
        run = [shoal, "run", "docs.py", "-o", "out.csv", "--allow-private"]
        cost = harness.measured(run, cwd=place)
        rows = titled(place / "out.csv", site)
    if looked.code or cost.code not in (0, 3):
        print(looked.words, cost.words, file=sys.stderr)
    pages = linked(root, package.start)
    files = sum(1 for _ in root.rglob("*.html"))
    share = 100 * len(pages & rows) / max(1, len(pages))
    return [package.name, version, f"{files:,}", f"{len(pages):,}", f"{len(pages & rows):,}", f"{share:.1f} %"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="PACKAGE", help="one of them")
    given = parser.parse_args()
    head = ["package", "version", "HTML files", "linked pages", "with URL and title", "share"]
    with harness.scratch() as folder:
        rows = [measure(package, folder) for package in PACKAGES if given.only in (None, package.name)]
    table = harness.table(head, rows)
    print(table)
    harness.save("new_scraper", {"rows": [dict(zip(head, row, strict=True)) for row in rows]}, table)
    return 0 if all(float(row[-1].split()[0]) >= TARGET for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
