"""Two servers of one queue behind the nginx of the documentation: either may be asked, either may die."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from local_fleet import LocalFleet, local_fleet, wait_for_exit
from server_process import ServerProcess, running_server
from servers.nginx import Nginx, nginx
from small_site import page, slow_page
from wait import HANG, wait_until
from websockets.sync.client import connect

from shoal.control.idempotency import KeyLock, acquire, document_name
from shoal.queue.base import Queue

OWN = "an-own-token-that-is-long-enough"
QUICK = ("--lease", "4s", "--heartbeat", "1s", "--health", "0", "--concurrency", "8", "--batch-size", "8")
# Seconds after which nginx asks a server again that did not answer: fail_timeout=2s, which it counts in whole seconds.
FAIL_TIMEOUT = 3.5
BEARER = {"Authorization": f"Bearer {OWN}"}


class ServerPair:
    def __init__(self, fleet: LocalFleet, stack: ExitStack) -> None:
        self.fleet = fleet
        self._stack = stack
        self.servers = [self._serve(), self._serve()]
        self.proxy: Nginx = stack.enter_context(nginx([f"127.0.0.1:{it.port}" for it in self.servers]))
        self.client = stack.enter_context(self.asking())

    def _serve(self, *flags: str) -> ServerProcess:
        more = {"allow_private": self.fleet.site.lane, "api_rate": "100000"}
        return self._stack.enter_context(running_server(self.fleet.queue, *flags, token=OWN, **more))

    def asking(self, **more: Any) -> httpx.Client:
        """Somebody who asks at the front."""
        more = {"headers": BEARER, "timeout": HANG} | more
        return httpx.Client(base_url=self.proxy.url, verify=self.proxy.context, trust_env=False, **more)

    def kill(self, number: int) -> None:
        self.servers[number].stop(signal.SIGKILL)

    def revive(self, number: int) -> None:
        """At the same place as before."""
        self.servers[number] = self._serve("--listen", f"127.0.0.1:{self.servers[number].port}")


@contextmanager
def pair_in(folder: Path) -> Iterator[ServerPair]:
    with local_fleet("sqlite", folder) as fleet, ExitStack() as stack:
        yield ServerPair(fleet, stack)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPair]:
    """For tests that leave both alive."""
    with pair_in(tmp_path_factory.mktemp("pair")) as made:
        yield made


def submit(client: httpx.Client | ServerProcess, urls: list[str], **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    if isinstance(client, ServerProcess):
        return client.post("/api/v1/runs", {"urls": urls}, headers=names)
    return client.post("/api/v1/runs", json={"urls": urls}, headers=names)


# Either may be asked


def test_what_one_took_the_other_knows_at_once(pair: ServerPair) -> None:
    one, other = pair.servers
    run = submit(one, ["https://a.example/1"]).json()["run"]
    assert other.ask(f"/api/v1/runs/{run}")["ready"] == 1
    assert other.post(f"/api/v1/runs/{run}/pause").status_code == 200
    assert pair.client.get(f"/api/v1/runs/{run}").json()["state"] == "paused"
    for _ in range(6):
        assert pair.client.get("/stats").status_code == 200


def test_a_batch_given_to_one_is_answered_by_the_other(pair: ServerPair) -> None:
    pair.fleet.site.pages["/batch/*"] = page("Alpha")
    urls = [pair.fleet.site.url(f"/batch/{n}") for n in range(5)]
    said = pair.servers[0].post("/api/crawl/batch", {"urls": urls}, timeout=HANG).json()
    assert pair.servers[1].ask(f"/api/crawl/batch/{said['session_id']}") == said


def test_who_logged_in_at_one_is_known_to_the_other(pair: ServerPair) -> None:
    with pair.asking(headers={"Accept": "text/html"}) as browser:
        answer = browser.post("/login", data={"token": OWN, "next": "/"})
        assert answer.status_code == 303, answer.text
        assert "secure" in answer.headers["set-cookie"].lower()
        word = re.findall(r'name="csrf" content="(\w+)"', browser.get("/").text)[0]
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        for server in pair.servers:
            headers = {"Cookie": cookie, "Accept": "text/html"}
            assert httpx.get(f"{server.url}/runs", headers=headers, trust_env=False).status_code == 200
            headers["X-Shoal-CSRF"] = word
            path = f"{server.url}/api/v1/tokens"
            answer = httpx.post(path, json={"name": "!"}, headers=headers, trust_env=False)
            assert answer.status_code == 422, answer.text  # let in: only what it says is wrong
        origin = {"X-Shoal-CSRF": word, "Origin": pair.proxy.url}
        assert browser.post("/api/v1/tokens", json={"name": "!"}, headers=origin).status_code == 422
        evil = origin | {"Origin": "https://evil.example"}
        assert browser.post("/api/v1/tokens", json={"name": "!"}, headers=evil).status_code == 403


def test_one_key_given_to_both_at_once_adds_once(pair: ServerPair) -> None:
    urls = [f"https://h{n}.example/" for n in range(3_000)]
    answers: list[httpx.Response] = []

    def ask(server: ServerProcess) -> None:
        answers.append(submit(server, urls, Idempotency_Key="both"))

    both = [threading.Thread(target=ask, args=(server,)) for server in (*pair.servers, *pair.servers)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert {answer.status_code for answer in answers} <= {201, 409}
    (name,) = {answer.json()["run"] for answer in answers if answer.status_code == 201}
    again = submit(pair.client, urls, Idempotency_Key="both")
    assert (again.status_code, again.json()["run"]) == (201, name)
    assert pair.client.get(f"/api/v1/runs/{name}").json()["seen"] == 3_000


def test_events_flow_through_whoever_acts(pair: ServerPair) -> None:
    run = submit(pair.servers[0], ["https://a.example/sse"]).json()["run"]
    with pair.client.stream("GET", f"/api/v1/events?topic=fleet&topic=run:{run}") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
        assert json.loads(first[6:])["event"] in ("fleet", "run")
        for server, verb in zip(pair.servers, ("pause", "resume"), strict=True):
            server.post(f"/api/v1/runs/{run}/{verb}")
            _heard(lines, verb)


def _heard(lines: Iterator[str], verb: str) -> None:
    for line in lines:
        if line.startswith("data: "):
            event = json.loads(line[6:])
            if event["event"] == "action" and event["data"]["what"] == verb:
                return
    raise AssertionError("the stream ended")


def test_a_websocket_goes_through(pair: ServerPair) -> None:
    url = pair.proxy.url.replace("https", "wss") + "/ws"
    with connect(url, ssl=pair.proxy.context, additional_headers=BEARER, origin=pair.proxy.url) as wire:  # type: ignore[arg-type]
        for _ in range(2):
            assert json.loads(wire.recv(timeout=HANG))["event"] == "fleet"


def test_plain_http_leads_to_tls_and_a_queue_does_not_follow(pair: ServerPair) -> None:
    answer = httpx.get(f"{pair.proxy.plain}/stats", trust_env=False)
    assert (answer.status_code, answer.headers["location"]) == (301, "https://localhost/stats")
    done = pair.fleet.user.shoal("status", SHOAL_QUEUE=pair.proxy.plain, SHOAL_TOKEN=OWN)
    assert (done.code, "redirects elsewhere" in done.err) == (1, True)


def test_who_asks_too_often_is_told_so_by_nginx_and_workers_are_not(pair: ServerPair) -> None:
    places = [f"127.0.0.1:{it.port}" for it in pair.servers]
    few = {"rate=100r/s": "rate=1r/s", "burst=500": "burst=5"}
    with (
        nginx(places, **few) as proxy,
        httpx.Client(base_url=proxy.url, verify=proxy.context, headers=BEARER, trust_env=False) as client,
    ):
        asked = [client.get("/stats").status_code for _ in range(15)]
        assert set(asked) == {200, 429}
        assert asked[:3] == [200, 200, 200]
        assert {client.get("/api/v1/queue").status_code for _ in range(30)} == {200}


# Either may die


def test_one_that_is_killed_or_restarted_is_not_missed(tmp_path: Path) -> None:
    """Lookers, producers with keys and a worker go on through the other; nothing is lost, nothing doubled."""
    with pair_in(tmp_path) as pair:
        fleet = pair.fleet
        fleet.site.pages["/p/*"] = slow_page(0.03)
        run = fleet.submit([f"/p/{n}" for n in range(240)])
        tls = {"SHOAL_QUEUE": pair.proxy.url, "SHOAL_TOKEN": OWN, "SHOAL_CA_FILE": str(pair.proxy.certificate)}
        worker = fleet.worker(fleet.scraper(), "--scraper", "plain", "--exit-when-done", *QUICK, **tls)
        looking = Client(pair, lambda client, _: client.get("/api/v1/runs?limit=5"))
        producers = [Client(pair, partial(_submit_keyed, name)) for name in ("one", "two")]
        wait_until(lambda: fleet.stats(run).done >= 30 and all(it.asked > 5 for it in producers))
        pair.kill(0)
        wait_until(lambda: fleet.stats(run).done >= 90)
        pair.revive(0)
        time.sleep(FAIL_TIMEOUT)
        pair.servers[1].stop(signal.SIGTERM)
        more = producers[0].asked + 5
        wait_until(lambda: producers[0].asked >= more)
        said = wait_for_exit(worker)
        assert said.code == 0, said.err
        assert looking.end() == {200}
        for producer in producers:
            assert producer.end() <= {201, 200}  # 200: the dead one had begun this run, and the other went on with it
        stats = fleet.stats(run)
        assert (stats.seen, stats.done, stats.dead) == (240, 240, 0)
        assert fleet.records(run) == sorted(fleet.site.url(f"/p/{n}") for n in range(240))
        assert fleet.ask(lambda queue: _count_runs(queue)) == 1 + sum(it.asked for it in producers)


def _submit_keyed(name: str, client: httpx.Client, number: int) -> httpx.Response:
    return submit(client, ["https://a.example/"], Idempotency_Key=f"{name}-{number}")


async def _count_runs(queue: Queue) -> int:
    return len(await queue.runs(limit=1_000))


class Client:
    """Somebody who asks at the front all the time, and never asks again for what failed."""

    def __init__(self, pair: ServerPair, ask: Callable[[httpx.Client, int], httpx.Response]) -> None:
        self.asked = 0
        self._statuses: set[int | str] = set()
        self._ended = threading.Event()
        self._pair = pair
        self._ask = ask
        self._thread = threading.Thread(target=self._go_on, daemon=True)  # a test that fails does not wait for it
        self._thread.start()

    def _go_on(self) -> None:
        with self._pair.asking() as client:
            while not self._ended.wait(0.02):
                try:
                    answer = self._ask(client, self.asked)
                    self._statuses.add(answer.status_code if answer.is_success else f"{answer}: {answer.text}")
                except httpx.TransportError as error:
                    self._statuses.add(repr(error))
                self.asked += 1

    def end(self) -> set[int | str]:
        self._ended.set()
        self._thread.join()
        return self._statuses


def test_a_request_whose_server_died_is_waited_for_and_done_by_the_other(pair: ServerPair) -> None:
    """Its key is still held by the dead one when nginx sends it again."""
    answers: list[httpx.Response] = []

    async def die_with_key(queue: Queue) -> None:
        held = await acquire(queue, document_name("SHOAL_TOKEN", "held"))
        assert isinstance(held, KeyLock)
        again = threading.Thread(
            target=lambda: answers.append(submit(pair.client, ["https://a.example/held"], Idempotency_Key="held"))
        )
        again.start()
        await asyncio.sleep(0.5)
        assert not answers
        await held.give_up()
        await asyncio.to_thread(again.join)

    pair.fleet.ask(die_with_key)
    assert [answer.status_code for answer in answers] == [201]
