"""The robots cache: a robots.txt that one process has read serves the others on its machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from wait import FOREVER, HANG

from shoal.core.page import Request, Response
from shoal.errors import FetchFailed, FetchRefused, ShoalError
from shoal.files import flock
from shoal.politeness import robots_cache as module
from shoal.politeness.robots import DAY, Robots
from shoal.politeness.robots_cache import CachedRobots, RobotsCache

SITE = "http://site.test"
RULES = b"User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n"
WALL = 1_700_000_000.0

# A worker process as far as robots.txt is concerned: asks once, says what it heard.
PROCESS = """
import asyncio, json, sys, urllib.request
from pathlib import Path
from shoal.core.page import Response
from shoal.politeness.robots import Robots
from shoal.politeness.robots_cache import RobotsCache

def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return Response(url, answer.status, (), answer.read())

async def main(folder, site):
    robots = Robots(
        lambda request: asyncio.to_thread(get, request.url),
        user_agent="shoal/1", cache=RobotsCache(Path(folder)),
    )
    print("ready", flush=True)
    sys.stdin.readline()
    verdicts = await asyncio.gather(*(robots.verdict(site + "/private/%d" % n) for n in range(5)))
    print(json.dumps([(v.allowed, v.fresh, v.crawl_delay) for v in verdicts]), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""

# Takes the turn and never gives it back.
HOLDER = """
import asyncio, sys
from pathlib import Path
from shoal.politeness.robots_cache import RobotsCache

async def main(folder, site):
    async with RobotsCache(Path(folder)).fetch_lock(site, "shoal"):
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


class RobotsCacheHarness:
    """What the site answers, what time it is, and processes that share a shelf."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answer: Response | ShoalError = Response("", 200, (), RULES)
        self.asked = 0
        self.now = 1000.0
        self.wall = WALL
        self.lock_timeout = 0.2

    async def fetch(self, request: Request) -> Response:
        self.asked += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, ShoalError):
            raise self.answer
        return self.answer

    def robots(self, agent: str = "shoal", **options: object) -> Robots:
        cache = RobotsCache(self.folder, lock_timeout=self.lock_timeout)
        return Robots(
            self.fetch,
            user_agent=agent,
            cache=cache,
            clock=lambda: self.now,
            wall=lambda: self.wall,
            **options,  # type: ignore[arg-type]
        )

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


@pytest.fixture
def harness(tmp_path: Path) -> RobotsCacheHarness:
    return RobotsCacheHarness(tmp_path / "robots")


@asynccontextmanager
async def start(script: str, *args: object) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *map(str, args), stdin=pipe, stdout=pipe
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), HANG)).decode().strip()


async def test_of_four_processes_that_start_together_one_asks_the_site(tmp_path: Path) -> None:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        await asyncio.sleep(0.3)  # long enough for all to have come
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(RULES))
        writer.write(RULES)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    site = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(start(PROCESS, tmp_path, site)) for _ in range(4)]
        assert [await line(process) for process in processes] == ["ready"] * 4
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
        heard = [json.loads(await line(process)) for process in processes]
    assert len(requests) == 1
    told = [tuple(verdict) for verdicts in heard for verdict in verdicts]
    assert sorted(told) == [(False, False, 2.0)] * 19 + [(False, True, 2.0)]
    assert [file.suffix for file in tmp_path.iterdir()] == [""]


async def test_a_process_that_dies_while_it_asks_keeps_nobody_waiting(harness: RobotsCacheHarness) -> None:
    async with start(HOLDER, harness.folder, SITE) as holder:
        assert await line(holder) == "held"
        harness.lock_timeout = FOREVER
        waiting = asyncio.ensure_future(harness.robots().verdict(f"{SITE}/"))
        await asyncio.sleep(0.05)
        assert harness.asked == 0
        os.kill(holder.pid, signal.SIGKILL)
        assert (await waiting).fresh
        assert harness.asked == 1


