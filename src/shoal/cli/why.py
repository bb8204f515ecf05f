"""shoal why URL."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import again_hint, living, pick, standing, with_queue
from shoal.cli.progress import held_words
from shoal.cli.show import (
    ago,
    clean,
    count,
    document,
    fields,
    lasting,
    line,
    moment,
    paint,
    size,
    stamp,
    table,
    wrapped,
)
from shoal.config import Settings
from shoal.core.lane import LaneState
from shoal.core.run import Run, run_of
from shoal.core.task import band, digest
from shoal.core.typed import PREFIX
from shoal.core.url import canonical, request_digest
from shoal.errors import InvalidUrl, Usage
from shoal.queue.base import Queue, TaskView, Where

MAX_CHAIN = 100
MAX_AHEAD = 10_000
ALL = 1_000_000
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


@click.command(
    cls=Command,
    examples="""
    shoal why http://shop.example/item/7
    shoal why http://shop.example/item/7 --run k3f --json
    shoal why 4294967297                        a task by its id
    """,
)
@click.argument("url")
@click.option("--run", "--run-id", "run", metavar="RUN", help="The run to look in; the newest unless given.")
@as_json
@click_options("look")
def why(settings: Settings, url: str, run: str | None, as_json: bool) -> int:
    """Say who found URL, what was tried, and why it is not being fetched this second."""
    url = _address(url)

    async def job(queue: Queue) -> int:
        chosen, address = await _meant(queue, run, url)
        answer = await explain(queue, settings, chosen, address)
        document(answer_document(answer, address)) if as_json else _show(answer, address)
        return 0 if answer.task or answer.skipped else 2

    return with_queue(settings, job)


async def _meant(queue: Queue, run: str | None, word: str) -> tuple[Run, str]:
    """The run and the address that somebody asks about, who may have given the id of a task."""
    if word.isdigit():
        id = int(word)
        found = await queue.look(run_of(id), where=Where(ids=(id,)), limit=1)
        chosen = next((one for one in await queue.runs(limit=ALL) if found and one.id == run_of(id)), None)
        if chosen is None:
            raise Usage(
                f"there is no task {word} in this queue", hint="it may have been removed after its time"
            )
        return chosen, found[0].url
    if word.startswith(PREFIX) and not run:
        scraper = word.partition("/")[0]
        newest = next((one for one in await queue.runs(limit=ALL) if one.scraper == scraper), None)
        if newest is not None:
            return newest, word
    return await pick(queue, run), word


def _identity(url: str) -> bytes:
    return digest(url) if url.startswith(PREFIX) else request_digest(url)


def _address(url: str) -> str:
    if url.startswith(PREFIX) or url.isdigit():
        return url
    try:
        return canonical(url)
    except InvalidUrl:
        if "://" in url:
            raise
        return canonical("http://" + url)


async def explain(queue: Queue, settings: Settings, run: Run, url: str) -> Answer:
    """Gather all that is known of an address in a run."""
    now = await queue.now()
    task = await queue.find(run.id, _identity(url))
    if task is None:
        reasons = tuple(reason for reason, link in await queue.skipped(run.id, limit=ALL) if link == url)
        words = await _refused(queue, run, reasons)
        return Answer(run, None, now, words, skipped=reasons)
    lane = next((lane for lane in await queue.lanes(limit=ALL) if lane.name == task.lane), None)
    ahead = await _ahead(queue, run, task) if task.state == "ready" else 0
    alive = bool(await living(queue, settings, run))
    return Answer(
        run=run,
        task=task,
        now=now,
        reason=reason(run, task, lane, now, ahead, "" if alive else again_hint(settings, run)),
        chain=await _chain(queue, run, task),
        run_state=await standing(queue, settings, run),
    )


async def _refused(queue: Queue, run: Run, reasons: tuple[str, ...]) -> str:
    if reasons:
        rule = RULES.get(reasons[0], "")
        return f"never asked for: links to it were refused ({reasons[0]})" + (f"; {rule}" if rule else "")
    words = f"never seen: no page of run {run.name} linked to it, and it was no start address"
    refused = sum((await queue.stats(run.id)).skipped.values())
    kept = len(await queue.skipped(run.id, limit=ALL))
    if refused > kept:
        words += f"; or a rule refused it: of {count(refused)} such links only {count(kept)} are kept"
    return words


def reason(run: Run, task: TaskView, lane: LaneState | None, now: int, ahead: int, again: str) -> str:
    """Why a task is not being fetched this second; the first that holds is said.

    again: how to go on with the run, where nobody works on it.
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
    return _lane_reason(lane, now, ahead) or (
        f"nobody works on the run; {again}" if again else "it is next: any worker may take it now"
    )


