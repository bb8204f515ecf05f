"""Why: the whole story of one address, and what keeps it from being fetched this second."""

from __future__ import annotations

import msgspec

from shoal.config import Settings
from shoal.core.lane import LaneState
from shoal.core.run import Run, run_of
from shoal.core.task import band, digest
from shoal.core.typed import PREFIX
from shoal.core.url import canonical, request_digest
from shoal.errors import InvalidUrl
from shoal.queue.base import Queue, TaskView, Where
from shoal.view.hosts import spacing_words
from shoal.view.standing import again_hint, living, standing
from shoal.view.words import ago, count, held_words, lasting

MAX_CHAIN = 100
MAX_AHEAD = 10_000
PAGE = 1000
SAMPLES = 100_000  # of refused links, more than any queue keeps of a run
BIGGEST = 2**63 - 1
RULES = {
    "robots": "robots.txt of its host asks not to fetch it (--ignore-robots)",
    "scope": "its host is not one of the scraper's (hosts=[…])",
    "depth": "it is farther from the start than --max-depth",
    "invalid": "it is not an address that can be fetched",
}


class Answer(msgspec.Struct, frozen=True):
    """Everything there is to say about one address."""

    run: Run
    task: TaskView | None
    now: int
    reason: str  # why it is not being fetched this second
    chain: tuple[TaskView, ...] = ()  # who found it: parent first, start URL last
    skipped: tuple[str, ...] = ()  # reasons for which links to it were not followed
    run_state: str = ""  # for people
    url: str = ""


def address(word: str) -> str:
    """An address as it is known; that of a typed task, or a number, as it is."""
    if word.startswith(PREFIX) or word.isdecimal():
        return word
    try:
        return canonical(word)
    except InvalidUrl:
        if "://" in word:
            raise
        return canonical("http://" + word)


async def run_of_task(queue: Queue, id: int) -> tuple[Run, TaskView] | None:
    """A task by its id, and its run."""
    if not 0 < id <= BIGGEST:
        return None
    number = run_of(id)
    runs = await queue.runs(before=number + 1, limit=1)
    if not runs or runs[0].id != number:
        return None
    found = await queue.look(number, where=Where(ids=(id,)), limit=1)
    return (runs[0], found[0]) if found else None


async def explain_id(
    queue: Queue, settings: Settings, id: int, *, most_ahead: int = MAX_AHEAD
) -> Answer | None:
    """All that is known of a task; None if there is none with this id."""
    found = await run_of_task(queue, id)
    if found is None:
        return None
    return await _answer(queue, settings, *found, most_ahead)


async def explain(
    queue: Queue, settings: Settings, run: Run, url: str, *, most_ahead: int = MAX_AHEAD
) -> Answer:
    """Gather all that is known of an address in a run."""
    task = await queue.find(run.id, digest(url) if url.startswith(PREFIX) else request_digest(url))
    if task is not None:
        made = await _answer(queue, settings, run, task, most_ahead)
        return msgspec.structs.replace(made, url=url)
    now = await queue.now()
    samples = await queue.skipped(run.id, limit=SAMPLES)
    reasons = tuple(reason for reason, link in samples if link == url)
    words = await _refused(queue, run, reasons, len(samples))
    return Answer(run, None, now, words, skipped=reasons, url=url)


async def _answer(queue: Queue, settings: Settings, run: Run, task: TaskView, most: int) -> Answer:
    now = await queue.now()
    lanes = await queue.lanes(names=(task.lane,), limit=1) if task.lane else []
    ahead = await _ahead(queue, run, task, most) if task.state == "ready" else 0
    alive = bool(await living(queue, settings, run))
    again = "" if alive else again_hint(settings, run)
    return Answer(
        run=run,
        task=task,
        now=now,
        reason=reason(run, task, lanes[0] if lanes else None, now, ahead, again, most=most),
        chain=await _chain(queue, run, task),
        run_state=await standing(queue, settings, run),
        url=task.url,
    )


