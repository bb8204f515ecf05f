"""Page states on their way between a worker and the queue: read for many tasks at once, saved before outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shoal.core.page_memory import PageHead, unpack_head
from shoal.core.run import Run, run_of
from shoal.queue.base import MAX_PAGE_STATES, MAX_WHOLE_PAGE_STATES, PageState, Queue
from shoal.queue.previous_run import previous_run

MAX_AHEAD = 500  # states that wait to be asked for
SAVE_BYTES = 8_000_000  # of one step
GATHER_SECONDS = 0.003  # for which a question waits for others, so that one answer does for a batch of tasks

Found = dict[bytes, tuple[PageHead, bytes]]  # heads and bodies by the digests of their tasks


class PageStateBuffer:
    """States that wait to be saved: they are in the queue before the outcomes they belong to."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._pending: dict[int, PageState] = {}  # by task

    def put(self, state: PageState) -> None:
        self._pending[state.task] = state

    async def flush(self) -> None:
        while self._pending:
            some = self._next_step()
            await self._queue.save_page_states(run_of(some[0].task), some)
            for state in some:
                if self._pending.get(state.task) is state:  # else there is a newer one by now
                    del self._pending[state.task]

    def _next_step(self) -> list[PageState]:
        """Some of one run."""
        step: list[PageState] = []
        size = 0
        for state in self._pending.values():
            if step and run_of(state.task) != run_of(step[0].task):
                continue
            size += len(state.head) + len(state.body)
            if step and (len(step) >= MAX_PAGE_STATES or size > SAVE_BYTES):
                break
            step.append(state)
        return step


class PageStateReader:
    """What the previous run remembers of pages, read for many tasks at once."""

    def __init__(self, queue: Queue, run: Run) -> None:
        self._queue = queue
        self._run = run
        self._previous: int | None = None  # its id; 0: there is none; None: nobody has looked
        self._turn = asyncio.Lock()
        self._ahead: dict[bytes, tuple[PageHead, bytes] | None] = {}  # read, and not asked for yet
        self._next: tuple[list[bytes], asyncio.Task[Found]] | None = None  # that others may still join

    async def read_ahead(self, digests: Sequence[bytes]) -> None:
        """Read what will be asked for soon, in one go."""
        if self._previous == 0:
            return
        if len(self._ahead) > MAX_AHEAD:
            self._ahead.clear()  # tasks that were given back; what is missed is read when it is asked for
        for at in range(0, len(digests), MAX_WHOLE_PAGE_STATES):
            some = digests[at : at + MAX_WHOLE_PAGE_STATES]
            self._ahead |= dict.fromkeys(some) | await self._read(some)

    async def find(self, digest: bytes) -> tuple[PageHead, bytes] | None:
        """The head and the body that the page of this digest had."""
        if self._previous == 0:
            return None
        if digest in self._ahead:
            return self._ahead.pop(digest)
        if self._next is None or len(self._next[0]) >= MAX_WHOLE_PAGE_STATES:
            digests: list[bytes] = []
            self._next = digests, asyncio.create_task(self._read_in_turn(digests))
        self._next[0].append(digest)
        # Shielded: it is the answer of others, too.
        return (await asyncio.shield(self._next[1])).get(digest)

    async def _read_in_turn(self, digests: list[bytes]) -> Found:
        await asyncio.sleep(GATHER_SECONDS)
        async with self._turn:
            if self._next is not None and self._next[0] is digests:
                self._next = None
            return await self._read(digests)

    async def _read(self, digests: Sequence[bytes]) -> Found:
        if self._previous is None:
            previous = await previous_run(self._queue, self._run)
            self._previous = previous.id if previous is not None else 0
        if not self._previous:
            return {}
        tasks = [task for task in await self._queue.ids(self._previous, digests) if task]
        if not tasks:
            return {}
        states = await self._queue.page_states(self._previous, tasks=tasks, limit=len(tasks), whole=True)
        heads = ((unpack_head(state.head), state.body) for state in states)
        # A digest may also be that of a URL to which the page of another task was redirected.
        return {head.digest: (head, body) for head, body in heads if head is not None}
