"""shoal in the processes of Celery, with a real Redis, real workers and a real Flower."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from conformance.rabbitmq_backend import RunningRelay, broker_url
from kombu import Connection
from servers import rabbitmq
from servers.celery_worker import CeleryWorker, broker, celery_worker, client, environment, settled
from servers.ports import free_port
from small_site import GatedPage, SmallSite, page, small_site
from wait import HANG, until, wait_until

from shoal.app import opened_queue
from shoal.config.load import load
from shoal.control.celery import broker as celery_broker
from shoal.control.celery.broker import Broker
from shoal.control.celery.options import read_options
from shoal.errors import QueueUnavailable, UsageError
from shoal.integrations.celery.crawl_runs import CrawlRuns
from shoal.integrations.celery.page_runs import PageRuns
from shoal.launch.job import FleetJob
from shoal.launch.scraper_set import ScraperSet
from shoal.queue.rabbitmq import RabbitmqQueue
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_task

EXAMPLE = Path(__file__).parents[2] / "examples" / "celery" / "shop.py"
# The app of the example, as careless as some are.
CARELESS = """
from shop import app
app.conf.accept_content = ["json", "pickle"]
"""


class Shop:
    """A broker, a site, and a worker that all tests of this module share."""

    def __init__(self, url: str, folder: Path, site: SmallSite, worker: CeleryWorker) -> None:
        self.url, self.folder, self.site, self.worker = url, folder, site, worker
        self.app = client(url)

    def send(self, name: str, *args: Any, id: str | None = None, **kwargs: Any) -> Any:
        return self.app.send_task(f"shoal.{name}", args=args, kwargs=kwargs, task_id=id)

    def indexed(self) -> list[dict[str, Any]]:
        path = self.folder / "indexed.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def records(self, url: str) -> int:
        """How many records of a page the queue has."""
        count = 0
        async with opened_queue(load({"queue": self.url}, env={})) as queue:
            for run in await queue.runs(limit=100):
                found = await queue.records(run.id, limit=10_000)
                count += sum(msgspec.json.decode(it.data).get("url") == url for it in found)
        return count


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    shutil.copy(EXAMPLE, folder)
    (folder / "careless.py").write_text(CARELESS)
    with broker() as url, small_site() as site, celery_worker(folder, url, "-c", "2", app="careless") as worker:
        site.pages["/p/*"] = page("a page")
        yield Shop(url, folder, site, worker)


def test_a_page_is_a_task_whose_result_is_its_record(shop: Shop) -> None:
    url = shop.site.url("/p/1")
    result = settled(shop.send("crawl_url", url))
    assert (result["status"], result["url"], result["http_status"]) == ("success", url, 200)
    assert "a page" in result["content"] and result["worker_id"].startswith("celery-")


async def test_a_message_that_is_delivered_twice_is_fetched_and_recorded_once(shop: Shop) -> None:
    url = shop.site.url("/p/twice")
    for _ in range(2):
        assert settled(shop.send("crawl_url", url, id="the-same-message"))["status"] == "success"
    assert len(shop.site.hits_for("/p/twice")) == 1
    assert await shop.records(url) == 1
    settled(shop.send("crawl_url", url))  # another message is another page
    assert len(shop.site.hits_for("/p/twice")) == 2


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        (("SITE/nothing",), {}, "http.404"),
        (("not a URL",), {}, "not fetched"),
        ((5,), {}, "a URL is a text"),
        (("SITE/p/1",), {"exec": "rm"}, "exec: Extra inputs"),
        (("SITE/p/1",), {"then": "os.system"}, ""),
    ],
)
def test_what_cannot_be_done_fails_and_says_why(
    shop: Shop, args: tuple[Any, ...], kwargs: dict[str, Any], words: str
) -> None:
    args = tuple(it.replace("SITE", shop.site.url("")) if isinstance(it, str) else it for it in args)
    result = shop.send("crawl_url", *args, **kwargs)
    found = settled(result)
    if words:
        assert result.state == "FAILURE" and words in str(found)
    else:
        assert result.state == "SUCCESS"  # the page is; the task after it is not allowed, and never sent


async def test_who_asks_for_a_private_host_is_told_what_allows_it(tmp_path: Path) -> None:
    queue = await SqliteQueue.open(str(tmp_path / "queue.db"))
    with pytest.raises(UsageError, match="is a loopback address") as refused:
        await PageRuns(queue, None, load({}, env={})).add("message", "http://127.0.0.1:1/", {}, "")
    assert "SHOAL_ALLOW_PRIVATE" in refused.value.hint
    with pytest.raises(UsageError) as refused:
        await PageRuns(queue, None, load({}, env={})).add("message", "ftp://shop.example/", {}, "")
    assert "https://" in refused.value.hint
    await queue.close()


async def test_a_run_of_urls_is_begun_once_also_by_workers_that_reach_no_more_than_a_relay(tmp_path: Path) -> None:
    relay = await RunningRelay(await SqliteQueue.open(str(tmp_path / "queue.db")), broker_url(tmp_path)).start()
    queue = await RabbitmqQueue.open(broker_url(tmp_path))
    try:
        settings = load({}, env={})
        runs = CrawlRuns(queue, settings, ScraperSet(FleetJob(settings, ""), {}, {}))
        asked = {"urls": ["https://shop.example/1", "https://shop.example/2"], "options": {"content": "none"}}
        one, again = [await runs.start("message", scraper="", run="", then="", **asked) for _ in range(2)]  # type: ignore[arg-type]
        assert one.id == again.id
        assert (await runs.progress(one)).total == 2
    finally:
        await queue.close()
        await relay.close()


def test_a_page_that_is_retried_gives_its_process_back_meanwhile(shop: Shop) -> None:
    """The delay is the queue's; the message shows RETRY and comes again."""
    answers = iter([(503, {"Retry-After": "3"}, b"busy")])
    with small_site() as site:
        site.pages["/busy"] = lambda hit: next(answers, page("at last"))
        result = shop.send("crawl_url", site.url("/busy"), retry_delay=3)
        wait_until(lambda: result.state == "RETRY")
        assert settled(result)["status"] == "success"
        first, second = site.hits_for("/busy")
    assert second.at - first.at >= 2.5


