"""Intake: what other programs publish to RabbitMQ becomes tasks, once, or is rejected with the reason."""

from __future__ import annotations

import asyncio
from typing import Any

from broker_relay import declared, other_program, publish, relaying, take_all
from wait import until

from shoal.control.intake_counts import IntakeCounts, intake_counts
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome
from shoal.queue.base import Queue, TaskView


async def published(url: str, *bodies: object, **properties: Any) -> None:
    await asyncio.to_thread(lambda: publish(url, *bodies, **properties))


async def counted(queue: Queue, messages: int) -> IntakeCounts:
    """Once so many have been dealt with."""

    async def enough() -> IntakeCounts | None:
        counts = await intake_counts(queue)
        return counts if counts and counts.accepted + counts.rejected + counts.revived >= messages else None

    return await until(enough, every=0.05)


async def all_tasks(queue: Queue) -> list[tuple[Run, TaskView]]:
    return [(run, task) for run in await queue.runs() for task in await queue.list_tasks(run.id)]


async def test_urls_and_typed_tasks_of_another_program_become_tasks_once(queue: Queue, broker: str) -> None:
    run = await queue.start_run(NewRun("books", "key", name="mine"))
    async with relaying(queue, broker, routes=["*/urgent/* priority=10 ttl=30m", "* ttl=1h"]):
        await declared(broker)
        page = {"url": "http://shop.example/item/1", "meta": {"a": 1}, "ttl": 60, "priority": 3}
        typed = {"type": "resize", "payload": {"n": 1}, "key": "k"}
        await published(
            broker, page, page, {"url": "http://shop.example/urgent/2"},
            {"url": "http://shop.example/3", "scraper": "books"}, {"url": "http://shop.example/4", "run": "mine"},
            typed, typed,
        )  # fmt: skip
        await published(
            broker, {"type": "resize"}, {"type": "resize"}, {"type": "resize", "payload": {"n": 2}}, message_id="7"
        )
        assert await counted(queue, 10) == IntakeCounts(accepted=10)
    found = {(view.run, view.url): view for _, view in await all_tasks(queue)}
    assert {run.scraper for run in await queue.runs()} == {"books", "pages", "task:resize"}
    urls = sorted(url for _, url in found if url.startswith("http"))
    assert urls == [f"http://shop.example/{it}" for it in ("3", "4", "item/1", "urgent/2")]
    by_url = {url: view for (_, url), view in found.items()}
    assert by_url["http://shop.example/item/1"].meta == {"a": 1}
    assert [by_url[f"http://shop.example/{it}"].priority for it in ("item/1", "urgent/2", "3")] == [3, 10, 0]
    assert by_url["http://shop.example/4"].run == run.id
    # The key, the two messages with one id and one text, and the one with another text.
    assert len([url for _, url in found if url.startswith("task:resize/")]) == 3


MALFORMED: list[tuple[object, str]] = [
    (b"\xff\xfe", "not understood"),
    (b"[" * 5_000, "not understood"),
    ([1], "not a JSON object"),
    ({"uri": "http://shop.example/"}, "none of"),
    ({"url": "http://shop.example/", "colour": 1}, "unknown field `colour`"),
    ({"url": "http://127.0.0.1/admin"}, "loopback"),
    ({"url": "ftp://shop.example/"}, "ftp"),
    ({"url": "http://shop.example/", "headers": {"Host": "other"}}, "Host"),
    ({"url": "http://shop.example/", "headers": {"Authorization": "Basic eDp5"}}, "secret"),
    ({"url": "http://shop.example/", "run": "none"}, "no run none"),
    ({"url": "http://shop.example/", "run": "odd"}, "settings of run odd are not understood"),
    ({"url": "http://shop.example/", "run": "a", "scraper": "b"}, "both a run and a scraper"),
    ({"url": "http://shop.example/", "scraper": "task:resize"}, "matching regex"),
    ({"url": "http://shop.example/", "priority": 10**9}, "<= 1000000"),
    ({"url": "http://shop.example/" + "a" * 70_000}, "64,000"),
    ({"type": "page"}, "cannot be a task type"),
    ({"type": "resize", "payload": 3}, "Expected `object`"),
    ({"type": "resize", "lane": "shop.example", "rate": "1/h"}, "unknown field `lane`"),
    ({"letter": 12345}, "no task 12345"),
    ({"letter": -1}, "not that of a task"),
]


async def test_malformed_messages_are_rejected_with_the_reason_and_the_others_taken(queue: Queue, broker: str) -> None:
    await queue.start_run(NewRun("odd", "key", name="odd", spec={"settings": {"delay": "soon"}}))
    async with relaying(queue, broker):
        await declared(broker)
        await published(broker, *(body for body, _ in MALFORMED), {"url": "http://shop.example/fine"})
        assert await counted(queue, len(MALFORMED) + 1) == IntakeCounts(accepted=1, rejected=len(MALFORMED))
    assert [view.url for _, view in await all_tasks(queue)] == ["http://shop.example/fine"]
    taken = await asyncio.to_thread(take_all, broker, "shoal.rejected")
    reasons = [properties.headers["x-shoal-reason"] for properties, _ in taken]
    for body, words in MALFORMED:
        assert any(words in reason for reason in reasons), (body, words, reasons)
    assert len(reasons) == len(MALFORMED)


async def test_a_letter_that_is_published_is_revived_and_only_for_the_death_that_it_tells_of(
    queue: Queue, broker: str
) -> None:
    async def died() -> TaskView:
        claim = await queue.claim("w", 1)
        await queue.settle([Outcome(claim.tasks[0].id, claim.lease, "dead", cause="http.404")])
        (view,) = await queue.list_tasks(claim.tasks[0].run, state="dead")
        return view

    async with relaying(queue, broker):
        await declared(broker)
        await published(broker, {"url": "http://shop.example/1"})
        await counted(queue, 1)
        first = await died()
        await until(lambda: asyncio.to_thread(lambda: _depth(broker)))
        ((properties, letter),) = await asyncio.to_thread(take_all, broker, "shoal.dead")
        assert properties.message_id == f"{first.id}.{first.finished_at}"
        assert 86_300_000 < int(properties.expiration) <= 86_400_000
        await published(broker, letter, letter)
        await until(lambda: _state(queue, first, "ready"))
        await counted(queue, 3)
        second = await died()
        assert second.finished_at != first.finished_at
        await published(broker, letter)
        assert await counted(queue, 4) == IntakeCounts(accepted=1, revived=3)
        assert await _state(queue, second, "dead")
        await published(broker, {"letter": first.id})
        await until(lambda: _state(queue, first, "ready"))


def _depth(url: str) -> int:
    with other_program(url) as channel:
        return channel.queue_declare("shoal.dead", passive=True).method.message_count


async def _state(queue: Queue, task: TaskView, state: str) -> bool:
    (view,) = await queue.list_tasks(task.run, after=task.id - 1, limit=1)
    return view.state == state
