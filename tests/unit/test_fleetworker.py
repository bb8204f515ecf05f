"""A member of the fleet: its name, and what its supervisor is told of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal import fleetworker
from shoal.config import Settings, load
from shoal.core.lane import Mark
from shoal.core.run import NewRun
from shoal.fleetworker import Lines, Member
from shoal.job import Duty
from shoal.queue.sqlite import SqliteQueue
from shoal.repertoire import Repertoire


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[SqliteQueue]:
    opened = await SqliteQueue.open(str(tmp_path / "q.db"), synchronous="normal")
    yield opened
    await opened.close()


@pytest.fixture
def settings() -> Settings:
    return load({"name": "node", "handler_timeout": "7"}, env={})


def member(settings: Settings) -> Member:
    duty = Duty(settings, fleetworker.incarnation(settings))
    return Member(duty, Repertoire.load(duty), Lines(), exit_when_done=False)


async def test_two_of_one_name_are_never_taken_for_each_other(
    queue: SqliteQueue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["7f3a", "7f3a", "7f3a", "00c4"])
    monkeypatch.setattr("shoal.fleetworker.secrets.token_hex", lambda _: next(drawn))
    await queue.register(Mark("node-7f3a-2", "node", "another machine", 1, "1", 0, 0))
    mine = member(settings)
    await mine._choose_name(queue)
    assert mine._duty.name == "node-00c4"


async def test_run_with_odd_settings_does_not_end_the_supervisor(
    queue: SqliteQueue, settings: Settings
) -> None:
    run = await queue.start_run(NewRun("books", "k", name="r1", spec={"settings": {"max_depth": "very"}}))
    assert (await member(settings)._limits_of(queue)(run.id)).handler_timeout == 7.0