def test_pickled_messages_are_refused_before_they_are_read(shop: Shop) -> None:
    """Also where the app accepts them for its own tasks."""

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(shop.folder / "evil"),)

    headers = {"lang": "py", "task": "shoal.crawl_url", "id": "evil", "root_id": "evil"}
    with Connection(shop.url) as connection, connection.SimpleQueue("celery") as queue:
        queue.put(([Evil()], {}, {}), serializer="pickle", headers=headers)
    wait_until(lambda: "tasks of shoal are sent as JSON" in shop.worker.log.read_text())
    assert settled(shop.send("crawl_url", shop.site.url("/p/1")))["status"] == "success"
    assert not (shop.folder / "evil").exists()


def test_a_run_tells_its_progress_and_its_account(shop: Shop) -> None:
    gate = shop.site.pages["/p/gated"] = GatedPage(page("late"))
    urls = [shop.site.url("/p/gated"), *(shop.site.url(f"/p/run{number}") for number in range(20))]
    result = shop.send("crawl", urls=urls, content="none")
    wait_until(lambda: result.state == "PROGRESS" and result.info["done"] == 20)
    assert (result.info["total"], result.info["failed"]) == (21, 0)
    gate.open.set()
    assert settled(result)["done"] == 21


def test_a_page_of_the_example_is_followed_by_a_task_of_its_own_with_a_stable_id(shop: Shop) -> None:
    url, env = shop.site.url("/p/followed"), environment(shop.url)
    shop.site.pages["/p/followed"] = (200, {}, b"<h1>A book</h1>")
    said = subprocess.run([sys.executable, "shop.py", url], cwd=shop.folder, env=env, capture_output=True, text=True)
    record = {"url": url, "title": "A book"}
    assert said.stdout == f"{record}\n", said.stderr
    wait_until(lambda: any(it["url"] == url for it in shop.indexed()))
    found = [it for it in shop.indexed() if it["url"] == url]
    assert len({it["id"] for it in found}) == 1 and found[0]["records"] == [record]


ASKING = """
import shoal
from shoal.integrations.celery import CeleryTask
pages = shoal.Scraper("pages", start="{url}")
@pages.page("/*")
def one(page):
    yield {{"url": page.url}}
    yield CeleryTask("shop.index", [page.url], {{"run": "", "task": 0, "count": 1, "records": None}})
"""


