"""Is the memory of a worker flat? Its peak RSS when 10,000 and when 100,000 pages of one crawl are done.

Beside it, for comparison, the peak of a crawl that has only 10,000 pages to begin with.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness
import psutil


def peak_of(pid: int) -> int:
    """The highest RSS a process has had, in bytes, as the kernel keeps it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def crawl(pages: int, args: argparse.Namespace) -> dict[str, Any]:
    with harness.site(pages) as site, harness.scratch() as folder, (folder / "log.txt").open("wb") as log:
        argv, env = harness.shoal_run(site, folder / "out.jsonl", concurrency=args.concurrency, fresh=True)
        start = time.monotonic()
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            early, peaks = watch(process, site, args)
            fetched = site.ask("/__count")["pages"]
        finally:
            harness.kill_group(process.pid)
            process.wait()
        words = (folder / "log.txt").read_text(errors="replace")[-1500:]
    if process.returncode or fetched != pages:
        print(words, file=sys.stderr)
        sys.exit(f"the crawl of {pages:,} pages ended with {process.returncode} after {fetched:,} pages")
    return {
        "pages": pages,
        "supervisor": peaks.pop(process.pid, 0),
        "worker": max(peaks.values(), default=0),
        "worker_early": early,
        "seconds": time.monotonic() - start,
    }


def watch(process: subprocess.Popen[bytes], site: harness.Site, args: argparse.Namespace) -> tuple[int, dict[int, int]]:
    """The worker's peak when the first pages were done, and the peak of every process at the end."""
    peaks: dict[int, int] = {}
    early = 0
    until = time.monotonic() + args.timeout
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(process.pid)
            for pid in (root.pid, *(child.pid for child in root.children(recursive=True))):
                peaks[pid] = max(peaks.get(pid, 0), peak_of(pid))
        if not early and site.ask("/__count")["pages"] >= args.early:
            early = max((peak for pid, peak in peaks.items() if pid != process.pid), default=0)
        time.sleep(0.1)
    return early, peaks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--early", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds one crawl may take")
    args = parser.parse_args()
    small, large = crawl(args.early, args), crawl(args.pages, args)
    growth = large["worker"] / large["worker_early"] - 1
    rows = [
        [f"{args.pages:,} pages, when {args.early:,} are done", f"{large['worker_early'] / 1e6:.1f}", "", ""],
        [
            f"{args.pages:,} pages, at the end",
            f"{large['worker'] / 1e6:.1f}",
            f"{growth * 100:+.1f} %",
            f"{large['supervisor'] / 1e6:.1f}",
        ],
        [f"{args.early:,} pages, at the end", f"{small['worker'] / 1e6:.1f}", "", f"{small['supervisor'] / 1e6:.1f}"],
    ]
    text = harness.table(["a crawl of", "worker peak RSS MB", "growth", "supervisor MB"], rows)
    text += "\n\nTarget: growth within 10 %, and under 150 MB."
    print(f"\n{text}")
    harness.save("memory", {"machine": harness.machine(), "arguments": vars(args), "crawls": [small, large]}, text)
    return 0 if growth <= 0.1 and large["worker"] < 150e6 else 1


if __name__ == "__main__":
    sys.exit(main())
