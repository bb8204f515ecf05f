from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from shoal.control import webhooks
from shoal.control.signing_key import derived_key
from shoal.control.webhooks import (
    Delivery,
    DeliveryResult,
    Event,
    Webhook,
    WebhookDispatcher,
    apply_result,
    sign,
    verify,
)
from shoal.core.run import NewRun, Run, RunState
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue

NOW = 1_800_000_000_000_000
SECOND = 1_000_000


class WebhookHarness:
    """A queue, a clock, and somebody who hears, or does not."""

    def __init__(self) -> None:
        self.now = NOW
        self.sent: list[dict[str, Any]] = []
        self.answers: list[DeliveryResult] = []

    def clock(self) -> int:
        self.now += 1
        return self.now

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> DeliveryResult:
        self.sent.append(json.loads(body) | {"url": url, "headers": dict(headers)})
        return self.answers.pop(0) if self.answers else DeliveryResult(200)

    def hooks(self, queue: Queue) -> WebhookDispatcher:
        return WebhookDispatcher(queue, self.send, lambda run, stats: {"name": run.name})


@pytest.fixture
def harness() -> WebhookHarness:
    return WebhookHarness()


@pytest.fixture
async def queue(harness: WebhookHarness) -> AsyncIterator[Queue]:
    opened = await SqliteQueue.open(":memory:", clock=harness.clock)
    yield opened
    await opened.close()


async def started(queue: Queue, name: str, *own: Webhook) -> Run:
    spec = {"hooks": [{"id": it.id, "url": it.url, "events": list(it.events)} for it in own]} if own else {}
    return await queue.start_run(NewRun("books", f"key of {name}", name=name, spec=spec))


HERE = Webhook("h1", "https://webhooks.example/")


@pytest.mark.parametrize(
    ("events", "state", "dead", "told"),
    [
        (("finished",), "finished", 0, "finished"),
        (("finished",), "finished", 3, "finished"),
        (("failed",), "finished", 0, None),
        (("failed",), "finished", 3, "failed"),
        (("finished", "failed"), "finished", 3, "failed"),
        (("finished", "failed"), "cancelled", 3, None),
        (("cancelled",), "cancelled", 0, "cancelled"),
        (("cancelled",), "finished", 0, None),
    ],
)
def test_an_end_is_told_once_by_the_word_that_fits(
    events: tuple[Event, ...], state: RunState, dead: int, told: str | None
) -> None:
    run = Run(1, "r", "books", "k", state, 0, 0)
    assert Webhook("h", "u", events).event_for(run, dead) == told
    assert Webhook("h", "u", events, scraper="other").event_for(run, dead) is None


async def test_nobody_is_told_of_what_nobody_asked_for(harness: WebhookHarness, queue: Queue) -> None:
    run = await started(queue, "r1")
    await queue.set_run(run.id, "cancel")
    await harness.hooks(queue).run_once()
    assert harness.sent == []


async def test_every_end_is_told_once_however_many_look(harness: WebhookHarness, queue: Queue) -> None:
    await webhooks.add(queue, HERE)
    both = [harness.hooks(queue), harness.hooks(queue)]
    runs = [await started(queue, f"r{n}") for n in range(5)]
    await both[0].run_once()
    for run in runs:
        await queue.set_run(run.id, "cancel")
    for _ in range(3):
        await asyncio.gather(*(one.run_once() for one in both))
    assert sorted(message["run"]["name"] for message in harness.sent) == [f"r{n}" for n in range(5)]


async def test_a_run_that_began_and_ended_between_two_looks_is_told(harness: WebhookHarness, queue: Queue) -> None:
    await webhooks.add(queue, HERE)
    mine = harness.hooks(queue)
    await mine.run_once()
    for number in range(150):  # more than a page of them
        run = await started(queue, f"r{number:03}")
        await queue.set_run(run.id, "cancel")
    for _ in range(20):
        await mine.run_once()
    assert len({message["run"]["name"] for message in harness.sent}) == len(harness.sent) == 150


async def test_a_run_brings_webhooks_of_its_own(harness: WebhookHarness, queue: Queue) -> None:
    await webhooks.start_watching(queue)
    run = await started(queue, "r1", HERE)
    other = await started(queue, "r2")
    mine = harness.hooks(queue)
    await mine.run_once()
    await queue.set_run(run.id, "cancel")
    await queue.set_run(other.id, "cancel")
    await mine.run_once()
    (message,) = harness.sent
    assert message["run"]["name"] == "r1"
    key = await derived_key(queue, webhooks.run_hook_id(run, 0))
    body = json.dumps({name: message[name] for name in ("id", "event", "run")}, separators=(",", ":"))
    assert verify(body.encode(), message["headers"][webhooks.SIGNATURE_HEADER], key)


async def test_a_run_that_ends_a_second_time_is_told_again(harness: WebhookHarness, queue: Queue) -> None:
    from shoal.core.task import Attempt, Outcome
    from shoal.sources.start_task import start_task

    await webhooks.add(queue, HERE)
    mine = harness.hooks(queue)
    run = await started(queue, "r1")
    await queue.add(run.id, [start_task("https://a.example/")])
    for turn in range(2):
        claim = await queue.claim("w", 1)
        outcome = Outcome(claim.tasks[0].id, claim.lease, "dead", Attempt(1, "w", "x"), cause="x")
        await queue.settle([outcome])
        await queue.set_run(run.id, "finish")
        await mine.run_once()
        assert len(harness.sent) == turn + 1
        assert harness.sent[-1]["event"] == "failed"
        await queue.revive(run.id)
        harness.now += 60 * SECOND
        await mine.run_once()