async def test_who_has_waited_for_long_enough_asks_as_well(harness: RobotsCacheHarness) -> None:
    async with start(HOLDER, harness.folder, SITE) as holder:
        assert await line(holder) == "held"
        assert (await harness.robots().verdict(f"{SITE}/")).allowed
        assert harness.asked == 1
        assert holder.returncode is None


async def test_never_are_two_at_it_at_once(tmp_path: Path) -> None:
    at_it = most = 0

    async def one() -> None:
        nonlocal at_it, most
        cache = RobotsCache(tmp_path)
        for _ in range(5):
            async with cache.fetch_lock(SITE, "shoal"):
                at_it += 1
                most = max(most, at_it)
                await asyncio.sleep(0)
                at_it -= 1

    await asyncio.gather(*(one() for _ in range(10)))
    assert most == 1
    assert list(tmp_path.iterdir()) == []


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, lock, take = RobotsCache(tmp_path), tmp_path / "site.lock", flock.try_lock

    def removed_and_made_anew(file: int) -> bool:
        lock.rename(tmp_path / "old")
        lock.touch()
        return take(file)

    with monkeypatch.context() as patch:
        patch.setattr(flock, "try_lock", removed_and_made_anew)
        assert cache._try_lock(lock) is None
    held = cache._try_lock(lock)
    assert held
    assert cache._try_lock(lock) is None
    flock.release(held)


async def test_an_answer_from_the_cache_is_not_fresh_but_brings_the_crawl_delay(harness: RobotsCacheHarness) -> None:
    first, second = harness.robots(), harness.robots()
    verdicts = [await robots.verdict(f"{SITE}/private/") for robots in (first, first, second, second)]
    assert [verdict.fresh for verdict in verdicts] == [True, False, False, False]
    assert [verdict.crawl_delay_changed for verdict in verdicts] == [True, False, False, False]
    assert [(verdict.allowed, verdict.crawl_delay) for verdict in verdicts] == [(False, 2.0)] * 4
    assert second.peek("site.test", f"{SITE}/open") is True
    assert harness.asked == 1


async def test_a_later_process_asks_when_the_day_is_over_and_says_what_is_news(harness: RobotsCacheHarness) -> None:
    await harness.robots().verdict(f"{SITE}/")
    harness.advance(DAY - 1)
    later = harness.robots()
    assert (await later.verdict(f"{SITE}/")).crawl_delay == 2
    harness.advance(1)
    verdict = await harness.robots().verdict(f"{SITE}/")
    assert (verdict.fresh, verdict.crawl_delay_changed, harness.asked) == (True, False, 2)
    assert not (await later.verdict(f"{SITE}/")).fresh
    harness.answer = Response("", 404, (), b"")
    harness.advance(DAY)
    verdict = await harness.robots().verdict(f"{SITE}/")
    assert (verdict.fresh, verdict.crawl_delay_changed, verdict.crawl_delay) == (True, True, None)


async def test_agents_with_other_names_do_not_share(harness: RobotsCacheHarness) -> None:
    await harness.robots("shoal/1.0").verdict(f"{SITE}/")
    await harness.robots("Shoal/2.0 (+http://a.test)").verdict(f"{SITE}/")
    assert harness.asked == 1
    await harness.robots("otherbot").verdict(f"{SITE}/")
    assert harness.asked == 2


@pytest.mark.parametrize(
    ("failure", "cause", "wait"),
    [
        (Response("", 503, (), b""), "", 60.0),
        (Response("", 429, (("retry-after", "200"),), b""), "", 200.0),
        (FetchFailed("connect", "refused"), "connect", 2.0),
    ],
)
async def test_not_now_is_heard_by_all_and_the_wait_grows_over_processes(
    harness: RobotsCacheHarness, failure: Response | ShoalError, cause: str, wait: float
) -> None:
    harness.answer = failure
    for _ in range(2):
        verdict = await harness.robots().verdict(f"{SITE}/")
        assert (verdict.allowed, verdict.cause) == (False, cause)
        assert verdict.wait == pytest.approx(wait)
    assert harness.asked == 1
    harness.advance(wait)
    assert (await harness.robots().verdict(f"{SITE}/")).wait == pytest.approx(max(wait, min(2 * wait, 120)))
    assert harness.asked == 2


