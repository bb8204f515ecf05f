"""Workers that stand still past their lease, and come back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from .conftest import Crawl, children


def test_workers_stopped_past_their_lease_duplicate_nothing(crawl_of: Callable[..., Crawl]) -> None:
    crawl = crawl_of(600, delay=0.3)
    running = crawl.start("--workers", "3", "--concurrency", "4", "--lease", "2", "--heartbeat", "0.5")
    crawl.wait_for(20)
    dice = random.Random(7)
    for _ in range(6):
        victim = dice.choice(children(running.pid))
        os.kill(victim, signal.SIGSTOP)
        time.sleep(3.5)
        os.kill(victim, signal.SIGCONT)
        time.sleep(0.5)
        if running.poll() is not None:
            break
    _, said = running.communicate(timeout=120)
    assert running.returncode == 0, said
    crawl.check()
    status = subprocess.run(
        [sys.executable, "-m", "shoal", "status", "--json"],
        cwd=crawl.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(status.stdout)


def test_a_stopped_supervisor_and_its_workers_go_on_when_continued(crawl_of: Callable[..., Crawl]) -> None:
    crawl = crawl_of(400, delay=0.1)
    running = crawl.start("--workers", "2", "--concurrency", "4", "--lease", "2", "--heartbeat", "0.5")
    crawl.wait_for(20)
    everyone = [*children(running.pid), running.pid]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    for pid in everyone:
        os.kill(pid, signal.SIGCONT)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 0, said
    crawl.check()
