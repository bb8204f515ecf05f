"""Why: the whole story of one URL, and what keeps it from being fetched this second."""

from __future__ import annotations

import msgspec

from shoal.config.load import Settings
from shoal.core.lane import CACHE_PREFIX, LaneState
from shoal.core.needs import shown
from shoal.core.run import Run, run_of
from shoal.core.sitemap import SITEMAP
from shoal.core.task import DISCARDED, band, built_in_digest, digest
from shoal.core.typed_task import TYPE_PREFIX
from shoal.core.url import canonical, request_digest
from shoal.errors import InvalidUrl
from shoal.queue.base import MAX_OUTBOX_PER_RUN, Queue, TaskFilter, TaskView, UrlFailures
from shoal.runs.host_limits import find_host_limits
from shoal.runs.missing_capabilities import find_missing, no_worker_has
from shoal.view.auto_fetch import fetch_words
from shoal.view.blocks import task_block_words
from shoal.view.formatting import ago, count, format_duration, format_hold, format_host_limit, format_pace
from shoal.view.run_state import display_state, live_workers_for_run, resume_hint
from shoal.view.status import outbox_words

MAX_CHAIN = 100
MAX_AHEAD = 10_000
PAGE = 1000
MAX_SKIPPED = 100_000  # of refused links, more than any queue keeps of a run
MAX_SEARCHED = 100_000  # tasks of a run; of a larger one only those that failed are searched for a URL
MAX_OTHERS = 20
MAX_ID = 2**63 - 1
SKIP_RULES = {
    "robots": "robots.txt of its host disallows it (--ignore-robots)",
    "scope": "its host is not one of the scraper's (hosts=[…])",
    "depth": "it is farther from the start than --max-depth",
    "lastmod": "its sitemap says that it has not changed since --sitemap-since",
    "invalid": "it is not a URL that can be fetched",
    "failing": "it failed too often before (--skip-failing; shoal failures forget URL)",
    "no_handler": "no pattern of the scraper matches it (@….page, or match in a template)",
}


class Explanation(msgspec.Struct, frozen=True):
    """Everything there is to say about one URL."""

    run: Run
    task: TaskView | None
    now: int
    reason: str  # why it is not being fetched this second
    chain: tuple[TaskView, ...] = ()  # who found it: parent first, start URL last
    skipped: tuple[str, ...] = ()  # reasons for which links to it were not followed
    run_state: str = ""  # for people
    url: str = ""
    others: tuple[TaskView, ...] = ()  # further tasks with this URL: for other handlers, or asked for again
    failures: UrlFailures = UrlFailures()  # in all runs, since it last went well
    blocks: str = ""  # how much of its host is blocked, if it was
    fetch: str = ""  # with what pages like it are fetched, where that was learned


def normalize_url(word: str) -> str:
    """A URL as it is known; that of a typed task, or a number, as it is."""
    if word.startswith(TYPE_PREFIX) or word.isdecimal():
        return word
    try:
        return canonical(word)
    except InvalidUrl:
        if "://" in word:
            raise
        return canonical("http://" + word)


async def find_task(queue: Queue, id: int) -> tuple[Run, TaskView] | None:
    """A task by its id, and its run."""
    if not 0 < id <= MAX_ID:
        return None
    number = run_of(id)
    runs = await queue.runs(before=number + 1, limit=1)
    if not runs or runs[0].id != number:
        return None
    found = await queue.list_tasks(number, where=TaskFilter(ids=(id,)), limit=1)
    return (runs[0], found[0]) if found else None


async def explain_task(queue: Queue, settings: Settings, id: int, *, most_ahead: int = MAX_AHEAD) -> Explanation | None:
    """All that is known of a task; None if there is none with this id."""
    found = await find_task(queue, id)
    if found is None:
        return None
    return await _explain(queue, settings, *found, most_ahead)


async def explain_url(
    queue: Queue, settings: Settings, run: Run, url: str, *, most_ahead: int = MAX_AHEAD
) -> Explanation:
    """Gather all that is known of a URL in a run."""
    if tasks := await tasks_with_url(queue, run, url):
        made = await _explain(queue, settings, run, tasks[0], most_ahead)
        return msgspec.structs.replace(made, url=url, others=tuple(tasks[1:]))
    now = await queue.now()
    samples = await queue.skipped(run.id, limit=MAX_SKIPPED)
    reasons = tuple(reason for reason, link in samples if link == url)
    words = await _not_seen_reason(queue, run, reasons, len(samples))
    return Explanation(run, None, now, words, skipped=reasons, url=url, failures=await _failures(queue, url))


