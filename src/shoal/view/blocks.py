"""Blocks for people: what a host gives in place of its pages, how much of a run is lost to it, and what to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from shoal.control.history import Series
from shoal.core.block_page import BLOCK_PAGE, BlockPage
from shoal.core.capability import BROWSER
from shoal.core.counters import decode
from shoal.core.host_blocks import SIGN_WORDS, WayCount
from shoal.core.lane import WorkerStatus, host_of_lane
from shoal.core.run_counters import BLOCK_HANDED_ON, BLOCK_ODD, BlockUsage, block_usage, noticed_usage
from shoal.queue.base import Queue, TaskView
from shoal.queue.host_blocks import find_evidence, load_blocks
from shoal.view.formatting import clean, count, format_duration, format_share
from shoal.view.metric_family import MetricFamily
from shoal.view.recommendation import Recommendation, RecommendedStep, host_step
from shoal.view.snapshot import Snapshot

RECENT_SECONDS = 600.0
MIN_BLOCKED, MIN_SHARE = 5, 0.02  # block pages, and their share of all attempts, before anybody is told
LOOK = "shoal hosts blocks HOST"
STATUS_WORDS = {"block": "a block page", "content": "what is at its URLs", "seen": "odd"}


class BlockPageView(msgspec.Struct, frozen=True):
    id: str
    verdict: str
    signs: str
    urls: int
    pages: int  # that were kept out for it
    leaked: int
    example: str
    first_at: int
    last_at: int
    has_evidence: bool
    is_block: bool


class HostBlocksView(msgspec.Struct, frozen=True):
    """Block pages of a host, the latest first, and how many came by which fetcher and exit."""

    host: str
    pages: tuple[BlockPageView, ...]
    ways: tuple[WayCount, ...]

    @property
    def words(self) -> str:
        return " · ".join(
            f"{count(way.blocked)} of {count(way.pages, 'page')} by {way.fetcher} {clean(way.exit)}"
            f" ({format_share(way.blocked, way.pages)})"
            for way in self.ways
            if way.blocked
        )


async def host_blocks(queue: Queue, lane: str) -> HostBlocksView | None:
    """None where nothing was found that is not as it should be."""
    host = host_of_lane(lane)
    document = await load_blocks(queue, host)
    found = [one for one in document.pages if one.status() != "seen"]
    if not found:
        return None
    views = [await _view(queue, host, one) for one in sorted(found, key=lambda one: -one.last_at)]
    return HostBlocksView(host, tuple(views), tuple(sorted(document.ways, key=lambda way: -way.blocked)))


async def _view(queue: Queue, host: str, page: BlockPage) -> BlockPageView:
    status = page.status()
    words = STATUS_WORDS[status] + (" (for good)" if page.is_for_good else "")
    return BlockPageView(
        page_name(page.id),
        words,
        ", ".join(text for sign, text in SIGN_WORDS if page.signs & sign),
        len(page.sightings),
        page.pages,
        page.leaked,
        clean(page.example),
        page.first_at * 1_000_000,
        page.last_at * 1_000_000,
        await find_evidence(queue, host, page.id) is not None,
        status == "block",
    )


def page_name(number: int) -> str:
    return f"{number:08x}"


def page_number(name: str) -> int:
    """The number of a block page by its name; -1 for what is no name of one."""
    is_name = len(name) == 8 and all(letter in "0123456789abcdef" for letter in name)
    return int(name, 16) if is_name else -1


def block_document(found: HostBlocksView | None) -> dict[str, Any]:
    pages = [msgspec.to_builtins(one) for one in found.pages] if found else []
    return {"pages": pages, "ways": msgspec.to_builtins(found.ways) if found else []}


async def task_block_words(queue: Queue, task: TaskView) -> str:
    """How much of its host is blocked, for a task to which that has happened; else empty."""
    if not any(attempt.cause == BLOCK_PAGE for attempt in task.history):
        return ""
    found = await host_blocks(queue, task.lane)
    return f"{found.words}; look: shoal hosts blocks {clean(found.host)}" if found is not None and found.words else ""


def describe_noticed(counters: Mapping[str, int]) -> str:
    """How many pages of a run count although they look like block pages, and what to do; empty for none."""
    ways = " · ".join(map(_way_words, noticed_usage(counters)))
    return f"{ways} look like block pages, and count: {LOOK}; --on-block later keeps them out" if ways else ""


def _way_words(one: BlockUsage) -> str:
    share = format_share(one.blocked, one.responses)
    return f"{count(one.blocked, 'answer')} of {count(one.responses)} by {one.fetcher} {clean(one.exit)} ({share})"


def describe_blocks(counters: Mapping[str, int]) -> str:
    """How many answers of a run were block pages; empty for none."""
    parts = [*map(_way_words, block_usage(counters))]
    if handed := counters.get(BLOCK_HANDED_ON, 0):
        parts.append(f"{count(handed, 'page')} handed on")
    if odd := counters.get(BLOCK_ODD, 0):
        parts.append(f"{count(odd, 'odd page')} asked for twice")
    return " · ".join(parts)


def block_usage_documents(counters: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{**_way_document(one), "blocked": one.blocked} for one in block_usage(counters)]


def noticed_documents(counters: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{**_way_document(one), "noticed": one.blocked} for one in noticed_usage(counters)]


def _way_document(one: BlockUsage) -> dict[str, Any]:
    return {"fetcher": one.fetcher, "exit": one.exit, "share": round(one.share, 4)}


def fleet_blocks(statuses: Iterable[WorkerStatus]) -> dict[tuple[str, str], int]:
    """Block pages by fetcher and exit, as workers that are alive have counted."""
    made: dict[tuple[str, str], int] = {}
    for status in statuses:
        for way, number in decode(status.counters).blocks.items():
            fetcher, _, exit = way.partition(" ")
            made[fetcher, exit] = made.get((fetcher, exit), 0) + number
    return made


def block_family(statuses: Iterable[WorkerStatus]) -> MetricFamily:
    family = MetricFamily("fleet_block_pages", "gauge", "Block pages by fetcher and exit, of processes that are alive.")
    for (fetcher, exit), number in sorted(fleet_blocks(statuses).items()):
        family.add(number, fetcher=fetcher, exit=exit)
    return family


def blocked_pages(snapshot: Snapshot, series: Series) -> Iterator[Recommendation]:
    """What share of the answers is lost to block pages, and what might help."""
    samples = series.last(RECENT_SECONDS)
    blocked = sum(one.failed.get(BLOCK_PAGE, 0) for one in samples)
    tries = sum(one.done + sum(one.failed.values()) for one in samples)
    if blocked < MIN_BLOCKED or blocked < MIN_SHARE * tries:
        return
    ways = fleet_blocks(snapshot.alive)
    most = max(ways, key=lambda way: ways[way], default=("", ""))
    parked = [host_of_lane(lane.name) for lane in snapshot.parked if "block page" in lane.reason]
    host = parked[0] if len(set(parked)) == 1 else ""
    share = round(100 * blocked / tries)
    by = f", most of them by {most[0]} {clean(most[1])}" if most[0] else ""
    steps = [RecommendedStep("try another exit, or a slower pace", "shoal run … --on-block exit:NAME")]
    if most[0] != BROWSER:
        steps.insert(0, RecommendedStep("try a browser", "shoal run … --on-block browser"))
    if host:
        steps.insert(0, RecommendedStep("look at what it gives", f"shoal hosts blocks {clean(host)}"))
        steps.append(host_step("ask it again now", host, "release", f"shoal hosts release {clean(host)}"))
    yield Recommendation(
        "blocked",
        "act",
        f"{share} % of answers are block pages" + (f" at {clean(host)}" if host else ""),
        f"{count(blocked)} of {count(tries)} attempts in the last {format_duration(RECENT_SECONDS)}{by}:"
        " captcha, consent or login pages in place of those that were asked for; none of them is a record",
        {"blocked": blocked, "tries": tries, "share": round(blocked / tries, 3), "hosts": sorted(set(parked))[:5]},
        host=host,
        actions=tuple(steps),
    )


def noticed_pages(snapshot: Snapshot, series: Series) -> Iterator[Recommendation]:
    """What share of the pages may be lost where block pages count as they are."""
    samples = series.last(RECENT_SECONDS)
    noticed, done = sum(one.noticed for one in samples), sum(one.done for one in samples)
    if noticed < MIN_BLOCKED or noticed < MIN_SHARE * done:
        return
    hosts = Counter[str]()
    for status in snapshot.alive:
        hosts.update(decode(status.counters).noticed_at)
    host = max(hosts, key=lambda name: hosts[name], default="")
    share = format_share(noticed, done)
    yield Recommendation(
        "noticed_blocks",
        "watch",
        f"{share} of pages look like block pages" + (f", most of them at {clean(host)}" if host else ""),
        f"{count(noticed)} of {count(done)} pages in the last {format_duration(RECENT_SECONDS)} are one and the same"
        " page under several URLs, which gives less than usual or asks for something; their records count",
        {"noticed": noticed, "done": done, "share": round(noticed / max(done, noticed), 3), "hosts": sorted(hosts)[:5]},
        host=host,
        actions=(
            RecommendedStep("look at what it gives", f"shoal hosts blocks {clean(host or 'HOST')}"),
            RecommendedStep("keep such pages out, and ask for them again", "shoal run … --on-block later"),
        ),
    )
