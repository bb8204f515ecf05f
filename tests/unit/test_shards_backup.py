"""Backups of a sharded queue: refused as a whole, with what to do instead, which works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from shoal import app
from shoal.cli.main import main
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.stats import Stats
from shoal.core.task import Outcome, Task, digest
from shoal.queue.base import Queue

T = TypeVar("T")
URLS = ("sqlite:///one.db", "sqlite:///two.db")
SHARDS = "shards:" + ",".join(URLS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_shards(verb: Callable[[Queue], Awaitable[T]]) -> T:
    async def job() -> T:
        async with app.opened_queue(load({"queue": SHARDS}, env={})) as queue:
            return await verb(queue)

    return asyncio.run(job())


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_shards_are_not_backed_up_as_one_and_the_word_says_what_to_do(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "monday", "--queue", SHARDS]) == 2
    said = capsys.readouterr().err
    assert "as of one moment" in said and "each shard by itself" in said


def test_shards_that_are_restored_one_by_one_are_what_they_were(folder: Path) -> None:
    async def fill(queue: Queue) -> Stats:
        run = (await queue.start_run(NewRun(scraper="s", key="k"))).id
        tasks = [Task(url=f"t{n}", lane=f"h{n}.test", digest=digest(f"t{n}")) for n in range(20)]
        await queue.add(run, tasks, {task.lane: UNLIMITED_PACE for task in tasks})
        claim = await queue.claim("w", 5)
        await queue.settle([Outcome(task=it.id, lease=it.lease, result="done", records=(b"{}",)) for it in claim.tasks])
        return await queue.stats(run)

    async def stats(queue: Queue) -> Stats:
        (run,) = await queue.runs()
        return await queue.recount(run.id)

    before = with_shards(fill)
    assert (before.seen, before.done, before.ready) == (20, 5, 15)
    for number, url in enumerate(URLS):
        assert main(["backup", f"shard{number}", "--queue", url]) == 0
    for file in folder.glob("*.db*"):
        file.unlink()
    for number, url in enumerate(URLS):
        assert main(["restore", f"shard{number}", "--queue", url]) == 0
    after = with_shards(stats)
    names = ("seen", "ready", "done", "cancelled", "records")
    assert [getattr(after, name) for name in names] == [getattr(before, name) for name in names]
