"""Workers and producers that reach only a server: it is the same queue, whatever dies in between."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from local_fleet import LocalFleet, local_fleet, stop_process, wait_for_exit
from server_process import ServerProcess, running_server
from servers.ports import free_port
from shell_user import CommandResult
from small_site import page, slow_page
from wait import HANG, wait_until

import shoal
from shoal.client.wait import TaskProgress
from shoal.core.run import Run
from shoal.errors import QueueRefused

OWN = "an-own-token-that-is-long-enough"
QUICK = ("--lease", "4s", "--heartbeat", "1s", "--health", "0", "--concurrency", "8", "--batch-size", "8")
Task = shoal.Task


class Remote:
    """A fleet whose people and workers have the address of a server, and no way to its file."""

    def __init__(self, fleet: LocalFleet, servers: ExitStack) -> None:
        self.fleet = fleet
        self._servers = servers
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = self.serve()
        self.token = self.make("boxes")
        fleet.user.environment |= {"SHOAL_QUEUE": self.url, "SHOAL_TOKEN": self.token}

    def serve(self) -> ServerProcess:
        """A server at its place, as often as wanted."""
        folder = self.fleet.user.folder / "server"
        folder.mkdir(exist_ok=True)
        flags = ("--listen", f"127.0.0.1:{self.port}")
        self.server = self._servers.enter_context(running_server(self.fleet.queue, *flags, token=OWN, folder=folder))
        return self.server

    def kill(self) -> None:
        self.server.stop(signal.SIGKILL)

    def make(self, name: str, scope: str = "work") -> str:
        answer = self.server.post("/api/v1/tokens", {"name": name, "scopes": [scope]})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def shoal(self, *args: str, **variables: str) -> CommandResult:
        return self.fleet.user.shoal(*args, **variables)

    def output_of(self, *args: str) -> str:
        """What a command that must go well says on stdout."""
        done = self.shoal(*args)
        assert done.code == 0, done.err
        return done.out

    def urls(self, run: Run) -> list[str]:
        return self.fleet.records(run)


@contextmanager
def remote_of(folder: Path, kind: str = "sqlite") -> Iterator[Remote]:
    with local_fleet(kind, folder) as fleet, ExitStack() as servers:
        yield Remote(fleet, servers)


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    with remote_of(tmp_path) as made:
        yield made


def kill(command: subprocess.Popen[str]) -> None:
    os.killpg(command.pid, signal.SIGKILL)
    command.wait(HANG)


# The commands


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_list_with_a_template_goes_through_the_server_from_submit_to_export(kind: str, tmp_path: Path) -> None:
    with remote_of(tmp_path, kind) as remote:
        site, folder = remote.fleet.site, remote.fleet.user.folder
        site.pages["/p/*"] = lambda hit: (200, {}, f"<h1>{hit.path}</h1>".encode())
        (folder / "book.yaml").write_text("name: book\npages:\n  - fields:\n      title: h1::text\n")
        wanted = [site.url(f"/p/{n}") for n in range(20)]
        (folder / "urls.txt").write_text("\n".join([*wanted, site.url("/gone")]))
        remote.output_of("submit", "book.yaml", "urls.txt")
        elsewhere = folder / "elsewhere"  # a machine that has neither the template nor the list
        elsewhere.mkdir()
        worker = remote.fleet.user.start("worker", "--exit-when-done", *QUICK, folder=elsewhere)
        assert wait_for_exit(worker).code == 3  # a page failed
        remote.output_of("export", "-o", "out.jsonl")
        rows = remote.fleet.user.lines("out.jsonl")
        assert sorted(row["title"] for row in rows) == sorted(f"/p/{n}" for n in range(20))
        if kind == "sqlite":
            _look_and_act(remote, site.url("/gone"))


def _look_and_act(remote: Remote, gone: str) -> None:
    """Every other command that people have for a run."""
    assert "done 20 + dead 1" in remote.output_of("status")
    assert "finished" in remote.output_of("runs")
    assert "http.404" in remote.output_of("dead")
    assert "http.404" in remote.output_of("why", gone)
    assert remote.fleet.site.lane in remote.output_of("hosts")
    assert remote.shoal("watch").code == 3
    remote.output_of("advice")
    remote.output_of("doctor")
    remote.fleet.site.pages["/gone"] = page("back")
    remote.output_of("revive", "--all")
    assert "paused" in remote.output_of("pause") + remote.output_of("status")
    remote.output_of("resume")
    kept = [(it["what"], it["who"], it["via"]) for it in remote.server.ask("/api/v1/actions")["items"]]
    assert kept[:3] == [(what, "boxes", "queue") for what in ("resume", "pause", "revive")]
    assert wait_for_exit(remote.fleet.user.start("worker", "--exit-when-done", *QUICK)).code == 0
    assert "done 21 + dead 0" in remote.output_of("status")


def test_a_whole_run_of_one_machine_can_keep_its_state_there(remote: Remote) -> None:
    remote.fleet.site.pages["/p/*"] = slow_page(0.01)
    remote.fleet.site.pages["/"] = page("start", *(f"/p/{n}" for n in range(30)))
    code = remote.fleet.scraper(text=FOLLOWING)
    done = remote.shoal("run", code, "-o", "out.jsonl")
    assert done.code == 0, done.err
    assert len(remote.fleet.user.lines("out.jsonl")) == 31
    assert not list(remote.fleet.user.folder.glob(".shoal/*.db"))


FOLLOWING = """
import shoal

