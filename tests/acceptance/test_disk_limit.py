"""A disk that is really full: workers of a fleet claim nothing, lose nothing, and go on when there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_fleet import LocalFleet, stop_process
from small_site import page
from wait import wait_until

pytestmark = pytest.mark.faults

MB = 1_000_000


@pytest.fixture
def disk(redis_fleet: LocalFleet) -> Iterator[Path]:
    """A small disk where the workers keep their state."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root on Linux")
    place = redis_fleet.user.folder / ".shoal"
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: Path, size: int) -> None:
    with file.open("wb") as out:
        try:
            while out.tell() < size:
                out.write(b"x" * 10_000)
                out.flush()
        except OSError:
            return


def test_worker_claims_nothing_while_its_disk_is_full_and_goes_on_when_there_is_room(
    redis_fleet: LocalFleet, disk: Path
) -> None:
    redis_fleet.site.pages["/p/*"] = page("x")
    redis_fleet.user.environment["SHOAL_HEARTBEAT"] = "300ms"
    worker = redis_fleet.worker(redis_fleet.scraper(), "--health", "0", "--keep-raw")
    first = redis_fleet.submit(["/p/1"])
    wait_until(lambda: redis_fleet.stats(first).done == 1)

    fill(disk / "others", 1000 * MB)  # to the last byte
    (status,) = wait_until(lambda: [it for it in redis_fleet.workers() if it.activity.startswith("claims nothing")])
    assert "of disk free" in status.activity
    second = redis_fleet.submit([f"/p/{number}" for number in range(2, 40)])
    assert "resources_low" in redis_fleet.user.shoal("advice", "--json").out
    stats = redis_fleet.stats(second)
    assert (stats.ready, stats.leased, stats.done) == (38, 0, 0)

    (disk / "others").unlink()
    wait_until(lambda: redis_fleet.stats(second).done == 38)
    stats = redis_fleet.stats(second)
    assert (stats.dead, stats.retries, stats.lost, stats.records) == (0, 0, 0, 38)
    assert stop_process(worker).code == 0
