"""Disks that fill up or become read-only under a crawl."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wait import wait_until

from .conftest import Crawl


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root on Linux")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_crawl_whose_disk_fills_up_says_so_and_goes_on_later(disk: Path, crawl_of: Callable[..., Crawl]) -> None:
    crawl = crawl_of(800, filler=4000)
    state = ("--queue", f"sqlite:///{disk}/state.db")
    code, said = crawl.finish(*state, timeout=180)
    assert code == 1 and "no space left" in said, said
    assert "Traceback" not in said
    subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
    code, said = crawl.finish(*state)
    assert code == 0, said
    crawl.check()


def test_a_crawl_whose_output_disk_fills_up_keeps_whole_lines(disk: Path, crawl_of: Callable[..., Crawl]) -> None:
    crawl = crawl_of(800, filler=8000)
    (crawl.folder / "books.jsonl").symlink_to(disk / "books.jsonl")
    code, said = crawl.finish()
    assert code == 1 and "space" in said, said
    written = (disk / "books.jsonl").read_bytes()
    assert written == b"" or written.endswith(b"\n")
    subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
    code, said = crawl.finish()
    assert code == 0, said
    crawl.check()


def test_a_state_that_becomes_read_only_is_said_and_nothing_is_lost(disk: Path, crawl_of: Callable[..., Crawl]) -> None:
    subprocess.run(["mount", "-o", "remount,size=200m", str(disk)], check=True)
    crawl = crawl_of(400, delay=0.05)
    state = ("--queue", f"sqlite:///{disk}/state.db", "--concurrency", "4")
    running = crawl.start(*state)
    crawl.wait_for(20)
    os.killpg(running.pid, 9)
    running.communicate()
    # Its worker processes notice within a moment that they are alone; until then the disk is busy.
    wait_until(lambda: not subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=False).returncode, every=0.1)
    code, said = crawl.finish(*state)
    assert code == 1 and "cannot be written" in said, said
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    code, said = crawl.finish(*state)
    assert code == 0, said
    crawl.check()
