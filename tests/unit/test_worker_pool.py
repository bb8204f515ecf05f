"""Pools of workers: their names, and what a supervisor is told about runs."""

from __future__ import annotations

import pytest

from shoal.config.load import Settings, load
from shoal.core.lane import WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.launch.worker_pool import _limits_for_run, unused_supervisor_name
from shoal.queue.sqlite import SqliteQueue


@pytest.fixture
def settings() -> Settings:
    return load({"name": "node", "handler_timeout": "7"}, env={})


async def test_two_of_one_name_are_never_taken_for_each_other(
    queue: SqliteQueue, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["7f3a", "7f3a", "00c4"])
    monkeypatch.setattr("shoal.launch.worker_pool.secrets.token_hex", lambda _: next(drawn))
    await queue.register(WorkerStatus("node-7f3a-2", "node", "another machine", 1, "1", 0, 0))
    assert await unused_supervisor_name(queue, settings) == "node-00c4"


@pytest.mark.parametrize(("spec", "seconds"), [({"max_depth": "very"}, 7.0), ({"retry_delay": 3.0}, 7.0), ({}, 7.0)])
async def test_run_with_odd_settings_does_not_end_the_supervisor(
    queue: SqliteQueue, settings: Settings, spec: dict[str, object], seconds: float
) -> None:
    run = await queue.start_run(NewRun("books", "k", name="r1", spec={"settings": spec}))

    async def find_run(number: int) -> Run | None:
        return run if number == run.id else None

    limits = _limits_for_run(settings, find_run)
    assert (await limits(run.id)).handler_timeout == seconds
    assert (await limits(run.id)).retry_delay == spec.get("retry_delay")
    assert (await limits(run.id + 1)).handler_timeout == 7.0
