"""Tasks that are pushed to workers: to the right one, once, and into the queue where nobody takes them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from backend_urls import QUEUE_KINDS, backend_url
from conformance.rabbitmq_backend import RunningRelay, broker_url
from local_fleet import LocalFleet, stop_process
from push_worker import TOKEN, Gate, Other, accepting
from server_process import running_server
from servers import redis
from servers.ports import free_port
from small_site import page
from wait import HANG, until, wait_until

import shoal
from shoal.client import worker_connection
from shoal.client.worker_connection import WorkerConnection
from shoal.control import worker_ports
from shoal.core.run import NewRun
from shoal.errors import ActionRequired, UsageError
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.identity import begin_seeding
from shoal.view import small_server
from shoal.web.push import port
from shoal.web.push.request import MAX_BODY_BYTES

Task = shoal.Task


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is given up because this machine is busy."""
    monkeypatch.setattr(worker_connection, "LOAD_TIMEOUT", HANG)
    monkeypatch.setattr(worker_connection, "SUBMIT_TIMEOUT", HANG)


@pytest.fixture(params=(*QUEUE_KINDS, "http"))
def any_queue(request: pytest.FixtureRequest, clean_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty queue, of every kind and behind a server."""
    if request.param != "http":
        yield backend_url(request.param, clean_folder)
        return
    token = "an-own-token-that-is-long-enough"
    with running_server(backend_url("sqlite", clean_folder), token=token, folder=clean_folder) as server:
        monkeypatch.setenv("SHOAL_TOKEN", f"{server.url}={token}")
        yield server.url


@asynccontextmanager
async def balancer(queue: str | None = None, **more: Any) -> AsyncIterator[shoal.LoadBalancer]:
    async with shoal.LoadBalancer(queue, token=TOKEN, health_check_interval=3600, **more) as made:
        yield made


async def test_task_goes_to_the_worker_that_was_chosen_and_its_result_is_that_of_any_task(any_queue: str) -> None:
    one, two = Gate(any_queue), Gate(any_queue)
    async with accepting(one) as first, accepting(two) as second, balancer(strategy="round_robin") as pushing:
        pushing.register_worker("one", first)
        pushing.register_worker("two", second)
        await pushing.check_workers()
        ids = []
        for number in range(4):
            worker = await pushing.get_worker()
            assert worker.name == ("one", "two")[number % 2]
            ids.append(await worker.submit(Task(type="held", payload={"name": f"t{number}"})))
        one.opened.set()
        two.opened.set()
        async with shoal.connect(any_queue) as client:
            results = await client.wait_for_results(ids, timeout=HANG)
        assert [result.value["by"] for result in results] == [id(one), id(two), id(one), id(two)]
        assert one.handled == {"t0": 1, "t2": 1}
        assert two.handled == {"t1": 1, "t3": 1}


async def test_workers_behind_rabbitmq_are_found_and_get_tasks_too(clean_folder: Path) -> None:
    url = broker_url(clean_folder)
    relay = await RunningRelay(await SqliteQueue.open(str(clean_folder / "ledger.db")), url).start()
    one, two = Gate(url), Gate(url)
    async with accepting(one), accepting(two), balancer(url, strategy="round_robin") as pushing:

        async def are_found() -> bool:
            await pushing.check_workers()
            return [worker.is_healthy for worker in pushing.workers] == [True, True]

        await until(are_found)
        ids = [await pushing.submit(Task(type="held", payload={"name": f"t{number}"})) for number in range(4)]
        one.opened.set()
        two.opened.set()
        async with shoal.connect(url) as client:
            assert all(result.ok for result in await client.wait_for_results(ids, timeout=HANG))
    await relay.close()
    assert [sum(gate.handled.values()) for gate in (one, two)] == [2, 2]


async def test_full_worker_is_passed_over_and_what_nobody_takes_waits_in_the_queue(here: str) -> None:
    one, two = Gate(here, concurrency=1), Gate(here, concurrency=1)
    async with accepting(one) as first, accepting(two) as second, balancer() as pushing:
        a = pushing.register_worker("one", first)
        b = pushing.register_worker("two", second)
        await pushing.check_workers()
        ids = [await a.submit(Task(type="held", payload={"name": f"t{number}"})) for number in range(4)]
        async with shoal.connect(here) as client:
            stats = await client.stats("held")
            assert stats.pending + stats.processing == 4
            assert (a.load.has_room, b.load.has_room) == (False, False)
            assert (await pushing.get_worker()) in (a, b)
            one.opened.set()
            two.opened.set()
            await client.wait_for_results(ids, timeout=HANG)
        assert sum(one.handled.values()) + sum(two.handled.values()) == 4
        assert one.handled["t0"] == two.handled["t1"] == 1


async def test_worker_without_the_code_or_the_capability_is_passed_over(here: str) -> None:
    plain, other, browser = Gate(here), Other(here), Gate(here, has="browser")
    async with accepting(plain) as a, accepting(other) as b, accepting(browser) as c, balancer() as pushing:
        for name, url in (("plain", a), ("other", b), ("browser", c)):
            pushing.register_worker(name, url)
        await pushing.check_workers()
        workers = {worker.name: worker for worker in pushing.workers}
        async with shoal.connect(here) as client:
            ids = [
                await workers["plain"].submit(Task(type="other")),
                await workers["plain"].submit(Task(type="held", needs="browser")),
            ]
            browser.opened.set()
            results = await client.wait_for_results(ids, timeout=HANG)
            assert [result.value["by"] for result in results] == [id(other), id(browser)]
            unknown = await pushing.submit(Task(type="nobody_has_it"))
            assert (await client.results([unknown]))[0].state == "ready"


async def test_tasks_that_are_submitted_at_once_are_spread(here: str) -> None:
    one, two = Gate(here, concurrency=8), Gate(here, concurrency=8)
    async with accepting(one) as first, accepting(two) as second, balancer() as pushing:
        pushing.register_worker("one", first)
        pushing.register_worker("two", second)
        wrong = WorkerConnection(first, "another-token-than-that-of-tests")
        pushing.register_worker("wrong", first)._connection = wrong
        await pushing.check_workers()
        assert "refuses the token" in pushing.workers[2].error
        ids = await asyncio.gather(*(pushing.submit(Task(type="held", payload={"name": "t"})) for _ in range(8)))
        one.opened.set()
        two.opened.set()
        async with shoal.connect(here) as client:
            await client.wait_for_results(ids, timeout=HANG)
    assert one.handled["t"] == two.handled["t"] == 4


async def test_answer_that_was_lost_makes_no_second_task(here: str) -> None:
    gate = Gate(here)
    async with accepting(gate) as url, httpx.AsyncClient(trust_env=False, timeout=HANG) as http:
        body = {"id": "0" * 32, "task": {"type": "held", "payload": {"name": "once"}}}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answers = [(await http.post(f"{url}/tasks", json=body, headers=headers)).json() for _ in range(2)]
        assert [answer["state"] for answer in answers] == ["leased", "known"]
        assert answers[0]["id"] == answers[1]["id"]
        gate.opened.set()
        async with shoal.connect(here) as client:
            await client.wait_for_results(answers[0]["id"], timeout=HANG)
    assert gate.handled == {"once": 1}


async def test_worker_that_does_not_answer_gets_nothing_until_it_does(
    here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(here)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and says nothing
        async with accepting(gate) as url, balancer(here, discover=False) as pushing:
            mute = pushing.register_worker("mute", f"http://127.0.0.1:{silent.getsockname()[1]}")
            with monkeypatch.context() as patch:
                patch.setattr(worker_connection, "LOAD_TIMEOUT", 0.2)
                await pushing.check_workers()
            assert not mute.is_healthy
            await pushing.register_worker("gate", url).check()
            ids = [await pushing.submit(Task(type="scrape_profile")) for _ in range(3)]
            async with shoal.connect(here) as client:
                await client.wait_for_results(ids, timeout=HANG)
            assert sum(gate.handled.values()) == 3
            assert pushing.unregister_worker("gate") and not pushing.unregister_worker("gate")
            waits = await pushing.submit(Task(type="other"))
            async with shoal.connect(here) as client:
                assert (await client.results([waits]))[0].state == "ready"
    async with balancer() as pushing:
        pushing.register_worker("gone", f"http://127.0.0.1:{free_port()}")
        with pytest.raises(ActionRequired, match="none of 1 workers takes tasks"):
            await pushing.get_worker()
        with pytest.raises(ActionRequired, match="no worker takes the task"):
            await pushing.submit(Task(type="other"))


async def test_worker_that_is_cut_off_from_the_queue_says_so_and_another_is_asked(
    here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(here)
    with redis.own_server() as server:
        lost = Gate(server.url("cut-off"))
        async with accepting(lost) as cut_off, accepting(gate) as url, balancer() as pushing:
            first = pushing.register_worker("cut off", cut_off)
            pushing.register_worker("gate", url)
            await pushing.check_workers()
            server.kill()
            _hurry_once(monkeypatch)  # the first that is asked is the one without a queue
            id = await first.submit(Task(type="scrape_profile", payload={"name": "once"}))
            async with shoal.connect(here) as client:
                await client.wait_for_results(id, timeout=HANG)
            assert (gate.handled, lost.handled) == ({"once": 1}, {})
            server.start()


def _hurry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next push gives its queue half a second; the one after it has all the time that a busy machine takes."""
    push = port.WorkerPort._push

    async def hurried(self: port.WorkerPort, exchange: small_server.Exchange) -> small_server.Answer:
        monkeypatch.setattr(port, "PUSH_TIMEOUT", 0.5)
        monkeypatch.setattr(port.WorkerPort, "_push", push)
        answer = await push(self, exchange)
        monkeypatch.setattr(port, "PUSH_TIMEOUT", HANG)
        return answer

    monkeypatch.setattr(port.WorkerPort, "_push", hurried)


async def test_workers_are_found_in_the_queue_unless_somebody_else_announced_them(here: str) -> None:
    gate = Gate(here)
    async with accepting(gate) as url, shoal.connect(here) as client:
        with socket.create_server(("127.0.0.1", 0)) as stranger:
            forged = f"http://127.0.0.1:{stranger.getsockname()[1]}"
            (status,) = await until(client.workers)
            name = f"{status.id}-2"
            await client.queue.register(_with_id(status, f"{name}-1"))
            await worker_ports.announce(client.queue, name, forged, "another-token-than-that-of-tests")
            async with balancer(here) as pushing:
                assert [worker.url for worker in pushing.workers] == [url]
                pushing.register_worker("by hand", url)
                await pushing.check_workers()
                assert [worker.name for worker in pushing.workers] == ["by hand"]  # it is one, whoever names it
                ids = await pushing.submit_many([Task(type="scrape_profile")] * 2)
                await client.wait_for_results(ids, timeout=HANG)
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.accept()
    async with balancer(here) as pushing:
        assert pushing.workers == []


def _with_id(status: Any, id: str) -> Any:
    import msgspec

    return msgspec.structs.replace(status, id=id)


async def test_port_refuses_strangers_and_what_is_too_much(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_server, "TIMEOUT", HANG)
    allowed = {"Authorization": f"Bearer {TOKEN}"}
    task = {"task": {"type": "scrape_profile"}}
    async with accepting(Gate(here)) as url, httpx.AsyncClient(trust_env=False, timeout=HANG, base_url=url) as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}):
            forwarded = {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1"}
            assert (await http.post("/tasks", json=task, headers=headers | forwarded)).status_code == 401
            assert (await http.get("/load", headers=headers)).status_code == 401
        for content, status in (
            (b"{", 400),
            (b"[" * 100_000, 400),
            (b"{}", 400),
            (json.dumps(task | {"run": "x", "url": "http://a.test"}).encode(), 400),
            (json.dumps(task | {"more": 1}).encode(), 400),
            (json.dumps({"task": {"type": "scrape_profile", "lease": 9}}).encode(), 400),
            (json.dumps({"task": {"type": "scrape profile\x1b"}}).encode(), 400),
            (json.dumps({"url": "http://a.test", "run": "nobody's"}).encode(), 400),
            (b"x" * (MAX_BODY_BYTES + 1), 413),
        ):
            answer = await http.post("/tasks", content=content, headers=allowed)
            assert answer.status_code == status, (content[:80], answer.text)
        assert (await http.get("/tasks", headers=allowed)).status_code == 405
        assert (await http.get("/etc/passwd", headers=allowed)).status_code == 404
        assert await _raw(url, "Transfer-Encoding: chunked\r\n", b"0\r\n\r\n") == 411
        assert await _raw(url, "Content-Length: 5\r\nContent-Length: 6\r\n", b"12345") == 400
        monkeypatch.setattr(small_server, "TIMEOUT", 0.5)
        assert await _raw(url, "Content-Length: 500\r\n", b"slow") == 0
        async with shoal.connect(here) as client:
            assert (await client.stats()).total == 0


async def _raw(url: str, headers: str, body: bytes) -> int:
    """The status of the answer to a request made by hand; 0: the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(f"POST /tasks HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n{headers}\r\n".encode() + body)
    line = await reader.readline()
    writer.close()
    return int(line.split()[1]) if line else 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"accept": "9470"}, "--accept needs a token"),
        ({"accept": "9470", "accept_token": "short"}, "needs a better token"),
        ({"accept": "nowhere:", "accept_token": TOKEN}, "is not a listen address"),
    ],
)
async def test_port_that_anybody_could_use_is_not_opened(here: str, settings: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        await shoal.Worker.work(type("Plain", (Gate,), {})(here, **{"accept_token": ""} | settings))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"token": ""}, "needs a token"),
        ({"token": TOKEN, "strategy": "best"}, "strategy 'best' is not known"),
        ({"token": TOKEN, "health_check_interval": 0}, "health_check_interval"),
        ({"token": TOKEN, "health_check_interval": "a"}, "health_check_interval"),
    ],
)
def test_balancer_says_what_is_wrong_with_it(clean_folder: Path, how: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        shoal.LoadBalancer(**how)
    balancer = shoal.LoadBalancer(token=TOKEN)
    for url in ("10.0.0.5:9470", "ftp://10.0.0.5", "http://10.0.0.5/x?y", "http://[x"):
        with pytest.raises(UsageError, match="is not the URL of a worker"):
            balancer.register_worker("a", url)


# real processes


def start(fleet: LocalFleet, *args: str) -> tuple[Any, str]:
    """A worker process with a port, and the URL of it."""
    port = free_port()
    process = fleet.worker(*args, "--accept", f"127.0.0.1:{port}", SHOAL_ACCEPT_TOKEN=TOKEN)
    url = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        assert process.poll() is None, process.stderr.read()
        try:
            answer = httpx.get(f"{url}/load", headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False)
        except httpx.TransportError:
            return False
        return bool(answer.json()["load"]["places"])

    wait_until(is_ready)
    return process, url


def push(url: str, body: dict[str, Any]) -> Any:
    """The answer of a worker to a task; one that is busy just now is asked again."""

    def answer() -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        given = httpx.post(f"{url}/tasks", json=body, headers=headers, timeout=HANG, trust_env=False)
        return None if given.status_code == 503 else given.json()

    return wait_until(answer)


async def test_page_that_nobody_takes_waits_in_its_run(here: str) -> None:
    async with shoal.connect(here) as client, balancer(here) as pushing:
        run = await client.queue.start_run(
            NewRun("books", "k", name="20260215_120000_abc", spec={"mode": "distributed"})
        )
        ids = [
            await pushing.submit(url, run=run.name, priority=3)
            for url in ("https://shop.example/x", "https://shop.example/x")
        ]
        (view,) = await client.queue.list_tasks(run.id)
        assert (ids, view.url, view.priority) == ([view.id] * 2, "https://shop.example/x", 3)
        for url, name, words in (
            ("http://127.0.0.1/", run.name, "cannot be fetched"),
            ("https://shop.example/", "nobody's", "there is no run nobody's"),
            ("no url", run.name, "cannot be fetched"),
        ):
            with pytest.raises(UsageError, match=words):
                await pushing.submit(url, run=name)


def test_pages_of_a_run_are_pushed_and_those_of_private_hosts_are_not(redis_fleet: LocalFleet) -> None:
    fleet = redis_fleet
    fleet.site.pages |= {"/robots.txt": page("", status=404), "/*": page("x")}
    run = fleet.submit(["/first"])
    fleet.ask(lambda queue: begin_seeding(queue, run.name))  # there is more to come: it does not end yet
    process, url = start(fleet, fleet.scraper(), "--run", run.name)
    answers = [push(url, {"url": fleet.site.url(path), "run": run.name}) for path in ("/a", "/b", "/a")]
    assert [answer["state"] for answer in answers][2] == "known"
    assert answers[0]["id"] == answers[2]["id"] != answers[1]["id"]
    private = push(url, {"url": "http://169.254.169.254/x", "run": run.name})
    assert "refused" in private["error"], private
    wait_until(lambda: len(fleet.records(run)) == 3)
    assert stop_process(process).code == 0
    assert fleet.records(run) == sorted(map(fleet.site.url, ("/a", "/b", "/first")))
    assert all(len(fleet.site.hits_for(path)) == 1 for path in ("/a", "/b"))


TASKS = """
import os, time, shoal

tasks = shoal.Scraper("tasks")

@tasks.task("quick")
def quick(task):
    return os.getpid()

@tasks.task("stuck")
def stuck(task):
    while not os.path.exists("go"):
        time.sleep(0.05)
    return os.getpid()
"""


def test_child_that_stands_still_gets_nothing_and_what_a_killed_one_had_is_done_once(redis_fleet: LocalFleet) -> None:
    fleet = redis_fleet
    process, url = start(fleet, fleet.scraper("tasks", TASKS), "--workers", "2", "--concurrency", "2")
    headers = {"Authorization": f"Bearer {TOKEN}"}

    def places() -> int:
        return int(httpx.get(f"{url}/load", headers=headers, timeout=HANG, trust_env=False).json()["load"]["places"])

    wait_until(lambda: places() == 4)
    pids = {status.id: status.pid for status in wait_until(lambda: len(fleet.workers()) == 2 and fleet.workers())}
    frozen, awake = sorted(pids)
    os.kill(pids[frozen], signal.SIGSTOP)
    wait_until(lambda: places() == 2)
    answers = [push(url, {"task": {"type": "quick"}}) for _ in range(3)]
    assert {answer["worker"] for answer in answers if answer["state"] == "leased"} == {awake}
    os.kill(pids[frozen], signal.SIGCONT)
    wait_until(lambda: places() == 4)
    held = push(url, {"task": {"type": "stuck"}})
    os.kill(pids[held["worker"]], signal.SIGKILL)
    (fleet.user.folder / "go").touch()
    ids = [answer["id"] for answer in (*answers, held)]

    async def results() -> list[Any]:
        async with shoal.connect(fleet.queue) as client:
            return await client.wait_for_results(ids, timeout=HANG)

    done = asyncio.run(results())
    assert all(result.ok for result in done)
    assert done[-1].value != pids[held["worker"]]
    assert stop_process(process).code == 0
