from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from shoal.control import hooks
from shoal.control.hooks import Delivery, Event, Heard, Hook, Hooks, judged, sign, verify
from shoal.core.run import NewRun, Run, RunState
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.queue.sqlite import SqliteQueue

NOW = 1_800_000_000_000_000
SECOND = 1_000_000


class World:
    """A queue, a clock, and somebody who hears, or does not."""

    def __init__(self) -> None:
        self.now = NOW
        self.sent: list[dict[str, Any]] = []
        self.answers: list[Heard] = []

    def clock(self) -> int:
        self.now += 1
        return self.now

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> Heard:
        self.sent.append(json.loads(body) | {"url": url, "headers": dict(headers)})
        return self.answers.pop(0) if self.answers else Heard(200)

    def hooks(self, queue: Queue) -> Hooks:
        return Hooks(queue, self.send, lambda run, stats: {"name": run.name}, {"hook_a": "chosen"})


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def queue(world: World) -> AsyncIterator[Queue]:
    opened = await SqliteQueue.open(":memory:", clock=world.clock)
    yield opened
    await opened.close()


async def started(queue: Queue, name: str, *own: Hook) -> Run:
    spec = {"hooks": [{"id": it.id, "url": it.url, "events": list(it.events)} for it in own]} if own else {}
    return await queue.start_run(NewRun("books", f"key of {name}", name=name, spec=spec))


HERE = Hook("h1", "https://hooks.example/")


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
    assert Hook("h", "u", events).wants(run, dead) == told
    assert Hook("h", "u", events, scraper="other").wants(run, dead) is None


async def test_nobody_is_told_of_what_nobody_asked_for(world: World, queue: Queue) -> None:
    run = await started(queue, "r1")
    await queue.set_run(run.id, "cancel")
    await world.hooks(queue).turn()
    assert world.sent == []


async def test_every_end_is_told_once_however_many_look(world: World, queue: Queue) -> None:
    await hooks.add(queue, HERE)
    both = [world.hooks(queue), world.hooks(queue)]
    runs = [await started(queue, f"r{n}") for n in range(5)]
    await both[0].turn()
    for run in runs:
        await queue.set_run(run.id, "cancel")
    for _ in range(3):
        await asyncio.gather(*(one.turn() for one in both))
    assert sorted(message["run"]["name"] for message in world.sent) == [f"r{n}" for n in range(5)]


async def test_a_run_that_began_and_ended_between_two_looks_is_told(world: World, queue: Queue) -> None:
    await hooks.add(queue, HERE)
    mine = world.hooks(queue)
    await mine.turn()
    for number in range(150):  # more than a page of them
        run = await started(queue, f"r{number:03}")
        await queue.set_run(run.id, "cancel")
    for _ in range(20):
        await mine.turn()
    assert len({message["run"]["name"] for message in world.sent}) == len(world.sent) == 150


async def test_a_run_brings_hooks_of_its_own(world: World, queue: Queue) -> None:
    await hooks.watch(queue)
    run = await started(queue, "r1", HERE)
    other = await started(queue, "r2")
    mine = world.hooks(queue)
    await mine.turn()
    await queue.set_run(run.id, "cancel")
    await queue.set_run(other.id, "cancel")
    await mine.turn()
    (message,) = world.sent
    assert message["run"]["name"] == "r1"
    key = await hooks.key_of(queue, "h1")
    body = json.dumps({name: message[name] for name in ("id", "event", "run")}, separators=(",", ":"))
    assert verify(body.encode(), message["headers"][hooks.HEADER], key)


async def test_a_run_that_ends_a_second_time_is_told_again(world: World, queue: Queue) -> None:
    from shoal.core.task import Attempt, Outcome
    from shoal.extract.links import start_task

    await hooks.add(queue, HERE)
    mine = world.hooks(queue)
    run = await started(queue, "r1")
    await queue.add(run.id, [start_task("https://a.example/")])
    for turn in range(2):
        claim = await queue.claim("w", 1)
        outcome = Outcome(claim.tasks[0].id, claim.lease, "dead", Attempt(1, "w", "x"), cause="x")
        await queue.settle([outcome])
        await queue.set_run(run.id, "finish")
        await mine.turn()
        assert len(world.sent) == turn + 1
        assert world.sent[-1]["event"] == "failed"
        await queue.revive(run.id)
        world.now += 60 * SECOND
        await mine.turn()