def test_tasks_that_a_handler_asks_for_wait_until_somebody_sends_them(shop: Shop, tmp_path: Path) -> None:
    """A run that nobody sends them for says so and ends unfinished; with the engine set it is finished."""
    url = shop.site.url("/p/asked")
    (tmp_path / "pages.py").write_text(ASKING.format(url=url))
    command = [sys.executable, "-m", "shoal", "run", "pages.py", "-o", "out.jsonl"]

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        env = environment(shop.url, **variables)
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=HANG)

    refused = run()
    assert refused.returncode == 2 and "asked for Celery tasks that nobody sends (1)" in refused.stderr
    done = run(SHOAL_ENGINE="celery", SHOAL_CELERY_ALLOW="shop.*")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: any(it["url"] == url for it in shop.indexed()))
    assert len(shop.site.hits_for("/p/asked")) == 1


def test_flower_sees_workers_and_pages(shop: Shop) -> None:
    port, env = free_port(), environment(shop.url, FLOWER_UNAUTHENTICATED_API="true")
    command = [sys.executable, "-m", "celery", "-A", "shoal.integrations.celery", "flower", f"--port={port}"]
    with (shop.folder / "flower.log").open("wb") as log:
        flower = subprocess.Popen([*command, "--address=127.0.0.1"], env=env, stdout=log, stderr=log, cwd=shop.folder)
    try:

        def ask(path: str) -> dict[str, Any]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=30) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except OSError:
                return {}

        assert wait_until(lambda: ask("workers?refresh=1"), every=0.3)
        url = shop.site.url("/p/flower")
        settled(shop.send("crawl_url", url))
        wait_until(
            lambda: any(url in str(it["args"]) for it in ask("tasks?taskname=shoal.crawl_url").values()), every=0.3
        )
    finally:
        flower.kill()
        flower.wait()


async def test_a_worker_pool_beside_celerys_shares_its_rate_and_hands_work_back(tmp_path: Path, shop: Shop) -> None:
    """The ready app, in one process, with two processes of shoal: two pages a second, on top of the host's pace."""
    with broker() as url, small_site() as site:
        site.pages["/p/*"] = page("a page")
        gate = site.pages["/p/gated"] = GatedPage()
        flags = ("-P", "solo", "--shoal-workers", "2")
        with celery_worker(tmp_path, url, *flags, CELERY_TASK_RATE_LIMIT="120/m") as worker:
            app = client(url)
            pages = [site.url(f"/p/{number}") for number in range(7)]
            assert settled(app.send_task("shoal.crawl", kwargs={"urls": pages, "content": "none"}))["done"] == 7
            hits = [hit.at for hit in site.hits if hit.path.startswith("/p/")]
            assert hits[-1] - hits[0] > 1.5  # six times half a second, but for what was late at first
            app.send_task("shoal.crawl", kwargs={"urls": [site.url("/p/gated")]})
            assert gate.asked.acquire(timeout=HANG)
            processes = worker.processes()
            assert len(processes) >= 3
            assert worker.stop() == 0
            psutil.wait_procs(processes, HANG)
            assert not any(process.is_running() for process in processes)
        async with opened_queue(load({"queue": url}, env={})) as queue:
            for run in await queue.runs(limit=10):
                stats = await queue.stats(run.id)
                assert stats.leased == 0 and stats.is_balanced
            assert sum([(await queue.stats(run.id)).ready for run in await queue.runs(limit=10)]) == 1
        gate.open.set()


