"""Real worker processes whose handlers block, loop, hoard, exit and are killed: each harms its task only."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.core.lane import FREE
from shoal.core.run import NewRun
from shoal.errors import Usage
from shoal.extract.links import start_tasks
from shoal.queue.base import TaskView
from shoal.queue.sqlite import SqliteQueue
from shoal.worker.note import dead_notes
from shoal.worker.orders import ORPHANED, Orders
from shoal.worker.supervisor import Limits, Supervisor

COMMAND = [sys.executable, str(Path(__file__).with_name("supervised_worker.py"))]


class Crew:
    """A run on a real file, a site on a free port, and a supervisor with its children."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.notes = folder / "workers"
        self.settings: dict[str, Any] = {"queue": str(folder / "q.db"), "marks": str(self.marks)}

    async def open(self) -> None:
        self.queue = await SqliteQueue.open(self.settings["queue"])
        self.run = (await self.queue.start_run(NewRun(scraper="bad", key="k"))).id

    async def add(self, *paths: str) -> None:
        tasks, _ = start_tasks(f"http://127.0.0.1:{self.port}{path}" for path in paths)
        await self.queue.add(self.run, tasks, {task.lane: FREE for task in tasks})

    def supervisor(self, count: int = 1, **limits: Any) -> Supervisor:
        self.settings["retries"] = limits.get("retries")
        self.crew = Supervisor(
            COMMAND, count, self.queue, self.notes, settings=self.settings, limits=Limits(**limits)
        )
        return self.crew

    async def until(self, what: Callable[[], Any], limit: float = 20.0) -> None:
        end = time.monotonic() + limit
        while not await _maybe(what()):
            await self.crew.check()
            assert time.monotonic() < end, f"still waiting; {await self.queue.stats(self.run)}"
            await asyncio.sleep(0.02)

    async def finished(self) -> bool:
        return (await self.queue.stats(self.run)).open == 0

    async def task(self, path: str) -> TaskView:
        tasks = await self.queue.look(self.run)
        return next(task for task in tasks if task.url.endswith(path))

    async def recorded(self) -> list[str]:
        kept = await self.queue.records(self.run)
        return sorted(msgspec.json.decode(record.data)["url"].rpartition("/")[2] for record in kept)

    async def pid(self) -> int:
        return (await self.queue.workers())[0].pid


async def _maybe(value: Any) -> Any:
    return await value if asyncio.iscoroutine(value) else value


@pytest.fixture
async def crew(tmp_path: Path) -> AsyncIterator[Crew]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    crew = Crew(tmp_path, server.sockets[0].getsockname()[1])
    await crew.open()
    yield crew
    if hasattr(crew, "crew"):
        crew.crew.kill()
        await crew.crew.stop()
    await crew.queue.close()
    server.close()


async def test_page_whose_worker_was_killed_is_done_again_at_once_and_recorded_once(crew: Crew) -> None:
    await crew.add("/block", "/good1", "/good2")
    supervisor = crew.supervisor()
    await supervisor.start()
    await crew.until(lambda: (crew.marks / "block").exists())
    began = time.monotonic()
    os.kill(await crew.pid(), signal.SIGKILL)
    await crew.until(crew.finished)
    assert time.monotonic() - began < 5  # far less than a lease
    assert await crew.recorded() == ["block", "good1", "good2"]
    assert (await crew.task("/block")).lost == 1
    assert (await crew.task("/good1")).lost == 0


async def test_handler_that_exits_the_process_is_dead_after_three_deaths_and_harms_nobody(crew: Crew) -> None:
    await crew.add("/exit", *(f"/good{number}" for number in range(20)))
    supervisor = crew.supervisor(count=2)
    await supervisor.start()
    await crew.until(crew.finished)
    guilty = await crew.task("/exit")
    assert (guilty.state, guilty.cause, guilty.lost) == ("dead", "worker_lost", 3)
    assert len(await crew.recorded()) == 20
    assert all(task.lost == 0 for task in await crew.queue.look(crew.run, state="done"))


@pytest.mark.parametrize(
    ("path", "cause", "limits"),
    [
        ("/loop", "handler_timeout", {"handler_timeout": 0.5}),
        ("/spawn", "handler_timeout", {"handler_timeout": 0.5}),
        ("/hog", "memory", {"memory": 400_000_000}),
        ("/share", "memory", {"memory": 300_000_000}),
    ],
)
async def test_handler_without_end_is_stopped_and_charged_alone(
    crew: Crew, path: str, cause: str, limits: dict[str, Any]
) -> None:
    await crew.add(path, *(f"/good{number}" for number in range(10)))
    supervisor = crew.supervisor(retries={cause: 0}, **limits)
    await supervisor.start()
    await crew.until(crew.finished)
    guilty = await crew.task(path)
    assert (guilty.state, guilty.cause, guilty.lost) == ("dead", cause, 0)
    assert len(await crew.recorded()) == 10
    assert all(
        task.attempts <= 1 and task.lost == 0 for task in await crew.queue.look(crew.run, state="done")
    )


