"""Actions of commands are kept with those of API and pages: who, what, when, and how."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from shoal.cli.main import main
from shoal.commands.action_log import log_command
from shoal.control.actions import LoggedAction, recent_actions
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import NewRun
from shoal.core.task import LaneChange, Outcome
from shoal.errors import QueueRefused
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_task
from shoal.web.api.queue_actions import log_verb

T = TypeVar("T")
SCRAPER = """
import shoal

books = shoal.Scraper("books", start="http://shop.test/")


@books.page("*")
def page(page):
    yield {"url": page.url}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SHOAL_QUEUE", f"sqlite:///{tmp_path}/q.db")
    (tmp_path / "books.py").write_text(SCRAPER)
    return tmp_path


def asked(folder: Path, job: Callable[[Queue], Awaitable[T]]) -> T:
    async def opened() -> T:
        queue = await SqliteQueue.open(str(folder / "q.db"), synchronous="normal")
        try:
            return await job(queue)
        finally:
            await queue.close()

    return asyncio.run(opened())


async def prepare(queue: Queue) -> None:
    """A run with a dead letter, and a worker."""
    run = await queue.start_run(NewRun("books", "k", name="r1", spec={"mode": "distributed"}))
    tasks = [start_task(f"http://shop.test/{n}") for n in range(2)]
    await queue.add(run.id, tasks, {"shop.test": UNLIMITED_PACE})
    claim = await queue.claim("w-1", 1)
    lost = claim.tasks[0]
    await queue.settle([Outcome(task=lost.id, lease=lost.lease, result="dead", cause="http.404")])
    now = await queue.now()
    await queue.register(WorkerStatus("w-1", "w", "m", 1, "0", now, now))


def latest(folder: Path) -> list[LoggedAction]:
    return asked(folder, recent_actions)[0]


@pytest.mark.parametrize(
    ("command", "what", "about"),
    [
        (("pause", "r1"), "pause", "r1"),
        (("cancel", "r1"), "cancel", "r1"),
        (("revive", "r1", "--all"), "revive", "r1"),
        (("hosts", "park", "shop.test", "--reason", "sale"), "park", "shop.test"),
        (("hosts", "set", "--like", "shop", "--delay", "2s"), "pace", "hosts like shop"),
        (("drain", "w-1"), "drain", "w-1"),
        (("token", "add", "ops"), "add token", "ops"),
        (("schedule", "add", "books.py", "0 3 * * *"), "add schedule", "books"),
        (("submit", "books.py"), "submit", ""),
    ],
)
def test_what_a_command_does_is_in_the_list_of_actions(
    folder: Path, command: tuple[str, ...], what: str, about: str
) -> None:
    asked(folder, prepare)
    assert main(list(command)) == 0
    (action,) = latest(folder)
    assert (action.what, action.via) == (what, "command") and action.about == (about or action.about)
    assert action.who == f"{getpass.getuser()}@{socket.gethostname()}"


def test_a_command_that_was_refused_is_no_action(folder: Path) -> None:
    asked(folder, prepare)
    assert main(["cancel", "r1"]) == 0
    assert main(["revive", "r1", "--all"]) == 2, "dead letters of a cancelled run stay"
    assert main(["hosts", "park", "elsewhere.test"]) == 2
    assert [action.what for action in latest(folder)] == ["cancel"]


async def test_what_cannot_be_kept_does_not_fail_the_command() -> None:
    class Refusing:
        async def now(self) -> int:
            return 1

        async def document(self, kind: str, name: str) -> None:
            raise QueueRefused("documents of the kind actions are internal to the server")

    await log_command(Refusing(), "pause", "r1")  # type: ignore[arg-type]


def test_decisions_over_a_remote_queue_are_kept_and_the_work_itself_is_not(folder: Path) -> None:
    async def job(queue: Queue) -> None:
        await prepare(queue)
        (run,) = await queue.runs()
        await log_verb(queue, "boxes", "set_run", [run.id, "pause"], {}, run)
        await log_verb(queue, "boxes", "set_run", [run.id, "finish"], {}, run)
        await log_verb(queue, "boxes", "revive", [run.id, TaskFilter(cause="http.404")], {"limit": 9}, 1)
        await log_verb(
            queue, "boxes", "set_lane", [LaneChange("shop.test", spacing=2.0, reason="crawl-delay")], {}, None
        )
        await log_verb(queue, "boxes", "set_lane", [LaneChange("shop.test", park_for=60.0, reason="sale")], {}, None)
        await log_verb(queue, "boxes", "compare_and_swap", ["lock", "x", None, 1], {}, None)

    asked(folder, job)
    found = [(action.what, action.about, action.more) for action in reversed(latest(folder))]
    assert found == [
        ("pause", "r1", {}),
        ("revive", "r1", {"count": 1, "cause": "http.404"}),
        ("park", "shop.test", {"seconds": 60.0, "reason": "sale"}),
    ]
    assert {action.via for action in latest(folder)} == {"queue"}
