"""Real worker processes whose handlers block, loop, hoard, exit and are killed: each harms its task only."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from wait import FOREVER, HANG, until

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.errors import UsageError
from shoal.queue.base import TaskView
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_tasks
from shoal.worker.pool.child_protocol import EXIT_ORPHANED, ChildConfig
from shoal.worker.pool.crash_note import find_dead_workers
from shoal.worker.pool.supervisor import Supervisor, WorkerLimits

COMMAND = [sys.executable, str(Path(__file__).with_name("supervised_worker.py"))]


class SupervisedRun:
    """A run on a real file, a site on a free port, and a supervisor with its children."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.notes = folder / "workers"
        self.settings: dict[str, Any] = {"queue": str(folder / "q.db"), "marks": str(self.marks)}
        self.settings["lease"] = FOREVER  # whoever waited for the end of one would wait too long

    async def open(self) -> None:
        self.queue = await SqliteQueue.open(self.settings["queue"])
        self.run = (await self.queue.start_run(NewRun(scraper="bad", key="k"))).id

    async def add(self, *paths: str) -> None:
        tasks, _ = start_tasks(f"http://127.0.0.1:{self.port}{path}" for path in paths)
        await self.queue.add(self.run, tasks, {task.lane: UNLIMITED_PACE for task in tasks})

    def make_supervisor(self, count: int = 1, **limits: Any) -> Supervisor:
        self.settings["retries"] = limits.get("retries")
        limits = {"lease": self.settings["lease"]} | limits
        self.supervisor = Supervisor(
            COMMAND, count, self.queue, self.notes, settings=self.settings, limits=WorkerLimits(**limits)
        )
        return self.supervisor

    async def wait_until(self, what: Callable[[], Any]) -> None:
        async def checked() -> Any:
            await self.supervisor.check()
            found = what()
            return await found if asyncio.iscoroutine(found) else found

        await until(checked)

    async def finished(self) -> bool:
        return (await self.queue.stats(self.run)).open == 0

    async def task(self, path: str) -> TaskView:
        tasks = await self.queue.list_tasks(self.run)
        return next(task for task in tasks if task.url.endswith(path))

    async def recorded(self) -> list[str]:
        kept = await self.queue.records(self.run)
        return sorted(msgspec.json.decode(record.data)["url"].rpartition("/")[2] for record in kept)

    async def pid(self) -> int:
        return (await self.queue.workers())[0].pid


@pytest.fixture
async def supervised(tmp_path: Path) -> AsyncIterator[SupervisedRun]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    supervised = SupervisedRun(tmp_path, server.sockets[0].getsockname()[1])
    await supervised.open()
    yield supervised
    if hasattr(supervised, "supervisor"):
        supervised.supervisor.kill()
        await supervised.supervisor.stop()
    await supervised.queue.close()
    server.close()


async def test_page_whose_worker_was_killed_is_done_again_at_once_and_recorded_once(supervised: SupervisedRun) -> None:
    await supervised.add("/block", "/good1", "/good2")
    supervisor = supervised.make_supervisor()
    await supervisor.start()
    await supervised.wait_until(lambda: (supervised.marks / "block").exists())
    os.kill(await supervised.pid(), signal.SIGKILL)
    await supervised.wait_until(supervised.finished)
    assert await supervised.recorded() == ["block", "good1", "good2"]
    assert (await supervised.task("/block")).lost == 1
    assert (await supervised.task("/good1")).lost == 0


async def test_handler_that_exits_the_process_is_dead_after_three_deaths_and_harms_nobody(
    supervised: SupervisedRun,
) -> None:
    await supervised.add("/exit", *(f"/good{number}" for number in range(20)))
    supervisor = supervised.make_supervisor(count=2)
    await supervisor.start()
    await supervised.wait_until(supervised.finished)
    guilty = await supervised.task("/exit")
    assert (guilty.state, guilty.cause, guilty.lost) == ("dead", "worker_lost", 3)
    assert len(await supervised.recorded()) == 20
    assert all(task.lost == 0 for task in await supervised.queue.list_tasks(supervised.run, state="done"))


@pytest.mark.parametrize(
    ("path", "cause", "limits"),
    [
        ("/loop", "handler_timeout", {"handler_timeout": 1.5}),
        ("/spawn", "handler_timeout", {"handler_timeout": 1.5}),
        ("/hog", "memory", {"memory": 400_000_000}),
        ("/share", "memory", {"memory": 300_000_000}),
    ],
)
async def test_handler_without_end_is_stopped_and_charged_alone(
    supervised: SupervisedRun, path: str, cause: str, limits: dict[str, Any]
) -> None:
    await supervised.add(path, *(f"/good{number}" for number in range(10)))
    supervisor = supervised.make_supervisor(retries={cause: 0}, **limits)
    await supervisor.start()
    await supervised.wait_until(supervised.finished)
    guilty = await supervised.task(path)
    assert (guilty.state, guilty.cause, guilty.lost) == ("dead", cause, 0)
    assert len(await supervised.recorded()) == 10
    assert all(
        task.attempts <= 1 and task.lost == 0
        for task in await supervised.queue.list_tasks(supervised.run, state="done")
    )


