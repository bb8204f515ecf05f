"""Crawls by browsers that leave by Tor, killed again and again at random moments: nothing is lost, doubled or left.

SHOAL_KILLS=200 .venv/bin/pytest -m faults tests/acceptance/test_browser_kills.py
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rendered_crawl import GONE_WITHIN, RenderedCrawl, rendered_site_thread
from rendering import need_browser
from servers.tor_network import TorNetwork, tor_network
from wait import FOREVER, HANG, wait_until

KILLS = int(os.environ.get("SHOAL_KILLS", "30"))
PAGES = 10 * KILLS
KINDS = ("worker", "supervisor", "group")
EXIT = ("--exit", "onion")

pytestmark = [pytest.mark.faults, pytest.mark.timeout(14_400)]


@pytest.fixture
def network() -> Iterator[TorNetwork]:
    """All that the test starts is in a private Tor network, which has no way out."""
    need_browser()
    with tor_network() as network, network.namespace.entered():
        yield network


def test_kills_lose_double_and_leave_nothing(network: TorNetwork, tmp_path: Path) -> None:
    with rendered_site_thread(network.site_address) as site:
        crawl = RenderedCrawl(tmp_path, site, PAGES)
        exits = f"[exits]\nonion = {{tor = true, torrc = {json.dumps(network.torrc)}}}\n"
        (tmp_path / "shoal.toml").write_text(exits)
        slowest = max(_gone_after(crawl, number) for number in range(KILLS))
        assert crawl.start(*EXIT).wait(FOREVER) == 0, crawl.log()
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(one["page"] for one in found) == list(range(1, PAGES + 1))
    assert {one["items"] for one in found} == {20}
    assert crawl.left() == []
    print(f"{KILLS} kills, everything was gone after {slowest:.1f} s at most")
    assert slowest < GONE_WITHIN  # on a machine that has nothing else to do


def _gone_after(crawl: RenderedCrawl, number: int) -> float:
    """Seconds from the end of what was killed until nothing of it was left."""
    kind = KINDS[number % len(KINDS)]
    running = crawl.start(*EXIT)
    if number % 2:
        crawl.kill_some(running, kind, after=5.0)
    else:
        crawl.kill_later(running, kind, after=8.0)
    if kind == "worker":
        crawl.stop(running)
    running.wait(HANG)
    ended = time.monotonic()
    wait_until(lambda: not crawl.left())
    return time.monotonic() - ended
