"""Pages with fetch="auto", for people: how they were fetched, what is known of their shapes, and what that saves."""

from __future__ import annotations

import msgspec

from shoal.core.fetch_choice import ShapeState, choose, label
from shoal.core.fetch_knowledge import reader_name
from shoal.core.fetch_shape import fetch_shape
from shoal.core.lane import host_of_lane
from shoal.core.run import Run
from shoal.core.run_counters import AutoUsage
from shoal.core.task_kind import handler_of, is_fetched
from shoal.queue.base import Queue, TaskView
from shoal.queue.fetch_knowledge import load_knowledge
from shoal.view.formatting import ago, count, format_duration

MAX_SHOWN = 30  # shapes of a host
PAGE_CPU_SECONDS = 0.3  # of a page in a browser beyond one by HTTP, as bench/auto.py has it
_VERDICTS = {"": "not known yet", "http": "complete by HTTP", "browser": "need a browser"}


class ShapeView(msgspec.Struct, frozen=True):
    reader: str
    shape: str
    state: ShapeState

    @property
    def verdict(self) -> str:
        return _VERDICTS[label(self.state)]

    @property
    def next_words(self) -> str:
        """When both ways are compared again."""
        if choose(self.state) == "compare":
            return "with the next page"
        return f"in {count(self.state.interval - self.state.since, 'page')}"


class HostFetching(msgspec.Struct, frozen=True):
    """What is known of the pages of a host, the most fetched first, and how often no browser was needed."""

    shapes: tuple[ShapeView, ...]
    more: int  # shapes that are not shown
    avoided: int  # pages that were fetched by HTTP alone

    @property
    def saved_words(self) -> str:
        if not self.avoided:
            return "no page was fetched without a browser yet"
        saved = format_duration(self.avoided * PAGE_CPU_SECONDS)
        return f"{count(self.avoided, 'page')} fetched without a browser: about {saved} of processor time saved"


async def host_fetching(queue: Queue, lane: str) -> HostFetching | None:
    """None where nothing was learned."""
    known = [
        ShapeView(reader, shape, state)
        for (reader, shape), state in (await load_knowledge(queue, host_of_lane(lane))).items()
    ]
    if not known:
        return None
    known.sort(key=lambda one: (-(one.state.http + one.state.browser + one.state.compared), one.reader, one.shape))
    avoided = sum(one.state.http for one in known)
    return HostFetching(tuple(known[:MAX_SHOWN]), max(0, len(known) - MAX_SHOWN), avoided)


async def fetch_words(queue: Queue, run: Run, task: TaskView, now: int) -> str:
    """With what the pages of a task's shape are fetched, and why; empty where nothing was learned of them."""
    if not is_fetched(task.kind):
        return ""
    knowledge = await load_knowledge(queue, host_of_lane(task.lane))
    reader = reader_name(run.scraper, handler_of(task.kind))
    shape = fetch_shape(task.url, {shape for who, shape in knowledge if who == reader})
    state = knowledge.get((reader, shape))
    if state is None:
        return ""
    verdict = f"pages like {shape} {'are ' if label(state) != 'browser' else ''}{_VERDICTS[label(state)]}"
    return f"auto: {verdict} ({count(state.compared, 'comparison')}, the last {ago(state.compared_at, now)})"


def describe_auto(usage: AutoUsage) -> str:
    """How the pages of a run were fetched."""
    parts = [
        f"{words} {count(number)}"
        for words, number in (
            ("by HTTP", usage.http),
            ("by the browser", usage.browser),
            ("by both", usage.compared),
            ("handed on", usage.handed_on),
        )
        if number
    ]
    return " · ".join([*parts, *([no_browser_words(usage)] if usage.no_browser else [])])


def no_browser_words(usage: AutoUsage) -> str:
    """What to do where pages were fetched by HTTP whether that is enough or not."""
    pages = count(usage.no_browser, "page")
    return f"{pages} by HTTP although they may need a browser: no worker had one; start one with --has browser"
