from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from wait import HANG, until, wait_until

from shoal.core.page import Response
from shoal.errors import GiveUp
from shoal.extract.page import Page
from shoal.extract.parse_budget import ParseBudget, may_be_slow
from shoal.extract.parse_sandbox import ParseSandbox

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))
from hostile_html import LARGE, SLOW

BOMB = SLOW["nested divs"](500_000)  # 30 seconds
FINE = b"<ul>" + b"<li><a href='/x'>x</a></li>" * 4_000


def answer(body: bytes, kind: str = "text/html") -> Response:
    return Response("http://h.example/", 200, (("content-type", kind),), body)


@pytest.fixture
async def budget() -> AsyncIterator[ParseBudget]:
    budget = ParseBudget(1.0)
    yield budget
    await budget.close()


@pytest.fixture
async def probe() -> AsyncIterator[ParseSandbox]:
    probe = ParseSandbox()
    yield probe
    await probe.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ticks(pid: int) -> int:
    """CPU time used so far."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


def wait_until_gone(pid: int) -> None:
    wait_until(lambda: not alive(pid))


@pytest.mark.parametrize(
    "make",
    [SLOW["nested divs"], SLOW["attributes of one tag"], SLOW["attributes of many formatting tags"], *LARGE.values()],
)
async def test_a_page_that_would_stop_a_worker_is_given_up_in_time(
    budget: ParseBudget, make: Callable[[int], bytes]
) -> None:
    page = answer(make(500_000))
    with pytest.raises(GiveUp) as caught:
        await budget.check(page)
        _ = Page(page).html
    assert caught.value.cause == "too_complex"


async def test_the_worker_goes_on_while_a_page_is_tried(budget: ParseBudget) -> None:
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    ticking = asyncio.create_task(tick())
    with pytest.raises(GiveUp, match=r"more than 0\.2 s of CPU time"):
        await budget.check(answer(BOMB))
    ticking.cancel()
    assert turns > 5


async def test_a_large_but_honest_page_passes(budget: ParseBudget) -> None:
    page = answer(FINE)
    assert may_be_slow(page)
    await budget.check(page)
    assert len(Page(page).css("li")) == 4_000


async def test_ordinary_pages_need_no_helper(budget: ParseBudget) -> None:
    for page in (answer(b"<p>x"), answer(FINE[:30_000]), answer(b"<" * 100_000, "image/png")):
        await budget.check(page)
    assert budget._sandbox is None


async def test_the_helper_is_kept_and_after_its_death_replaced(probe: ParseSandbox) -> None:
    assert await probe.try_parsing("text/html", FINE, 5.0) == "fine"
    first = probe.pid
    assert await probe.try_parsing("text/html; charset=utf-16", "<p>x".encode("utf-16-le"), 5.0) == "fine"
    assert probe.pid == first
    assert await probe.try_parsing("text/html", BOMB, 0.2) == "slow"
    assert first is not None
    wait_until_gone(first)
    assert await probe.try_parsing("text/html", FINE, 5.0) == "fine"
    assert probe.pid not in (None, first)
    assert await probe.try_parsing("text/html", LARGE["formatting made anew"](39_000), 5.0) == "memory"
    assert await probe.try_parsing("text/html", FINE, 5.0) == "fine"


async def test_a_helper_killed_between_two_pages_is_replaced(probe: ParseSandbox) -> None:
    assert await probe.try_parsing("text/html", FINE, 5.0) == "fine"
    assert probe.pid is not None
    os.kill(probe.pid, signal.SIGKILL)
    wait_until_gone(probe.pid)
    assert await probe.try_parsing("text/html", FINE, 5.0) == "fine"


async def test_a_page_that_kills_its_helper_again_and_again_is_given_up(
    budget: ParseBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")  # it ends before it answers
    with pytest.raises(GiveUp, match="crashed") as caught:
        await budget.check(answer(FINE))
    assert caught.value.cause == "too_complex"


async def test_whoever_stops_waiting_spoils_no_later_answer(probe: ParseSandbox) -> None:
    waiting = asyncio.create_task(probe.try_parsing("text/html", BOMB, 20.0))
    first = await until(lambda: probe.pid)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    wait_until_gone(first)
    assert await probe.try_parsing("text/html", FINE, 5.0) == "fine"


async def test_pages_are_tried_one_after_the_other(probe: ParseSandbox) -> None:
    pages = [FINE, BOMB, LARGE["formatting made anew"](39_000), FINE]
    verdicts = await asyncio.gather(*(probe.try_parsing("text/html", page, 1.0) for page in pages))
    assert verdicts == ["fine", "slow", "memory", "fine"]


WORKER = """
import asyncio, sys
sys.path.insert(0, "tests/unit")
from hostile_html import SLOW
from shoal.extract.parse_sandbox import ParseSandbox

async def main():
    probe = ParseSandbox()
    await probe.try_parsing("text/html", b"<p>x", 5.0)
    print(probe.pid, flush=True)
    if sys.argv[1] == "busy":
        await probe.try_parsing("text/html", SLOW["nested divs"](500_000), 30.0)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("doing", "end"), [("idle", signal.SIGKILL), ("busy", signal.SIGKILL), ("busy", signal.SIGTERM)]
)
def test_the_helper_never_outlives_its_worker(doing: str, end: signal.Signals) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, doing], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert worker.stdout is not None
    helper = int(worker.stdout.readline())
    before = ticks(helper)
    wait_until(lambda: doing != "busy" or ticks(helper) >= before + 20)
    assert alive(helper)
    worker.send_signal(end)
    worker.wait(HANG)
    worker.stdout.close()
    wait_until_gone(helper)
