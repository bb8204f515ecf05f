"""Page states: what a run remembers of its pages, whole or in part, until the run goes."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, outcome
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.task import digest
from shoal.queue.base import MAX_PAGE_STATE_BYTES, MAX_PAGE_STATES, MAX_WHOLE_PAGE_STATES, PageState


async def crawled(harness: QueueHarness, count: int, key: str = "crawl") -> tuple[int, list[int]]:
    """A run with so many tasks: its id, and theirs."""
    run = await harness.run(key)
    urls = [f"p{n}" for n in range(count)]
    await harness.add(run, " ".join(urls), pace=UNLIMITED_PACE)
    return run, sorted(await harness.queue.ids(run, [digest(url) for url in urls]))


async def test_what_was_saved_is_found_in_the_order_of_tasks(harness: QueueHarness) -> None:
    run, tasks = await crawled(harness, 3)
    states = [PageState(task, b"head\0%d" % task, b"body\xff%d" % task) for task in tasks]
    await harness.queue.save_page_states(run, states[::-1])
    assert await harness.queue.page_states(run, whole=True) == states
    assert await harness.queue.page_states(run) == [PageState(it.task, it.head) for it in states]
    assert await harness.queue.page_states(run, after=tasks[0], limit=1, whole=True) == [states[1]]
    chosen = [tasks[2], tasks[0], tasks[0], tasks[1] + (1 << 40)]
    assert await harness.queue.page_states(run, tasks=chosen, whole=True) == [states[0], states[2]]
    assert await harness.queue.page_states(run, tasks=chosen, after=tasks[0], whole=True) == [states[2]]
    assert await harness.queue.page_states(run, tasks=[1]) == []


async def test_what_is_saved_again_takes_the_place_of_the_former(harness: QueueHarness) -> None:
    run, (task, *_) = await crawled(harness, 2)
    await harness.queue.save_page_states(run, [PageState(task, b"a", b"1"), PageState(task, b"b", b"2")])
    assert await harness.queue.page_states(run, whole=True) == [PageState(task, b"b", b"2")]
    await harness.queue.save_page_states(run, [PageState(task, b"c")])
    assert await harness.queue.page_states(run, whole=True) == [PageState(task, b"c")]


async def test_one_answer_holds_so_many_bodies_and_all_heads(harness: QueueHarness) -> None:
    count = MAX_WHOLE_PAGE_STATES + 5
    run, tasks = await crawled(harness, count)
    await harness.queue.save_page_states(run, [PageState(task, b"h", b"b") for task in tasks])
    assert len(await harness.queue.page_states(run)) == count
    first = await harness.queue.page_states(run, whole=True)
    assert [state.task for state in first] == tasks[:MAX_WHOLE_PAGE_STATES]
    assert len(await harness.queue.page_states(run, after=first[-1].task, whole=True)) == 5


async def test_too_much_and_tasks_of_other_runs_are_refused(harness: QueueHarness) -> None:
    run, (task,) = await crawled(harness, 1)
    for states in (
        [PageState(task, b"h")] * (MAX_PAGE_STATES + 1),
        [PageState(task, b"h", bytes(MAX_PAGE_STATE_BYTES))],
        [PageState(task + (1 << 32), b"h")],
    ):
        with pytest.raises(ValueError, match=r"page states|bytes|not one of"):
            await harness.queue.save_page_states(run, states)
    assert await harness.queue.page_states(run) == []
    await harness.queue.save_page_states(run, [PageState(task, b"h", bytes(MAX_PAGE_STATE_BYTES - 1))])
    assert len((await harness.queue.page_states(run, whole=True))[0].body) == MAX_PAGE_STATE_BYTES - 1


async def test_they_go_with_their_run_and_none_comes_after_it(harness: QueueHarness) -> None:
    run, tasks = await crawled(harness, 2)
    other, (others_task,) = await crawled(harness, 1, "other")
    await harness.queue.save_page_states(other, [PageState(others_task, b"kept")])
    await harness.queue.save_page_states(run, [PageState(task, b"h", b"b") for task in tasks])
    await harness.queue.settle([outcome(it) for it in (await harness.claim()).tasks])
    await harness.queue.set_run(run, "finish")
    assert len(await harness.queue.page_states(run)) == 2, "they are for the next run"
    await harness.queue.purge(run=run)
    await harness.queue.save_page_states(run, [PageState(tasks[0], b"late")])
    assert await harness.queue.page_states(run) == []
    assert await harness.queue.page_states(run, tasks=tasks, whole=True) == []
    assert [state.head for state in await harness.queue.page_states(other)] == [b"kept"]