async def test_who_does_not_hear_is_told_again_later_and_later_until_a_day_is_over(
    world: World, queue: Queue
) -> None:
    await hooks.add(queue, HERE)
    mine = world.hooks(queue)
    run = await started(queue, "r1")
    await mine.turn()
    await queue.set_run(run.id, "cancel")
    world.answers = [Heard(500)] * 1000
    waits: list[int] = []
    for _ in range(200):
        before = len(world.sent)
        await mine.turn()
        (delivery,) = await hooks.deliveries(queue)
        if delivery.state != "waiting":
            break
        if len(world.sent) > before:
            waits.append((delivery.next_at - world.now) // SECOND)
        world.now = max(world.now + SECOND, delivery.next_at)
    assert delivery.state == "given_up"
    assert waits == sorted(waits)
    assert waits[:3] == [4, 9, 19]  # of five, ten and twenty seconds, a moment is over
    assert 20 < len(world.sent) < 60
    assert delivery.status == 500


async def test_who_refuses_for_good_is_not_asked_again(world: World, queue: Queue) -> None:
    await hooks.add(queue, HERE)
    mine = world.hooks(queue)
    run = await started(queue, "r1")
    await queue.set_run(run.id, "cancel")
    world.answers = [Heard(error="blocked.private: 10.0.0.1 is a private address", final=True)]
    await mine.turn()
    (delivery,) = await hooks.deliveries(queue)
    assert (delivery.state, delivery.tries) == ("given_up", 1)


async def test_the_log_stays_short(world: World, queue: Queue) -> None:
    await hooks.add(queue, HERE)
    mine = world.hooks(queue)
    await mine.turn()
    for number in range(120):
        run = await started(queue, f"r{number:03}")
        await queue.set_run(run.id, "cancel")
    for _ in range(10):
        await mine.turn()
    world.now += int((hooks.SURELY + 1) * SECOND)
    await mine.turn()
    assert len(await hooks.deliveries(queue)) == hooks.LOGGED
    assert len(world.sent) == 120


async def test_a_chosen_secret_that_the_server_does_not_have_waits_for_one_that_does(
    world: World, queue: Queue
) -> None:
    mine = world.hooks(queue)
    assert await mine.key_of(Hook("h", "u", secret="hook_a")) == "chosen"
    await hooks.add(queue, Hook("h2", "https://hooks.example/", secret="hook_b"))
    run = await started(queue, "r1")
    await queue.set_run(run.id, "cancel")
    await mine.turn()
    (delivery,) = await hooks.deliveries(queue)
    assert (delivery.state, world.sent) == ("waiting", [])
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


def test_what_is_shown_of_an_address_is_its_host() -> None:
    assert hooks.shown("https://u:p@hooks.example:8443/T0/secret?x=1") == "https://hooks.example:8443/…"


def test_an_error_is_kept_without_secrets_and_not_at_length() -> None:
    waiting = Delivery("d", HERE, "finished", "r", "{}", NOW, tries=1)
    said = judged(waiting, Heard(error="https://u:p@h.example/ " + "x" * 9_000), NOW)
    assert "u:p" not in said.error and len(said.error) <= 500


async def test_the_account_is_asked_for_once_for_all_hooks(world: World, queue: Queue) -> None:
    asked: list[Stats] = []
    mine = Hooks(queue, world.send, lambda run, stats: asked.append(stats) or {"name": run.name})
    await hooks.add(queue, HERE)
    await hooks.add(queue, Hook("h2", "https://two.example/"))
    run = await started(queue, "r1")
    await queue.set_run(run.id, "cancel")
    await mine.turn()
    assert {message["url"] for message in world.sent} == {"https://hooks.example/", "https://two.example/"}
    assert asked[0] is asked[1]


async def test_a_run_that_ends_between_the_two_questions_of_one_look_is_told(
    world: World, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hooks.add(queue, HERE)
    run = await started(queue, "r1")
    asked = queue.runs

    async def late(**given: Any) -> list[Run]:
        if given.get("states") == hooks.OPEN:
            await queue.set_run(run.id, "cancel")
        return await asked(**given)

    monkeypatch.setattr(queue, "runs", late)
    mine = world.hooks(queue)
    await mine.turn()
    await mine.turn()
    assert [message["run"]["name"] for message in world.sent] == ["r1"]