def _lane_reason(lane: LaneState | None, now: int, ahead: int) -> str:
    if lane is None:
        return ""
    if lane.held_until > now:
        word = "parked" if lane.parked else "held back"
        because = f": {lane.reason}" if lane.reason else ""
        return f"its host {lane.name} is {word} {held_words(lane, now)}{because}"
    if lane.max_in_flight and lane.in_flight >= lane.max_in_flight:
        return f"its host {lane.name} has all {lane.max_in_flight} requests it may have under way"
    if ahead or lane.next_at > now:
        words = f"{count(ahead)} before it" if ahead < MAX_AHEAD else f"more than {count(ahead)} before it"
        if not lane.spacing:
            return f"it waits for its turn at {lane.name}: {words}"
        words = words if ahead else "it is next"
        wait = ahead * lane.spacing + max(0.0, (lane.next_at - now) / 1e6)
        pace = f"one every {lasting(lane.spacing)}"
        return f"it waits for its turn at {lane.name}: {words}, {pace}, so about {lasting(wait)}"
    return ""


async def _ahead(queue: Queue, run: Run, task: TaskView) -> int:
    """How many of its host are handed out before it: higher bands, and older ones of its own."""
    ahead = after = 0
    while ahead < MAX_AHEAD:
        page = await queue.look(run.id, state="ready", where=Where(lane=task.lane), after=after, limit=1000)
        for other in page:
            if (band(other.priority), other.id) < (band(task.priority), task.id):
                ahead += 1
        if len(page) < 1000:
            return ahead
        after = page[-1].id
    return MAX_AHEAD


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


def _show(answer: Answer, url: str) -> None:
    task, now = answer.task, answer.now
    line(paint(clean(url), "bold"))
    if task is None:
        line(wrapped(f"  {clean(answer.reason)}", indent="  "))
        if not answer.skipped:
            line(f"  try: shoal why … --run RUN (shoal runs), or shoal status {answer.run.name}")
        return
    fields(
        [
            ("run", f"{answer.run.name} ({clean(answer.run.scraper)}), {answer.run_state}"),
            ("state", f"{task.state}{', ' + count(task.records, 'record') if task.records else ''}"),
            ("now", clean(answer.reason)),
            ("added", f"{moment(task.added_at)}, {ago(task.added_at, now)}" if task.added_at else "unknown"),
            ("depth", f"{task.depth}, priority {task.priority}, host {clean(task.lane)}"),
            ("found by", clean(answer.chain[0].url) if answer.chain else "nobody: it is a start address"),
            *[("", f"← {clean(view.url)}") for view in answer.chain[1:]],
        ]
    )
    if task.lost:
        line(f"  {count(task.lost, 'worker')} died while working on it")
    if task.history:
        line()
        rows = [
            (
                moment(attempt.at),
                attempt.worker,
                f"{attempt.seconds * 1000:,.0f} ms",
                attempt.status or "",
                size(attempt.size) if attempt.size else "",
                attempt.cause or "ok",
            )
            for attempt in task.history
        ]
        below = [[attempt.message] if attempt.message else [] for attempt in task.history]
        heads = ("attempt", "worker", "took", "status", "size", "result")
        table(heads, rows, right="took status size", below=below)
    if task.evidence and task.evidence.get("traceback"):
        line()
        for text in str(task.evidence["traceback"]).splitlines():
            line(f"  {clean(text)}")


def answer_document(answer: Answer, url: str) -> dict[str, Any]:
    task = answer.task
    return {
        "url": url,
        "run": answer.run.name,
        "run_state": answer.run.state,
        "state": task.state if task else "unknown",
        "reason": answer.reason,
        "skipped": list(answer.skipped),
        "host": task.lane if task else None,
        "depth": task.depth if task else None,
        "priority": task.priority if task else None,
        "added_at": stamp(task.added_at) if task else None,
        "due_at": stamp(task.due_at) if task else None,
        "finished_at": stamp(task.finished_at) if task else None,
        "worker": task.worker if task else None,
        "cause": task.cause if task else None,
        "records": task.records if task else 0,
        "lost": task.lost if task else 0,
        "found_by": [view.url for view in answer.chain],
        "attempts": [
            {
                "at": stamp(attempt.at),
                "worker": attempt.worker,
                "milliseconds": round(attempt.seconds * 1000, 1),
                "status": attempt.status,
                "bytes": attempt.size,
                "cause": attempt.cause,
                "message": attempt.message,
            }
            for attempt in (task.history if task else ())
        ],
        "evidence": task.evidence if task else None,
    }