async def test_rules_on_the_cache_go_on_holding_while_the_file_cannot_be_read(harness: RobotsCacheHarness) -> None:
    await harness.robots().verdict(f"{SITE}/")
    harness.advance(DAY)
    harness.answer = Response("", 500, (), b"")
    for _ in range(2):
        robots = harness.robots()
        assert (await robots.verdict(f"{SITE}/")).allowed
        assert not (await robots.verdict(f"{SITE}/private/")).allowed
    assert harness.asked == 2


@pytest.mark.parametrize("error", [FetchRefused("blocked.private", "no"), FetchFailed("stalled")])
async def test_what_is_only_our_own_is_not_shared(harness: RobotsCacheHarness, error: ShoalError) -> None:
    harness.answer = error
    with pytest.raises(type(error)):
        await harness.robots().verdict(f"{SITE}/")
    harness.answer = Response("", 200, (), RULES)
    assert (await harness.robots().verdict(f"{SITE}/")).allowed


async def test_an_answer_dated_by_a_wrong_clock_is_asked_for_again(harness: RobotsCacheHarness) -> None:
    harness.wall = WALL + 30 * DAY
    await harness.robots().verdict(f"{SITE}/")
    harness.wall = WALL
    await harness.robots().verdict(f"{SITE}/")
    assert harness.asked == 2


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"\x93\x01\x02", RULES, b"\xc1" * 3_000_000])
async def test_a_file_that_is_none_of_ours_is_replaced(harness: RobotsCacheHarness, content: bytes) -> None:
    await harness.robots().verdict(f"{SITE}/")
    (file,) = harness.folder.iterdir()
    file.write_bytes(content)
    await harness.robots().verdict(f"{SITE}/")
    await harness.robots().verdict(f"{SITE}/")
    assert harness.asked == 2


async def test_a_file_of_another_version_is_not_read(harness: RobotsCacheHarness) -> None:
    cache = RobotsCache(harness.folder)
    cache.put(CachedRobots(SITE, "shoal", WALL, WALL + DAY, None, version=99))
    assert cache.get(SITE, "shoal") is None
    assert (await harness.robots().verdict(f"{SITE}/")).fresh


async def test_without_a_place_for_the_cache_everybody_asks(harness: RobotsCacheHarness) -> None:
    harness.folder.write_text("a file where the folder should be")
    for _ in range(2):
        assert (await harness.robots().verdict(f"{SITE}/")).fresh
    assert harness.asked == 2


async def test_a_cache_is_not_touched_by_who_ignores_robots(harness: RobotsCacheHarness) -> None:
    assert (await harness.robots(ignore=True).verdict(f"{SITE}/private/")).allowed
    assert not harness.folder.exists()


@pytest.mark.parametrize("limit", ["files", "bytes"])
async def test_the_oldest_files_go_when_there_are_too_many(
    tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PRUNE_EVERY", 1)
    cache = RobotsCache(tmp_path)
    for number in range(30):
        origin = f"http://h{number}.test"
        cache.put(CachedRobots(origin, "shoal", WALL, WALL + DAY))
        file = cache._file(origin, "shoal")
        os.utime(file, (WALL + number, WALL + number))
    (tmp_path / "left.lock").touch()
    (tmp_path / "new.lock").touch()
    os.utime(tmp_path / "left.lock", (WALL, WALL))
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    monkeypatch.setattr(module, "MAX_FILES" if limit == "files" else "MAX_BYTES", 10 if limit == "files" else size // 3)
    await cache.prune_if_due()
    kept = [number for number in range(30) if cache.get(f"http://h{number}.test", "shoal")]
    assert kept == list(range(30 - len(kept), 30))
    assert 8 <= len(kept) <= 10
    assert (tmp_path / "new.lock").exists()
    assert not (tmp_path / "left.lock").exists()
