"""ShardSet: the shards of a queue, the map of them, and the runs on each; what every verb works with."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.core.task import Task
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Queue
from shoal.queue.document_kinds import SHARD_MAP
from shoal.queue.shards.new_shard import check_apart, check_empty
from shoal.queue.shards.run_numbers import RunNumbers
from shoal.queue.shards.shard import SHORT_TIMEOUT, TIMEOUT, Opener, Shard, gather_all
from shoal.queue.shards.shard_map import NAME, ShardMap, read_map, shard_of, write_map
from shoal.queue.shards.shard_url import shard_name, with_login

if TYPE_CHECKING:
    from shoal.queue.shards.records import RecordOrder

T = TypeVar("T")
log = logging.getLogger("shoal.queue")

MAP_INTERVAL = 2.0  # seconds between two looks whether the map has changed
RUN_KEPT = 1.0  # seconds for which the state of a run is taken for what it was
MAX_RUNS = 10_000
MAX_LANES = 100_000  # whose shard is remembered


async def _map_on(queue: Queue) -> str:
    known = await queue.document(SHARD_MAP, NAME)
    return known.text if known is not None else ""


class ShardSet:
    def __init__(self, urls: Sequence[str], opener: Opener) -> None:
        self.token = uuid.uuid4().hex[:12]  # of this process: what it sends is known by it
        self.shards: list[Shard] = []
        self.map = ShardMap(0, tuple(map(shard_name, urls)))
        self.lacks_map = False  # one of them has none, or an older one: it was away when that was made
        self.turn = 0  # which shard a claim asks first
        self.runs = RunNumbers(self)
        self.looked_at = 0.0  # when the map was last read
        self.reconciled_at = 0.0  # when the parts of runs were last told what became of these
        self.unanswered: dict[tuple[int, str], str] = {}  # (shard, worker): a claim whose reply was lost
        self.held_links: dict[tuple[int, int], dict[int, list[Task]]] = {}  # (task, lease): sent with its outcome
        self.unconfirmed: dict[int, float] = {}  # leases of shards that are away, and since when
        self.last_stats: dict[tuple[int, int], Stats] = {}  # (shard, run): for when it is away
        self.record_orders: dict[int, RecordOrder] = {}  # by run, as last read
        self.limited: set[int] = set()  # runs that have a page limit, as far as is known here
        self.moved: set[int] = set()  # runs of which tasks were moved between shards
        self._runs: dict[int, tuple[Run, float]] = {}  # as last seen, and when
        self._urls = list(urls)
        self.opener = opener
        self._owners: dict[str, int] = {}
        self._add_shards()

    @property
    def home(self) -> Shard:
        return self.shards[0]

    @property
    def away(self) -> tuple[str, ...]:
        return tuple(shard.name for shard in self.shards if shard.is_away)

    def _add_shards(self) -> None:
        for name in self.map.shards[len(self.shards) :]:
            self.shards.append(Shard(len(self.shards), with_login(name, self._urls), self.opener))

    def know_url(self, url: str) -> None:
        """A URL with its login, for a shard that is going to be in the map."""
        self._urls.append(url)

    def owner(self, lane: str) -> Shard:
        """The shard that has a lane."""
        found = self._owners.get(lane)
        if found is None:
            if len(self._owners) >= MAX_LANES:
                self._owners.clear()
            found = self._owners[lane] = shard_of(lane, self.map.settled)
        return self.shards[found]

    # the map

    async def start(self) -> None:
        """Find the map, or make it; a shard that is away may come later, but not all of them."""
        await self.refresh_map()
        if self.map.version:
            return
        if self.home.is_away:
            raise self.home.away_error()
        await self._check_new()
        first = write_map(replace(self.map, version=1))
        made = await self.home.ask(lambda it: it.compare_and_swap(SHARD_MAP, NAME, first, 0))
        self.use_map(read_map(made.text)) if made else await self.refresh_map()
        await self.spread_map()

    async def _check_new(self) -> None:
        try:
            await check_empty(self.shards)
            await check_apart(self.shards, self.token)
        except UsageError:
            await self.refresh_map()
            if not self.map.version:  # else somebody has made it meanwhile, and started a run
                raise

    async def refresh_map(self) -> None:
        """Read the map; the newest that any shard has is the one."""
        self.looked_at = time.monotonic()
        found = await self.gather(_map_on, timeout=SHORT_TIMEOUT)
        maps = [read_map(text) for text in found if text]
        newest = max(maps, key=lambda it: it.version, default=None)
        if newest is not None and newest.version > self.map.version:
            self.use_map(newest)
        self.lacks_map = "" in found or any(it.version < self.map.version for it in maps)

    def use_map(self, shard_map: ShardMap) -> None:
        ours, theirs = self.map.shards, shard_map.shards
        common = min(len(ours), len(theirs))
        if ours[:common] != theirs[:common]:
            raise UsageError(
                f"the shards are {', '.join(theirs)}, and not {', '.join(ours)}",
                hint="give them in the order in which the queue was made; the first is its home",
            )
        if len(ours) > len(theirs) and not self.map.version:
            del self.shards[len(theirs) :]
            log.warning("shard_not_in_map", extra={"shards": ours[len(theirs) :], "hint": "shoal shards add"})
        self.map = shard_map
        self._owners.clear()
        self._add_shards()

    async def change_map(self, changed: ShardMap) -> None:
        """Make this the map, if the one that it was made from still is."""
        known = await self.home.ask(lambda it: it.document(SHARD_MAP, NAME))
        if known is None or read_map(known.text).version != changed.version - 1:
            raise UsageError("somebody else has changed the shards meanwhile", hint="look again: shoal shards status")
        text = write_map(changed)
        if await self.home.ask(lambda it: it.compare_and_swap(SHARD_MAP, NAME, text, known.version)) is None:
            raise UsageError("somebody else has changed the shards meanwhile", hint="look again: shoal shards status")
        self.use_map(changed)
        await self.spread_map()

    async def spread_map(self) -> None:
        """A copy for every shard, so that it is known without the home shard, too."""
        text, version = write_map(self.map), self.map.version

        async def copy(queue: Queue) -> None:
            known = await queue.document(SHARD_MAP, NAME)
            if known is None or read_map(known.text).version < version:
                await queue.compare_and_swap(SHARD_MAP, NAME, text, known.version if known else 0)

        await self.gather(copy)
        self.lacks_map = False

    # asking

    async def gather(
        self, verb: Callable[[Queue], Awaitable[T]], shards: Iterable[Shard] | None = None, *, timeout: float = TIMEOUT
    ) -> list[T | None]:
        """What each shard answers, in their order; None of one that is away."""
        asked = self.shards if shards is None else list(shards)
        if len(asked) == 1:
            return [await asked[0].hint(verb, None, timeout)]
        return await asyncio.gather(*(shard.hint(verb, None, timeout) for shard in asked))

    async def gather_runs(
        self, run: int, verb: Callable[[Queue, int], Awaitable[T]], *, whole: bool = True, timeout: float = TIMEOUT
    ) -> list[tuple[Shard, int, T]]:
        """What each shard answers about its part of a run, with that part's number.

        whole: one that is away raises QueueUnavailable, so that nothing is left out in silence.
        """

        async def ask(shard: Shard) -> tuple[Shard, int, T] | None:
            try:
                local = await self.runs.find(shard, run)
                return (shard, local, await shard.ask(lambda it: verb(it, local), timeout)) if local else None
            except QueueUnavailable:
                if whole:
                    raise
                return None

        # All of them are waited for: none goes on by itself when another one fails.
        return [one for one in await gather_all(map(ask, self.shards)) if one is not None]

    async def run(self, number: int, *, fresh: bool = False) -> Run | None:
        """A run as the home shard has it; while that is away, as it was last seen here, or as any other has it.

        Unless a fresh look is asked for, one of the last second will do.
        """
        known = self._runs.get(number)
        if known is not None and not fresh and time.monotonic() - known[1] < RUN_KEPT:
            return known[0]
        try:
            found = await self.home.ask(lambda it: it.runs(before=number + 1, limit=1))
        except QueueUnavailable:
            return known[0] if known is not None else await self._run_elsewhere(number)
        if not found or found[0].id != number:
            self._runs.pop(number, None)
            return None
        self.note_run(found[0])
        return found[0]

    async def require(self, number: int) -> Run:
        """A run that somebody takes for one."""
        found = await self.run(number)
        if found is None:
            raise UsageError(f"there is no run {number}", hint="shoal runs")
        return found

    async def _run_elsewhere(self, number: int) -> Run:
        for shard in self.shards[1:]:
            with contextlib.suppress(QueueUnavailable):
                if local := await self.runs.find(shard, number):
                    found: list[Run] = await shard.ask(lambda it, local=local: it.runs(before=local + 1, limit=1))  # type: ignore[misc]
                    return replace(found[0], id=number, key="")
        raise self.home.away_error()

    def known_run(self, number: int) -> Run | None:
        known = self._runs.get(number)
        return known[0] if known is not None else None

    def forget_run(self, number: int) -> None:
        self._runs.pop(number, None)
        self.runs.forget(number)

    def note_run(self, run: Run) -> None:
        if len(self._runs) > MAX_RUNS:
            self._runs.clear()
        self._runs[run.id] = run, time.monotonic()
        if run.max_pages:
            self.limited.add(run.id)

    async def close(self) -> None:
        for shard in self.shards:
            await shard.close()
