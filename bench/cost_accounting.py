"""What the accounting of costs takes: CPU per page of a plain crawl by one worker, with this tree and with another.

python bench/cost_accounting.py OTHER/src [PAIRS]     runs both in turn, PAIRS times (5); the second also has a budget
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGES = 2_000
SOURCE = Path(__file__).parents[1] / "src"
SCRAPER = """
import shoal
s = shoal.Scraper("s", start="http://127.0.0.1:{port}/0")
@s.page("*")
def page(page):
    yield {{"url": page.url}}
    yield page.follow()
"""


class Site(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        number = int(self.path[1:]) if self.path[1:].isdigit() else -1
        links = (f'<a href="/{n}">next</a>' for n in range(number * 10 + 1, number * 10 + 11) if n < PAGES)
        body = f"<h1>{number}</h1>{''.join(links)}{'<p>text</p>' * 400}".encode()
        self.send_response(200 if number >= 0 else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def crawl(source: Path, port: int, *flags: str) -> float:
    """Milliseconds of CPU per page."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "s.py").write_text(SCRAPER.format(port=port))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "shoal", "run", "s.py", "--delay", "0", "--in-flight", "0", "--workers", "1"]
        environment = os.environ | {"PYTHONPATH": str(source), "SHOAL_ALLOW_PRIVATE": "1"}
        subprocess.run([*command, *flags], cwd=folder, env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000 / PAGES


def main() -> None:
    other, pairs = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    found: dict[str, list[float]] = {"other": [], "this": [], "this, with a budget": []}
    for _ in range(pairs):
        found["other"].append(crawl(other, port))
        found["this"].append(crawl(SOURCE, port))
        found["this, with a budget"].append(crawl(SOURCE, port, "--budget", "bytes=10GB,cpu=10h"))
    for name, each in found.items():
        print(f"{name:20} {statistics.median(each):.3f} ms of CPU per page  (least {min(each):.3f})")


if __name__ == "__main__":
    main()
