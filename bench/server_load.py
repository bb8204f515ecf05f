"""The server under load: `shoal serve` as it is, on two cores with the load generator beside it.

watch   500 clients ask for a run's status every 2 s while 200 dashboards listen, over a run of many tasks
burst   5,000 requests at the same moment: each is answered, with 2xx or 429
slow    1,000 clients that send their headers a byte at a time: closed within 20 s, while others are served
submit  100,000 addresses in one request, and the same request again with the same idempotency key
page    the first page with a million tasks in the queue: bytes over the wire and time until it is whole
browser the same page in Chromium, with nothing cached: until it is painted, and until all of it is loaded
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import uvloop

SHOAL = Path(sys.executable).with_name("shoal")
TOKEN = "bench-" + os.urandom(16).hex()


class Server:
    """A real `shoal serve` on a free port."""

    def __init__(self, folder: Path, queue: str) -> None:
        self.folder = folder
        self.env = os.environ | {"SHOAL_TOKEN": TOKEN} | ({"SHOAL_QUEUE": queue} if queue else {})
        # Tens of clients share one address and one token here; their number is what is measured.
        self.env |= {"SHOAL_API_RATE": "100000"}
        self.process: asyncio.subprocess.Process | None = None
        self.port = 0

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            str(SHOAL), "serve", "--listen", "127.0.0.1:0", cwd=self.folder, env=self.env,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, limit=1 << 20,
        )  # fmt: skip
        assert self.process.stdout is not None
        said = b""
        async with asyncio.timeout(30):
            while (found := re.search(rb"http://127\.0\.0\.1:(\d+)", said)) is None:
                line = await self.process.stdout.readline()
                if not line:
                    raise SystemExit(f"shoal serve did not start: {said.decode()}")
                said += line
        self.port = int(found[1])
        self._drain = asyncio.create_task(self.process.stdout.read())
        while (await ask(self.port, "/api/ready"))[0] != 200:
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        await self.process.wait()
        await self._drain

    def memory(self) -> float:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1000  # type: ignore[index]

    def cpu(self) -> float:
        assert self.process is not None
        parts = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def head(path: str, method: str = "GET", more: str = "") -> bytes:
    return (f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n{more}\r\n").encode()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    status = int(lines[0].split()[1])
    body = b""
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    return status, headers, body


async def ask(
    port: int, path: str, method: str = "GET", more: str = "", body: bytes = b""
) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        extra = f"Content-Length: {len(body)}\r\n" if body else ""
        writer.write(head(path, method, more + extra) + body)
        await writer.drain()
        return await answer(reader)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def served(queue: str) -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_TMP")) as place:
        server = Server(Path(place), queue)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


async def submit(server: Server, count: int, key: str = "", hosts: int = 100) -> tuple[float, dict[str, Any], str]:
    """A run with so many addresses, sent as one stream; nobody works on it."""
    made = await ask(
        server.port, "/api/v1/runs", "POST", "Content-Type: application/json\r\n",
        json.dumps({"fields": {"title": "h1::text"}, "urls": [], "more": True}).encode(),
    )  # fmt: skip
    if made[0] not in (200, 201, 202):
        raise SystemExit(f"no run: {made}")
    run = json.loads(made[2])["run"]
    took, document = await send(server, run, count, key, hosts)
    return took, document, run


async def send(server: Server, run: str, count: int, key: str, hosts: int) -> tuple[float, dict[str, Any]]:
    lines = "".join(f"http://site{n % hosts}.example/page/{n}\n" for n in range(count)).encode()
    more = "Content-Type: text/plain\r\n" + (f"Idempotency-Key: {key}\r\n" if key else "")
    began = time.perf_counter()
    got = await ask(server.port, f"/api/v1/runs/{run}/tasks", "POST", more, lines)
    took = time.perf_counter() - began
    if got[0] not in (200, 201, 202):
        raise SystemExit(f"not accepted: {got[0]} {got[2][:500]!r}")
    return took, json.loads(got[2]) | {"replayed": got[1].get("idempotency-replayed", "")}


async def bench_submit(queue: str) -> dict[str, Any]:
    async with served(queue) as server:
        before = server.memory()
        took, first, run = await submit(server, 100_000, "bench-key")
        peak = server.memory()
        again, second = await send(server, run, 100_000, "bench-key", 100)
        status = json.loads((await ask(server.port, f"/api/v1/runs/{run}"))[2])
        return {
            "seconds": round(took, 2), "again_seconds": round(again, 2), "first": first, "again": second,
            "memory_before_mb": round(before), "memory_peak_mb": round(peak),
            "seen": status["seen"],
        }  # fmt: skip


async def client(
    port: int, path: str, until: float, every: float, offset: float, took: list[float], seen: Counter[str]
) -> None:
    await asyncio.sleep(offset)
    request = head(path)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        began = time.perf_counter()
        try:
            writer.write(request)
            status, headers, _ = await answer(reader)
            seen[str(status)] += 1
            took.append(time.perf_counter() - began)
            if headers.get("connection", "").lower() == "close":
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except (OSError, asyncio.IncompleteReadError) as error:
            seen[type(error).__name__] += 1
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(max(0.0, every - (time.perf_counter() - began)))
    writer.close()


async def dashboard(port: int, path: str, until: float, events: Counter[str]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(head(path, more="Accept: text/event-stream\r\n"))
    status = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
    events[f"status {status}"] += 1
    with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
        async with asyncio.timeout(max(0.1, until - time.perf_counter())):
            while line := await reader.readline():
                if line.startswith(b"data:"):
                    events["events"] += 1
            events["cut off"] += 1
    writer.close()


async def bench_watch(queue: str, seconds: float) -> dict[str, Any]:
    async with served(queue) as server:
        _, _, run = await submit(server, 20_000)
        took: list[float] = []
        seen: Counter[str] = Counter()
        events: Counter[str] = Counter()
        began, cpu = time.perf_counter(), server.cpu()
        until = began + seconds
        paths = (f"/api/v1/runs/{run}", f"/api/scraping/status/{run}", "/stats", "/api/v1/runs")
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                topic = "fleet" if number % 2 else f"run:{run}"
                group.create_task(dashboard(server.port, f"/api/v1/events?topic={topic}", until, events))
            for number in range(500):
                path = paths[number % len(paths)] if number % 5 == 0 else paths[0]
                group.create_task(client(server.port, path, until, 2.0, number / 250, took, seen))
        return {
            "requests": len(took), "statuses": dict(seen), "p50_ms": round(percentile(took, 0.5) * 1000, 1),
            "p99_ms": round(percentile(took, 0.99) * 1000, 1), "max_ms": round(max(took) * 1000, 1),
            "dashboards": dict(events), "memory_mb": round(server.memory()),
            "server_cpu_share": round((server.cpu() - cpu) / (time.perf_counter() - began), 2),
        }  # fmt: skip


async def bench_burst(queue: str, count: int = 5_000) -> dict[str, Any]:
    async with served(queue) as server:
        _, _, run = await submit(server, 1_000)
        seen: Counter[str] = Counter()
        gate = asyncio.Event()
        ready = 0

        async def one() -> None:
            nonlocal ready
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                ready += 1
                await gate.wait()
                writer.write(head(f"/api/v1/runs/{run}"))
                async with asyncio.timeout(60):
                    seen[str((await answer(reader))[0])] += 1
                writer.close()
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                seen[type(error).__name__] += 1

        tasks = [asyncio.create_task(one()) for _ in range(count)]
        for _ in range(100):
            if ready >= count:
                break
            await asyncio.sleep(0.1)
        began = time.perf_counter()
        gate.set()
        await asyncio.gather(*tasks)
        took = time.perf_counter() - began
        # And the same with the connections opened in the same moment.
        cold: Counter[str] = Counter()

        async def fresh() -> None:
            try:
                async with asyncio.timeout(60):
                    cold[str((await ask(server.port, f"/api/v1/runs/{run}"))[0])] += 1
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                cold[type(error).__name__] += 1

        began = time.perf_counter()
        await asyncio.gather(*(fresh() for _ in range(count)))
        return {
            "connected": dict(seen), "seconds": round(took, 2), "cold": dict(cold),
            "cold_seconds": round(time.perf_counter() - began, 2), "memory_mb": round(server.memory()),
        }  # fmt: skip


async def bench_slow(queue: str, count: int = 1_000) -> dict[str, Any]:
    async with served(queue) as server:
        _, _, run = await submit(server, 1_000)
        closed: list[float] = []
        began = time.perf_counter()

        async def drip() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            started = time.perf_counter()
            gone = asyncio.create_task(reader.read(1))
            for byte in b"GET /api/v1/runs HTTP/1.1\r\nHost: x\r\nX-A: " + b"b" * 100:
                with contextlib.suppress(OSError):
                    writer.write(bytes([byte]))
                await asyncio.wait([gone], timeout=1.0)
                if gone.done():
                    break
            with contextlib.suppress(OSError):
                gone.result() if gone.done() else gone.cancel()
            if gone.done():
                closed.append(time.perf_counter() - started)
            writer.close()

        took: list[float] = []
        seen: Counter[str] = Counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(drip())
            for number in range(20):
                group.create_task(client(server.port, f"/api/v1/runs/{run}", began + 20, 0.5, number / 40, took, seen))
        return {
            "closed": len(closed), "of": count, "last_closed_s": round(max(closed, default=0.0), 1),
            "others": dict(seen), "others_p99_ms": round(percentile(took, 0.99) * 1000, 1),
        }  # fmt: skip


async def bench_page(queue: str, tasks: int = 1_000_000) -> dict[str, Any]:
    async with served(queue) as server:
        filled = time.perf_counter()
        _, _, run = await submit(server, tasks, hosts=10_000)
        filled = time.perf_counter() - filled
        pages = ("/", "/runs", f"/runs/{run}", f"/runs/{run}/tasks", "/hosts", "/fleet", "/dead")
        times: dict[str, list[float]] = {path: [] for path in pages}
        for _ in range(7):
            for path in pages:
                await asyncio.sleep(1.1)  # so that nothing is answered from the last look
                began = time.perf_counter()
                status, _, _ = await ask(server.port, path, more="Accept: text/html\r\nAccept-Encoding: gzip\r\n")
                times[path].append(time.perf_counter() - began)
                assert status == 200, (path, status)
        return {
            "tasks": tasks, "filled_s": round(filled, 1), "weight": await weight(server),
            "ms": {
                path: [round(statistics.median(it) * 1000), round(max(it) * 1000)]
                for path, it in times.items()
            },
            "memory_mb": round(server.memory()),
        }  # fmt: skip


async def weight(server: Server) -> dict[str, int]:
    """Bytes over the wire for the first page with everything it loads."""
    more = "Accept: text/html\r\nAccept-Encoding: gzip\r\n"
    _, headers, body = await ask(server.port, "/", more=more)
    sizes = {"/": len(body)}
    text = (gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body).decode()
    for link in re.findall(r'(?:<script[^>]+src|<link[^>]+href)="([^"]+)"', text):
        path = urlsplit(urljoin("/", link)).path
        got = await ask(server.port, path, more="Accept-Encoding: gzip\r\n")
        sizes[path] = len(got[2])
    return sizes | {"all": sum(sizes.values())}


TIMES = """() => {
  const page = performance.getEntriesByType("navigation")[0];
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return [page.responseEnd, paint ? paint.startTime : 0, page.loadEventEnd];
}"""


async def bench_browser(queue: str, tasks: int = 1_000_000) -> dict[str, Any]:
    from playwright.async_api import async_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    async with served(queue) as server, async_playwright() as engine:
        await submit(server, tasks, hosts=10_000)
        browser = await engine.chromium.launch(executable_path=program, args=flags)
        rounds = []
        for _ in range(6):
            context = await browser.new_context(extra_http_headers={"Authorization": f"Bearer {TOKEN}"})
            page = await context.new_page()
            await page.goto(f"http://127.0.0.1:{server.port}/")
            await page.wait_for_selector("figure.chart canvas", state="attached")
            rounds.append([round(it) for it in await page.evaluate(TIMES)])
            await context.close()
            await asyncio.sleep(1.2)
        await browser.close()
        return {"tasks": tasks, "answered_painted_loaded_ms": rounds}


JOBS = ("watch", "burst", "slow", "submit", "page", "browser")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=list(JOBS), help=" ".join(JOBS))
    parser.add_argument("--queue", default="", help="the queue's address; SQLite unless given")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for job in given.jobs:
        if job == "watch":
            result = await bench_watch(given.queue, given.seconds)
        elif job in ("page", "browser"):
            result = await globals()[f"bench_{job}"](given.queue, given.tasks)
        else:
            result = await globals()[f"bench_{job}"](given.queue)
        print(json.dumps({job: result}, indent=1), flush=True)
        folder = Path(__file__).with_name("results")
        folder.mkdir(exist_ok=True)
        (folder / f"room_{job}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    uvloop.run(main())
