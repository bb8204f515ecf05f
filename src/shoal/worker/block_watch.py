"""BlockWatch: what this process knows of hosts' usual pages and blocks, shared with the fleet through the queue."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from shoal.core.host_blocks import GOOD, HostBlocks, Judgement, Way
from shoal.core.page_print import PageLook
from shoal.core.usual_page import MIN_PAGES, PageSeen
from shoal.errors import ActionRequired
from shoal.queue.base import Queue
from shoal.queue.host_blocks import BlockEvidence, load_blocks, save_blocks, save_evidence

MAX_HOSTS = 2_000  # of which this process remembers what it knows
MAX_SHAPES = 6_000  # of all of them, whose usual pages it remembers: three kilobytes each
REFRESH_SECONDS = 5.0  # for which the document of a host that gives odd pages is not read again
SHARE_SECONDS = 10.0  # for which what changes no verdict waits
FIRST_SHARE = 16  # pages of a host that are worth a document; then twice as many each time
UNWATCHED = 4  # first pages of a host that are not looked at for a mere notice: many hosts have no more
MAX_EVIDENCE = 1_000  # block pages of which this process remembers that they are kept

log = logging.getLogger("shoal.worker")


@dataclass(slots=True)
class _Host:
    blocks: HostBlocks = field(default_factory=HostBlocks)
    read_at: float = float("-inf")
    shared_at: float = float("-inf")  # the first time as soon as it is worth it: others may know nothing yet
    judged: int = 0
    pages: int = 0  # since it was last shared
    unwatched: int = 0
    shapes: int = 0  # as they were last counted
    share_after: int = FIRST_SHARE
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class BlockWatch:
    def __init__(self, queue: Queue, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._clock = clock
        self._hosts: OrderedDict[str, _Host] = OrderedDict()
        self._shapes = 0
        self._due: set[str] = set()
        self._kept: set[tuple[str, int]] = set()

    async def judge(
        self, host: str, reader: str, url: str, seen: PageSeen, way: Way, look_at: Callable[[], PageLook], now: int
    ) -> Judgement:
        """Whether a page is the one that was asked for, as far as the fleet knows. now: in seconds."""
        known = self._hosts.get(host) or self._add(host)
        known.judged += 1  # before the wait: of many at once only the first ones ask
        if known.read_at < 0 or (known.judged <= MIN_PAGES and not known.blocks.has_usual):
            known.read_at = float("-inf")  # whoever comes late may begin with a wall that others would know
            await self._refresh(host, known)
        found = known.blocks.judge(reader, url, seen, way, look_at, now)
        self._make_room(host, known)
        if found.is_news:
            await self._share(host, known)
        elif found.verdict != "good":
            if self._clock() >= known.read_at + REFRESH_SECONDS:
                await self._refresh(host, known)
            self._due.add(host)
        known.pages += 1
        if known.pages >= known.share_after:
            self._due.add(host)
        return found

    def is_watched(self, host: str) -> bool:
        """Whether one more page of a host is worth a look, for those who only want to be told."""
        known = self._hosts.get(host) or self._add(host)
        if known.unwatched < UNWATCHED:
            known.unwatched += 1
            return False
        return True

    async def notice(
        self, host: str, reader: str, url: str, seen: PageSeen, way: Way, look_at: Callable[[], PageLook], now: int
    ) -> Judgement:
        """As judge, for a page that counts whatever it is: the queue hears of nothing before a block page is found."""
        known = self._hosts.get(host) or self._add(host)
        found = known.blocks.judge(reader, url, seen, way, look_at, now, is_taken=True)
        self._make_room(host, known)
        if found.verdict != "block" or found.page is None:
            return found
        if found.is_news or known.read_at < 0:
            await self._share(host, known)
        else:
            self._due.add(host)
            if self._clock() >= known.read_at + REFRESH_SECONDS:
                await self._refresh(host, known)
        # It may be known to all as what is at its URLs.
        shared = next((one for one in known.blocks.pages if one.id == found.page.id), found.page)
        return GOOD if shared.status() == "content" else found

    def streak(self, host: str, way: Way) -> int:
        """Blocks in a row by one fetcher and exit."""
        known = self._hosts.get(host)
        return known.blocks.streaks.get(way, 0) if known is not None else 0

    async def keep_evidence(self, host: str, page: int, evidence: Callable[[], BlockEvidence]) -> bool:
        """False if this process has kept it before."""
        if (host, page) in self._kept:
            return False
        if len(self._kept) >= MAX_EVIDENCE:
            self._kept.clear()
        self._kept.add((host, page))
        try:
            await save_evidence(self._queue, host, page, evidence())
        except ActionRequired as error:  # the page does not wait for this
            log.warning("block_evidence_unsaved", extra={"host": host, "why": str(error)})
        return True

    async def share_due(self) -> None:
        """Share what has waited for long enough."""
        if not self._due:
            return
        now = self._clock()
        for host in list(self._due):
            known = self._hosts.get(host)
            if known is None:
                self._due.discard(host)
            elif now >= known.shared_at + SHARE_SECONDS:
                await self._share(host, known)

    async def share_all(self) -> None:
        for host, known in list(self._hosts.items()):
            is_read = known.read_at >= 0  # of what is merely noticed nobody needs to know before there is a block page
            if host in self._due or (known.blocks.pages and is_read) or known.pages >= FIRST_SHARE:
                await self._share(host, known)

    def _add(self, name: str) -> _Host:
        known = self._hosts[name] = _Host()
        if len(self._hosts) > MAX_HOSTS:
            self._forget_oldest()
        return known

    def _make_room(self, host: str, known: _Host) -> None:
        """Forget the hosts that were seen longest ago, where all know too much."""
        if host in self._hosts:
            self._hosts.move_to_end(host)
            self._shapes += len(known.blocks.usual) - known.shapes
            known.shapes = len(known.blocks.usual)
        while self._shapes > MAX_SHAPES and len(self._hosts) > 1:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, forgotten = self._hosts.popitem(last=False)
        self._shapes -= forgotten.shapes

    async def _refresh(self, host: str, known: _Host) -> None:
        async with known.turn:
            if self._clock() < known.read_at + REFRESH_SECONDS:
                return
            known.read_at = self._clock()
            try:
                known.blocks.adopt(await load_blocks(self._queue, host))
            except ActionRequired as error:  # the pages do not wait for this: what is known here will do
                log.warning("blocks_unread", extra={"host": host, "why": str(error)})

    async def _share(self, host: str, known: _Host) -> None:
        async with known.turn:
            self._due.discard(host)
            known.shared_at = self._clock()
            known.share_after, known.pages = min(2 * known.share_after, 10_000), 0
            try:
                made = await save_blocks(self._queue, host, known.blocks)
            except ActionRequired as error:
                log.warning("blocks_unsaved", extra={"host": host, "why": str(error)})
                return
            if made is not None:
                known.blocks.adopt(made, is_saved=True)
                known.read_at = self._clock()
