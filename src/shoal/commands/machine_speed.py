"""How fast a core of this machine is beside the one that core/sizing was measured on: a crawl of the demo site."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from shoal.commands.demo_site import demo_site
from shoal.core.sizing import page_cpu_ms
from shoal.errors import ActionRequired

BOOKS = 3_000
TIMEOUT = 300.0  # seconds


class _Fetched(msgspec.Struct):
    responses: int
    bytes: int
    cpu_seconds: float


class _Status(msgspec.Struct):
    fetched: list[_Fetched]


def measure_speed() -> float:
    """Above 1: faster than the machine of core/sizing."""
    with demo_site(BOOKS, 0.0) as url, tempfile.TemporaryDirectory(prefix="shoal-plan-") as folder:
        place = Path(folder)
        flags = ["--delay", "0", "--in-flight", "0", "--workers", "1", "--concurrency", "32"]
        flags += ["--allow-private", url.partition("//")[2].rstrip("/")]
        _shoal(place, url, "run", "shoal.demo.books", "-o", "books.jsonl", "--fresh", *flags)
        status = msgspec.json.decode(_shoal(place, url, "status", "--json"), type=_Status)
    seen = status.fetched[0]
    if not seen.responses or not seen.cpu_seconds:
        raise ActionRequired("the crawl of the demo site counted nothing", hint="leave --measure out")
    expected = page_cpu_ms("sqlite", seen.bytes / seen.responses) / 1000
    return expected / (seen.cpu_seconds / seen.responses)


def _shoal(folder: Path, url: str, *words: str) -> str:
    """Run a command of ours in a folder of its own; nothing of the user's settings may reach it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")} | {"SHOAL_DEMO_URL": url}
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-P", "-m", "shoal", *words],
        cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it did not say why"]
        raise ActionRequired(f"the demo site could not be crawled: {last[0]}", hint="shoal demo --crawl says more")
    return done.stdout
