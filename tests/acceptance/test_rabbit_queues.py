"""Three queues of one run, seen in RabbitMQ: urgent pages, regular ones, cheap ones; and a queue of dead letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_relay import other_program, relaying, take_all
from conformance.rabbitmq_backend import RunningRelay
from servers import rabbitmq
from shell_user import CommandResult, ShellUser
from wait import until

from shoal.config.run_settings import SETTINGS_KEY
from shoal.control.carrier.free_runs import is_free
from shoal.core.run import Run
from shoal.queue.base import Queue
from shoal.queue.broker.wire import TASK_QUEUES, TaskQueuesQuestion, decode_queues, decode_task, encode
from shoal.queue.rabbitmq import RabbitmqQueue

EXAMPLE = Path(__file__).parents[2] / "examples" / "queues.py"
RULES = """
/catalogue/*_*/  priority=10 ttl=30m
/tag/*           ack=auto ttl=1h
*                ttl=1h cache=60s
"""
URGENT, REGULAR, CHEAP = "shoal.tasks.queues.1", "shoal.tasks.queues.5", "shoal.auto.queues.5"


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=2) as someone:
        yield someone


@pytest.fixture
async def relay(queue: Queue, broker: str) -> AsyncIterator[RunningRelay]:
    async with relaying(queue, broker):
        running = await RunningRelay(queue, f"{broker}?ledger=relay").start()
        yield running
        await running.kill()


def messages(broker: str, queue: str) -> dict[str, float]:
    """The URLs in a queue, and for how many seconds each may wait there; they stay in it."""
    found: dict[str, float] = {}
    with other_program(broker) as channel:
        while True:
            method, properties, body = channel.basic_get(queue)
            if method is None:
                return found
            found[decode_task(body).url] = int(properties.expiration) / 1000


async def wanted(client: RabbitmqQueue) -> set[str]:
    """As a worker of the example asks where it finds work: only then is anything published."""
    answer = await client._requests.ask(TASK_QUEUES, encode(TaskQueuesQuestion(("queues",))))
    return {queue.name for queue in decode_queues(answer)}


async def test_urls_are_in_the_queue_of_their_rule_with_its_ttl_and_failures_in_that_of_dead_letters(
    queue: Queue, broker: str, relay: RunningRelay, user: ShellUser
) -> None:
    rules = user.folder / "rules.txt"
    rules.write_text(RULES)
    site = user.url.rstrip("/")
    urgent = {f"{site}{path}" for path in user.site.site.shop.paths() if "_" in path} | {f"{site}/catalogue/gone_99/"}
    regular, cheap = {f"{site}/catalogue/"}, {f"{site}/tag/a", f"{site}/tag/b"}
    carried = {"SHOAL_QUEUE": f"{broker}?ledger=relay", "SHOAL_RABBITMQ_MANAGEMENT": rabbitmq.shared().management_url}

    async def shoal(*words: str) -> CommandResult:
        return await asyncio.to_thread(lambda: user.shoal(*words, **carried))

    run = ["--delay", "0", "--in-flight", "0", "--allow-private", "--routes", str(rules)]
    done = await shoal("submit", str(EXAMPLE), *urgent, *regular, *cheap, *run)
    assert done.code == 0, done.err
    client = await RabbitmqQueue.open(carried["SHOAL_QUEUE"])
    try:
        await until(lambda: _all_there(client, {URGENT, REGULAR, CHEAP}))
    finally:
        await client.close()
    for name, urls, ttl in ((URGENT, urgent, 1800), (REGULAR, regular, 3600), (CHEAP, cheap, 3600)):
        found = await until(lambda name=name, urls=urls: _messages(broker, name, len(urls)))  # type: ignore[misc]
        assert set(found) == urls
        assert all(ttl - 300 < left <= ttl for left in found.values()), (name, found)

    async def shown() -> dict[str, int]:
        answer = await shoal("rabbit", "status", "--json")
        if answer.code:  # its management may be slow to answer beside other tests
            return {}
        told = json.loads(answer.out)
        return {it["name"]: it["ready"] for it in told["queues"] if it["name"].split(".")[1] in ("tasks", "auto")}

    await until(lambda: _is(shown, {URGENT: len(urgent), REGULAR: 1, CHEAP: 2}), every=0.5)

    done = await shoal("worker", str(EXAMPLE), "--exit-when-done", "--workers", "1", "--allow-private")
    assert done.code == 3, done.err  # some failed
    (ended,) = await queue.runs()
    stats = await queue.stats(ended.id)
    assert (stats.open, stats.records) == (0, 2)
    letters: dict[str, str] = {}
    while len(letters) < stats.dead:
        for _, body in await asyncio.to_thread(take_all, broker, "shoal.dead"):
            letter = json.loads(body)
            letters[letter["url"]] = letter["cause"]
        await asyncio.sleep(0.05)
    assert letters[f"{site}/catalogue/gone_99/"] == "http.404"


async def _all_there(client: RabbitmqQueue, names: set[str]) -> bool:
    return await wanted(client) >= names


async def _messages(broker: str, name: str, count: int) -> dict[str, float] | None:
    found = await asyncio.to_thread(messages, broker, name)
    return found if len(found) >= count else None


async def _is(ask: Any, wanted: object) -> bool:
    return bool(await ask() == wanted)


@pytest.mark.parametrize(
    ("rules", "free"),
    [
        (["* ttl=1h cache=60s", "/a/* ack=auto priority=10"], True),
        (["* delay=0 in_flight=0"], True),
        (["* rate=5"], False),
        (["* ttl=1h", "shop.example delay=1s"], False),
        (["* in_flight=2"], False),
        (["/a/* needs=browser"], False),
        (["/a/* session=eu"], False),
        (["/a/* colour=red"], False),
        ([3], False),
        ("* ttl=1h", False),
    ],
)
def test_only_runs_whose_rules_ask_for_no_pace_needs_or_session_are_messages(rules: object, free: bool) -> None:
    settings = {"delay": 0, "in_flight": 0, "routes": rules}
    run = Run(1, "r", "books", "k", "running", 1, 1, spec={SETTINGS_KEY: settings, "mode": "distributed"})
    assert is_free(run) is free
