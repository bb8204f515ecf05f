"""The long runs behind what we claim, judged by the benches that measure them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def test_fifty_crawls_killed_at_any_moment_lose_and_duplicate_nothing() -> None:
    command = [sys.executable, str(BENCH / "kill_resume.py"), "--runs", "50", "--pages", "2000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