async def _failures(queue: Queue, url: str) -> UrlFailures:
    (about,) = await queue.failures([url])
    return about


def failures_words(about: UrlFailures, now: int) -> str:
    """How often and how a URL failed: "3 times: timeout.connect ×2, http.500 ×1, last 2h00 ago"."""
    causes = sorted(about.causes.items(), key=lambda item: (-item[1], item[0]))
    how = ", ".join(f"{cause} ×{number:,}" for cause, number in causes)
    return f"{count(about.count, 'time')} in all runs: {how}, last {ago(about.last_at, now)}"


async def tasks_with_url(queue: Queue, run: Run, url: str) -> list[TaskView]:
    """The plain request of a URL first, then those for a named handler, with a body, or asked for again."""
    plain = await queue.find(run.id, digest(url) if url.startswith(TYPE_PREFIX) else request_digest(url))
    found = [plain] if plain else []
    if url.startswith(TYPE_PREFIX):
        return found
    if sitemap := await queue.find(run.id, built_in_digest(SITEMAP, request_digest(url))):
        found.append(sitemap)
    small = (await queue.stats(run.id)).seen <= MAX_SEARCHED
    where = TaskFilter(url=url)
    named = await queue.list_tasks(run.id, state=None if small else "dead", where=where, limit=MAX_OTHERS)
    return found + [view for view in named if view.url == url and view.id not in {known.id for known in found}]


def describe_origin(task: TaskView) -> str:
    """Where a task comes from that no page is known to have found."""
    if task.cause == DISCARDED:
        return "unknown: of a dead letter that was removed only its identity is left"
    if task.parent is not None:
        return "a page of which nothing is left"
    if task.url.startswith(TYPE_PREFIX):
        return "none: a program enqueued it"
    return "none: it is a start URL"


async def _explain(queue: Queue, settings: Settings, run: Run, task: TaskView, most: int) -> Explanation:
    now = await queue.now()
    lanes = await queue.lanes(names=(task.lane,), limit=1) if task.lane else []
    ahead = await _count_ahead(queue, run, task, most) if task.state == "ready" else 0
    workers = await live_workers_for_run(queue, settings, run)
    again = "" if workers else resume_hint(settings, run)
    missing = bool(task.needs and find_missing({shown(task.needs): 1}, workers))
    reason = await _full_outbox_reason(queue, run, task) or waiting_reason(
        run, task, lanes[0] if lanes else None, now, ahead, again, most=most, missing=missing
    )
    if task.state == "ready":
        limits = await find_host_limits(queue, settings, run, lanes, now)
        reason = "; ".join([reason, *(format_host_limit(one, now) for one in limits if one.kind == "other_run")])
    return Explanation(
        run=run,
        task=task,
        now=now,
        reason=reason,
        chain=await _parent_chain(queue, run, task),
        run_state=await display_state(queue, settings, run),
        url=task.url,
        failures=await _failures(queue, task.url),
        blocks=await task_block_words(queue, task),
        fetch=await fetch_words(queue, run, task, now),
    )


async def _full_outbox_reason(queue: Queue, run: Run, task: TaskView) -> str:
    if task.state != "ready" or run.state != "running":
        return ""
    stats = await queue.stats(run.id)
    return outbox_words(stats) if stats.outbox >= MAX_OUTBOX_PER_RUN else ""


async def _not_seen_reason(queue: Queue, run: Run, reasons: tuple[str, ...], kept: int) -> str:
    if reasons:
        rule = SKIP_RULES.get(reasons[0], "")
        return f"never requested: links to it were refused ({reasons[0]})" + (f"; {rule}" if rule else "")
    words = f"never seen: no page of run {run.name} linked to it, and it is not a start URL"
    refused = sum((await queue.stats(run.id)).skipped.values())
    if refused > kept:
        words += f"; or a rule refused it: of {count(refused)} such links only {count(kept)} are kept"
    return words


