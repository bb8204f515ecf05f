"""What is remembered of URLs that failed: counted once per dead letter, over runs, and forgotten when they go well."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.harness import QueueHarness, failed, page
from shoal.core import failing
from shoal.core.task import RequestOptions
from shoal.queue.base import LEASE_SECONDS, LOST_LIMIT, UrlFailures


async def fail(harness: QueueHarness, url: str = "p", cause: str = "http.500", **more: Any) -> int:
    """One run in which this URL fails for good."""
    run = await harness.run(key=f"crawl-{harness.runs_started}")
    await harness.add(run, [page(url, **more)])
    await harness.settle(await harness.one(), "dead", **failed(cause))
    await harness.queue.set_run(run, "finish")
    return run


async def remembered(harness: QueueHarness, url: str = "p") -> UrlFailures:
    (about,) = await harness.queue.failures([url])
    return about


async def test_failures_of_a_url_are_counted_over_runs_and_by_cause(harness: QueueHarness) -> None:
    await fail(harness, cause="timeout.connect")
    await harness.advance(10)
    await fail(harness, cause="http.500")
    await fail(harness, cause="timeout.connect")
    now = await harness.queue.now()
    assert await remembered(harness) == UrlFailures(3, {"timeout.connect": 2, "http.500": 1}, now)


async def test_urls_are_answered_in_the_order_they_were_asked_for(harness: QueueHarness) -> None:
    await fail(harness, "a")
    await fail(harness, "b")
    await fail(harness, "b")
    assert [it.count for it in await harness.queue.failures(["b", "none", "a", "b"])] == [2, 0, 1, 2]
    assert await harness.queue.failures([]) == []


async def test_an_outcome_that_is_told_twice_counts_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "p")
    leased = await harness.one()
    assert await harness.settle(leased, "dead", **failed("http.404")) == "ok"
    assert await harness.settle(leased, "dead", **failed("http.404")) == "already"
    assert (await remembered(harness)).count == 1


async def test_a_retry_is_no_failure_yet(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "p")
    await harness.settle(await harness.one(), "retry", **failed("http.503"))
    assert (await remembered(harness)).count == 0


async def test_a_ttl_that_ran_out_and_a_worker_that_was_lost_are_failures(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("late", ttl=5.0), page("once", ack="auto")])
    await harness.advance(6)
    await harness.queue.reap()
    await harness.claim(1)
    await harness.advance(LEASE_SECONDS + 1)
    await harness.queue.reap()
    await harness.add(run, "killer")
    for _ in range(LOST_LIMIT):
        await harness.lose(executing=[(await harness.one()).id])
    causes = [it.causes for it in await harness.queue.failures(["late", "once", "killer"])]
    assert causes == [{"expired": 1}, {"unacknowledged": 1}, {"worker_lost": 1}]


async def test_a_success_forgets_the_failures_of_its_url_only(harness: QueueHarness) -> None:
    await fail(harness, "a")
    await fail(harness, "b")
    run = await harness.run(key="well")
    await harness.add(run, "a c")
    await harness.settle_all(await harness.claim(), "done", records=(b"{}",))
    assert [it.count for it in await harness.queue.failures(["a", "b", "c"])] == [0, 1, 0]


async def test_a_success_that_is_told_with_other_outcomes_forgets_its_url(harness: QueueHarness) -> None:
    await fail(harness, "a")
    run = await harness.run(key="mixed")
    await harness.add(run, "a b c")
    tasks = {task.url: task for task in (await harness.claim()).tasks}
    await harness.settle(tasks["b"], "cancelled", cause="robots")
    await harness.settle(tasks["a"], "done", found=(page("d"),))
    await harness.settle(tasks["c"], "dead", **failed("http.404"))
    assert [it.count for it in await harness.queue.failures(["a", "b", "c"])] == [0, 0, 1]


async def test_what_was_cancelled_forgets_nothing(harness: QueueHarness) -> None:
    await fail(harness)
    run = await harness.run(key="other")
    await harness.add(run, "p")
    await harness.settle(await harness.one(), "cancelled", cause="robots")
    assert (await remembered(harness)).count == 1


async def test_reviving_a_dead_letter_forgets_the_failures_of_its_url(harness: QueueHarness) -> None:
    await fail(harness, "other")
    run = await fail(harness)
    await harness.queue.revive(run)
    assert [it.count for it in await harness.queue.failures(["p", "other"])] == [0, 1]
    await harness.settle(await harness.one(), "dead", **failed("http.404"))
    assert (await remembered(harness)).causes == {"http.404": 1}


async def test_failures_outlive_their_run(harness: QueueHarness) -> None:
    run = await fail(harness)
    await harness.queue.drop(run, state="dead")
    await harness.queue.purge(run=run)
    await harness.reopen()
    assert (await remembered(harness)).count == 1


@pytest.mark.parametrize("options", [RequestOptions(method="POST"), RequestOptions(body=b"q=1")])
async def test_what_is_sent_to_a_form_says_nothing_of_its_url(harness: QueueHarness, options: RequestOptions) -> None:
    await fail(harness, request_options=options)
    assert (await remembered(harness)).count == 0
    await fail(harness, request_options=RequestOptions(session="a"))
    run = await harness.run(key="form")
    await harness.add(run, [page("p", request_options=options, meta={"method": "POST"})])
    await harness.settle(await harness.one())
    assert (await remembered(harness)).count == 1


async def test_typed_tasks_have_no_url_to_fail(harness: QueueHarness) -> None:
    await fail(harness, "task:mail/1")
    assert (await remembered(harness, "task:mail/1")).count == 0


async def test_failures_are_forgotten_a_while_after_the_last(harness: QueueHarness) -> None:
    await fail(harness)
    await harness.advance(failing.KEPT_SECONDS - 1)
    await harness.queue.reap()
    assert (await remembered(harness)).count == 1
    await harness.advance(1)
    await harness.queue.reap()
    assert (await remembered(harness)).count == 0


async def test_only_the_last_failures_of_a_queue_are_remembered(
    harness: QueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failing, "MAX_REMEMBERED", 3)
    for url in "abacd":
        await fail(harness, url)
    await harness.queue.reap()
    assert [it.count for it in await harness.queue.failures(list("abcd"))] == [2, 0, 1, 1]


async def test_many_causes_of_one_url_are_summed_up(harness: QueueHarness) -> None:
    for number in range(failing.MAX_CAUSES + 3):
        await fail(harness, cause=f"handler.Error{number}" + "x" * 200)
    about = await remembered(harness)
    assert (about.count, len(about.causes), about.causes["other"]) == (
        failing.MAX_CAUSES + 3, failing.MAX_CAUSES + 1, 3,
    )  # fmt: skip
    assert max(map(len, about.causes)) == failing.MAX_CAUSE_LETTERS


async def test_failures_can_be_forgotten_by_url_and_altogether(harness: QueueHarness) -> None:
    for url in "abc":
        await fail(harness, url)
    assert await harness.queue.forget_failures(["b", "none"]) == 1
    assert [it.count for it in await harness.queue.failures(list("abc"))] == [1, 0, 1]
    assert await harness.queue.forget_failures() == 2
    assert [it.count for it in await harness.queue.failures(list("abc"))] == [0, 0, 0]


async def test_a_dead_letter_that_is_moved_here_is_no_new_failure(harness: QueueHarness) -> None:
    source = await fail(harness)
    exported = await harness.queue.export_run(source)
    assert [it.state for it in exported] == ["dead"]
    target = await harness.run(key="moved")
    await harness.queue.set_run(target, "pause")
    await harness.queue.import_run(target, exported)
    assert ((await harness.stats(target)).dead, (await remembered(harness)).count) == (1, 1)
