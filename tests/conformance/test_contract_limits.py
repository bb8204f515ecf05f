"""Sizes and strange values: what goes in comes out."""

from __future__ import annotations

import json

import pytest

from conformance.harness import QueueHarness, page, pages
from shoal.core.task import digest
from shoal.queue.base import MAX_FOUND_PER_SETTLE, TaskFilter

STRANGE = [
    "http://bücher.test/straße?q=日本語",
    "http://a.test/" + "x" * 8000,
    "http://a.test/\x00nul",
    "http://a.test/🦈/́combining",
    "http://a.test/'; DROP TABLE tasks; --",
    "http://a.test/%00%ff?a=b&c=\\d",
    " ",
    "{}",
]


async def test_a_thousand_tasks_are_added_at_once(harness: QueueHarness) -> None:
    run = await harness.run()
    assert await harness.add(run, pages(1000)) == ["added"] * 1000
    assert await harness.add(run, pages(1001)) == ["known"] * 1000 + ["added"]
    assert (await harness.stats(run)).ready == 1001


async def test_a_thousand_tasks_are_claimed_and_settled(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(1000))
    claim = await harness.claim(1000)
    assert len(claim.tasks) == 1000
    assert set(await harness.settle_all(claim, records=(b"{}",))) == {"ok"}
    stats = await harness.stats(run)
    assert (stats.done, stats.records, stats.open) == (1000, 1000, 0)


async def test_a_page_may_find_as_many_links_as_the_cap(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), found=tuple(pages(MAX_FOUND_PER_SETTLE, "found")))
    assert (await harness.stats(run)).ready == MAX_FOUND_PER_SETTLE


@pytest.mark.parametrize("url", STRANGE, ids=range(len(STRANGE)))
async def test_strange_urls_come_out_as_they_went_in(harness: QueueHarness, url: str) -> None:
    run = await harness.run()
    await harness.add(run, [page(url)])
    assert (await harness.one()).url == url
    view = await harness.queue.find(run, digest(url))
    assert view is not None
    assert view.url == url
    assert [item.url for item in await harness.queue.list_tasks(run, where=TaskFilter(ids=(view.id,)))] == [url]


@pytest.mark.parametrize("text", [text for text in STRANGE if text.strip()], ids=str.__len__)
async def test_strange_words_come_out_as_they_went_in(harness: QueueHarness, text: str) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", lane=text, kind=text[:50], meta={text: [text]})])
    leased = await harness.one(text)
    assert (leased.lane, leased.kind, leased.meta) == (text, text[:50], {text: [text]})
    await harness.settle(leased, "dead", cause=text, evidence={"said": text})
    (letter,) = await harness.queue.list_tasks(run, state="dead")
    assert (letter.cause, letter.evidence) == (text, {"said": text})
    await harness.add(run, [page("b")])
    await harness.settle(await harness.one(text), skipped=((text, text),))
    assert (await harness.stats(run)).skipped == {text: 1}
    assert await harness.queue.skipped(run) == [(text, text)]


async def test_big_meta_comes_out_as_it_went_in(harness: QueueHarness) -> None:
    run = await harness.run()
    meta = {"text": "ü" * 100_000, "list": list(range(10_000)), "deep": {"a": {"b": [None, True, 1.5]}}}
    await harness.add(run, [page("a", meta=meta)])
    assert (await harness.one()).meta == meta


async def test_an_empty_meta_is_not_lost(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", meta={}), page("b", meta=None)])
    got = {leased.url: leased.meta for leased in (await harness.claim()).tasks}
    assert got == {"a": {}, "b": None}


async def test_records_come_out_as_they_went_in(harness: QueueHarness) -> None:
    run = await harness.run()
    records = [{"text": "日本語 🦈 \x00 \u2028"}, {"big": "x" * 200_000}, {}, {"n": 2**63, "f": 0.1}]
    await harness.add(run, "a")
    await harness.settle(await harness.one(), records=tuple(json.dumps(record).encode() for record in records))
    assert [json.loads(record.data) for record in await harness.queue.records(run)] == records


async def test_records_in_plain_utf8_come_out_as_they_went_in(harness: QueueHarness) -> None:
    run = await harness.run()
    record = {"text": "日本語 🦈"}
    await harness.add(run, "a")
    await harness.settle(await harness.one(), records=(json.dumps(record, ensure_ascii=False).encode(),))
    assert [json.loads(stored.data) for stored in await harness.queue.records(run)] == [record]


async def test_many_lanes_are_listed_and_served(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page(f"{number}", f"host-{number}.test") for number in range(300)])
    assert len(await harness.queue.lanes(limit=1000)) == 300
    got = set[str]()
    for _ in range(20):
        got |= {leased.url for leased in (await harness.claim(50)).tasks}
    assert len(got) == 300


async def test_a_task_may_wait_for_years(harness: QueueHarness) -> None:
    run = await harness.run()
    years = 10 * 365 * 86_400.0
    await harness.add(run, "a", delay=years, ttl=2 * years)
    await harness.advance(years - 10)
    assert not (await harness.claim()).tasks
    await harness.advance(11)
    assert (await harness.one()).url == "a"
