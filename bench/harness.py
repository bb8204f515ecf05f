"""What the benchmarks share: the bench site, measured child processes, a calibration job, tables."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
SHOAL = ROOT / ".venv" / "bin" / "shoal"
PEERS = BENCH / ".peers" / "bin" / "python"
SCRAPER = BENCH / "contenders" / "shoal_bench.py"
RESULTS = BENCH / "results"


@dataclass(frozen=True)
class Site:
    """A running bench site (see site.py)."""

    urls: tuple[str, ...]

    def ask(self, path: str) -> Any:
        connection = http.client.HTTPConnection(self.urls[0].split("/")[2], timeout=30)
        try:
            connection.request("GET", path)
            body = connection.getresponse().read()
        finally:
            connection.close()
        return json.loads(body) if body.startswith(b"{") else None


@contextlib.contextmanager
def site(pages: int, *, hosts: int = 1, latency: float = 0.0, etags: bool = False, cards: int = 56) -> Iterator[Site]:
    """Serve the bench site for as long as the block runs; latency in milliseconds, cards: links of a page."""
    argv = [sys.executable, str(BENCH / "site.py"), "--with-parent", "--pages", str(pages)]
    argv += ["--hosts", str(hosts), "--latency", str(latency), "--cards", str(cards), *(["--etags"] if etags else [])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        try:
            yield Site(tuple(process.stdout.readline().split()))
        finally:
            process.stdin.close()
            process.terminate()


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards; BENCH_TMP says on which disk."""
    with tempfile.TemporaryDirectory(
        prefix="shoal-bench-", dir=os.environ.get("BENCH_TMP"), ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Cost:
    """What a process and all its descendants cost."""

    code: int
    wall: float
    cpu: float  # user and system seconds of the whole tree
    rss: int  # bytes: the highest sum over the tree that was seen
    words: str  # the end of what it printed


def measured(argv: Sequence[str], *, cwd: Path, env: dict[str, str] | None = None, timeout: float = 600.0) -> Cost:
    """Run a command in a session of its own to its end and say what it cost."""
    log = cwd / "log.txt"
    with log.open("wb") as out:
        start = time.monotonic()
        process = subprocess.Popen(
            argv, cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            peak = tick = pid = 0
            spent = 0.0
            while not pid:
                time.sleep(0.01)
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                tick += 1
                if tick % 20 == 1 and not pid:
                    rss, seen = tree(process.pid)
                    peak, spent = max(peak, rss), max(spent, seen)
                    if time.monotonic() - start > timeout:
                        kill_group(process.pid)
            wall = time.monotonic() - start
        finally:
            kill_group(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    # On Linux wait4 counts the child and every descendant that was waited for; whoever leaves
    # children unwaited is charged at least what was seen of them while they lived.
    cpu = max(usage.ru_utime + usage.ru_stime, spent)
    words = log.read_text(errors="replace")[-2000:]
    return Cost(process.returncode, wall, cpu, peak, words)


def kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def tree(pid: int) -> tuple[int, float]:
    """RSS in bytes and CPU seconds so far, over a living process and its descendants."""
    rss, cpu = 0, 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                rss += process.memory_info().rss
                cpu += sum(process.cpu_times()[:4])
    return rss, cpu


CALIBRATION = """
import hashlib, json
rows = [{"id": n, "name": f"row {n}", "tags": [str(n), str(n * 7)]} for n in range(200)]
for n in range(400):
    text = json.dumps(rows); json.loads(text); hashlib.sha256(text.encode()).digest()
total = 0
for n in range(4_000_000):
    total += n & 7
"""


def calibrate() -> float:
    """CPU seconds of a fixed piece of Python work: how fast is this machine at this moment?"""
    with scratch() as folder:
        return measured([sys.executable, "-c", CALIBRATION], cwd=folder).cpu


def shoal_run(
    site: Site, out: Path, *, workers: int = 1, concurrency: int = 32, fresh: bool = False, delay: float = 0.0
) -> tuple[list[str], dict[str, str]]:
    """The command and environment of a crawl of the bench site by the real `shoal run`."""
    argv = [str(SHOAL), "run", str(SCRAPER), "-o", str(out), "--allow-private"]
    argv += ["--workers", str(workers), "--concurrency", str(concurrency)]
    argv += ["--fresh"] if fresh else []
    argv += ["--delay", str(delay)] if delay else []
    return argv, {"BENCH_URLS": " ".join(site.urls)}


def machine() -> dict[str, str]:
    cpu = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "cpu": f"{cpu}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%d %H:%M"),
    }


def versions(python: Path, names: Sequence[str]) -> dict[str, str]:
    """The installed versions of packages, asked of the interpreter that will use them."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "def v(n):\n"
        "    try: return m.version(n)\n"
        "    except m.PackageNotFoundError: return '-'\n"
        "print(json.dumps({n: v(n) for n in sys.argv[1:]}))"
    )
    done = subprocess.run([str(python), "-c", code, *names], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def quantile(values: Sequence[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """The median, and the whole range where there is more than one value."""
    middle = format(statistics.median(values), form)
    return middle if len(values) == 1 else f"{middle} ({min(values):{form}}–{max(values):{form}})"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also readable as it stands."""
    widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = (c.ljust(w) if n == 0 else c.rjust(w) for n, (c, w) in enumerate(zip(cells, widths, strict=True)))
        return f"| {' | '.join(padded)} |"

    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]
    return "\n".join([line(head), line(rule), *(line(row) for row in rows)])


def save(name: str, result: dict[str, Any], text: str = "") -> None:
    """Keep the raw figures as JSON, and the table as Markdown beside it."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(result, indent=1, default=asdict) + "\n")
    if text:
        path.with_suffix(".md").write_text(text + "\n")
    print(f"\nwritten: {path.relative_to(ROOT)}")