async def test_leases_are_renewed_for_a_child_that_cannot_do_it_itself(
    supervised: SupervisedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(supervised.marks / "let-go")
    await supervised.add("/grip", "/sleep")
    (supervised.marks / "sleep").touch()
    renewed: list[Any] = []
    extend = supervised.queue.extend

    async def watched(worker: str, leases: Any, **more: Any) -> Any:
        lost = await extend(worker, leases, **more)
        renewed.append((*leases.values(), lost))
        return lost

    monkeypatch.setattr(supervised.queue, "extend", watched)
    supervisor = supervised.make_supervisor(heartbeat=0.3)
    await supervisor.start()
    await supervised.wait_until(lambda: len(renewed) >= 3)
    held = (await supervised.task("/grip")).id
    assert all((held,) in named and not named[-1].lost for named in renewed), renewed
    (supervised.marks / "let-go").write_text("!")
    await supervised.wait_until(supervised.finished)
    stats = await supervised.queue.stats(supervised.run)
    assert (stats.done, stats.lost, stats.stale) == (2, 0, 0)


async def test_exceptions_that_end_processes_end_only_their_task(supervised: SupervisedRun) -> None:
    await supervised.add("/raise/exit", "/raise/interrupt", "/raise/close", "/good1")
    supervisor = supervised.make_supervisor(retries={"handler": 0})
    await supervisor.start()
    await supervised.wait_until(supervised.finished)
    dead = await supervised.queue.list_tasks(supervised.run, state="dead")
    assert sorted(task.cause for task in dead) == [
        "handler.GeneratorExit",
        "handler.KeyboardInterrupt",
        "handler.SystemExit",
    ]
    assert "supervised_worker.py:" in dead[0].history[-1].message
    assert (await supervised.queue.stats(supervised.run)).lost == 0


async def test_stopping_hands_unfinished_work_back_without_costing_an_attempt(supervised: SupervisedRun) -> None:
    await supervised.add("/sleep", "/good1")
    supervisor = supervised.make_supervisor()
    await supervisor.start()
    await supervised.wait_until(lambda: (supervised.marks / "sleep").exists())
    await supervised.wait_until(supervised.recorded)  # what is not started by then goes back, too
    await asyncio.wait_for(supervisor.stop(), HANG)
    task = await supervised.task("/sleep")
    assert (task.state, task.attempts, task.lost) == ("ready", 0, 0)
    assert await supervised.recorded() == ["good1"]
    assert not find_dead_workers(supervised.notes)
    assert not await supervised.queue.workers()


async def test_second_signal_ends_at_once_and_loses_nothing(supervised: SupervisedRun) -> None:
    await supervised.add("/block", "/good1")
    supervisor = supervised.make_supervisor(grace=FOREVER)
    await supervisor.start()
    await supervised.wait_until(lambda: (supervised.marks / "block").exists())
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0.1)
    assert not stopping.done()  # the handler holds its process
    supervisor.kill()
    await asyncio.wait_for(stopping, HANG)
    task = await supervised.task("/block")
    assert (task.state, task.attempts, task.lost) == ("ready", 0, 0)
    await supervised.make_supervisor().start()
    await supervised.wait_until(supervised.finished)
    assert await supervised.recorded() == ["block", "good1"]


async def test_work_of_a_killed_predecessor_is_taken_over_at_once(supervised: SupervisedRun) -> None:
    await supervised.add("/block", "/good1")
    orphan = _child(supervised)
    await until((supervised.marks / "block").exists)
    orphan.kill()
    orphan.communicate()
    assert len(find_dead_workers(supervised.notes)) == 1
    await supervised.make_supervisor().start()
    await supervised.wait_until(supervised.finished)
    assert await supervised.recorded() == ["block", "good1"]


async def test_child_ends_with_its_supervisor(supervised: SupervisedRun) -> None:
    child = _child(supervised)
    assert child.stdin is not None
    child.stdin.close()
    assert await asyncio.to_thread(child.wait, HANG) == EXIT_ORPHANED


async def test_error_a_person_must_act_on_reaches_the_one_who_started_the_workers(supervised: SupervisedRun) -> None:
    supervised.settings["refuse"] = "no such scraper"
    supervisor = supervised.make_supervisor()
    await supervisor.start()
    with pytest.raises(UsageError, match="no such scraper") as raised:
        await supervised.wait_until(lambda: False)
    assert raised.value.hint == "do it otherwise"


async def test_output_of_children_is_forwarded_line_by_line(supervised: SupervisedRun, tmp_path: Path) -> None:
    heard: list[bytes] = []
    script = tmp_path / "talker.py"
    script.write_text("import sys\nprint('one')\nprint('two', file=sys.stderr)\nsys.exit(1)\n")
    supervisor = Supervisor(
        [sys.executable, str(script)],
        1,
        supervised.queue,
        supervised.notes,
        on_output_line=lambda worker, line: heard.append(line),
    )
    await supervisor.start()
    with pytest.raises(Exception, match="before they have done anything"):
        while True:
            await supervisor.check()
            await asyncio.sleep(0.02)
    await supervisor.stop()
    assert {b"one", b"two"} == set(heard)


def _child(supervised: SupervisedRun) -> subprocess.Popen[bytes]:
    """A worker process whose supervisor is this test."""
    child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, start_new_session=True)
    assert child.stdin is not None
    config = ChildConfig("w-1", str(supervised.notes), os.getpid(), 0, supervised.settings)
    child.stdin.write(msgspec.json.encode(config) + b"\n")
    child.stdin.flush()
    return child
