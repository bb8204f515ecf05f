"""Every symptom of docs/troubleshooting.md, made for real, named by the doctor in the page's words, and cured."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import redis
from servers.ports import free_port
from shell_user import ShellUser
from wait import HANG, until, wait_until
from worker_at_work import at_work

import shoal
from shoal.config.load import load
from shoal.control.celery.broker import celery_app
from shoal.control.celery.options import read_options
from shoal.core.task import LaneChange
from shoal.errors import ActionRequired
from shoal.queue.base import Finding
from shoal.view.doctor import run_checks

PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text("utf-8")
Task = shoal.Task


class Profiles(shoal.Worker):
    types = ("scrape_profile",)

    async def handle(self, task: Any) -> Any:
        return {"username": task.payload["username"]}


class Others(shoal.Worker):
    types = ("something_else",)

    async def handle(self, task: Any) -> Any:
        return None


async def findings(queue: str, **settings: str) -> list[Finding]:
    """What the doctor finds that is not in order."""
    report = await run_checks(load({"queue": queue, **settings}))
    return [finding for finding in report.findings if finding.level in ("warning", "wrong")]


async def named(queue: str, words: str, fix: str = "", **settings: str) -> None:
    """The doctor says so, with what to do, and the page has the same words."""
    assert words in PAGE, f"{words!r} is not on the page"

    async def is_said() -> bool:
        report = await run_checks(load({"queue": queue, **settings}))
        said = [it for it in report.findings if it.level != "ok" and words in it.words and fix in it.fix]
        return bool(said)

    await until(is_said, every=0.1)


async def gone(queue: str, words: str, **settings: str) -> None:
    async def is_gone() -> bool:
        report = await run_checks(load({"queue": queue, **settings}))
        return not any(words in it.words for it in report.findings if it.level != "ok")

    await until(is_gone, every=0.1)


@pytest.fixture
def own_redis(clean_folder: Path) -> Iterator[redis.RedisServer]:
    with redis.own_server() as server:
        yield server


async def test_redis_not_available(own_redis: redis.RedisServer) -> None:
    url = own_redis.url("away")
    async with shoal.connect(url) as client:
        id = await client.enqueue(Task(type="scrape_profile", payload={"username": "ada"}))
    assert id
    own_redis.kill()
    await named(url, "nothing listens there", "start the server")
    own_redis.start()
    await gone(url, "nothing listens there")
    assert not [it for it in await findings(url) if it.level == "wrong"]


async def test_workers_not_picking_up_tasks(here: str) -> None:
    async with shoal.connect(here) as client:
        id = await client.enqueue(Task(type="scrape_profile", payload={"username": "ada"}))
        await named(here, "no worker is alive", "shoal worker FILE.py")
        async with at_work(Others(here)):
            await until(client.workers)
            await named(here, "has its code", "shoal worker FILE.py")
        profiles = Profiles(here, heartbeat=0.2)
        later = Task(type="scrape_profile", payload={"username": "grace"})
        async with at_work(profiles):
            await client.wait_for_results(id, timeout=HANG)
            (status,) = await client.workers()
            await client.queue.command_worker(status.id, "pause")
            await named(here, "paused by a person", f"shoal drain {status.id} --resume")
            id = await client.enqueue(later)
            await client.queue.command_worker(status.id, "")
            await client.wait_for_results(id, timeout=HANG)
        assert await findings(here) == []


async def test_tasks_stuck_in_the_queue(here: str) -> None:
    payload = {"username": "ada"}
    async with shoal.connect(here) as client, at_work(Profiles(here)):
        await client.queue.set_lane(LaneChange("shop.example", park_for=3600, reason="it was down"))
        id = await client.enqueue(Task(type="scrape_profile", payload=payload, lane="shop.example"))
        await named(here, "shop.example is parked", "shoal hosts release shop.example")
        await client.queue.set_lane(LaneChange("shop.example", park_for=0))
        await client.wait_for_results(id, timeout=HANG)
        (run,) = await client.queue.runs()
        await client.queue.set_run(run.id, "pause")
        id = await client.enqueue(Task(type="scrape_profile", payload=payload))
        await named(here, "is paused", f"shoal resume {run.name}")
        await client.queue.set_run(run.id, "resume")
        await client.wait_for_results(id, timeout=HANG)
        id = await client.enqueue(Task(type="scrape_profile", payload=payload, needs="browser"))
        await named(here, "has browser", "--has browser")
        async with at_work(Profiles(here, has="browser")):
            await client.wait_for_results(id, timeout=HANG)
        assert await findings(here) == []


async def test_results_missing(here: str, clean_folder: Path) -> None:
    async with shoal.connect(here) as client:
        id = await client.enqueue(Task(type="scrape_profile", payload={}, retries=0))
        store = clean_folder / "elsewhere" / "results.db"
        store.parent.mkdir()
        async with at_work(Profiles(here, store=str(store))):
            (result,) = await client.wait_for_results(id, timeout=HANG)
            assert not result.ok
            await named(here, "failed for good and left no result", "shoal dead")
            other = await client.enqueue(Task(type="scrape_profile", payload={"username": "ada"}))

            async def is_stored() -> bool:
                return bool((await client.queue.stats(other >> 32)).trimmed)

            await until(is_stored)
    await named(here, "this machine's settings do not name that store", "SHOAL_STORE")
    await gone(here, "this machine's settings do not name that store", store=str(store))
    async with shoal.connect(here, store=str(store)) as client:
        assert (await client.results([other]))[0].value == {"username": "ada"}

        class Repaired(Profiles):
            async def handle(self, task: Any) -> Any:
                return {"username": task.payload.get("username", "nobody")}

        assert await client.revive([id]) == 1
        async with at_work(Repaired(here, store=str(store))):
            (result,) = await client.wait_for_results(id, timeout=HANG)
            assert result.ok
    await gone(here, "failed for good", store=str(store))


async def test_eviction(clean_folder: Path) -> None:
    with redis.own_server("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as server:
        url = server.url("evicting")
        await named(url, "evict", "CONFIG SET maxmemory-policy noeviction")
        with pytest.raises(ActionRequired):
            async with shoal.connect(url) as client:
                await client.enqueue(Task(type="scrape_profile"))
        assert server.ask("CONFIG SET maxmemory-policy noeviction") == "+OK"
        assert not [it for it in await findings(url) if it.level == "wrong"]


async def test_memory(clean_folder: Path) -> None:
    with redis.own_server("--maxmemory", "6mb", "--maxmemory-policy", "noeviction") as server:
        url = server.url("full")
        big = {"text": "x" * 200_000}
        async with shoal.connect(url) as client:
            with pytest.raises(ActionRequired):
                for _ in range(100):
                    await client.enqueue(Task(type="scrape_profile", payload=big))
            await named(url, "(maxmemory)", "raise maxmemory")
            assert server.ask("CONFIG SET maxmemory 200mb") == "+OK"
            assert await client.enqueue(Task(type="scrape_profile", payload=big))
        await gone(url, "(maxmemory)")


def faked(*command: str, apart: str) -> list[str]:
    found = shutil.which("faketime")
    if found is None:
        missing = "faketime is not installed: run tools/servers"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return [found, "-m", "-f", apart, *command]


def test_clock(tmp_path: Path) -> None:
    with redis.own_server() as server, ShellUser(tmp_path) as user:
        command = (sys.executable, "-m", "shoal", "doctor", "--json", "--queue", server.url("clock"))

        def said(*command: str) -> str:
            environment = user.environment | {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "PATH": os.environ["PATH"]}
            done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=HANG)
            assert done.stdout, done.stderr
            return done.stdout

        words = "the server's is the one that counts"
        assert words in PAGE
        assert words in said(*faked(*command, apart="+2h"))
        assert words not in said(*command)


# Celery


@pytest.fixture
def broker(clean_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    port = free_port()
    with redis.own_server("--port", str(port)):
        url = f"redis://127.0.0.1:{port}/0"
        monkeypatch.setenv("CELERY_BROKER_URL", url)
        yield url


async def test_visibility_timeout(here: str, broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is in progress for longer is handed out again, by kombu itself."""
    monkeypatch.setenv("CELERY_VISIBILITY_TIMEOUT", "1h")
    app = celery_app(read_options())
    app.conf.broker_transport_options = {"visibility_timeout": 1}

    def take_and_wait() -> int:
        with app.connection() as working, app.connection() as other:
            working.SimpleQueue("slow").put({"task": "slow"})
            working.SimpleQueue("slow").get(timeout=10)  # and is not acknowledged: its task takes long
            channel = other.default_channel
            wait_until(lambda: _restored(channel))
            again = other.SimpleQueue("slow").get(timeout=10)
            assert again.payload == {"task": "slow"}
            tags = channel.client.zrange("unacked_index", 0, -1)
            channel.client.zadd("unacked_index", dict.fromkeys(tags, time.time() - 2000))  # as if taken then
            words = "Redis hands it out again, and its task runs twice"
            asyncio.run(named(here, words, "CELERY_VISIBILITY_TIMEOUT"))
            monkeypatch.setenv("CELERY_VISIBILITY_TIMEOUT", "10h")
            asyncio.run(gone(here, words))
            again.ack()
            return 1

    assert await asyncio.to_thread(take_and_wait)


