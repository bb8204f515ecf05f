"""Hosts that die, refuse, slow down or have odd robots.txt files: real servers, real worker processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from shell_user import ShellUser
from small_site import Hit, Reply, SmallSite, moved, page, small_site
from wait import HANG, wait_until

RUN = ("run", "walk.py", "-o", "out.jsonl", "--allow-private", "--log-level", "error")
WALK = """
import shoal

walk = shoal.Scraper("walk", start=["{url}/p/%d" % n for n in range({pages})])

@walk.page()
def every(page):
    yield {{"url": page.url}}
"""


@pytest.fixture
def site() -> Iterator[SmallSite]:
    with small_site() as site:
        site.pages["/p/*"] = page("page")
        yield site


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=1) as user:
        yield user


def scrape(user: ShellUser, site: SmallSite, pages: int) -> None:
    (user.folder / "walk.py").write_text(WALK.format(url=f"http://{site.lane}", pages=pages))


def host(user: ShellUser) -> dict[str, Any]:
    hosts = user.ask("status")["hosts"]
    return hosts[0] if hosts else {}


def urls(user: ShellUser, site: SmallSite) -> list[int]:
    return sorted(int(line["url"].rpartition("/")[2]) for line in user.lines("out.jsonl"))


def pages_of(site: SmallSite) -> list[Hit]:
    return [hit for hit in list(site.hits) if hit.path.startswith("/p/")]


# A host that dies


def test_a_host_that_dies_is_parked_probed_by_one_request_and_released_and_nothing_is_lost(
    user: ShellUser, site: SmallSite
) -> None:
    scrape(user, site, 30)
    running = user.start(*RUN, "--workers", "2", "--delay", "0.05")
    wait_until(lambda: len(pages_of(site)) >= 8)
    site.die()
    died = time.monotonic()
    told = wait_until(lambda: (found := host(user)).get("parked") and found)
    assert " requests could not connect" in told["reason"], told
    assert "could not connect" in user.shoal("status").out
    # A slot that the other worker was given before is still its own.
    wait_until(lambda: not host(user)["in_flight"])

    answered: list[float] = []

    def slowly(hit: Hit) -> Reply:
        time.sleep(0.3 if not answered else 0)
        answered.append(time.monotonic())
        return page("back")

    site.pages["/p/*"] = slowly
    before = len(site.hits)
    site.open()
    assert running.wait(HANG) == 0, running.stderr and running.stderr.read()
    after = site.hits[before:]
    assert after[0].at - died > 4, "no request while it is parked"
    assert after[1].at >= answered[0], "one request finds out, and only then come the others"
    assert urls(user, site) == list(range(30))
    (run,) = user.ask("runs")
    assert (run["seen"], run["done"], run["dead"]) == (30, 30, 0)


# What a host asks for


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_obeyed_in_both_forms(user: ShellUser, site: SmallSite, form: str) -> None:
    def once(hit: Hit) -> Reply:
        if len(pages_of(site)) != 3:
            return page("page")
        after = "2" if form == "seconds" else formatdate(time.time() + 3, usegmt=True)
        return page("later", status=429, Retry_After=after)

    site.pages["/p/*"] = once
    scrape(user, site, 5)
    done = user.shoal(*RUN, "--workers", "1", "--delay", "0.05", "--in-flight", "1")
    assert done.code == 0, done.err
    times = [hit.at for hit in pages_of(site)]
    assert len(times) == 6 and urls(user, site) == list(range(5))
    assert max(later - earlier for earlier, later in pairwise(times)) >= 1.95


def test_a_host_that_refuses_what_comes_too_fast_is_asked_more_slowly_also_after_a_restart(
    user: ShellUser, site: SmallSite
) -> None:
    last = [0.0]
    refused: list[float] = []

    def limited(hit: Hit) -> Reply:
        gap, last[0] = hit.at - last[0], hit.at
        if gap >= 0.3:
            return page("page")
        refused.append(hit.at)
        return page("too fast", status=429, Retry_After="1")

    site.pages["/p/*"] = limited
    scrape(user, site, 40)
    pace = ("--workers", "2", "--delay", "0.1", "--concurrency", "2")
    running = user.start(*RUN, *pace)
    wait_until(lambda: refused and len(pages_of(site)) >= 5)  # also what had its slot before is answered
    assert host(user)["spacing"] >= 0.9
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(HANG) == 4
    assert host(user)["spacing"] >= 0.9, "kept while nobody runs"

    before, refused[:] = len(site.hits), []
    running = user.start(*RUN, *pace)
    wait_until(lambda: len(site.hits) >= before + 3)
    os.killpg(running.pid, signal.SIGINT)
    running.wait(HANG)
    times = [hit.at for hit in pages_of(site) if hit in site.hits[before:]]
    assert min(later - earlier for earlier, later in pairwise(times)) >= 0.3  # asked for: 0.1
    assert not refused


# robots.txt


def endless(hit: Hit) -> Reply:
    return 200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /p/1\n" + b"# long\n" * 6_000_000


ROBOTS: dict[str, tuple[Any, list[int]]] = {
    "huge": (endless, [0, 2]),
    "moved": (moved("/elsewhere/robots.txt"), [0, 2]),
    "none": ((404, {}, b"Disallow: /"), [0, 1, 2]),
    "forbidden": ((403, {}, b"Disallow: /"), [0, 1, 2]),
}


@pytest.mark.parametrize("name", list(ROBOTS))
def test_robots_txt_is_read_by_the_standard(user: ShellUser, site: SmallSite, name: str) -> None:
    answer, allowed = ROBOTS[name]
    site.pages |= {
        "/robots.txt": answer,
        "/elsewhere/robots.txt": (200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /p/1\n"),
    }
    scrape(user, site, 3)
    done = user.shoal(*RUN, "--workers", "2")
    assert done.code == (0 if len(allowed) == 3 else 3), done.err
    assert urls(user, site) == allowed
    assert len(site.hits_for("/robots.txt")) == 1, "one request for all worker processes"


def test_nothing_is_fetched_while_robots_txt_answers_with_an_error_and_people_are_told(
    user: ShellUser, site: SmallSite
) -> None:
    site.pages["/robots.txt"] = (503, {}, b"")
    scrape(user, site, 5)
    running = user.start(*RUN, "--workers", "2", "--delay", "0.05")

    asking = (("why", site.url("/p/0")), ("status",))

    def told() -> bool:
        return all("robots.txt cannot be read: http.503" in user.shoal(*words).out for words in asking)

    wait_until(told)
    assert len(site.hits_for("/robots.txt")) == 1 and not pages_of(site)
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(HANG) == 4
