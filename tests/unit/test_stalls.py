"""A run that has work of which none ends is told of once, whoever looks, until it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from shoal.control import hooks, stalls
from shoal.control.hooks import Heard, Hook, Hooks
from shoal.control.stalls import Stalls
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, LaneChange, Outcome
from shoal.extract.links import start_task
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue

HERE = Hook("h1", "https://hooks.example/", ("stalled",), stalled_after=600)
MINUTE = 60.0


class World:
    """A clock, what people would see of a run, and who hears."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000
        self.standing = "running"
        self.sent: list[dict[str, Any]] = []

    def clock(self) -> int:
        self.now += 1
        return self.now

    async def how(self, run: Run) -> tuple[str, dict[str, Any]]:
        return self.standing, {"workers": 2}

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Heard:
        import json

        self.sent.append(json.loads(body) | {"url": url, "said": headers["X-Shoal-Event"]})
        return Heard(200)

    async def minutes(self, queue: Queue, count: int, servers: int = 1) -> None:
        """So many pass; every server that looks is a new one, as after a restart."""
        for _ in range(count):
            self.now += int(MINUTE * 1e6)
            made = [Stalls(queue, lambda run, stats: {"name": run.name}, self.how) for _ in range(servers)]
            await asyncio.gather(*(one.turn() for one in made))
            await Hooks(queue, self.send, lambda run, stats: {}).turn()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def queue(world: World) -> AsyncIterator[Queue]:
    opened = await SqliteQueue.open(":memory:", clock=world.clock)
    yield opened
    await opened.close()


async def started(queue: Queue, name: str = "r1", pages: int = 3, *own: Hook) -> Run:
    spec = {"hooks": [hook_of(it) for it in own]} if own else {}
    run = await queue.start_run(NewRun("books", f"key of {name}", name=name, spec=spec))
    await queue.add(run.id, [start_task(f"https://{name}.example/{n}") for n in range(pages)])
    return run


def hook_of(hook: Hook) -> dict[str, Any]:
    return {
        "id": hook.id, "url": hook.url, "events": list(hook.events), "stalled_after": hook.stalled_after,
    }  # fmt: skip


async def one_ends(queue: Queue) -> None:
    claim = await queue.claim("w", 1)
    await queue.settle([Outcome(claim.tasks[0].id, claim.lease, "done", Attempt(1, "w", status=200))])


async def test_a_stall_is_told_once_with_figures_however_many_look_and_restart(
    world: World, queue: Queue
) -> None:
    await hooks.add(queue, HERE)
    await started(queue)
    await world.minutes(queue, 10, servers=2)
    assert world.sent == []
    await world.minutes(queue, 60, servers=2)
    (message,) = world.sent
    assert (message["event"], message["said"], message["run"]) == ("stalled", "stalled", {"name": "r1"})
    assert message["stalled"] == {
        "seconds": 600, "claimable": 2, "leased": 0, "open": 3, "standing": "running", "workers": 2,
    }  # fmt: skip


async def test_a_stall_is_not_told_again_when_what_was_delivered_is_forgotten(
    world: World, queue: Queue
) -> None:
    await hooks.add(queue, HERE)
    await started(queue)
    await world.minutes(queue, 12)
    for paper in await queue.papers(hooks.DELIVERY):
        await queue.swap(hooks.DELIVERY, paper.name, None, paper.version)
    await world.minutes(queue, 20)
    assert len(world.sent) == 1


async def test_a_run_that_goes_on_and_stalls_again_is_told_again(world: World, queue: Queue) -> None:
    await hooks.add(queue, HERE)
    await started(queue)
    await world.minutes(queue, 12)
    await one_ends(queue)
    await world.minutes(queue, 9)
    assert len(world.sent) == 1
    await world.minutes(queue, 3)
    assert len(world.sent) == 2
    assert world.sent[0]["id"] != world.sent[1]["id"]


async def test_a_run_that_moves_slowly_does_not_stall(world: World, queue: Queue) -> None:
    await hooks.add(queue, HERE)
    await started(queue, pages=5)
    for _ in range(4):
        await world.minutes(queue, 9)
        await one_ends(queue)
    assert world.sent == []


async def test_what_only_waits_for_its_host_or_for_people_does_not_stall(world: World, queue: Queue) -> None:
    await hooks.add(queue, HERE)
    await started(queue)
    await queue.set_lane(LaneChange("r1.example", park_for=86_400.0))
    paused = await started(queue, "r2")
    await queue.set_run(paused.id, "pause")
    await world.minutes(queue, 30)
    assert world.sent == []
    await queue.set_run(paused.id, "resume")
    await world.minutes(queue, 9)
    assert world.sent == []
    await world.minutes(queue, 3)
    assert [message["run"]["name"] for message in world.sent] == ["r2"]


async def test_a_run_whose_process_was_stopped_does_not_stall_and_one_without_workers_does(
    world: World, queue: Queue
) -> None:
    await hooks.add(queue, HERE)
    await started(queue)
    world.standing = "stopped"
    await world.minutes(queue, 30)
    assert world.sent == []
    world.standing = "waiting"
    await world.minutes(queue, 12)
    assert [message["stalled"]["standing"] for message in world.sent] == ["waiting"]


async def test_every_hook_has_its_own_time_and_its_own_runs(world: World, queue: Queue) -> None:
    await hooks.add(queue, HERE)
    await hooks.add(queue, Hook("h2", "https://soon.example/", ("stalled",), stalled_after=60))
    await hooks.add(queue, Hook("h3", "https://other.example/", ("stalled",), scraper="others"))
    await hooks.add(queue, Hook("h4", "https://ends.example/"))
    await started(queue, "r1", 1, Hook("own", "https://own.example/", ("stalled",), stalled_after=1800))
    await world.minutes(queue, 5)
    assert [message["url"] for message in world.sent] == ["https://soon.example/"]
    await world.minutes(queue, 60)
    assert [message["url"] for message in world.sent[1:]] == [
        "https://hooks.example/",
        "https://own.example/",
    ]


async def test_where_nobody_asked_nothing_is_written(world: World, queue: Queue) -> None:
    await hooks.add(queue, Hook("h4", "https://ends.example/"))
    run = await started(queue)
    await world.minutes(queue, 20)
    assert await queue.papers(stalls.KIND) == [] and world.sent == []
    await hooks.add(queue, HERE)
    await world.minutes(queue, 12)
    assert len(world.sent) == 1
    await queue.set_run(run.id, "cancel")
    await world.minutes(queue, 1)
    assert await queue.papers(stalls.KIND) == []
