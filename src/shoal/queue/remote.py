"""A queue that is somewhere else: every verb is a question to whoever has it. How it gets there is its subclass's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from shoal.core.lane import Pace
from shoal.core.stats import Stats
from shoal.core.task import Admission, Outcome, Task, Verdict
from shoal.errors import QueueRefused
from shoal.queue.base import CacheEntry, PageState, Promises, PushResult
from shoal.queue.cache_limits import check_cache_keys
from shoal.queue.counter_totals import counter_totals
from shoal.queue.outbox_limits import check_outbox
from shoal.queue.page_state_limits import check_page_states
from shoal.queue.pushed import check_push
from shoal.queue.wire import MAX_ADD, MAX_RUNS_PER_CALL, PAGE_SIZE, PAGED_VERBS, PROTOCOL, VERBS, ServerInfo


class RemoteQueue:
    """The verbs are made below, from the contract; here are those that take more than one message."""

    promises: Promises
    backend: str = ""  # what the queue is kept in there, if whoever has it says so

    async def call(self, name: str, /, *args: Any, **named: Any) -> Any:
        """One verb, asked there."""
        raise NotImplementedError

    async def hello(self) -> bytes:
        """What whoever has the queue says of it: a ServerInfo."""
        raise NotImplementedError

    def not_understood(self, why: str) -> QueueRefused:
        """The error for whoever does not speak as we do."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def handshake(self) -> Self:
        """This queue, once it is known that the other side speaks as we do; else it is closed."""
        try:
            info = self._read_info(await self.hello())
        except BaseException:
            await self.close()
            raise
        self.promises, self.backend = info.promises, info.backend
        return self

    def _read_info(self, answer: bytes) -> ServerInfo:
        try:
            info = msgspec.msgpack.decode(answer, type=ServerInfo)
        except msgspec.DecodeError as error:
            raise self.not_understood("it does not answer as a shoal server or relay does") from error
        if info.protocol != PROTOCOL:
            raise self.not_understood(f"it is shoal {info.shoal}, which speaks another version")
        return info

    async def add(self, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None) -> list[Admission]:
        """Many go in pieces, so that nobody has to wait for long behind them."""
        if len(tasks) <= MAX_ADD:
            return await self.call("add", run, tasks, paces)  # type: ignore[no-any-return]
        admitted: list[Admission] = []
        for start in range(0, len(tasks), MAX_ADD):
            some = tasks[start : start + MAX_ADD]
            lanes = {task.lane for task in some}
            theirs = {lane: pace for lane, pace in paces.items() if lane in lanes} if paces else None
            admitted += await self.call("add", run, some, theirs)
        return admitted

    async def push(self, run: int, tasks: Sequence[Task], *args: Any, **named: Any) -> PushResult:
        """What is too much is said before it is sent."""
        check_push(tasks, named.get("capabilities", ()))
        return await self.call("push", run, tasks, *args, **named)  # type: ignore[no-any-return]

    async def settle(self, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None) -> list[Verdict]:
        check_outbox(outcomes)
        counter_totals(outcomes)
        return await self.call("settle", outcomes, paces)  # type: ignore[no-any-return]

    async def save_page_states(self, run: int, states: Sequence[PageState]) -> None:
        check_page_states(run, states)
        await self.call("save_page_states", run, states)

    async def acknowledge(self, seqs: Collection[int]) -> int:
        """Many go in pieces, too."""
        all_ = list(seqs)
        return sum([await self.call("acknowledge", all_[at : at + PAGE_SIZE]) for at in range(0, len(all_), PAGE_SIZE)])

    async def cache_get(self, keys: Sequence[bytes], *, bodies: bool = True) -> list[CacheEntry | None]:
        """What is too much is said before it is sent."""
        check_cache_keys(keys, bodies)
        return await self.call("cache_get", keys, bodies=bodies)  # type: ignore[no-any-return]

    async def stats_of(self, runs: Sequence[int]) -> list[Stats]:
        """Many are asked for in pieces, too."""
        parts = [runs[at : at + MAX_RUNS_PER_CALL] for at in range(0, len(runs), MAX_RUNS_PER_CALL)] or [()]
        return [stats for part in parts for stats in await self.call("stats_of", part)]

    async def call_paged(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """A listing, in as many pages as it takes."""
        verb = VERBS[name]
        arguments = verb.arguments(args, named)
        left: int = arguments.get("limit", verb.defaults["limit"])
        if left <= PAGE_SIZE:
            return await self.call(name, **arguments)  # type: ignore[no-any-return]
        cursor, field = PAGED_VERBS[name]
        found: list[Any] = []
        while left > 0:
            page = await self.call(name, **arguments | {"limit": min(left, PAGE_SIZE)})
            found += page
            left -= len(page)
            if len(page) < PAGE_SIZE:
                break
            arguments[cursor] = getattr(page[-1], field)
        return found

    if TYPE_CHECKING:  # made from the contract below; every verb of it is there

        def __getattr__(self, name: str) -> Any: ...


def _make_verb(name: str) -> Any:
    async def verb(self: RemoteQueue, *args: Any, **named: Any) -> Any:
        if name in PAGED_VERBS:
            return await self.call_paged(name, args, named)
        return await self.call(name, *args, **named)

    verb.__name__ = verb.__qualname__ = name
    verb.__doc__ = f"Queue.{name}, asked of whoever has it."
    return verb


for _name in VERBS:
    if _name not in vars(RemoteQueue):
        setattr(RemoteQueue, _name, _make_verb(_name))
