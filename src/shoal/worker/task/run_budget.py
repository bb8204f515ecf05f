"""RunBudget: this process's part in the budget of a run: no page begins whose cost might not fit into what is left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping

import msgspec

from shoal.core.budget import Answer, Ledger, Share, ask_for_share, page_share, shortfall, without_expired
from shoal.core.cost import NOTHING, Cost, cost_of, highest
from shoal.core.run import Run
from shoal.core.run_counters import HITS, responses_of
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.queue.budget_ledger import load_ledger, save_ledger
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.worker.postponed import TaskPostponed

log = logging.getLogger("shoal.worker")

LOOK_SECONDS = 10.0  # a run without a budget may be given one: so often that is looked for
# For so long a share is kept of a worker that is not heard of; in a big fleet each is heard of less often.
SHARE_SECONDS, SHARE_SECONDS_PER_WORKER = 30.0, 0.2
KEEP_INTERVAL = 2.0  # seconds between two looks at whether the share is to be renewed, or given back
# Of work that one answer of the ledger should be enough for.
SUPPLY_SECONDS, SUPPLY_SECONDS_PER_WORKER = 2.0, 0.1
MIN_PAGES, MAX_GROWTH = 4, 4
WAIT_SECONDS = 10.0  # for others to give back what they do not need; then the page goes back to the queue
WAIT_STEP = 0.2
WINDOW = 50  # pages; the most expensive of the last one or two windows counts

Key = tuple[int, ...]  # task and lease
Decide = Callable[[Ledger, Mapping[str, int], Share], Answer]


class RunBudget:
    def __init__(
        self,
        queue: Queue,
        run: Run,
        limits: Cost = NOTHING,
        places: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """limits: those of the run as it began; what the ledger says comes first. places: pages at once."""
        self._queue = queue
        self._run = run
        self._worker = secrets.token_hex(6)  # this process, in the ledger
        self._clock = clock
        self._places = places
        self._first_limits = limits
        self._ledger = Ledger(limits=limits)
        self._looked_at = self._renewed_at = self._retry_at = -math.inf
        self._lock = asyncio.Lock()
        self._reserved = NOTHING  # as the ledger has it
        self._in_progress: dict[Key, Cost] = {}  # what pages may take, or have taken and is not settled yet
        self._in_use = NOTHING  # their sum
        self._ended: set[Key] = set()  # of those in progress: what they have cost is known
        self._gone = NOTHING  # used up since the ledger was read: there it still counts as reserved, too
        self._lost = NOTHING  # of that: nobody has counted it
        self._window = [NOTHING, NOTHING]  # the most expensive page of this window, and of the one before
        self._in_window = 0
        self._started = self._started_before = 0  # pages
        self._pages = MIN_PAGES  # that were last asked for
        self._at_once = 1  # no more than there have been: of few pages nobody can tell what the next ones cost
        self._asked_at = clock()
        self._is_changing = False  # what was at hand is being given back for another share
        self._keeper: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # a page was settled: there may be room again

    @property
    def is_limited(self) -> bool:
        return self._ledger.limits is not NOTHING and self._ledger.limits != NOTHING

    async def begin(self, key: Key, kinds: Collection[str]) -> None:
        """Set aside what a page of these kinds of cost may take. Raises TaskPostponed if there is too little left."""
        until = self._clock() + WAIT_SECONDS
        while self._must_ask() and not self._take(key, kinds):
            async with self._lock:
                if not self._must_ask() or self._take(key, kinds):
                    return
                if self._clock() >= self._retry_at and await self._is_granted(key, kinds):
                    return
            if not self.is_limited:
                return
            if self._clock() >= until:
                raise TaskPostponed("other workers have set aside what is left of the run's budget")
            await self._wait()

    async def extend(self, key: Key, spent: Cost, kinds: Collection[str]) -> None:
        """Before one more request of a page that has used so much: the same again, if its share is used up."""
        held = self._in_progress.get(key)
        limits = self._ledger.limits
        if held is None or all(spent.get(kind) < held.get(kind) for kind in kinds if limits.get(kind)):
            return
        more = (*key, self._started)
        async with self._lock:
            if not self._take(more, kinds, begins=False) and not await self._is_granted(more, kinds, begins=False):
                raise TaskPostponed("the page needs more than is left of the run's budget")
            self._put(key, self._in_progress.get(key, NOTHING) + self._pop(more))

    def give_back(self, key: Key) -> None:
        """The page has not begun after all."""
        if key in self._in_progress:
            self._pop(key)
            self._changed.set()

    def end(self, key: Key, counters: Mapping[str, int]) -> None:
        """The page has its outcome: now it is known what it has cost."""
        if key not in self._in_progress:
            return
        cost = cost_of(counters)
        self._put(key, cost)
        self._ended.add(key)
        self._window[0] = highest(self._window[0], cost)
        self._in_window += 1
        if self._in_window >= WINDOW:
            self._window, self._in_window = [NOTHING, self._window[0]], 0

    def settle(self, key: Key, *, is_counted: bool) -> None:
        """The outcome was settled, and counted with it; or it was not taken."""
        if key not in self._in_progress:
            return
        cost = self._pop(key)
        self._gone += cost
        if not is_counted:
            self._lost += cost
        self._retry_at = -math.inf
        self._changed.set()

    async def close(self) -> None:
        """Give back what is left; what is still in progress is lost."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self._reserved == NOTHING and not self._in_progress and self._lost == NOTHING:
            return
        self._lost += self._in_use
        self._in_progress.clear()
        self._ended.clear()
        self._in_use = NOTHING
        with contextlib.suppress(*TRANSIENT_ERRORS):
            async with self._lock:
                await self._change(self._without_share)

    def _must_ask(self) -> bool:
        return self.is_limited or self._clock() >= self._looked_at + LOOK_SECONDS

    def _take(self, key: Key, kinds: Collection[str], *, begins: bool = True) -> bool:
        """Whether there is enough at hand for one page. begins: not for more requests of one in progress."""
        if self._ledger.spent or self._is_changing or not self.is_limited:
            return False
        if begins and len(self._in_progress) >= self._at_once:
            return False
        limits, largest = self._ledger.limits, highest(self._ledger.largest, highest(*self._window))
        free, share = self._free - shortfall(*self._begun(), largest), page_share(largest)
        wanted = [kind for kind in kinds if limits.get(kind)]
        if not all(0 < share.get(kind) <= free.get(kind) for kind in wanted):
            return False
        self._start(key, share.only(wanted))
        return True

    async def _is_granted(self, key: Key, kinds: Collection[str], *, begins: bool = True) -> bool:
        """Ask the ledger for what this page needs, and more like it. Raises TaskPostponed where it is spent."""
        now = self._clock()
        supply = SUPPLY_SECONDS + SUPPLY_SECONDS_PER_WORKER * len(self._ledger.shares)
        rate = (self._started - self._started_before) / max(1e-3, now - self._asked_at)
        self._pages = max(MIN_PAGES, min(math.ceil(rate * supply), MAX_GROWTH * self._pages))
        self._asked_at, self._started_before = now, self._started

        def decide(ledger: Ledger, counters: Mapping[str, int], mine: Share) -> Answer:
            if ledger.spent:
                return Answer("spent", ledger)
            pages = min(self._pages, self._at_once - len(self._in_progress)) if begins else 1
            return ask_for_share(ledger, cost_of(counters), self._worker, mine, kinds, pages, self._places)

        while True:
            answer = await self._change(decide)
            if answer.verdict == "spent":
                await self._pause(answer.ledger)
                raise TaskPostponed(f"the run has used its budget of {answer.ledger.spent}")
            if answer.verdict == "wait":
                self._retry_at = self._clock() + WAIT_STEP
                return False
            if answer.verdict == "alone":
                self._start(key, self._free)
                return True
            if self._take(key, kinds, begins=begins):
                return True
            # Meanwhile a page of ours turned out to need what was granted.

    async def _change(self, decide: Decide) -> Answer:
        """Read the ledger, then what is settled, decide, and write it, until nobody else was first."""
        self._is_changing = True
        try:
            return await self._read_and_write(decide)
        finally:
            self._is_changing = False

    async def _read_and_write(self, decide: Decide) -> Answer:
        while True:
            stored = await load_ledger(self._queue, self._run)
            ledger = stored.ledger if stored.version else Ledger(limits=self._first_limits)
            self._looked_at = self._clock()
            if ledger.limits == NOTHING:
                self._ledger = ledger
                return Answer("wait", ledger)
            # Before it is read what is settled: a page that is settled meanwhile may be in there, or in neither.
            gone, lost, in_use = self._gone, self._lost, self._in_use
            counters = await self._queue.run_counters(self._run.id)
            self._at_once = max(1, responses_of(counters) + counters.get(HITS, 0))
            now = await self._queue.now()
            ledger = without_expired(ledger, now)
            ledger = msgspec.structs.replace(ledger, lost=ledger.lost + lost)
            seconds = SHARE_SECONDS + SHARE_SECONDS_PER_WORKER * len(ledger.shares)
            begun, pages = self._begun()
            mine = Share(now + round(seconds * 1e6), in_use, in_use, highest(*self._window), begun, pages)
            answer = decide(ledger, counters, mine)
            if await save_ledger(self._queue, self._run, stored, answer.ledger):
                break
        if answer.ledger.spent and not ledger.spent:  # the others only hear of it
            log.warning("budget_spent", extra={"run": self._run.name, "budget": answer.ledger.spent})
        self._ledger = answer.ledger
        self._gone, self._lost = self._gone - gone, self._lost - lost
        own = answer.ledger.shares.get(self._worker)
        self._reserved = own.reserved if own is not None else NOTHING
        self._renewed_at = self._clock()
        if own is not None and (self._keeper is None or self._keeper.done()):
            self._keeper = asyncio.create_task(self._keep(), name="budget")
        return answer

    async def _pause(self, ledger: Ledger) -> None:
        """Have no more of the run handed out, unless somebody has given it more meanwhile."""
        with contextlib.suppress(UsageError):  # somebody has ended it meanwhile
            await self._queue.set_run(self._run.id, "pause")
            if not (await load_ledger(self._queue, self._run)).ledger.spent:
                await self._queue.set_run(self._run.id, "resume")

    async def _wait(self) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_STEP):
                await self._changed.wait()

    async def _keep(self) -> None:
        """Renew the share while it is in use, and give back what nobody has asked for."""
        started = -1
        while self._reserved != NOTHING or self._in_progress:
            await asyncio.sleep(KEEP_INTERVAL)
            is_idle, started = started == self._started, self._started
            seconds = SHARE_SECONDS + SHARE_SECONDS_PER_WORKER * len(self._ledger.shares)
            is_due = self._clock() > self._renewed_at + seconds / 3
            if not is_due and not (is_idle and self._reserved != self._in_use):
                continue
            with contextlib.suppress(*TRANSIENT_ERRORS):
                async with self._lock:
                    await self._change(self._with_share if self._in_progress else self._without_share)

    def _with_share(self, ledger: Ledger, counters: Mapping[str, int], mine: Share) -> Answer:
        """What its pages in progress need, and no more."""
        return Answer("wait", msgspec.structs.replace(ledger, shares={**ledger.shares, self._worker: mine}))

    def _without_share(self, ledger: Ledger, counters: Mapping[str, int], mine: Share) -> Answer:
        shares = {name: share for name, share in ledger.shares.items() if name != self._worker}
        largest = ledger.largest if shares else highest(ledger.largest, mine.largest)
        return Answer("wait", msgspec.structs.replace(ledger, shares=shares, largest=largest))

    @property
    def _free(self) -> Cost:
        return self._reserved - (self._in_use + self._gone)

    def _begun(self) -> tuple[Cost, Cost]:
        """What pages that have not ended were given, and how many of them may use each kind."""
        given = [cost.amounts for key, cost in self._in_progress.items() if key not in self._ended]
        kinds = list(zip(*given, strict=True))
        return Cost(*map(sum, kinds)), Cost(*(sum(1 for amount in kind if amount) for kind in kinds))

    def _start(self, key: Key, share: Cost) -> None:
        self._put(key, share)
        self._started += 1

    def _put(self, key: Key, cost: Cost) -> None:
        self._in_use += cost - self._in_progress.get(key, NOTHING)
        self._in_progress[key] = cost

    def _pop(self, key: Key) -> Cost:
        cost = self._in_progress.pop(key)
        self._ended.discard(key)
        self._in_use -= cost
        return cost
