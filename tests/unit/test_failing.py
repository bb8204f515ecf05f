"""What is remembered of URLs that failed, in words, as a filter and as a rule of runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal.core.failing import MAX_CAUSES, OTHER, is_counted, with_failure
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome, RequestOptions, Task, digest
from shoal.core.url import request_digest
from shoal.queue.base import Queue, TaskFilter, UrlFailures
from shoal.runs.start import AddedTasks, add_tasks, in_batches
from shoal.view.dead_letters import dead_letter_groups, dead_letters
from shoal.view.why import failures_words

HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("url", "options", "counted"),
    [
        ("https://a.example/", None, True),
        ("https://a.example/", RequestOptions(session="a", headers=(("A", "b"),)), True),
        ("https://a.example/", RequestOptions(method="POST"), False),
        ("https://a.example/", RequestOptions(body=b""), False),
        ("task:mail/1", None, False),
    ],
)
def test_failures_count_for_the_page_at_a_url(url: str, options: RequestOptions | None, counted: bool) -> None:
    assert is_counted(url, options) is counted


def test_causes_beyond_the_first_are_summed_up() -> None:
    causes: dict[str, int] = {}
    for number in range(MAX_CAUSES + 2):
        causes = with_failure(causes, f"http.{number}")
    assert (len(causes), causes[OTHER], with_failure(causes, "http.0")["http.0"]) == (MAX_CAUSES + 1, 2, 2)


def test_why_says_how_often_and_how_a_url_failed() -> None:
    about = UrlFailures(3, {"http.500": 1, "timeout.connect": 2}, HOUR)
    assert failures_words(about, 3 * HOUR) == "3 times in all runs: timeout.connect ×2, http.500 ×1, last 2h00 ago"
    assert failures_words(UrlFailures(1, {"http.404": 1}, HOUR), HOUR).startswith(
        "1 time in all runs: http.404 ×1, last"
    )


async def _fail(queue: Queue, key: str, urls: Sequence[str]) -> Run:
    run = await queue.start_run(NewRun("list", key, key))
    tasks = [Task(url, "a.example", request_digest(url)) for url in urls]
    await queue.add(run.id, tasks, {"a.example": UNLIMITED_PACE})
    claim = await queue.claim("w", 10)
    await queue.settle([Outcome(it.id, it.lease, "dead", cause="http.500") for it in claim.tasks])
    return run


async def test_dead_letters_are_found_by_how_often_their_url_failed(queue: Queue) -> None:
    await _fail(queue, "one", ["https://a.example/1"])
    run = await _fail(queue, "two", ["https://a.example/1", "https://a.example/2"])

    async def found(failures: int, limit: int = 10) -> list[str]:
        return [it.url async for it in dead_letters(queue, run.id, TaskFilter(), limit, failures=failures)]

    assert await found(2) == ["https://a.example/1"]
    assert (len(await found(1)), len(await found(1, 1)), await found(3)) == (2, 1, [])
    assert [group.count for group in await dead_letter_groups(queue, run.id, failures=2)] == [1]


@pytest.mark.parametrize(
    ("settings", "added"),
    [({"skip_failing": 1}, AddedTasks(added=2, failing=1)), ({}, AddedTasks(added=3)), ("odd", AddedTasks(added=3))],
)
async def test_a_run_that_says_so_leaves_out_what_failed_before_but_for_its_own_start_urls(
    queue: Queue, settings: object, added: AddedTasks
) -> None:
    await _fail(queue, "one", ["https://a.example/1", "https://a.example/2"])
    run = await queue.start_run(NewRun("list", "two", "two", spec={"settings": settings}))
    tasks = [Task(f"https://a.example/{n}", "a.example", digest(str(n)), revisit=n == 2) for n in (1, 2, 3)]
    assert await add_tasks(queue, run, in_batches(tasks, {})) == added