async def _refused(queue: Queue, run: Run, reasons: tuple[str, ...], kept: int) -> str:
    if reasons:
        rule = RULES.get(reasons[0], "")
        return f"never asked for: links to it were refused ({reasons[0]})" + (f"; {rule}" if rule else "")
    words = f"never seen: no page of run {run.name} linked to it, and it was no start address"
    refused = sum((await queue.stats(run.id)).skipped.values())
    if refused > kept:
        words += f"; or a rule refused it: of {count(refused)} such links only {count(kept)} are kept"
    return words


def reason(
    run: Run,
    task: TaskView,
    lane: LaneState | None,
    now: int,
    ahead: int,
    again: str,
    *,
    most: int = MAX_AHEAD,
) -> str:
    """Why a task is not being fetched this second; the first that holds is said.

    again: how to go on with the run, where nobody works on it. most: `ahead` was not counted further.
    """
    if task.state == "done":
        return f"it is done, {ago(task.finished_at, now)}"
    if task.state == "dead":
        return f"it failed for good: {task.cause}; shoal revive puts it back to work"
    if task.state == "cancelled":
        return f"it was given up: {task.cause or 'the run was cancelled'}"
    if task.state == "leased":
        left = (task.leased_until - now) / 1e6
        if left < 0:
            return f"worker {task.worker} had it and fell silent; it is given back within seconds"
        return f"worker {task.worker} has it, and has {lasting(left)} to report again"
    if run.state != "running":
        return f"the run is {run.state}: shoal resume {run.name} lets it go on"
    if task.due_at > now:
        last = task.history[-1].cause if task.history else ""
        after = f" after {last}" if last else ""
        return f"it is to be tried again in {lasting((task.due_at - now) / 1e6)}{after}"
    return _lane_reason(lane, now, ahead, most) or (
        f"nobody works on the run; {again}" if again else "it is next: any worker may take it now"
    )


def _lane_reason(lane: LaneState | None, now: int, ahead: int, most: int) -> str:
    if lane is None:
        return ""
    if lane.held_until > now:
        word = "parked" if lane.parked else "held back"
        because = f": {lane.reason}" if lane.reason else ""
        return f"its host {lane.name} is {word} {held_words(lane, now)}{because}"
    if lane.max_in_flight and lane.in_flight >= lane.max_in_flight:
        return f"its host {lane.name} has all {lane.max_in_flight} requests it may have under way"
    if ahead or lane.next_at > now:
        words = f"{count(ahead)} before it" if ahead < most else f"more than {count(ahead)} before it"
        if not lane.spacing:
            return f"it waits for its turn at {lane.name}: {words}"
        words = words if ahead else "it is next"
        wait = ahead * lane.spacing + max(0.0, (lane.next_at - now) / 1e6)
        pace = f"one every {spacing_words(lane.spacing)}"
        return f"it waits for its turn at {lane.name}: {words}, {pace}, so about {lasting(wait)}"
    return ""


async def _ahead(queue: Queue, run: Run, task: TaskView, most: int) -> int:
    """How many of its host are handed out before it: higher bands, and older ones of its own."""
    ahead = after = seen = 0
    while seen < most:
        page = await queue.look(run.id, state="ready", where=Where(lane=task.lane), after=after, limit=PAGE)
        seen += len(page)
        for other in page:
            if (band(other.priority), other.id) < (band(task.priority), task.id):
                ahead += 1
        if len(page) < PAGE:
            return min(ahead, most)
        after = page[-1].id
    return min(ahead, most)


async def _chain(queue: Queue, run: Run, task: TaskView) -> tuple[TaskView, ...]:
    chain: list[TaskView] = []
    parent = task.parent
    while parent is not None and len(chain) < MAX_CHAIN:
        found = await queue.look(run.id, where=Where(ids=(parent,)), limit=1)
        if not found:
            break
        chain.append(found[0])
        parent = found[0].parent
    return tuple(chain)
