"""Is the memory of a worker flat? Its peak RSS after a crawl of 10,000 and of 100,000 pages."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import rig


def peak_of(pid: int) -> int:
    """The highest RSS a process has had, in bytes, as the kernel keeps it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def crawl(pages: int, args: argparse.Namespace) -> dict[str, Any]:
    with rig.site(pages) as site, rig.scratch() as folder, (folder / "log.txt").open("wb") as log:
        argv, env = rig.shoal_run(site, folder / "out.jsonl", concurrency=args.concurrency, fresh=True)
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
            peaks, fetched = watch(process, args.timeout), site.ask("/__count")["pages"]
        finally:
            rig.kill_group(process.pid)
            process.wait()
        words = (folder / "log.txt").read_text(errors="replace")[-1500:]
    if process.returncode or fetched != pages:
        print(words, file=sys.stderr)
        sys.exit(f"the crawl of {pages:,} pages ended with {process.returncode} after {fetched:,} pages")
    return {
        "pages": pages,
        "supervisor": peaks.pop(process.pid, 0),
        "worker": max(peaks.values(), default=0),
        "seconds": time.monotonic() - start,
    }


def watch(process: subprocess.Popen[bytes], timeout: float) -> dict[int, int]:
    """The peak of every process of the tree, until the command ends."""
    peaks: dict[int, int] = {}
    until = time.monotonic() + timeout
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(process.pid)
            for pid in (root.pid, *(child.pid for child in root.children(recursive=True))):
                peaks[pid] = max(peaks.get(pid, 0), peak_of(pid))
        time.sleep(0.1)
    return peaks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", default="10000,100000", help="default: %(default)s")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds one crawl may take")
    args = parser.parse_args()
    crawls = []
    for pages in map(int, args.pages.split(",")):
        crawls.append(crawl(pages, args))
        print(f"  {pages:,} pages: worker {crawls[-1]['worker'] / 1e6:.1f} MB", flush=True)
    least = crawls[0]["worker"]
    rows = [
        [
            f"{one['pages']:,}",
            f"{one['worker'] / 1e6:.1f}",
            f"{one['worker'] / least * 100 - 100:+.1f} %",
            f"{one['supervisor'] / 1e6:.1f}",
            f"{one['seconds']:.0f}",
        ]
        for one in crawls
    ]
    text = rig.table(["pages", "worker peak RSS MB", "against the first", "supervisor MB", "seconds"], rows)
    text += "\n\nTarget: within 10 % of the first and under 150 MB."
    print(f"\n{text}")
    rig.save("memory", {"machine": rig.machine(), "arguments": vars(args), "crawls": crawls}, text)
    worst = max(one["worker"] for one in crawls)
    return 0 if worst <= 1.1 * least and worst < 150e6 else 1


if __name__ == "__main__":
    sys.exit(main())
