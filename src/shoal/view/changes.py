"""Changes: what a run found changed, new and gone since the run before it, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import msgspec

from shoal.core.page_memory import PageHead, unpack_body, unpack_head
from shoal.core.run import Run
from shoal.core.run_counters import page_changes
from shoal.queue.base import PageState, Queue
from shoal.queue.previous_run import previous_run
from shoal.view.formatting import count

ListedChange = Literal["new", "changed", "gone", "failed"]
LISTED: tuple[ListedChange, ...] = ("changed", "new", "gone", "failed")
SLICE = 500  # pages looked at together
BODIES = 50  # pages whose records are compared together
MAX_FAILED = 10_000  # dead letters that are looked at to tell what has failed from what has gone

_Output = tuple[list[bytes], list[Any]]  # records and links, as a page gave them
_decode_output = msgspec.msgpack.Decoder(_Output).decode


class ChangeCounts(msgspec.Struct, frozen=True):
    """Pages of a run by what became of them since the run before."""

    previous: str  # the run before; "": there was none
    unchanged: int
    changed: int
    new: int
    gone: int | None  # None: not known of a run that has not seen everything, or has nothing before it
    failed: int  # known pages that could not be fetched this time
    not_modified: int = 0
    not_asked: int = 0


class PageChange(msgspec.Struct, frozen=True, omit_defaults=True):
    change: ListedChange
    url: str
    records: int = 0
    records_before: int = 0
    fields: tuple[str, ...] = ()  # of its records that differ
    links_changed: bool = False


class ChangesPage(msgspec.Struct, frozen=True):
    """Some of the changes, and where to go on; 0: that was all."""

    changes: tuple[PageChange, ...]
    next: int


async def count_changes(queue: Queue, run: Run) -> ChangeCounts | None:
    """None for a run that does not compare its pages."""
    counted = page_changes(await queue.run_counters(run.id))
    settings = run.spec.get("settings")
    if not counted.pages and not (isinstance(settings, dict) and settings.get("changed_only")):
        return None
    previous = await previous_run(queue, run)
    failed = await _count_failed(queue, run) if previous is not None else 0
    gone = None
    if previous is not None and await _has_seen_all(queue, run):
        before = page_changes(await queue.run_counters(previous.id)).pages + await _count_failed(queue, previous)
        gone = max(0, before - counted.unchanged - counted.changed - failed)
    return ChangeCounts(
        previous.name if previous is not None else "", counted.unchanged, counted.changed, counted.new, gone, failed,
        counted.not_modified, counted.not_asked,
    )  # fmt: skip


async def _has_seen_all(queue: Queue, run: Run) -> bool:
    """Whether what a run has not met is not there; one that its page limit ended has not met everything."""
    if run.state != "finished":
        return False
    return not run.max_pages or not (await queue.stats_of([run.id]))[0].cancelled


async def _count_failed(queue: Queue, run: Run) -> int:
    """Dead letters that are pages the run before had."""
    total, after = 0, 0
    for _ in range(0, MAX_FAILED, SLICE):
        letters = await queue.list_tasks(run.id, state="dead", after=after, limit=SLICE)
        if not letters:
            break
        heads = await _heads(queue, run, [letter.id for letter in letters])
        total += sum(head.change == "failed" for head in heads.values())
        after = letters[-1].id
    return total


def describe_changes(counts: ChangeCounts) -> str:
    """ "9,870 unchanged, 112 changed, 18 new, 6 gone"; of a first run, that it is there to be compared with."""
    if not counts.previous and not counts.new:
        return ""
    if not counts.previous:
        return f"{count(counts.new, 'page')} remembered: the next run with --changed-only is compared with this one"
    words = [f"{count(counts.unchanged)} unchanged", f"{count(counts.changed)} changed", f"{count(counts.new)} new"]
    if counts.gone is not None:
        words.append(f"{count(counts.gone)} gone")
    if counts.failed:
        words.append(f"{count(counts.failed)} failed")
    return ", ".join(words)


async def read_changes(queue: Queue, run: Run, previous: Run | None, *, after: int = 0) -> ChangesPage:
    """What a slice of the pages comes to: those of this run first, then those of the run before.

    after: the last page that was looked at, by the id of its task; both runs' ids say whose it is.
    """
    if previous is None:
        return ChangesPage((), 0)
    if after >> 32 != previous.id:
        states = await queue.page_states(run.id, after=after, limit=SLICE)
        found = await _own_changes(queue, run, previous, states)
        return ChangesPage(tuple(found), states[-1].task if len(states) == SLICE else previous.id << 32)
    states = await queue.page_states(previous.id, after=after, limit=SLICE)
    found = await _gone(queue, run, states) if await _has_seen_all(queue, run) else []
    return ChangesPage(tuple(found), states[-1].task if len(states) == SLICE else 0)


async def all_changes(queue: Queue, run: Run) -> AsyncIterator[PageChange]:
    previous, after = await previous_run(queue, run), 0
    while True:
        page = await read_changes(queue, run, previous, after=after)
        for change in page.changes:
            yield change
        if not page.next:
            return
        after = page.next


async def _own_changes(queue: Queue, run: Run, previous: Run, states: Sequence[PageState]) -> list[PageChange]:
    changed: dict[bytes, int] = {}
    found: list[PageChange] = []
    for state in states:
        head = unpack_head(state.head)
        if head is None or head.change == "unchanged":
            continue
        if head.change == "changed":
            changed[head.digest] = state.task
        else:
            found.append(PageChange(head.change, head.task_url))
    digests = list(changed)
    for at in range(0, len(digests), BODIES):
        some = digests[at : at + BODIES]
        now = await _whole(queue, run, [changed[digest] for digest in some])
        former = await _whole(queue, previous, [id for id in await queue.ids(previous.id, some) if id])
        found += [_difference(head, body, former.get(digest)) for digest, (head, body) in now.items()]
    return found


async def _gone(queue: Queue, run: Run, states: Sequence[PageState]) -> list[PageChange]:
    heads = [head for state in states if (head := unpack_head(state.head)) is not None]
    tasks = await queue.ids(run.id, [head.digest for head in heads])
    known = await _heads(queue, run, [task for task in tasks if task])
    return [PageChange("gone", head.task_url) for head in heads if head.digest not in known]


async def _heads(queue: Queue, run: Run, tasks: Sequence[int]) -> dict[bytes, PageHead]:
    states = await queue.page_states(run.id, tasks=tasks, limit=len(tasks)) if tasks else []
    return {head.digest: head for state in states if (head := unpack_head(state.head)) is not None}


async def _whole(queue: Queue, run: Run, tasks: Sequence[int]) -> dict[bytes, tuple[PageHead, bytes]]:
    states = await queue.page_states(run.id, tasks=tasks, limit=len(tasks), whole=True) if tasks else []
    return {head.digest: (head, it.body) for it in states if (head := unpack_head(it.head)) is not None}


def _difference(head: PageHead, body: bytes, former: tuple[PageHead, bytes] | None) -> PageChange:
    now = unpack_body(body, _decode_output)
    was = unpack_body(former[1], _decode_output) if former is not None else None
    if now is None or was is None:  # it was too large to be remembered
        return PageChange("changed", head.task_url, records=len(now[0]) if now else 0)
    return PageChange(
        "changed", head.task_url, len(now[0]), len(was[0]), _changed_fields(now[0], was[0]), now[1] != was[1]
    )  # fmt: skip


def _changed_fields(now: Sequence[bytes], was: Sequence[bytes]) -> tuple[str, ...]:
    """The fields in which records differ, as they come; of pages with more or fewer records none can be named."""
    if len(now) != len(was):
        return ()
    names: dict[str, None] = {}
    for one, other in zip(map(_fields, now), map(_fields, was), strict=True):
        names |= {name: None for name in (*one, *other) if one.get(name, _MISSING) != other.get(name, _MISSING)}
    return tuple(names)


_MISSING = object()


def _fields(record: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(record, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
