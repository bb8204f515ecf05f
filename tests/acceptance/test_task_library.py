"""What a program written for a task library expects, in its own spelling, on every queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from backend_urls import backend_url
from servers import postgres, redis
from servers.ports import free_port
from wait import HANG, until
from worker_at_work import at_work

import shoal
from shoal import load_config, start_cluster
from shoal.client.wait import TaskProgress
from shoal.config.load import load
from shoal.errors import StoreRefused, UsageError
from shoal.queue.base import TaskFilter

Task = shoal.Task


class Profiles(shoal.Worker):
    types = ("scrape_profile", "scrape_followers")

    async def handle(self, task: Any) -> Any:
        if task.payload.get("fail"):
            raise ValueError(task.payload["fail"])
        return {"username": task.payload.get("username"), "attempt": task.attempt}


async def all_in_the_store(client: shoal.Client, ids: list[int]) -> None:
    async def trimmed() -> bool:
        return (await client.queue.stats(ids[0] >> 32)).trimmed == len(ids)

    await until(trimmed)


PROFILES = """
import shoal

profiles = shoal.Scraper("profiles")

@profiles.task("scrape_profile")
def profile(task):
    return {"username": task.payload["username"]}
"""


# results


async def test_client_finds_the_store_of_results_by_itself_however_late_it_reads(url: str, clean_folder: Path) -> None:
    """On the queue's own server, or below the state folder; any other is named by the client's own settings."""
    state = load({"queue": url}).state_folder
    state.mkdir(parents=True, exist_ok=True)
    store = backend_url("postgres" if url.startswith("postgres") else "sqlite", state.resolve())
    async with shoal.connect(url) as client:
        ids = await client.enqueue_many(Task(type="scrape_profile", payload={"username": f"u{n}"}) for n in range(4))
        async with at_work(Profiles(url, store=store)):
            early = await client.wait_for_results(ids, timeout=HANG)
            await all_in_the_store(client, ids)
        assert await client.results(ids) == early
        assert [result.value["username"] for result in early] == ["u0", "u1", "u2", "u3"]
        assert sorted(result.value["username"] for result in await client.aggregate("scrape_profile")) == [
            "u0", "u1", "u2", "u3",
        ]  # fmt: skip
    async with shoal.connect(url) as later:
        assert await later.results(ids) == early


async def test_store_that_only_the_queue_names_is_not_opened(here: str, clean_folder: Path) -> None:
    store = clean_folder / "results.db"
    async with shoal.connect(here) as client:
        ids = await client.enqueue_many([Task(type="scrape_profile")])
        async with at_work(Profiles(here, store=f"sqlite:///{store}")):
            await client.wait_for_results(ids, timeout=HANG)
            await all_in_the_store(client, ids)
    store.rename(clean_folder / "moved.db")
    async with shoal.connect(here) as client:
        with pytest.raises(StoreRefused, match=r"results\.db: this machine's settings do not name that store"):
            await client.results(ids)
    async with shoal.connect(here, store=str(clean_folder / "moved.db")) as client:
        assert (await client.results(ids))[0].ok
    assert not store.exists()


async def test_password_of_the_store_is_not_written_into_the_queue(here: str, clean_folder: Path) -> None:
    url = urlsplit(postgres.shared().url("secrets"))
    store = url._replace(netloc=f"{url.username}:hush@{url.netloc.rpartition('@')[2]}").geturl()
    async with shoal.connect(here) as client:
        ids = await client.enqueue_many([Task(type="scrape_profile")])
        async with at_work(Profiles(here, store=store)):
            await client.wait_for_results(ids, timeout=HANG)
            await all_in_the_store(client, ids)
        texts = [document.text for document in await client.queue.documents("queue")]
        assert any("postgresql://" in text for text in texts) and not any("hush" in text for text in texts)


async def test_all_results_of_a_type_are_awaited_or_read_one_by_one(here: str) -> None:
    async with shoal.Coordinator(here) as coordinator, at_work(Profiles(here)):
        ids = await coordinator.fan_out("scrape_profile", [{"username": name} for name in ("ada", "grace")])
        await coordinator.wait_for_results(ids, timeout=HANG)
        results = await coordinator.aggregate("scrape_profile")
        assert [result.value["username"] for result in results] == ["ada", "grace"]
        assert [result async for result in coordinator.aggregate("scrape_profile")] == results
    async with shoal.ResultStore(f"{here}-results") as store:
        await store.store(7, {"name": "Ada"}, type="scrape_profile")
        assert [result.value for result in await store.aggregate("scrape_profile")] == [{"name": "Ada"}]


# the cluster


async def test_client_and_worker_obey_the_cluster_file_that_the_environment_names(
    clean_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = redis.url("cluster")
    (clean_folder / "cluster.yaml").write_text(
        f"redis:\n  url: {server}\nstorage:\n  type: sqlite\n  url: sqlite:///{clean_folder}/results.db\n"
    )
    monkeypatch.setenv("SHOAL_CLUSTER", "cluster.yaml")
    async with shoal.connect() as client, at_work(Profiles()):
        assert client.settings.queue == server
        ids = await client.enqueue_many([Task(type="scrape_profile", payload={"username": "ada"})])
        await client.wait_for_results(ids, timeout=HANG)
        await all_in_the_store(client, ids)
        assert (await client.results(ids))[0].value["username"] == "ada"
    async with shoal.connect(load_config("cluster.yaml")) as client:
        assert (await client.results(ids))[0].value["username"] == "ada"
    async with shoal.connect("sqlite:///other.db") as client:  # a URL means this queue and nothing else
        assert (await client.stats()).total == 0 and not client.settings.store


async def test_cluster_is_started_inside_a_running_event_loop_and_stopped_by_cancelling_it(clean_folder: Path) -> None:
    (clean_folder / "profiles.py").write_text(PROFILES)
    (clean_folder / "cluster.yaml").write_text(
        f"""
