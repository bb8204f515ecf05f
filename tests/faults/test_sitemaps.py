"""An index of sitemaps whose command is killed on the way: every URL is in the queue once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from wait import wait_until

from faults.conftest import clean_environment
from shoal import app
from shoal.config.load import load
from shoal.core.sitemap import SITEMAP

FILES, ENTRIES, KILLS = 5, 4_000, 5


class Sitemaps(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.strip("/").removesuffix(".xml")
        if name == "sitemap":
            place = f"http://{self.headers['host']}"
            body = "".join(f"<sitemap><loc>{place}/{n}.xml</loc></sitemap>" for n in range(FILES))
            body = f"<sitemapindex>{body}</sitemapindex>"
        elif name.isdecimal():
            # Pages of a host that does not exist wait for their turn, one a second.
            body = "".join(f"<url><loc>http://pages.invalid/{name}/{n}</loc></url>" for n in range(ENTRIES))
            body = f"<urlset>{body}</urlset>"
        else:
            body = ""
        self.send_response(200 if body else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *about: object) -> None: ...


@pytest.fixture
def index() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sitemaps)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/sitemap.xml"
    server.shutdown()
    server.server_close()


async def account(folder: Path) -> tuple[int, Counter[str]]:
    """How many tasks the run has seen, and how often which page is among them."""
    queue = await app.open_queue(load({"queue": f"sqlite:///{folder}/queue.db"}))
    try:
        runs = await queue.runs(limit=1)
        if not runs:
            return 0, Counter()
        stats = await queue.stats(runs[0].id)
        found: Counter[str] = Counter()
        after = 0
        while stats.seen > FILES * ENTRIES and (views := await queue.list_tasks(runs[0].id, after=after, limit=1_000)):
            found.update(view.url for view in views if view.kind != SITEMAP)
            after = views[-1].id
        return stats.seen, found
    finally:
        await queue.close()


def start(folder: Path, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "shoal", "run", url, "-f", "title=h1", "-o", "out.csv", "--allow-private"]
    command += ["--scope", "any", "--workers", "1", "--queue", f"sqlite:///{folder}/queue.db"]
    return subprocess.Popen(
        command, cwd=folder, stderr=subprocess.DEVNULL, start_new_session=True, env=clean_environment()
    )


def test_every_url_of_an_index_is_there_once_however_often_it_is_killed(index: str, tmp_path: Path) -> None:
    def seen() -> int:
        return asyncio.run(account(tmp_path))[0] if (tmp_path / "queue.db").exists() else 0

    total = FILES * ENTRIES + FILES + 1
    for kill in range(1, KILLS + 2):
        process = start(tmp_path, index)
        try:
            wait_until(lambda: seen() >= total * kill // (KILLS + 1), 120.0, every=0.05)  # noqa: B023
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    count, found = asyncio.run(account(tmp_path))
    assert count == total
    assert len(found) == FILES * ENTRIES and max(found.values()) == 1