@pytest.fixture
def server(shop: Shop, tmp_path: Path) -> Iterator[str]:
    """`shoal serve` whose distributed batches Celery does; its URL."""
    port = free_port()
    env = environment(shop.url, SHOAL_ENGINE="celery", SHOAL_QUEUE=shop.url, SHOAL_LISTEN=str(port))
    with (tmp_path / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal", "serve"], env=env, cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        wait_until(lambda: answer(f"http://127.0.0.1:{port}/api/ready"))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(HANG)


def answer(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=HANG) as found:
            answered: dict[str, Any] = json.load(found)
            return answered
    except OSError:
        return {}


def test_distributed_batches_run_through_celery(shop: Shop, server: str) -> None:
    connected = {"distributed_available": True, "message": "Redis connected"}
    wait_until(lambda: answer(f"{server}/api/crawl/distributed/status") == connected, every=0.1)
    urls = [shop.site.url(f"/p/batch{number}") for number in range(5)]
    found = answer(f"{server}/api/crawl/batch", {"urls": urls, "distributed": True, "timeout": 100})
    assert found["stats"]["success"] == 5 and found["distributed"]
    assert all(it["worker_id"].startswith("celery-") for it in found["results"])
    assert settled(shop.app.AsyncResult(found["session_id"]))["done"] == 5


async def test_the_status_says_so_where_celery_cannot_work(tmp_path: Path) -> None:
    from shoal.control.celery.engine import CeleryEngine

    with broker() as url:
        async with opened_queue(load({"queue": str(tmp_path / "q.db")}, env={})) as queue:
            engine = CeleryEngine(queue, load({}, env={}), Broker(read_options(environment(url))))
            status = await engine.status(has_workers=False)
            assert not status["distributed_available"] and "no Celery workers are connected" in status["message"]
            away = CeleryEngine(queue, load({}, env={}), Broker(read_options(environment("redis://127.0.0.1:1/0"))))
            assert await away.status(has_workers=True) == {
                "distributed_available": False,
                "message": "Redis not available",
            }


async def test_what_is_sent_does_not_wait_for_results_or_for_a_broker_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error that nobody expects would end whoever maintains the queue."""
    away = "redis://127.0.0.1:1/0"
    with broker() as url, opened_broker(url, CELERY_RESULT_BACKEND=away) as its_results_away:
        await its_results_away.send("shop.index", id="a")
        headers = await its_results_away.ask(lambda connection: connection.SimpleQueue("celery").get().headers)
        assert (headers["id"], headers["ignore_result"]) == ("a", False)
    with opened_broker(away) as gone, pytest.raises(QueueUnavailable, match="Redis not available"):
        await gone.send("shop.index")
    monkeypatch.setattr(celery_broker, "ANSWER_TIMEOUT", 0.2)
    port = free_port()
    with socket.create_server(("127.0.0.1", port)), opened_broker(f"redis://127.0.0.1:{port}/0") as frozen:
        for asked in (frozen.send("shop.index"), frozen.check(), frozen.worker_sizes()):
            with pytest.raises(QueueUnavailable, match="Redis not available"):
                await asked


@contextmanager
def opened_broker(url: str, **variables: str) -> Iterator[Broker]:
    opened = Broker(read_options(environment(url, **variables)))
    try:
        yield opened
    finally:
        opened.close()


async def test_what_a_killed_fleet_left_is_made_good_by_new_messages(shop: Shop) -> None:
    """A run that no message speaks of: whoever maintains the queue sees to it that Celery works on it."""
    settled(shop.send("crawl_url", shop.site.url("/p/before")))  # so that there is a run of today
    async with opened_queue(load({"queue": shop.url}, env={})) as queue:
        run = next(run for run in await queue.runs(limit=100) if run.state == "running")
        await queue.add(run.id, [start_task(shop.site.url("/p/left"))])
        await until(lambda: shop.site.hits_for("/p/left"))
        assert "shoal.work" in shop.worker.log.read_text()


def test_rabbitmq_can_be_the_broker_of_celery(tmp_path: Path) -> None:
    with rabbitmq.vhost() as vhost, broker() as results, small_site() as site:
        url = rabbitmq.shared().url(vhost)
        given = {"CELERY_RESULT_BACKEND": results, "SHOAL_QUEUE": results}
        site.pages["/p/*"] = page("a page")
        with celery_worker(tmp_path, url, "-c", "1", **given) as worker:
            app = client(url, **given)
            pages = [site.url(f"/p/{number}") for number in range(3)]
            sent = [app.send_task("shoal.crawl_url", args=(it,)) for it in pages]
            for result, it in zip(sent, pages, strict=True):
                assert (settled(result)["status"], settled(result)["url"]) == ("success", it)
            assert worker.stop() == 0
        path = f"/api/queues/{vhost}/celery"
        wait_until(lambda: rabbitmq.shared().manage("GET", path).get("messages") == 0, every=0.1)
        assert {len(site.hits_for(f"/p/{number}")) for number in range(3)} == {1}