async def test_who_does_not_hear_is_told_again_later_and_later_until_a_day_is_over(
    harness: WebhookHarness, queue: Queue
) -> None:
    await webhooks.add(queue, HERE)
    mine = harness.hooks(queue)
    run = await started(queue, "r1")
    await mine.run_once()
    await queue.set_run(run.id, "cancel")
    harness.answers = [DeliveryResult(500)] * 1000
    waits: list[int] = []
    for _ in range(200):
        before = len(harness.sent)
        await mine.run_once()
        (delivery,) = await webhooks.recent_deliveries(queue)
        if delivery.state != "waiting":
            break
        if len(harness.sent) > before:
            waits.append((delivery.next_at - harness.now) // SECOND)
        harness.now = max(harness.now + SECOND, delivery.next_at)
    assert delivery.state == "given_up"
    assert waits == sorted(waits)
    assert waits[:3] == [4, 9, 19]  # of five, ten and twenty seconds, a moment is over
    assert 20 < len(harness.sent) < 60
    assert delivery.status == 500


async def test_who_refuses_for_good_is_not_asked_again(harness: WebhookHarness, queue: Queue) -> None:
    await webhooks.add(queue, HERE)
    mine = harness.hooks(queue)
    run = await started(queue, "r1")
    await queue.set_run(run.id, "cancel")
    harness.answers = [DeliveryResult(error="blocked.private: 10.0.0.1 is a private address", final=True)]
    await mine.run_once()
    (delivery,) = await webhooks.recent_deliveries(queue)
    assert (delivery.state, delivery.tries) == ("given_up", 1)


async def test_the_log_stays_short(harness: WebhookHarness, queue: Queue) -> None:
    await webhooks.add(queue, HERE)
    mine = harness.hooks(queue)
    await mine.run_once()
    for number in range(120):
        run = await started(queue, f"r{number:03}")
        await queue.set_run(run.id, "cancel")
    for _ in range(10):
        await mine.run_once()
    harness.now += int((webhooks.MIN_RETENTION + 1) * SECOND)
    await mine.run_once()
    assert len(await webhooks.recent_deliveries(queue)) == webhooks.KEPT_DELIVERIES
    assert len(harness.sent) == 120


async def test_a_chosen_secret_that_the_server_does_not_have_waits_for_one_that_does(
    harness: WebhookHarness, queue: Queue
) -> None:
    mine = harness.hooks(queue)
    await webhooks.add(queue, Webhook("h2", "https://webhooks.example/", secret="hook_b"))
    run = await started(queue, "r1")
    await queue.set_run(run.id, "cancel")
    await mine.run_once()
    (delivery,) = await webhooks.recent_deliveries(queue)
    assert (delivery.state, harness.sent) == ("waiting", [])
    assert "hook_b" in delivery.error


def test_a_signature_holds_for_its_body_its_secret_and_its_moment_only() -> None:
    header = sign(b"body", "secret", at=1000)
    assert verify(b"body", header, "secret", now=1100)
    assert not verify(b"body", header, "secret", now=1000 + 301)
    assert not verify(b"body", header, "secret", now=1000 - 301)
    assert not verify(b"bodi", header, "secret", now=1000)
    assert not verify(b"body", header, "secreT", now=1000)
    assert not verify(b"body", header.replace("t=1000", "t=1001"), "secret", now=1000)
    for odd in ("", "t=,v1=", "t=1000", "v1=x", "t=²,v1=é", "t=" + "9" * 50 + ",v1=x", ",,,=", header[:-1]):
        assert not verify(b"body", odd, "secret", now=1000)


def test_what_is_shown_of_a_url_is_its_host() -> None:
    assert webhooks.redacted_url("https://u:p@webhooks.example:8443/T0/secret?x=1") == "https://webhooks.example:8443/…"


def test_an_error_is_kept_without_secrets_and_not_at_length() -> None:
    waiting = Delivery("d", HERE, "finished", "r", "{}", NOW, tries=1)
    said = apply_result(waiting, DeliveryResult(error="https://u:p@h.example/ " + "x" * 9_000), NOW)
    assert "u:p" not in said.error and len(said.error) <= 500


async def test_the_account_is_asked_for_once_for_all_webhooks(harness: WebhookHarness, queue: Queue) -> None:
    asked: list[Stats] = []
    mine = WebhookDispatcher(queue, harness.send, lambda run, stats: asked.append(stats) or {"name": run.name})
    await webhooks.add(queue, HERE)
    await webhooks.add(queue, Webhook("h2", "https://two.example/"))
    run = await started(queue, "r1")
    await queue.set_run(run.id, "cancel")
    await mine.run_once()
    assert {message["url"] for message in harness.sent} == {"https://webhooks.example/", "https://two.example/"}
    assert asked[0] is asked[1]


async def test_a_run_that_ends_between_the_two_questions_of_one_look_is_told(
    harness: WebhookHarness, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await webhooks.add(queue, HERE)
    run = await started(queue, "r1")
    asked = queue.runs

    async def late(**given: Any) -> list[Run]:
        if given.get("states") == webhooks.OPEN_STATES:
            await queue.set_run(run.id, "cancel")
        return await asked(**given)

    monkeypatch.setattr(queue, "runs", late)
    mine = harness.hooks(queue)
    await mine.run_once()
    await mine.run_once()
    assert [message["run"]["name"] for message in harness.sent] == ["r1"]
