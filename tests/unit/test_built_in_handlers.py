"""Kinds of tasks that shoal handles itself: fetched like pages, whatever the scraper does with its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pipeline_harness import HOME, PipelineHarness, html

from shoal.core.task_kind import is_fetched
from shoal.core.typed_task import Task
from shoal.errors import UsageError
from shoal.extract.page import Page
from shoal.politeness.robots import RobotsVerdict
from shoal.worker.task.built_in_handlers import BUILT_IN_HANDLERS

LIST = "page:list"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> PipelineHarness:
    def urls_of_lines(page: Page) -> Iterator[Any]:
        yield page.follow(page.text.split())

    monkeypatch.setitem(BUILT_IN_HANDLERS, LIST, urls_of_lines)
    made = PipelineHarness()
    made.handler(lambda page: {"title": "of the scraper"})
    made.answers[HOME] = html("/one /two")
    return made


async def test_a_built_in_kind_is_fetched_politely_and_its_links_become_tasks(harness: PipelineHarness) -> None:
    outcome = await harness.run(kind=LIST, spacing=1.0, start_at=50.0)  # its slot has passed
    assert harness.calls == ["slot a.test", HOME]
    assert outcome.result == "done" and not outcome.records
    assert [task.url for task in outcome.found] == [f"{HOME}one", f"{HOME}two"]


async def test_the_scraper_still_has_its_pages(harness: PipelineHarness) -> None:
    outcome = await harness.run()
    assert outcome.records == (b'{"title":"of the scraper"}',)


async def test_robots_txt_holds_for_a_built_in_kind(harness: PipelineHarness) -> None:
    harness.verdicts["a.test"] = RobotsVerdict(False)
    outcome = await harness.run(kind=LIST)
    assert (outcome.result, outcome.cause, harness.calls) == ("dead", "robots", [])


async def test_a_kind_of_a_newer_version_becomes_a_dead_letter_that_says_so(harness: PipelineHarness) -> None:
    outcome = await harness.run(kind="page:of-tomorrow")
    assert (outcome.result, outcome.cause) == ("dead", "no_handler")
    assert outcome.attempt is not None and "page:of-tomorrow" in outcome.attempt.message


@pytest.mark.parametrize(("kind", "fetched"), [("page", True), (LIST, True), ("pages", False), ("resize", False)])
def test_kinds_that_are_fetched(kind: str, fetched: bool) -> None:
    assert is_fetched(kind) is fetched


@pytest.mark.parametrize("name", ["page", LIST])
def test_no_typed_task_can_pass_for_a_fetched_one(name: str) -> None:
    with pytest.raises(UsageError):
        Task(type=name)