def _restored(channel: Any) -> bool:
    channel.qos.restore_visible(num=10, interval=1)
    return bool(channel.client.llen("slow"))


def test_kombu_and_its_client_do_not_fit(tmp_path: Path, broker: str) -> None:
    """As after an upgrade of redis-py alone."""
    newer = tmp_path / "newer" / "redis-99.0.0.dist-info"
    newer.mkdir(parents=True)
    (newer / "METADATA").write_text("Metadata-Version: 2.1\nName: redis\nVersion: 99.0.0\n")
    words = "and redis 99.0.0 is installed"
    assert "is installed" in PAGE
    with ShellUser(tmp_path) as user:
        before = [str(newer.parent), *filter(None, [user.environment.get("PYTHONPATH")])]
        user.environment |= {"CELERY_BROKER_URL": broker, "PYTHONPATH": os.pathsep.join(before)}
        done = user.shoal("doctor", "--json")
        assert done.code == 1 and words in done.out and "upgrade celery and kombu" in done.out
        shutil.rmtree(newer)
        done = user.shoal("doctor", "--json")
        assert words not in done.out and "no Celery worker answers" in done.out


async def test_broker_of_celery_not_available(here: str, clean_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://127.0.0.1:{port}/0")
    await named(here, "Redis not available", "CELERY_BROKER_URL")
    with redis.own_server("--port", str(port)):
        await gone(here, "Redis not available")
        await named(here, "no Celery worker answers", "celery -A")