coordinator: {{host: 127.0.0.1, port: {free_port()}}}
redis: {{url: "{redis.url("awaited")}"}}
queue: {{max_retries: 3, retry_delay: 1}}
workers: {{count: 1, per_machine: 1}}
storage: {{type: sqlite, url: "sqlite:///{clean_folder}/results.db"}}
scrapers: [profiles.py]
"""
    )
    config = load_config("cluster.yaml")
    roles = [asyncio.create_task(start_cluster(config, role=role)) for role in ("coordinator", "worker")]
    async with shoal.connect(config) as client:
        (result,) = await client.gather("scrape_profile", [{"username": "ada"}], HANG)
        assert result.value == {"username": "ada"}

        def stats() -> Any:
            with urllib.request.urlopen(f"http://127.0.0.1:{config.port}/stats", timeout=HANG) as answer:
                return json.load(answer)

        assert (await asyncio.to_thread(stats))["workers"]["total"] == 1
        for role in roles:
            role.cancel()
        await asyncio.wait(roles)
        assert all(role.cancelled() for role in roles)
        with pytest.raises(OSError, match="refused"):
            await asyncio.to_thread(stats)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


async def test_awaited_worker_ends_on_sigterm_unless_the_program_has_a_handler_of_its_own(clean_folder: Path) -> None:
    (clean_folder / "profiles.py").write_text(PROFILES)
    (clean_folder / "cluster.yaml").write_text(
        "queue: {url: 'sqlite:///queue.db'}\nworkers: {per_machine: 1}\nscrapers: [profiles.py]\n"
    )
    worker = asyncio.create_task(start_cluster("cluster.yaml", role="worker"))
    async with shoal.connect("sqlite:///queue.db") as client:
        await client.gather("scrape_profile", [{"username": "ada"}], HANG)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await worker == 0


# a loop of one's own


async def test_tasks_of_every_type_are_taken_and_none_that_is_a_page(url: str) -> None:
    async with shoal.connect(url) as client:
        assert await client.dequeue() == []
        assert await client.get_dead_letters() == []
        ids = await client.enqueue(
            Task(type="scrape_profile", retries=0), Task(type="scrape_followers", retries=0), Task(type="other")
        )
        taken = await client.dequeue(limit=10)
        assert {task.id for task in taken} == set(ids)
        assert await client.dequeue() == []
        for task in taken:
            if task.type == "other":
                assert await client.complete(task, {"done": True})
            else:
                assert await client.fail(task, "no such user") == "dead"
        letters = await client.get_dead_letters()
        assert {(letter.id, letter.type, letter.error) for letter in letters} == {
            (ids[0], "scrape_profile", "no such user"), (ids[1], "scrape_followers", "no such user"),
        }  # fmt: skip
        assert len(await client.get_dead_letters(limit=1)) == 1


async def test_task_of_a_new_type_ends_the_wait_for_any(url: str) -> None:
    async with shoal.connect(url) as client, shoal.connect(url) as producer:
        waiting = asyncio.create_task(client.dequeue(timeout=HANG))
        await asyncio.sleep(0)
        id = await producer.enqueue(Task(type="brand_new"))
        assert [task.id for task in await waiting] == [id]


# retries


async def test_backoff_is_what_the_task_says_then_the_handler_and_doubles_each_time(url: str) -> None:
    class Failing(Profiles):
        retries = 5
        retry_backoff = "20m"

    async def due_in(client: shoal.Client, id: int) -> float:
        async def delayed() -> bool:
            return (await client.results([id]))[0].state == "delayed"

        await until(delayed)
        (view,) = await client.queue.list_tasks(id >> 32, where=TaskFilter(ids=(id,)))
        return (view.due_at - await client.queue.now()) / 1e6

    async with shoal.connect(url) as client:
        usual = await client.enqueue(Task(type="scrape_profile", payload={"fail": "busy"}))
        own = await client.enqueue(Task(type="scrape_profile", payload={"fail": "busy"}, retry_backoff=7200))
        async with at_work(Failing(url)):
            assert 1200 * 0.75 < await due_in(client, usual) <= 1200 * 1.25
            assert 7200 * 0.75 < await due_in(client, own) <= 7200 * 1.25
        quick = await client.enqueue(Task(type="by_hand", retries=2, retry_backoff=0))
        for said in ("retry", "retry", "dead"):
            (task,) = await client.dequeue("by_hand", timeout=HANG)
            assert await client.fail(task, ConnectionError("busy")) == said
        assert (await client.results([quick]))[0].attempts == 3


# numbers


async def test_stats_of_the_whole_queue_are_read_by_name(url: str) -> None:
    async with shoal.connect(url) as client:
        await client.enqueue(*(Task(type=kind, retries=0) for kind in ("scrape_profile", "scrape_followers", "other")))
        (task,) = await client.dequeue("other")
        stats = await client.get_stats()
        assert (stats["pending"], stats["processing"], stats["completed"], stats["failed"]) == (2, 1, 0, 0)
        assert dict(stats) == {"pending": 2, "processing": 1, "completed": 0, "failed": 0, "total": 3}
        assert (await client.get_stats("other"))["processing"] == 1
        with pytest.raises(KeyError):
            stats["lost"]
        await client.fail(task, "no")
        assert (await client.get_stats())["failed"] == 1


async def test_monitor_prints_progress_until_nothing_is_open(here: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Followers(shoal.Coordinator):
        every = 0.02

    async with Followers(here) as coordinator:
        ids = await coordinator.fan_out("scrape_profile", [{"username": f"u{n}"} for n in range(5)])
        endless = asyncio.create_task(coordinator.monitor())
        await until(lambda: "pending 5" in capsys.readouterr().err)
        endless.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await endless
        async with at_work(Profiles(here)):
            last = await coordinator.monitor("scrape_profile", exit_when_done=True)
        assert last == TaskProgress(completed=len(ids))
    assert capsys.readouterr().err.splitlines()[-1] == "pending 0 · processing 0 · completed 5 · failed 0"


# a client of one's own


class SSLConnection: ...


class Pool:
    """What redis-py's connection pools tell of themselves."""

    connection_class: type = object

    def __init__(self, **options: Any) -> None:
        self.connection_kwargs = options