{name} = shoal.Scraper("{name}", start="{url}")

@{name}.page("*")
def page(page):
    yield {{{{"url": page.url}}}}
    yield from page.follow("a")
"""


# What dies in between


def test_a_server_and_a_worker_that_are_killed_lose_and_duplicate_nothing(remote: Remote) -> None:
    fleet = remote.fleet
    fleet.site.pages["/p/*"] = slow_page(0.03)
    code = fleet.scraper()
    run = fleet.submit([f"/p/{n}" for n in range(200)])
    done = lambda: fleet.stats(run).done  # noqa: E731
    first = fleet.worker(code, *QUICK)
    second = fleet.worker(code, "--exit-when-done", *QUICK)
    for share in (30, 90):
        wait_until(lambda share=share: done() >= share)
        remote.kill()
        remote.serve()
    wait_until(lambda: done() >= 130)
    kill(first)
    said = wait_for_exit(second)
    assert said.code == 0, said.err
    assert fleet.state(run) == "finished"
    stats = fleet.stats(run)
    assert (stats.seen, stats.done, stats.dead) == (200, 200, 0)
    assert remote.urls(run) == sorted(fleet.site.url(f"/p/{n}") for n in range(200))


def test_a_worker_that_is_started_before_its_server_waits_for_it(remote: Remote) -> None:
    remote.fleet.site.pages["/p/*"] = page("x")
    code = remote.fleet.scraper()
    run = remote.fleet.submit(["/p/1"])
    remote.kill()
    worker = remote.fleet.worker(code, "--exit-when-done", *QUICK)
    time.sleep(1.5)
    assert worker.poll() is None
    remote.serve()
    assert wait_for_exit(worker).code == 0
    assert remote.urls(run) == [remote.fleet.site.url("/p/1")]


def test_a_worker_that_is_stopped_hands_back_what_it_has_through_the_server(remote: Remote) -> None:
    fleet = remote.fleet
    fleet.site.pages["/p/*"] = slow_page(0.2)
    run = fleet.submit([f"/p/{n}" for n in range(100)])
    worker = fleet.worker(fleet.scraper(), *QUICK)
    wait_until(lambda: fleet.stats(run).done >= 4)
    assert stop_process(worker).code == 0
    stats = fleet.stats(run)
    assert (stats.leased, stats.lost) == (0, 0)
    assert stats.done == len(remote.urls(run))


# Who may


def test_without_the_right_token_a_command_ends_with_the_way_out(remote: Remote) -> None:
    tokens = {"": "needs a token", "shoal_wrong": "unknown", remote.make("eyes", "read"): "needs the scope work"}
    code = remote.fleet.scraper()
    for token, words in tokens.items():
        for command in (("status",), ("worker", code, "--health", "0")):
            done = remote.shoal(*command, SHOAL_TOKEN=token)
            assert (done.code, words in done.err) == (1, True), done
            assert "shoal token add NAME --scope work" in done.err
            assert not token or token not in done.err + done.out
            assert "Traceback" not in done.err


def test_a_worker_whose_token_is_taken_away_stops_and_says_why(remote: Remote) -> None:
    fleet = remote.fleet
    fleet.site.pages["/p/*"] = slow_page(0.1)
    run = fleet.submit([f"/p/{n}" for n in range(300)])
    worker = fleet.worker(fleet.scraper(), *QUICK)
    wait_until(lambda: fleet.stats(run).done >= 4)
    assert remote.server.delete("/api/v1/tokens/boxes").status_code in (200, 204)
    said = wait_for_exit(worker)
    assert said.code == 1, said
    assert "this token is unknown" in said.err
    assert "Traceback" not in said.err
    token = remote.make("others")
    fleet.user.environment["SHOAL_TOKEN"] = token
    again = fleet.worker("plain.py", "--exit-when-done", *QUICK, "--concurrency", "64")
    assert wait_for_exit(again).code == 0
    assert remote.urls(run) == sorted(fleet.site.url(f"/p/{n}") for n in range(300))


async def test_the_work_scope_opens_nothing_else(remote: Remote) -> None:
    headers = {"Authorization": f"Bearer {remote.token}"}
    with httpx.Client(base_url=remote.url, headers=headers, trust_env=False) as client:
        for path in ("/api/v1/runs", "/api/v1/tokens", "/stats", "/metrics"):
            assert client.get(path).status_code == 403, path
        assert client.get("/api/v1/queue").status_code == 200
    done = remote.shoal("token", "list")
    assert (done.code, "internal to the server" in done.err) == (1, True)
    with pytest.raises(QueueRefused, match="unknown"):
        async with shoal.connect(remote.url, token="shoal_wrong"):
            pass


# In Python


class Echo(shoal.Worker):
    types = ("echo",)

    async def handle(self, task: Any) -> Any:
        if task.payload.get("fail"):
            raise shoal.GiveUp("no.luck", "it failed")
        return {"n": task.payload["n"]}


async def test_typed_tasks_over_http_are_as_with_any_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with remote_of(tmp_path) as remote:
        url, token = remote.url, remote.token
        async with shoal.connect(url, token=token) as fleet:
            ids = await fleet.enqueue_many(Task(type="echo", payload={"n": n}) for n in range(300))
            (bad,) = await fleet.enqueue_many([Task(type="echo", payload={"fail": True})])
            assert await fleet.stats("echo") == TaskProgress(pending=301)
            echo = Echo(url, token=token)
            working = asyncio.create_task(echo.work())
            try:
                results = await fleet.wait_for_results([*ids, bad], timeout=HANG)
                assert await fleet.workers()
            finally:
                echo.stop()
                await working
            assert [result.value["n"] for result in results[:-1]] == list(range(300))
            assert (results[-1].state, results[-1].cause) == ("dead", "no.luck")
            (letter,) = await fleet.get_dead_letters("echo")
            assert letter.id == bad
            assert await fleet.revive([bad]) == 1
            (held,) = await fleet.dequeue("echo", worker="me", timeout=HANG)
            assert held.id == bad
            assert await fleet.extend(held) == []
            assert await fleet.complete(held, "by hand")
            last = await fleet.enqueue(Task(type="echo", payload={"n": 1}, retries=0))
            (held,) = await fleet.dequeue("echo", timeout=HANG)
            assert await fleet.fail(held, "gone") == "dead"
            assert [result.state for result in await fleet.results([bad, last])] == ["done", "dead"]
            assert await fleet.stats("echo") == TaskProgress(completed=301, failed=1)
