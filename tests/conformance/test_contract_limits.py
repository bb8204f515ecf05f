"""Sizes and strange values: what goes in comes out."""

from __future__ import annotations

import json

import pytest

from conformance.world import World, page, pages
from shoal.core.task import digest
from shoal.queue.base import FOUND_CAP, Where

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


async def test_a_thousand_tasks_are_added_at_once(world: World) -> None:
    run = await world.run()
    assert await world.add(run, pages(1000)) == ["added"] * 1000
    assert await world.add(run, pages(1001)) == ["known"] * 1000 + ["added"]
    assert (await world.stats(run)).ready == 1001


async def test_a_thousand_tasks_are_claimed_and_settled(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(1000))
    claim = await world.claim(1000)
    assert len(claim.tasks) == 1000
    assert set(await world.settle_all(claim, records=(b"{}",))) == {"ok"}
    stats = await world.stats(run)
    assert (stats.done, stats.records, stats.open) == (1000, 1000, 0)


async def test_a_page_may_find_as_many_links_as_the_cap(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), found=tuple(pages(FOUND_CAP, "found")))
    assert (await world.stats(run)).ready == FOUND_CAP


@pytest.mark.parametrize("url", STRANGE, ids=range(len(STRANGE)))
async def test_strange_addresses_come_out_as_they_went_in(world: World, url: str) -> None:
    run = await world.run()
    await world.add(run, [page(url)])
    assert (await world.one()).url == url
    view = await world.queue.find(run, digest(url))
    assert view is not None
    assert view.url == url
    assert [item.url for item in await world.queue.look(run, where=Where(ids=(view.id,)))] == [url]


@pytest.mark.parametrize("text", [text for text in STRANGE if text.strip()], ids=str.__len__)
async def test_strange_words_come_out_as_they_went_in(world: World, text: str) -> None:
    run = await world.run()
    await world.add(run, [page("a", lane=text, kind=text[:50], meta={text: [text]})])
    leased = await world.one(text)
    assert (leased.lane, leased.kind, leased.meta) == (text, text[:50], {text: [text]})
    await world.settle(leased, "dead", cause=text, evidence={"said": text})
    (letter,) = await world.queue.look(run, state="dead")
    assert (letter.cause, letter.evidence) == (text, {"said": text})
    await world.add(run, [page("b")])
    await world.settle(await world.one(text), skipped=((text, text),))
    assert (await world.stats(run)).skipped == {text: 1}
    assert await world.queue.skipped(run) == [(text, text)]


async def test_big_meta_comes_out_as_it_went_in(world: World) -> None:
    run = await world.run()
    meta = {"text": "ü" * 100_000, "list": list(range(10_000)), "deep": {"a": {"b": [None, True, 1.5]}}}
    await world.add(run, [page("a", meta=meta)])
    assert (await world.one()).meta == meta


async def test_an_empty_meta_is_not_lost(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("a", meta={}), page("b", meta=None)])
    got = {leased.url: leased.meta for leased in (await world.claim()).tasks}
    assert got == {"a": {}, "b": None}


async def test_records_come_out_as_they_went_in(world: World) -> None:
    run = await world.run()
    records = [{"text": "日本語 🦈 \x00 \u2028"}, {"big": "x" * 200_000}, {}, {"n": 2**63, "f": 0.1}]
    await world.add(run, "a")
    await world.settle(await world.one(), records=tuple(json.dumps(record).encode() for record in records))
    assert [json.loads(record.data) for record in await world.queue.records(run)] == records


async def test_records_in_plain_utf8_come_out_as_they_went_in(world: World) -> None:
    run = await world.run()
    record = {"text": "日本語 🦈"}
    await world.add(run, "a")
    await world.settle(await world.one(), records=(json.dumps(record, ensure_ascii=False).encode(),))
    assert [json.loads(stored.data) for stored in await world.queue.records(run)] == [record]


async def test_many_lanes_are_listed_and_served(world: World) -> None:
    run = await world.run()
    await world.add(run, [page(f"{number}", f"host-{number}.test") for number in range(300)])
    assert len(await world.queue.lanes(limit=1000)) == 300
    got = set[str]()
    for _ in range(20):
        got |= {leased.url for leased in (await world.claim(50)).tasks}
    assert len(got) == 300


async def test_a_task_may_wait_for_years(world: World) -> None:
    run = await world.run()
    years = 10 * 365 * 86_400.0
    await world.add(run, "a", delay=years, ttl=2 * years)
    await world.advance(years - 10)
    assert not (await world.claim()).tasks
    await world.advance(11)
    assert (await world.one()).url == "a"