async def test_leases_are_renewed_for_a_child_that_cannot_do_it_itself(crew: Crew) -> None:
    await crew.add("/grip", "/sleep")
    (crew.marks / "sleep").touch()
    crew.settings["lease"] = 1.5
    supervisor = crew.supervisor(lease=1.5, heartbeat=0.3)
    await supervisor.start()
    await crew.until(crew.finished)
    stats = await crew.queue.stats(crew.run)
    assert (stats.done, stats.lost, stats.stale) == (2, 0, 0)


async def test_exceptions_that_end_processes_end_only_their_task(crew: Crew) -> None:
    await crew.add("/raise/exit", "/raise/interrupt", "/raise/close", "/good1")
    supervisor = crew.supervisor(retries={"handler": 0})
    await supervisor.start()
    await crew.until(crew.finished)
    dead = await crew.queue.look(crew.run, state="dead")
    assert sorted(task.cause for task in dead) == [
        "handler.GeneratorExit",
        "handler.KeyboardInterrupt",
        "handler.SystemExit",
    ]
    assert "supervised_worker.py:" in dead[0].history[-1].message
    assert (await crew.queue.stats(crew.run)).lost == 0


async def test_stopping_hands_unfinished_work_back_without_costing_an_attempt(crew: Crew) -> None:
    await crew.add("/sleep", "/good1")
    supervisor = crew.supervisor()
    await supervisor.start()
    await crew.until(lambda: (crew.marks / "sleep").exists())
    began = time.monotonic()
    await supervisor.stop()
    assert time.monotonic() - began < 6
    task = await crew.task("/sleep")
    assert (task.state, task.attempts, task.lost) == ("ready", 0, 0)
    assert await crew.recorded() == ["good1"]
    assert not dead_notes(crew.notes)
    assert not await crew.queue.workers()


async def test_second_signal_ends_at_once_and_loses_nothing(crew: Crew) -> None:
    await crew.add("/block", "/good1")
    supervisor = crew.supervisor(grace=30.0)
    await supervisor.start()
    await crew.until(lambda: (crew.marks / "block").exists())
    stopping = asyncio.create_task(supervisor.stop())
    await asyncio.sleep(0.1)
    assert not stopping.done()  # the handler holds its process
    supervisor.kill()
    await asyncio.wait_for(stopping, 15)
    task = await crew.task("/block")
    assert (task.state, task.attempts, task.lost) == ("ready", 0, 0)
    await crew.supervisor().start()
    await crew.until(crew.finished)
    assert await crew.recorded() == ["block", "good1"]


async def test_work_of_a_killed_predecessor_is_taken_over_at_once(crew: Crew) -> None:
    await crew.add("/block", "/good1")
    orphan = _child(crew)
    while not (crew.marks / "block").exists():
        await asyncio.sleep(0.02)
    orphan.kill()
    orphan.communicate()
    began = time.monotonic()
    assert len(dead_notes(crew.notes)) == 1
    await crew.supervisor().start()
    await crew.until(crew.finished)
    assert time.monotonic() - began < 5
    assert await crew.recorded() == ["block", "good1"]


async def test_child_ends_with_its_supervisor(crew: Crew) -> None:
    child = _child(crew)
    assert child.stdin is not None
    child.stdin.close()
    assert await asyncio.to_thread(child.wait, 5) == ORPHANED


async def test_error_a_person_must_act_on_reaches_the_one_who_started_the_crew(crew: Crew) -> None:
    crew.settings["refuse"] = "no such scraper"
    supervisor = crew.supervisor()
    await supervisor.start()
    with pytest.raises(Usage, match="no such scraper") as raised:
        await crew.until(lambda: False)
    assert raised.value.hint == "do it otherwise"


async def test_output_of_children_is_forwarded_line_by_line(crew: Crew, tmp_path: Path) -> None:
    heard: list[bytes] = []
    script = tmp_path / "talker.py"
    script.write_text("import sys\nprint('one')\nprint('two', file=sys.stderr)\nsys.exit(1)\n")
    supervisor = Supervisor(
        [sys.executable, str(script)],
        1,
        crew.queue,
        crew.notes,
        on_line=lambda worker, line: heard.append(line),
    )
    await supervisor.start()
    with pytest.raises(Exception, match="before they have done anything"):
        while True:
            await supervisor.check()
            await asyncio.sleep(0.02)
    await supervisor.stop()
    assert {b"one", b"two"} == set(heard)


def _child(crew: Crew) -> subprocess.Popen[bytes]:
    """A worker process whose supervisor is this test."""
    child = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, start_new_session=True)
    assert child.stdin is not None
    orders = Orders("w-1", str(crew.notes), os.getpid(), 0, crew.settings)
    child.stdin.write(msgspec.json.encode(orders) + b"\n")
    child.stdin.flush()
    return child
