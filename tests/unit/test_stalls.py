"""A run that has work of which none ends is told of once, whoever looks, until it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from shoal.control import webhooks
from shoal.control.stalls import StallDetector
from shoal.control.webhooks import DeliveryResult, Webhook, WebhookDispatcher
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, LaneChange, Outcome
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_task

HERE = Webhook("h1", "https://webhooks.example/", ("stalled",), stalled_after=600)
MINUTE = 60.0


class StallHarness:
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

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> DeliveryResult:
        import json

        self.sent.append(json.loads(body) | {"url": url, "said": headers["X-Shoal-Event"]})
        return DeliveryResult(200)

    async def minutes(self, queue: Queue, count: int, servers: int = 1) -> None:
        """So many pass; every server that looks is a new one, as after a restart."""
        for _ in range(count):
            self.now += int(MINUTE * 1e6)
            made = [StallDetector(queue, lambda run, stats: {"name": run.name}, self.how) for _ in range(servers)]
            await asyncio.gather(*(one.run_once() for one in made))
            await WebhookDispatcher(queue, self.send, lambda run, stats: {}).run_once()


@pytest.fixture
def harness() -> StallHarness:
    return StallHarness()


@pytest.fixture
async def queue(harness: StallHarness) -> AsyncIterator[Queue]:
    opened = await SqliteQueue.open(":memory:", clock=harness.clock)
    yield opened
    await opened.close()


async def started(queue: Queue, name: str = "r1", pages: int = 3, *own: Webhook) -> Run:
    spec = {"hooks": [hook_of(it) for it in own]} if own else {}
    run = await queue.start_run(NewRun("books", f"key of {name}", name=name, spec=spec))
    await queue.add(run.id, [start_task(f"https://{name}.example/{n}") for n in range(pages)])
    return run


def hook_of(hook: Webhook) -> dict[str, Any]:
    return {
        "id": hook.id, "url": hook.url, "events": list(hook.events), "stalled_after": hook.stalled_after,
    }  # fmt: skip


async def one_ends(queue: Queue) -> None:
    claim = await queue.claim("w", 1)
    await queue.settle([Outcome(claim.tasks[0].id, claim.lease, "done", Attempt(1, "w", status=200))])


async def test_a_stall_is_told_once_with_figures_however_many_look_and_restart(
    harness: StallHarness, queue: Queue
) -> None:
    await webhooks.add(queue, HERE)
    await started(queue)
    await harness.minutes(queue, 10, servers=2)
    assert harness.sent == []
    await harness.minutes(queue, 60, servers=2)
    (message,) = harness.sent
    assert (message["event"], message["said"], message["run"]) == ("stalled", "stalled", {"name": "r1"})
    assert message["stalled"] == {
        "seconds": 600, "claimable": 2, "leased": 0, "open": 3, "display_state": "running", "workers": 2,
    }  # fmt: skip


async def test_a_stall_is_not_told_again_when_what_was_delivered_is_forgotten(
    harness: StallHarness, queue: Queue
) -> None:
    await webhooks.add(queue, HERE)
    await started(queue)
    await harness.minutes(queue, 12)
    for document in await queue.documents(kinds.WEBHOOK_DELIVERY):
        await queue.compare_and_swap(kinds.WEBHOOK_DELIVERY, document.name, None, document.version)
    await harness.minutes(queue, 20)
    assert len(harness.sent) == 1


async def test_a_run_that_goes_on_and_stalls_again_is_told_again(harness: StallHarness, queue: Queue) -> None:
    await webhooks.add(queue, HERE)
    await started(queue)
    await harness.minutes(queue, 12)
    await one_ends(queue)
    await harness.minutes(queue, 9)
    assert len(harness.sent) == 1
    await harness.minutes(queue, 3)
    assert len(harness.sent) == 2
    assert harness.sent[0]["id"] != harness.sent[1]["id"]


async def test_a_run_that_moves_slowly_does_not_stall(harness: StallHarness, queue: Queue) -> None:
    await webhooks.add(queue, HERE)
    await started(queue, pages=5)
    for _ in range(4):
        await harness.minutes(queue, 9)
        await one_ends(queue)
    assert harness.sent == []


async def test_what_only_waits_for_its_host_or_for_people_does_not_stall(harness: StallHarness, queue: Queue) -> None:
    await webhooks.add(queue, HERE)
    await started(queue)
    await queue.set_lane(LaneChange("r1.example", park_for=86_400.0))
    paused = await started(queue, "r2")
    await queue.set_run(paused.id, "pause")
    await harness.minutes(queue, 30)
    assert harness.sent == []
    await queue.set_run(paused.id, "resume")
    await harness.minutes(queue, 9)
    assert harness.sent == []
    await harness.minutes(queue, 3)
    assert [message["run"]["name"] for message in harness.sent] == ["r2"]


async def test_a_run_whose_process_was_stopped_does_not_stall_and_one_without_workers_does(
    harness: StallHarness, queue: Queue
) -> None:
    await webhooks.add(queue, HERE)
    await started(queue)
    harness.standing = "stopped"
    await harness.minutes(queue, 30)
    assert harness.sent == []
    harness.standing = "waiting"
    await harness.minutes(queue, 12)
    assert [message["stalled"]["display_state"] for message in harness.sent] == ["waiting"]


async def test_every_webhook_has_its_own_time_and_its_own_runs(harness: StallHarness, queue: Queue) -> None:
    await webhooks.add(queue, HERE)
    await webhooks.add(queue, Webhook("h2", "https://soon.example/", ("stalled",), stalled_after=60))
    await webhooks.add(queue, Webhook("h3", "https://other.example/", ("stalled",), scraper="others"))
    await webhooks.add(queue, Webhook("h4", "https://ends.example/"))
    await started(queue, "r1", 1, Webhook("own", "https://own.example/", ("stalled",), stalled_after=1800))
    await harness.minutes(queue, 5)
    assert [message["url"] for message in harness.sent] == ["https://soon.example/"]
    await harness.minutes(queue, 60)
    assert [message["url"] for message in harness.sent[1:]] == ["https://webhooks.example/", "https://own.example/"]


async def test_where_nobody_asked_nothing_is_written(harness: StallHarness, queue: Queue) -> None:
    await webhooks.add(queue, Webhook("h4", "https://ends.example/"))
    run = await started(queue)
    await harness.minutes(queue, 20)
    assert await queue.documents(kinds.WEBHOOK_STALL) == [] and harness.sent == []
    await webhooks.add(queue, HERE)
    await harness.minutes(queue, 12)
    assert len(harness.sent) == 1
    await queue.set_run(run.id, "cancel")
    await harness.minutes(queue, 1)
    assert await queue.documents(kinds.WEBHOOK_STALL) == []
