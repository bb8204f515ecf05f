"""Recrawl: when a page is taken as it was, and when it is asked for and parsed whatever is known of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from changing_site import HOME, ChangingSite, links

import shoal
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.task import LaneChange, LeasedTask, Outcome, RequestOptions, Verdict
from shoal.extract.links import LinkFilter
from shoal.extract.page import Follow
from shoal.queue.base import PageState
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_task
from shoal.view.changes import all_changes
from shoal.worker.loop import Worker, is_nobody_waiting
from shoal.worker.page_states import PageStateBuffer, PageStateReader
from shoal.worker.plan import WorkerPlan
from shoal.worker.task.pipeline import process_task
from shoal.worker.task.recrawl import is_compared, page_digest


@pytest.fixture
async def site() -> AsyncIterator[ChangingSite]:
    queue = await SqliteQueue.open(":memory:")
    site = ChangingSite(queue)
    site.pages = {
        "/": links("/a", "/b"),
        "/a": "<p>a</p>" + links("/c"),
        "/b": "<p>b</p>" + links("/c"),
        "/c": "<p>c</p>",
    }
    yield site
    await queue.close()


async def test_unchanged_pages_are_settled_in_steps_of_more_than_are_in_progress_at_a_time(
    site: ChangingSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"/{number}" for number in range(100)]
    site.pages = {"/": links(*paths)} | {path: f"<p>{path}</p>" for path in paths}
    first, second, concurrency = await site.crawl(), await site.start(), 4
    sizes: list[int] = []
    settle = site.queue.settle

    async def counted(outcomes: Sequence[Outcome], *more: Any) -> list[Verdict]:
        sizes.append(len(outcomes))
        return await settle(outcomes, *more)

    monkeypatch.setattr(site.queue, "settle", counted)
    await Worker(site.worker(second), WorkerPlan(runs=(second.id,), concurrency=concurrency)).run()
    assert max(sizes) > concurrency
    assert (await site.counts(second))[:3] == (101, 0, 0)
    assert await site.records(second) == await site.records(first)


@pytest.mark.parametrize(
    ("outcome", "spacing", "pace", "is_lazy"),
    [
        ({}, 0.0, UNLIMITED_PACE, True),
        ({"counters": {"recrawl.changed": 1}}, 0.0, UNLIMITED_PACE, False),
        ({"found": (start_task(HOME),)}, 0.0, UNLIMITED_PACE, False),
        ({"lanes": (LaneChange("a", hold_for=1.0),)}, 0.0, UNLIMITED_PACE, False),
        ({}, 1.0, UNLIMITED_PACE, False),
        ({}, 0.0, Pace(0.0, 4), False),
    ],
)
def test_an_unchanged_page_that_somebody_waits_for_is_settled_at_once(
    outcome: dict[str, Any], spacing: float, pace: Pace, is_lazy: bool
) -> None:
    done = Outcome(task=1, lease=1, result="done", **{"counters": {"recrawl.unchanged": 1}, **outcome})
    assert is_nobody_waiting(done, spacing, pace) is is_lazy


async def test_without_validators_the_same_content_is_not_parsed(site: ChangingSite) -> None:
    site.has_etags = False
    first = await site.crawl()
    second = await site.crawl()
    assert (site.parsed, len(site.requests)) == ([], 4)
    assert await site.counts(second) == (4, 0, 0, 0, 0)
    assert await site.records(second) == await site.records(first)


async def test_a_link_is_not_lost_with_the_page_that_first_had_it(site: ChangingSite) -> None:
    await site.crawl()
    site.pages["/a"] = "<p>a</p>"
    second = await site.crawl()
    assert site.parsed == ["/a"]
    assert "/c 304" in site.requests, "the unchanged page has the link, too"
    assert await site.changes(second) == {"changed /a"}


async def test_with_other_code_everything_is_asked_for_and_parsed(site: ChangingSite) -> None:
    await site.crawl()
    site.rules = ("v2",)
    second = await site.crawl()
    assert sorted(site.parsed) == ["/", "/a", "/b", "/c"]
    assert {answer.partition(" ")[2] for answer in site.requests} == {"200"}, "a 304 would leave nothing to parse"
    assert await site.counts(second) == (4, 0, 0, 0, 0), "what was found is the same"
    site.rules = None
    await site.crawl()
    assert len(site.parsed) == 4
    await site.crawl()
    assert len(site.parsed) == 4, "where the version of the code is not known, nothing is reused"


async def test_noise_that_nobody_looks_for_is_no_change(site: ChangingSite) -> None:
    await site.crawl()
    site.pages["/a"] += "<!-- 12:07 -->"
    second = await site.crawl()
    assert site.parsed == ["/a"]
    assert await site.counts(second) == (4, 0, 0, 0, 0)


async def test_meta_is_a_part_of_what_a_page_gives(site: ChangingSite) -> None:
    await site.crawl()
    site.meta = {"shop": 7}
    await site.crawl()
    assert site.parsed == ["/"]


async def test_lastmod_saves_the_request(site: ChangingSite) -> None:
    site.meta = {"lastmod": "2001-01-01"}
    site.pages["/"] += "<p>home</p>"
    first = await site.crawl()
    site.pages["/"] = "nobody looks"
    second = await site.crawl()
    assert [it.partition(" ")[0] for it in sorted(site.requests)] == ["/a", "/b", "/c"]
    assert await site.records(second) == await site.records(first)
    counters = await site.queue.run_counters(second.id)
    assert (counters["recrawl.not_asked"], counters["recrawl.not_modified"], counters["recrawl.unchanged"]) == (1, 3, 4)
    assert counters["field.text.string"] == 4, "its records are counted like any others"
    site.meta = {"lastmod": "2100-01-01"}
    await site.crawl()
    assert site.parsed == ["/"]


async def test_a_page_behind_a_login_is_the_same_only_by_its_servers_word(site: ChangingSite) -> None:
    site.personal, site.meta = True, {"lastmod": "2001-01-01"}
    await site.crawl()
    await site.crawl()
    assert (site.parsed, len(site.requests)) == ([], 4)
    site.has_etags = False
    await site.crawl()
    assert len(site.parsed) == 4


async def test_a_page_that_fetches_others_or_makes_tasks_is_parsed_every_time(site: ChangingSite) -> None:
    async def with_fetch(page: Any) -> Any:
        site.parsed.append("fetches")
        yield {"more": (await page.fetch("/c")).text}

    def with_task(page: Any) -> Any:
        site.parsed.append("makes a task")
        yield shoal.Task(type="mail", payload={})

    site.pages = {"/": links("/x", "/y"), "/c": "c", "/x": "x", "/y": "y"}
    site.scraper = shoal.Scraper("site", HOME)
    site.scraper.page("/x")(with_fetch)
    site.scraper.page("/y")(with_task)
    for _ in range(2):
        run = await site.start()
        context = site.worker(run)
        while tasks := await site.claim():
            await site.settle(context, [await process_task(task, context) for task in tasks])
        await site.queue.acknowledge([entry.seq for entry in await site.queue.outbox("task")])
        await site.queue.set_run(run.id, "finish")
        assert sorted(site.parsed) == ["fetches", "makes a task"]
    assert "/ 304" in site.requests
    assert "/x 200" in site.requests


async def test_validators_go_to_where_a_redirect_leads_and_nowhere_else(site: ChangingSite) -> None:
    site.pages["/"] = links("/old")
    site.redirects["/old"] = "/a"
    first = await site.crawl()
    second = await site.crawl()
    assert "/old 301" in site.requests
    assert "/a 304" in site.requests
    assert sorted(site.conditional) == ["/", "/a", "/c"]
    assert await site.records(second) == await site.records(first)
    site.redirects["/old"] = "/b"
    third = await site.crawl()
    assert "/b 200" in site.requests
    assert b'{"text":"b"}' in await site.records(third)


async def test_a_page_that_was_tried_twice_is_compared_with_the_run_before_both_times(site: ChangingSite) -> None:
    """As after kill -9: what was saved of it is there, and its outcome is not."""
    await site.crawl()
    site.pages["/"] += "<p>new</p>"
    run = await site.start()
    context = site.worker(run)
    (task,) = await site.claim()
    await process_task(task, context)
    await context.before_settle()
    assert len(await site.queue.page_states(run.id)) == 1
    await site.queue.reap({"w": ()})
    await site.work(run)
    run = (await site.queue.runs(name=run.name, limit=1))[0]
    assert await site.counts(run) == (3, 1, 0, 0, 0)
    assert await site.changes(run) == {"changed /"}


async def test_a_run_that_its_limit_ended_calls_nothing_gone_and_one_that_goes_on_neither(site: ChangingSite) -> None:
    await site.crawl()
    cut = await site.crawl(max_pages=1)
    assert await site.counts(cut) == (1, 0, 0, None, 0)
    going_on = await site.start()
    assert await site.changes(going_on) == set()


async def test_the_fields_that_differ_are_named(site: ChangingSite) -> None:
    await site.crawl()
    site.pages["/a"] = "<p>other</p>" + links("/c")
    site.pages["/b"] = "<p>b</p><p>more</p>" + links("/c")
    second = await site.crawl()
    found = {it.url: it async for it in all_changes(site.queue, second)}
    one, other = found[f"{HOME}a"], found[f"{HOME}b"]
    assert (one.fields, one.records, one.records_before, one.links_changed) == (("text",), 1, 1, False)
    assert (other.fields, other.records, other.records_before) == ((), 2, 1)


async def test_what_is_damaged_in_the_queue_is_as_good_as_nothing(site: ChangingSite) -> None:
    first = await site.crawl()
    states = await site.queue.page_states(first.id, whole=True)
    broken = [PageState(it.task, it.head, b"junk") for it in states[:2]]
    await site.queue.save_page_states(first.id, [*broken, PageState(states[2].task, b"junk", states[2].body)])
    second = await site.crawl()
    assert len(site.parsed) == 3
    assert await site.records(second) == await site.records(first)


async def test_runs_that_do_not_remember_pages_are_passed_over(site: ChangingSite) -> None:
    await site.crawl()
    plain = await site.start()
    await site.queue.set_run(plain.id, "cancel")
    second = await site.crawl()
    assert await site.counts(second) == (4, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("options", "kind", "compared"),
    [
        (None, "page", True),
        (None, "page/detail", True),
        (None, "page:sitemap", False),
        (RequestOptions(session="x"), "page", True),
        (RequestOptions(method="POST", body=b"q"), "page", False),
        (RequestOptions(again=1), "page", False),
        (RequestOptions(headers=(("If-None-Match", '"x"'),)), "page", False),
    ],
)
def test_what_is_asked_for_in_a_way_of_its_own_is_not_compared(
    options: RequestOptions | None, kind: str, compared: bool
) -> None:
    task = LeasedTask(id=1, lease=1, run=1, lane="a.test", url=HOME, kind=kind, request_options=options)
    assert is_compared(task) is compared


@pytest.mark.parametrize(
    "follow",
    [
        Follow(("/x",), HOME),
        Follow(("/x",), HOME, handler="detail"),
        Follow(("/x",), HOME, request_options=RequestOptions(session="s")),
        Follow(("/x",), HOME, handler="detail", request_options=RequestOptions(headers=(("X-A", "1"),))),
    ],
)
def test_a_page_is_known_by_the_digest_that_its_task_was_added_with(follow: Follow) -> None:
    links_of = LinkFilter(lambda lane: True, None, lambda lane, url: None)
    (task,) = links_of.admit([follow], depth=0, parent=3, origin_url=HOME).tasks
    leased = LeasedTask(
        id=1, lease=1, run=1, lane=task.lane, url=task.url, kind=task.kind, request_options=task.request_options
    )
    assert page_digest(leased) == task.digest


async def test_states_of_several_runs_are_saved_apart_and_what_failed_to_be_saved_stays(site: ChangingSite) -> None:
    one, other = await site.start(), await site.start()
    buffer = PageStateBuffer(site.queue)
    for run in (one, other):
        buffer.put(PageState((run.id << 32) | 1, b"h"))
    await buffer.flush()
    assert [len(await site.queue.page_states(run.id)) for run in (one, other)] == [1, 1]


async def test_a_run_without_one_before_it_asks_the_queue_once(site: ChangingSite) -> None:
    run = await site.start()
    reader = PageStateReader(site.queue, run)
    assert await reader.find(b"x" * 16) is None
    await site.queue.close()
    assert await reader.find(b"x" * 16) is None