def waiting_reason(
    run: Run,
    task: TaskView,
    lane: LaneState | None,
    now: int,
    ahead: int,
    again: str,
    *,
    most: int = MAX_AHEAD,
    missing: bool = False,
) -> str:
    """Why a task is not being fetched this second; the first that holds is said.

    again: how to go on with the run, where nobody works on it. most: `ahead` was not counted further.
    missing: no worker of the run has what it needs.
    """
    if task.state == "done":
        return f"it is done, {ago(task.finished_at, now)}"
    if task.state == "dead" and task.cause == DISCARDED:
        return "it failed permanently, and its dead letter was removed when its retention was over (--dead-retention)"
    if task.state == "dead":
        again = "; shoal revive requeues it" if run.can_revive else ""
        return f"it failed permanently: {task.cause}{again}"
    if task.state == "cancelled":
        return f"it was dropped: {task.cause or 'the run was cancelled'}"
    if task.state == "leased":
        left = (task.leased_until - now) / 1e6
        if left < 0:
            return f"worker {task.worker} had it and went silent; it is returned within seconds"
        return f"worker {task.worker} has it; its lease ends in {format_duration(left)}"
    if run.state != "running":
        return f"the run is {run.state}: shoal resume {run.name} resumes it"
    if task.due_at > now:
        last = task.history[-1].cause if task.history else ""
        after = f" after {last}" if last else ""
        return f"it is retried in {format_duration((task.due_at - now) / 1e6)}{after}"
    if missing and not again:
        return f"it needs {' and '.join(task.needs)}, {no_worker_has(task.needs)}"
    return _host_reason(lane, now, ahead, most) or _worker_reason(task, again)


def _worker_reason(task: TaskView, again: str) -> str:
    needs = " and ".join(task.needs)
    if again:
        return f"no worker serves the run; {again}" + (f"; the task needs {needs} (--has)" if needs else "")
    return f"it is next: any worker{f' that has {needs}' if needs else ''} may take it now"


def _host_reason(lane: LaneState | None, now: int, ahead: int, most: int) -> str:
    if lane is None:
        return ""
    if lane.name.startswith(CACHE_PREFIX):
        return f"its page was in the cache when it was added: it waits for no slot; {count(ahead)} before it"
    if lane.held_until > now:
        word = "parked" if lane.parked else "held back"
        because = f": {lane.reason}" if lane.reason else ""
        return f"its host {lane.name} is {word} {format_hold(lane, now)}{because}"
    if lane.max_in_flight and lane.in_flight >= lane.max_in_flight:
        return f"its host {lane.name} is at its limit of {lane.max_in_flight} requests in flight"
    if ahead or lane.next_at > now:
        words = f"{count(ahead)} before it" if ahead < most else f"more than {count(ahead)} before it"
        if not lane.spacing:
            return f"it waits for its turn at {lane.name}: {words}"
        words = words if ahead else "it is next"
        wait = ahead * lane.spacing + max(0.0, (lane.next_at - now) / 1e6)
        wait_words = f"{format_pace(lane.spacing)}, so about {format_duration(wait)}"
        return f"it waits for its turn at {lane.name}: {words}, {wait_words}"
    return ""


async def _count_ahead(queue: Queue, run: Run, task: TaskView, most: int) -> int:
    """How many of its host are handed out before it: higher bands, and older ones of its own."""
    ahead = after = seen = 0
    while seen < most:
        page = await queue.list_tasks(run.id, state="ready", where=TaskFilter(lane=task.lane), after=after, limit=PAGE)
        seen += len(page)
        for other in page:
            if (band(other.priority), other.id) < (band(task.priority), task.id):
                ahead += 1
        if len(page) < PAGE:
            return min(ahead, most)
        after = page[-1].id
    return min(ahead, most)


async def _parent_chain(queue: Queue, run: Run, task: TaskView) -> tuple[TaskView, ...]:
    chain: list[TaskView] = []
    parent = task.parent
    while parent is not None and len(chain) < MAX_CHAIN:
        found = await queue.list_tasks(run.id, where=TaskFilter(ids=(parent,)), limit=1)
        if not found:
            break
        chain.append(found[0])
        parent = found[0].parent
    return tuple(chain)
