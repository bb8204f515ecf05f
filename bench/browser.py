"""Pages by a browser: pages per CPU-second and memory, shoal beside Crawlee and scrapy-playwright, interleaved.

.venv/bin/python bench/browser.py                    # 1,000 pages, three rounds
.venv/bin/python bench/browser.py --pages 200 --rounds 1 --only shoal
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from harness import ROOT, machine, save, scratch, spread, table

from shoal.fetch.browser.program import find_program

CONTENDERS = ("shoal", "crawlee", "scrapy-playwright")
PEERS = ROOT / "bench" / ".peers" / "bin" / "python"
# Pages of which the second so many are compared with the last: a browser serves as many, so both are of all its ages.
EARLY = 100
SAMPLE = 0.25  # seconds
_SCRIPT = (
    "const n = document.body.dataset.n; fetch(`/api/${n}`).then((r) => r.json()).then((it) => {"
    "const p = document.createElement('p'); p.className = 'price'; p.textContent = it.price;"
    "document.body.append(p); });"
    + "/* " + "x" * 60_000 + " */"
)  # fmt: skip
_STYLE = "@font-face{font-family:f;src:url(/font.woff2)} body{font-family:f,serif} " + ".c{margin:1px} " * 500


class Shop:
    """A site of pages that scripts fill in, with a style, a font and images."""

    def __init__(self) -> None:
        self.pages = 0
        self.port = 0
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                status, kind, body = self._page(head.split(b" ", 2)[1].decode())
                close = b"connection: close" in head.lower()
                lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                lines += "Cache-Control: max-age=600\r\n" + ("Connection: close\r\n" if close else "")
                writer.write(f"{lines}\r\n".encode() + body)
                await writer.drain()
                if close:
                    break
        writer.close()

    def _page(self, path: str) -> tuple[str, str, bytes]:
        if path.startswith("/page/"):
            self.pages += 1
            rows = "".join(f"<tr><td>row {n}</td><td class=c>{n * 7}</td></tr>" for n in range(300))
            images = "".join(f"<img src=/image/{n}.png>" for n in range(6))
            html = (
                f"<!doctype html><link rel=stylesheet href=/style.css><body data-n={path[6:]}><h1>{path}</h1>{images}"
            )
            return "200 OK", "text/html", f"{html}<table>{rows}</table><script src=/app.js></script>".encode()
        if path.startswith("/api/"):
            return "200 OK", "application/json", b'{"price": "9.99"}'
        if path == "/app.js":
            return "200 OK", "text/javascript", _SCRIPT.encode()
        if path == "/style.css":
            return "200 OK", "text/css", _STYLE.encode()
        return "404 Not Found", "text/plain", b""


@dataclass(frozen=True)
class BrowserCost:
    records: int
    wall: float
    cpu: float  # seconds of all processes
    early: float  # bytes (PSS), the median of the 100 pages after the first 100
    late: float  # of the last 100
    roles: dict[str, float]  # seconds by what processes are


@contextmanager
def running(argv: list[str], cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (cwd / "log.txt").open("wb") as log:
        process = subprocess.Popen(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def measure(name: str, shop: Shop, pages: int, browser: str) -> BrowserCost:
    with scratch() as folder:
        urls, out = folder / "urls.txt", folder / "out.jsonl"
        urls.write_text("\n".join(f"http://127.0.0.1:{shop.port}/page/{n}" for n in range(pages)))
        shop.pages = 0
        spent = ProcessTimes()
        early, late = list[int](), list[int]()
        start = time.monotonic()
        with running(command(name, urls, out, browser), folder) as process:
            while process.poll() is None:
                time.sleep(SAMPLE)
                place = shop.pages // EARLY
                wanted = [early] * (place == 1) + [late] * (place == (pages - 1) // EARLY)
                memory = spent.sample(process.pid, bool(wanted))
                for some in wanted:
                    some.append(memory)
        wall = time.monotonic() - start
        if not out.exists():
            print((folder / "log.txt").read_text()[-2_000:], file=sys.stderr)
        records = out.read_text().count("9.99" if name == "shoal" else '"price": true') if out.exists() else 0
        return BrowserCost(records, wall, spent.total, _median(early), _median(late), spent.by_role)


def _median(some: list[int]) -> float:
    return statistics.median(some) if some else 0.0


class ProcessTimes:
    """Processor time of a command and all that it starts, by what each process is."""

    def __init__(self) -> None:
        self._spent: dict[tuple[str, int, float], float] = {}

    @property
    def by_role(self) -> dict[str, float]:
        found = Counter[str]()
        for (role, _, _), seconds in self._spent.items():
            found[role] += seconds
        return {role: round(seconds, 1) for role, seconds in found.most_common()}

    @property
    def total(self) -> float:
        return sum(self._spent.values())

    def sample(self, pid: int, wants_memory: bool) -> int:
        """The memory (PSS) of all; processor time is what a process was last seen with."""
        memory, seen = 0, Counter[tuple[str, int, float]]()
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                    role, times = role_of(process), process.cpu_times()
                    # Many a page's process lives shorter than a sample: its zygote has waited for it.
                    owner = process.parent() if role == "renderer" else process
                    owner = owner or process
                    key = ("pages" if role in ("renderer", "zygote") else role, owner.pid, owner.create_time())
                    seen[key] += sum(times[:4] if role == "zygote" else times[:2])
                    memory += process.memory_full_info().pss if wants_memory else 0
        for key, seconds in seen.items():
            self._spent[key] = max(seconds, self._spent.get(key, 0.0))
        return memory


def role_of(process: psutil.Process) -> str:
    words = process.cmdline()
    line = " ".join(words)
    if found := re.search(r"--type=([\w-]+)", line):
        return "network" if "NetworkService" in line else found[1]
    if "chromium" in line.partition(" ")[0]:
        return "browser"
    return "driver" if "run-driver" in line or "/node" in line.partition(" ")[0] else "crawler"


def command(name: str, urls: Path, out: Path, browser: str) -> list[str]:
    if name == "shoal":
        argv = [sys.executable, "-m", "shoal", "run", str(urls), "-f", "price=.price::text", "-o", str(out)]
        argv += ["--fetch", "browser", "--steps", "wait .price", "--browser", browser, "--browser-pages", "4"]
        return [*argv, "--workers", "1", "--allow-private"]
    script = {"crawlee": "crawlee_browser.py", "scrapy-playwright": "scrapy_browser.py"}[name]
    return [str(PEERS), str(ROOT / "bench" / "contenders" / script), str(urls), str(out), "--browser", browser]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=CONTENDERS)
    parser.add_argument("--browser", default="")
    args = parser.parse_args()
    browser, shop = find_program(args.browser), Shop()
    names = [args.only] if args.only else list(CONTENDERS)
    costs: dict[str, list[BrowserCost]] = {name: [] for name in names}
    for _ in range(args.rounds):
        for name in names:
            cost = measure(name, shop, args.pages, browser)
            costs[name].append(cost)
            print(f"{name}: {cost}", flush=True)
    rows = []
    for name in names:
        done = costs[name]
        rates = [cost.records / cost.cpu for cost in done]
        growth = [cost.late / cost.early for cost in done if cost.early]
        ratios = [rate * own.cpu / own.records for rate, own in zip(rates, costs[names[0]], strict=True)]
        rows.append([
            name, str(min(cost.records for cost in done)), spread(rates, ".2f"), spread(ratios, ".2f"),
            f"{statistics.median(cost.late for cost in done) / 1e6:,.0f} MB", spread(growth, ".2f") if growth else "",
        ])  # fmt: skip
    text = table(["", "pages", "pages per CPU-second", "beside shoal", "memory, last 100", "to the second 100"], rows)
    print(f"\n{Path(browser).name}, {args.pages:,} pages, 4 at once, load {os.getloadavg()[0]:.1f}\n\n{text}")
    save("browser", {"machine": machine(), "browser": browser, "pages": args.pages, "costs": costs}, text)


if __name__ == "__main__":
    main()