class Redis:
    def __init__(self, **options: Any) -> None:
        self.connection_pool = Pool(**options)


async def test_existing_redis_client_or_pool_names_the_server() -> None:
    namespace = redis.url("given").rpartition("=")[2]
    server = {"path": redis.shared().socket, "db": 0}
    for given in (Redis(**server), Pool(**server)):
        async with shoal.connect(given, namespace=namespace) as client:
            await client.enqueue(Task(type="scrape_profile"))
    async with shoal.connect(redis.shared().url(namespace)) as client:
        assert (await client.get_stats())["pending"] == 2


@pytest.mark.parametrize(
    ("options", "url"),
    [
        ({}, "redis://localhost:6379/0"),
        ({"host": "cache", "port": 7000, "db": 3}, "redis://cache:7000/3"),
        ({"host": "::1", "password": "p@ss"}, "redis://:p%40ss@[::1]:6379/0"),
        ({"host": "cache", "username": "ada", "password": "x"}, "redis://ada:x@cache:6379/0"),
        ({"path": "/run/redis.sock", "db": 2}, "redis+unix:///run/redis.sock?db=2"),
    ],
)
def test_redis_client_is_read_as_a_url(options: dict[str, Any], url: str, clean_folder: Path) -> None:
    assert shoal.connect(Redis(**options)).settings.queue == url


def test_redis_client_that_asks_sentinels_is_read_as_such(clean_folder: Path) -> None:
    from redis.asyncio.sentinel import Sentinel

    sentinels = Sentinel([("s1", 26379), ("::1", 7)], sentinel_kwargs={"password": "q"})
    client = sentinels.master_for("main", password="p@", db=2)
    url = "redis+sentinel://:p%40@s1:26379,[::1]:7/main/2?sentinel_password=q"
    assert shoal.connect(client).settings.queue == url


def test_redis_client_with_tls_is_read_as_such_and_what_a_url_cannot_say_is_refused(clean_folder: Path) -> None:
    pool = Pool(host="cache")
    pool.connection_class = SSLConnection
    assert shoal.connect(pool).settings.queue == "rediss://cache:6379/0"
    for options in ({"ssl_ca_certs": "ca.pem"}, {"credential_provider": object()}):
        with pytest.raises(UsageError):
            shoal.connect(Redis(**options))
    with pytest.raises(UsageError, match="is not a queue"):
        shoal.connect(object())  # type: ignore[arg-type]
